//! What the rows need to know of Burn's version, here 0.23. `tests/numbers/module_parity/version.rs` is the same for Burn
//! 0.21.

use burn_backend::ops::{AttentionModuleOptions, CausalAlignment, MaxPool1dWithIndices, MaxPool2dWithIndices};
use burn_backend::tensor::FloatTensor;
use burn_backend::{Backend, IntDType};
use burn_tpu_0_23::{Device, TpuOptions};
use burn_tpu_runtime::IndexChecks;
use proptest::test_runner::{Config as ProptestConfig, RngSeed};

pub use burn_tpu_0_23::TpuDevice;

/// The backend under test.
pub type Ours = burn_tpu_0_23::Tpu;
/// The oracle.
pub type Cpu = burn_flex::Flex;

/// Whether ceil mode adds windows that begin after the input's end.
pub const CEIL_LEAVES_INPUT: bool = false;

/// Returns the CPU plugin's device, if the plugin is there.
pub fn device() -> Option<TpuDevice> {
    burn_tpu_pjrt::testing::plugin(burn_tpu_pjrt::PluginKind::Cpu)?;
    let device = Device::cpu(0);
    // Host fallback is denied; `ok` since another test may have installed the options.
    let options = TpuOptions::development().check_indices(IndexChecks::Host).check_numerics(false);
    options.cpu_devices(crate::CPU_DEVICES).install(&device).ok();
    Some(device.into())
}

pub fn interpreter() -> TpuDevice {
    Device::ndarray().into()
}

/// Each case is a program to compile, so the default number is small.
pub fn cases() -> ProptestConfig {
    let asked = |name| std::env::var(name).ok().and_then(|value: String| value.parse::<u64>().ok());
    ProptestConfig {
        cases: asked("PROPTEST_CASES").map_or(3, |asked| asked as u32),
        rng_seed: RngSeed::Fixed(asked("PROPTEST_RNG_SEED").unwrap_or(0)),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

pub fn max_pool1d_with_indices<B: Backend>(
    x: FloatTensor<B>,
    kernel: usize,
    stride: usize,
    padding: usize,
    dilation: usize,
    ceil: bool,
) -> MaxPool1dWithIndices<B> {
    B::max_pool1d_with_indices(x, kernel, stride, padding, dilation, ceil, IntDType::I32)
}

pub fn max_pool2d_with_indices<B: Backend>(
    x: FloatTensor<B>,
    kernel: [usize; 2],
    stride: [usize; 2],
    padding: [usize; 2],
    dilation: [usize; 2],
    ceil: bool,
) -> MaxPool2dWithIndices<B> {
    B::max_pool2d_with_indices(x, kernel, stride, padding, dilation, ceil, IntDType::I32)
}

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
