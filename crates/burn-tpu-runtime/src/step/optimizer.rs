//! Optimizers as pure functions: their counters and rates are tensors, so that a compiled step has no number that
//! changes.
//!
//! Owns: what all rules have in common: masters, weight decay, the norm of the gradients, steps that are skipped. May
//! not know: the rules' formulas.

use super::LossScaling;
use super::arithmetic::{at_most, broadcast, chosen, exp, log, mul, neg, plus, sqrt, sub, times};
use super::rules::{Rule, Settings};
use super::tensors::TensorList;
use crate::layers::{Keep, LayerInputs, LayerLoop, LayerResults};
use crate::ops::arithmetic::{cast, recip};
use crate::ops::data;
use crate::ops::movement::{move_to, reshape};
use crate::{Device, Platform, Tensor};
use burn_tpu_graph::DType;
use burn_tpu_graph::op::MemorySpace;
use std::sync::Arc;

/// Decides by a parameter's path and dims.
type Decides = Arc<dyn Fn(&str, &[usize]) -> bool + Send + Sync>;

/// An optimizer whose state is on the device, for a compiled step. [`DeviceOptimizer::new`] is AdamW ([Loshchilov and
/// Hutter, 2019](https://arxiv.org/abs/1711.05101)), and computes what Burn's does, with the same defaults; without
/// weight decay that is Adam. 16-bit parameters have f32 master copies and f32 state, as with `TpuOptimizer`.
///
/// ```
/// use burn_tpu_runtime::step::DeviceOptimizer;
/// let optimizer = DeviceOptimizer::new()
///     .with_betas(0.9, 0.95)
///     .with_weight_decay(0.1)
///     .with_decay_of(|path, dims| dims.len() > 1 && !path.contains("embedding"))
///     .with_gradient_norm(1.0);
/// ```
///
/// | | state beside masters, bytes a parameter |
/// |---|---|
/// | [`new`](DeviceOptimizer::new), AdamW | 8 |
/// | [`eight_bits`](DeviceOptimizer::eight_bits), AdamW | 2, of tensors with at most 4,096 elements 8 |
/// | [`lion`](DeviceOptimizer::lion) | 4 |
/// | [`muon`](DeviceOptimizer::muon) | 4, of what AdamW updates 8 |
/// | [`adafactor`](DeviceOptimizer::adafactor) | of an `[m, n]` matrix `4 (m + n)` together, of others 4 |
#[derive(Clone)]
pub struct DeviceOptimizer {
    kind: Kind,
    settings: Settings,
    weight_decay: f32,
    decays: Option<Decides>,
    gradient_norm: Option<f32>,
    loss_scaling: Option<LossScaling>,
    microbatches: usize,
    memory: MemorySpace,
}

/// AdamW, as which a [`DeviceOptimizer`] begins.
pub type DeviceAdamW = DeviceOptimizer;

/// Which rule is a parameter's.
#[derive(Clone)]
enum Kind {
    All(Rule),
    /// Large ones have state of 8 bits.
    EightBits,
    /// The parameters for which this holds are Muon's, others AdamW's.
    Muon(Decides),
}

/// How a parameter is updated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Treatment {
    pub(super) rule: Rule,
    pub(super) decay: f32,
    /// How many of the first dims are stacked layers.
    pub(super) layers: usize,
}

/// At most this many elements have moments of 32 bits, as in the paper's own implementation.
const MOST_32_BITS: usize = 4096;

impl Default for DeviceOptimizer {
    fn default() -> Self {
        Self {
            kind: Kind::All(Rule::AdamW),
            settings: Settings { betas: [0.9, 0.999], epsilon: 1e-5, momentum: 0.95 },
            weight_decay: 1e-4,
            decays: None,
            gradient_norm: None,
            loss_scaling: None,
            microbatches: 1,
            memory: MemorySpace::Device,
        }
    }
}

impl DeviceOptimizer {
    /// Returns the optimizer with the defaults of Burn's `AdamWConfig`: betas 0.9 and 0.999, epsilon 1e-5, weight decay
    /// 1e-4.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns AdamW whose moments have 8 bits, in blocks of 2,048 elements with a scale each ([Dettmers et al.,
    /// 2022](https://arxiv.org/abs/2110.02861)).
    pub fn eight_bits() -> Self {
        Self { kind: Kind::EightBits, ..Self::default() }
    }

