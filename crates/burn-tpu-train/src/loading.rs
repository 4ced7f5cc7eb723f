//! What of Burn is loaded: models, optimizers, compiled steps, schedules.

use crate::by_path::Parameter;
use crate::checkpoint::Kind;
use crate::error::Result;
use crate::parameters::{parameters, replaced};
use crate::record_tree;
use crate::restored::{Restored, differences_of_state, has_shape_of, loaded};
use burn_core::module::{AutodiffModule, Module};
use burn_core::tensor::backend::{AutodiffBackend, Backend};
use burn_optim::Optimizer;
use burn_optim::lr_scheduler::LrScheduler;
use burn_tpu::{CompiledStep, Tpu, TpuDevice, TpuFloat, TpuInt, TpuTensor};
use std::collections::HashMap;

impl Restored {
    /// Returns a model with the saved values, on its own device; on a mesh, split as the model is. Ids of parameters,
    /// and which of them are trained, stay. Layers may be in another form than when they were saved: a `Vec` of blocks
    /// or `burn_tpu::Layers`.
    ///
    /// # Errors
    /// [`CheckpointError::Mismatch`](crate::CheckpointError::Mismatch) with all tensors that are missing, unexpected, or of another shape or dtype.
    pub fn model<B, M>(&self, name: &str, model: M) -> Result<M>
    where
        B: Backend<Device = TpuDevice>,
        M: Module<B>,
    {
        self.part(name, Kind::Model)?;
        let expected = parameters(&model)?.into_iter().map(|parameter| (parameter.path, parameter.tensor)).collect();
        Ok(replaced(model, self.matching(name, expected)?))
    }

    /// Loads a model and the optimizer's state into a compiled step, from the parts of these names.
    ///
    /// # Errors
    /// [`CheckpointError::Mismatch`](crate::CheckpointError::Mismatch) with all tensors that are missing, unexpected, or of another shape or dtype.
    pub fn compiled_step<B, F, I, M, D, R>(
        &self,
        model: &str,
        state: &str,
        step: &mut CompiledStep<B, M, D, R>,
    ) -> Result<()>
    where
        B: AutodiffBackend<Device = TpuDevice, InnerBackend = Tpu<F, I>>,
        F: TpuFloat,
        I: TpuInt,
        M: AutodiffModule<B>,
        D: Module<Tpu<F, I>>,
        R: Module<Tpu<F, I>>,
    {
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
    /// [`CheckpointError::Mismatch`](crate::CheckpointError::Mismatch) for state of parameters that the model does not have, or that have another shape;
    /// [`CheckpointError::Record`](crate::CheckpointError::Record) for the state of another optimizer.
    pub fn optimizer<B, M, O>(&self, name: &str, optimizer: O, model: &M) -> Result<O>
    where
        B: AutodiffBackend<Device = TpuDevice>,
        M: AutodiffModule<B>,
        O: Optimizer<M, B>,
    {
        let part = self.part(name, Kind::Optimizer)?;
        let found = self.tensors(name)?;
        let parameters = parameters(model)?;
        let Some(first) = parameters.first() else { return Ok(optimizer) };
        let by_path: HashMap<&str, &Parameter> = parameters.iter().map(|p| (p.path.as_str(), p)).collect();
        self.accept(name, differences_of_state(&part.tree, &found, &by_path))?;
        let tensor = |tensor: &str, path: Option<&str>| {
            let Some(saved) = found.get(tensor) else { return Ok(None) };
            let parameter = path.and_then(|path| by_path.get(path).copied());
            if parameter.is_some_and(|parameter| !has_shape_of(saved, parameter)) {
                return Ok(None);
            }
            let like = &parameter.unwrap_or(first).tensor;
            Ok(Some((loaded(saved, like)?, saved.shape.len())))
        };
        let ids = parameters.iter().map(|p| (p.path.clone(), p.id.serialize())).collect();
        let record = record_tree::put_together::<B, O::Record>(name, &part.tree, &ids, tensor, &first.tensor.device())?;
        Ok(optimizer.load_record(record))
    }

    /// Returns a learning rate's schedule with the saved state.
    ///
    /// # Errors
    /// [`CheckpointError::Record`](crate::CheckpointError::Record) for the state of another kind of schedule.
    pub fn scheduler<S: LrScheduler>(&self, name: &str, scheduler: S) -> Result<S> {
        let tree = &self.part(name, Kind::Scheduler)?.tree;
        let none = |_: &str, _: Option<&str>| Ok(None::<(TpuTensor, usize)>);
        let device = TpuDevice::ndarray();
        let record =
            record_tree::put_together::<Tpu<f32>, S::Record<Tpu<f32>>>(name, tree, &HashMap::new(), none, &device)?;
        Ok(scheduler.load_record::<Tpu<f32>>(record))
    }
}
