//! Dynamic loss scaling for gradients in f16, in a loop that is recorded.
//!
//! Owns: the scale of a model's losses and gradients. May not know: when the scale changes, which is the runtime's. Who
//! skips the update is [`TpuOptimizer`].

use super::TpuOptimizer;
use crate::backend::{TpuFloat, TpuInt};
use crate::{Result, Tpu, TpuDevice, TpuTensor};
use burn_core::module::{AutodiffModule, ModuleVisitor, Param};
use burn_core::tensor::backend::AutodiffBackend;
use burn_core::tensor::{FloatDType, Tensor, TensorPrimitive};
use burn_optim::{GradientsParams, LearningRate, SimpleOptimizer};
use burn_tpu_runtime::Tensor as Value;
use burn_tpu_runtime::step::{LossScaling, Unscaled};

/// Scales losses for gradients in f16, and skips the steps whose gradients are not finite ([Micikevicius et al.,
/// 2018](https://arxiv.org/abs/1710.03740)). The scale is on the device, and so is the choice: nothing is read, and a step
/// remains one program.
///
/// ```
/// use burn::nn::{Linear, LinearConfig};
/// use burn::optim::{AdamWConfig, GradientsParams};
/// use burn::tensor::{DType, FloatDType, Tensor};
/// use burn_autodiff::Autodiff;
/// use burn_tpu::{LossScaler, LossScaling, Tpu, TpuDevice, TpuOptimizer, autocast_to};
///
/// type B = Autodiff<Tpu<f32>>;
/// let device = TpuDevice::ndarray();
/// let mut model = LinearConfig::new(4, 1).init::<B>(&device);
/// let mut optimizer = TpuOptimizer::new(AdamWConfig::new().init::<B, Linear<B>>());
/// // These gradients are below 64: 65504, the largest f16 number, has room for them times 1024.
/// let mut scaler = LossScaler::new(LossScaling::new().with_first(1024.0), &device);
/// let x = Tensor::<B, 2>::ones([8, 4], &device);
/// for _ in 0..3 {
///     let fast = autocast_to(&model, FloatDType::F16);
///     let loss = fast.forward(x.clone()).cast(DType::F32).powi_scalar(2).mean();
///     let gradients = GradientsParams::from_grads(scaler.scale(loss).backward(), &model);
///     model = scaler.step(&mut optimizer, 1e-2, model, gradients);
/// }
/// assert_eq!(scaler.state()?.scale, 1024.0);
/// # Ok::<(), burn_tpu::TpuError>(())
/// ```
///
/// A skipped step leaves the parameters, their master copies and the optimizer's tensors as they are. Numbers that a Burn
/// optimizer keeps on the host, such as the step count of Adam's bias correction, do count it. In a compiled step,
/// [`DeviceAdamW::with_loss_scaling`](crate::DeviceAdamW::with_loss_scaling) scales and skips, and counts exactly.
///
/// bf16 has the exponents of f32 and needs no scaling.
#[derive(Clone, Debug)]
pub struct LossScaler {
    scaling: LossScaling,
    /// `[1]` in f32.
    scale: TpuTensor,
    /// The number of finite steps since the scale changed, `[1]` in f32.
    steps: TpuTensor,
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
        let [scale, steps] = scaling.start(&device.0).map(TpuTensor);
        Self { scaling, scale, steps }
    }

    /// Returns the loss `[1]` times the scale, in f32: take the gradients of this.
    pub fn scale<B, F, I>(&self, loss: Tensor<B, 1>) -> Tensor<B, 1>
    where
        B: AutodiffBackend<Device = TpuDevice, InnerBackend = Tpu<F, I>>,
        F: TpuFloat,
        I: TpuInt,
    {
        loss.cast(FloatDType::F32) * Tensor::from_inner(float(self.scale.0.clone()))
    }

    /// Divides the gradients of a scaled loss by the scale, updates the model unless one of them is not finite, and ends the
    /// step. Gradients that were accumulated from several losses of one scale count as one.
    pub fn step<O, M, B, F, I>(
        &mut self,
        optimizer: &mut TpuOptimizer<O, M, B>,
        rate: LearningRate,
        model: M,
        gradients: GradientsParams,
    ) -> M
    where
        B: AutodiffBackend<Device = TpuDevice, InnerBackend = Tpu<F, I>>,
        F: TpuFloat,
        I: TpuInt,
        M: AutodiffModule<B>,
        O: SimpleOptimizer<Tpu<f32, I>>,
    {
        let mut take = Take { from: gradients, taken: Vec::new() };
        model.visit(&mut take);
        let numbers = [&self.scale, &self.steps].map(|number| number.0.clone());
        let Unscaled { gradients, finite, next } = self.scaling.unscaled(take.taken, numbers);
        [self.scale, self.steps] = next.map(TpuTensor);
        let mut give = Give { gradients: gradients.into_iter(), into: GradientsParams::new() };
        model.visit(&mut give);
        optimizer.step_if(finite.into(), rate, model, give.into)
    }

    /// Returns the scale and its count. Waits for the last step.
    ///
    /// # Errors
    /// Those of the steps so far.
    pub fn state(&self) -> Result<LossScalerState> {
        let [scale, steps] = LossScaling::numbers([&self.scale.0, &self.steps.0])?;
        Ok(LossScalerState { scale, steps })
    }

    /// Goes on from a saved scale and count.
    pub fn with_state(self, state: LossScalerState) -> Self {
        let [scale, steps] = self.scaling.resumed(state.scale, state.steps, &self.scale.device().0).map(TpuTensor);
        Self { scale, steps, scaling: self.scaling }
    }
}

/// Takes the gradient of each parameter.
struct Take {
    from: GradientsParams,
    taken: Vec<Option<Value>>,
}

impl<B: AutodiffBackend<InnerBackend = Tpu<F, I>>, F: TpuFloat, I: TpuInt> ModuleVisitor<B> for Take {
    fn visit_float<const D: usize>(&mut self, parameter: &Param<Tensor<B, D>>) {
        let gradient = self.from.remove::<Tpu<F, I>, D>(parameter.id);
        self.taken.push(gradient.map(|gradient| gradient.into_primitive().tensor().0));
    }
}

/// Gives each parameter its gradient, in the order in which they were taken.
struct Give {
    gradients: std::vec::IntoIter<Option<Value>>,
    into: GradientsParams,
}

impl<B: AutodiffBackend<InnerBackend = Tpu<F, I>>, F: TpuFloat, I: TpuInt> ModuleVisitor<B> for Give {
    fn visit_float<const D: usize>(&mut self, parameter: &Param<Tensor<B, D>>) {
        if let Some(gradient) = self.gradients.next().flatten() {
            self.into.register::<Tpu<F, I>, D>(parameter.id, float(gradient));
        }
    }
}

fn float<F: TpuFloat, I: TpuInt, const D: usize>(value: Value) -> Tensor<Tpu<F, I>, D> {
    Tensor::from_primitive(TensorPrimitive::Float(TpuTensor(value)))
}
