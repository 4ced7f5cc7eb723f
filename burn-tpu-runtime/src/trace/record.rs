//! Recording one op: operands to nodes, the op's composition, results to tensors.

use super::{Handle, OpRecord, Pending, Trace, TraceCell, trace_of};
use crate::Device;
use crate::engine::SharedBuffer;
use crate::error::TpuError;
use crate::metrics::CutReason;
use crate::tensor::{Tensor, Value};
use burn_tpu_graph::{DType, Graph, GraphError, NodeId, Number, Op, Result, TensorType};
use parking_lot::MutexGuard;
use smallvec::SmallVec;
use std::sync::Arc;

/// What an op's composition sees: the graph's builders, and run-time scalars.
pub struct Recorder<'t> {
    trace: &'t mut Trace,
    cell: &'t TraceCell,
}

impl std::ops::Deref for Recorder<'_> {
    type Target = Graph;

    fn deref(&self) -> &Graph {
        &self.trace.graph
    }
}

impl std::ops::DerefMut for Recorder<'_> {
    fn deref_mut(&mut self) -> &mut Graph {
        &mut self.trace.graph
    }
}

impl Recorder<'_> {
    /// A number that may differ at the next step: rank 0, of type `dtype`, an input of the program. Equal values are
    /// never merged, since tomorrow they may differ.
    pub fn slot(&mut self, dtype: DType, value: impl Into<Number>) -> Result<NodeId> {
        let index = self.trace.slots.len() as u32;
        self.trace.slots.push(value.into().bits(dtype));
        self.trace.graph.add(Op::Slot { index, dtype }, &[])
    }

    /// A number like a slot's that rarely moves: rank 0, an integer. It is a constant of the program until it moves.
    pub fn offset(&mut self, dtype: DType, value: i64) -> Result<NodeId> {
        let index = self.trace.slots.len() as u32;
        let bits = Number::Int(value).bits(dtype);
        self.trace.slots.push(bits);
        self.trace.watch.offset(&self.trace.graph, index, bits);
        self.trace.graph.add(Op::Offset { index, dtype }, &[])
    }

    /// A slot of the element type of `like`, broadcast to its dims.
    pub fn slot_like(&mut self, like: NodeId, value: impl Into<Number>) -> Result<NodeId> {
        let ty = self.ty(like).clone();
        let slot = self.slot(ty.dtype, value)?;
        self.broadcast_to(slot, &ty.dims)
    }

    /// The state `ui64[2]` of a random draw of `words` 32-bit words: the device's key and counter, as slots.
    pub fn rng_state(&mut self, words: usize) -> Result<NodeId> {
        let (key, counter) = self.cell.runtime.draw(words);
        let half = |recorder: &mut Self, value: u64, shift: u32| -> Result<NodeId> {
            let word = recorder.slot(DType::U32, Number::UInt((value >> shift) & 0xffff_ffff))?;
            let word = recorder.reshape(word, &[1])?;
            recorder.convert(word, DType::U64)
        };
        let (low_key, high_key) = (half(self, key, 0)?, half(self, key, 32)?);
        let (low_counter, high_counter) = (half(self, counter, 0)?, half(self, counter, 32)?);
        let low = self.concatenate(&[low_key, low_counter], 0)?;
        let high = self.concatenate(&[high_key, high_counter], 0)?;
        let width = self.splat(DType::U64, &[2], Number::UInt(32))?;
        let high = self.binary(burn_tpu_graph::op::BinaryOp::ShiftLeft, high, width)?;
        self.binary(burn_tpu_graph::op::BinaryOp::Or, high, low)
    }
}

/// The nodes that stand for an op's operands.
type Inputs = SmallVec<[NodeId; 3]>;

/// Where an operand's value is, as seen from one trace.
enum Place {
    /// Recorded in this trace, under this serial.
    Here(u64),
    /// Recorded in another thread's trace.
    Elsewhere(Pending),
    Buffer(Result<SharedBuffer, TpuError>),
}

impl Place {
    fn of(tensor: &Tensor, cell: &Arc<TraceCell>) -> Self {
        tensor.with_value(|value| match value {
            Value::Pending(pending) if Arc::ptr_eq(&pending.cell, cell) => Place::Here(pending.serial),
            Value::Pending(pending) => Place::Elsewhere(pending.clone()),
            Value::Ready(buffer) => Place::Buffer(Ok(Arc::clone(buffer))),
            Value::Failed(error) => Place::Buffer(Err(error.clone())),
        })
    }
}

/// The nodes of the operands, and how many nodes stood before them. While another thread runs what it recorded of them the
/// trace is open to other threads, so what was found before is looked up again.
fn inputs(
    op: &'static str,
    trace: &mut MutexGuard<Trace>,
    cell: &Arc<TraceCell>,
    operands: &[&Tensor],
) -> (Inputs, usize) {
    let mut inputs = Inputs::new();
    let mut before = trace.graph.len();
    trace.graph.set_label(op);
    while let Some(tensor) = operands.get(inputs.len()) {
        let node = match Place::of(tensor, cell) {
            Place::Here(serial) => match trace.handle(serial) {
                Some(handle) => Ok(handle.node),
                None => trace.parameter(Err(TpuError::Bug(format!("{tensor:?} is not in its trace"))), tensor.ty()),
            },
            Place::Buffer(buffer) => trace.parameter(buffer, tensor.ty()),
            Place::Elsewhere(pending) => {
                MutexGuard::unlocked(trace, || pending.materialise(CutReason::OtherThread));
                inputs.clear();
                before = trace.graph.len();
                trace.graph.set_label(op);
                continue;
            }
        };
        inputs.push(node.unwrap_or_else(|error| fail(op, &error)));
    }
    (inputs, before)
}

