//! Compiled training steps: forward, backward and update as one function that is recorded once.
//!
//! Owns: how parameters and an optimizer's state become the argument and the result of one compiled function, the
//! update, and the names of the state. May not know: what a model and its autodiff are, which are the front end's. The
//! front end gives the parameters in the order of its visits, and a closure that computes their gradients.

mod arithmetic;
mod eight_bits;
mod loss_scaling;
mod microbatches;
mod named_state;
mod optimizer;
#[cfg(test)]
mod optimizer_tests;
mod packs;
mod rules;
mod tensors;

pub use loss_scaling::{LossScaling, Unscaled};
pub use optimizer::{DeviceAdamW, DeviceOptimizer};

use crate::layers::check_host_memory;
use crate::leaves::Leaves;
use crate::ops::arithmetic::{cast, mask_where};
use crate::ops::{data, movement, reduce};
use crate::{Compiled, Device, Platform, Result, Tensor};
use arithmetic::{add, mul};
use burn_tpu_graph::{DType, TensorType};
use microbatches::Microbatches;
use optimizer::Numbers;
use packs::{Layout, Pack, Place};
use std::fmt::Debug;
use std::sync::Arc;
use tensors::TensorList;

/// A parameter of a model before the first step.
pub struct Parameter {
    /// The names of the modules around it and its own, joined with `.`.
    pub path: String,
    /// How many of its first dims are stacked layers.
    pub layers: usize,
    /// Its value.
    pub value: Tensor,
    /// Whether the optimizer updates it. Running statistics are among those that it does not.
    pub is_trained: bool,
}

/// What a front end computes in a step.
pub struct Computed<R> {
    /// The gradient of each parameter, in the order of the parameters; of the scaled loss, if there is a scale.
    pub gradients: Vec<Option<Tensor>>,
    /// The parameters after the forward pass: running statistics have changed.
    pub parameters: Vec<Tensor>,
    /// What the step returns.
    pub result: R,
}

/// The state of a step, its rate `[1]` and its batch.
type Argument<D> = (State, TensorList, D);

/// The parameters of the model, as its layout says, then the optimizer's state: the numbers that all share, the loss
/// scale and its count if there is one, and what it keeps of each tensor of parameters.
type State = (TensorList, TensorList);

/// A training step that is recorded once: the core of a front end's `CompiledStep`.
pub struct TrainingStep<D, R> {
    step: Compiled<Argument<D>, (State, R)>,
    state: State,
    /// The latest rate. Its tensor is held, so that steps with the same rate transfer it once. Not on a mesh, where a
    /// value that is there already has another signature than one from the host: the second step would be recorded
    /// anew.
    rate: Option<(f32, Tensor)>,
    layout: Arc<Layout>,
    microbatches: Arc<Microbatches<D, R>>,
    /// Whether the optimizer's state is in the host's memory.
    has_state_on_host: bool,
    device: Device,
}

impl<D: Clone + Debug + 'static, R: Clone + Debug + 'static> TrainingStep<D, R> {
    /// Takes the parameters, and `compute`, a pure function of the parameters, a batch and the loss scale `[1]`, if
    /// there is one.
    pub fn new(
        device: Device,
        parameters: Vec<Parameter>,
        optimizer: DeviceOptimizer,
        batches: Leaves<D>,
        results: Leaves<R>,
        compute: impl Fn(Vec<Tensor>, D, Option<Tensor>) -> Computed<R> + Send + 'static,
    ) -> Self {
        let (batches, results) = (Arc::new(batches), Arc::new(results));
        let count = optimizer.microbatches();
        let microbatches = Arc::new(Microbatches::new(count, &parameters, Arc::clone(&batches), Arc::clone(&results)));
        let has_state_on_host = optimizer.has_state_on_host();
        let (layout, state) = begin(&optimizer, &device, parameters);
        let layout = Arc::new(layout);
        let (at, parts) = (Arc::clone(&layout), Arc::clone(&microbatches));
        let function = move |((parameters, state), rate, batch): Argument<D>| {
            let mut rate = rate.0;
            let update = Update { optimizer: &optimizer, layout: &at, packs: at.packs_of(&parameters).to_vec() };
            let parameters = at.unpack(&parameters);
            update.run(state, rate.pop(), |scale| {
                parts.compute(device, parameters, batch, |parameters, batch| compute(parameters, batch, scale.clone()))
            })
        };
        let step = Compiled::new(function, arguments(batches), states(results));
        Self { step, state, rate: None, layout, microbatches, has_state_on_host, device }
    }

