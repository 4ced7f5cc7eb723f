//! Compiled training steps: [`compile_step`].
//!
//! Owns: the parameters of a model and their gradients. May not know: what is done with them, which is the runtime's.

use super::{DeviceOptimizer, leaves_of};
use crate::tensors::{integer_tensor, integers, tensor, value};
use crate::{TpuDevice, TpuError, TpuTensor};
use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::optim::{GradientsParams, LearningRate};
use burn::tensor::{FloatDType, Int, Tensor};
use burn_dispatch::GradientCheckpointingStrategy;
use burn_tpu_runtime::Tensor as Value;
use burn_tpu_runtime::layers::ModulePath;
use burn_tpu_runtime::step::{Computed, Parameter, TrainingStep};

/// A training step that is recorded once. See [`compile_step`].
pub struct CompiledStep<M, D, R> {
    step: TrainingStep<D, R>,
    model: M,
    strategy: Option<GradientCheckpointingStrategy>,
    /// The first parameter that is not on a [`TpuDevice`]: no step can run.
    foreign: Option<String>,
}

/// Compiles a whole training step: forward, backward and update are recorded once for each set of shapes and dtypes,
/// and from then on a step is one dispatch, with no recording.
///
/// `step` takes the model and a batch, and returns the loss, whose gradients update the parameters, and what
/// [`CompiledStep::run`] returns: the loss, logits, whatever the loop reads. The batch and that result are anything
/// that [`compile`](crate::compile) takes; the result has no autodiff. The rate and the optimizer's counter are
/// tensors, so no number can be missed from step to step. Running statistics, as of `BatchNorm`, are state too.
///
/// ```
/// use burn::nn::{Linear, LinearConfig};
/// use burn::tensor::{Device, Distribution, Tensor};
/// use burn_tpu::{DeviceAdamW, TpuDevice, TpuError, compile_step};
///
/// # fn main() -> Result<(), TpuError> {
/// let device = Device::from(TpuDevice::ndarray()).autodiff();
/// let model = LinearConfig::new(4, 1).init(&device);
/// let mut training = compile_step(model, DeviceAdamW::new(), |model: &Linear, x: Tensor<2>| {
///     let loss = (model.forward(x.clone()) - x.sum_dim(1)).powi_scalar(2).mean();
///     (loss.clone(), loss)
/// });
/// let x = Tensor::random([32, 4], Distribution::Default, &device);
/// for _ in 0..3 {
///     let _loss: Tensor<1> = training.run(1e-2, x.clone())?;
/// }
/// let trained: Linear = training.into_model();
/// # Ok(())
/// # }
/// ```
///
/// The model is trained as [`Module::train`] leaves it, with the gradient checkpointing of its parameters. A tensor in
/// the model that is no parameter loses its own.
pub fn compile_step<M, D, R>(
    model: M,
    optimizer: DeviceOptimizer,
    step: impl Fn(&M, D) -> (Tensor<1>, R) + Send + 'static,
) -> CompiledStep<M, D, R>
where
    M: Module + 'static,
    D: Module + 'static,
    R: Module + 'static,
{
    let mut found = Parameters::of(&model);
    let model = apart(&model);
    let (template, strategy) = (model.clone(), found.strategy);
    let compute = move |parameters: Vec<Value>, batch: D, scale: Option<Value>| {
        let model = apart(&template).map(&mut SetParameters { values: parameters.into_iter(), strategy });
        let (loss, result) = step(&model, batch);
        let loss = match scale {
            Some(scale) => loss.cast(FloatDType::F32) * tensor(scale),
            None => loss,
        };
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        let result = result.valid();
        let mut after = After { gradients, computed: Computed { gradients: vec![], parameters: vec![], result } };
        // Its running statistics are those after this step.
        model.valid().visit(&mut after);
        after.computed
    };
    let device = found.parameters.first().map_or_else(|| *TpuDevice::default(), |first| first.value.device());
    let parameters = std::mem::take(&mut found.parameters);
    let step = TrainingStep::new(device, parameters, optimizer, leaves_of(), leaves_of(), compute);
    CompiledStep { step, model, strategy, foreign: found.foreign }
}

impl<M, D, R> CompiledStep<M, D, R>
where
    M: Module,
    D: Module + 'static,
    R: Module + 'static,
{
    /// Runs a step on a batch. It is dispatched and not waited for.
    ///
    /// # Errors
    /// Those of [`Compiled::call`](crate::Compiled::call); [`TpuError::Impure`] for a model with a parameter that is
    /// not on a [`TpuDevice`]. If the step did not begin, the model is as it was.
    pub fn run(&mut self, rate: LearningRate, batch: D) -> Result<R, TpuError> {
        if let Some(path) = &self.foreign {
            let reason = format!("the parameter `{path}` is quantized, or on a device that is no `TpuDevice`");
            return Err(TpuError::Impure { reason, op: String::new(), caller: String::new() });
        }
        self.step.run(rate as f32, batch)
    }
}

impl<M: Module, D, R> CompiledStep<M, D, R> {
    /// Returns the model, and ends the training.
    pub fn into_model(self) -> M {
        let Self { step, model, strategy, .. } = self;
        model.map(&mut SetParameters { values: step.into_parameters().into_iter(), strategy })
    }

