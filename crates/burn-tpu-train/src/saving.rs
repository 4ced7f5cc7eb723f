//! What of Burn is saved: models, optimizers, compiled steps, schedules.

use crate::by_path::Parameter;
use crate::checkpoint::{Checkpoint, Kind};
use crate::parameters::parameters;
use crate::record_tree;
use burn_core::module::{AutodiffModule, Module};
use burn_core::tensor::backend::{AutodiffBackend, Backend};
use burn_optim::Optimizer;
use burn_optim::lr_scheduler::LrScheduler;
use burn_tpu::{CompiledStep, Tpu, TpuDevice, TpuFloat, TpuInt};
use ciborium::Value;
use std::collections::HashMap;

impl Checkpoint {
    /// Adds a model: all parameters and running statistics, under their paths.
    pub fn model<B, M>(self, name: &str, model: &M) -> Self
    where
        B: Backend<Device = TpuDevice>,
        M: Module<B>,
    {
        let named = |parameter: Parameter| (parameter.path, parameter.tensor);
        let tensors = parameters(model).map(|found| found.into_iter().map(named).collect());
        self.with(name, Kind::Model, tensors.map(|tensors| (Value::Null, tensors)))
    }

    /// Adds the state of an optimizer: moments, counters, f32 master weights. `model` is what it updates.
    pub fn optimizer<B, M, O>(self, name: &str, optimizer: &O, model: &M) -> Self
    where
        B: AutodiffBackend<Device = TpuDevice>,
        M: AutodiffModule<B>,
        O: Optimizer<M, B>,
    {
        let paths = parameters(model).map(|found| {
            let entry = |parameter: Parameter| (parameter.id.serialize(), parameter.path);
            found.into_iter().map(entry).collect::<HashMap<_, _>>()
        });
        let taken = paths.and_then(|paths| record_tree::take_apart::<B, _>(name, optimizer.to_record(), &paths));
        self.with(name, Kind::Optimizer, taken)
    }

    /// Adds the optimizer's state of a compiled step. Its model is a part of its own: [`CompiledStep::model`].
    pub fn compiled_step<B, F, I, M, D, R>(self, name: &str, step: &CompiledStep<B, M, D, R>) -> Self
    where
        B: AutodiffBackend<Device = TpuDevice, InnerBackend = Tpu<F, I>>,
        F: TpuFloat,
        I: TpuInt,
        M: AutodiffModule<B>,
    {
        self.with(name, Kind::Optimizer, Ok((Value::Null, step.optimizer_state())))
    }

    /// Adds the state of a learning rate's schedule.
    pub fn scheduler<S: LrScheduler>(self, name: &str, scheduler: &S) -> Self {
        let record = scheduler.to_record::<Tpu<f32>>();
        let taken = record_tree::take_apart::<Tpu<f32>, _>(name, record, &HashMap::new());
        self.with(name, Kind::Scheduler, taken)
    }
}
