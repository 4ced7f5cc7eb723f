//! AdamW as a pure function: its counter and its rate are tensors, so that a compiled step has no number that changes.

use super::tensors::{TensorList, tensor};
use crate::LossScaling;
use crate::backend::{TpuFloat, TpuInt};
use crate::{Tpu, TpuTensor};
use burn_core::tensor::{Bool, FloatDType, Tensor};
use std::sync::Arc;

/// Decides by a parameter's path and dims.
type Decides = Arc<dyn Fn(&str, &[usize]) -> bool + Send + Sync>;

/// AdamW ([Loshchilov and Hutter, 2019](https://arxiv.org/abs/1711.05101)) whose state is on the device, for
/// [`compile_step`](crate::compile_step). It computes what Burn's `AdamW` does, with the same defaults; without weight decay
/// that is Adam. 16-bit parameters have f32 master copies and f32 state, as with [`TpuOptimizer`](crate::TpuOptimizer).
///
/// ```
/// use burn_tpu::DeviceAdamW;
/// let optimizer = DeviceAdamW::new()
///     .with_betas(0.9, 0.95)
///     .with_weight_decay(0.1)
///     .with_decay_of(|path, dims| dims.len() > 1 && !path.contains("embedding"))
///     .with_gradient_norm(1.0);
/// ```
#[derive(Clone)]
pub struct DeviceAdamW {
    betas: [f32; 2],
    epsilon: f32,
    weight_decay: f32,
    decays: Option<Decides>,
    gradient_norm: Option<f32>,
    loss_scaling: Option<LossScaling>,
}

impl Default for DeviceAdamW {
    fn default() -> Self {
        Self {
            betas: [0.9, 0.999],
            epsilon: 1e-5,
            weight_decay: 1e-4,
            decays: None,
            gradient_norm: None,
            loss_scaling: None,
        }
    }
}

impl DeviceAdamW {
    /// Returns the optimizer with the defaults of Burn's `AdamWConfig`: betas 0.9 and 0.999, epsilon 1e-5, weight decay
    /// 1e-4.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the decay of the first and of the second moment.
    pub fn with_betas(self, first: f32, second: f32) -> Self {
        Self { betas: [first, second], ..self }
    }

    /// Sets the number that keeps the divisor from zero.
    pub fn with_epsilon(self, epsilon: f32) -> Self {
        Self { epsilon, ..self }
    }

    /// Sets the weight decay, of which each step takes the share of its rate.
    pub fn with_weight_decay(self, weight_decay: f32) -> Self {
        Self { weight_decay, ..self }
    }

    /// Sets which parameters decay, by path (`layers.0.weight`) and dims. Without it, all do.
    pub fn with_decay_of(self, decays: impl Fn(&str, &[usize]) -> bool + Send + Sync + 'static) -> Self {
        Self { decays: Some(Arc::new(decays)), ..self }
    }

    /// Scales the gradients of a step so that the Euclidean norm of all of them together is at most this.
    pub fn with_gradient_norm(self, norm: f32) -> Self {
        Self { gradient_norm: Some(norm), ..self }
    }

    /// Multiplies the loss by a scale before its gradients are taken, and skips the steps whose gradients are not finite:
    /// for gradients in f16. What [`CompiledStep::run`](crate::CompiledStep::run) returns is not scaled. See
    /// [`LossScaler`](crate::LossScaler); here the counters of the optimizer do not count a skipped step.
    pub fn with_loss_scaling(self, scaling: LossScaling) -> Self {
        Self { loss_scaling: Some(scaling), ..self }
    }

    pub(super) fn loss_scaling(&self) -> Option<LossScaling> {
        self.loss_scaling
    }

    pub(super) fn gradient_norm(&self) -> Option<f32> {
        self.gradient_norm
    }

    /// Returns the weight decay of a parameter.
    pub(super) fn decay_of(&self, path: &str, dims: &[usize]) -> f32 {
        let decays = self.decays.as_ref().is_none_or(|decays| decays(path, dims));
        if decays { self.weight_decay } else { 0.0 }
    }

    /// Adds the state of a parameter before the first step.
    pub(super) fn init<F: TpuFloat, I: TpuInt, const D: usize>(
        &self,
        state: &mut TensorList,
        parameter: Tensor<Tpu<F, I>, D>,
    ) {
        let wide = parameter.clone().cast(FloatDType::F32);
        // Made of the parameter, so that they are split over a mesh as it is.
        let zeros = || wide.clone() * 0.0;
        state.push(zeros());
        state.push(zeros());
        if is_narrow(&parameter) {
            state.push(wide);
        }
    }

    /// Returns the number of tensors in the state of a parameter.
    pub(super) fn state_of<F: TpuFloat, I: TpuInt, const D: usize>(&self, parameter: &Tensor<Tpu<F, I>, D>) -> usize {
        if is_narrow(parameter) { 3 } else { 2 }
    }

