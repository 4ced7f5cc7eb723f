//! The optimizer wrapper: f32 master weights for 16-bit weights, and the end of a training step.

use super::WithMasterWeights;
use crate::TpuTensor;
use burn_core::module::AutodiffModule;
use burn_core::tensor::backend::AutodiffBackend;
use burn_optim::adaptor::OptimizerAdaptor;
use burn_optim::grad_clipping::GradientClipping;
use burn_optim::{GradientsParams, LearningRate, MultiGradientsParams, Optimizer, SimpleOptimizer};

/// Wraps a Burn optimizer for the TPU: 16-bit weights learn, and each step is one program.
///
/// - *Master weights.* For each weight of 16 bits, the optimizer gets an f32 master copy and the gradient in f32, and keeps
///   its state in f32. The weight is the rounded master copy. A weight that something else changed since the last step
///   (clipping, averaging, re-initialising, loading a record) replaces its master copy. A bf16 weight has 8 significant
///   bits: without the copy, an update below 1/256 of the weight would vanish. For f32 and f64 weights nothing is added.
/// - *The end of the step.* After the update, the traces of *all* devices of the calling thread's stream are cut, so that
///   forward, backward and update run as one program. Burn 0.21 has no step marker, and its `Learner` reads the loss on
///   another thread, which would otherwise decide where a program ends. Each trace is also split at its seams: earlier work
///   that the step does not use (a batch for a later step, a metric of a validation) runs as programs of its own, so that
///   the step is the same program every time. The cut does not wait. An error of the compiler is logged and leaves the
///   work recorded; the next read or sync returns it.
///
/// A loop with this optimizer needs no [`mark_step`](crate::mark_step). Read losses after the step.
///
/// Learning rate, gradient clipping and records are those of the wrapped optimizer. The record holds the master copies: a
/// checkpoint of a training run saves and loads the records of both model and optimizer.
///
/// ```
/// use burn_tpu::{Tpu, TpuOptimizer};
/// # use burn::{backend::Autodiff, module::AutodiffModule, optim::{AdamWConfig, Optimizer}};
/// # fn optimizer<M: AutodiffModule<Autodiff<Tpu>>>() -> impl Optimizer<M, Autodiff<Tpu>> {
/// TpuOptimizer::new(AdamWConfig::new().init())
/// # }
/// ```
///
/// The types of `Sgd` and `Muon` name their backend. The wrapped optimizer updates f32 tensors, so it is built for
/// `Tpu<f32>`, which the compiler infers:
///
/// ```
/// use burn_tpu::{Tpu, TpuOptimizer};
/// # use burn::{backend::Autodiff, module::AutodiffModule, optim::{Optimizer, SgdConfig}};
/// # fn optimizer<M: AutodiffModule<Autodiff<Tpu>>>() -> impl Optimizer<M, Autodiff<Tpu>> {
/// TpuOptimizer::from(SgdConfig::new().build())
/// # }
/// ```
pub struct TpuOptimizer<O, M, B>
where
    WithMasterWeights<O>: SimpleOptimizer<B::InnerBackend>,
    M: AutodiffModule<B>,
    B: AutodiffBackend,
{
    optimizer: OptimizerAdaptor<WithMasterWeights<O>, M, B>,
}

impl<O, M, B> TpuOptimizer<O, M, B>
where
    WithMasterWeights<O>: SimpleOptimizer<B::InnerBackend>,
    M: AutodiffModule<B>,
    B: AutodiffBackend,
{
    /// Wraps the optimizer that a Burn configuration builds, with its gradient clipping. For `Sgd` and `Muon`, use
    /// [`TpuOptimizer::from`].
    pub fn new(optimizer: OptimizerAdaptor<O, M, B>) -> Self
    where
        O: SimpleOptimizer<B::InnerBackend>,
    {
        Self { optimizer: WithMasterWeights::adapt(optimizer) }
    }

    /// [`Optimizer::step`] that leaves parameters and state as they are where `condition` (`[1]`, bool) is false.
    pub(super) fn step_if(&mut self, condition: TpuTensor, lr: LearningRate, module: M, grads: GradientsParams) -> M {
        self.optimizer.optim().set_condition(Some(condition));
        let module = self.optimizer.step(lr, module, grads);
        self.optimizer.optim().set_condition(None);
        burn_tpu_runtime::end_step();
        module
    }

    /// Sets the gradient clipping, as [`OptimizerAdaptor::with_grad_clipping`].
    pub fn with_grad_clipping(self, clipping: GradientClipping) -> Self {
        Self { optimizer: self.optimizer.with_grad_clipping(clipping) }
    }
}

/// Wraps the part of an optimizer that updates one weight.
impl<O, M, B> From<O> for TpuOptimizer<O, M, B>
where
    WithMasterWeights<O>: SimpleOptimizer<B::InnerBackend>,
    M: AutodiffModule<B>,
    B: AutodiffBackend,
{
    fn from(optimizer: O) -> Self {
        Self { optimizer: WithMasterWeights::new(optimizer).into() }
    }
}

impl<O, M, B> Optimizer<M, B> for TpuOptimizer<O, M, B>
where
    WithMasterWeights<O>: SimpleOptimizer<B::InnerBackend>,
    M: AutodiffModule<B>,
    B: AutodiffBackend,
{
    type Record = <OptimizerAdaptor<WithMasterWeights<O>, M, B> as Optimizer<M, B>>::Record;

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

impl<O, M, B> Clone for TpuOptimizer<O, M, B>
where
    WithMasterWeights<O>: SimpleOptimizer<B::InnerBackend>,
    M: AutodiffModule<B>,
    B: AutodiffBackend,
{
    fn clone(&self) -> Self {
        Self { optimizer: self.optimizer.clone() }
    }
}

impl<O, M, B> std::fmt::Debug for TpuOptimizer<O, M, B>
where
    WithMasterWeights<O>: SimpleOptimizer<B::InnerBackend> + std::fmt::Debug,
    M: AutodiffModule<B>,
    B: AutodiffBackend,
{
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("TpuOptimizer").field(self.optimizer.optim()).finish()
    }
}
