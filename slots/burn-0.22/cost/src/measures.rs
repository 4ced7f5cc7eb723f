//! The processor time of the recording thread's ops: by the backend's methods, and in a program that names a device.
//! Compiled against Burn 0.22 and 0.23; `benches/op_cost.rs` has the same for 0.21.

use backend::{Tpu, TpuDevice};
use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::optim::{AdamConfig, GradientsParams};
use burn::prelude::*;
use burn::tensor::activation::gelu;
use burn_backend::TensorData;
use burn_backend::ops::FloatTensorOps;
use std::time::{Duration, Instant};

/// The ops of a chain, each `x + y`.
const OPS: u32 = 1000;
/// The chains, or steps, of which the fastest counts.
const ROUNDS: usize = 30;

/// Prints ns per op of the backend's methods and of each device, with and without autodiff, and us per step.
pub fn print(tpu: &TpuDevice, devices: &[(&str, Device)]) {
    let names: Vec<_> = devices.iter().map(|(_, device)| format!("{device:?}")).collect();
    println!("devices: {}; ns per op, the fastest of {ROUNDS} chains of {OPS}", names.join(" and "));
    println!("{:<18} {:>6}", "methods", methods(tpu));
    for (name, device) in devices {
        println!("{name:<18} {:>6}", chain(device));
        println!("{:<18} {:>6}", format!("{name}, autodiff"), chain(&device.clone().autodiff()));
    }
    println!("us per step of 8 Linear, gelu and Adam: recorded, and with the loss read");
    for (name, device) in devices {
        let [recorded, read] = step(&device.clone().autodiff()).map(|time| time.as_micros());
        println!("{name:<18} {recorded:>6} {read:>6}");
    }
}

/// Returns the nanoseconds per op of the fastest round. What a round recorded runs after it.
fn fastest(mut round: impl FnMut() -> Duration) -> u128 {
    let best = (0..ROUNDS).map(|_| round()).min().unwrap_or_default();
    (best / OPS).as_nanos()
}

fn methods(device: &TpuDevice) -> u128 {
    let upload = || Tpu::float_from_data(TensorData::from([1.0f32; 8]), device);
    fastest(|| {
        let (mut x, y) = (upload(), upload());
        let begin = Instant::now();
        for _ in 0..OPS {
            x = Tpu::float_add(x, y.clone());
        }
        let time = begin.elapsed();
        x.to_data().expect("a read");
        time
    })
}

fn chain(device: &Device) -> u128 {
    fastest(|| {
        let (mut x, y) = (Tensor::<1>::from_floats([1.0; 8], device), Tensor::<1>::from_floats([1.0; 8], device));
        let begin = Instant::now();
        for _ in 0..OPS {
            x = x + y.clone();
        }
        let time = begin.elapsed();
        x.into_data();
        time
    })
}

#[derive(Module, Debug)]
struct Model {
    layers: Vec<Linear>,
}

/// Returns the time of the fastest step until all is recorded, and until the loss is on the host.
fn step(device: &Device) -> [Duration; 2] {
    let mut model = Model { layers: (0..8).map(|_| LinearConfig::new(16, 16).init(device)).collect() };
    let mut optimizer = AdamConfig::new().init();
    let numbers: Vec<f32> = (0..128).map(|i| (0.7 * i as f32).sin()).collect();
    let x = Tensor::<1>::from_floats(numbers.as_slice(), device).reshape([8, 16]);
    let mut best = [Duration::MAX; 2];
    for _ in 0..4 * ROUNDS {
        let begin = Instant::now();
        let y = model.layers.iter().fold(x.clone(), |x, layer| gelu(layer.forward(x)));
        let loss = y.powi_scalar(2).mean();
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(1e-3, model, gradients);
        let recorded = begin.elapsed();
        loss.into_data();
        best = [best[0].min(recorded), best[1].min(begin.elapsed())];
    }
    best
}
