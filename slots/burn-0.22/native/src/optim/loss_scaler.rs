//! Dynamic loss scaling for gradients in f16, in a loop that is recorded.
//!
//! Owns: the scale of a model's losses and gradients. May not know: when the scale changes, which is the runtime's. Who
//! skips the update is [`TpuOptimizer`].

use super::TpuOptimizer;
use crate::tensors::{tensor, value};
use crate::{TpuDevice, TpuError};
use burn::lr_scheduler::module_lr_scheduler::ModuleLearningRate;
use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::{FloatDType, Tensor};
use burn_tpu_runtime::Tensor as Value;
use burn_tpu_runtime::step::{LossScaling, Unscaled};

/// Scales losses for gradients in f16, and skips the steps whose gradients are not finite ([Micikevicius et al.,
/// 2018](https://arxiv.org/abs/1710.03740)). The scale is on the device, and so is the choice: nothing is read, and a
/// step remains one program.
///
/// ```
/// use burn::nn::LinearConfig;
/// use burn::optim::{AdamWConfig, GradientsParams};
/// use burn::tensor::{Device, FloatDType, Tensor};
/// use burn_tpu::{LossScaler, LossScaling, TpuDevice, TpuOptimizer, autocast_to};
///
/// let tpu = TpuDevice::ndarray();
/// let device = Device::from(tpu).autodiff();
/// let mut model = LinearConfig::new(4, 1).init(&device);
/// let mut optimizer = TpuOptimizer::new(AdamWConfig::new().build());
/// // These gradients are below 64: 65504, the largest f16 number, has room for them times 1024.
/// let mut scaler = LossScaler::new(LossScaling::new().with_first(1024.0), &tpu);
/// let x = Tensor::<2>::ones([8, 4], &device);
/// for _ in 0..3 {
///     let fast = autocast_to(&model, FloatDType::F16);
///     let loss = fast.forward(x.clone().cast(FloatDType::F16)).cast(FloatDType::F32).powi_scalar(2).mean();
///     let gradients = GradientsParams::from_grads(scaler.scale(loss).backward(), &model);
///     model = scaler.step(&mut optimizer, 1e-2, model, gradients);
/// }
/// assert_eq!(scaler.state()?.scale, 1024.0);
/// # Ok::<(), burn_tpu::TpuError>(())
/// ```
///
/// A skipped step leaves the parameters, their master copies and the optimizer's tensors as they are. Numbers that a
/// Burn optimizer keeps on the host, such as the step count of Adam's bias correction, do count it. In a compiled step,
/// [`DeviceAdamW::with_loss_scaling`](crate::DeviceAdamW::with_loss_scaling) scales and skips, and counts exactly.
///
/// bf16 has the exponents of f32 and needs no scaling.
#[derive(Clone, Debug)]
pub struct LossScaler {
    scaling: LossScaling,
    /// `[1]` in f32.
    scale: Value,
    /// The number of finite steps since the scale changed, `[1]` in f32.
    steps: Value,
}

/// The numbers of a [`LossScaler`], to save and to load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossScalerState {
    /// The factor of the loss.
    pub scale: f32,
    /// The number of finite steps since the scale changed.
    pub steps: f32,
}

impl LossScaler {
    /// Creates a scaler on the device of a model.
    pub fn new(scaling: LossScaling, device: &TpuDevice) -> Self {
        let [scale, steps] = scaling.start(device);
        Self { scaling, scale, steps }
    }

    /// Returns the loss `[1]` times the scale, in f32: take the gradients of this.
    pub fn scale(&self, loss: Tensor<1>) -> Tensor<1> {
        loss.cast(FloatDType::F32) * tensor(self.scale.clone())
    }

    /// Divides the gradients of a scaled loss by the scale, updates the model unless one of them is not finite, and
    /// ends the step. Gradients that were accumulated from several losses of one scale count as one.
    pub fn step<M: Module>(
        &mut self,
        optimizer: &mut TpuOptimizer,
        rate: impl Into<ModuleLearningRate>,
        model: M,
        gradients: GradientsParams,
    ) -> M {
        let mut take = Take { from: gradients, taken: Vec::new() };
        model.visit(&mut take);
        let numbers = [&self.scale, &self.steps].map(Clone::clone);
        let Unscaled { gradients, finite, next } = self.scaling.unscaled(take.taken, numbers);
        [self.scale, self.steps] = next;
        let mut give = Give { gradients: gradients.into_iter(), into: GradientsParams::new() };
        model.visit(&mut give);
        optimizer.step_if(finite, rate, model, give.into)
    }

    /// Returns the scale and its count. Waits for the last step.
    ///
    /// # Errors
    /// Those of the steps so far.
    pub fn state(&self) -> Result<LossScalerState, TpuError> {
        let [scale, steps] = LossScaling::numbers([&self.scale, &self.steps])?;
        Ok(LossScalerState { scale, steps })
    }

    /// Goes on from a saved scale and count.
    #[must_use]
    pub fn with_state(self, state: LossScalerState) -> Self {
        let [scale, steps] = self.scaling.resumed(state.scale, state.steps, &self.scale.device());
        Self { scale, steps, scaling: self.scaling }
    }
}

/// Takes the gradient of each parameter.
struct Take {
    from: GradientsParams,
    taken: Vec<Option<Value>>,
}

impl ModuleVisitor for Take {
    fn visit_float<const D: usize>(&mut self, parameter: &Param<Tensor<D>>) {
        self.taken.push(self.from.remove::<D>(parameter.id).and_then(value));
    }
}

/// Gives each parameter its gradient, in the order in which they were taken.
struct Give {
    gradients: std::vec::IntoIter<Option<Value>>,
    into: GradientsParams,
}

impl ModuleVisitor for Give {
    fn visit_float<const D: usize>(&mut self, parameter: &Param<Tensor<D>>) {
        if let Some(gradient) = self.gradients.next().flatten() {
            self.into.register::<D>(parameter.id, tensor(gradient));
        }
    }
}
