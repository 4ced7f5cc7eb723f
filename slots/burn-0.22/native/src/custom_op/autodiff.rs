//! Calls of custom ops: one node of Burn's graph if an operand requires a gradient, whose backward pass records the op's.

use super::tensors::{plain, value};
use crate::Result;
use backend::{Tpu, TpuTensor};
use burn::tensor::{Shape, Slice};
use burn_backend::AutodiffBackend;
use burn_backend::ops::FloatTensorOps;
use burn_backend::tensor::FloatTensor;
use burn_dispatch::backends::autodiff::Autodiff;
use burn_dispatch::backends::autodiff::checkpoint::base::Checkpointer;
use burn_dispatch::backends::autodiff::checkpoint::strategy::{
    BalancedCheckpointing, CheckpointStrategy, NoCheckpointing,
};
use burn_dispatch::backends::autodiff::grads::Gradients;
use burn_dispatch::backends::autodiff::ops::{Backward, Ops, OpsKind};
use burn_dispatch::{
    BackendTensor, DispatchAutodiffContext, DispatchKindConversion, DispatchTensor, GradientCheckpointingStrategy,
};
use burn_tpu_runtime::Tensor as Value;
use burn_tpu_runtime::custom_op::{DifferentiableCall, Gradient, InNode, Kind, UntypedOp};
use std::sync::Arc;

/// The most float operands of an op.
const MOST_FLOATS: usize = 8;

/// A float in Burn's graph.
pub(crate) type Tracked = FloatTensor<Autodiff<Tpu>>;

/// Calls an op. Results have autodiff if an operand has.
pub(super) fn call(
    op: &Arc<UntypedOp>,
    gradient: Option<&Arc<Gradient>>,
    operands: Vec<DispatchTensor>,
) -> Result<Vec<DispatchTensor>> {
    let context = operands.iter().fold(DispatchAutodiffContext::Disabled, |all, one| all.merge(one.autodiff));
    let DispatchAutodiffContext::Enabled(strategy) = context else {
        let refused = || op.error(FOREIGN);
        let operands: Result<Vec<Value>> =
            operands.into_iter().map(|operand| value(operand).ok_or_else(refused)).collect();
        let results = op.call(operands?)?;
        return Ok(results.into_iter().zip(op.results()).map(|(result, &kind)| plain(result, kind)).collect());
    };
    match strategy {
        GradientCheckpointingStrategy::Balanced => call_with_autodiff::<BalancedCheckpointing>(op, gradient, operands),
        GradientCheckpointingStrategy::Disabled => call_with_autodiff::<NoCheckpointing>(op, gradient, operands),
    }
}

const FOREIGN: &str = "an operand is quantized, or on a device that is no `TpuDevice`";

/// Calls an op on operands of which one at least has autodiff.
fn call_with_autodiff<C: CheckpointStrategy>(
    op: &Arc<UntypedOp>,
    gradient: Option<&Arc<Gradient>>,
    operands: Vec<DispatchTensor>,
) -> Result<Vec<DispatchTensor>>
where
    DispatchTensor: DispatchKindConversion<Autodiff<Tpu, C>>,
{
    let (mut floats, mut values) = (Vec::new(), Vec::new());
    for given in operands {
        let (value, float) = operand::<C>(given).ok_or_else(|| op.error(FOREIGN))?;
        values.push(value);
        floats.extend(float);
    }
    let results = op.call(values.clone())?;
    if !floats.iter().any(Tracked::is_tracked) {
        return Ok(results.into_iter().zip(op.results()).map(|(result, &kind)| untracked::<C>(result, kind)).collect());
    }
    track::<C>(floats, DifferentiableCall::new(op, gradient, values, results)?)
}

/// Returns an operand as a value, and if it is a float as one of Burn's graph. `None` if it is foreign.
pub(crate) fn operand<C: CheckpointStrategy>(tensor: DispatchTensor) -> Option<(Value, Option<Tracked>)>
where
    DispatchTensor: DispatchKindConversion<Autodiff<Tpu, C>>,
{
    if tensor.autodiff == DispatchAutodiffContext::Disabled {
        let value = value(tensor)?;
        let float = value.element().is_float().then(|| Autodiff::<Tpu, C>::from_inner(value.clone().into()));
        return Some((value, float));
    }
    match <DispatchTensor as DispatchKindConversion<Autodiff<Tpu, C>>>::try_into_backend(tensor).ok()? {
        BackendTensor::Float(tensor) => Some((tensor.primitive().clone().into(), Some(tensor))),
        BackendTensor::Int(tensor) | BackendTensor::Bool(tensor) => Some((tensor.into(), None)),
        _ => None,
    }
}

