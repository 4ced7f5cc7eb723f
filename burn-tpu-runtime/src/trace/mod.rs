//! Recording: each (device, thread) has a trace of nodes that wait for the next cut.
//!
//! Owns: which tensors are live, where a trace may be cut, how a cut becomes one program. May not know: how programs are
//! compiled or where buffers live (`engine`), nor what an op means (`ops`).
//!
//! A program may depend only on what its thread recorded, never on how threads interleave or in which order tensors are
//! dropped (Burn's autodiff drops out of hash maps). Hence:
//! - A cut by the recording thread materialises every tensor that is alive then. A set, so drop order does not matter.
//! - A cut by another thread, which wants one tensor, goes up to that tensor's own op and materialises what was alive just
//!   after that op was recorded, whatever the owner has recorded or dropped since. So each handle remembers when it died,
//!   counted in handles made.
//! - A handle dropped by another thread counts as alive until the next cut, since the time of that drop is chance.
//! - The end of a training step runs earlier work that the step does not use as programs of their own: whether another
//!   thread had come to read it by then is chance.
//!
//! Locks, in the order in which they may be taken: a trace, one tensor's value, a trace's `Liveness`. Nothing but counting
//! happens under `Liveness`, so a tensor may be dropped anywhere.

mod cut;
mod record;
mod tally;

pub use record::{Recorder, create, record, record_many};

use crate::Device;
use crate::engine::SharedBuffer;
use crate::error::TpuError;
use crate::metrics::CutReason;
use crate::recompile::Watch;
use crate::runtime::{DeviceRuntime, runtime};
use crate::tensor::{Tensor, TensorInner, Value};
use burn_tpu_graph::{Graph, NodeId};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use tally::Tally;

/// The trace of one thread on one device, shared with the tensors that it records.
pub(crate) struct TraceCell {
    owner: u64,
    runtime: Arc<DeviceRuntime>,
    trace: Mutex<Trace>,
    liveness: Mutex<Liveness>,
}

/// Recorded nodes and what they refer to.
#[derive(Default)]
struct Trace {
    graph: Graph,
    /// Buffers read by parameter nodes, by parameter index; a failed one poisons what uses it.
    buffers: Vec<Result<SharedBuffer, TpuError>>,
    /// The parameter node of a buffer, by the buffer's address (alive while it stands in `buffers`).
    parameters: FxHashMap<usize, NodeId>,
    /// Bits of the run-time scalars, by slot index.
    slots: Vec<u64>,
    /// Recorded ops, oldest first.
    ops: Vec<OpRecord>,
    /// Tensors recorded since the last cut, oldest first.
    handles: Vec<Handle>,
    /// Serial number of `handles[0]`.
    first_serial: u64,
    tally: Tally,
    watch: Watch,
}

/// The nodes of one recorded op: `[start, end)`, composed of nothing but themselves and `inputs`.
struct OpRecord {
    inputs: SmallVec<[NodeId; 3]>,
    start: usize,
    end: usize,
}

/// A tensor that was recorded.
struct Handle {
    tensor: Weak<TensorInner>,
    node: NodeId,
    /// Its op, by position in `ops`.
    op: usize,
    /// Serial of the last handle of the same op.
    last_serial: u64,
}

/// When handles died: `deaths[i]` is the serial that the next handle got after handle `first + i` was dropped.
#[derive(Default)]
struct Liveness {
    first: u64,
    deaths: Vec<u64>,
    alive: usize,
}

const ALIVE: u64 = u64::MAX;

impl Liveness {
    fn next_serial(&self) -> u64 {
        self.first + self.deaths.len() as u64
    }

    fn born(&mut self) -> u64 {
        let serial = self.next_serial();
        self.deaths.push(ALIVE);
        self.alive += 1;
        serial
    }

    /// Marks a handle of the current trace as dropped; true when it was the last one alive.
    fn died(&mut self, serial: u64) -> bool {
        let next = self.next_serial();
        let Some(index) = serial.checked_sub(self.first) else { return false };
        let Some(death) = self.deaths.get_mut(index as usize) else { return false };
        *death = next;
        self.alive -= 1;
        self.alive == 0
    }
}

/// A tensor's place in the trace that will compute it.
#[derive(Clone)]
pub(crate) struct Pending {
    cell: Arc<TraceCell>,
    serial: u64,
}

