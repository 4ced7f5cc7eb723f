//! Watching a trace for the place where it leaves the programs that were made before.
//!
//! A stack costs microseconds to capture, an op takes a quarter of one to record. So the trace's recording follows the
//! latest programs; where it leaves the last of them, the tracker asks for the op's stack. It becomes a line only if a
//! compile follows, so a stream that is interpreted again and again stops asking. A new stream, such as that of a data
//! loader's thread, begins with the latest programs of its device.
//!
//! A loader records batches ahead of the cuts, and so beyond the programs that it follows. So in a stream whose latest
//! program was compiled, and in a new one, the stacks of some more ops are asked for.

use super::log::{LoopHistory, RecompileLog};
use crate::lines::OpLines;
use crate::program::{Provenance, Recorded, SlotAssumptions};
use crate::recording::Recording;
use burn_tpu_graph::Graph;
use std::sync::Arc;
use std::thread::Thread;

/// The number of programs that are followed: a step, a validation, and a few more.
pub(super) const MOST_FOLLOWED: usize = 8;

/// The number of stacks that a trace asks for, up to [`FEW_COMPILES`] compiles.
const MOST_CAPTURED: usize = 128;

/// With more compiles than these, fewer stacks are asked for. GCC's unwinder looks for each frame in a list of all code that
/// XLA's CPU plugin compiled, so each compile makes every later capture slower.
const FEW_COMPILES: usize = 32;

/// The number of programs in a row that were interpreted, and whose stacks nobody read, after which no stack is asked for
/// where a trace diverges.
const MOST_UNREAD: u32 = 64;

/// What a trace follows, and where it diverged from that.
#[derive(Default)]
pub(crate) struct DivergenceTracker {
    log: Arc<RecompileLog>,
    /// The latest programs of the trace, latest first.
    recent: Vec<FollowedProgram>,
    /// Whether the trace was one of them at the last look.
    following: bool,
    /// The number of stacks to ask for where the trace follows no program: 0 unless the stream is new, or its latest program
    /// was compiled for this run.
    room: usize,
    /// The number of ops in the trace whose stacks were asked for because it follows no program.
    captured: usize,
    /// The number of diverged programs that were interpreted since the latest compile.
    unread: u32,
    offset: OffsetState,
    /// The program that the trace follows and whose outputs' lines are looked for.
    wanted: Option<Arc<Recorded>>,
    /// The program that the trace followed last before it diverged.
    left: Option<Arc<Recorded>>,
    /// The first thread that recorded.
    recorder: Option<Thread>,
}

/// Whether an offset of the trace differs from the constant of the program that it follows.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum OffsetState {
    #[default]
    Same,
    /// One of the op that is being recorded does.
    Changes,
    /// One of an earlier op does.
    Changed,
}

/// A program of the trace, with the constants that it was compiled for.
#[derive(Clone)]
pub(crate) struct FollowedProgram {
    recorded: Arc<Recorded>,
    assumptions: Arc<SlotAssumptions>,
    history: Arc<LoopHistory>,
    /// Whether its results are on the host, which names no lines of them.
    is_interpreted: bool,
}

impl DivergenceTracker {
    /// Returns the tracker of a new stream.
    pub(crate) fn new(log: &Arc<RecompileLog>) -> Self {
        Self { log: Arc::clone(log), recent: log.followed(), room: room(log), ..Self::default() }
    }

    /// Returns the tracker of a function's stream, which is recorded once to be run often: it asks for the stack of every
    /// op that no earlier program has.
    pub(crate) fn of_function(log: &Arc<RecompileLog>) -> Self {
        Self { room: usize::MAX, ..Self::new(log) }
    }

    /// Empties the recording, which follows the latest programs from now on.
    pub(crate) fn restart(&mut self, recording: &mut Recording) {
        recording.restart(self.recent.iter().map(|followed| &followed.recorded.graph));
        self.following = !self.recent.is_empty();
        self.captured = 0;
        self.offset = OffsetState::Same;
        self.left = None;
        let is_wanted =
            |program: &&FollowedProgram| !program.is_interpreted && program.recorded.wanted_lines.is_wanted();
        self.wanted = self.recent.iter().find(is_wanted).map(|program| Arc::clone(&program.recorded));
    }

    /// Goes on with a recording whose earlier ops ran or were recorded again. So many of its ops have a stack.
    pub(crate) fn resume(&mut self, recording: &Recording, captured: usize) {
        self.captured = captured;
        self.offset = OffsetState::Same;
        self.following = recording.following().is_some();
        self.note_left(recording);
    }

