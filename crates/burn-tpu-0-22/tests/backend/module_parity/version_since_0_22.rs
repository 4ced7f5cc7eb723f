//! What the rows need to know of Burn since 0.22: the same for 0.22 and 0.23, whose `version.rs` names the crate.

use super::{Device, TpuDevice, TpuOptions};
use burn_backend::ops::{MaxPool1dWithIndices, MaxPool2dWithIndices};
use burn_backend::tensor::FloatTensor;
use burn_backend::{Backend, IntDType};
use burn_tpu_runtime::IndexChecks;
use proptest::test_runner::{Config as ProptestConfig, RngSeed};

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