    /// Returns the model as it is after the steps so far. While it is held, the next step cannot reuse the memory of
    /// its parameters.
    pub fn model(&self) -> M {
        let values = self.step.parameters().into_iter();
        apart(&self.model).map(&mut SetParameters { values, strategy: self.strategy })
    }

    /// Returns the optimizer's state by name: of AdamW `beta_1_power`, `beta_2_power`, with loss scaling `loss_scale` and
    /// `loss_scale_steps`, and of each parameter that is trained `<path>.moment_1`, `<path>.moment_2` and, if it has 16
    /// bits, `<path>.master`. While a tensor is held, the next step cannot reuse its memory.
    pub fn optimizer_state(&self) -> Vec<(String, TpuTensor)> {
        self.step.optimizer_state().into_iter().map(|(name, tensor)| (name, tensor.into())).collect()
    }

    /// Goes on from a model and an optimizer's state, by the names of [`CompiledStep::optimizer_state`]; state without
    /// a name here stays as it is. Shapes and dtypes are those of the step's own.
    pub fn load(&mut self, model: &M, state: Vec<(String, TpuTensor)>) {
        let values = Parameters::of(model).parameters.into_iter().map(|parameter| parameter.value).collect();
        self.step.load(values, state.into_iter().map(|(name, tensor)| (name, tensor.into())).collect());
    }
}

impl<M, D, R> std::fmt::Debug for CompiledStep<M, D, R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.step.fmt(f)
    }
}

/// Returns a clone that shares no running statistics, in which those are up to date.
fn apart<M: Module>(model: &M) -> M {
    model.valid().train()
}

/// Collects the parameters of a model.
#[derive(Default)]
struct Parameters {
    path: ModulePath,
    parameters: Vec<Parameter>,
    /// How the first parameter that is trained keeps activations.
    strategy: Option<GradientCheckpointingStrategy>,
    foreign: Option<String>,
}

impl Parameters {
    fn of<M: Module>(model: &M) -> Self {
        let mut parameters = Self::default();
        // A trained copy also of a model in validation.
        model.clone().train().visit(&mut parameters);
        parameters
    }

    /// Takes the value of the parameter at the path; `None` is one of another backend.
    fn add(&mut self, value: Option<Value>, is_trained: bool) {
        let path = self.path.joined();
        let Some(value) = value else {
            self.foreign.get_or_insert(path);
            return;
        };
        let layers = self.path.split(value.dims()).0.len();
        self.parameters.push(Parameter { path, layers, value, is_trained });
    }
}

impl ModuleVisitor for Parameters {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.path.enter(name, container);
    }

    fn exit_module(&mut self, _name: &str, container: &str) {
        self.path.exit(container);
    }

    fn visit_float<const D: usize>(&mut self, parameter: &Param<Tensor<D>>) {
        let parameter = parameter.val();
        let is_trained = parameter.is_require_grad();
        if is_trained && self.strategy.is_none() {
            self.strategy = parameter.gradient_checkpointing_strategy();
        }
        self.add(value(parameter), is_trained);
    }

    fn visit_int<const D: usize>(&mut self, parameter: &Param<Tensor<D, Int>>) {
        self.add(integers(parameter.val()), false);
    }
}

/// Gives a model the parameters of a list.
struct SetParameters {
    values: std::vec::IntoIter<Value>,
    strategy: Option<GradientCheckpointingStrategy>,
}

impl ModuleMapper for SetParameters {
    fn map_float<const D: usize>(&mut self, parameter: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let (id, old, mapper) = parameter.consume();
        let is_trained = old.is_require_grad();
        let value = self.values.next().map_or(old, |value| tensor(value).autodiff());
        let value = match self.strategy {
            Some(strategy) => value.with_gradient_checkpointing_strategy(strategy),
            None => value,
        };
        Param::from_mapped_value(id, value.set_require_grad(is_trained), mapper)
    }

    fn map_int<const D: usize>(&mut self, parameter: Param<Tensor<D, Int>>) -> Param<Tensor<D, Int>> {
        let (id, old, mapper) = parameter.consume();
        let strategy = old.gradient_checkpointing_strategy();
        let value = self.values.next().map_or(old, |value| integer_tensor(value, self.strategy.or(strategy)));
        Param::from_mapped_value(id, value, mapper)
    }
}

/// Collects the gradients and the parameters of a model after a step.
struct After<R> {
    gradients: GradientsParams,
    computed: Computed<R>,
}

impl<R> ModuleVisitor for After<R> {
    fn visit_float<const D: usize>(&mut self, parameter: &Param<Tensor<D>>) {
        let gradient = self.gradients.remove::<D>(parameter.id);
        self.computed.gradients.push(gradient.and_then(value));
        self.computed.parameters.extend(value(parameter.val()));
    }

    fn visit_int<const D: usize>(&mut self, parameter: &Param<Tensor<D, Int>>) {
        self.computed.gradients.push(None);
        self.computed.parameters.extend(integers(parameter.val()));
    }
}
