//! The state before an optimizer's first update.
//!
//! Burn's optimizers make their state in the first update, so the second one is another program. An optimizer that begins
//! from a state of zeros computes the same numbers, and all of its updates are one program.
//!
//! Owns: the states from which the first update is bit for bit that of no state. The sums of these optimizers are
//! `old * decay + new`, and negative zero plus `x` is `x` for every `x`, also for both zeros and for NaN (IEEE
//! 754-2019, 6.3). The maximum of negative infinity and `x` is `x`. Adan's state has the negated first gradient too. For
//! the first update of a momentum with dampening no state will do. May not know: when an update is the first.

use super::with_master_weights::Wide;
use crate::TpuDevice;
use crate::backend::TpuInt;
use burn_core::tensor::{Bool, DType, Tensor};
use burn_optim::momentum::MomentumState;
use burn_optim::{
    AdaGradState, AdamState, AdamWState, AdanState, AdaptiveMomentumState, AdaptiveNesterovMomentumState,
    CenteredState, LrDecayState, MuonState, RmsPropMomentumState, RmsPropState, SgdState, SimpleOptimizer,
    SquareAvgState,
};
use burn_tpu_runtime::leaves;
use burn_tpu_runtime::ops::data::into_bytes;
use std::any::{Any, TypeId};

/// What the first update of a weight is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FirstUpdate {
    /// A later one, from the state that [`before_update`] returns.
    OfZeros,
    /// A later one, from that state with the gradient that [`with_gradient`] adds.
    OfGradient,
    /// A formula of its own, of a few element-wise ops: an update computes both, and chooses.
    Elementwise,
    /// A formula of its own, or that of an optimizer which is not Burn's.
    Own,
}

impl FirstUpdate {
    /// Returns what the first update of an optimizer is.
    pub(super) fn of<O: SimpleOptimizer<Wide<I>>, I: TpuInt, const D: usize>(optimizer: &O) -> Self {
        let state = TypeId::of::<O::State<D>>();
        let of_zeros = [
            TypeId::of::<AdamState<Wide<I>, D>>(),
            TypeId::of::<AdamWState<Wide<I>, D>>(),
            TypeId::of::<AdaGradState<Wide<I>, D>>(),
            TypeId::of::<RmsPropState<Wide<I>, D>>(),
        ];
        let is_sgd = state == TypeId::of::<SgdState<Wide<I>, D>>();
        if of_zeros.contains(&state) {
            Self::OfZeros
        } else if is_sgd || state == TypeId::of::<MuonState<Wide<I>, D>>() {
            match velocity_of_one::<O, I, D>(optimizer) {
                Some(1.0) => Self::OfZeros,
                Some(_) if is_sgd => Self::Elementwise,
                _ => Self::Own,
            }
        } else if state == TypeId::of::<AdanState<Wide<I>, D>>() {
            Self::OfGradient
        } else {
            Self::Own
        }
    }
}

/// Returns the velocity that a momentum makes of a gradient of one and a velocity of negative zero: what is left of one
/// after dampening. Burn's configurations keep that to themselves. `None` if there is no momentum, or no value.
fn velocity_of_one<O: SimpleOptimizer<Wide<I>>, I: TpuInt, const D: usize>(optimizer: &O) -> Option<f32> {
    let device = TpuDevice::ndarray();
    let number = |value: f32| Tensor::<Wide<I>, D>::full([1; D], value, (&device, DType::F32));
    let (_, after) = optimizer.step(0.0, number(0.0), number(1.0), None);
    let before = before_update(after?, &number(0.0))?;
    let (_, after) = optimizer.step(0.0, number(0.0), number(1.0), Some(before));
    let (_, velocity) = leaves::collect(|| after.map(|after| O::to_device(after, &device)));
    let bytes = into_bytes(velocity.first()?).ok()?;
    bytes.first_chunk().map(|bytes| f32::from_le_bytes(*bytes))
}

/// Returns the state of Adan for an update with this gradient. `is_first` (`[1; D]`) tells whether it is the first one:
/// the gradient before that is the same.
pub(super) fn with_gradient<S: Clone + 'static, I: TpuInt, const D: usize>(
    state: S,
    gradient: &Tensor<Wide<I>, D>,
    is_first: Tensor<Wide<I>, D, Bool>,
) -> S {
    let any: &dyn Any = &state;
    let Some(AdanState { momentum }) = any.downcast_ref::<AdanState<Wide<I>, D>>().cloned() else { return state };
    let neg_pre_grad = momentum.neg_pre_grad.mask_where(is_first, gradient.clone().neg());
    same(AdanState::new(AdaptiveNesterovMomentumState { neg_pre_grad, ..momentum })).unwrap_or(state)
}

/// Returns the state of a weight before its first update, of an optimizer that begins from zeros. `after` is the state
/// after an update of any tensor: it tells which tensors the optimizer keeps.
pub(super) fn before_update<S: 'static, I: TpuInt, const D: usize>(after: S, weight: &Tensor<Wide<I>, D>) -> Option<S> {
    let after: &dyn Any = &after;
    let zeros = || filled(weight, -0.0);
    if let Some(AdamState { momentum }) = after.downcast_ref::<AdamState<Wide<I>, D>>() {
        return same(AdamState::new(before_moments(momentum, weight)));
    }
    if let Some(AdamWState { momentum }) = after.downcast_ref::<AdamWState<Wide<I>, D>>() {
        return same(AdamWState::new(before_moments(momentum, weight)));
    }
    if after.is::<AdaGradState<Wide<I>, D>>() {
        return same(AdaGradState::new(LrDecayState::new(0, zeros())));
    }
    if after.is::<AdanState<Wide<I>, D>>() {
        let momentum = AdaptiveNesterovMomentumState::new(0, zeros(), zeros(), zeros(), zeros());
        return same(AdanState::new(momentum));
    }
    if let Some(SgdState { momentum }) = after.downcast_ref::<SgdState<Wide<I>, D>>() {
        return same(SgdState::new(momentum.is_some().then(|| MomentumState::new(zeros()))));
    }
    if after.is::<MuonState<Wide<I>, D>>() {
        return same(MuonState::new(MomentumState::new(zeros())));
    }
    let RmsPropState { centered, momentum, .. } = after.downcast_ref::<RmsPropState<Wide<I>, D>>()?;
    let centered = CenteredState { grad_avg: centered.grad_avg.is_some().then(zeros), avg: zeros() };
    let momentum = momentum.is_some().then(|| RmsPropMomentumState::new(zeros()));
    same(RmsPropState::new(SquareAvgState { square_avg: zeros() }, centered, momentum))
}

fn before_moments<I: TpuInt, const D: usize>(
    after: &AdaptiveMomentumState<Wide<I>, D>,
    weight: &Tensor<Wide<I>, D>,
) -> AdaptiveMomentumState<Wide<I>, D> {
    AdaptiveMomentumState {
        time: 0,
        moment_1: filled(weight, -0.0),
        moment_2: filled(weight, -0.0),
        max_moment_2: after.max_moment_2.is_some().then(|| filled(weight, f64::NEG_INFINITY)),
    }
}

fn filled<I: TpuInt, const D: usize>(like: &Tensor<Wide<I>, D>, value: f64) -> Tensor<Wide<I>, D> {
    Tensor::full(like.shape(), value, (&like.device(), like.dtype()))
}

/// Returns a value as one of a type that is the same.
fn same<T: 'static, S: 'static>(value: T) -> Option<S> {
    let value: Box<dyn Any> = Box::new(value);
    value.downcast().ok().map(|value| *value)
}
