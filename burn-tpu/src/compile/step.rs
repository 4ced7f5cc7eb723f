//! Compiled training steps: [`compile_step`].
//!
//! Owns: how a model and its optimizer's state become the argument and the result of one compiled function. May not know:
//! how that function is recorded and run.

use super::adamw::{DeviceAdamW, Numbers};
use super::packs::{Layout, Pack, Place};
use super::tensors::{TensorList, tensor};
use super::{Compiled, compile};
use crate::backend::{TpuFloat, TpuInt};
use crate::layers::ModulePath;
use crate::{LossScaling, Result, Tpu, TpuDevice, TpuTensor};
use burn_core::module::{AutodiffModule, Module, ModuleMapper, ModuleVisitor, Param};
use burn_core::tensor::backend::{AutodiffBackend, Backend};
use burn_core::tensor::{Bool, DType, FloatDType, Tensor, TensorData};
use burn_optim::{GradientsParams, LearningRate};
use burn_tpu_runtime::Platform;
use std::sync::Arc;

/// The state of a step, its rate `[1]` and its batch.
type Argument<B, D> = (State, Tensor<B, 1>, D);

/// The parameters of the model, as its layout says, then the optimizer's state: the powers of its betas, the loss scale and
/// its count if there is one, and what it keeps of each tensor of parameters.
type State = (TensorList, TensorList);

/// A training step that is recorded once. See [`compile_step`].
pub struct CompiledStep<B: AutodiffBackend, M, D, R> {
    step: Compiled<Argument<B::InnerBackend, D>, (State, R)>,
    model: M,
    pub(super) state: State,
    /// The latest rate. Its tensor is held, so that steps with the same rate transfer it once. Not on a mesh, where a
    /// value that is there already has another signature than one from the host: the second step would be recorded
    /// anew.
    rate: Option<(f32, Tensor<B::InnerBackend, 1>)>,
    pub(super) layout: Arc<Layout>,
    device: TpuDevice,
}

