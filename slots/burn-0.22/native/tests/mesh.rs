//! A mesh of CPU devices in programs of Burn 0.22 and 0.23: parameters that a rule places, activations with a hint, and
//! the losses of one device. It needs the CPU plugin.

use burn::module::{Module, Param, ParamId};
use burn::nn::{Linear, LinearConfig};
use burn::optim::{AdamWConfig, GradientsParams};
use burn::prelude::*;
use burn::tensor::TensorData;
use burn_tpu::{
    DeviceAdamW, Fsdp, Mesh, Patterns, Platform, TpuDevice, TpuError, TpuOptimizer, TpuOptions, compile_step, place,
    shard,
};
use std::sync::{Mutex, MutexGuard, PoisonError};

#[derive(Module, Debug)]
struct Model {
    hidden: Linear,
    output: Linear,
}

impl Model {
    fn new(device: &Device) -> Self {
        device.seed(7);
        let linear = |inputs, outputs| LinearConfig::new(inputs, outputs).init(device);
        Self { hidden: linear(8, 16), output: linear(16, 2) }
    }

    fn loss(&self, x: Tensor<2>) -> Tensor<1> {
        let hidden = shard(self.hidden.forward(x.clone()).tanh(), [Some("data"), None]);
        (self.output.forward(hidden) - x.slice([0..16, 0..2])).powi_scalar(2).mean()
    }
}

fn batch(step: usize, device: &Device) -> Tensor<2> {
    let values: Vec<f32> = (0..128).map(|i| ((i * 7 + step * 3) % 11) as f32 * 0.2 - 1.0).collect();
    Tensor::from_data(TensorData::new(values, [16, 8]), device)
}

/// Returns one device and a mesh of four, which no other test uses meanwhile: it would draw between a seed and the
/// weights. `None` without the plugin.
fn devices() -> Option<(MutexGuard<'static, ()>, TpuDevice, TpuDevice)> {
    static ALONE: Mutex<()> = Mutex::new(());
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    if TpuDevice::default().platform() == Platform::NdArray {
        return None;
    }
    let options = || TpuOptions::development().disk_cache(false).cpu_devices(4).interpret_from(0);
    let (one, mesh) = (TpuDevice::cpu(0), TpuDevice::mesh(Mesh::new().axis("data", 4).on(Platform::Cpu)));
    // The tests share the devices, and the first one sets them up.
    let _ = (options().install(&one), options().install(&mesh));
    Some((alone, one, mesh))
}

const STEPS: usize = 4;

fn recorded(mut model: Model, device: &Device) -> Vec<f32> {
    let mut optimizer = TpuOptimizer::new(AdamWConfig::new().build());
    let losses = (0..STEPS).map(|step| {
        let loss = model.loss(batch(step, device));
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(0.05, model.clone(), gradients);
        loss.into_scalar::<f32>()
    });
    losses.collect()
}

fn assert_near(ours: &[f32], theirs: &[f32]) {
    let near = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-5 * b.abs();
    assert!(ours.len() == theirs.len() && ours.iter().zip(theirs).all(near), "{ours:?}\n{theirs:?}");
}

#[test]
fn a_placed_model_trains_as_on_one_device() {
    let Some((_alone, one, mesh)) = devices() else { return };
    let (one, many) = (Device::from(one).autodiff(), Device::from(mesh).autodiff());
    let rule =
        Patterns::new().add("output.weight", [Some("data"), None]).otherwise(Fsdp { axis: "data", min_bytes: 0 });
    let model = place(Model::new(&many), &rule).expect("the sizes divide");
    assert!(model.hidden.weight.val().is_require_grad());
    assert_near(&recorded(model, &many), &recorded(Model::new(&one), &one));
    let executions = mesh.metrics().executions;
    assert!(executions >= STEPS as u64, "{executions}");
}

#[test]
fn a_compiled_step_keeps_the_places() {
    let Some((_alone, one, mesh)) = devices() else { return };
    let (one, many) = (Device::from(one).autodiff(), Device::from(mesh).autodiff());
    let model = place(Model::new(&many), &Fsdp { axis: "data", min_bytes: 0 }).expect("the sizes divide");
    let mut training = compile_step(model, DeviceAdamW::new(), |model: &Model, x| {
        let loss = model.loss(x);
        (loss.clone(), loss)
    });
    let losses: Vec<f32> =
        (0..STEPS).map(|step| training.run(0.05, batch(step, &many)).expect("pure").into_scalar::<f32>()).collect();
    assert_near(&losses, &recorded(Model::new(&one), &one));
}

#[test]
fn a_rule_that_does_not_fit_moves_nothing() {
    let Some((_alone, _, mesh)) = devices() else { return };
    let many = Device::from(mesh);
    let rule = Patterns::new().add("typo.*", [Some("data"), None]);
    let refused = place(Model::new(&many), &rule).map(drop).unwrap_err();
    assert!(matches!(refused, TpuError::Sharding { .. }) && refused.to_string().contains("typo"), "{refused}");
    let axis = place(Model::new(&many), &Fsdp { axis: "model", min_bytes: 0 }).map(drop).unwrap_err();
    assert!(matches!(axis, TpuError::Mesh { .. }), "{axis}");
}

#[derive(Module, Debug)]
struct Integers {
    table: Param<Tensor<2, Int>>,
}

#[test]
fn integers_are_placed_as_floats_are() {
    let Some((_alone, _, mesh)) = devices() else { return };
    let many = Device::from(mesh);
    let numbers: Vec<i32> = (0..32).collect();
    let module = |columns: usize| {
        let data = TensorData::new(numbers.clone(), [32 / columns, columns]);
        Integers { table: Param::initialized(ParamId::new(), Tensor::from_data(data, &many)) }
    };
    let rule = Patterns::new().add("table", [None, Some("data")]);
    let refused = place(module(1), &rule).map(drop).unwrap_err().to_string();
    assert!(refused.contains("table: dim 1 of i32"), "{refused}");
    let table = place(module(8), &rule).expect("the sizes divide").table.val();
    mesh.sync().expect("it is there");
    assert_eq!(table.into_data().try_to_vec::<i32>().expect("i32"), numbers);
}

#[test]
fn elsewhere_nothing_is_placed() {
    let device = Device::from(TpuDevice::ndarray()).autodiff();
    let model = place(Model::new(&device), &Fsdp { axis: "data", min_bytes: 0 }).expect("no mesh");
    assert!(model.loss(batch(0, &device)).into_scalar::<f32>().is_finite());
}
