//! The wrapper that ends a training step, from before there was [`TpuOptimizer`](crate::TpuOptimizer).
#![allow(deprecated, reason = "the deprecated type itself")]

use crate::TpuDevice;
use burn_core::module::AutodiffModule;
use burn_core::tensor::backend::AutodiffBackend;
use burn_optim::{GradientsParams, LearningRate, MultiGradientsParams, Optimizer};

/// Wraps any Burn [`Optimizer`] and ends the training step after it. [`TpuOptimizer`](crate::TpuOptimizer) does the same,
/// and keeps f32 master weights for 16-bit weights.
#[deprecated(note = "use TpuOptimizer")]
#[derive(Clone, Debug)]
pub struct MarkStep<O> {
    optimizer: O,
}

impl<O> MarkStep<O> {
    /// Wraps an optimizer.
    pub fn new(optimizer: O) -> Self {
        Self { optimizer }
    }

    /// Returns the wrapped optimizer.
    pub fn inner(&self) -> &O {
        &self.optimizer
    }
}

impl<O, M, B> Optimizer<M, B> for MarkStep<O>
where
    O: Optimizer<M, B>,
    M: AutodiffModule<B>,
    B: AutodiffBackend<Device = TpuDevice>,
{
    type Record = O::Record;

    fn step(&mut self, lr: LearningRate, module: M, grads: GradientsParams) -> M {
        let module = self.optimizer.step(lr, module, grads);
        burn_tpu_runtime::end_step();
        module
    }

    fn step_multi(&mut self, lr: LearningRate, module: M, grads: MultiGradientsParams) -> M {
        let module = self.optimizer.step_multi(lr, module, grads);
        burn_tpu_runtime::end_step();
        module
    }

    fn to_record(&self) -> Self::Record {
        self.optimizer.to_record()
    }

    fn load_record(self, record: Self::Record) -> Self {
        Self { optimizer: self.optimizer.load_record(record) }
    }
}
