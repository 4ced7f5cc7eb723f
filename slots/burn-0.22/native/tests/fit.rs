//! `fit` in programs of Burn 0.22 and 0.23: a step is recorded once and compiled for a slice that is not there. It needs
//! libtpu.

use burn::nn::{Linear, LinearConfig};
use burn::optim::{AdamConfig, GradientsParams};
use burn::prelude::*;
use burn::tensor::Distribution;
use burn_tpu::fit::{Fit, Verdict};
use burn_tpu::{Generation, TpuDevice, TpuOptimizer};

#[test]
fn a_training_step_fits_a_chip_that_is_not_there() {
    let (width, batch) = (512, 256);
    let fit = match Fit::new() {
        Ok(fit) => fit.slices([Generation::V5e.chip()]).samples(batch as u64),
        Err(error) => {
            assert!(std::env::var_os("BURN_TPU_REQUIRE_LIBTPU").is_none(), "{error}");
            return;
        }
    };
    let build = |tpu: &TpuDevice| {
        let device = Device::from(*tpu).autodiff();
        let model: Linear = LinearConfig::new(width, width).init(&device);
        (model, TpuOptimizer::new(AdamConfig::new().build()))
    };
    let step = |(model, mut optimizer): (Linear, _), tpu: &TpuDevice| {
        let device = Device::from(*tpu).autodiff();
        let x = Tensor::<2>::random([batch, width], Distribution::Default, &device);
        let loss = model.forward(x).powi_scalar(2).mean();
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        let model = TpuOptimizer::step(&mut optimizer, 1e-3, model, gradients);
        (model, optimizer)
    };
    let report = fit.run(build, step).expect("the step computes something");
    assert!(report.step.settled && report.step.programs == 1, "{:?}", report.step);
    // The forward pass and the weight's gradient.
    assert_eq!(report.step.matrix_flops, 2 * 2 * (batch * width * width) as u64);
    let [slice] = &report.slices[..] else { panic!("{report:?}") };
    assert_eq!(slice.verdict, Verdict::Fits);
    // Weight and two moments, and they are donated.
    let state = 3 * (width * width * 2) as u64;
    assert!(slice.memory.argument_bytes >= state && slice.memory.alias_bytes >= state, "{:?}", slice.memory);
}
