//! The f32 master weights and the f32 state of 16-bit weights, and their records.

use super::first_state::{FirstUpdate, before_update, with_gradient};
use crate::tensors::{bits, bools, value};
use burn::optim::{LearningRate, Optimizer, RecordState, StateSink, StateSource};
use burn::tensor::{Bool, DType, Device, FloatDType, Tensor};
use burn_dispatch::DispatchDevice;
use burn_tpu_runtime::ops::data::splat;
use burn_tpu_runtime::step::choose;
use burn_tpu_runtime::{Tensor as Value, leaves};
use std::cell::RefCell;
use std::sync::OnceLock;

/// One of Burn's optimizers, with an f32 master copy of each 16-bit weight.
///
/// For a weight of bf16 or f16, the wrapped optimizer gets the master copy and the gradient in f32, and its state is
/// f32. The weight is the rounded master copy. A weight that something else changed since the last step (clipping,
/// averaging, loading a record) replaces its master copy, element by element. For weights of 32 and 64 bits nothing is
/// added, and records are those of the wrapped optimizer.
///
/// [`TpuOptimizer`](crate::TpuOptimizer) has it inside, and ends the step too. Alone, it is an [`Optimizer`] for what
/// takes Burn's [`ModuleOptimizer`](burn::optim::ModuleOptimizer):
///
/// ```
/// use burn::optim::{AdamWConfig, ModuleOptimizer};
/// use burn_tpu::MasterWeights;
///
/// let optimizer = ModuleOptimizer::from(MasterWeights::new(AdamWConfig::new().build()));
/// ```
#[derive(Clone, Debug)]
pub struct MasterWeights<O> {
    optimizer: O,
    /// What a weight's first update is; found at the first one.
    first_update: OnceLock<FirstUpdate>,
}

impl<O> MasterWeights<O> {
    /// Wraps the optimizer that a Burn configuration builds: `AdamWConfig::new().build()`.
    pub const fn new(optimizer: O) -> Self {
        Self { optimizer, first_update: OnceLock::new() }
    }
}

/// An f32 master copy and the wrapped optimizer's state for it.
#[derive(Clone, Debug)]
pub struct MasterState<S, const D: usize> {
    /// f32, with the weight's dims; `None` for a weight that is not of 16 bits.
    master: Option<Tensor<D>>,
    state: Option<S>,
}

impl<O: Optimizer> Optimizer for MasterWeights<O> {
    type State<const D: usize> = MasterState<O::State<D>, D>;

    fn step<const D: usize>(
        &self,
        rate: LearningRate,
        weight: Tensor<D>,
        gradient: Tensor<D>,
        state: Option<Self::State<D>>,
    ) -> (Tensor<D>, Option<Self::State<D>>) {
        let dtype = weight.dtype();
        if state.is_none() {
            begin_with(&weight);
        }
        let (master, state) = state.map_or((None, None), |state| (state.master, state.state));
        if !matches!(dtype, DType::BF16 | DType::F16) {
            let (weight, state) = self.update(rate, weight, gradient, state);
            return (weight, state.map(|state| MasterState { master: None, state: Some(state) }));
        }
        let master = follow(master, weight);
        let (master, state) = self.update(rate, master, gradient.cast(FloatDType::F32), state);
        let weight = master.clone().cast(FloatDType::from(dtype));
        (weight, Some(MasterState { master: Some(master), state }))
    }

    fn to_device<const D: usize>(state: Self::State<D>, device: &Device) -> Self::State<D> {
        MasterState {
            master: state.master.map(|master| master.to_device(device)),
            state: state.state.map(|state| O::to_device(state, device)),
        }
    }
}

thread_local! {
    /// Whether the thread's update happens, `[1]`, bool; `None` if it always does. Burn calls an optimizer of weights
    /// by reference, and hides its type.
    static CONDITION: RefCell<Option<Value>> = const { RefCell::new(None) };
}

/// Runs an update of a module, in which weights and states stay as they are where the condition (`[1]`, bool) is false.
pub(super) fn with_condition<T>(condition: Value, update: impl FnOnce() -> T) -> T {
    /// Ends the condition, also by a panic.
    struct Ends(Option<Value>);
    impl Drop for Ends {
        fn drop(&mut self) {
            CONDITION.replace(self.0.take());
        }
    }
    let _ends = Ends(CONDITION.replace(Some(condition)));
    update()
}

