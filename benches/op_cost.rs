//! Measures what an op costs the host on Burn 0.21: `cargo bench --bench op_cost`.
//!
//! The chain and the step of `slots/burn-0.22/cost/src/measures.rs`, which measures later versions.
#![allow(clippy::print_stdout, reason = "a bench prints its results")]

use burn::backend::Autodiff;
use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::optim::{AdamConfig, GradientsParams, Optimizer};
use burn::prelude::*;
use burn::tensor::activation::gelu;
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::ops::FloatTensorOps;
use burn_tpu::{Tpu, TpuDevice};
use std::time::{Duration, Instant};

type Plain = Tpu<f32>;

/// The ops of a chain, each `x + y`.
const OPS: u32 = 1000;
/// The chains, or steps, of which the fastest counts.
const ROUNDS: usize = 30;

fn main() {
    let device = TpuDevice::default();
    println!("device {device}; ns per op, the fastest of {ROUNDS} chains of {OPS}");
    println!("methods            {:>6}", methods(&device));
    println!("tensors            {:>6}", chain::<Plain>(&device));
    println!("tensors, autodiff  {:>6}", chain::<Autodiff<Plain>>(&device));
    let [recorded, read] = step::<Autodiff<Plain>>(&device).map(|time| time.as_micros());
    println!("us per step of 8 Linear, gelu and Adam: recorded, and with the loss read");
    println!("tensors            {recorded:>6} {read:>6}");
}

/// Returns the nanoseconds per op of the fastest round. What a round recorded runs after it.
fn fastest(mut round: impl FnMut() -> Duration) -> u128 {
    let best = (0..ROUNDS).map(|_| round()).min().unwrap_or_default();
    (best / OPS).as_nanos()
}

fn methods(device: &TpuDevice) -> u128 {
    let upload = || Plain::float_from_data(TensorData::from([1.0f32; 8]), device);
    fastest(|| {
        let (mut x, y) = (upload(), upload());
        let begin = Instant::now();
        for _ in 0..OPS {
            x = Plain::float_add(x, y.clone());
        }
        let time = begin.elapsed();
        Plain::sync(device).expect("it runs");
        drop(x);
        time
    })
}

fn chain<B: Backend>(device: &B::Device) -> u128 {
    let upload = || Tensor::<B, 1>::from_floats([1.0; 8], device);
    fastest(|| {
        let (mut x, y) = (upload(), upload());
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
struct Model<B: Backend> {
    layers: Vec<Linear<B>>,
}

/// Returns the time of the fastest step until all is recorded, and until the loss is on the host.
fn step<B: AutodiffBackend>(device: &B::Device) -> [Duration; 2] {
    let mut model = Model::<B> { layers: (0..8).map(|_| LinearConfig::new(16, 16).init(device)).collect() };
    let mut optimizer = AdamConfig::new().init();
    let numbers: Vec<f32> = (0..128).map(|i| (0.7 * i as f32).sin()).collect();
    let x = Tensor::<B, 1>::from_floats(numbers.as_slice(), device).reshape([8, 16]);
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
