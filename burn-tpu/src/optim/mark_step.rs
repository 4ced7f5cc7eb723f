//! The optimizer wrapper that ends a training step.

use crate::TpuDevice;
use burn_core::module::AutodiffModule;
use burn_core::tensor::backend::AutodiffBackend;
use burn_optim::{GradientsParams, LearningRate, MultiGradientsParams, Optimizer};

/// Wraps any Burn [`Optimizer`] and marks the step after it, so that forward, backward and update of a training step run as
/// one program.
///
/// Burn 0.21 has no marker of its own, and its `Learner` reads the loss on another thread: without this wrapper, where a
/// program ends would be up to that thread. In a loop of your own, call [`TpuDevice::mark_step`] after the step instead.
///
/// This is the outermost wrapper: [`MasterWeights`](crate::MasterWeights) is inside it, and the Burn optimizer inside that.
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

    /// The wrapped optimizer.
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
