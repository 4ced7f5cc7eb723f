//! Which line of the user's program recorded an op.
//!
//! Owns: stacks ([`Stack`]), when one is captured and which are kept ([`Lines`]), which ops of a program have one
//! ([`OpLines`]), and what a stack says: the user's line, the part of the step, the modules ([`Resolver`]). May not know:
//! traces, programs, and what a line is reported for.
//!
//! # When a stack is captured
//!
//! A capture takes microseconds, more after each compile, and an op takes a quarter of one to record. So most ops have no
//! stack. An op has one at most, which stays with it while it is recorded, and every report about it reads that one.
//!
//! | of | when |
//! |---|---|
//! | an op, while numbers are checked or a profile is running | once for each beginning of a recording ([`RecordedLines`]) |
//! | an op that leaves the trace's earlier programs, or whose result has no line yet | when `recompile` asks for it |
//! | an op of a function that recorded something else before | when `trace::function` asks for it |
//! | an op that is recorded for a fit | always: its label names the line ([`SourceLabels`]) |
//! | host data | at the first upload of its type ([`UploadLines`]) |
//! | an error, or a check of computed indices | where it is made |
//!
//! A stack becomes a line when a report needs it: that takes milliseconds.

mod labels;
mod libraries;
mod recorded;
mod resolver;
mod stack;
mod uploads;

pub(crate) use labels::{SourceLabels, op_and_line};
pub(crate) use recorded::{Anchor, OpLines, OpStack, RecordedLines, RecordedOp};
pub use resolver::StepPart;
pub(crate) use resolver::{Resolver, StepPlace};
pub(crate) use stack::{Stack, name_of};
pub(crate) use uploads::UploadLines;

/// The stacks that a device keeps.
pub(crate) struct Lines {
    pub(crate) ops: RecordedLines,
    pub(crate) uploads: UploadLines,
    /// On a device whose programs are recorded for a fit.
    pub(crate) labels: Option<SourceLabels>,
}

impl Lines {
    /// `keeps_all` says that every op of the device keeps its stack; `names_lines`, that labels of ops name their lines.
    pub(crate) fn new(keeps_all: bool, names_lines: bool) -> Self {
        let labels = names_lines.then(SourceLabels::default);
        Self { ops: RecordedLines::new(keeps_all), uploads: UploadLines::default(), labels }
    }
}
