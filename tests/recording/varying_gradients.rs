//! Random models whose batch and length vary, under Autodiff: their losses and gradients are burn-flex's at every size, and
//! they run as families.

use crate::common::{self, alone, cpu_with};
use burn::backend::Autodiff;
use burn::tensor::activation::{gelu, log_softmax, relu, softmax};
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::module::{avg_pool1d, conv1d};
use burn::tensor::ops::ConvOptions;
use burn::tensor::{Int, Tensor, TensorData};
use burn_flex::Flex;
use burn_tpu::{Tpu, TpuOptions, metrics};

type Ours = Autodiff<Tpu<f32>>;
type Theirs = Autodiff<Flex>;

/// The features of every position.
const WIDTH: usize = 4;

/// The steps of a model.
const STEPS: usize = 7;

/// Batches and lengths. Three tell the family, and the others are of buckets.
const SIZES: [[usize; 2]; 7] = [[3, 5], [5, 11], [6, 7], [4, 9], [7, 3], [2, 8], [5, 6]];

fn tensor<B: AutodiffBackend, const D: usize>(dims: [usize; D], seed: usize, device: &B::Device) -> Tensor<B, D> {
    let value = |i: usize| (0.7 * (i + 3 * seed) as f32).sin() + 0.1 * ((i * 5 + seed) % 7) as f32;
    let values = (0..dims.iter().product()).map(value).collect();
    Tensor::from_data(TensorData::new::<f32, _>(values, dims), device)
}

/// Maps `[batch, length, WIDTH]` to the same dims, by the step of this number.
fn step<B: AutodiffBackend>(number: usize, x: Tensor<B, 3>, weight: &Tensor<B, 2>) -> Tensor<B, 3> {
    let ([batch, length, width], device) = (x.dims(), x.device());
    match number {
        0 => x.matmul(weight.clone().unsqueeze()),
        1 => softmax(x.clone().matmul(x.clone().swap_dims(1, 2)) / 2.0, 2).matmul(x),
        2 => {
            let centred = x.clone() - x.mean_dim(1);
            centred.clone() / (centred.powi_scalar(2).mean_dim(1) + 1e-3).sqrt()
        }
        3 => gelu(x),
        4 => softmax(x, 0) * 3.0,
        5 => x.clone() + x.slice([0..batch, length - 1..length, 0..width]),
        6 => {
            Tensor::cat(vec![x.clone().slice([0..batch, 1..length, 0..width]), x.slice([0..batch, 0..1, 0..width])], 1)
        }
        7 => x.clone().mask_fill(x.lower_elem(0.0), 0.25),
        8 => x.cumsum(1) * 0.2,
        9 => x.clone() - x.max_dim(1),
        10 => {
            let kernel = weight.clone().slice([0..width, 0..3]).unsqueeze_dim::<3>(1).repeat_dim(1, width);
            conv1d(x.swap_dims(1, 2), kernel, None, ConvOptions::new([1], [1], [1], 1)).swap_dims(1, 2)
        }
        11 => avg_pool1d(x.swap_dims(1, 2), 3, 1, 1, false, false).swap_dims(1, 2),
        12 => x.sort_descending(1),
        13 => {
            let last_first = Tensor::<B, 1, Int>::arange(0..length as i64, &device).neg() + (length as i64 - 1);
            x.select(1, last_first)
        }
        14 => x.reshape([batch * length, width]).matmul(weight.clone()).reshape([batch, length, width]),
        15 => x.flip([1]) * 0.9,
        16 => log_softmax(x, 1) * 0.5,
        17 => x.pad((0, 0, 1, 0), 0.5).slice([0..batch, 0..length, 0..width]),
        _ => x
            .clone()
            .zeros_like()
            .slice_assign([0..batch, 0..length - 1, 0..width], x.slice([0..batch, 1..length, 0..width])),
    }
}