/// Compiles a whole training step: forward, backward and update are recorded once for each set of shapes and dtypes, and
/// from then on a step is one dispatch, with no recording.
///
/// `step` takes the model and a batch, and returns the loss, whose gradients update the parameters, and what
/// [`CompiledStep::run`] returns: the loss, logits, whatever the loop reads. The batch and that result are anything that
/// [`compile`] takes, on the backend without autodiff. The rate and the optimizer's counter are tensors, so no number can
/// be missed from step to step. Running statistics, as of `BatchNorm`, are state too.
///
/// ```
/// use burn_autodiff::Autodiff;
/// use burn_core::tensor::{Distribution, Tensor};
/// use burn_tpu::{DeviceAdamW, Tpu, TpuDevice, TpuError, compile_step};
/// # use burn::nn::{Linear, LinearConfig};
///
/// # fn main() -> Result<(), TpuError> {
/// type B = Autodiff<Tpu<f32>>;
/// let device = TpuDevice::ndarray();
/// let model = LinearConfig::new(4, 1).init::<B>(&device);
/// let mut training = compile_step(model, DeviceAdamW::new(), |model: &Linear<B>, x: Tensor<Tpu<f32>, 2>| {
///     let x = Tensor::<B, 2>::from_inner(x);
///     let loss = (model.forward(x.clone()) - x.sum_dim(1)).powi_scalar(2).mean();
///     (loss.clone(), loss.inner())
/// });
/// let x = Tensor::random([32, 4], Distribution::Default, &device);
/// for _ in 0..3 {
///     let _loss = training.run(1e-2, x.clone())?;
/// }
/// let trained: Linear<B> = training.into_model();
/// # Ok(())
/// # }
/// ```
pub fn compile_step<B, F, I, M, D, R>(
    model: M,
    optimizer: DeviceAdamW,
    step: impl Fn(&M, D) -> (Tensor<B, 1>, R) + Send + 'static,
) -> CompiledStep<B, M, D, R>
where
    B: AutodiffBackend<Device = TpuDevice, InnerBackend = Tpu<F, I>>,
    F: TpuFloat,
    I: TpuInt,
    M: AutodiffModule<B> + 'static,
    D: Module<Tpu<F, I>> + 'static,
    R: Module<Tpu<F, I>> + 'static,
{
    let device = model.devices().first().copied().unwrap_or_default();
    let model = apart(&model);
    // On a mesh, each parameter keeps its own sharding.
    let mut first = First::new(&optimizer, device.platform() != Platform::Mesh);
    let one = || Tensor::<Tpu<F, I>, 1>::ones([1], (&device, DType::F32));
    first.state.push(one());
    first.state.push(one());
    let scaling = optimizer.loss_scaling();
    if let Some(scaling) = scaling {
        scaling.start::<F, I>(&device).into_iter().for_each(|number| first.state.push(number));
    }
    model.visit(&mut first);
    let (mut layout, state) = first.finish::<F, I>();
    layout.has_loss_scale = scaling.is_some();
    let layout = Arc::new(layout);
    let (template, at) = (model.clone(), Arc::clone(&layout));
    let function = move |((parameters, state), rate, batch): Argument<Tpu<F, I>, D>| {
        let packs = at.packs_of(&parameters).to_vec();
        let model = apart(&template).map(&mut SetParameters(at.unpack::<F, I>(&parameters).into_iter()));
        drop(parameters);
        let (loss, result) = step(&model, batch);
        let mut state = state.0.into_iter();
        let mut next = (TensorList::default(), TensorList::default());
        let Some(powers) = state.next().zip(state.next()) else { return (next, result) };
        let scale = scaling.and_then(|scaling| Some((scaling, [state.next()?, state.next()?])));
        let (gradients, finite, scale) = gradients_of::<B, F, I, M>(&model, loss, scale);
        let mut numbers = optimizer.begin(powers.into(), rate, finite, &mut next.1);
        scale.into_iter().flatten().for_each(|number| next.1.push(number));
        if let Some(norm) = optimizer.gradient_norm() {
            let mut squares = SumSquares { gradients: &gradients, sum: None };
            model.visit(&mut squares);
            squares.sum.into_iter().for_each(|sum| numbers.limit(sum, norm));
        }
        // Its running statistics are those after this step.
        let model = model.valid();
        let (places, packed) = (at.places.iter(), vec![Vec::new(); at.packs.len()]);
        let mut update = Update { optimizer: &optimizer, numbers, gradients, places, packed, state, next: &mut next };
        model.visit(&mut update);
        update.finish(&at.packs, packs);
        (next, result)
    };
    CompiledStep { step: compile(function), model, state, rate: None, layout, device }
}

impl<B, F, I, M, D, R> CompiledStep<B, M, D, R>
where
    B: AutodiffBackend<Device = TpuDevice, InnerBackend = Tpu<F, I>>,
    F: TpuFloat,
    I: TpuInt,
    M: AutodiffModule<B>,
    D: Module<Tpu<F, I>>,
    R: Module<Tpu<F, I>>,
{
    /// Runs a step on a batch. It is dispatched and not waited for.
    ///
    /// # Errors
    /// Those of [`Compiled::call`]. If the step did not begin, the model is as it was.
    pub fn run(&mut self, rate: LearningRate, batch: D) -> Result<R> {
        let rate = self.rate(rate as f32);
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
    fn rate(&mut self, rate: f32) -> Tensor<Tpu<F, I>, 1> {
        let tensor = || Tensor::from_data(TensorData::new(vec![rate], [1]), (&self.device, DType::F32));
        if self.device.platform() == Platform::Mesh {
            return tensor();
        }
        let latest = self.rate.take().filter(|(latest, _)| latest.to_bits() == rate.to_bits());
        let latest = latest.unwrap_or_else(|| (rate, tensor()));
        self.rate.insert(latest).1.clone()
    }

    /// Returns the model as it is after the steps so far. While it is held, the next step cannot reuse the memory of its
    /// parameters.
    pub fn model(&self) -> M {
        apart(&self.model).map(&mut SetParameters(self.layout.unpack::<F, I>(&self.state.0).into_iter()))
    }

    /// Returns the model, and ends the training.
    pub fn into_model(self) -> M {
        let Self { model, state, layout, .. } = self;
        model.map(&mut SetParameters(layout.unpack::<F, I>(&state.0).into_iter()))
    }
}

impl<B: AutodiffBackend, M, D, R> std::fmt::Debug for CompiledStep<B, M, D, R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CompiledStep({} parameters on {})", self.state.0.0.len(), self.device)
    }
}

