//! Watching a trace for the place where it leaves the programs that were made before.
//!
//! A line of source costs microseconds to find, an op takes a quarter of one to record. So the trace's recording follows the
//! latest programs; when it leaves the last of them, the stack is captured, unresolved. It becomes a line only if a compile
//! follows, so a stream that is interpreted again and again stops capturing. A new stream, such as that of a data loader's
//! thread, begins with the latest programs of its device.
//!
//! A loader records batches ahead of the cuts, and so beyond the programs that it follows. So in a stream whose latest
//! program was compiled, and in a new one, the stacks of some more ops are captured.

use super::compare::{Difference, likeness, of_recordings};
use super::location::{Caller, name_of};
use super::log::{LoopHistory, RecompileLog};
use crate::program::{Recorded, SlotAssumptions};
use crate::trace::Recording;
use burn_tpu_graph::NodeId;
use std::ops::Range;
use std::sync::Arc;
use std::thread::Thread;

/// The number of programs that are followed: a step, a validation, and a few more.
pub(super) const MOST_FOLLOWED: usize = 8;

/// The number of captured stacks of a trace, up to [`FEW_COMPILES`] compiles.
const MOST_CAPTURED: usize = 128;

/// With more compiles than these, fewer stacks are captured. GCC's unwinder looks for each frame in a list of all code that
/// XLA's CPU plugin compiled, so each compile makes every later capture slower.
const FEW_COMPILES: usize = 32;

/// The number of programs in a row that were interpreted, and whose stacks nobody read, after which no stack is captured
/// where a trace diverges.
const MOST_UNREAD: u32 = 64;

/// What a trace follows, and where it diverged from that.
#[derive(Default)]
pub(crate) struct DivergenceTracker {
    log: Arc<RecompileLog>,
    /// The latest programs of the trace, latest first.
    recent: Vec<Followed>,
    /// Whether the trace was one of them at the last look.
    following: bool,
    /// The number of stacks to capture where the trace follows no program: 0 unless the stream is new, or its latest program
    /// was compiled for this run.
    room: usize,
    /// The number of diverged programs that were interpreted since the latest compile.
    unread: u32,
    /// In the order of their nodes; the first is where the trace diverged.
    captured: Vec<CapturedStack>,
    offset_changed: Option<CapturedStack>,
    /// The program that the trace follows and whose outputs' lines are looked for.
    wanted: Option<Arc<Recorded>>,
    /// Of the wanted outputs so far.
    of_outputs: Vec<CapturedStack>,
    /// The program that the trace followed last before it diverged.
    left: Option<Arc<Recorded>>,
    /// The first thread that recorded.
    recorder: Option<Thread>,
}

/// A program of the trace, with the constants that it was compiled for.
#[derive(Clone)]
pub(crate) struct Followed {
    recorded: Arc<Recorded>,
    assumptions: Arc<SlotAssumptions>,
    history: Arc<LoopHistory>,
}

/// The stack that recorded the nodes of the op at a position.
pub(crate) struct CapturedStack {
    position: u64,
    nodes: Range<usize>,
    caller: Caller,
}

impl CapturedStack {
    fn new(position: u64, nodes: Range<usize>) -> Self {
        Self { position, nodes, caller: Caller::capture() }
    }
}

impl DivergenceTracker {
    /// Returns the tracker of a new stream.
    pub(crate) fn new(log: &Arc<RecompileLog>) -> Self {
        Self { log: Arc::clone(log), recent: log.followed(), room: room(log), ..Self::default() }
    }

    /// Returns the tracker of a function's stream, which is recorded once to be run often: it captures the stack of every
    /// op.
    pub(crate) fn of_function(log: &Arc<RecompileLog>) -> Self {
        Self { room: usize::MAX, ..Self::new(log) }
    }

    /// Forgets all stacks but the first one, where the recording diverged, and those that recorded these nodes.
    pub(crate) fn keep(&mut self, nodes: &[NodeId]) {
        let mut is_first = true;
        self.captured.retain(|stack| std::mem::take(&mut is_first) || contains_one(&stack.nodes, nodes));
    }

