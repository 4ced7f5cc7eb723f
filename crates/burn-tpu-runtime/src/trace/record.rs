//! Recording one op: operands to nodes, the op's composition, results to tensors.

use super::pending::{OperandErrors, compute_operands};
use super::precision::at_precision;
use super::recorded::OpRecord;
use super::stream::trace_of;
use super::{Origin, StreamTrace, Tensor, Trace, at_once};
use crate::Device;
use crate::error::TpuError;
use crate::lines::{OpStack, RecordedOp};
use crate::metrics::CutReason;
use crate::profile::{self, Phase};
use burn_tpu_graph::{Builder, DType, GraphError, Label, Node, NodeId, Number, Op, Result};
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// What an op's composition adds its nodes to: the builders of the graph, and run-time scalars.
pub struct Recorder<'t> {
    pub(super) trace: &'t mut Trace,
    pub(super) stream: &'t StreamTrace,
}

impl Builder for Recorder<'_> {
    fn add(&mut self, op: Op, operands: &[NodeId]) -> Result<NodeId> {
        let factor = operands.first().filter(|factor| factor.index() < self.nodes().len());
        let factor = factor.map(|&factor| self.dtype(factor));
        let op = at_precision(op, factor, || self.stream.runtime().open().options().precision);
        self.trace.recorded.recording.add(op, operands)
    }

    fn nodes(&self) -> &[Node] {
        self.trace.recorded.recording.nodes()
    }

    fn current_label(&self) -> Label {
        self.trace.recorded.recording.current_label()
    }
}