/// Returns the gradients of a loss. With a loss scale (the scale and its count, `[1]` each), the gradients are those of the
/// scaled loss divided by the scale, and there are also whether they are finite and the next scale and count.
#[allow(clippy::type_complexity, reason = "three results, of which each is simple")]
fn gradients_of<B, F, I, M>(
    model: &M,
    loss: Tensor<B, 1>,
    scaling: Option<(LossScaling, [TpuTensor; 2])>,
) -> (GradientsParams, Option<Tensor<Tpu<F, I>, 1, Bool>>, Option<[Tensor<Tpu<F, I>, 1>; 2]>)
where
    B: AutodiffBackend<Device = TpuDevice, InnerBackend = Tpu<F, I>>,
    F: TpuFloat,
    I: TpuInt,
    M: AutodiffModule<B>,
{
    let Some((scaling, numbers)) = scaling else {
        return (GradientsParams::from_grads(loss.backward(), model), None, None);
    };
    let numbers = numbers.map(tensor::<F, I, 1>);
    let loss = loss.cast(FloatDType::F32) * Tensor::from_inner(numbers[0].clone());
    let gradients = GradientsParams::from_grads(loss.backward(), model);
    let (gradients, finite, next) = scaling.unscaled::<B, F, I>(model, gradients, numbers);
    (gradients, Some(finite), Some(next))
}

/// Returns a clone that shares no running statistics, in which those are up to date.
fn apart<B: AutodiffBackend, M: AutodiffModule<B>>(model: &M) -> M {
    M::from_inner(model.valid())
}

/// Collects the parameters before the first step, and makes the optimizer's state of those that are trained.
struct First<'o> {
    optimizer: &'o DeviceAdamW,
    /// Whether small parameters share tensors.
    packs: bool,
    path: ModulePath,
    layout: Layout,
    /// The members of each pack.
    packed: Vec<Vec<TpuTensor>>,
    parameters: TensorList,
    state: TensorList,
}

impl<'o> First<'o> {
    fn new(optimizer: &'o DeviceAdamW, packs: bool) -> Self {
        let (parameters, state) = Default::default();
        let (layout, packed) = Default::default();
        Self { optimizer, packs, path: ModulePath::default(), layout, packed, parameters, state }
    }

    /// Returns the layout and the state before the first step.
    fn finish<F: TpuFloat, I: TpuInt>(mut self) -> (Layout, State) {
        for (pack, members) in self.layout.packs.iter().zip(self.packed) {
            let values = pack.pack::<F, I>(members);
            self.optimizer.init(&mut self.state, values.clone());
            self.parameters.push(values);
        }
        (self.layout, (self.parameters, self.state))
    }
}

impl<F, I, B> ModuleVisitor<B> for First<'_>
where
    F: TpuFloat,
    I: TpuInt,
    B: AutodiffBackend<InnerBackend = Tpu<F, I>>,
{
    fn enter_module(&mut self, name: &str, container: &str) {
        self.path.enter(name, container);
    }

    fn exit_module(&mut self, _name: &str, container: &str) {
        self.path.exit(container);
    }

    fn visit_float<const D: usize>(&mut self, parameter: &Param<Tensor<B, D>>) {
        let value = parameter.val();
        let is_trained = value.is_require_grad();
        let value = value.inner();
        let path = self.path.joined();
        let decay = is_trained.then(|| self.optimizer.decay_of(&path, self.path.split(&value.dims()).1));
        let pack = |decay| self.layout.try_pack(&path, &value.dims(), value.dtype(), decay);
        if let Some(pack) = decay.filter(|_| self.packs).and_then(pack) {
            self.packed.resize_with(self.layout.packs.len(), Vec::new);
            self.packed[pack].push(value.into_primitive().tensor());
            return;
        }
        self.layout.places.push(Place::Own { path, decay });
        if is_trained {
            self.optimizer.init(&mut self.state, value.clone());
        }
        self.parameters.push(value);
    }
}