    /// Empties the recording, which follows the latest programs from now on.
    pub(crate) fn restart(&mut self, recording: &mut Recording) {
        recording.restart(self.recent.iter().map(|followed| &followed.recorded.graph));
        self.following = !self.recent.is_empty();
        self.offset_changed = None;
        self.left = None;
        self.of_outputs.clear();
        let mut recent = self.recent.iter().map(|followed| &followed.recorded);
        self.wanted = recent.find(|recorded| recorded.wanted_lines.is_wanted()).cloned();
    }

    /// Everything recorded was forgotten.
    pub(crate) fn forget_callers(&mut self) {
        self.captured.clear();
    }

    /// Nodes were added again, on the stack of a cut: of these ops, by position and by the end of their nodes.
    pub(crate) fn rerecorded(&mut self, recording: &Recording, ops: impl Iterator<Item = (u64, usize)>) {
        let mut captured = std::mem::take(&mut self.captured).into_iter().peekable();
        let mut start = 0;
        for (position, end) in ops {
            while captured.next_if(|stack| stack.position < position).is_some() {}
            let same = captured.next_if(|stack| stack.position == position);
            self.captured.extend(same.map(|stack| CapturedStack { nodes: start..end, ..stack }));
            start = end;
        }
        self.following = recording.following().is_some();
        self.note_left(recording);
        self.of_outputs.clear();
    }

    /// Returns the tracker of the ops up to a position, which will be recorded again and run, and the stacks of later ops.
    pub(crate) fn split_after(mut self, position: u64) -> (Self, Vec<CapturedStack>) {
        let later = self.captured.iter().position(|stack| stack.position > position).unwrap_or(self.captured.len());
        let later = self.captured.split_off(later);
        (self, later)
    }

    /// The ops up to that position ran; the recording of the later ones goes on.
    pub(crate) fn rejoin(self, later: Vec<CapturedStack>, recording: &Recording) -> Self {
        let mut tracker = Self { captured: later, offset_changed: None, ..self };
        tracker.following = recording.following().is_some();
        tracker.note_left(recording);
        tracker
    }

    /// An op was recorded at a position; its nodes begin at `start`.
    pub(crate) fn recorded(&mut self, position: u64, start: usize, recording: &Recording) {
        if self.recorder.is_none() {
            self.recorder = Some(std::thread::current());
        }
        let follows = recording.following().is_some();
        let diverges = self.following && !follows;
        let has_room = self.captured.len() < self.room;
        let is_read = self.unread < MOST_UNREAD;
        if (diverges && is_read) || (!follows && has_room) {
            self.captured.push(CapturedStack::new(position, start..recording.len()));
        }
        if let Some(wanted) = &self.wanted {
            let is_output = contains_one(&(start..recording.len()), &wanted.outputs);
            if is_output && recording.following().is_some_and(|graph| Arc::ptr_eq(graph, &wanted.graph)) {
                self.of_outputs.push(CapturedStack::new(position, start..recording.len()));
            }
        }
        if diverges {
            self.following = false;
            self.note_left(recording);
        }
    }

    fn note_left(&mut self, recording: &Recording) {
        let left = recording.left().and_then(|graph| self.following_as(graph));
        self.left = left.map(|followed| Arc::clone(&followed.recorded));
    }

    /// An offset is about to become the next node.
    pub(crate) fn offset(&mut self, recording: &Recording, index: u32, bits: u64) {
        let Some(graph) = recording.following().filter(|_| self.offset_changed.is_none()) else { return };
        if self
            .following_as(graph)
            .and_then(|followed| followed.constant(index))
            .is_some_and(|constant| constant != bits)
        {
            self.offset_changed = Some(CapturedStack::new(u64::MAX, recording.len()..recording.len() + 1));
        }
    }