    /// Returns Lion ([Chen et al., 2023](https://arxiv.org/abs/2302.06675)), betas 0.9 and 0.99: each parameter moves
    /// by the rate. Its rates are 3 to 10 times below AdamW's, its weight decay as many times above.
    pub fn lion() -> Self {
        let settings = Settings { betas: [0.9, 0.99], ..Self::default().settings };
        Self { kind: Kind::All(Rule::Lion), settings, ..Self::default() }
    }

    /// Returns Adafactor ([Shazeer and Stern, 2018](https://arxiv.org/abs/1804.04235)) without momentum: a matrix keeps
    /// the means of its rows and columns alone. The rate is relative to the root mean square of a parameter, as in the
    /// paper, whose schedule is the least of 0.01 and `1 / sqrt(step)`.
    pub fn adafactor() -> Self {
        Self { kind: Kind::All(Rule::Adafactor), weight_decay: 0.0, ..Self::default() }
    }

    /// Returns Muon ([Jordan et al., 2024](https://kellerjordan.github.io/posts/muon/)), momentum 0.95, for the
    /// matrices for which `is_hidden` holds, by path and dims: those between the layers, not tables of tokens or heads.
    /// AdamW updates the others. Steps have the size of AdamW's ([Liu et al., 2025](https://arxiv.org/abs/2502.16982)),
    /// so they share a rate.
    pub fn muon(is_hidden: impl Fn(&str, &[usize]) -> bool + Send + Sync + 'static) -> Self {
        Self { kind: Kind::Muon(Arc::new(is_hidden)), ..Self::default() }
    }

    /// Sets the decay of the first and of the second moment; of Lion, that of the moment in a step and afterwards.
    pub fn with_betas(mut self, first: f32, second: f32) -> Self {
        self.settings.betas = [first, second];
        self
    }

    /// Sets the number that keeps AdamW's divisor from zero.
    pub fn with_epsilon(mut self, epsilon: f32) -> Self {
        self.settings.epsilon = epsilon;
        self
    }

    /// Sets Muon's momentum.
    pub fn with_momentum(mut self, momentum: f32) -> Self {
        self.settings.momentum = momentum;
        self
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

    /// Computes the gradients in `count` parts of each batch, one after another in one loop, and updates with their
    /// mean: a step needs the memory of one part's activations, and its program has the size of one part's. Part `i`
    /// has the rows `i`, `i + count`, `i + 2 * count` and so on of each tensor of the batch, `[rows, ..]`, so that on a
    /// mesh each device goes on with its own rows.
    ///
    /// If the loss is a mean over rows, and rows do not depend on each other, the gradients are those of the whole
    /// batch. What the step returns is of all parts: of floats the mean, of other tensors the last part's. Random
    /// numbers and running statistics are those of the parts one by one.
    pub fn with_microbatches(self, count: usize) -> Self {
        Self { microbatches: count, ..self }
    }

    /// Keeps the state of each parameter in the host's memory, master copies too: between steps it takes none of the
    /// device's. A step copies it to the device and back, which takes longer than the update: a TPU reads the host's
    /// memory a hundred times slower than its own. Where the device has no other memory than the host's, nothing changes.
    pub fn with_state_on_host(self) -> Self {
        Self { memory: MemorySpace::PinnedHost, ..self }
    }

    pub(super) fn has_state_on_host(&self) -> bool {
        self.memory == MemorySpace::PinnedHost
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

    /// Returns how a parameter is updated.
    pub(super) fn treatment(&self, path: &str, dims: &[usize], layers: usize) -> Treatment {
        let of_layer = &dims[layers..];
        let decays = self.decays.as_ref().is_none_or(|decays| decays(path, of_layer));
        let rule = match &self.kind {
            Kind::All(rule) => *rule,
            Kind::EightBits if dims.iter().product::<usize>() > MOST_32_BITS => Rule::AdamW8Bits,
            Kind::Muon(is_hidden) if of_layer.len() == 2 && is_hidden(path, of_layer) => Rule::Muon,
            Kind::EightBits | Kind::Muon(_) => Rule::AdamW,
        };
        Treatment { rule, decay: if decays { self.weight_decay } else { 0.0 }, layers }
    }

    /// Returns the names of the numbers that the parameters share, `[1]` each, and what they begin with.
    pub(super) fn shared(&self) -> &'static [(&'static str, f32)] {
        match &self.kind {
            Kind::All(Rule::Lion) => &[],
            Kind::All(Rule::Adafactor) => &[("steps", 0.0)],
            _ => &[("beta_1_power", 1.0), ("beta_2_power", 1.0)],
        }
    }

