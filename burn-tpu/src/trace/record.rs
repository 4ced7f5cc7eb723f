//! Recording one op: operands to nodes, the op's composition, results to tensors.

use super::{Handle, OpRecord, Pending, Trace, TraceCell, trace_of};
use crate::TpuDevice;
use crate::engine::SharedBuffer;
use crate::error::TpuError;
use crate::metrics::{Counters, CutReason};
use crate::tensor::{TpuTensor, Value};
use burn_tpu_graph::{DType, Graph, NodeId, Number, Op, Result, TensorType};
use smallvec::SmallVec;
use std::sync::Arc;

/// What an op's composition sees: the graph's builders, and run-time scalars.
pub(crate) struct Recorder<'t> {
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
    pub(crate) fn slot(&mut self, dtype: DType, value: impl Into<Number>) -> Result<NodeId> {
        let index = self.trace.slots.len() as u32;
        self.trace.slots.push(value.into().bits(dtype));
        self.trace.graph.add(Op::Slot { index, dtype }, &[])
    }

    /// A number like a slot's that rarely moves: rank 0, an integer. It is a constant of the program until it moves.
    pub(crate) fn offset(&mut self, dtype: DType, value: i64) -> Result<NodeId> {
        let index = self.trace.slots.len() as u32;
        self.trace.slots.push(Number::Int(value).bits(dtype));
        self.trace.graph.add(Op::Offset { index, dtype }, &[])
    }

    /// A slot of the element type of `like`, broadcast to its dims.
    pub(crate) fn slot_like(&mut self, like: NodeId, value: impl Into<Number>) -> Result<NodeId> {
        let ty = self.ty(like).clone();
        let slot = self.slot(ty.dtype, value)?;
        self.broadcast_to(slot, &ty.dims)
    }

    /// The state `ui64[2]` of a random draw of `words` 32-bit words: the device's key and counter, as slots.
    pub(crate) fn rng_state(&mut self, words: usize) -> Result<NodeId> {
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

    /// Resolves the operands, composes the op and notes which nodes are its own.
    fn op<const R: usize>(
        &mut self,
        operands: &[&TpuTensor],
        build: impl FnOnce(&mut Self, &[NodeId]) -> Result<[NodeId; R]>,
    ) -> Result<[NodeId; R]> {
        let inputs = operands.iter().map(|tensor| self.operand(tensor)).collect::<Result<SmallVec<[NodeId; 3]>>>()?;
        let start = self.trace.graph.len();
        let built = build(self, &inputs);
        let end = self.trace.graph.len();
        self.trace.ops.push(OpRecord { inputs, start, end });
        built
    }

    /// The node that stands for a tensor in this trace.
    fn operand(&mut self, tensor: &TpuTensor) -> Result<NodeId> {
        enum Place {
            Node(u64),
            Buffer(Result<SharedBuffer, TpuError>),
        }
        let place = tensor.with_value(|value| match value {
            Value::Pending(pending) => Place::Node(pending.serial),
            Value::Ready(buffer) => Place::Buffer(Ok(Arc::clone(buffer))),
            Value::Failed(error) => Place::Buffer(Err(error.clone())),
        });
        match place {
            Place::Node(serial) => match self.trace.handle(serial) {
                Some(handle) => Ok(handle.node),
                None => {
                    self.trace.parameter(Err(TpuError::Bug(format!("{tensor:?} is not in its trace"))), tensor.ty())
                }
            },
            Place::Buffer(buffer) => self.trace.parameter(buffer, tensor.ty()),
        }
    }
}

/// Records an op of one result. `build` composes it from the operands' nodes, in their order.
///
/// # Panics
/// When a composition breaks an op's rule: the message names the Burn op, the operand types and the rule. This is
/// Burn's contract for a user's shape mistake.
pub(crate) fn record<const N: usize>(
    op: &'static str,
    operands: [&TpuTensor; N],
    build: impl FnOnce(&mut Recorder, [NodeId; N]) -> Result<NodeId>,
) -> TpuTensor {
    let [tensor] = finish(op, operands[0].device(), &operands, |recorder, nodes| {
        let mut fixed = [NodeId(0); N];
        fixed.copy_from_slice(nodes);
        Ok([build(recorder, fixed)?])
    });
    tensor
}

