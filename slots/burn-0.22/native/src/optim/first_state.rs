//! The state before an optimizer's first update.
//!
//! Burn's optimizers make their state in the first update, so the second one is another program. An optimizer that
//! begins from a state of zeros computes the same numbers, and all of its updates are one program.
//!
//! Owns: the states from which the first update is bit for bit that of no state. The sums of these optimizers are `old
//! * decay + new`, and negative zero plus `x` is `x` for every `x`, also for both zeros and for NaN (IEEE 754-2019,
//! 6.3). The maximum of negative infinity and `x` is `x`. May not know: when an update is the first.

use burn::optim::{
    AdaGradState, AdamState, AdamWState, AdaptiveMomentumState, CenteredState, LrDecayState, RmsPropMomentumState,
    RmsPropState, SquareAvgState,
};
use burn::tensor::Tensor;
use std::any::{Any, TypeId};

/// Returns whether `S` is the state of one of Burn's Adam, AdamW, AdaGrad and RMSProp. The others have a formula of
/// their own for the first update (a momentum with dampening, Adan) or are not Burn's.
pub(super) fn is_known<S: 'static, const D: usize>() -> bool {
    let known = [
        TypeId::of::<AdamState<D>>(),
        TypeId::of::<AdamWState<D>>(),
        TypeId::of::<AdaGradState<D>>(),
        TypeId::of::<RmsPropState<D>>(),
    ];
    known.contains(&TypeId::of::<S>())
}

/// Returns the state of a weight before its first update, if [`is_known`]. `after` is the state after an update of any
/// tensor: it tells which tensors the optimizer keeps.
pub(super) fn before_update<S: 'static, const D: usize>(after: S, weight: &Tensor<D>) -> Option<S> {
    let after: &dyn Any = &after;
    let zeros = || filled(weight, -0.0);
    if let Some(AdamState { momentum }) = after.downcast_ref::<AdamState<D>>() {
        return same(AdamState::new(before_moments(momentum, weight)));
    }
    if let Some(AdamWState { momentum }) = after.downcast_ref::<AdamWState<D>>() {
        return same(AdamWState::new(before_moments(momentum, weight)));
    }
    if after.is::<AdaGradState<D>>() {
        return same(AdaGradState::new(LrDecayState::new(0, zeros())));
    }
    let RmsPropState { centered, momentum, .. } = after.downcast_ref::<RmsPropState<D>>()?;
    let centered = CenteredState { grad_avg: centered.grad_avg.is_some().then(zeros), avg: zeros() };
    let momentum = momentum.is_some().then(|| RmsPropMomentumState::new(zeros()));
    same(RmsPropState::new(SquareAvgState { square_avg: zeros() }, centered, momentum))
}

fn before_moments<const D: usize>(after: &AdaptiveMomentumState<D>, weight: &Tensor<D>) -> AdaptiveMomentumState<D> {
    AdaptiveMomentumState {
        time: 0,
        moment_1: filled(weight, -0.0),
        moment_2: filled(weight, -0.0),
        max_moment_2: after.max_moment_2.is_some().then(|| filled(weight, f64::NEG_INFINITY)),
    }
}

fn filled<const D: usize>(like: &Tensor<D>, value: f64) -> Tensor<D> {
    Tensor::full(like.shape(), value, (&like.device(), like.dtype()))
}

/// Returns a value as one of a type that is the same.
fn same<T: 'static, S: 'static>(value: T) -> Option<S> {
    let value: Box<dyn Any> = Box::new(value);
    value.downcast().ok().map(|value| *value)
}