    /// Returns the program whose recording is this graph.
    fn following_as(&self, graph: &Arc<burn_tpu_graph::Graph>) -> Option<&Followed> {
        self.recent.iter().find(|followed| Arc::ptr_eq(&followed.recorded.graph, graph))
    }

    /// The trace was run as this program, in the interpreter. Another new one is likely to be interpreted too.
    pub(crate) fn interpreted(&mut self, recorded: &Arc<Recorded>) {
        let unread = self.unread + u32::from(!self.captured.is_empty());
        self.ran(recorded, &Arc::default());
        self.room = 0;
        self.unread = unread;
    }

    /// The trace was run as this program.
    pub(crate) fn ran(&mut self, recorded: &Arc<Recorded>, assumptions: &Arc<SlotAssumptions>) {
        let place = self.recent.iter().position(|recent| Arc::ptr_eq(&recent.recorded, recorded));
        let known = place.map(|place| self.recent.remove(place).history);
        let history = known.unwrap_or_else(|| self.log.history_of(&recorded.program));
        self.room = if history.ran() { room(&self.log) } else { 0 };
        let followed = Followed { recorded: Arc::clone(recorded), assumptions: Arc::clone(assumptions), history };
        if place.is_none() {
            self.log.follow(&followed);
        }
        self.recent.insert(0, followed);
        self.recent.truncate(MOST_FOLLOWED);
        self.following = false;
        self.unread = 0;
    }

    /// Returns how a recording differs from the program that the trace followed longest, if it is like that one. There the
    /// stack was captured; the program that is most like it may differ earlier.
    pub(crate) fn difference(&self, new: &Recorded) -> Option<Difference> {
        let left = self.left.as_ref()?;
        likeness(&left.graph, &new.graph)?;
        let difference = of_recordings(left, new);
        self.captured(difference.node).is_some().then_some(difference)
    }

    /// Returns who recorded a node, if that is known.
    pub(crate) fn caller(&self, node: usize) -> Option<Caller> {
        let mut captured = self.of_outputs.iter().chain(&self.captured);
        captured.find(|stack| stack.nodes.contains(&node)).map(|stack| stack.caller.clone())
    }

    fn captured(&self, node: Option<usize>) -> Option<&CapturedStack> {
        let mut captured = self.captured.iter().chain(&self.offset_changed);
        captured.find(|stack| node.is_some_and(|node| stack.nodes.contains(&node)))
    }

    /// Returns the line that recorded a node, if that is where the trace left its programs. Without a node, or where the
    /// line was not captured, it is the line that has the program run now, if that is in the thread that recorded it. In
    /// another thread it is the place where the trace left its programs, else the name of the thread that recorded it.
    pub(crate) fn location(&self, node: Option<usize>) -> String {
        if let Some(captured) = self.captured(node) {
            return captured.caller.line();
        }
        let here = std::thread::current();
        match (&self.recorder, self.captured.first()) {
            (Some(recorder), _) if recorder.id() == here.id() => Caller::capture().line(),
            (_, Some(diverged)) => diverged.caller.line(),
            (Some(recorder), None) => name_of(recorder),
            (None, None) => name_of(&here),
        }
    }
}

/// Returns the number of stacks that a trace captures after the compiles so far.
fn room(log: &RecompileLog) -> usize {
    MOST_CAPTURED * FEW_COMPILES / log.compiles().max(FEW_COMPILES)
}

/// Returns whether one of these ascending nodes is in a range.
fn contains_one(range: &Range<usize>, nodes: &[NodeId]) -> bool {
    let first = nodes.partition_point(|node| node.index() < range.start);
    nodes.get(first).is_some_and(|node| node.index() < range.end)
}

impl Followed {
    /// The constant that the program has for a recorded offset.
    fn constant(&self, recorded_index: u32) -> Option<u64> {
        let slots = &self.recorded.bindings.slots;
        let index = slots.binary_search(&recorded_index).ok()?;
        self.assumptions.constant(index as u32)
    }

    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.recorded, &other.recorded)
    }
}
