//! Recording: each (device, stream) has a trace of nodes that wait for the next cut.
//!
//! Owns: which tensors are live, where a trace is cut, how a cut becomes one program. May not know: how programs are
//! compiled or where buffers live (`engine`), nor what an op means (`ops`).
//!
//! # What a program may depend on
//!
//! A program depends on what its stream recorded, never on when other threads run or in which order tensors are dropped
//! (Burn's autodiff drops out of hash maps). The events of a stream, which are recorded ops and the owner's cuts, have
//! consecutive *positions*. The rules, which `tests/recording/interleavings.rs` checks over random recordings:
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
//! In the order in which they may be taken: a trace, a trace's `TensorStates`. A tensor may be dropped under both.

pub(crate) mod at_once;
mod callers;
mod cut;
mod function;
mod handles;
mod pending;
mod precision;
mod record;
mod recorded;
mod stats;
mod stream;
mod tensor;
#[cfg(test)]
mod tests;

pub(crate) use function::{FunctionRecording, FunctionSource, Placeholder, Purpose};
pub(crate) use pending::{materialise, materialise_together};
pub use precision::{scoped_precision, with_precision};
pub(crate) use record::record_list;
pub use record::{Recorder, begin_with, create, record, record_many, record_or_compute, record_or_compute_many};
pub use stream::{InStream, Stream};
pub(crate) use stream::{current_function, cut, end_step, forget, mark_step};
pub use tensor::Tensor;
pub(crate) use tensor::{PendingValue, WaitForDevices};

use crate::error::TpuError;
use crate::lines::Anchor;
use crate::recompile::DivergenceTracker;
use crate::runtime::DeviceRuntime;
use cut::CutResults;
use function::FunctionNotes;
use handles::{Handles, TensorStates};
use parking_lot::Mutex;
use recorded::RecordedOps;
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
    tensors: TensorStates,
    /// The position of the next event. Changes under the trace's lock.
    position: AtomicU64,
    /// The serial number of the first tensor after the owner's last cut. Changes under the trace's lock.
    boundary: AtomicU64,
}

/// The ops that wait for a cut, and what outlives a cut.
#[derive(Default)]
struct Trace {
    /// What a cut consumes.
    recorded: RecordedOps,
    handles: Handles,
    /// Positions of cuts that failed, ascending: later cuts begin with them.
    failed_cuts: SmallVec<[u64; 1]>,
    cap: CapCounter,
    stats: RecordingStats,
    tracker: DivergenceTracker,
    anchor: Anchor,
}

/// Counts nodes towards the cap of a trace, by rule 6.
#[derive(Default)]
struct CapCounter {
    /// Nodes recorded since the owner's last cut, those included that others had cut.
    nodes: usize,
    /// The number of whole caps in that.
    caps: usize,
    /// In strict mode: the error that the next cut reports.
    error: Option<TpuError>,
}

impl CapCounter {
    /// Returns whether the trace has just become full; `pending` nodes wait for a cut.
    fn reached(&mut self, cap: usize, pending: usize) -> bool {
        let caps = self.nodes / cap;
        let reached = caps > self.caps && 2 * pending >= cap;
        self.caps = caps;
        reached
    }

    /// Counts from an owner's cut on.
    fn restart(&mut self) {
        self.nodes = 0;
        self.caps = 0;
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

    /// Returns whether a handle that the calling thread drops is dropped by the stream that recorded the tensor.
    pub(crate) fn is_dropped_by_owner(&self) -> bool {
        stream::drops_for(self.trace.owner)
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
        let counts = self.is_dropped_by_owner() && !self.shared.load(Relaxed);
        let position = counts.then(|| trace.position.load(Relaxed));
        if trace.tensors.report_drop(self.serial, position) {
            trace.forget_if_idle();
        }
    }
}

impl StreamTrace {
    fn new(owner: u64, function: Option<Arc<FunctionNotes>>, runtime: Arc<DeviceRuntime>) -> Self {
        let log = runtime.recompiles();
        let tracker = function.as_ref().map_or_else(|| DivergenceTracker::new(log), |notes| notes.tracker(log));
        let mut trace = Trace { tracker, ..Trace::default() };
        trace.tracker.restart(&mut trace.recorded.recording);
        Self {
            owner,
            function,
            runtime,
            trace: Mutex::new(trace),
            tensors: TensorStates::default(),
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
            trace.handles.apply(&self.tensors);
            let position = self.position.load(Relaxed);
            if !trace.handles.are_alive_after(position) {
                trace.stats.flush(self.runtime.open().counters());
                self.reset(&mut trace, &CutResults::default());
            }
        }
    }

    /// Forgets everything recorded, after a cut with these results.
    fn reset(&self, trace: &mut Trace, results: &CutResults) {
        trace.recorded.clear();
        trace.handles.settle(&self.tensors, u64::MAX, |node| results.of(node), |node| node);
        trace.failed_cuts.clear();
        trace.tracker.restart(&mut trace.recorded.recording);
    }
}
