//! The f32 master weights and the f32 state of 16-bit weights, and the update that depends on a condition.

use super::first_state::{FirstUpdate, before_update, with_gradient};
use crate::backend::{TpuFloat, TpuInt};
use crate::dtype::to_burn;
use crate::{Tpu, TpuDevice, TpuTensor};
use burn_core::module::AutodiffModule;
use burn_core::record::{PrecisionSettings, Record};
use burn_core::tensor::backend::AutodiffBackend;
use burn_core::tensor::{Bool, Tensor, TensorPrimitive};
use burn_optim::{LearningRate, SimpleOptimizer, adaptor::OptimizerAdaptor};
use burn_std::DType as BurnDType;
use burn_tpu_runtime::graph::DType;
use burn_tpu_runtime::leaves;
use burn_tpu_runtime::ops::data::splat;
use burn_tpu_runtime::step::choose;
use std::sync::{Mutex, OnceLock, PoisonError};

/// The part of [`TpuOptimizer`](crate::TpuOptimizer) that updates one weight: a Burn [`SimpleOptimizer`] that works on an
/// f32 master copy of each 16-bit weight.
///
/// It is public since the type of a `TpuOptimizer` names it. It does not end the step.
#[derive(Debug)]
pub struct WithMasterWeights<O> {
    optimizer: O,
    /// Whether the update happens, `[1]`; `None` if it always does. Set for the time of one step: Burn's trait takes the
    /// optimizer of a weight by reference.
    condition: Mutex<Option<TpuTensor>>,
    /// What a weight's first update is; found at the first one.
    first_update: OnceLock<FirstUpdate>,
}

impl<O: Clone> Clone for WithMasterWeights<O> {
    fn clone(&self) -> Self {
        Self::new(self.optimizer.clone())
    }
}

impl<O> WithMasterWeights<O> {
    /// Wraps the part of a Burn optimizer that updates one weight; it runs on `Tpu<f32>`.
    pub fn new(optimizer: O) -> Self {
        Self { optimizer, condition: Mutex::new(None), first_update: OnceLock::new() }
    }

    /// Sets whether the next updates happen.
    pub(super) fn set_condition(&self, condition: Option<TpuTensor>) {
        *self.condition.lock().unwrap_or_else(PoisonError::into_inner) = condition;
    }

    /// Returns whether updates happen, `[1; D]`.
    fn condition<I: TpuInt, const D: usize>(&self) -> Option<Tensor<Wide<I>, D, Bool>> {
        let condition = self.condition.lock().unwrap_or_else(PoisonError::into_inner).clone();
        condition.map(|condition| Tensor::<Wide<I>, 1, Bool>::from_primitive(condition).reshape([1; D]))
    }

    /// Wraps the optimizer inside the adaptor that a Burn configuration builds, and keeps its gradient clipping.
    pub fn adapt<M, B>(adaptor: OptimizerAdaptor<O, M, B>) -> OptimizerAdaptor<Self, M, B>
    where
        B: AutodiffBackend,
        M: AutodiffModule<B>,
        O: SimpleOptimizer<B::InnerBackend>,
        Self: SimpleOptimizer<B::InnerBackend>,
    {
        let wrapped = OptimizerAdaptor::from(Self::new(adaptor.optim().clone()));
        match adaptor.grad_clipping() {
            Some(clipping) => wrapped.with_grad_clipping(clipping.clone()),
            None => wrapped,
        }
    }
}

/// The backend in which the wrapped optimizer runs: the same tensors, f32 by default.
pub(super) type Wide<I> = Tpu<f32, I>;

/// An f32 master copy and the wrapped optimizer's state for it.
#[derive(Clone, Debug)]
pub struct MasterState<I: TpuInt, S, const D: usize> {
    master: Option<Tensor<Wide<I>, D>>,
    state: Option<S>,
}

impl<F, I, O> SimpleOptimizer<Tpu<F, I>> for WithMasterWeights<O>
where
    F: TpuFloat,
    I: TpuInt,
    O: SimpleOptimizer<Wide<I>>,
{
    type State<const D: usize> = MasterState<I, O::State<D>, D>;

    fn step<const D: usize>(
        &self,
        lr: LearningRate,
        tensor: Tensor<Tpu<F, I>, D>,
        grad: Tensor<Tpu<F, I>, D>,
        state: Option<Self::State<D>>,
    ) -> (Tensor<Tpu<F, I>, D>, Option<Self::State<D>>) {
        let dtype = tensor.dtype();
        if state.is_none() {
            begin_with(&tensor);
        }
        let (master, state) = state.map_or((None, None), |state| (state.master, state.state));
        let narrow = matches!(dtype, BurnDType::BF16 | BurnDType::F16);
        if !narrow {
            let (tensor, state) = self.update(lr, retype(tensor), retype(grad), state);
            return (retype(tensor), Some(MasterState { master: None, state }));
        }
        let master = follow(master, tensor);
        let (master, state) = self.update(lr, master, widen(grad), state);
        let rounded = retype(master.clone().cast(dtype));
        (rounded, Some(MasterState { master: Some(master), state }))
    }

    fn to_device<const D: usize>(state: Self::State<D>, device: &TpuDevice) -> Self::State<D> {
        MasterState {
            master: state.master.map(|master| master.to_device(device)),
            state: state.state.map(|state| O::to_device(state, device)),
        }
    }
}