impl Recorder<'_> {
    /// A number that may differ at the next step: rank 0, of type `dtype`, an input of the program. Equal values are
    /// never merged while recording, since they may differ at the next step.
    pub fn slot(&mut self, dtype: DType, value: impl Into<Number>) -> Result<NodeId> {
        let index = self.trace.recorded.add_slot(value.into().bits(dtype));
        self.trace.recorded.recording.add(Op::Slot { index, dtype }, &[])
    }

    /// A number like a slot's that rarely changes: rank 0, an integer. It is a constant of the program until it changes.
    pub fn offset(&mut self, dtype: DType, value: i64) -> Result<NodeId> {
        let bits = Number::Int(value).bits(dtype);
        let index = self.trace.recorded.add_slot(bits);
        self.trace.tracker.offset(&self.trace.recorded.recording, index, bits);
        self.trace.recorded.recording.add(Op::Offset { index, dtype }, &[])
    }

    /// A slot of the element type of `like`, broadcast to its dims.
    pub fn slot_like(&mut self, like: NodeId, value: impl Into<Number>) -> Result<NodeId> {
        let slot = self.slot(self.dtype(like), value)?;
        self.broadcast_like(slot, like)
    }

    /// The scalar of a slot or offset of another recording, with its bits.
    pub(crate) fn slot_of(&mut self, op: &Op, bits: u64) -> Result<NodeId> {
        match *op {
            Op::Offset { dtype, .. } => self.offset(dtype, Number::of_bits(bits, dtype).to_i64()),
            Op::Slot { dtype, .. } => {
                let index = self.trace.recorded.add_slot(bits);
                self.trace.recorded.recording.add(Op::Slot { index, dtype }, &[])
            }
            _ => Err(GraphError { op: "graph.slot", operands: format!("{op:?}"), rule: "is no scalar".into() }),
        }
    }

    /// Returns the key and the counter of a random draw of `words` 32-bit words, whose state is the next four slots.
    fn draw(&self, words: usize) -> (u64, u64) {
        match &self.stream.function {
            Some(function) => function.draw(self.trace.recorded.slots.len() as u32, words),
            None => self.stream.runtime.draws().draw(words),
        }
    }

    /// The slots `ui32[]` of a random draw of `words` 32-bit words: the low and the high half of the device's key, then
    /// those of its counter.
    pub(crate) fn rng_halves(&mut self, words: usize) -> Result<[NodeId; 4]> {
        let (key, counter) = self.draw(words);
        let mut halves = [NodeId(0); 4];
        for (half, value) in halves.iter_mut().zip([key, key >> 32, counter, counter >> 32]) {
            *half = self.slot(DType::U32, Number::UInt(value & 0xffff_ffff))?;
        }
        Ok(halves)
    }

    /// The state `ui64[2]` of a random draw of `words` 32-bit words: the device's key and counter, as slots.
    pub fn rng_state(&mut self, words: usize) -> Result<NodeId> {
        let (key, counter) = self.draw(words);
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

/// The nodes of an op's operands.
type Inputs = SmallVec<[NodeId; 3]>;

/// Returns the nodes of the operands. Those that this stream did not record have a value, or an error says why not.
fn inputs(
    op: &'static str,
    trace: &mut Trace,
    stream: &Arc<StreamTrace>,
    operands: &[&Tensor],
    mut errors: OperandErrors,
) -> Inputs {
    trace.recorded.recording.set_label(stream.runtime().open().label(op));
    let mut inputs = Inputs::new();
    for (number, tensor) in operands.iter().enumerate() {
        let own = tensor.origin().filter(|origin| Arc::ptr_eq(&origin.trace, stream));
        if let Some(handle) = own.and_then(|origin| trace.handles.get(origin.serial)) {
            inputs.push(handle.node);
            continue;
        }
        let captured = stream.function.as_ref().and_then(|function| function.capture(tensor));
        let node = match (captured, tensor.value()) {
            (Some(buffer), _) => trace.recorded.parameter(&Ok(buffer), tensor.ty()),
            (None, Some(value)) => trace.recorded.parameter(value, tensor.ty()),
            (None, None) => {
                let error = errors.iter().position(|(of, _)| *of == number).map(|place| errors.swap_remove(place).1);
                trace.recorded.pending_parameter(tensor, error, stream.position.load(Relaxed))
            }
        };
        inputs.push(node.unwrap_or_else(|error| fail(op, &error)));
    }
    inputs
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

/// Records an op of one result that is no larger than its operands together, or computes it at once if `at_once` says so; as
/// [`record`] otherwise.
pub fn record_or_compute<const N: usize>(
    op: &'static str,
    operands: [&Tensor; N],
    build: impl FnOnce(&mut Recorder, [NodeId; N]) -> Result<NodeId>,
) -> Tensor {
    record_or_compute_many(op, &operands, |recorder, nodes| {
        let mut fixed = [NodeId(0); N];
        fixed.copy_from_slice(nodes);
        build(recorder, fixed)
    })
}

/// [`record_or_compute`] of any number of operands.
pub fn record_or_compute_many(
    op: &'static str,
    operands: &[&Tensor],
    build: impl FnOnce(&mut Recorder, &[NodeId]) -> Result<NodeId>,
) -> Tensor {
    let stream = operands.first().and_then(|first| at_once::applies(first.device(), operands));
    match stream {
        Some(stream) => at_once::compute(op, &stream, operands, build),
        None => {
            let [tensor] = record_many(op, operands, |recorder, nodes| Ok([build(recorder, nodes)?]));
            tensor
        }
    }
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

/// Records an op of any number of results; as [`record_many`] otherwise.
pub(crate) fn record_list(
    op: &'static str,
    operands: &[&Tensor],
    build: impl FnOnce(&mut Recorder, &[NodeId]) -> Result<Vec<NodeId>>,
) -> Vec<Tensor> {
    let Some(first) = operands.first() else {
        fail(op, &"needs at least one operand");
    };
    finish(op, first.device(), operands, build)
}

/// The nodes of an op's results.
trait Results {
    type Tensors;

    fn tensors(self, tensor: impl FnMut(NodeId) -> Tensor) -> Self::Tensors;
}

impl<const R: usize> Results for [NodeId; R] {
    type Tensors = [Tensor; R];

    fn tensors(self, tensor: impl FnMut(NodeId) -> Tensor) -> [Tensor; R] {
        self.map(tensor)
    }
}

impl Results for Vec<NodeId> {
    type Tensors = Vec<Tensor>;

    fn tensors(self, tensor: impl FnMut(NodeId) -> Tensor) -> Vec<Tensor> {
        self.into_iter().map(tensor).collect()
    }
}

/// Records an op without operands.
pub fn create(op: &'static str, device: &Device, build: impl FnOnce(&mut Recorder) -> Result<NodeId>) -> Tensor {
    let [tensor] = finish(op, *device, &[], |recorder, _| Ok([build(recorder)?]));
    tensor
}

/// Notes that a training step begins with the value of a tensor, as with a weight or the state of an optimizer: the
/// program of the next step takes it as an input. If nothing but constants and random draws makes it, programs of their
/// own do, so that the first step is the program of the second one. A tensor that has a value, or that another stream
/// recorded, is left alone.
pub fn begin_with(tensor: &Tensor) {
    let Some(origin) = tensor.origin().filter(|origin| origin.is_owned_here()) else { return };
    let mut trace = origin.trace.trace.lock();
    if let Some(node) = trace.handles.get(origin.serial).map(|handle| handle.node) {
        trace.recorded.initial.push(node);
    }
}

fn finish<R: Results>(
    op: &'static str,
    device: Device,
    operands: &[&Tensor],
    build: impl FnOnce(&mut Recorder, &[NodeId]) -> Result<R>,
) -> R::Tensors {
    if let Some(tensor) = operands.iter().find(|tensor| tensor.device() != device) {
        fail(op, &format!("operands are on {device} and {}", tensor.device()));
    }
    let stream = trace_of(device);
    let errors = compute_operands(&stream, operands);
    let mut trace = stream.trace.lock();
    stream.cut_if_full(&mut trace);
    let mut profiled = profile::span(Phase::Record, op);
    let sample = trace.stats.begin();
    let before = trace.recorded.recording.len();
    let inputs = inputs(op, &mut trace, &stream, operands, errors);
    let start = trace.recorded.recording.len();
    let built = build(&mut Recorder { trace: &mut trace, stream: &stream }, &inputs);
    let end = trace.recorded.recording.len();
    let position = stream.next_position();
    if let Some(span) = &mut profiled {
        span.end();
    }
    let recorded = stream.stack(&mut trace, before..end, profiled.is_some());
    if let Some(span) = profiled {
        span.recorded(&recorded);
    }
    let places = Inputs::from_slice(&inputs);
    trace.recorded.ops.push(OpRecord { inputs, start, end, position, stack: recorded.stack });
    trace.stats.nodes += (end - before) as u64;
    trace.cap.nodes += end - before;
    match built {
        Ok(nodes) => {
            let tensors = nodes.tensors(|node| match places.iter().position(|&input| input == node) {
                // An op that changed nothing costs nothing: the tensor is its operand.
                Some(operand) => operands[operand].clone(),
                None => stream.adopt(&mut trace, node, position),
            });
            trace.stats.end(sample);
            tensors
        }
        Err(error) => {
            drop(trace);
            fail(op, &named(operands, &error))
        }
    }
}

/// The broken rule, after what the op itself was given where its composition had changed that.
pub(super) fn named(operands: &[&Tensor], error: &GraphError) -> String {
    let given = operands.iter().map(|tensor| tensor.ty().to_string()).collect::<Vec<_>>().join(", ");
    if given == error.operands { error.to_string() } else { format!("of ({given}): {error}") }
}

impl StreamTrace {
    /// Returns the tensor of a result node.
    fn adopt(self: &Arc<Self>, trace: &mut Trace, node: NodeId, position: u64) -> Tensor {
        let origin = Origin::new(Arc::clone(self), trace.handles.next_serial());
        let tensor = Tensor::pending(self.runtime().open().device(), trace.recorded.recording.ty(node).clone(), origin);
        trace.handles.push(&self.tensors, node, position);
        tensor
    }

    /// Returns the stack of the op that has just recorded these nodes, if it is captured.
    fn stack(&self, trace: &mut Trace, nodes: Range<usize>, is_profiled: bool) -> OpStack {
        let Trace { recorded, tracker, anchor, .. } = trace;
        let is_found = self.function.as_ref().is_some_and(|function| function.looks_for(&nodes));
        let is_asked = tracker.recorded(nodes.start, &recorded.recording) || is_found;
        let (number, hash) = (recorded.ops.len(), recorded.recording.hash_at(nodes.end));
        self.runtime().open().lines().ops.recorded(anchor, &RecordedOp { number, hash, is_asked, is_profiled })
    }

    /// Cuts a full trace, by rule 6 of `trace`'s header; in strict mode the next cut reports it as an error instead.
    fn cut_if_full(&self, trace: &mut Trace) {
        if self.function.is_some() {
            return;
        }
        let cap = self.runtime().open().options().trace_cap;
        let pending = trace.recorded.recording.len() - trace.recorded.executed.nodes;
        if trace.cap.nodes < cap || !trace.cap.reached(cap, pending) {
            return;
        }
        let full = TpuError::TraceFull { device: self.runtime().open().device().to_string(), nodes: pending };
        if self.runtime().open().options().strict {
            trace.cap.error.get_or_insert(full);
            return;
        }
        self.runtime().warn_of_full_trace(&full);
        if let Err(error) = self.cut_locked(trace, CutReason::TraceCap) {
            tracing::error!(%error, "a full trace could not be cut; it stays pending");
        }
    }
}

/// Burn's contract for a user's mistake.
#[track_caller]
pub(super) fn fail(op: &'static str, rule: &dyn std::fmt::Display) -> ! {
    panic!("burn-tpu: {op}: {rule}")
}