    /// Runs a step on a batch. It is dispatched and not waited for.
    ///
    /// # Errors
    /// [`TpuError::Option`](crate::TpuError::Option) if the batch cannot be divided into the optimizer's microbatches;
    /// [`TpuError::HostMemory`](crate::TpuError::HostMemory) if the optimizer's state cannot be in the host's memory;
    /// those of [`Compiled::call`]. If the step did not begin, the parameters are as they were.
    pub fn run(&mut self, rate: f32, batch: D) -> Result<R> {
        self.microbatches.check(&batch)?;
        if self.has_state_on_host {
            check_host_memory(self.device)?;
        }
        let rate = TensorList(vec![self.rate(rate)]);
        let state = std::mem::take(&mut self.state);
        match self.step.call_or_return((state, rate, batch)) {
            Ok((state, result)) => {
                self.state = state;
                Ok(result)
            }
            Err((error, argument)) => {
                if let Some((state, ..)) = argument {
                    self.state = state;
                }
                Err(error)
            }
        }
    }

    /// Returns a rate as a tensor `[1]`.
    fn rate(&mut self, rate: f32) -> Tensor {
        if self.device.platform() == Platform::Mesh {
            return constant(rate, &self.device);
        }
        let latest = self.rate.take().filter(|(latest, _)| latest.to_bits() == rate.to_bits());
        let latest = latest.unwrap_or_else(|| (rate, constant(rate, &self.device)));
        self.rate.insert(latest).1.clone()
    }
}

impl<D, R> TrainingStep<D, R> {
    /// Returns the parameters after the steps so far, in the order in which they were given. While they are held, the
    /// next step cannot reuse their memory.
    pub fn parameters(&self) -> Vec<Tensor> {
        self.layout.unpack(&self.state.0)
    }

    /// Returns the parameters, and ends the training.
    pub fn into_parameters(self) -> Vec<Tensor> {
        self.layout.unpack(&self.state.0)
    }
}

impl<D, R> Debug for TrainingStep<D, R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CompiledStep({} parameters on {})", self.state.0.0.len(), self.device)
    }
}

/// Returns a number as a tensor `[1]` in f32.
fn constant(number: f32, device: &Device) -> Tensor {
    data::from_bytes("optimizer", TensorType::new(DType::F32, [1]), number.to_le_bytes().to_vec(), device)
}

/// Reaches the tensors of a step's argument.
fn arguments<D: Debug + 'static>(batches: Arc<Leaves<D>>) -> Leaves<Argument<D>> {
    let moved = Arc::clone(&batches);
    Leaves::new(
        move |((parameters, state), rate, batch): &Argument<D>| {
            [parameters, state, rate].into_iter().for_each(TensorList::visit);
            batches.visit_within(batch);
        },
        move |((parameters, state), rate, batch), device| {
            let state = (parameters.moved(device), state.moved(device));
            (state, rate.moved(device), moved.move_within(batch, device))
        },
    )
}

/// Reaches the tensors of a step's result.
fn states<R: Debug + 'static>(results: Arc<Leaves<R>>) -> Leaves<(State, R)> {
    let moved = Arc::clone(&results);
    Leaves::new(
        move |((parameters, state), result): &(State, R)| {
            [parameters, state].into_iter().for_each(TensorList::visit);
            results.visit_within(result);
        },
        move |((parameters, state), result), device| {
            ((parameters.moved(device), state.moved(device)), moved.move_within(result, device))
        },
    )
}

/// Returns where each parameter is, and the state before the first step.
fn begin(optimizer: &DeviceOptimizer, device: &Device, parameters: Vec<Parameter>) -> (Layout, State) {
    // On a mesh, each parameter keeps its own sharding.
    let packs = device.platform() != Platform::Mesh;
    let (mut layout, mut packed) = (Layout { shared: optimizer.shared(), ..Layout::default() }, Vec::new());
    let (mut own, mut state) = (TensorList::default(), TensorList(optimizer.start(device)));
    if let Some(scaling) = optimizer.loss_scaling() {
        state.0.extend(scaling.start(device));
        layout.has_loss_scale = true;
    }
    for Parameter { path, layers, value, is_trained } in parameters {
        let dims = value.dims();
        let treatment = is_trained.then(|| optimizer.treatment(&path, dims, layers));
        let pack = |treatment| layout.try_pack(&path, dims, value.element(), treatment);
        if let Some(pack) = treatment.filter(|_| packs).and_then(pack) {
            packed.resize_with(layout.packs.len(), Vec::new);
            packed[pack].push(value);
            continue;
        }
        layout.places.push(Place::Own { path, treatment });
        if let Some(treatment) = treatment {
            treatment.init(&mut state, &value);
        }
        own.0.push(value);
    }
    for (pack, members) in layout.packs.iter().zip(packed) {
        let values = pack.pack(members);
        pack.treatment.init(&mut state, &values);
        own.0.push(values);
    }
    (layout, (own, state))
}

/// The update of a step.
struct Update<'s> {
    optimizer: &'s DeviceOptimizer,
    layout: &'s Layout,
    /// The values of the packs.
    packs: Vec<Tensor>,
}

