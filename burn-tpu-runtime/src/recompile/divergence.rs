//! Watching a trace for the place where it leaves the programs that it made before.
//!
//! A line of source costs microseconds to find, an op takes a quarter of one to record. So the trace's recording follows the
//! latest programs; when it leaves the last of them, the stack is captured, unresolved, once per trace. It becomes a line
//! only if a compile follows.

use super::location;
use crate::program::{Recorded, SlotAssumptions};
use crate::trace::Recording;
use backtrace::Backtrace;
use std::ops::Range;
use std::sync::Arc;

/// The number of programs that are followed: a step, a validation, and a few more.
const MOST_FOLLOWED: usize = 8;

/// What a trace follows, and where it diverged from that.
#[derive(Default)]
pub(crate) struct DivergenceTracker {
    /// The latest programs of the trace, latest first.
    recent: Vec<Followed>,
    /// Whether the trace was one of them at the last look.
    following: bool,
    diverged: Option<CapturedStack>,
    offset_changed: Option<CapturedStack>,
}

/// A program of the trace, with the constants that it was compiled for.
struct Followed {
    recorded: Arc<Recorded>,
    assumptions: Arc<SlotAssumptions>,
}

/// The stack that recorded some nodes.
struct CapturedStack {
    nodes: Range<usize>,
    stack: Backtrace,
}

impl CapturedStack {
    fn new(nodes: Range<usize>) -> Self {
        Self { nodes, stack: Backtrace::new_unresolved() }
    }
}

impl DivergenceTracker {
    /// Empties the recording, which follows the latest programs from now on.
    pub(crate) fn restart(&mut self, recording: &mut Recording) {
        recording.restart(self.recent.iter().map(|followed| &followed.recorded.graph));
        self.following = !self.recent.is_empty();
        self.diverged = None;
        self.offset_changed = None;
    }

    /// Nodes were added again, on the stack of a cut: their callers are unknown.
    pub(crate) fn rerecorded(&mut self, recording: &Recording) {
        self.following = recording.following().is_some();
    }

    /// An op was recorded, whose nodes begin at `start`.
    pub(crate) fn recorded(&mut self, start: usize, recording: &Recording) {
        if self.following && recording.following().is_none() {
            self.following = false;
            self.diverged = Some(CapturedStack::new(start..recording.len()));
        }
    }

    /// An offset is about to become the next node.
    pub(crate) fn offset(&mut self, recording: &Recording, index: u32, bits: u64) {
        let Some(graph) = recording.following().filter(|_| self.offset_changed.is_none()) else { return };
        let followed = self.recent.iter().find(|followed| Arc::ptr_eq(&followed.recorded.graph, graph));
        if followed.and_then(|followed| followed.constant(index)).is_some_and(|constant| constant != bits) {
            self.offset_changed = Some(CapturedStack::new(recording.len()..recording.len() + 1));
        }
    }

    /// The trace was run as this program.
    pub(crate) fn ran(&mut self, recorded: &Arc<Recorded>, assumptions: &Arc<SlotAssumptions>) {
        self.recent.retain(|recent| !Arc::ptr_eq(&recent.recorded, recorded));
        let followed = Followed { recorded: Arc::clone(recorded), assumptions: Arc::clone(assumptions) };
        self.recent.insert(0, followed);
        self.recent.truncate(MOST_FOLLOWED);
        self.following = false;
    }

    /// Returns the line that recorded a node, if that is where the trace left its programs. Without a node, or where the
    /// line was not captured, it is the line that has the program run now.
    pub(crate) fn location(&self, node: Option<usize>) -> Option<String> {
        let captured = self.diverged.iter().chain(&self.offset_changed);
        let captured = captured.into_iter().find(|stack| node.is_some_and(|node| stack.nodes.contains(&node)));
        let stack = captured.map_or_else(Backtrace::new_unresolved, |captured| captured.stack.clone());
        location::of(stack)
    }
}

impl Followed {
    /// The constant that the program has for a recorded offset.
    fn constant(&self, recorded_index: u32) -> Option<u64> {
        let slots = &self.recorded.bindings.slots;
        let index = slots.binary_search(&recorded_index).ok()?;
        self.assumptions.offset(index as u32)
    }
}