    /// Returns the shared numbers before the first step.
    pub(super) fn start(&self, device: &Device) -> Vec<Tensor> {
        let number = |(_, start): &(&str, f32)| data::splat("optimizer", &[1], DType::F32, *start as i64, device);
        self.shared().iter().map(number).collect()
    }

    /// Returns the numbers that all parameters of a step share, from those before it and the rate, `[1]` each, in f32;
    /// the new ones are added to `state`. Where `finite` is false, all state stays as it is.
    pub(super) fn begin(
        &self,
        old: Vec<Tensor>,
        rate: Tensor,
        finite: Option<Tensor>,
        state: &mut TensorList,
    ) -> Numbers {
        let counts_steps = matches!(self.kind, Kind::All(Rule::Adafactor));
        let next = |(at, number): (usize, &Tensor)| match counts_steps {
            true => plus(number.clone(), 1.0),
            false => times(number.clone(), self.settings.betas[at]),
        };
        let shared: Vec<Tensor> = old.iter().enumerate().map(next).collect();
        // The moments begin at zero, and are divided by what they lack; of Adafactor's, the share that is new.
        let factor = |number: &Tensor| match counts_steps {
            true => exp(times(log(number.clone()), -0.8)),
            false => plus(neg(number.clone()), 1.0),
        };
        let numbers = Numbers { rate, factors: shared.iter().map(factor).collect(), scale: None, finite };
        for (new, old) in shared.into_iter().zip(old) {
            state.0.push(numbers.if_finite(new, old));
        }
        numbers
    }

    /// Returns an updated parameter and its new state.
    pub(super) fn update(
        &self,
        parameter: Tensor,
        gradient: Tensor,
        state: Vec<Tensor>,
        treatment: Treatment,
        numbers: &Numbers,
    ) -> (Tensor, Vec<Tensor>) {
        if self.memory == MemorySpace::Device {
            return self.update_on_device(parameter, gradient, state, treatment, numbers);
        }
        if let Some(updated) = self.update_in_parts(&parameter, &gradient, &state, treatment, numbers) {
            return updated;
        }
        let state = state.into_iter().map(|tensor| move_to(tensor, MemorySpace::Device)).collect();
        let (parameter, state) = self.update_on_device(parameter, gradient, state, treatment, numbers);
        (parameter, state.into_iter().map(|tensor| move_to(tensor, MemorySpace::PinnedHost)).collect())
    }

    /// Updates a parameter whose state is in the host's memory part by part, so that the state of one part is on the device
    /// at a time. `None` for what has no parts.
    fn update_in_parts(
        &self,
        parameter: &Tensor,
        gradient: &Tensor,
        state: &[Tensor],
        treatment: Treatment,
        numbers: &Numbers,
    ) -> Option<(Tensor, Vec<Tensor>)> {
        let dims = parts_of(parameter, state, treatment)?;
        let of_part = Treatment { layers: treatment.layers.saturating_sub(1), ..treatment };
        let tensors: Vec<&Tensor> = [gradient, parameter].into_iter().chain(state).collect();
        let in_parts = |tensor: &&Tensor| match treatment.layers {
            0 => reshape((*tensor).clone(), &dims),
            _ => (*tensor).clone(),
        };
        let stacked: Vec<Tensor> = tensors.iter().map(in_parts).collect();
        let (carries, on_host) = (vec![numbers.rate.clone()], (2..stacked.len()).collect::<Vec<_>>());
        let recorded = LayerLoop::record(dims[0], &carries, &stacked, &Keep::Nothing, |inputs| {
            let LayerInputs { carries, mut slices, .. } = inputs;
            let state = slices.split_off(2);
            let updated = slices
                .pop()
                .zip(slices.pop())
                .map(|(parameter, gradient)| self.update_on_device(parameter, gradient, state, of_part, numbers));
            let updated = updated.into_iter().flat_map(|(parameter, state)| std::iter::once(parameter).chain(state));
            let parts = std::iter::once(None).chain(updated.map(Some)).collect();
            LayerResults { carries, parts, ..LayerResults::default() }
        });
        match recorded.and_then(|mut layer| layer.replace(carries, stacked, &on_host)) {
            Ok((_, stacked)) => {
                let mut updated = stacked.into_iter().zip(tensors).skip(1).map(|(new, old)| reshape(new, old.dims()));
                Some((updated.next()?, updated.map(|tensor| move_to(tensor, MemorySpace::PinnedHost)).collect()))
            }
            Err(error) => {
                tracing::error!("the update of a parameter in parts: {error}");
                None
            }
        }
    }