/// Returns the loss of a random model, the gradient of its input, and the gradient of its weight.
fn gradients<B: AutodiffBackend>(seed: usize, [batch, length]: [usize; 2], device: &B::Device) -> Vec<f32> {
    let input = tensor::<B, 3>([batch, length, WIDTH], seed, device).require_grad();
    let weight = tensor::<B, 2>([WIDTH, WIDTH], seed + 1, device).require_grad();
    let (mut x, mut state) = (input.clone(), 1 + seed as u64);
    for _ in 0..STEPS {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        x = step(((state >> 33) % 19) as usize, x, &weight).tanh();
    }
    let loss = x.powi_scalar(2).mean();
    let found = loss.backward();
    let mut values = loss.into_data().to_vec::<f32>().expect("a loss");
    values.extend(input.grad(&found).expect("a gradient").into_data().iter::<f32>());
    // Not every model reads its weight.
    values.extend(weight.grad(&found).iter().flat_map(|gradient| gradient.to_data().to_vec::<f32>().expect("numbers")));
    values
}

#[test]
fn gradients_of_random_models_are_those_of_the_true_sizes() {
    let options = TpuOptions::training().interpret_from(0).disk_cache(false);
    let Some(device) = cpu_with("varying gradients", options) else { return };
    let _alone = alone();
    let (models, before) = (common::cases(4).cases, metrics(&device));
    for seed in 0..models as usize {
        for sizes in SIZES {
            let ours = gradients::<Ours>(seed, sizes, &device);
            let theirs = gradients::<Theirs>(seed, sizes, &Default::default());
            assert_eq!(ours.len(), theirs.len(), "model {seed}, {sizes:?}");
            for (place, (a, b)) in ours.iter().zip(&theirs).enumerate() {
                assert!(
                    (a - b).abs() <= 2e-5 * (1.0 + b.abs()),
                    "model {seed}, {sizes:?}, number {place}: {a} for {b}"
                );
            }
        }
    }
    let after = metrics(&device);
    let runs = after.bucket_runs - before.bucket_runs;
    // After three sizes, the other four run in buckets.
    assert!(runs >= 4 * u64::from(models), "{after}");
}

/// Returns the loss of a classifier that convolves over a sentence, and the gradients of its two kernels.
fn convolved_gradients<B: AutodiffBackend>([batch, length]: [usize; 2], device: &B::Device) -> Vec<f32> {
    let x = tensor::<B, 3>([batch, WIDTH, length], 1, device);
    let kernels = [2, 3].map(|seed| tensor::<B, 3>([WIDTH, WIDTH, 3], seed, device).require_grad());
    let [first, second] = kernels.clone();
    let x = relu(conv1d(x, first, None, ConvOptions::new([1], [1], [1], 1)));
    let x = conv1d(x, second, None, ConvOptions::new([1], [0], [1], 1));
    let loss = x.max_dim(2).powi_scalar(2).mean();
    let found = loss.backward();
    let mut values = loss.into_data().to_vec::<f32>().expect("a loss");
    for kernel in kernels {
        values.extend(kernel.grad(&found).expect("a gradient").into_data().iter::<f32>());
    }
    values
}

#[test]
fn a_network_that_convolves_over_a_length_trains_as_a_family() {
    let options = TpuOptions::training().interpret_from(0).disk_cache(false);
    let Some(device) = cpu_with("varying convolutions", options) else { return };
    let _alone = alone();
    let before = metrics(&device);
    for sizes in SIZES {
        let ours = convolved_gradients::<Ours>(sizes, &device);
        let theirs = convolved_gradients::<Theirs>(sizes, &Default::default());
        for (place, (a, b)) in ours.iter().zip(&theirs).enumerate() {
            assert!((a - b).abs() <= 2e-5 * (1.0 + b.abs()), "{sizes:?}, number {place}: {a} for {b}");
        }
    }
    let after = metrics(&device);
    // After two sizes, the other five run in buckets.
    assert_eq!(after.bucket_runs - before.bucket_runs, 5, "{after}");
}
