//! Wrappers for Burn's optimizers: a step that is one program, and bf16 weights that learn.
//!
//! There is one way to wrap an optimizer, from the inside out:
//!
//! | order | wrapper | made by | leave it out |
//! |---|---|---|---|
//! | 1 | a Burn optimizer | its configuration's `init()`, with its gradient clipping | never |
//! | 2 | [`MasterWeights`] | `MasterWeights::adapt(..)` | with `Tpu<f32>`, where it costs nothing and does nothing |
//! | 3 | [`MarkStep`] | `MarkStep::new(..)` | in a loop that calls `mark_step` itself |
//!
//! ```
//! use burn_tpu::{MarkStep, MasterWeights, Tpu};
//! # use burn::{backend::Autodiff, module::AutodiffModule, optim::{AdamConfig, Optimizer}};
//! # fn optimizer<M: AutodiffModule<Autodiff<Tpu>>>() -> impl Optimizer<M, Autodiff<Tpu>> {
//! MarkStep::new(MasterWeights::adapt(AdamConfig::new().init()))
//! # }
//! ```
//!
//! The types allow no other order: [`MasterWeights`] is a `SimpleOptimizer`, which updates one weight at a time and is made
//! into an optimizer of a whole module by Burn's `OptimizerAdaptor`; [`MarkStep`] ends the step after all weights are
//! updated, and so wraps an optimizer of a whole module.

mod mark_step;
mod master_weights;

pub use mark_step::MarkStep;
pub use master_weights::{MasterState, MasterWeights};

#[cfg(test)]
mod tests {
    use crate::{CutReason, MarkStep, MasterWeights, Tpu, TpuDevice};
    use burn::backend::Autodiff;
    use burn::nn::{Linear, LinearConfig};
    use burn::optim::{AdamConfig, GradientsParams, Optimizer};
    use burn::tensor::{DType, Tensor};

    type B = Autodiff<Tpu<f32>>;

    /// One step moves a weight by 1/1000: a bf16 weight of 1 cannot take that up without a master copy.
    #[test]
    fn an_optimizer_in_both_wrappers_marks_each_step_and_moves_bf16_weights() {
        let device = TpuDevice::ndarray();
        let mut model: Linear<B> = LinearConfig::new(1, 1).with_bias(false).init(&device);
        model.weight = model.weight.map(|weight| weight.ones_like().cast(DType::BF16).detach().require_grad());
        let mut optimizer = MarkStep::new(MasterWeights::adapt(AdamConfig::new().init()));
        let marked = || device.metrics().cuts.get(&CutReason::MarkStep).copied().unwrap_or(0);
        let before = marked();
        for _ in 0..50 {
            let x = Tensor::<B, 2>::ones([1, 1], &device).cast(DType::BF16);
            let gradients = GradientsParams::from_grads(model.forward(x).sum().backward(), &model);
            model = optimizer.step(1e-3, model, gradients);
        }
        assert!(marked() >= before + 50);
        let weight = model.weight.val();
        assert_eq!(weight.dtype(), DType::BF16);
        let weight = weight.into_data().convert::<f32>().to_vec::<f32>().expect("one number")[0];
        assert!((0.945..0.955).contains(&weight), "{weight}");
    }
}