/// Records an op of several operands or results; as [`record`] otherwise.
pub(crate) fn record_many<const R: usize>(
    op: &'static str,
    operands: &[&TpuTensor],
    build: impl FnOnce(&mut Recorder, &[NodeId]) -> Result<[NodeId; R]>,
) -> [TpuTensor; R] {
    let Some(first) = operands.first() else {
        fail(op, &"needs at least one operand");
    };
    finish(op, first.device(), operands, build)
}

/// Records an op without operands.
pub(crate) fn create(
    op: &'static str,
    device: &TpuDevice,
    build: impl FnOnce(&mut Recorder) -> Result<NodeId>,
) -> TpuTensor {
    let [tensor] = finish(op, *device, &[], |recorder, _| Ok([build(recorder)?]));
    tensor
}

/// The calling thread's trace, after operands that another thread recorded have been materialised and, when the trace
/// is full, after a cut.
fn ready_trace(op: &'static str, device: TpuDevice, operands: &[&TpuTensor]) -> Arc<TraceCell> {
    let cell = trace_of(device);
    for tensor in operands {
        if tensor.device() != device {
            fail(op, &format!("operands are on {device} and {}", tensor.device()));
        }
        let foreign = tensor.with_value(|value| match value {
            Value::Pending(pending) if !Arc::ptr_eq(&pending.cell, &cell) => Some(pending.clone()),
            Value::Pending(_) | Value::Ready(_) | Value::Failed(_) => None,
        });
        if let Some(pending) = foreign {
            pending.materialise(CutReason::OtherThread);
        }
    }
    cell
}

fn finish<const R: usize>(
    op: &'static str,
    device: TpuDevice,
    operands: &[&TpuTensor],
    build: impl FnOnce(&mut Recorder, &[NodeId]) -> Result<[NodeId; R]>,
) -> [TpuTensor; R] {
    let cell = ready_trace(op, device, operands);
    let mut trace = cell.trace.lock();
    if trace.graph.len() >= cell.runtime.options().trace_cap {
        cell.cut_locked(&mut trace, CutReason::TraceCap);
    }
    let before = trace.graph.len();
    trace.graph.set_label(op);
    let built = Recorder { trace: &mut trace, cell: &cell }.op(operands, build);
    let counters = cell.runtime.counters();
    Counters::add(&counters.recorded_ops, 1);
    Counters::add(&counters.recorded_nodes, trace.graph.len() - before);
    match built {
        Ok(nodes) => adopt(&cell, &mut trace, operands, nodes),
        Err(error) => {
            drop(trace);
            fail(op, &error)
        }
    }
}

/// Tensors for the result nodes. A node that already has a tensor among the operands keeps it: an op that changed
/// nothing costs nothing.
fn adopt<const R: usize>(
    cell: &Arc<TraceCell>,
    trace: &mut Trace,
    operands: &[&TpuTensor],
    nodes: [NodeId; R],
) -> [TpuTensor; R] {
    let first_new = trace.handles.len();
    let tensors = nodes.map(|node| {
        let same = operands.iter().find(|tensor| trace.is_node(tensor, node));
        same.map_or_else(|| new_handle(cell, trace, node), |tensor| (*tensor).clone())
    });
    let after = trace.first_serial + trace.handles.len() as u64;
    trace.handles[first_new..].iter_mut().for_each(|handle| handle.last_serial = after - 1);
    tensors
}

fn new_handle(cell: &Arc<TraceCell>, trace: &mut Trace, node: NodeId) -> TpuTensor {
    let serial = cell.liveness.lock().born();
    let pending = Pending { cell: Arc::clone(cell), serial };
    let tensor = TpuTensor::new(cell.runtime.device(), trace.graph.ty(node).clone(), Value::Pending(pending));
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

    /// Whether `tensor` is what `node` stands for.
    fn is_node(&self, tensor: &TpuTensor, node: NodeId) -> bool {
        tensor.with_value(|value| match value {
            Value::Pending(pending) => self.handle(pending.serial).is_some_and(|handle| handle.node == node),
            Value::Ready(buffer) => self.parameters.get(&(Arc::as_ptr(buffer) as usize)) == Some(&node),
            Value::Failed(_) => false,
        })
    }
}

/// Burn's contract for a user's mistake.
#[track_caller]
fn fail(op: &'static str, rule: &dyn std::fmt::Display) -> ! {
    panic!("burn-tpu: {op}: {rule}")
}
