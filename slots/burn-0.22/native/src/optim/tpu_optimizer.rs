//! The optimizer wrapper: f32 master weights for 16-bit weights, and the end of a training step.

use super::MasterWeights;
use super::master_weights::with_condition;
use burn::grad_clipping::GradientClipping;
use burn::lr_scheduler::module_lr_scheduler::ModuleLearningRate;
use burn::module::{Module, ParamGroup};
use burn::optim::{GradientsParams, ModuleOptimizer, MultiGradientsParams, Optimizer, OptimizerRecord};
use burn_tpu_runtime::Tensor as Value;

/// Burn's [`ModuleOptimizer`] for the TPU: 16-bit weights learn, and each step is one program.
///
/// - *Master weights.* It keeps an f32 copy of each 16-bit weight, and the optimizer's state in f32: see
///   [`MasterWeights`]. A bf16 weight has 8 significant bits: without the copy, an update below 1/256 of the weight
///   would vanish.
/// - *The end of the step.* After the update, what the calling thread recorded on any device runs as one program:
///   forward, backward and update. Earlier work that the step does not use (a batch for a later step, a metric) runs as
///   programs of its own, so that the step is the same program every time. The call does not wait. An error of the
///   compiler is logged and leaves the work recorded; the next read or sync returns it.
///
/// Read losses after the step. A loop needs no `mark_step`.
///
/// ```
/// use burn::nn::LinearConfig;
/// use burn::optim::{AdamWConfig, GradientsParams};
/// use burn::prelude::*;
/// use burn_tpu::{TpuDevice, TpuOptimizer};
///
/// let device = Device::from(TpuDevice::ndarray()).autodiff();
/// let mut model = LinearConfig::new(4, 1).init(&device);
/// let mut optimizer = TpuOptimizer::new(AdamWConfig::new().build());
/// let loss = model.forward(Tensor::<2>::ones([8, 4], &device)).powi_scalar(2).mean();
/// let gradients = GradientsParams::from_grads(loss.backward(), &model);
/// model = optimizer.step(1e-3, model, gradients);
/// ```
///
/// A configuration's `build()` leaves out its gradient clipping, as Burn says: give it to
/// [`with_grad_clipping`](Self::with_grad_clipping). Burn's `Learner` takes `ModuleOptimizer::from(optimizer)`, and a
/// model's `optimize` calls [`end_step`].
///
/// Records hold the master copies: [`to_record`](ModuleOptimizer::to_record), [`save`](ModuleOptimizer::save) and
/// [`into_bytes`](ModuleOptimizer::into_bytes) are those of Burn.
#[derive(Clone)]
pub struct TpuOptimizer {
    optimizer: ModuleOptimizer,
}

impl TpuOptimizer {
    /// Wraps the optimizer that a Burn configuration builds: `AdamWConfig::new().build()`.
    pub fn new(optimizer: impl Optimizer) -> Self {
        Self { optimizer: MasterWeights::new(optimizer).into() }
    }

    /// Sets the gradient clipping of the weights that are in no other group.
    #[must_use]
    pub fn with_grad_clipping(self, clipping: GradientClipping) -> Self {
        Self { optimizer: self.optimizer.with_grad_clipping(clipping) }
    }

    /// Adds an optimizer for a group of weights, as [`ModuleOptimizer::with_group`]. It has master weights too.
    #[must_use]
    pub fn with_group(self, group: ParamGroup, optimizer: impl Optimizer, clipping: Option<GradientClipping>) -> Self {
        Self { optimizer: self.optimizer.with_group(group, MasterWeights::new(optimizer), clipping) }
    }

    /// Updates the module's parameters and the optimizer's state, and ends the step.
    pub fn step<M: Module>(&mut self, rate: impl Into<ModuleLearningRate>, module: M, gradients: GradientsParams) -> M {
        let module = self.optimizer.step(rate, module, gradients);
        end_step();
        module
    }

    /// [`step`](Self::step) that leaves parameters and state as they are where the condition (`[1]`, bool) is false.
    pub(super) fn step_if<M: Module>(
        &mut self,
        condition: Value,
        rate: impl Into<ModuleLearningRate>,
        module: M,
        gradients: GradientsParams,
    ) -> M {
        let module = with_condition(condition, || self.optimizer.step(rate, module, gradients));
        end_step();
        module
    }

    /// Does what [`step`](Self::step) does, with gradients from several devices.
    pub fn step_multi<M: Module>(
        &mut self,
        rate: impl Into<ModuleLearningRate>,
        module: M,
        gradients: MultiGradientsParams,
    ) -> M {
        let module = self.optimizer.step_multi(rate, module, gradients);
        end_step();
        module
    }

    /// Goes on from a record. One that another optimizer saved has no master copies: they begin with the weights'
    /// values.
    #[must_use]
    pub fn load_record(self, record: OptimizerRecord) -> Self {
        Self { optimizer: self.optimizer.load_record(record) }
    }
}

/// What only reads: records, the gradient clipping.
impl std::ops::Deref for TpuOptimizer {
    type Target = ModuleOptimizer;

    fn deref(&self) -> &ModuleOptimizer {
        &self.optimizer
    }
}

/// Ends a training step, as [`TpuOptimizer::step`] does after the update: for Burn's `Learner`, which has an optimizer
/// of its own type. Its metrics read on another thread, and without an end forward, loss and update are programs of
/// their own.
///
/// ```ignore
/// impl TrainStep for Model {
///     fn optimize(self, optimizer: &mut ModuleOptimizer, rate: ModuleLearningRate, gradients: GradientsParams) -> Self {
///         let model = optimizer.step(rate, self, gradients);
///         burn_tpu::end_step();
///         model
///     }
///     // `step`, as without
/// }
/// ```
pub fn end_step() {
    burn_tpu_runtime::end_step();
}

/// The same optimizer, master weights included, without the end of the step.
impl From<TpuOptimizer> for ModuleOptimizer {
    fn from(optimizer: TpuOptimizer) -> Self {
        optimizer.optimizer
    }
}