impl<O: Optimizer> MasterWeights<O> {
    /// Updates a weight and its state if the condition holds.
    fn update<const D: usize>(
        &self,
        rate: LearningRate,
        weight: Tensor<D>,
        gradient: Tensor<D>,
        state: Option<O::State<D>>,
    ) -> (Tensor<D>, Option<O::State<D>>) {
        let is_first = state.is_none();
        let state = state.or_else(|| self.first_state(rate, &weight));
        let Some(condition) = CONDITION.with_borrow(Clone::clone) else {
            return self.update_in_one_form(rate, weight, gradient, (state, is_first));
        };
        let (old, device) = (state.clone(), weight.device());
        let (updated, state) = self.update_in_one_form(rate, weight.clone(), gradient, (state, is_first));
        let state = state.map(|state| state_if::<O, D>(&condition, state, old, &device));
        let condition = bools::<1>(condition).reshape([1; D]);
        (weight.mask_where(condition, updated), state)
    }

    /// Returns what the first update of the wrapped optimizer is.
    fn first_update<const D: usize>(&self) -> FirstUpdate {
        *self.first_update.get_or_init(|| FirstUpdate::of::<O, D>(&self.optimizer))
    }

    /// Returns the state of a weight before its first update, if the optimizer is known to begin from one.
    fn first_state<const D: usize>(&self, rate: LearningRate, weight: &Tensor<D>) -> Option<O::State<D>> {
        if !matches!(self.first_update::<D>(), FirstUpdate::OfZeros | FirstUpdate::OfGradient) {
            return None;
        }
        let device = weight.device();
        // Nothing reads the results, so nothing is computed.
        let any = Tensor::zeros([1; D], (&device, weight.dtype()));
        let (_, after) = self.optimizer.step(rate, any.clone(), any, None);
        let state = before_update(after?, weight)?;
        let (state, tensors) = leaves::collect(|| O::to_device(state, &device));
        tensors.iter().for_each(burn_tpu_runtime::begin_with);
        Some(state)
    }

    /// Updates a weight and its state by ops that are the same in all updates, so that all steps are one program.
    /// `is_first` says which update it is.
    fn update_in_one_form<const D: usize>(
        &self,
        rate: LearningRate,
        weight: Tensor<D>,
        gradient: Tensor<D>,
        (state, is_first): (Option<O::State<D>>, bool),
    ) -> (Tensor<D>, Option<O::State<D>>) {
        match (self.first_update::<D>(), state) {
            (FirstUpdate::OfGradient, Some(state)) => {
                let is_first = number_as_bool(is_first, &weight).reshape([1; D]);
                let state = with_gradient(state, &gradient, is_first);
                self.optimizer.step(rate, weight, gradient, Some(state))
            }
            (FirstUpdate::Elementwise, state) => self.update_by_either(rate, weight, gradient, state),
            (_, state) => self.optimizer.step(rate, weight, gradient, state),
        }
    }

    /// Updates a weight and its state by both of the optimizer's formulas, and chooses.
    fn update_by_either<const D: usize>(
        &self,
        rate: LearningRate,
        weight: Tensor<D>,
        gradient: Tensor<D>,
        state: Option<O::State<D>>,
    ) -> (Tensor<D>, Option<O::State<D>>) {
        let (device, is_first) = (weight.device(), state.is_none());
        let condition = number_as_bool(is_first, &weight);
        // Tensors of another backend choose for themselves.
        let Some(bits) = bits(condition.clone()) else { return self.optimizer.step(rate, weight, gradient, state) };
        let tensors = |state| leaves::collect(|| O::to_device(state, &device));
        let (first, first_state) = self.optimizer.step(rate, weight.clone(), gradient.clone(), None);
        let Some(first_state) = first_state else { return (first, None) };
        let (first_state, of_first) = tensors(first_state);
        let old = state.unwrap_or_else(|| no_state::<O, D>(first_state.clone(), &of_first, &device));
        let (later, later_state) = self.optimizer.step(rate, weight, gradient, Some(old));
        let Some(later_state) = later_state else { return (later, None) };
        let (later_state, of_later) = tensors(later_state);
        let chosen = of_first.into_iter().zip(of_later).map(|(first, later)| choose(&bits, first, Some(later)));
        let shape = if is_first { first_state } else { later_state };
        let state = leaves::replace_with(chosen.collect(), || O::to_device(shape, &device));
        (later.mask_where(condition.reshape([1; D]), first), Some(state))
    }
}

