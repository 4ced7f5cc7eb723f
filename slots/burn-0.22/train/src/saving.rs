//! What of Burn is saved: models, optimizers, compiled steps, schedules.

use crate::by_path::Parameter;
use crate::checkpoint::{Checkpoint, Kind};
use crate::parameters::parameters;
use crate::record_tree;
use burn_core::module::Module;
use burn_optim::ModuleOptimizer;
use burn_optim::lr_scheduler::module_lr_scheduler::ModuleLrScheduler;
use burn_tpu::CompiledStep;
use ciborium::Value;

impl Checkpoint {
    /// Adds a model: all parameters and running statistics, under their paths.
    pub fn model<M: Module>(self, name: &str, model: &M) -> Self {
        let named = |parameter: Parameter| (parameter.path, parameter.tensor);
        let tensors = parameters(model).map(|found| found.into_iter().map(named).collect());
        self.with(name, Kind::Model, tensors.map(|tensors| (Value::Null, tensors)))
    }

    /// Adds the state of an optimizer: moments, counters, f32 master weights. `model` is what it updates.
    pub fn optimizer<M: Module>(self, name: &str, optimizer: &ModuleOptimizer, model: &M) -> Self {
        let paths = parameters(model).map(|found| {
            let entry = |parameter: Parameter| (parameter.id.val().to_string(), parameter.path);
            found.into_iter().map(entry).collect()
        });
        let taken = paths.and_then(|paths| record_tree::take_apart(name, optimizer, &paths));
        self.with(name, Kind::Optimizer, taken)
    }

    /// Adds the optimizer's state of a compiled step. Its model is a part of its own: [`CompiledStep::model`].
    pub fn compiled_step<M: Module, D, R>(self, name: &str, step: &CompiledStep<M, D, R>) -> Self {
        self.with(name, Kind::Optimizer, Ok((Value::Null, step.optimizer_state())))
    }

    /// Adds the state of a learning rate's schedule.
    pub fn scheduler(self, name: &str, scheduler: &ModuleLrScheduler) -> Self {
        let taken = record_tree::of_schedule(name, scheduler.to_record());
        self.with(name, Kind::Scheduler, taken.map(|tree| (tree, Vec::new())))
    }
}
