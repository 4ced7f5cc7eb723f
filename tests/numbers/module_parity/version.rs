//! What the rows need to know of Burn's version, here 0.21. `crates/burn-tpu-0-22/tests/backend/module_parity/version.rs`
//! is the same for Burn 0.22.

use burn_backend::Backend;
use burn_backend::ops::{MaxPool1dWithIndices, MaxPool2dWithIndices};
use burn_backend::tensor::FloatTensor;
use proptest::test_runner::Config as ProptestConfig;

pub use super::until_0_22::*;
pub use burn_tpu::TpuDevice;

/// The backend under test.
pub type Ours = burn_tpu::Tpu<f32>;
/// The oracle.
pub type Cpu = burn_ndarray::NdArray<f32, i32>;

/// Whether ceil mode adds windows that begin after the input's end.
pub const CEIL_LEAVES_INPUT: bool = true;

/// Returns the device under test, if its plugin is there.
pub fn device() -> Option<TpuDevice> {
    crate::common::device()
}

pub fn interpreter() -> TpuDevice {
    TpuDevice::ndarray()
}

/// Each case is a program to compile, so the default number is small.
pub fn cases() -> ProptestConfig {
    crate::common::cases(6)
}

pub fn max_pool1d_with_indices<B: Backend>(
    x: FloatTensor<B>,
    kernel: usize,
    stride: usize,
    padding: usize,
    dilation: usize,
    ceil: bool,
) -> MaxPool1dWithIndices<B> {
    B::max_pool1d_with_indices(x, kernel, stride, padding, dilation, ceil)
}

pub fn max_pool2d_with_indices<B: Backend>(
    x: FloatTensor<B>,
    kernel: [usize; 2],
    stride: [usize; 2],
    padding: [usize; 2],
    dilation: [usize; 2],
    ceil: bool,
) -> MaxPool2dWithIndices<B> {
    B::max_pool2d_with_indices(x, kernel, stride, padding, dilation, ceil)
}
