//! AdamW as a pure function: its counter and its rate are tensors, so that a compiled step has no number that changes.

use super::LossScaling;
use super::arithmetic::{add, at_most, broadcast, chosen, div, mul, neg, plus, sqrt, sub, times};
use super::tensors::TensorList;
use crate::Tensor;
use crate::ops::arithmetic::{cast, recip};
use burn_tpu_graph::DType;
use std::sync::Arc;

/// Decides by a parameter's path and dims.
type Decides = Arc<dyn Fn(&str, &[usize]) -> bool + Send + Sync>;

/// AdamW ([Loshchilov and Hutter, 2019](https://arxiv.org/abs/1711.05101)) whose state is on the device, for a compiled
/// step. It computes what Burn's `AdamW` does, with the same defaults; without weight decay that is Adam. 16-bit
/// parameters have f32 master copies and f32 state, as with `TpuOptimizer`.
///
/// ```
/// use burn_tpu_runtime::step::DeviceAdamW;
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
    microbatches: usize,
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
            microbatches: 1,
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

    /// Multiplies the loss by a scale before its gradients are taken, and skips the steps whose gradients are not
    /// finite: for gradients in f16. What a step returns is not scaled. The counters of the optimizer do not count a
    /// skipped step.
    pub fn with_loss_scaling(self, scaling: LossScaling) -> Self {
        Self { loss_scaling: Some(scaling), ..self }
    }

    /// Computes the gradients in `count` parts of each batch, one after another in one loop, and updates with their mean: a
    /// step needs the memory of one part's activations, and its program has the size of one part's. Part `i` has the rows
    /// `i`, `i + count`, `i + 2 * count` and so on of each tensor of the batch, `[rows, ..]`, so that on a mesh each device
    /// goes on with its own rows.
    ///
    /// If the loss is a mean over rows, and rows do not depend on each other, the gradients are those of the whole batch.
    /// What the step returns is of all parts: of floats the mean, of other tensors the last part's. Random numbers and
    /// running statistics are those of the parts one by one.
    pub fn with_microbatches(self, count: usize) -> Self {
        Self { microbatches: count, ..self }
    }

    pub(super) fn microbatches(&self) -> usize {
        self.microbatches
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
    pub(super) fn init(&self, state: &mut TensorList, parameter: &Tensor) {
        let wide = cast(parameter.clone(), DType::F32);
        // Made of the parameter, so that they are split over a mesh as it is.
        let zeros = || times(wide.clone(), 0.0);
        state.0.extend([zeros(), zeros()]);
        if is_narrow(parameter) {
            state.0.push(wide);
        }
    }

    /// Returns the number of tensors in the state of a parameter.
    pub(super) fn state_of(&self, parameter: &Tensor) -> usize {
        if is_narrow(parameter) { 3 } else { 2 }
    }

    /// Returns the numbers that all parameters of a step share, from the betas' powers and the rate, `[1]` each, in
    /// f32; the new powers are added to `state`. Where `finite` is false, all state stays as it is.
    pub(super) fn begin(
        &self,
        powers: [Tensor; 2],
        rate: Tensor,
        finite: Option<Tensor>,
        state: &mut TensorList,
    ) -> Numbers {
        let [first, second] = [0, 1].map(|i| times(powers[i].clone(), self.betas[i]));
        let corrections = [&first, &second].map(|power| plus(neg(power.clone()), 1.0));
        let numbers = Numbers { rate, corrections, scale: None, finite };
        for (new, old) in [first, second].into_iter().zip(powers) {
            state.0.push(numbers.if_finite(new, old));
        }
        numbers
    }

    /// Returns the updated parameter; the new state is added to `next`. Without a gradient, both stay as they are.
    pub(super) fn update(
        &self,
        parameter: Tensor,
        gradient: Option<Tensor>,
        decay: f32,
        numbers: &Numbers,
        state: &mut impl Iterator<Item = Tensor>,
        next: &mut TensorList,
    ) -> Tensor {
        let (dtype, rank, narrow) = (parameter.element(), parameter.dims().len(), is_narrow(&parameter));
        let Some(gradient) = gradient else {
            next.0.extend(state.take(self.state_of(&parameter)));
            return parameter;
        };
        let Some((first, second)) = state.next().zip(state.next()) else { return parameter };
        let old = [first.clone(), second.clone()];
        let master = if narrow { state.next().unwrap_or_else(|| parameter.clone()) } else { parameter };
        let gradient = numbers.scaled(cast(gradient, DType::F32));
        let mixed = |moment, beta, new| add(times(moment, beta), times(new, 1.0 - beta));
        let first = mixed(first, self.betas[0], gradient.clone());
        let second = mixed(second, self.betas[1], mul(gradient.clone(), gradient));
        let [first_correction, second_correction] = [0, 1].map(|i| broadcast(&numbers.corrections[i], rank));
        let rate = broadcast(&numbers.rate, rank);
        let root = sqrt(div(second.clone(), second_correction));
        let change = div(div(first.clone(), first_correction), plus(root, self.epsilon));
        let kept = match decay {
            0.0 => master.clone(),
            decay => mul(master.clone(), plus(times(rate.clone(), -decay), 1.0)),
        };
        let master = numbers.if_finite(sub(kept, mul(change, rate)), master);
        for (new, old) in [first, second].into_iter().zip(old) {
            next.0.push(numbers.if_finite(new, old));
        }
        if narrow {
            next.0.push(master.clone());
        }
        cast(master, dtype)
    }
}

/// The numbers of a step that all parameters share.
pub(super) struct Numbers {
    rate: Tensor,
    /// What the moments are divided by, since they begin at zero.
    corrections: [Tensor; 2],
    /// What gradients are multiplied by.
    scale: Option<Tensor>,
    /// Whether all gradients are finite, `[1]`; `None` if that is not asked.
    finite: Option<Tensor>,
}

impl Numbers {
    /// Scales gradients whose squares have this sum, `[1]`, to a norm of at most `norm`.
    pub(super) fn limit(&mut self, squares: Tensor, norm: f32) {
        self.scale = Some(at_most(times(recip(plus(sqrt(squares), 1e-6)), norm), 1.0));
    }

    /// Returns the new tensor, or the old one if a gradient is not finite.
    fn if_finite(&self, new: Tensor, old: Tensor) -> Tensor {
        match &self.finite {
            Some(finite) => chosen(finite, new, old),
            None => new,
        }
    }

    fn scaled(&self, gradient: Tensor) -> Tensor {
        match &self.scale {
            Some(scale) => {
                let scale = broadcast(scale, gradient.dims().len());
                mul(gradient, scale)
            }
            None => gradient,
        }
    }
}

fn is_narrow(tensor: &Tensor) -> bool {
    tensor.element().size_bytes() < 4
}

impl std::fmt::Debug for DeviceAdamW {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("DeviceAdamW");
        shown.field("betas", &self.betas).field("epsilon", &self.epsilon).field("weight_decay", &self.weight_decay);
        shown.field("gradient_norm", &self.gradient_norm);
        shown.field("loss_scaling", &self.loss_scaling).finish_non_exhaustive()
    }
}
