//! The device that the servers under test have, and what is in its memory.
#![allow(dead_code, reason = "each test file that includes this one uses a part")]

use burn_tpu_runtime::{Device, ShapeBuckets, TpuOptions};
use std::time::{Duration, Instant};

/// Returns the CPU plugin's device, on which every program runs as one: what is live is in its memory. `None` without the
/// plugin.
pub fn device() -> Option<Device> {
    burn_tpu_pjrt::testing::plugin(burn_tpu_pjrt::PluginKind::Cpu)?;
    let device = Device::cpu(0);
    // Tensors are found by their types, which are those of a bucket otherwise.
    let options = TpuOptions::default().interpret_from(0).disk_cache(false).shape_buckets(ShapeBuckets::Off);
    options.install(&device).ok();
    Some(device)
}

/// Returns the bytes of all live tensors `f32[len]`. Every test has a size of its own, since the device is one.
pub fn bytes_of(len: usize) -> u64 {
    let ty = format!("f32[{len}]");
    Device::cpu(0).memory().largest.iter().filter(|live| live.ty == ty).map(|live| live.bytes).sum()
}

/// Waits until no tensor `f32[len]` is live.
pub fn eventually_free(len: usize, patience: Duration) {
    let until = Instant::now() + patience;
    while bytes_of(len) > 0 {
        assert!(Instant::now() < until, "the tensors outlived their session\n{}", Device::cpu(0).memory());
        std::thread::sleep(Duration::from_millis(10));
    }
}