    /// Returns an updated parameter and its new state, all of which are on the device.
    pub(super) fn update_on_device(
        &self,
        parameter: Tensor,
        gradient: Tensor,
        state: Vec<Tensor>,
        treatment: Treatment,
        numbers: &Numbers,
    ) -> (Tensor, Vec<Tensor>) {
        let (dtype, rank, narrow) = (parameter.element(), parameter.dims().len(), is_narrow(&parameter));
        let Treatment { rule, decay, layers } = treatment;
        let mut state = state.into_iter();
        let old: Vec<Tensor> = state.by_ref().take(rule.fields(parameter.dims(), layers).len()).collect();
        let master = if narrow { state.next().unwrap_or_else(|| parameter.clone()) } else { parameter };
        let gradient = numbers.scaled(cast(gradient, DType::F32));
        let (change, new) = rule.step(&self.settings, &master, layers, gradient, &old, numbers);
        let rate = broadcast(&numbers.rate, rank);
        let kept = match decay {
            0.0 => master.clone(),
            decay => mul(master.clone(), plus(times(rate.clone(), -decay), 1.0)),
        };
        let master = numbers.if_finite(sub(kept, mul(change, rate)), master);
        let new = new.into_iter().zip(old).map(|(new, old)| numbers.if_finite(new, old));
        let state = new.chain(narrow.then(|| master.clone())).collect();
        (cast(master, dtype), state)
    }
}

impl Treatment {
    /// Returns the names of what is kept of a parameter.
    pub(super) fn fields(&self, parameter: &Tensor) -> impl Iterator<Item = &'static str> + use<> {
        let master = is_narrow(parameter).then_some("master");
        self.rule.fields(parameter.dims(), self.layers).iter().copied().chain(master)
    }

    /// Returns the number of tensors that are kept of a parameter.
    pub(super) fn state_of(&self, parameter: &Tensor) -> usize {
        self.fields(parameter).count()
    }

    /// Adds the state of a parameter before the first step.
    pub(super) fn init(&self, state: &mut TensorList, parameter: &Tensor) {
        let wide = cast(parameter.clone(), DType::F32);
        state.0.extend(self.rule.start(&wide, self.layers));
        if is_narrow(parameter) {
            state.0.push(wide);
        }
    }
}

/// The numbers of a step that all parameters share.
pub(super) struct Numbers {
    rate: Tensor,
    /// What the rule makes of each of [`DeviceOptimizer::shared`] after this step, `[1]`.
    pub(super) factors: Vec<Tensor>,
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

/// Returns the dims of a parameter in the parts in which it is updated, `[parts, ..]`: stacked layers, or rows of a large
/// tensor. `None` for state that has no such parts, for a small tensor, for a rule that looks at whole matrices, and for rows on a
/// mesh, whose chips have a part each.
fn parts_of(parameter: &Tensor, state: &[Tensor], treatment: Treatment) -> Option<Vec<usize>> {
    let [rows, row @ ..] = parameter.dims() else { return None };
    if treatment.layers > 0 {
        let is_stacked = |tensor: &Tensor| tensor.dims().first() == Some(rows);
        return state.iter().all(is_stacked).then(|| parameter.dims().to_vec());
    }
    let is_large = parameter.dims().iter().product::<usize>() >= LARGE;
    if !is_large || !treatment.rule.is_elementwise() || parameter.device().platform() == Platform::Mesh {
        return None;
    }
    let parts = (2..=16).rev().find(|parts| rows % (8 * parts) == 0)?;
    Some([parts, rows / parts].into_iter().chain(row.iter().copied()).collect())
}

/// The fewest elements of a tensor that is updated in parts; in tests, which the interpreter runs, fewer.
const LARGE: usize = if cfg!(test) { 1 << 14 } else { 1 << 22 };

fn is_narrow(tensor: &Tensor) -> bool {
    tensor.element().size_bytes() < 4
}

impl std::fmt::Debug for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::All(rule) => write!(f, "{rule:?}"),
            Self::EightBits => f.write_str("AdamW8Bits"),
            Self::Muon(_) => f.write_str("Muon"),
        }
    }
}

impl std::fmt::Debug for DeviceOptimizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("DeviceOptimizer");
        shown.field("kind", &self.kind).field("settings", &self.settings).field("weight_decay", &self.weight_decay);
        shown.field("gradient_norm", &self.gradient_norm);
        shown.field("loss_scaling", &self.loss_scaling).finish_non_exhaustive()
    }
}
