//! Who recorded a program.

use super::Recorded;
use crate::lines::{OpLines, Stack, name_of};
use std::sync::Arc;
use std::thread::Thread;

/// Who recorded a program: what the reports about it say.
#[derive(Default)]
pub(crate) struct Provenance {
    pub(crate) lines: OpLines,
    /// The program that the trace followed last before it diverged.
    pub(crate) left: Option<Arc<Recorded>>,
    /// The first thread that recorded.
    pub(crate) recorder: Option<Thread>,
}

impl Provenance {
    /// Returns the line that recorded a node. Without a node, or where the line is not known, it is the line that has the
    /// program run now, if that is in the thread that recorded it. In another thread it is the first line that is known,
    /// where the trace left its programs, else the name of the thread that recorded it.
    pub(crate) fn location(&self, node: Option<usize>) -> String {
        if let Some(stack) = node.and_then(|node| self.lines.of(node)) {
            return stack.line();
        }
        let here = std::thread::current();
        let recorder = self.recorder.as_ref();
        if recorder.is_some_and(|recorder| recorder.id() == here.id()) {
            return Stack::capture().line();
        }
        match self.lines.first() {
            Some(stack) => stack.line(),
            None => name_of(recorder.unwrap_or(&here)),
        }
    }
}