impl<O> WithMasterWeights<O> {
    /// Updates a weight and its state if the condition holds.
    fn update<I: TpuInt, const D: usize>(
        &self,
        lr: LearningRate,
        weight: Tensor<Wide<I>, D>,
        gradient: Tensor<Wide<I>, D>,
        state: Option<O::State<D>>,
    ) -> (Tensor<Wide<I>, D>, Option<O::State<D>>)
    where
        O: SimpleOptimizer<Wide<I>>,
    {
        let is_first = state.is_none();
        let state = state.or_else(|| self.first_state(lr, &weight));
        let Some(condition) = self.condition() else {
            return self.update_in_one_form(lr, weight, gradient, (state, is_first));
        };
        let (old, device) = (state.clone(), weight.device());
        let (updated, state) = self.update_in_one_form(lr, weight.clone(), gradient, (state, is_first));
        let state = state.map(|state| state_if::<O, I, D>(condition.clone(), state, old, &device));
        (weight.mask_where(condition, updated), state)
    }

    /// Returns what the first update of the wrapped optimizer is.
    fn first_update<I: TpuInt, const D: usize>(&self) -> FirstUpdate
    where
        O: SimpleOptimizer<Wide<I>>,
    {
        *self.first_update.get_or_init(|| FirstUpdate::of::<O, I, D>(&self.optimizer))
    }

    /// Returns the state of a weight before its first update, if the optimizer is known to begin from one.
    fn first_state<I: TpuInt, const D: usize>(
        &self,
        lr: LearningRate,
        weight: &Tensor<Wide<I>, D>,
    ) -> Option<O::State<D>>
    where
        O: SimpleOptimizer<Wide<I>>,
    {
        if !matches!(self.first_update::<I, D>(), FirstUpdate::OfZeros | FirstUpdate::OfGradient) {
            return None;
        }
        let device = weight.device();
        // Nothing reads the results, so nothing is computed.
        let any = Tensor::zeros([1; D], (&device, weight.dtype()));
        let (_, after) = self.optimizer.step(lr, any.clone(), any, None);
        let state = before_update::<_, I, D>(after?, weight)?;
        let (state, tensors) = leaves::collect(|| O::to_device(state, &device));
        tensors.iter().for_each(burn_tpu_runtime::begin_with);
        Some(state)
    }

    /// Updates a weight and its state by ops that are the same in all updates, so that all steps are one program.
    /// `is_first` says which update it is.
    fn update_in_one_form<I: TpuInt, const D: usize>(
        &self,
        lr: LearningRate,
        weight: Tensor<Wide<I>, D>,
        gradient: Tensor<Wide<I>, D>,
        (state, is_first): (Option<O::State<D>>, bool),
    ) -> (Tensor<Wide<I>, D>, Option<O::State<D>>)
    where
        O: SimpleOptimizer<Wide<I>>,
    {
        match (self.first_update::<I, D>(), state) {
            (FirstUpdate::OfGradient, Some(state)) => {
                let is_first = number_as_bool(is_first, &weight).reshape([1; D]);
                let state = with_gradient(state, &gradient, is_first);
                self.optimizer.step(lr, weight, gradient, Some(state))
            }
            (FirstUpdate::Elementwise, state) => self.update_by_either(lr, weight, gradient, state),
            (_, state) => self.optimizer.step(lr, weight, gradient, state),
        }
    }

    /// Updates a weight and its state by both of the optimizer's formulas, and chooses.
    fn update_by_either<I: TpuInt, const D: usize>(
        &self,
        lr: LearningRate,
        weight: Tensor<Wide<I>, D>,
        gradient: Tensor<Wide<I>, D>,
        state: Option<O::State<D>>,
    ) -> (Tensor<Wide<I>, D>, Option<O::State<D>>)
    where
        O: SimpleOptimizer<Wide<I>>,
    {
        let (device, is_first) = (weight.device(), state.is_none());
        let condition = number_as_bool(is_first, &weight);
        let tensors = |state| leaves::collect(|| O::to_device(state, &device));
        let (first, first_state) = self.optimizer.step(lr, weight.clone(), gradient.clone(), None);
        let Some(first_state) = first_state else { return (first, None) };
        let (first_state, of_first) = tensors(first_state);
        let old = state.unwrap_or_else(|| no_state::<O, I, D>(first_state.clone(), &of_first, &device));
        let (later, later_state) = self.optimizer.step(lr, weight, gradient, Some(old));
        let Some(later_state) = later_state else { return (later, None) };
        let (later_state, of_later) = tensors(later_state);
        let bits = condition.clone().into_primitive().0;
        let chosen = of_first.into_iter().zip(of_later).map(|(first, later)| choose(&bits, first, Some(later)));
        let shape = if is_first { first_state } else { later_state };
        let state = leaves::replace_with(chosen.collect(), || O::to_device(shape, &device));
        (later.mask_where(condition.reshape([1; D]), first), Some(state))
    }
}

