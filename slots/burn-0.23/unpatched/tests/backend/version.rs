//! What the rows need to know of Burn's version, here 0.23. `tests/numbers/module_parity/version.rs` is the same for Burn
//! 0.21.

use burn_backend::Backend;
use burn_backend::ops::{AttentionModuleOptions, CausalAlignment};
use burn_backend::tensor::FloatTensor;
use burn_tpu_0_23::{Device, TpuOptions};

pub use burn_tpu_0_23::TpuDevice;

/// The backend under test.
pub type Ours = burn_tpu_0_23::Tpu;
/// The oracle.
pub type Cpu = burn_flex::Flex;

#[path = "../../../../../crates/burn-tpu-0-22/tests/backend/module_parity/version_since_0_22.rs"]
mod version_since_0_22;

pub use version_since_0_22::*;

pub fn avg_pool1d<B: Backend>(
    x: FloatTensor<B>,
    [kernel, stride, padding]: [usize; 3],
    include: bool,
    ceil: bool,
) -> FloatTensor<B> {
    B::avg_pool1d(x, kernel, stride, padding, 1, include, ceil)
}

pub fn avg_pool1d_backward<B: Backend>(
    x: FloatTensor<B>,
    grad: FloatTensor<B>,
    [kernel, stride, padding]: [usize; 3],
    include: bool,
    ceil: bool,
) -> FloatTensor<B> {
    B::avg_pool1d_backward(x, grad, kernel, stride, padding, 1, include, ceil)
}

pub fn avg_pool2d<B: Backend>(
    x: FloatTensor<B>,
    [kernel, stride, padding]: [[usize; 2]; 3],
    include: bool,
    ceil: bool,
) -> FloatTensor<B> {
    B::avg_pool2d(x, kernel, stride, padding, [1, 1], include, ceil)
}

pub fn avg_pool2d_backward<B: Backend>(
    x: FloatTensor<B>,
    grad: FloatTensor<B>,
    [kernel, stride, padding]: [[usize; 2]; 3],
    include: bool,
    ceil: bool,
) -> FloatTensor<B> {
    B::avg_pool2d_backward(x, grad, kernel, stride, padding, [1, 1], include, ceil)
}

pub fn attention_options(scale: Option<f64>, softcap: Option<f64>, is_causal: bool) -> AttentionModuleOptions {
    let causal_alignment = CausalAlignment::default();
    AttentionModuleOptions { scale, softcap, is_causal, causal_alignment }
}
