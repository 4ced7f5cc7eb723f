//! The state before an optimizer's first update.
//!
//! Burn's optimizers make their state in the first update, so the second one is another program. An optimizer that
//! begins from a state of zeros computes the same numbers, and all of its updates are one program.
//!
//! Owns: the states from which the first update is bit for bit that of no state. The sums of these optimizers are
//! `old * decay + new`, and negative zero plus `x` is `x` for every `x`, also for both zeros and for NaN (IEEE
//! 754-2019, 6.3). The maximum of negative infinity and `x` is `x`. Adan's state has the negated first gradient too. For
//! the first update of a momentum with dampening no state will do. May not know: when an update is the first.

use backend::TpuDevice;
use burn::optim::momentum::MomentumState;
use burn::optim::{
    AdaGradState, AdamState, AdamWState, AdanState, AdaptiveMomentumState, AdaptiveNesterovMomentumState,
    CenteredState, LrDecayState, MuonState, Optimizer, RmsPropMomentumState, RmsPropState, SgdState, SquareAvgState,
};
use burn::tensor::{Bool, DType, Device, Tensor};
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
    pub(super) fn of<O: Optimizer, const D: usize>(optimizer: &O) -> Self {
        let state = TypeId::of::<O::State<D>>();
        let of_zeros = [
            TypeId::of::<AdamState<D>>(),
            TypeId::of::<AdamWState<D>>(),
            TypeId::of::<AdaGradState<D>>(),
            TypeId::of::<RmsPropState<D>>(),
        ];
        let is_sgd = state == TypeId::of::<SgdState<D>>();
        if of_zeros.contains(&state) {
            Self::OfZeros
        } else if is_sgd || state == TypeId::of::<MuonState<D>>() {
            match velocity_of_one::<O, D>(optimizer) {
                Some(1.0) => Self::OfZeros,
                Some(_) if is_sgd => Self::Elementwise,
                _ => Self::Own,
            }
        } else if state == TypeId::of::<AdanState<D>>() {
            Self::OfGradient
        } else {
            Self::Own
        }
    }
}

/// Returns the velocity that a momentum makes of a gradient of one and a velocity of negative zero: what is left of one
/// after dampening. Burn's configurations keep that to themselves. `None` if there is no momentum, or no value.
fn velocity_of_one<O: Optimizer, const D: usize>(optimizer: &O) -> Option<f32> {
    let device = Device::from(TpuDevice::ndarray());
    let number = |value: f32| Tensor::<D>::full([1; D], value, (&device, DType::F32));
    let (_, after) = optimizer.step(0.0, number(0.0), number(1.0), None);
    let before = before_update(after?, &number(0.0))?;
    let (_, after) = optimizer.step(0.0, number(0.0), number(1.0), Some(before));
    let (_, velocity) = leaves::collect(|| after.map(|after| O::to_device(after, &device)));
    let bytes = into_bytes(velocity.first()?).ok()?;
    bytes.first_chunk().map(|bytes| f32::from_le_bytes(*bytes))
}

/// Returns the state of Adan for an update with this gradient. `is_first` (`[1; D]`) tells whether it is the first one:
/// the gradient before that is the same.
pub(super) fn with_gradient<S: Clone + 'static, const D: usize>(
    state: S,
    gradient: &Tensor<D>,
    is_first: Tensor<D, Bool>,
) -> S {
    let any: &dyn Any = &state;
    let Some(AdanState { momentum }) = any.downcast_ref::<AdanState<D>>().cloned() else { return state };
    let neg_pre_grad = momentum.neg_pre_grad.mask_where(is_first, gradient.clone().neg());
    same(AdanState::new(AdaptiveNesterovMomentumState { neg_pre_grad, ..momentum })).unwrap_or(state)
}

/// Returns the state of a weight before its first update, of an optimizer that begins from zeros. `after` is the state
/// after an update of any tensor: it tells which tensors the optimizer keeps.
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
    if after.is::<AdanState<D>>() {
        let momentum = AdaptiveNesterovMomentumState::new(0, zeros(), zeros(), zeros(), zeros());
        return same(AdanState::new(momentum));
    }
    if let Some(SgdState { momentum }) = after.downcast_ref::<SgdState<D>>() {
        return same(SgdState::new(momentum.is_some().then(|| MomentumState::new(zeros()))));
    }
    if after.is::<MuonState<D>>() {
        return same(MuonState::new(MomentumState::new(zeros())));
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
