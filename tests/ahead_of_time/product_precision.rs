//! What a TPU pays for the precision of products, and that `fit` compiles what a scope asks for.

use crate::common;

use burn::tensor::{Distribution, Tensor};
use burn_tpu::fit::Fit;
use burn_tpu::{Generation, Precision, Tpu, TpuDevice, with_precision};

type Matrix = Tensor<Tpu<f32>, 2>;

/// Returns the compiler's estimate of a product of 1,024 x 1,024 f32 matrices on a v5e.
fn cycles(precision: Precision) -> u64 {
    let fit = Fit::new().expect("libtpu").slices([Generation::V5e.chip()]);
    let build = |device: &TpuDevice| Matrix::random([1024, 1024], Distribution::Default, device);
    let report = fit.run(build, |x: Matrix, _| with_precision(precision, || x.clone().matmul(x))).expect("a step");
    report.slices[0].speed.and_then(|speed| speed.estimated_cycles).expect("the compiler estimates it")
}

#[test]
fn more_exact_products_cost_more_cycles() {
    if !common::has_libtpu() {
        return;
    }
    let [default, high, highest] = [Precision::Default, Precision::High, Precision::Highest].map(cycles);
    assert!(2 * default < high && high < highest && highest < 10 * default, "{default}, {high} and {highest} cycles");
}