/// Records an op of one result. `build` composes it from the operands' nodes, in their order.
///
/// # Panics
/// When a composition breaks an op's rule: the message names the Burn op, the operand types and the rule. This is
/// Burn's contract for a user's shape mistake.
pub fn record<const N: usize>(
    op: &'static str,
    operands: [&Tensor; N],
    build: impl FnOnce(&mut Recorder, [NodeId; N]) -> Result<NodeId>,
) -> Tensor {
    let [tensor] = finish(op, operands[0].device(), &operands, |recorder, nodes| {
        let mut fixed = [NodeId(0); N];
        fixed.copy_from_slice(nodes);
        Ok([build(recorder, fixed)?])
    });
    tensor
}

/// Records an op of several operands or results; as [`record`] otherwise.
pub fn record_many<const R: usize>(
    op: &'static str,
    operands: &[&Tensor],
    build: impl FnOnce(&mut Recorder, &[NodeId]) -> Result<[NodeId; R]>,
) -> [Tensor; R] {
    let Some(first) = operands.first() else {
        fail(op, &"needs at least one operand");
    };
    finish(op, first.device(), operands, build)
}

/// Records an op without operands.
pub fn create(op: &'static str, device: &Device, build: impl FnOnce(&mut Recorder) -> Result<NodeId>) -> Tensor {
    let [tensor] = finish(op, *device, &[], |recorder, _| Ok([build(recorder)?]));
    tensor
}

fn finish<const R: usize>(
    op: &'static str,
    device: Device,
    operands: &[&Tensor],
    build: impl FnOnce(&mut Recorder, &[NodeId]) -> Result<[NodeId; R]>,
) -> [Tensor; R] {
    if let Some(tensor) = operands.iter().find(|tensor| tensor.device() != device) {
        fail(op, &format!("operands are on {device} and {}", tensor.device()));
    }
    let cell = trace_of(device);
    let mut trace = cell.trace.lock();
    if trace.graph.len() >= cell.runtime.options().trace_cap {
        cell.cut_locked(&mut trace, CutReason::TraceCap);
    }
    let sample = trace.tally.begin();
    let (inputs, before) = inputs(op, &mut trace, &cell, operands);
    let start = trace.graph.len();
    let built = build(&mut Recorder { trace: &mut trace, cell: &cell }, &inputs);
    let end = trace.graph.len();
    let built = built.map(|nodes| nodes.map(|node| (node, inputs.iter().position(|&input| input == node))));
    trace.ops.push(OpRecord { inputs, start, end });
    trace.tally.nodes += (end - before) as u64;
    let Trace { watch, graph, .. } = &mut *trace;
    watch.recorded(before, graph);
    match built {
        Ok(nodes) => {
            let tensors = adopt(&cell, &mut trace, operands, nodes);
            trace.tally.end(sample);
            tensors
        }
        Err(error) => {
            drop(trace);
            fail(op, &named(operands, &error))
        }
    }
}

/// The broken rule, after what the op itself was given where its composition had changed that.
fn named(operands: &[&Tensor], error: &GraphError) -> String {
    let given = operands.iter().map(|tensor| tensor.ty().to_string()).collect::<Vec<_>>().join(", ");
    if given == error.operands { error.to_string() } else { format!("of ({given}): {error}") }
}

/// Tensors for the result nodes. A node that is an operand's keeps the operand's tensor: an op that changed nothing costs
/// nothing.
fn adopt<const R: usize>(
    cell: &Arc<TraceCell>,
    trace: &mut Trace,
    operands: &[&Tensor],
    nodes: [(NodeId, Option<usize>); R],
) -> [Tensor; R] {
    let first_new = trace.handles.len();
    let tensors = nodes.map(|(node, same)| match same {
        Some(operand) => operands[operand].clone(),
        None => new_handle(cell, trace, node),
    });
    let after = trace.first_serial + trace.handles.len() as u64;
    trace.handles[first_new..].iter_mut().for_each(|handle| handle.last_serial = after - 1);
    tensors
}

fn new_handle(cell: &Arc<TraceCell>, trace: &mut Trace, node: NodeId) -> Tensor {
    let serial = cell.liveness.lock().born();
    let pending = Pending { cell: Arc::clone(cell), serial };
    let tensor = Tensor::new(cell.runtime.device(), trace.graph.ty(node).clone(), Value::Pending(pending));
    let op = trace.ops.len() - 1;
    trace.handles.push(Handle { tensor: Arc::downgrade(tensor.inner()), node, op, last_serial: serial });
    tensor
}

impl Trace {
    /// The parameter node of a buffer; one buffer has one node however often it is used.
    pub(super) fn parameter(&mut self, buffer: Result<SharedBuffer, TpuError>, ty: &TensorType) -> Result<NodeId> {
        let address = buffer.as_ref().map(|buffer| Arc::as_ptr(buffer) as usize).ok();
        if let Some(&node) = address.and_then(|address| self.parameters.get(&address)) {
            return Ok(node);
        }
        let index = self.buffers.len() as u32;
        let node = self.graph.add(Op::Parameter { index, ty: ty.clone() }, &[])?;
        self.buffers.push(buffer);
        if let Some(address) = address {
            self.parameters.insert(address, node);
        }
        Ok(node)
    }
}

/// Burn's contract for a user's mistake.
#[track_caller]
fn fail(op: &'static str, rule: &dyn std::fmt::Display) -> ! {
    panic!("burn-tpu: {op}: {rule}")
}
