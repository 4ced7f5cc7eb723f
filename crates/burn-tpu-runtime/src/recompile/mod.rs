//! Why a program was compiled although one like it was there: the typed event, and how two recordings are compared.
//!
//! Owns: the comparison of recordings, the log of a device, which lines made results. May not know: when a trace is cut,
//! where a program runs.

mod compare;
mod divergence;
mod log;
mod results;

pub(crate) use compare::{explain, from_followed};
pub(crate) use divergence::DivergenceTracker;
pub(crate) use log::RecompileLog;
pub(crate) use results::note_lines;

use crate::program::{Provenance, Recorded};
use std::sync::Arc;

/// A recording that is about to run.
#[derive(Clone, Copy)]
pub(crate) struct RecordedRun<'a> {
    pub(crate) recorded: &'a Arc<Recorded>,
    /// The values of its program's slots.
    pub(crate) slots: &'a [u64],
    pub(crate) provenance: &'a Provenance,
}
