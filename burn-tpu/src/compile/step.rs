//! Compiled training steps: [`compile_step`].
//!
//! Owns: the parameters of a model and their gradients. May not know: what is done with them, which is the runtime's.

use super::leaves_of;
use crate::backend::{TpuFloat, TpuInt};
use crate::{Result, Tpu, TpuDevice, TpuTensor};
use burn_core::module::{AutodiffModule, Module, ModuleMapper, ModuleVisitor, Param};
use burn_core::tensor::backend::AutodiffBackend;
use burn_core::tensor::{FloatDType, Int, Tensor, TensorPrimitive};
use burn_optim::{GradientsParams, LearningRate};
use burn_tpu_runtime::Tensor as Value;
use burn_tpu_runtime::layers::ModulePath;
use burn_tpu_runtime::step::{Computed, DeviceOptimizer, Parameter, TrainingStep};
use std::marker::PhantomData;

/// A training step that is recorded once. See [`compile_step`].
pub struct CompiledStep<B: AutodiffBackend, M, D, R> {
    step: TrainingStep<D, R>,
    model: M,
    backend: PhantomData<B>,
}

/// Compiles a whole training step: forward, backward and update are recorded once for each set of shapes and dtypes, and
/// from then on a step is one dispatch, with no recording.
///
/// `step` takes the model and a batch, and returns the loss, whose gradients update the parameters, and what
/// [`CompiledStep::run`] returns: the loss, logits, whatever the loop reads. The batch and that result are anything that
/// [`compile`](fn@crate::compile) takes, on the backend without autodiff. The rate and the optimizer's counter are
/// tensors, so no number can be missed from step to step. Running statistics, as of `BatchNorm`, are state too.
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
    optimizer: DeviceOptimizer,
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
    let mut parameters = Parameters::default();
    model.visit(&mut parameters);
    let template = model.clone();
    let compute = move |parameters: Vec<Value>, batch: D, scale: Option<Value>| {
        let model = apart(&template).map(&mut SetParameters(parameters.into_iter()));
        let (loss, result) = step(&model, batch);
        let loss = match scale {
            Some(scale) => loss.cast(FloatDType::F32) * Tensor::from_inner(tensor(scale)),
            None => loss,
        };
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        // Its running statistics are those after this step.
        let model = model.valid();
        let mut after = After { gradients, computed: Computed { gradients: vec![], parameters: vec![], result } };
        model.visit(&mut after);
        after.computed
    };
    let (batches, results) = (leaves_of::<Tpu<F, I>, D>(), leaves_of::<Tpu<F, I>, R>());
    let step = TrainingStep::new(device.into(), parameters.found, optimizer, batches, results, compute);
    CompiledStep { step, model, backend: PhantomData }
}

impl<B, F, I, M, D, R> CompiledStep<B, M, D, R>
where
    B: AutodiffBackend<Device = TpuDevice, InnerBackend = Tpu<F, I>>,
    F: TpuFloat,
    I: TpuInt,
    M: AutodiffModule<B>,
    D: Module<Tpu<F, I>> + 'static,
    R: Module<Tpu<F, I>> + 'static,
{
    /// Runs a step on a batch. It is dispatched and not waited for.
    ///
    /// # Errors
    /// Those of [`Compiled::call`](crate::Compiled::call). If the step did not begin, the model is as it was.
    pub fn run(&mut self, rate: LearningRate, batch: D) -> Result<R> {
        self.step.run(rate as f32, batch)
    }

    /// Returns the model, and ends the training.
    pub fn into_model(self) -> M {
        let Self { step, model, .. } = self;
        let parameters = step.into_parameters();
        model.map(&mut SetParameters(parameters.into_iter()))
    }
}