    /// Returns the numbers that all parameters of a step share, from the betas' powers and the rate, `[1]` each, in f32; the
    /// new powers are added to `state`. Where `finite` is false, all state stays as it is.
    pub(super) fn begin<F: TpuFloat, I: TpuInt>(
        &self,
        powers: [TpuTensor; 2],
        rate: Tensor<Tpu<F, I>, 1>,
        finite: Option<Tensor<Tpu<F, I>, 1, Bool>>,
        state: &mut TensorList,
    ) -> Numbers<F, I> {
        let powers = powers.map(tensor::<F, I, 1>);
        let [first, second] = [(0, &powers[0]), (1, &powers[1])].map(|(i, power)| power.clone() * self.betas[i]);
        let numbers = Numbers {
            rate,
            corrections: [first.clone(), second.clone()].map(|power| power.neg() + 1.0),
            scale: None,
            finite,
        };
        for (new, old) in [first, second].into_iter().zip(powers) {
            state.push(numbers.if_finite(new, old));
        }
        numbers
    }

    /// Returns the updated parameter; the new state is added to `next`. Without a gradient, both stay as they are.
    pub(super) fn update<F: TpuFloat, I: TpuInt, const D: usize>(
        &self,
        parameter: Tensor<Tpu<F, I>, D>,
        gradient: Option<Tensor<Tpu<F, I>, D>>,
        decay: f32,
        numbers: &Numbers<F, I>,
        state: &mut impl Iterator<Item = TpuTensor>,
        next: &mut TensorList,
    ) -> Tensor<Tpu<F, I>, D> {
        let (dtype, narrow) = (parameter.dtype(), is_narrow(&parameter));
        let Some(gradient) = gradient else {
            next.0.extend(state.take(self.state_of(&parameter)));
            return parameter;
        };
        let Some((first, second)) = state.next().zip(state.next()) else { return parameter };
        let old = [first.clone(), second.clone()].map(tensor::<F, I, D>);
        let master = if narrow { state.next().map_or(parameter.clone(), tensor) } else { parameter };
        let gradient = numbers.scaled(gradient.cast(FloatDType::F32));
        let mixed = |moment: TpuTensor, beta: f32, new: Tensor<Tpu<F, I>, D>| {
            tensor::<F, I, D>(moment) * beta + new * (1.0 - beta)
        };
        let first = mixed(first, self.betas[0], gradient.clone());
        let second = mixed(second, self.betas[1], gradient.clone() * gradient);
        let [first_correction, second_correction] = numbers.corrections.clone().map(|number| number.reshape([1; D]));
        let rate: Tensor<Tpu<F, I>, D> = numbers.rate.clone().reshape([1; D]);
        let change = first.clone() / first_correction / ((second.clone() / second_correction).sqrt() + self.epsilon);
        let kept = if decay == 0.0 { master.clone() } else { master.clone() * (rate.clone() * -decay + 1.0) };
        let master = numbers.if_finite(kept - change * rate, master);
        for (new, old) in [first, second].into_iter().zip(old) {
            next.push(numbers.if_finite(new, old));
        }
        if narrow {
            next.push(master.clone());
        }
        master.cast(dtype)
    }
}

/// The numbers of a step that all parameters share.
pub(super) struct Numbers<F: TpuFloat, I: TpuInt> {
    rate: Tensor<Tpu<F, I>, 1>,
    /// What the moments are divided by, since they begin at zero.
    corrections: [Tensor<Tpu<F, I>, 1>; 2],
    /// What gradients are multiplied by.
    scale: Option<Tensor<Tpu<F, I>, 1>>,
    /// Whether all gradients are finite, `[1]`; `None` if that is not asked.
    finite: Option<Tensor<Tpu<F, I>, 1, Bool>>,
}

impl<F: TpuFloat, I: TpuInt> Numbers<F, I> {
    /// Scales gradients whose squares have this sum, `[1]`, to a norm of at most `norm`.
    pub(super) fn limit(&mut self, squares: Tensor<Tpu<F, I>, 1>, norm: f32) {
        self.scale = Some(((squares.sqrt() + 1e-6).recip() * norm).clamp_max(1.0));
    }

    /// Returns the new tensor, or the old one if a gradient is not finite.
    fn if_finite<const D: usize>(&self, new: Tensor<Tpu<F, I>, D>, old: Tensor<Tpu<F, I>, D>) -> Tensor<Tpu<F, I>, D> {
        match &self.finite {
            Some(finite) => old.mask_where(finite.clone().reshape([1; D]), new),
            None => new,
        }
    }

    fn scaled<const D: usize>(&self, gradient: Tensor<Tpu<F, I>, D>) -> Tensor<Tpu<F, I>, D> {
        match &self.scale {
            Some(scale) => gradient * scale.clone().reshape([1; D]),
            None => gradient,
        }
    }
}

fn is_narrow<F: TpuFloat, I: TpuInt, const D: usize>(tensor: &Tensor<Tpu<F, I>, D>) -> bool {
    tensor.dtype().size() < 4
}

impl std::fmt::Debug for DeviceAdamW {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("DeviceAdamW");
        shown.field("betas", &self.betas).field("epsilon", &self.epsilon).field("weight_decay", &self.weight_decay);
        shown.field("gradient_norm", &self.gradient_norm);
        shown.field("loss_scaling", &self.loss_scaling).finish_non_exhaustive()
    }
}
