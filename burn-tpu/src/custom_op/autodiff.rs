//! Custom ops on the autodiff backend: one node of Burn's graph, whose backward pass records the op's gradient.

use super::CustomOpBackend;
use super::tensors::AnyTensor;
use crate::{Result, Tpu, TpuFloat, TpuInt, TpuTensor};
use burn_autodiff::Autodiff;
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::checkpoint::strategy::CheckpointStrategy;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind};
use burn_backend::ops::FloatTensorOps;
use burn_backend::tensor::FloatTensor;
use burn_core::tensor::backend::AutodiffBackend;
use burn_std::{Shape, Slice};
use burn_tpu_runtime::Tensor;
use burn_tpu_runtime::custom_op::{DifferentiableCall, Gradient, InNode, Kind, UntypedOp};
use std::sync::Arc;

/// A tensor of the autodiff backend.
type Tracked<F, I, C> = AnyTensor<Autodiff<Tpu<F, I>, C>>;

/// The most float operands of an op.
const MOST_FLOATS: usize = 8;

impl<F: TpuFloat, I: TpuInt, C: CheckpointStrategy> CustomOpBackend for Autodiff<Tpu<F, I>, C> {
    fn call(
        op: &Arc<UntypedOp>,
        gradient: Option<&Arc<Gradient>>,
        operands: Vec<AnyTensor<Self>>,
    ) -> Result<Vec<AnyTensor<Self>>> {
        let (mut floats, mut plain) = (Vec::new(), Vec::new());
        for operand in operands {
            plain.push(match operand {
                AnyTensor::Float(tensor) => {
                    floats.push(tensor.clone());
                    tensor.primitive.0
                }
                AnyTensor::Int(tensor) | AnyTensor::Bool(tensor) => tensor.0,
            });
        }
        let results = op.call(plain.clone())?;
        if !floats.iter().any(|float| float.is_tracked()) {
            return Ok(results.into_iter().zip(op.results()).map(|(tensor, &kind)| untracked(tensor, kind)).collect());
        }
        track(floats, DifferentiableCall::new(op, gradient, plain, results)?)
    }
}

/// Returns a result that no gradient flows through.
pub(crate) fn untracked<F: TpuFloat, I: TpuInt, C: CheckpointStrategy>(tensor: Tensor, kind: Kind) -> Tracked<F, I, C> {
    match kind {
        Kind::Float => AnyTensor::Float(<Autodiff<Tpu<F, I>, C> as AutodiffBackend>::from_inner(tensor.into())),
        Kind::Int => AnyTensor::Int(tensor.into()),
        Kind::Bool => AnyTensor::Bool(tensor.into()),
    }
}

/// Returns the results of a call as values of Burn's graph.
fn track<F: TpuFloat, I: TpuInt, C: CheckpointStrategy>(
    floats: Vec<FloatTensor<Autodiff<Tpu<F, I>, C>>>,
    call: DifferentiableCall,
) -> Result<Vec<Tracked<F, I, C>>> {
    /// Tries each number of operands that a node can have.
    macro_rules! of_any_count {
        ($($count:literal)*) => {
            match floats.len() {
                $($count => match <[_; $count]>::try_from(floats) {
                    Ok(floats) => track_array::<F, I, C, $count>(floats, call),
                    Err(floats) => Err(call.op().error(format!("it has {} float operands", floats.len()))),
                },)*
                count => Err(call.op().error(format!("it has {count} float operands, and may have {MOST_FLOATS}"))),
            }
        };
    }
    of_any_count!(1 2 3 4 5 6 7 8)
}

fn track_array<F: TpuFloat, I: TpuInt, C: CheckpointStrategy, const N: usize>(
    floats: [FloatTensor<Autodiff<Tpu<F, I>, C>>; N],
    call: DifferentiableCall,
) -> Result<Vec<Tracked<F, I, C>>> {
    let (value, results) = (call.value()?, call.results());
    let tracked = node::<F, I, C, _, N>(CustomGradient, floats, call, value.into());
    let result = |(kind, place)| match place {
        InNode::Whole => AnyTensor::Float(tracked.clone()),
        InNode::Part(elements, dims) => {
            let part = Autodiff::<Tpu<F, I>, C>::float_slice(tracked.clone(), &[Slice::from(elements)]);
            AnyTensor::Float(Autodiff::<Tpu<F, I>, C>::float_reshape(part, Shape::from(dims)))
        }
        InNode::Outside(tensor) => untracked(tensor, kind),
    };
    Ok(results.into_iter().map(result).collect())
}

/// Returns the value of a node of Burn's graph with these parents.
pub(crate) fn node<F: TpuFloat, I: TpuInt, C: CheckpointStrategy, O, const N: usize>(
    op: O,
    parents: [FloatTensor<Autodiff<Tpu<F, I>, C>>; N],
    state: O::State,
    value: TpuTensor,
) -> FloatTensor<Autodiff<Tpu<F, I>, C>>
where
    O: Backward<Tpu<F, I>, N>,
{
    match op.prepare::<C>(parents.map(|parent| parent.node)).compute_bound().stateful() {
        OpsKind::Tracked(prepared) => prepared.finish(state, value),
        OpsKind::UnTracked(prepared) => prepared.finish(value),
    }
}

/// The backward pass of a custom op.
#[derive(Debug)]
struct CustomGradient;

impl<F: TpuFloat, I: TpuInt, const N: usize> Backward<Tpu<F, I>, N> for CustomGradient {
    type State = DifferentiableCall;

    fn backward(self, ops: Ops<DifferentiableCall, N>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let Ops { parents, node, state: call } = ops;
        let of_value = gradients.consume::<Tpu<F, I>>(&node);
        // Burn's contract for a user's mistake in a backward pass, which returns no error.
        let found = call.backward(&of_value.0).unwrap_or_else(|error| panic!("burn-tpu: {error}"));
        for (parent, gradient) in parents.into_iter().zip(found) {
            if let Some(parent) = parent {
                gradients.register::<Tpu<F, I>>(parent.id, gradient.into());
            }
        }
    }
}
