//! What is saved: the parts of a run, by name.
//!
//! Owns the capture, which copies nothing, and the copy to the host. May not know where files are.

use crate::error::{CheckpointError, Result};
use crate::manifest::Random;
use crate::parameters::{Parameter, parameters};
use crate::tree;
use burn_core::module::{AutodiffModule, Module};
use burn_core::tensor::TensorData;
use burn_core::tensor::backend::{AutodiffBackend, Backend};
use burn_optim::Optimizer;
use burn_optim::lr_scheduler::LrScheduler;
use burn_tpu::{CompiledStep, RandomState, Tpu, TpuDevice, TpuFloat, TpuInt, TpuTensor};
use ciborium::Value;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// What a part is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    Model,
    Optimizer,
    Scheduler,
    Value,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Model => "model",
            Kind::Optimizer => "optimizer",
            Kind::Scheduler => "scheduler",
            Kind::Value => "value",
        }
    }
}

/// A part of a checkpoint without its tensors.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct CheckpointPart {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    /// Everything that is no tensor.
    pub(crate) tree: Value,
}

/// The state of a run after a step, for [`Checkpointer::save`](crate::Checkpointer::save). Each part has a name, under which
/// [`Restored`](crate::Restored) returns it; parts with tensors are files of this name.
///
/// A part is captured when it is named here: it is what it was then, whatever the next steps do. Nothing is copied yet.
#[derive(Debug)]
#[must_use = "`Checkpointer::save` saves it"]
pub struct Checkpoint {
    step: u64,
    random: Vec<Random>,
    parts: Vec<(CheckpointPart, Vec<(String, TpuTensor)>)>,
    /// Why a part could not be captured.
    error: Option<CheckpointError>,
}

impl Checkpoint {
    /// Returns a checkpoint without parts, of the state after this many steps.
    pub fn new(step: u64) -> Self {
        Self { step, random: Vec::new(), parts: Vec::new(), error: None }
    }

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
        let taken = paths.and_then(|paths| tree::take_apart::<B, _>(name, optimizer.to_record(), &paths));
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
        let taken = tree::take_apart::<Tpu<f32>, _>(name, record, &HashMap::new());
        self.with(name, Kind::Scheduler, taken)
    }

    /// Adds a value of the program's own: the position in the data, the best loss so far.
    pub fn value<T: Serialize>(self, name: &str, value: &T) -> Self {
        let tree = tree::to_tree(name, value);
        self.with(name, Kind::Value, tree.map(|tree| (tree, Vec::new())))
    }

    /// Adds where a device is in its random numbers, so that dropout goes on with the draws that come next.
    pub fn random(mut self, device: &TpuDevice) -> Self {
        let RandomState { key, counter } = device.random_state();
        self.random.push(Random { device: device.to_string(), key, counter });
        self
    }

    fn with(mut self, name: &str, kind: Kind, taken: Result<(Value, Vec<(String, TpuTensor)>)>) -> Self {
        match taken.and_then(|taken| self.check(name).map(|()| taken)) {
            Ok((tree, tensors)) => self.parts.push((CheckpointPart { name: name.to_owned(), kind, tree }, tensors)),
            Err(error) => {
                self.error.get_or_insert(error);
            }
        }
        self
    }

    fn check(&self, name: &str) -> Result<()> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        let is_new = self.parts.iter().all(|(part, _)| part.name != name);
        if is_new && !name.is_empty() && name.chars().all(is_plain) {
            return Ok(());
        }
        Err(CheckpointError::Name(name.to_owned()))
    }

    /// Ends the step on the devices of all tensors, so that every tensor has a value or is being computed.
    ///
    /// # Errors
    /// That of a part which could not be captured.
    pub(crate) fn captured(mut self) -> Result<Self> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        let mut devices: Vec<TpuDevice> =
            self.parts.iter().flat_map(|(_, tensors)| tensors).map(|(_, tensor)| tensor.device()).collect();
        devices.sort_unstable();
        devices.dedup();
        devices.into_iter().for_each(TpuDevice::mark_step);
        Ok(self)
    }

    /// Waits for the tensors and copies them to the host. The device's memory of each is free as soon as it is copied,
    /// unless the run still uses it.
    pub(crate) fn copy(self) -> Result<Copied> {
        let copied = |(part, tensors): (CheckpointPart, Vec<(String, TpuTensor)>)| {
            let tensors = tensors.into_iter().map(|(name, tensor)| Ok((name, tensor.to_data()?)));
            Ok((part, tensors.collect::<Result<_>>()?))
        };
        let parts = self.parts.into_iter().map(copied).collect::<Result<_>>()?;
        Ok(Copied { step: self.step, random: self.random, parts })
    }
}

/// A checkpoint on the host.
pub(crate) struct Copied {
    pub(crate) step: u64,
    pub(crate) random: Vec<Random>,
    pub(crate) parts: Vec<(CheckpointPart, Vec<(String, TensorData)>)>,
}
