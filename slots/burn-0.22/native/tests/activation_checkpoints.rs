//! Blocks whose activations are computed again, in programs of Burn 0.22 and 0.23: they have the gradients of blocks whose
//! activations are kept.

use burn::module::{Module, ModuleVisitor, Param};
use burn::nn::{Dropout, DropoutConfig, Linear, LinearConfig};
use burn::optim::GradientsParams;
use burn::prelude::*;
use burn::tensor::Tolerance;
use burn_tpu::{Checkpoints, TpuDevice};
use std::sync::{Mutex, MutexGuard, PoisonError};

#[derive(Module, Debug)]
struct Model {
    blocks: Vec<Linear>,
    dropout: Dropout,
}

impl Model {
    fn new(device: &Device) -> Self {
        let blocks = (0..3).map(|_| LinearConfig::new(16, 16).init(device)).collect();
        Self { blocks, dropout: DropoutConfig::new(0.5).init() }
    }

    fn block(&self, block: &Linear, x: Tensor<2>) -> Tensor<2> {
        self.dropout.forward(block.forward(x)).tanh()
    }
}

struct Compare {
    kept: GradientsParams,
    again: GradientsParams,
    parameters: usize,
}

impl ModuleVisitor for Compare {
    fn visit_float<const D: usize>(&mut self, parameter: &Param<Tensor<D>>) {
        let kept = self.kept.remove::<D>(parameter.id).unwrap().into_data();
        let again = self.again.remove::<D>(parameter.id).unwrap().into_data();
        again.assert_approx_eq::<f32>(&kept, Tolerance::absolute(1e-6));
        self.parameters += 1;
    }
}

/// Numbers are drawn alike only if nobody else draws.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn blocks_that_run_again_have_the_same_gradients() {
    let _alone = alone();
    let plain = Device::from(TpuDevice::ndarray());
    for device in [plain.clone().autodiff(), plain.autodiff().gradient_checkpointing()] {
        let model = Model::new(&device);
        let input = || Tensor::<2>::ones([4, 16], &device) * 0.3;
        // Draws the weights.
        model.blocks.iter().fold(input(), |x, block| model.block(block, x));
        device.seed(7);
        let kept = model.blocks.iter().fold(input(), |x, block| model.block(block, x));
        let kept = GradientsParams::from_grads(kept.sum().backward(), &model);
        device.seed(7);
        let mut checkpoints = Checkpoints::new();
        let mut run = |x, block| checkpoints.run(block, x, |block, x| model.block(block, x));
        let y = model.blocks.iter().fold(input(), &mut run);
        let again = checkpoints.backward(y.sum(), &model);
        let mut compare = Compare { kept, again, parameters: 0 };
        model.visit(&mut compare);
        assert_eq!(compare.parameters, 6);
    }
}

/// The result of a block that two others read has the sum of both gradients.
#[test]
fn a_result_that_is_read_twice_has_both_gradients() {
    let _alone = alone();
    let device = Device::from(TpuDevice::ndarray()).autodiff();
    let layer = LinearConfig::new(2, 2).init(&device);
    let x = Tensor::<2>::from_floats([[1.0, -2.0]], &device);
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