/// Gives a model the parameters of a list.
struct SetParameters<P>(P);

impl<F, I, B, P> ModuleMapper<B> for SetParameters<P>
where
    F: TpuFloat,
    I: TpuInt,
    B: AutodiffBackend<InnerBackend = Tpu<F, I>>,
    P: Iterator<Item = TpuTensor>,
{
    fn map_float<const D: usize>(&mut self, parameter: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let (id, old, mapper) = parameter.consume();
        let is_trained = old.is_require_grad();
        let value = self.0.next().map_or(old, |value| Tensor::from_inner(tensor(value)));
        Param::from_mapped_value(id, value.set_require_grad(is_trained), mapper)
    }
}

/// Sums the squares of all gradients.
struct SumSquares<'g, F: TpuFloat, I: TpuInt> {
    gradients: &'g GradientsParams,
    sum: Option<Tensor<Tpu<F, I>, 1>>,
}

impl<F: TpuFloat, I: TpuInt, B: Backend> ModuleVisitor<B> for SumSquares<'_, F, I> {
    fn visit_float<const D: usize>(&mut self, parameter: &Param<Tensor<B, D>>) {
        if let Some(gradient) = self.gradients.get::<Tpu<F, I>, D>(parameter.id) {
            let gradient = gradient.cast(FloatDType::F32);
            let squares = (gradient.clone() * gradient).sum();
            self.sum = Some(match self.sum.take() {
                Some(sum) => sum + squares,
                None => squares,
            });
        }
    }
}

/// Updates the parameters that are trained, and collects all of them: first those with tensors of their own, then the packs.
struct Update<'s, F: TpuFloat, I: TpuInt, S, P> {
    optimizer: &'s DeviceAdamW,
    numbers: Numbers<F, I>,
    gradients: GradientsParams,
    places: P,
    /// The gradients of the members of each pack.
    packed: Vec<Vec<Option<TpuTensor>>>,
    state: S,
    next: &'s mut State,
}

impl<'l, F, I, S, P> ModuleVisitor<Tpu<F, I>> for Update<'_, F, I, S, P>
where
    F: TpuFloat,
    I: TpuInt,
    S: Iterator<Item = TpuTensor>,
    P: Iterator<Item = &'l Place>,
{
    fn visit_float<const D: usize>(&mut self, parameter: &Param<Tensor<Tpu<F, I>, D>>) {
        let gradient = self.gradients.remove::<Tpu<F, I>, D>(parameter.id);
        let decay = match self.places.next() {
            Some(Place::Packed(pack)) => {
                self.packed[*pack].push(gradient.map(|gradient| gradient.into_primitive().tensor()));
                return;
            }
            Some(Place::Own { decay, .. }) => *decay,
            None => None,
        };
        let mut value = parameter.val();
        if let Some(decay) = decay {
            let Self { optimizer, numbers, state, next, .. } = self;
            value = optimizer.update(value, gradient, decay, numbers, state, &mut next.1);
        }
        self.next.0.push(value);
    }
}

impl<F: TpuFloat, I: TpuInt, S: Iterator<Item = TpuTensor>, P> Update<'_, F, I, S, P> {
    /// Updates the packs, whose values these are.
    fn finish(self, packs: &[Pack], values: Vec<TpuTensor>) {
        let Self { optimizer, numbers, packed, mut state, next, .. } = self;
        for ((pack, gradients), value) in packs.iter().zip(packed).zip(values) {
            let value = tensor::<F, I, 1>(value);
            let old: Vec<TpuTensor> = state.by_ref().take(optimizer.state_of(&value)).collect();
            let gradient = pack.gradients(&gradients);
            let (mut old_state, mut new) = (old.iter().cloned(), TensorList::default());
            let updated = optimizer.update(value.clone(), gradient, pack.decay, &numbers, &mut old_state, &mut new);
            // A member without a gradient stays as it is, as do its moments.
            let changed = |old: &TpuTensor, new| pack.changed::<F, I>(old, new, &gradients);
            next.1.0.extend(old.iter().zip(new.0).map(|(old, new)| changed(old, new)));
            next.0.0.push(changed(&value.into_primitive().tensor(), updated.into_primitive().tensor()));
        }
    }
}
