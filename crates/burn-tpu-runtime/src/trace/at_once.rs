//! Ops on small values from the host that nothing else can use: computed at once, in the interpreter. What only puts bytes
//! next to each other does not need that.
//!
//! Code for eager backends makes a tensor of each sample, scales it, and stacks hundreds of them to a batch. Recording such
//! an op costs several times what the op does.
//!
//! Owns: which ops these are, and their run. What decides is the op and its operands alone, never what ran before or where a
//! program left a value: each operand came from the user (or from another such op), is small, and has this op as its last
//! user. So a tensor that is used again, such as a table or a weight, is recorded as always, and a step is one program for
//! the same recording.

use super::record::{fail, named};
use super::stream::trace_of;
use super::{Recorder, StreamTrace, Tensor, Trace};
use crate::Device;
use crate::engine::{HostElements, HostTensor, HostValue, interpret_nodes};
use crate::error::TpuError;
use crate::metrics::Counters;
use burn_tpu_graph::{Builder, NodeId, Op, Result};
use smallvec::SmallVec;
use std::cell::Cell;
use std::sync::Arc;

/// The most bytes of all operands of one op.
const MOST_BYTES: usize = 1 << 20;

thread_local! {
    /// A trace for one op, kept for its memory.
    static SCRATCH: Cell<Option<Box<Trace>>> = const { Cell::new(None) };
}

/// Returns the stream's trace if an op on these operands is computed at once.
pub(super) fn applies(device: Device, operands: &[&Tensor]) -> Option<Arc<StreamTrace>> {
    let is_own =
        |tensor: &&Tensor| tensor.device() == device && tensor.sole_value().is_some_and(HostValue::is_small_input);
    let bytes: usize = operands.iter().map(|tensor| tensor.ty().bytes()).sum();
    if bytes > MOST_BYTES || !operands.iter().all(is_own) {
        return None;
    }
    Some(trace_of(device)).filter(|stream| stream.function.is_none() && stream.runtime().computes_at_once())
}

/// Computes an op of one result. `build` composes it from the operands' nodes, in their order.
///
/// # Panics
/// As [`super::record`].
pub(super) fn compute(
    op: &'static str,
    stream: &StreamTrace,
    operands: &[&Tensor],
    build: impl FnOnce(&mut Recorder, &[NodeId]) -> Result<NodeId>,
) -> Tensor {
    let mut scratch = SCRATCH.take().unwrap_or_default();
    scratch.recorded.recording.restart(std::iter::empty());
    scratch.recorded.slots.clear();
    match built(stream, &mut scratch, operands, build) {
        // An op that changed nothing costs nothing: the tensor is its operand.
        Ok((_, Some(operand))) => {
            SCRATCH.set(Some(scratch));
            operands[operand].clone()
        }
        Ok((node, None)) => {
            let result = run(stream, &scratch, operands, node);
            SCRATCH.set(Some(scratch));
            result
        }
        Err(error) => fail(op, &named(operands, &error)),
    }
}

/// Returns the node of an op's result, and the operand that the result is if the op changed nothing.
fn built(
    stream: &StreamTrace,
    scratch: &mut Trace,
    operands: &[&Tensor],
    build: impl FnOnce(&mut Recorder, &[NodeId]) -> Result<NodeId>,
) -> Result<(NodeId, Option<usize>)> {
    let mut inputs = SmallVec::<[NodeId; 3]>::new();
    for (index, tensor) in (0..).zip(operands) {
        inputs.push(scratch.recorded.recording.add(Op::Parameter { index, ty: tensor.ty().clone() }, &[])?);
    }
    let node = build(&mut Recorder { trace: scratch, stream }, &inputs)?;
    Ok((node, inputs.iter().position(|&input| input == node)))
}

/// Gives a tensor other dims, in its own memory. Returns `false` if the op is not computed at once, if it changes
/// nothing, or if the dims break its rule.
pub(crate) fn reshape(x: &mut Tensor, dims: &[usize]) -> bool {
    if dims == x.dims() || dims.iter().product::<usize>() != x.ty().elements() {
        return false;
    }
    let Some(stream) = applies(x.device(), &[x]) else { return false };
    let is_reshaped = x.reshape_input(dims);
    Counters::add(&stream.runtime().open().counters().ops_at_once, usize::from(is_reshaped));
    is_reshaped
}

/// Returns tensors side by side along a dim before which all sizes are 1, so that their bytes follow each other. `None` if
/// the op is not computed at once, or if the tensors break its rule.
pub(crate) fn concatenate(tensors: &[&Tensor], dim: usize) -> Option<Tensor> {
    let [first, _, ..] = tensors else { return None };
    let (before, after) = (first.dims().get(..dim)?, first.dims().get(dim + 1..)?);
    let fits = |tensor: &&Tensor| {
        let dims = tensor.dims();
        tensor.element() == first.element() && dims.get(..dim) == Some(before) && dims.get(dim + 1..) == Some(after)
    };
    if before.iter().any(|&size| size != 1) || !tensors.iter().all(fits) {
        return None;
    }
    let stream = applies(first.device(), tensors)?;
    let mut ty = first.ty().clone();
    ty.dims[dim] = tensors.iter().map(|tensor| tensor.dims()[dim]).sum();
    let mut bytes = Vec::with_capacity(ty.bytes());
    for tensor in tensors {
        if !tensor.sole_value()?.append_user_bytes(&mut bytes) {
            return None;
        }
    }
    let runtime = stream.runtime();
    Counters::add(&runtime.open().counters().ops_at_once, 1);
    let value = runtime.open().hold_input(&ty, HostElements::Bytes(bytes.into()));
    Some(Tensor::new(runtime.open().device(), ty, value))
}

fn run(stream: &StreamTrace, scratch: &Trace, operands: &[&Tensor], node: NodeId) -> Tensor {
    let runtime = stream.runtime();
    Counters::add(&runtime.open().counters().ops_at_once, 1);
    let take = |index: u32| -> Option<HostTensor> { operands.get(index as usize)?.sole_value()?.tensor() };
    let computed = interpret_nodes(scratch.recorded.recording.graph(), &[node], take, &scratch.recorded.slots);
    let ty = scratch.recorded.recording.ty(node).clone();
    let value = match computed.map(|results| results.into_iter().next()) {
        Ok(Some(value)) => runtime.open().hold_input(&ty, value.into()),
        Ok(None) => Err(TpuError::Bug("an op that was computed at once has no result".to_owned())),
        Err(error) => Err(error),
    };
    Tensor::new(runtime.open().device(), ty, value)
}
