//! Convolutions of one feature a group on the CPU plugin: as sums of products they are what they were, and faster.
//!
//! `cargo test --release --test numbers depthwise -- --ignored --nocapture` prints the times that decision 60 quotes.

use crate::common::cpu_with;
use burn::backend::Autodiff;
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::module::conv2d;
use burn::tensor::ops::ConvOptions;
use burn::tensor::{Tensor, TensorData};
use burn_tpu::{Optimization, Tpu, TpuDevice, TpuOptions, metrics};
use std::time::{Duration, Instant};

type B = Autodiff<Tpu<f32>>;

/// Features, size of the image, taps, stride.
type Case = [usize; 4];

fn tensor<B: AutodiffBackend>(dims: [usize; 4], device: &B::Device) -> Tensor<B, 4> {
    let values = (0..dims.iter().product()).map(|i| (0.37 * i as f32).sin()).collect();
    Tensor::from_data(TensorData::new::<f32, _>(values, dims), device)
}

/// Returns a convolution's result and the gradients of its input and its kernel.
fn results([features, size, taps, stride]: Case, device: &TpuDevice) -> Vec<Vec<f32>> {
    let x = tensor::<B>([2, features, size, size], device).require_grad();
    let kernel = tensor::<B>([features, 1, taps, taps], device).require_grad();
    let options = ConvOptions::new([stride; 2], [taps / 2; 2], [1; 2], features);
    let y = conv2d(x.clone(), kernel.clone(), None, options);
    let gradients = (y.clone() * y.clone().tanh()).sum().backward();
    let found = [y.inner(), x.grad(&gradients).expect("a gradient"), kernel.grad(&gradients).expect("a gradient")];
    found.map(|tensor| tensor.into_data().to_vec().expect("numbers")).into()
}

fn device(name: &str, level: Optimization) -> Option<TpuDevice> {
    cpu_with(name, TpuOptions::training().optimization(level).interpret_from(0).disk_cache(false))
}

#[test]
fn a_depthwise_convolution_and_its_gradients_are_those_of_every_level() {
    let (Some(plain), Some(rewritten)) = (device("off", Optimization::Off), device("on", Optimization::Balanced))
    else {
        return;
    };
    for case in [[6, 9, 3, 1], [6, 9, 3, 2], [5, 8, 5, 2], [4, 7, 7, 1]] {
        let (before, after) = (results(case, &plain), results(case, &rewritten));
        for (before, after) in before.iter().flatten().zip(after.iter().flatten()) {
            assert!((before - after).abs() <= 1e-5 * (1.0 + before.abs()), "{case:?}: {before} became {after}");
        }
    }
    let count = |device| metrics(device).rewrites.get("depthwise").copied().unwrap_or(0);
    assert_eq!((count(&plain), count(&rewritten)), (0, 12), "a convolution and two gradients of each case");
}

/// Returns the shortest of several runs.
fn time(case: Case, device: &TpuDevice) -> Duration {
    let run = |_| {
        let start = Instant::now();
        results(case, device);
        start.elapsed()
    };
    (0..6).map(run).min().unwrap_or_default()
}

#[test]
#[ignore = "a measurement"]
#[allow(clippy::print_stdout, reason = "a measurement prints its result")]
fn times_of_depthwise_convolutions() {
    let devices = [device("timed, off", Optimization::Off), device("timed, on", Optimization::Balanced)];
    let [Some(plain), Some(rewritten)] = devices else { return };
    for case in [[96, 112, 3, 1], [96, 112, 3, 2], [192, 28, 3, 1], [384, 14, 3, 1], [96, 56, 7, 1], [384, 14, 7, 1]] {
        let [before, after] = [&plain, &rewritten].map(|device| time(case, device).as_secs_f64() * 1e3);
        let compile = metrics(&rewritten).compile_time().as_secs_f64();
        println!("{case:?}: {before:.1} ms became {after:.1} ms; all compiles so far {compile:.2} s");
    }
}
