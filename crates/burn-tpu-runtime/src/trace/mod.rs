//! Recording: each (device, stream) has a trace of nodes that wait for the next cut.
//!
//! Owns: which tensors are live, where a trace is cut, how a cut becomes one program. May not know: how programs are
//! compiled or where buffers live (`engine`), nor what an op means (`ops`).
//!
//! # What a program may depend on
//!
//! A program depends on what its stream recorded, never on when other threads run or in which order tensors are dropped
//! (Burn's autodiff drops out of hash maps). The events of a stream, which are recorded ops and the owner's cuts, have
//! consecutive *positions*. The rules, which `tests/interleavings.rs` checks over random recordings:
//!
//! 1. The owner's cut (a mark step, a read, a sync, a copy to another device, a full trace) runs the ops before it. Live
//!    are the tensors that the owner holds at that position.
//! 2. A read or a use by another thread cuts at the position of the tensor's own op, whatever the owner has recorded since.
//!    Live are the tensors that the owner held just after that op. The ops after it are recorded again as if the cut had
//!    come before them.
//! 3. A tensor of which another thread drops a handle counts as held by the owner until the next cut: the time of that drop
//!    is chance.
//! 4. A read by the owner cuts if the tensor was recorded after the owner's last cut, whether or not another thread had it
//!    computed meanwhile.
//! 5. The end of a training step ([`CutReason::MarkStep`] through `TpuOptimizer`) is cut at its seams too
//!    ([`CutReason::Seam`]): earlier work that the step does not use runs as programs of its own, since another thread may
//!    have had it computed or not. It runs where it would have run for that thread.
//! 6. A full trace is cut where the number of nodes since the owner's last cut reaches a multiple of
//!    [`TpuOptions::trace_cap`](crate::TpuOptions::trace_cap), unless fewer than half of that many wait.
//! 7. Recorded work that no tensor can ask for any more may be forgotten or not: dead nodes, and the parameters and slots
//!    that only they read, are no part of a program.
//!
//! A function's recording (`function`) is a stream that nothing may cut.
//!
//! The order in which other threads use one stream's tensors, and whether they do so before or after the owner's next cut,
//! is the program's own business: it decides where the stream is cut.
//!
//! # Errors
//!
//! A program is found or compiled, and its scalars are uploaded, before any buffer is taken. If that fails, the trace
//! stays pending: its tensors keep what they are, the caller of the cut gets the error, and the next cut tries again,
//! at the same position first. A program that fails while it runs leaves its error in its results.
//!
//! # Locks
//!
//! In the order in which they may be taken: a trace, a trace's `Exchange`. A tensor may be dropped under both.

pub(crate) mod at_once;
mod callers;
mod cut;
mod function;
mod handles;
mod pending;
mod record;
mod recording;
mod stats;
mod stream;
#[cfg(all(test, feature = "ndarray"))]
mod tests;

pub(crate) use function::{FunctionRecording, Placeholder, Purpose, Source};
pub(crate) use pending::{materialise, materialise_together};
pub(crate) use record::record_list;
pub use record::{Recorder, create, record, record_many, record_or_compute, record_or_compute_many};
pub(crate) use recording::Recording;
pub use stream::{InStream, Stream};
pub(crate) use stream::{current_function, cut, end_step, forget, mark_step};

use crate::engine::Input;
use crate::error::TpuError;
use crate::lines::{Anchor, OpLines, Stack};
use crate::recompile::DivergenceTracker;
use crate::runtime::DeviceRuntime;
use burn_tpu_graph::NodeId;
use cut::Outcomes;
use function::FunctionNotes;
use handles::{Exchange, Handles};
use parking_lot::Mutex;
use pending::PendingParameter;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use stats::RecordingStats;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// The trace of one stream on one device, shared with the tensors that it recorded.
pub(crate) struct StreamTrace {
    /// The id of the stream whose trace this is.
    owner: u64,
    /// The function that the stream records, which nothing may cut.
    function: Option<Arc<FunctionNotes>>,
    runtime: Arc<DeviceRuntime>,
    trace: Mutex<Trace>,
    exchange: Exchange,
    /// The position of the next event. Changes under the trace's lock.
    position: AtomicU64,
    /// The serial number of the first tensor after the owner's last cut. Changes under the trace's lock.
    boundary: AtomicU64,
}

/// Recorded nodes and what they refer to.
#[derive(Default)]
struct Trace {
    recording: Recording,
    /// Buffers read by parameter nodes, by parameter index; a failed one fails what uses it.
    buffers: Vec<Input>,
    /// The parameter node of a buffer, by the buffer's address (alive while `buffers` holds it).
    parameters: FxHashMap<usize, NodeId>,
    /// Bits of the run-time scalars, by slot index.
    slots: Vec<u64>,
    /// Recorded ops, oldest first.
    ops: Vec<OpRecord>,
    ran: Ran,
    handles: Handles,
    /// Parameters that had no value when they were used, by ascending position.
    pending: Vec<PendingParameter>,
    /// Positions of cuts that failed, ascending: later cuts begin with them.
    failed_cuts: SmallVec<[u64; 1]>,
    fullness: Fullness,
    stats: RecordingStats,
    tracker: DivergenceTracker,
    anchor: Anchor,
}