    /// Notes an op whose nodes begin at `start`, and returns whether its stack is asked for.
    pub(crate) fn recorded(&mut self, start: usize, recording: &Recording) -> bool {
        if self.recorder.is_none() {
            self.recorder = Some(std::thread::current());
        }
        let follows = recording.following().is_some();
        let diverges = self.following && !follows;
        let is_new = (diverges && self.unread < MOST_UNREAD) || (!follows && self.captured < self.room);
        self.captured += usize::from(is_new);
        if diverges {
            self.following = false;
            self.note_left(recording);
        }
        let changes = self.offset == OffsetState::Changes;
        if changes {
            self.offset = OffsetState::Changed;
        }
        is_new || changes || self.is_wanted_output(start, recording)
    }

    /// Returns whether one of the nodes from `start` on is an output whose line is looked for.
    fn is_wanted_output(&self, start: usize, recording: &Recording) -> bool {
        let Some(wanted) = &self.wanted else { return false };
        let first = wanted.outputs.partition_point(|node| node.index() < start);
        wanted.outputs.get(first).is_some_and(|node| node.index() < recording.len())
            && recording.following().is_some_and(|graph| Arc::ptr_eq(graph, &wanted.graph))
    }

    fn note_left(&mut self, recording: &Recording) {
        let left = recording.left().and_then(|graph| self.followed_as(graph));
        self.left = left.map(|followed| Arc::clone(&followed.recorded));
    }

    /// Notes an offset that is about to become the next node.
    pub(crate) fn offset(&mut self, recording: &Recording, index: u32, bits: u64) {
        if self.offset != OffsetState::Same {
            return;
        }
        let followed = recording.following().and_then(|graph| self.followed_as(graph));
        if followed.and_then(|followed| followed.constant(index)).is_some_and(|constant| constant != bits) {
            self.offset = OffsetState::Changes;
        }
    }

    /// Returns the program whose recording is this graph.
    fn followed_as(&self, graph: &Arc<Graph>) -> Option<&FollowedProgram> {
        self.recent.iter().find(|followed| Arc::ptr_eq(&followed.recorded.graph, graph))
    }

    /// Notes that the trace was run as this program, in the interpreter. Another new one is likely to be interpreted too.
    pub(crate) fn interpreted(&mut self, recorded: &Arc<Recorded>) {
        let unread = self.unread + u32::from(self.captured > 0);
        self.follow(recorded, &Arc::default(), true);
        self.room = 0;
        self.unread = unread;
    }

    /// Notes that the trace was run as this program.
    pub(crate) fn ran(&mut self, recorded: &Arc<Recorded>, assumptions: &Arc<SlotAssumptions>) {
        self.follow(recorded, assumptions, false);
    }

    fn follow(&mut self, recorded: &Arc<Recorded>, assumptions: &Arc<SlotAssumptions>, is_interpreted: bool) {
        let place = self.recent.iter().position(|recent| Arc::ptr_eq(&recent.recorded, recorded));
        let known = place.map(|place| self.recent.remove(place).history);
        let history = known.unwrap_or_else(|| self.log.history_of(&recorded.program));
        self.room = if history.ran() { room(&self.log) } else { 0 };
        let (recorded, assumptions) = (Arc::clone(recorded), Arc::clone(assumptions));
        let followed = FollowedProgram { recorded, assumptions, history, is_interpreted };
        if place.is_none() {
            self.log.follow(&followed);
        }
        self.recent.insert(0, followed);
        self.recent.truncate(MOST_FOLLOWED);
        self.following = false;
        self.unread = 0;
    }

    /// Returns who recorded a program with these lines.
    pub(crate) fn provenance(&self, lines: OpLines) -> Provenance {
        Provenance { lines, left: self.left.clone(), recorder: self.recorder.clone() }
    }
}

/// Returns the number of stacks that a trace asks for after the compiles so far.
fn room(log: &RecompileLog) -> usize {
    MOST_CAPTURED * FEW_COMPILES / log.compiles().max(FEW_COMPILES)
}

impl FollowedProgram {
    /// Returns the constant that the program has for a recorded offset.
    fn constant(&self, recorded_index: u32) -> Option<u64> {
        let slots = &self.recorded.bindings.slots;
        let index = slots.binary_search(&recorded_index).ok()?;
        self.assumptions.constant(index as u32)
    }

    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.recorded, &other.recorded)
    }
}
