//! Dynamic loss scaling for gradients in f16, without a read on the host.
//!
//! Owns: the scale, the test for gradients that are not finite, and when the scale changes. Who skips the update is
//! [`TpuOptimizer`], or [`DeviceAdamW`](crate::DeviceAdamW) in a compiled step.

use super::TpuOptimizer;
use crate::backend::{TpuFloat, TpuInt};
use crate::{Result, Tpu, TpuDevice, TpuTensor};
use burn_core::module::{AutodiffModule, Module, ModuleVisitor, Param};
use burn_core::tensor::backend::{AutodiffBackend, Backend};
use burn_core::tensor::{Bool, DType, FloatDType, Tensor, TensorData, TensorPrimitive};
use burn_optim::{GradientsParams, LearningRate, SimpleOptimizer};

/// The bounds of a scale: it and its reciprocal are finite f32 numbers.
const BOUNDS: [f32; 2] = [f32::MIN_POSITIVE, 1.0e36];

/// How a loss scale changes: the defaults are those of PyTorch's `GradScaler`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossScaling {
    first: f32,
    growth: f32,
    backoff: f32,
    interval: u32,
}

impl Default for LossScaling {
    fn default() -> Self {
        Self { first: 65536.0, growth: 2.0, backoff: 0.5, interval: 2000 }
    }
}

impl LossScaling {
    /// Returns the defaults: the scale begins at 65536, doubles after 2000 finite steps in a row, and is halved by a step
    /// that is not finite.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the first scale. A power of two rounds nothing.
    pub fn with_first(self, first: f32) -> Self {
        Self { first, ..self }
    }

    /// Sets the factor of the scale after `interval` finite steps in a row.
    pub fn with_growth(self, growth: f32, interval: u32) -> Self {
        Self { growth, interval, ..self }
    }

    /// Sets the factor of the scale after a step that is not finite.
    pub fn with_backoff(self, backoff: f32) -> Self {
        Self { backoff, ..self }
    }

    /// Returns the scale and the number of finite steps since it changed, before the first step: `[1]` each, in f32.
    pub(crate) fn start<F: TpuFloat, I: TpuInt>(&self, device: &TpuDevice) -> [Tensor<Tpu<F, I>, 1>; 2] {
        [self.first, 0.0].map(|number| Tensor::from_data(TensorData::new(vec![number], [1]), (device, DType::F32)))
    }

    /// Returns the gradients of a scaled loss, divided by the scale and in f32; whether all are finite, `[1]`; and the scale
    /// and its count after the step.
    #[allow(clippy::type_complexity, reason = "three results, of which each is simple")]
    pub(crate) fn unscaled<B: Backend, F: TpuFloat, I: TpuInt>(
        &self,
        model: &impl Module<B>,
        gradients: GradientsParams,
        numbers: [Tensor<Tpu<F, I>, 1>; 2],
    ) -> (GradientsParams, Tensor<Tpu<F, I>, 1, Bool>, [Tensor<Tpu<F, I>, 1>; 2]) {
        let scale = &numbers[0];
        let (factor, into) = (scale.clone().recip(), GradientsParams::new());
        let mut unscale = Unscale { from: gradients, into, factor, finite: None };
        model.visit(&mut unscale);
        // Without any gradient, nothing is infinite.
        let finite = unscale.finite.unwrap_or_else(|| scale.clone().greater_elem(0.0));
        let next = self.after(numbers, finite.clone());
        (unscale.into, finite, next)
    }

    /// Returns the scale and the number of finite steps after a step.
    fn after<F: TpuFloat, I: TpuInt>(
        &self,
        [scale, steps]: [Tensor<Tpu<F, I>, 1>; 2],
        finite: Tensor<Tpu<F, I>, 1, Bool>,
    ) -> [Tensor<Tpu<F, I>, 1>; 2] {
        let steps = steps + 1.0;
        let grows = steps.clone().greater_equal_elem(f64::from(self.interval));
        let grown = scale.clone().mask_where(grows.clone(), scale.clone() * self.growth);
        let scale = (scale * self.backoff).mask_where(finite.clone(), grown);
        let starts_again = grows.bool_or(finite.bool_not());
        [scale.clamp(BOUNDS[0], BOUNDS[1]), steps.mask_fill(starts_again, 0.0)]
    }
}

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
        let [scale, steps] = scaling.start::<f32, i32>(device).map(primitive);
        Self { scaling, scale, steps }
    }

    /// Returns the loss `[1]` times the scale, in f32: take the gradients of this.
    pub fn scale<B, F, I>(&self, loss: Tensor<B, 1>) -> Tensor<B, 1>
    where
        B: AutodiffBackend<Device = TpuDevice, InnerBackend = Tpu<F, I>>,
        F: TpuFloat,
        I: TpuInt,
    {
        loss.cast(FloatDType::F32) * Tensor::from_inner(float::<F, I>(self.scale.clone()))
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
        let numbers = [&self.scale, &self.steps].map(|number| float::<F, I>(number.clone()));
        let (gradients, finite, next) = self.scaling.unscaled::<B, F, I>(&model, gradients, numbers);
        [self.scale, self.steps] = next.map(primitive);
        optimizer.step_if(finite.into_primitive(), rate, model, gradients)
    }

    /// Returns the scale and its count. Waits for the last step.
    ///
    /// # Errors
    /// Those of the steps so far.
    pub fn state(&self) -> Result<LossScalerState> {
        let number = |tensor: &TpuTensor| Ok(tensor.to_data()?.iter::<f32>().next().unwrap_or_default());
        Ok(LossScalerState { scale: number(&self.scale)?, steps: number(&self.steps)? })
    }

    /// Goes on from a saved scale and count.
    pub fn with_state(self, state: LossScalerState) -> Self {
        let device = self.scale.device();
        let number = |number: f32| {
            let data = TensorData::new(vec![number], [1]);
            primitive(Tensor::<Tpu<f32>, 1>::from_data(data, (&device, DType::F32)))
        };
        Self { scale: number(state.scale), steps: number(state.steps), scaling: self.scaling }
    }
}

/// Divides gradients by a scale.
struct Unscale<F: TpuFloat, I: TpuInt> {
    from: GradientsParams,
    into: GradientsParams,
    factor: Tensor<Tpu<F, I>, 1>,
    finite: Option<Tensor<Tpu<F, I>, 1, Bool>>,
}

impl<F: TpuFloat, I: TpuInt, B: Backend> ModuleVisitor<B> for Unscale<F, I> {
    fn visit_float<const D: usize>(&mut self, parameter: &Param<Tensor<B, D>>) {
        let Some(gradient) = self.from.remove::<Tpu<F, I>, D>(parameter.id) else { return };
        let gradient = gradient.cast(FloatDType::F32);
        // False also for NaN.
        let finite = gradient.clone().abs().lower_elem(f32::INFINITY).all();
        self.finite = Some(match self.finite.take() {
            Some(others) => others.bool_and(finite),
            None => finite,
        });
        self.into.register::<Tpu<F, I>, D>(parameter.id, gradient * self.factor.clone().reshape([1; D]));
    }
}

fn float<F: TpuFloat, I: TpuInt>(number: TpuTensor) -> Tensor<Tpu<F, I>, 1> {
    Tensor::from_primitive(TensorPrimitive::Float(number))
}

fn primitive<F: TpuFloat, I: TpuInt>(tensor: Tensor<Tpu<F, I>, 1>) -> TpuTensor {
    tensor.into_primitive().tensor()
}