impl Trace {
    /// Returns the stacks of the ops up to node `end`.
    fn lines(&self, end: usize) -> OpLines {
        let ops = self.ops.iter().take_while(|op| op.end <= end);
        OpLines::of_ops(ops.map(|op| (op.end, op.stack.as_ref())))
    }
}

/// The nodes of one recorded op: `[start, end)`, composed of themselves and `inputs` alone.
struct OpRecord {
    inputs: SmallVec<[NodeId; 3]>,
    start: usize,
    end: usize,
    position: u64,
    /// The stack that recorded it, if that was captured.
    stack: Option<Stack>,
}

/// The ops that ran and are still in their trace. A loader's thread records batches ahead, and another thread has them run
/// one by one. So the ops after such a cut stay where they are, until more ran than wait: each op is copied a few times at
/// most, however far ahead the loader is.
#[derive(Default)]
struct Ran {
    /// The number of these ops.
    ops: usize,
    /// The number of nodes up to the end of the last of them.
    nodes: usize,
    /// The values of the tensors that were alive after them.
    values: FxHashMap<NodeId, Input>,
}

/// When a trace is full, by rule 6.
#[derive(Default)]
struct Fullness {
    /// Nodes recorded since the owner's last cut, those included that others had cut.
    nodes: usize,
    /// The number of whole caps in that.
    caps: usize,
    /// In strict mode: the error that the next cut reports.
    error: Option<TpuError>,
}

impl Fullness {
    /// Returns whether the trace has just become full; `pending` nodes wait for a cut.
    fn reached(&mut self, cap: usize, pending: usize) -> bool {
        let caps = self.nodes / cap;
        let reached = caps > self.caps && 2 * pending >= cap;
        self.caps = caps;
        reached
    }
}

/// Which trace recorded a tensor, and where.
pub(crate) struct Origin {
    trace: Arc<StreamTrace>,
    serial: u64,
    /// Whether another stream has dropped a handle of the tensor.
    shared: AtomicBool,
}

impl Origin {
    fn new(trace: Arc<StreamTrace>, serial: u64) -> Self {
        Self { trace, serial, shared: AtomicBool::new(false) }
    }

    /// Returns whether the calling thread is in the stream that recorded the tensor.
    pub(crate) fn is_owned_here(&self) -> bool {
        self.trace.is_current()
    }

    /// Returns the tensor's number among those of its trace, which ascends with the recording.
    pub(crate) fn serial(&self) -> u64 {
        self.serial
    }

    /// Notes that another stream dropped a handle.
    pub(crate) fn mark_shared(&self) {
        self.shared.store(true, Relaxed);
    }

    /// Reports that a tensor without a value was dropped, by rule 3.
    pub(crate) fn dropped(&self) {
        let trace = &self.trace;
        let counts = trace.is_current() && !self.shared.load(Relaxed);
        let position = counts.then(|| trace.position.load(Relaxed));
        if trace.exchange.report_drop(self.serial, position) {
            trace.forget_if_idle();
        }
    }
}

impl StreamTrace {
    fn new(owner: u64, function: Option<Arc<FunctionNotes>>, runtime: Arc<DeviceRuntime>) -> Self {
        let log = &runtime.counters().recompiles;
        let tracker = function.as_ref().map_or_else(|| DivergenceTracker::new(log), |notes| notes.tracker(log));
        let mut trace = Trace { tracker, ..Trace::default() };
        trace.tracker.restart(&mut trace.recording);
        Self {
            owner,
            function,
            runtime,
            trace: Mutex::new(trace),
            exchange: Exchange::default(),
            position: AtomicU64::new(0),
            boundary: AtomicU64::new(0),
        }
    }

    pub(crate) fn runtime(&self) -> &Arc<DeviceRuntime> {
        &self.runtime
    }

    /// Returns whether the calling thread is in this trace's stream.
    fn is_current(&self) -> bool {
        stream::current_id() == self.owner
    }

    /// Takes the position of an event. Call it under the trace's lock.
    fn next_position(&self) -> u64 {
        let position = self.position.load(Relaxed);
        self.position.store(position + 1, Relaxed);
        position
    }

    /// Drops recorded work that no tensor can ask for any more. A trace that is being recorded or cut is left alone.
    fn forget_if_idle(&self) {
        if self.function.is_some() {
            return;
        }
        if let Some(mut trace) = self.trace.try_lock() {
            trace.handles.apply(&self.exchange);
            let position = self.position.load(Relaxed);
            if trace.handles.iter().all(|handle| !handle.alive_after(position)) {
                trace.stats.flush(self.runtime.counters());
                self.reset(&mut trace, &Outcomes::default());
            }
        }
    }

    /// Forgets everything recorded, after a cut with these outcomes.
    fn reset(&self, trace: &mut Trace, outcomes: &Outcomes) {
        trace.buffers.clear();
        trace.parameters.clear();
        trace.slots.clear();
        trace.pending.clear();
        trace.ops.clear();
        trace.ran = Ran::default();
        trace.handles.settle(&self.exchange, u64::MAX, |node| outcomes.of(node), |node| node);
        trace.failed_cuts.clear();
        trace.tracker.restart(&mut trace.recording);
    }
}
