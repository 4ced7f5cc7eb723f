//! The optimizer wrapper that ends a training step.

use crate::TpuDevice;
use burn_core::module::AutodiffModule;
use burn_core::tensor::backend::AutodiffBackend;
use burn_optim::{GradientsParams, LearningRate, MultiGradientsParams, Optimizer};

/// Wraps any Burn [`Optimizer`] and ends the training step after it, so that forward, backward and update run as one
/// program.
///
/// Burn 0.21 has no step marker, and its `Learner` reads the loss on another thread: without this wrapper, that thread
/// decides where a program ends.
///
/// After the optimizer's step, this wrapper cuts the traces of *all* devices of the calling thread's stream. Each trace is
/// also split at its seams: earlier work that the step does not use (a batch for a later step, a metric of a validation)
/// runs as separate programs, so that the step is the same program every time. In a loop written by hand,
/// [`mark_step`](crate::mark_step) is enough: it cuts *one* device's trace, and everything in that trace is one program.
/// Neither waits. Both log an error of the compiler and leave the work recorded; the next read or sync returns the error.
///
/// # Order of the wrappers
/// `MarkStep` is outermost: what an optimizer outside of it records would belong to the next step. [`MasterWeights`] is
/// innermost, around the optimizer itself.
///
/// [`MasterWeights`]: crate::MasterWeights
///
/// ```
/// use burn_tpu::{MarkStep, MasterWeights, Tpu};
/// # use burn::{backend::Autodiff, module::AutodiffModule, optim::{AdamConfig, Optimizer}};
/// # fn optimizer<M: AutodiffModule<Autodiff<Tpu>>>() -> impl Optimizer<M, Autodiff<Tpu>> {
/// MarkStep::new(MasterWeights::adapt(AdamConfig::new().init()))
/// # }
/// ```
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
