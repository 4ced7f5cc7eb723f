//! What of Burn is loaded: models, optimizers, compiled steps, schedules.

use crate::by_path::Parameter;
use crate::checkpoint::Kind;
use crate::error::Result;
use crate::parameters::{parameters, replaced};
use crate::record_tree;
use crate::restored::{Restored, differences_of_state, has_shape_of, loaded};
use burn_core::module::Module;
use burn_optim::lr_scheduler::module_lr_scheduler::ModuleLrScheduler;
use burn_optim::{ModuleOptimizer, OptimizerRecord};
use burn_tpu::{CompiledStep, TpuOptimizer};
use std::collections::HashMap;

/// An optimizer that goes on from a record: Burn's own, and [`TpuOptimizer`].
pub trait LoadsRecord: Sized {
    /// Returns the optimizer with the record's state.
    #[must_use]
    fn loaded(self, record: OptimizerRecord) -> Self;
}

impl LoadsRecord for ModuleOptimizer {
    fn loaded(self, record: OptimizerRecord) -> Self {
        self.load_record(record)
    }
}

impl LoadsRecord for TpuOptimizer {
    fn loaded(self, record: OptimizerRecord) -> Self {
        self.load_record(record)
    }
}

impl Restored {
    /// Returns a model with the saved values, on its own device; on a mesh, split as the model is. Ids of parameters,
    /// and which of them are trained, stay. Layers may be in another form than when they were saved: a `Vec` of blocks,
    /// or the `Layers` of Burn 0.21's `burn-tpu`.
    ///
    /// # Errors
    /// [`CheckpointError::Mismatch`](crate::CheckpointError::Mismatch) with all tensors that are missing, unexpected,
    /// or of another shape or dtype.
    pub fn model<M: Module>(&self, name: &str, model: M) -> Result<M> {
        self.part(name, Kind::Model)?;
        let expected = parameters(&model)?.into_iter().map(|parameter| (parameter.path, parameter.tensor)).collect();
        Ok(replaced(model, self.matching(name, expected)?))
    }

    /// Loads a model and the optimizer's state into a compiled step, from the parts of these names.
    ///
    /// # Errors
    /// [`CheckpointError::Mismatch`](crate::CheckpointError::Mismatch) with all tensors that are missing, unexpected,
    /// or of another shape or dtype.
    pub fn compiled_step<M: Module, D, R>(
        &self,
        model: &str,
        state: &str,
        step: &mut CompiledStep<M, D, R>,
    ) -> Result<()> {
        let model = self.model(model, step.model())?;
        self.part(state, Kind::Optimizer)?;
        let state = self.matching(state, step.optimizer_state())?;
        step.load(&model, state);
        Ok(())
    }

    /// Returns an optimizer with the saved state. `model` is what it updates; on a mesh, the state is split as the
    /// model is.
    ///
    /// # Errors
    /// [`CheckpointError::Mismatch`](crate::CheckpointError::Mismatch) for state of parameters that the model does not
    /// have, or that have another shape; [`CheckpointError::Record`](crate::CheckpointError::Record) for a part that is
    /// none.
    pub fn optimizer<M: Module, O: LoadsRecord>(&self, name: &str, optimizer: O, model: &M) -> Result<O> {
        let part = self.part(name, Kind::Optimizer)?;
        let found = self.tensors(name)?;
        let parameters = parameters(model)?;
        let by_path: HashMap<&str, &Parameter> = parameters.iter().map(|p| (p.path.as_str(), p)).collect();
        self.accept(name, differences_of_state(&part.tree, &found, &by_path))?;
        let tensor = |tensor: &str, path: &str| {
            let (Some(saved), Some(parameter)) = (found.get(tensor), by_path.get(path)) else { return Ok(None) };
            if !has_shape_of(saved, parameter) {
                return Ok(None);
            }
            Ok(Some((loaded(saved, &parameter.tensor)?, saved.shape.len())))
        };
        let ids = parameters.iter().map(|p| (p.path.clone(), p.id.val())).collect();
        record_tree::put_together(name, &part.tree, &ids, tensor, |record| optimizer.loaded(record))
    }

    /// Returns a learning rate's schedule with the saved state.
    ///
    /// # Errors
    /// [`CheckpointError::Record`](crate::CheckpointError::Record) for a state that Burn 0.21 saved.
    pub fn scheduler(&self, name: &str, scheduler: ModuleLrScheduler) -> Result<ModuleLrScheduler> {
        let tree = &self.part(name, Kind::Scheduler)?.tree;
        Ok(scheduler.load_record(record_tree::to_schedule(name, tree)?))
    }
}