impl<B, F, I, M, D, R> CompiledStep<B, M, D, R>
where
    B: AutodiffBackend<InnerBackend = Tpu<F, I>>,
    F: TpuFloat,
    I: TpuInt,
    M: AutodiffModule<B>,
{
    /// Returns the model as it is after the steps so far. While it is held, the next step cannot reuse the memory of its
    /// parameters.
    pub fn model(&self) -> M {
        apart(&self.model).map(&mut SetParameters(self.step.parameters().into_iter()))
    }

    /// Returns the optimizer's state by name: of AdamW `beta_1_power`, `beta_2_power`, with loss scaling `loss_scale`
    /// and `loss_scale_steps`, and of each parameter that is trained `<path>.moment_1`, `<path>.moment_2` and, if it has 16
    /// bits, `<path>.master`. While a tensor is held, the next step cannot reuse its memory.
    pub fn optimizer_state(&self) -> Vec<(String, TpuTensor)> {
        let state = self.step.optimizer_state().into_iter();
        state.map(|(name, tensor)| (name, TpuTensor(tensor))).collect()
    }

    /// Goes on from a model and an optimizer's state, by the names of [`CompiledStep::optimizer_state`]; state without
    /// a name here stays as it is. Shapes and dtypes are those of the step's own.
    pub fn load(&mut self, model: &M, state: Vec<(String, TpuTensor)>) {
        let mut parameters = Parameters::default();
        model.visit(&mut parameters);
        let values = parameters.found.into_iter().map(|parameter| parameter.value).collect();
        self.step.load(values, state.into_iter().map(|(name, tensor)| (name, tensor.0)).collect());
    }
}

impl<B: AutodiffBackend, M, D, R> std::fmt::Debug for CompiledStep<B, M, D, R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.step.fmt(f)
    }
}

/// Returns a clone that shares no running statistics, in which those are up to date.
fn apart<B: AutodiffBackend, M: AutodiffModule<B>>(model: &M) -> M {
    M::from_inner(model.valid())
}

/// Collects the parameters of a model.
#[derive(Default)]
struct Parameters {
    path: ModulePath,
    found: Vec<Parameter>,
}

impl<F, I, B> ModuleVisitor<B> for Parameters
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
        let value = primitive(value.inner());
        let layers = self.path.split(value.dims()).0.len();
        self.found.push(Parameter { path: self.path.joined(), layers, value, is_trained });
    }

    fn visit_int<const D: usize>(&mut self, parameter: &Param<Tensor<B, D, Int>>) {
        let value = parameter.val().inner().into_primitive().0;
        let layers = self.path.split(value.dims()).0.len();
        self.found.push(Parameter { path: self.path.joined(), layers, value, is_trained: false });
    }
}

/// Gives a model the parameters of a list.
struct SetParameters<P>(P);

impl<F, I, B, P> ModuleMapper<B> for SetParameters<P>
where
    F: TpuFloat,
    I: TpuInt,
    B: AutodiffBackend<InnerBackend = Tpu<F, I>>,
    P: Iterator<Item = Value>,
{
    fn map_float<const D: usize>(&mut self, parameter: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let (id, old, mapper) = parameter.consume();
        let is_trained = old.is_require_grad();
        let value = self.0.next().map_or(old, |value| Tensor::from_inner(tensor(value)));
        Param::from_mapped_value(id, value.set_require_grad(is_trained), mapper)
    }

    fn map_int<const D: usize>(&mut self, parameter: Param<Tensor<B, D, Int>>) -> Param<Tensor<B, D, Int>> {
        let (id, old, mapper) = parameter.consume();
        let value = self.0.next().map_or(old, |value| Tensor::from_inner(Tensor::from_primitive(TpuTensor(value))));
        Param::from_mapped_value(id, value, mapper)
    }
}

/// Collects the gradients and the parameters of a model after a step.
struct After<R> {
    gradients: GradientsParams,
    computed: Computed<R>,
}

impl<F: TpuFloat, I: TpuInt, R> ModuleVisitor<Tpu<F, I>> for After<R> {
    fn visit_float<const D: usize>(&mut self, parameter: &Param<Tensor<Tpu<F, I>, D>>) {
        let gradient = self.gradients.remove::<Tpu<F, I>, D>(parameter.id);
        self.computed.gradients.push(gradient.map(primitive));
        self.computed.parameters.push(primitive(parameter.val()));
    }

    fn visit_int<const D: usize>(&mut self, parameter: &Param<Tensor<Tpu<F, I>, D, Int>>) {
        self.computed.gradients.push(None);
        self.computed.parameters.push(parameter.val().into_primitive().0);
    }
}

fn primitive<F: TpuFloat, I: TpuInt, const D: usize>(tensor: Tensor<Tpu<F, I>, D>) -> Value {
    tensor.into_primitive().tensor().0
}

fn tensor<F: TpuFloat, I: TpuInt, const D: usize>(value: Value) -> Tensor<Tpu<F, I>, D> {
    Tensor::from_primitive(TensorPrimitive::Float(TpuTensor(value)))
}