/// Returns a result that no gradient flows through.
pub(crate) fn untracked<C: CheckpointStrategy>(value: Value, kind: Kind) -> DispatchTensor
where
    DispatchTensor: DispatchKindConversion<Autodiff<Tpu, C>>,
{
    let tensor = TpuTensor::from(value);
    <DispatchTensor as DispatchKindConversion<Autodiff<Tpu, C>>>::from_backend(match kind {
        Kind::Float => BackendTensor::Float(Autodiff::<Tpu, C>::from_inner(tensor)),
        Kind::Int => BackendTensor::Int(tensor),
        Kind::Bool => BackendTensor::Bool(tensor),
    })
}

/// Returns a float in Burn's graph as what Burn's tensors are made of.
pub(crate) fn float<C: CheckpointStrategy>(tensor: Tracked) -> DispatchTensor
where
    DispatchTensor: DispatchKindConversion<Autodiff<Tpu, C>>,
{
    <DispatchTensor as DispatchKindConversion<Autodiff<Tpu, C>>>::from_backend(BackendTensor::Float(tensor))
}

/// Returns a node of Burn's graph with this value and backward pass, if a parent requires a gradient.
pub(crate) fn node<C: CheckpointStrategy, O: Backward<Tpu, N>, const N: usize>(
    op: O,
    parents: [&Tracked; N],
    state: O::State,
    value: TpuTensor,
) -> Tracked {
    match op.prepare::<C>(parents.map(Tracked::node)).compute_bound().stateful() {
        OpsKind::Tracked(prepared) => prepared.finish(state, value),
        OpsKind::UnTracked(prepared) => prepared.finish(value),
    }
}

/// Returns the results of a call as values of Burn's graph.
fn track<C: CheckpointStrategy>(floats: Vec<Tracked>, call: DifferentiableCall) -> Result<Vec<DispatchTensor>>
where
    DispatchTensor: DispatchKindConversion<Autodiff<Tpu, C>>,
{
    /// Tries each number of operands that a node can have.
    macro_rules! of_any_count {
        ($($count:literal)*) => {
            match floats.len() {
                $($count => match <[_; $count]>::try_from(floats) {
                    Ok(floats) => track_array::<C, $count>(floats, call),
                    Err(floats) => Err(call.op().error(format!("it has {} float operands", floats.len()))),
                },)*
                count => Err(call.op().error(format!("it has {count} float operands, and may have {MOST_FLOATS}"))),
            }
        };
    }
    of_any_count!(1 2 3 4 5 6 7 8)
}

fn track_array<C: CheckpointStrategy, const N: usize>(
    floats: [Tracked; N],
    call: DifferentiableCall,
) -> Result<Vec<DispatchTensor>>
where
    DispatchTensor: DispatchKindConversion<Autodiff<Tpu, C>>,
{
    let (value, results) = (TpuTensor::from(call.value()?), call.results());
    let node = node::<C, _, N>(CustomGradient, floats.each_ref(), call, value);
    let result = |(kind, place)| match place {
        InNode::Whole => float::<C>(node.clone()),
        InNode::Part(elements, dims) => {
            let part = Autodiff::<Tpu, C>::float_slice(node.clone(), &[Slice::from(elements)]);
            float::<C>(Autodiff::<Tpu, C>::float_reshape(part, Shape::from(dims)))
        }
        InNode::Outside(value) => untracked::<C>(value, kind),
    };
    Ok(results.into_iter().map(result).collect())
}

/// The backward pass of a custom op.
#[derive(Debug)]
struct CustomGradient;

impl<const N: usize> Backward<Tpu, N> for CustomGradient {
    type State = DifferentiableCall;

    fn backward(self, ops: Ops<DifferentiableCall, N>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let Ops { parents, node, state: call } = ops;
        let of_value = Value::from(gradients.consume::<Tpu>(&node));
        // Burn's contract for a user's mistake in a backward pass, which returns no error.
        let found = call.backward(&of_value).unwrap_or_else(|error| panic!("burn-tpu: {error}"));
        for (parent, gradient) in parents.into_iter().zip(found) {
            if let Some(parent) = parent {
                gradients.register::<Tpu>(parent.id, gradient.into());
            }
        }
    }
}