/// Returns a truth value as a number of the program, which differs between updates, and no constant.
fn number_as_bool<I: TpuInt, const D: usize>(value: bool, like: &Tensor<Wide<I>, D>) -> Tensor<Wide<I>, 1, Bool> {
    Tensor::<Wide<I>, 1>::full([1], u8::from(value), (&like.device(), like.dtype())).greater_elem(0.5)
}

/// Returns a state of zeros for a weight that has none. `like` is a state with these tensors.
fn no_state<O: SimpleOptimizer<Wide<I>>, I: TpuInt, const D: usize>(
    like: O::State<D>,
    tensors: &[burn_tpu_runtime::Tensor],
    device: &TpuDevice,
) -> O::State<D> {
    let zeros = tensors.iter().map(|tensor| {
        let zeros = splat("float_zeros", tensor.dims(), tensor.element(), 0, &tensor.device());
        burn_tpu_runtime::begin_with(&zeros);
        zeros
    });
    leaves::replace_with(zeros.collect(), || O::to_device(like, device))
}

/// Notes that a step begins with the value of a tensor.
fn begin_with<F: TpuFloat, I: TpuInt, const D: usize>(tensor: &Tensor<Tpu<F, I>, D>) {
    burn_tpu_runtime::begin_with(&tensor.clone().into_primitive().tensor().0);
}

/// Returns the new state where the condition holds, else the old one. A state that did not exist was all zeros.
fn state_if<O: SimpleOptimizer<Wide<I>>, I: TpuInt, const D: usize>(
    condition: Tensor<Wide<I>, D, Bool>,
    new: O::State<D>,
    old: Option<O::State<D>>,
    device: &TpuDevice,
) -> O::State<D> {
    let condition = condition.into_primitive().0;
    let move_to = |state: O::State<D>| O::to_device(state, device);
    let (new, updated) = leaves::collect(|| move_to(new));
    let kept = old.map_or_else(Vec::new, |old| leaves::collect(|| move_to(old)).1);
    let mut kept = kept.into_iter().map(Some).chain(std::iter::repeat(None));
    let chosen = updated.into_iter().map(|new| choose(&condition, new, kept.next().flatten()));
    leaves::replace_with(chosen.collect(), || move_to(new))
}

/// Returns the master copy that the optimizer starts from. Each element is that of the old master copy if the weight's
/// element is its rounded value, else the weight's element. So the copy follows a weight that was clipped, averaged,
/// re-initialised or loaded since the last step.
fn follow<F: TpuFloat, I: TpuInt, const D: usize>(
    master: Option<Tensor<Wide<I>, D>>,
    weight: Tensor<Tpu<F, I>, D>,
) -> Tensor<Wide<I>, D> {
    // The first step is recorded as the later ones are: they are one program.
    let master = master.unwrap_or_else(|| {
        let master = widen(weight.clone());
        begin_with(&master);
        master
    });
    let rounded = retype(master.clone().cast(weight.dtype()));
    let untouched = rounded.equal(weight.clone());
    widen(weight).mask_where(retype_bool(untouched), master)
}

fn retype_bool<F: TpuFloat, I: TpuInt, const D: usize>(tensor: Tensor<Tpu<F, I>, D, Bool>) -> Tensor<Wide<I>, D, Bool> {
    Tensor::from_primitive(tensor.into_primitive())
}

/// Returns the same tensor, typed with another default float type.
fn retype<A: TpuFloat, B: TpuFloat, I: TpuInt, const D: usize>(tensor: Tensor<Tpu<A, I>, D>) -> Tensor<Tpu<B, I>, D> {
    Tensor::from_primitive(TensorPrimitive::Float(tensor.into_primitive().tensor()))
}

fn widen<F: TpuFloat, I: TpuInt, const D: usize>(tensor: Tensor<Tpu<F, I>, D>) -> Tensor<Wide<I>, D> {
    retype(tensor.cast(to_burn(DType::F32)))
}

/// Saved as the pair of master copy and state.
impl<F, I, S, const D: usize> Record<Tpu<F, I>> for MasterState<I, S, D>
where
    F: TpuFloat,
    I: TpuInt,
    S: Record<Wide<I>>,
{
    type Item<P: PrecisionSettings> = <(Option<Tensor<Wide<I>, D>>, Option<S>) as Record<Wide<I>>>::Item<P>;

    fn into_item<P: PrecisionSettings>(self) -> Self::Item<P> {
        (self.master, self.state).into_item::<P>()
    }

    /// Loads f32 values. Burn loads a float tensor in its device's default type, which has 16 bits here; see
    /// `TpuDevice::wide`.
    fn from_item<P: PrecisionSettings>(item: Self::Item<P>, device: &TpuDevice) -> Self {
        let (master, state) = Record::<Wide<I>>::from_item::<P>(item, &device.wide());
        Self { master, state }
    }
}
