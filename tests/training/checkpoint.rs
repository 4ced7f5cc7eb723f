//! A model whose blocks run twice has the gradients of one whose activations are kept.
#![allow(clippy::unwrap_used, reason = "tests")]

use crate::common;
use burn::backend::Autodiff;
use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::prelude::*;
use burn_tpu::{Checkpoints, Tpu, TpuDevice};
use burn_tpu_workspace::models::{Block, Gpt, GptConfig, Supervised, Tokens};

type I = Tpu<f32>;
type B = Autodiff<I>;

struct Compare {
    kept: GradientsParams,
    again: GradientsParams,
    parameters: usize,
}

impl ModuleVisitor<B> for Compare {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        let kept = self.kept.remove::<I, D>(param.id).unwrap().into_data();
        let again = self.again.remove::<I, D>(param.id).unwrap().into_data();
        again.assert_approx_eq::<f32>(&kept, burn::tensor::Tolerance::absolute(1e-6));
        self.parameters += 1;
    }
}

fn config() -> GptConfig {
    let config = GptConfig::new().with_layers(3).with_width(16).with_heads(2).with_feed_forward(32);
    config.with_sequence(8).with_batch(3).with_vocabulary(13)
}

#[test]
fn blocks_that_run_again_have_the_same_gradients() {
    let _alone = common::alone();
    let device = TpuDevice::ndarray();
    let model: Gpt<B> = config().init(&device);
    let batch = Tokens::synthetic(&config(), 0, &device);
    let kept = GradientsParams::from_grads(model.loss(batch.clone()).backward(), &model);
    let mut checkpoints = Checkpoints::new();
    let loss = model.loss_by(batch, |block, x, mask| {
        checkpoints.run(block, x, move |block: &Block<B>, x| block.forward(x, mask.clone()))
    });
    let again = checkpoints.backward(loss, &model);
    assert_eq!(again.len(), kept.len());
    let mut compare = Compare { kept, again, parameters: 0 };
    model.visit(&mut compare);
    assert_eq!(compare.parameters, 6 + 3 * 16);
}

/// Dropout drops the same elements in both runs.
#[test]
fn random_numbers_are_drawn_alike_in_both_runs() {
    let _alone = common::alone();
    // Another device than the other tests', which draw too.
    let device = common::interpreter_with("drawn", common::development());
    let layer = burn::nn::LinearConfig::new(64, 64).init::<B>(&device);
    let dropout = burn::nn::DropoutConfig::new(0.5).init();
    let x = Tensor::<B, 2>::ones([4, 64], &device);
    // Draws the weights.
    layer.forward(x.clone());
    B::seed(&device, 7);
    let kept = dropout.forward(layer.forward(x.clone())).sum();
    let kept = GradientsParams::from_grads(kept.backward(), &layer);
    B::seed(&device, 7);
    let mut checkpoints = Checkpoints::new();
    let y = checkpoints.run(&layer, x, |layer, x| dropout.forward(layer.forward(x)));
    let again = checkpoints.backward(y.sum(), &layer);
    let mut compare = Compare { kept, again, parameters: 0 };
    layer.visit(&mut compare);
    assert_eq!(compare.parameters, 2);
}

/// The result of a block that two others read has the sum of both gradients.
#[test]
fn a_result_that_is_read_twice_has_both_gradients() {
    let _alone = common::alone();
    let device = TpuDevice::ndarray();
    let layer = burn::nn::LinearConfig::new(2, 2).init::<B>(&device);
    let x = Tensor::<B, 2>::from_floats([[1.0, -2.0]], &device);
    let step = |x| layer.forward(x).tanh();
    let (a, b) = (step(x.clone()), step(step(x.clone())));
    let kept = GradientsParams::from_grads((a + b).sum().backward(), &layer);
    let mut checkpoints = Checkpoints::new();
    let mut step = |x| checkpoints.run(&layer, x, |layer, x| layer.forward(x).tanh());
    let a = step(x);
    let b = step(a.clone());
    let again = checkpoints.backward((a + b).sum(), &layer);
    let mut compare = Compare { kept, again, parameters: 0 };
    layer.visit(&mut compare);
    assert_eq!(compare.parameters, 2);
}
