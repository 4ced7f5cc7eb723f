//! A program of unmodified Burn 0.23 on burn-tpu through a group of one device, without the slot. Without the CPU plugin it
//! runs in the interpreter.

use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::optim::{AdamConfig, GradientsParams};
use burn::prelude::*;
use burn::tensor::activation::gelu;
use burn_dispatch::DispatchDevice;
use burn_group::GroupDevice;
use burn_tpu_0_23::{Tpu, TpuDevice};

#[derive(Module, Debug)]
struct Model {
    hidden: Linear,
    output: Linear,
}

impl Model {
    fn loss(&self, x: Tensor<2>) -> Tensor<1> {
        let target = x.clone().sum_dim(1);
        (self.output.forward(gelu(self.hidden.forward(x))) - target).powi_scalar(2).mean()
    }
}

#[test]
fn a_model_trains() {
    let tpu = TpuDevice::default();
    let group = GroupDevice::new::<Tpu>(&[tpu]).unwrap();
    let device = Device::new(DispatchDevice::from(group)).autodiff();
    device.seed(7);
    let mut model =
        Model { hidden: LinearConfig::new(4, 16).init(&device), output: LinearConfig::new(16, 1).init(&device) };
    let mut optimizer = AdamConfig::new().init();
    let numbers: Vec<f32> = (0..128).map(|i| (0.7 * i as f32).sin()).collect();
    let x = Tensor::<1>::from_floats(numbers.as_slice(), &device).reshape([32, 4]);
    let (mut losses, mut programs) = (Vec::new(), Vec::new());
    for _ in 0..60 {
        let loss = model.loss(x.clone());
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(3e-2, model, gradients);
        losses.push(loss.into_scalar::<f32>());
        let metrics = tpu.metrics();
        programs.push((metrics.executions + metrics.interpreted, metrics.compiles));
    }
    assert!(losses[59] < 0.02 * losses[0], "{losses:?}");
    assert_eq!(programs[59].0 - programs[4].0, 55, "a program a step: {programs:?}");
    assert_eq!(programs[59].1, programs[4].1, "later steps compile nothing: {programs:?}");
}