/// Returns a truth value, `[1]`, as a number of the program, which differs between updates, and no constant.
fn number_as_bool<const D: usize>(value: bool, like: &Tensor<D>) -> Tensor<1, Bool> {
    Tensor::<1>::full([1], u8::from(value), (&like.device(), like.dtype())).greater_elem(0.5)
}

/// Returns a state of zeros for a weight that has none. `like` is a state with these tensors.
fn no_state<O: Optimizer, const D: usize>(like: O::State<D>, tensors: &[Value], device: &Device) -> O::State<D> {
    let zeros = tensors.iter().map(|tensor| {
        let zeros = splat("float_zeros", tensor.dims(), tensor.element(), 0, &tensor.device());
        burn_tpu_runtime::begin_with(&zeros);
        zeros
    });
    leaves::replace_with(zeros.collect(), || O::to_device(like, device))
}

/// Notes that a step begins with the value of a tensor.
fn begin_with<const D: usize>(tensor: &Tensor<D>) {
    if let Some(value) = value(tensor.clone()) {
        burn_tpu_runtime::begin_with(&value);
    }
}

/// Returns the new state where the condition holds, else the old one. A state that did not exist was all zeros.
fn state_if<O: Optimizer, const D: usize>(
    condition: &Value,
    new: O::State<D>,
    old: Option<O::State<D>>,
    device: &Device,
) -> O::State<D> {
    let move_to = |state: O::State<D>| O::to_device(state, device);
    let (new, updated) = leaves::collect(|| move_to(new));
    let kept = old.map_or_else(Vec::new, |old| leaves::collect(|| move_to(old)).1);
    let mut kept = kept.into_iter().map(Some).chain(std::iter::repeat(None));
    let chosen = updated.into_iter().map(|new| choose(condition, new, kept.next().flatten()));
    leaves::replace_with(chosen.collect(), || move_to(new))
}

/// Returns the master copy that the optimizer starts from. Each element is that of the old master copy if the weight's
/// element is its rounded value, else the weight's element. So the copy follows a weight that was clipped, averaged,
/// re-initialised or loaded since the last step.
fn follow<const D: usize>(master: Option<Tensor<D>>, weight: Tensor<D>) -> Tensor<D> {
    let wide = weight.clone().cast(FloatDType::F32);
    // The first step is recorded as the later ones are: they are one program.
    let master = master.unwrap_or_else(|| {
        let master = weight.clone().cast(FloatDType::F32);
        begin_with(&master);
        master
    });
    let rounded = master.clone().cast(FloatDType::from(weight.dtype()));
    wide.mask_where(rounded.equal(weight), master)
}

/// The name of the master copy in a record, beside the names of the wrapped optimizer's state. Burn reserves `__rank`.
const MASTER: &str = "__master";

/// Saved as the wrapped optimizer's state is, with the master copy beside it. So each of the two loads the other's
/// records: a weight without a master copy begins with its own value.
impl<S: RecordState, const D: usize> RecordState for MasterState<S, D> {
    fn state_flatten(&self, prefix: &str, out: &mut StateSink) {
        if let Some(master) = &self.master {
            out.push_tensor(prefix, MASTER, master.clone().into_data());
        }
        if let Some(state) = &self.state {
            state.state_flatten(prefix, out);
        }
    }

    fn state_unflatten(prefix: &str, source: &mut StateSource, device: &Device) -> Option<Self> {
        let device = loads_f32(device);
        let master = source.take_tensor(prefix, MASTER).map(|data| Tensor::from_data(data, &device));
        let state = S::state_unflatten(prefix, source, &device);
        (master.is_some() || state.is_some()).then_some(Self { master, state })
    }
}

/// Returns the same device with an id of its own in Burn's registry of default element types. Burn loads the tensors of
/// a record in their device's default type, which may be bf16; states are f32. Tensors never hold this id.
fn loads_f32(device: &Device) -> Device {
    match device.as_dispatch() {
        DispatchDevice::Flex(tpu) => Device::from(tpu.with_default_float(FloatDType::F32)),
        _ => device.clone(),
    }
}
