//! Custom ops on the autodiff backend: one node of Burn's graph, whose backward pass records the op's gradient.
//!
//! A node of Burn's graph has one value. If an op has several float results, the node's value is all of them in one vector, of
//! which the results are slices; XLA takes slices of a concatenation apart.

use super::CustomOpBackend;
use super::parts::{Gradient, Parts};
use super::tensors::{AnyTensor, Kind};
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
use std::sync::Arc;

/// A tensor of the autodiff backend.
type Tracked<F, I, C> = AnyTensor<Autodiff<Tpu<F, I>, C>>;

/// The most float operands of an op.
const MOST_FLOATS: usize = 8;

impl<F: TpuFloat, I: TpuInt, C: CheckpointStrategy> CustomOpBackend for Autodiff<Tpu<F, I>, C> {
    fn call(
        op: &Arc<Parts>,
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
        let is_tracked = floats.iter().any(|float| float.is_tracked());
        let results = op.call(plain.clone())?;
        let Some(gradient) = gradient.filter(|_| is_tracked) else {
            return match is_tracked {
                true => {
                    Err(op.error("an operand requires a gradient, and the op has none: add one, or detach the operand"))
                }
                false => {
                    Ok(results.into_iter().zip(op.results()).map(|(tensor, &kind)| untracked(tensor, kind)).collect())
                }
            };
        };
        let saved = Saved { op: Arc::clone(op), gradient: Saver(Arc::clone(gradient)), operands: plain, results };
        track(floats, saved)
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

/// What the backward pass of a call needs.
#[derive(Clone, Debug)]
struct Saved {
    op: Arc<Parts>,
    gradient: Saver,
    operands: Vec<Tensor>,
    results: Vec<Tensor>,
}

/// A gradient, which has no `Debug`.
#[derive(Clone)]
struct Saver(Arc<Gradient>);

impl std::fmt::Debug for Saver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Gradient")
    }
}

/// Returns the results of a call as values of Burn's graph.
fn track<F: TpuFloat, I: TpuInt, C: CheckpointStrategy>(
    floats: Vec<FloatTensor<Autodiff<Tpu<F, I>, C>>>,
    saved: Saved,
) -> Result<Vec<Tracked<F, I, C>>> {
    /// Tries each number of operands that a node can have.
    macro_rules! of_any_count {
        ($($count:literal)*) => {
            match floats.len() {
                $($count => match <[_; $count]>::try_from(floats) {
                    Ok(floats) => track_array::<F, I, C, $count>(floats, saved),
                    Err(floats) => Err(saved.op.error(format!("it has {} float operands", floats.len()))),
                },)*
                count => Err(saved.op.error(format!("it has {count} float operands, and may have {MOST_FLOATS}"))),
            }
        };
    }
    of_any_count!(1 2 3 4 5 6 7 8)
}

fn track_array<F: TpuFloat, I: TpuInt, C: CheckpointStrategy, const N: usize>(
    floats: [FloatTensor<Autodiff<Tpu<F, I>, C>>; N],
    saved: Saved,
) -> Result<Vec<Tracked<F, I, C>>> {
    let value = saved.packed::<F, I>()?;
    let (kinds, results) = (saved.op.results().to_vec(), saved.results.clone());
    let tracked = node::<F, I, C, _, N>(CustomGradient, floats, saved, value);
    let is_single = kinds.iter().filter(|&&kind| kind == Kind::Float).count() == 1;
    let mut start = 0;
    let result = |(tensor, kind): (Tensor, Kind)| match kind {
        Kind::Float if is_single => AnyTensor::Float(tracked.clone()),
        Kind::Float => {
            let (dims, elements) = (tensor.dims().to_vec(), tensor.ty().elements());
            let slice = Slice::from(start..start + elements);
            start += elements;
            let flat = <Autodiff<Tpu<F, I>, C> as FloatTensorOps<_>>::float_slice(tracked.clone(), &[slice]);
            AnyTensor::Float(Autodiff::<Tpu<F, I>, C>::float_reshape(flat, Shape::from(dims)))
        }
        other => untracked(tensor, other),
    };
    Ok(results.into_iter().zip(kinds).map(result).collect())
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

impl Saved {
    /// Returns the float results.
    fn floats(&self) -> impl Iterator<Item = &Tensor> {
        self.results.iter().zip(self.op.results()).filter(|(_, kind)| **kind == Kind::Float).map(|(result, _)| result)
    }

    /// Returns the value of the node: the float result, or all of them in a vector.
    fn packed<F: TpuFloat, I: TpuInt>(&self) -> Result<TpuTensor> {
        let mut floats = self.floats();
        match (floats.next(), floats.next()) {
            (None, _) => Err(self.op.error("an operand requires a gradient, and no result is a float")),
            (Some(only), None) => Ok(only.clone().into()),
            (Some(first), Some(_)) => {
                if let Some(other) = self.floats().find(|other| other.element() != first.element()) {
                    let (first, other) = (first.element(), other.element());
                    return Err(self.op.error(format!("it has gradients, and float results of {first} and {other}")));
                }
                let flat = |result: &Tensor| {
                    let elements = result.ty().elements();
                    Tpu::<F, I>::float_reshape(result.clone().into(), Shape::new([elements]))
                };
                Ok(Tpu::<F, I>::float_cat(self.floats().map(flat).collect(), 0))
            }
        }
    }

    /// Returns the gradient of each result, from that of the node's value; of one that is no float, the result.
    fn unpacked<F: TpuFloat, I: TpuInt>(&self, gradient: TpuTensor) -> Vec<Tensor> {
        let is_single = self.floats().count() == 1;
        let mut start = 0;
        let of = |(result, kind): (&Tensor, &Kind)| match kind {
            Kind::Float if is_single => gradient.0.clone(),
            Kind::Float => {
                let elements = result.ty().elements();
                let slice = Slice::from(start..start + elements);
                start += elements;
                let flat = Tpu::<F, I>::float_slice(gradient.clone(), &[slice]);
                Tpu::<F, I>::float_reshape(flat, Shape::from(result.dims().to_vec())).0
            }
            Kind::Int | Kind::Bool => result.clone(),
        };
        self.results.iter().zip(self.op.results()).map(of).collect()
    }
}

/// The backward pass of a custom op.
#[derive(Debug)]
struct CustomGradient;

impl<F: TpuFloat, I: TpuInt, const N: usize> Backward<Tpu<F, I>, N> for CustomGradient {
    type State = Saved;

    fn backward(self, ops: Ops<Saved, N>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let Ops { parents, node, state: saved } = ops;
        let of_results = saved.unpacked::<F, I>(gradients.consume::<Tpu<F, I>>(&node));
        let Saved { op, gradient, operands, results } = saved;
        let found = (gradient.0)(operands.clone(), results, of_results);
        let found = found.unwrap_or_else(|error| fail(&op, &error));
        let floats = operands.iter().zip(found).filter(|(operand, _)| operand.element().is_float());
        for (parent, (operand, gradient)) in parents.into_iter().zip(floats) {
            if gradient.ty() != operand.ty() {
                let (gradient, operand) = (gradient.ty(), operand.ty());
                fail(&op, &format!("the gradient of an operand {operand} is {gradient}"));
            }
            if let Some(parent) = parent {
                gradients.register::<Tpu<F, I>>(parent.id, gradient.into());
            }
        }
    }
}

/// Burn's contract for a user's mistake in a backward pass, which returns no error.
#[track_caller]
fn fail(op: &Parts, rule: &dyn std::fmt::Display) -> ! {
    panic!("burn-tpu: custom op `{}`: {rule}", op.name())
}
