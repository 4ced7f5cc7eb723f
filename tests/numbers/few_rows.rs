//! Attention of one token with a cache on the CPU plugin: as a product for each head it is what it was.

use crate::common::cpu_with;
use burn::tensor::activation::softmax;
use burn::tensor::{Tensor, TensorData};
use burn_tpu::{Optimization, Tpu, TpuDevice, TpuOptions, metrics};

type B = Tpu<f32>;

/// Heads of keys, queries that share one, positions, the size of a head.
const SIZES: [usize; 4] = [3, 3, 320, 64];

fn tensor(dims: [usize; 4], seed: f32, device: &TpuDevice) -> Tensor<B, 4> {
    let values = (0..dims.iter().product()).map(|place| (0.37 * place as f32 + seed).sin()).collect();
    Tensor::from_data(TensorData::new::<f32, _>(values, dims), device)
}

fn attention(device: &TpuDevice) -> Vec<f32> {
    let [heads, group, positions, head] = SIZES;
    let query = tensor([1, heads, group, head], 0.0, device);
    let [key, value] = [1.0, 2.0].map(|seed| tensor([1, heads, positions, head], seed, device));
    let weights = softmax(query.matmul(key.swap_dims(2, 3)) * 0.125, 3);
    weights.matmul(value).into_data().to_vec().expect("numbers")
}

#[test]
fn attention_of_a_token_is_a_product_for_each_head() {
    let options = |level| TpuOptions::training().optimization(level).interpret_from(0).disk_cache(false);
    let device = |name, level| cpu_with(name, options(level));
    let (Some(plain), Some(rewritten)) = (device("off", Optimization::Off), device("on", Optimization::Balanced))
    else {
        return;
    };
    for (before, after) in attention(&plain).into_iter().zip(attention(&rewritten)) {
        assert!((before - after).abs() <= 1e-6, "{before} became {after}");
    }
    let count = |device| metrics(device).rewrites.get("few_rows").copied().unwrap_or(0);
    assert_eq!((count(&plain), count(&rewritten)), (0, 2), "the scores and the values");
}