impl Pending {
    /// Tells the trace that the tensor is gone.
    pub(crate) fn dropped(&self) {
        if this_thread() != self.cell.owner {
            return;
        }
        if self.cell.liveness.lock().died(self.serial) {
            self.cell.forget_if_idle();
        }
    }

    /// Makes the tensor's op run. Afterwards its value is ready or failed.
    fn materialise(&self, reason: CutReason) {
        if this_thread() == self.cell.owner {
            self.cell.cut(reason);
        } else {
            self.cell.cut_at(self.serial);
        }
    }
}

impl TraceCell {
    fn new(runtime: Arc<DeviceRuntime>) -> Self {
        Self { owner: this_thread(), runtime, trace: Mutex::default(), liveness: Mutex::default() }
    }

    /// Drops recorded work that no tensor can ask for any more. A trace that is being recorded or cut is left alone.
    fn forget_if_idle(&self) {
        if let Some(mut trace) = self.trace.try_lock() {
            let mut liveness = self.liveness.lock();
            if liveness.alive == 0 {
                trace.tally.flush(self.runtime.counters());
                liveness.first = liveness.next_serial();
                liveness.deaths.clear();
                trace.reset(liveness.first);
            }
        }
    }
}

impl Trace {
    fn reset(&mut self, first_serial: u64) {
        self.graph.clear();
        self.buffers.clear();
        self.parameters.clear();
        self.slots.clear();
        self.ops.clear();
        self.handles.clear();
        self.first_serial = first_serial;
        self.watch.restart(&mut self.graph);
    }

    fn handle(&self, serial: u64) -> Option<&Handle> {
        serial.checked_sub(self.first_serial).and_then(|index| self.handles.get(index as usize))
    }
}

/// The calling thread's number: what `std::thread::current` costs would double the price of a drop.
fn this_thread() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    thread_local! {
        static NUMBER: u64 = NEXT.fetch_add(1, Relaxed);
    }
    NUMBER.with(|number| *number)
}

thread_local! {
    static TRACES: RefCell<Vec<(Device, Arc<TraceCell>)>> = const { RefCell::new(Vec::new()) };
}

/// The calling thread's trace of a device.
fn trace_of(device: Device) -> Arc<TraceCell> {
    TRACES.with_borrow_mut(|traces| {
        if let Some((_, cell)) = traces.iter().find(|(d, _)| *d == device) {
            return Arc::clone(cell);
        }
        let cell = Arc::new(TraceCell::new(runtime(device)));
        traces.push((device, Arc::clone(&cell)));
        cell
    })
}

/// Cuts the calling thread's trace of a device.
pub(crate) fn cut(device: Device, reason: CutReason) {
    trace_of(device).cut(reason);
}

/// Lets the calling thread's trace of a device go.
pub(crate) fn forget(device: Device) {
    let forgotten = TRACES.with_borrow_mut(|traces| {
        let place = traces.iter().position(|(traced, _)| *traced == device);
        place.map(|place| traces.swap_remove(place))
    });
    drop(forgotten);
}

/// Ends a training step: cuts the calling thread's traces of all devices, each step as a program of its own.
pub(crate) fn cut_step(reason: CutReason) {
    let cells = TRACES.with_borrow(|traces| traces.iter().map(|(_, cell)| Arc::clone(cell)).collect::<Vec<_>>());
    cells.iter().for_each(|cell| cell.cut_step(reason));
}

/// Makes several tensors' ops run, the last recorded first: its cut covers the others.
pub(crate) fn materialise_together(tensors: &[&Tensor], reason: CutReason) {
    let pending = |tensor: &&Tensor| match tensor.value() {
        Value::Pending(pending) => Some(pending),
        Value::Ready(_) | Value::Failed(_) => None,
    };
    let mut pending: Vec<Pending> = tensors.iter().filter_map(pending).collect();
    pending.sort_unstable_by_key(|pending| std::cmp::Reverse(pending.serial));
    pending.iter().for_each(|pending| pending.materialise(reason));
}

/// The buffer of a tensor, after cutting what has to run for it.
pub(crate) fn materialise(tensor: &Tensor, reason: CutReason) -> Result<SharedBuffer, TpuError> {
    if let Value::Pending(pending) = tensor.value() {
        pending.materialise(reason);
    }
    match tensor.value() {
        Value::Ready(buffer) => Ok(buffer),
        Value::Failed(error) => Err(error),
        Value::Pending(_) => Err(TpuError::Bug(format!("a cut left {tensor:?} behind"))),
    }
}
