//! `LossScaler` of Burn 0.22 and 0.23. It runs in the interpreter.

use burn::module::{Module, Param};
use burn::optim::{AdamWConfig, GradientsParams, SgdConfig};
use burn::prelude::*;
use burn_tpu::{LossScaler, LossScaling, TpuDevice, TpuOptimizer};

#[derive(Module, Debug)]
struct Weight {
    weight: Param<Tensor<1>>,
}

impl Weight {
    fn new(device: &Device) -> Self {
        Self { weight: Param::from_tensor(Tensor::from_floats([1.0, 2.0], device)) }
    }

    fn values(&self) -> Vec<f32> {
        self.weight.val().into_data().iter::<f32>().collect()
    }

    fn loss(&self, factor: f32) -> Tensor<1> {
        (self.weight.val() * factor).sum()
    }
}

fn step(model: Weight, factor: f32, scaler: &mut LossScaler, optimizer: &mut TpuOptimizer) -> Weight {
    let loss = scaler.scale(model.loss(factor));
    let gradients = GradientsParams::from_grads(loss.backward(), &model);
    scaler.step(optimizer, 0.1, model, gradients)
}

#[test]
fn finite_steps_are_those_without_a_scale_and_others_are_skipped() {
    let tpu = TpuDevice::ndarray();
    let device = Device::from(tpu).autodiff();
    let scaling = LossScaling::new().with_first(1024.0).with_growth(2.0, 2);
    let (mut scaler, mut optimizer) = (LossScaler::new(scaling, &tpu), TpuOptimizer::new(SgdConfig::new().build()));
    let model = step(Weight::new(&device), 3.0, &mut scaler, &mut optimizer);
    let expected = [1.0 - 0.1 * 3.0, 2.0 - 0.1 * 3.0];
    assert!(model.values().iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6), "{:?}", model.values());

    let before = model.values();
    let model = step(model, f32::INFINITY, &mut scaler, &mut optimizer);
    assert_eq!(model.values(), before);
    let state = scaler.state().unwrap();
    assert_eq!((state.scale, state.steps), (512.0, 0.0));

    let model = step(model, 1.0, &mut scaler, &mut optimizer);
    let model = step(model, 1.0, &mut scaler, &mut optimizer);
    assert_eq!(scaler.state().unwrap().scale, 1024.0, "two finite steps in a row");
    assert_ne!(model.values(), before);
    let again = LossScaler::new(scaling, &tpu).with_state(state);
    assert_eq!(again.state().unwrap(), state);
}

#[test]
fn a_skipped_step_leaves_moments_as_they_are() {
    let tpu = TpuDevice::ndarray();
    let device = Device::from(tpu).autodiff();
    let optimizer = || TpuOptimizer::new(AdamWConfig::new().with_weight_decay(0.0).build());
    let scaling = LossScaling::new().with_first(8.0);
    let (mut scaler, mut skips) = (LossScaler::new(scaling, &tpu), optimizer());
    let skipped = step(Weight::new(&device), f32::NAN, &mut scaler, &mut skips);
    assert_eq!(skipped.values(), [1.0, 2.0]);
    // Without moments of the skipped step, the next update follows the sign of its gradient.
    let model = step(skipped, 3.0, &mut scaler, &mut skips);
    assert!(model.values().iter().all(|value| value.is_finite()), "{:?}", model.values());
    assert!(model.values()[0] < 1.0 && model.values()[1] < 2.0, "{:?}", model.values());
}