impl Update<'_> {
    /// Computes the gradients and the next state.
    fn run<R>(
        self,
        state: TensorList,
        rate: Option<Tensor>,
        compute: impl FnOnce(Option<Tensor>) -> Computed<R>,
    ) -> (State, R) {
        let mut state = state.0.into_iter();
        let mut next = State::default();
        let count = self.optimizer.shared().len();
        let shared: Vec<Tensor> = state.by_ref().take(count).collect();
        let scaling = self.optimizer.loss_scaling();
        let scaling = scaling.and_then(|scaling| Some((scaling, [state.next()?, state.next()?])));
        let computed = compute(scaling.as_ref().map(|(_, [scale, _])| scale.clone()));
        let Computed { gradients, parameters, result } = computed;
        // A state without its counters is none of this step's.
        let Some(rate) = rate.filter(|_| shared.len() == count) else { return (next, result) };
        let (gradients, finite, scale) = match scaling {
            Some((scaling, numbers)) => {
                let Unscaled { gradients, finite, next } = scaling.unscaled(gradients, numbers);
                (gradients, Some(finite), Some(next))
            }
            None => (gradients, None, None),
        };
        let mut numbers = self.optimizer.begin(shared, rate, finite, &mut next.1);
        next.1.0.extend(scale.into_iter().flatten());
        if let Some((norm, squares)) = self.optimizer.gradient_norm().zip(sum_of_squares(&gradients)) {
            numbers.limit(squares, norm);
        }
        self.parameters(parameters, gradients, &numbers, state, &mut next);
        (next, result)
    }

    /// Updates the parameters that are trained, and collects all: first those with tensors of their own, then the
    /// packs.
    fn parameters(
        self,
        parameters: Vec<Tensor>,
        gradients: Vec<Option<Tensor>>,
        numbers: &Numbers,
        mut state: impl Iterator<Item = Tensor>,
        next: &mut State,
    ) {
        let mut packed = vec![Vec::new(); self.layout.packs.len()];
        for ((place, mut value), gradient) in self.layout.places.iter().zip(parameters).zip(gradients) {
            match place {
                Place::Packed(pack) => packed[*pack].push(gradient),
                Place::Own { treatment, .. } => {
                    if let Some(treatment) = *treatment {
                        let mut old = state.by_ref().take(treatment.state_of(&value)).collect();
                        // Without a gradient, both stay as they are.
                        if let Some(gradient) = gradient {
                            (value, old) = self.optimizer.update(value, gradient, old, treatment, numbers);
                        }
                        next.1.0.extend(old);
                    }
                    next.0.0.push(value);
                }
            }
        }
        for ((pack, gradients), value) in self.layout.packs.iter().zip(packed).zip(&self.packs) {
            self.pack(pack, value, &gradients, numbers, &mut state, next);
        }
    }

    /// Updates a pack.
    fn pack(
        &self,
        pack: &Pack,
        value: &Tensor,
        gradients: &[Option<Tensor>],
        numbers: &Numbers,
        state: &mut impl Iterator<Item = Tensor>,
        next: &mut State,
    ) {
        let old: Vec<Tensor> = state.take(pack.treatment.state_of(value)).collect();
        let Some(gradient) = pack.gradients(gradients) else {
            next.1.0.extend(old);
            next.0.0.push(value.clone());
            return;
        };
        let treatment = pack.treatment;
        // It is small, and stays on the device.
        let (updated, new) = self.optimizer.update_on_device(value.clone(), gradient, old.clone(), treatment, numbers);
        // A member without a gradient stays as it is, as do its moments.
        next.1.0.extend(old.iter().zip(new).map(|(old, new)| pack.changed(old, new, gradients)));
        next.0.0.push(pack.changed(value, updated, gradients));
    }
}

/// Returns the sum of the squares of all gradients, `[1]`; `None` without any.
fn sum_of_squares(gradients: &[Option<Tensor>]) -> Option<Tensor> {
    let squares = gradients.iter().flatten().map(|gradient| {
        let gradient = cast(gradient.clone(), DType::F32);
        reduce::sum(mul(gradient.clone(), gradient))
    });
    squares.reduce(add)
}

/// Returns the new tensor where the condition (`[1]`, bool) holds, else the old one; zeros for an old one that does not
/// exist.
pub fn choose(condition: &Tensor, new: Tensor, old: Option<Tensor>) -> Tensor {
    let zeros = || data::splat("float_zeros", new.dims(), new.element(), 0, &new.device());
    let old = old.filter(|old| old.ty() == new.ty()).unwrap_or_else(zeros);
    let condition = movement::reshape(condition.clone(), &vec![1; new.dims().len()]);
    mask_where(old, condition, new)
}
