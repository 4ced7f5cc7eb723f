//! The f32 master weights and the f32 state of 16-bit weights, and their records.

use burn::optim::{LearningRate, Optimizer, RecordState, StateSink, StateSource};
use burn::tensor::{DType, Device, FloatDType, Tensor};
use burn_dispatch::DispatchDevice;

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
}

impl<O> MasterWeights<O> {
    /// Wraps the optimizer that a Burn configuration builds: `AdamWConfig::new().build()`.
    pub const fn new(optimizer: O) -> Self {
        Self { optimizer }
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
        let (master, state) = state.map_or((None, None), |state| (state.master, state.state));
        if !matches!(dtype, DType::BF16 | DType::F16) {
            let (weight, state) = self.optimizer.step(rate, weight, gradient, state);
            return (weight, state.map(|state| MasterState { master: None, state: Some(state) }));
        }
        let master = follow(master, weight);
        let (master, state) = self.optimizer.step(rate, master, gradient.cast(FloatDType::F32), state);
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

/// Returns the master copy that the optimizer starts from. Each element is that of the old master copy if the weight's
/// element is its rounded value, else the weight's element. So the copy follows a weight that was clipped, averaged,
/// re-initialised or loaded since the last step.
fn follow<const D: usize>(master: Option<Tensor<D>>, weight: Tensor<D>) -> Tensor<D> {
    let wide = weight.clone().cast(FloatDType::F32);
    let Some(master) = master else { return wide };
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
