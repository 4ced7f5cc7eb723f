//! Measures what an op costs the host in the slot: `cargo run --release -p burn-tpu-cost`.
//!
//! It owns nothing that another crate uses; `docs/burn-versions.md` has its figures.

mod measures;

use backend::TpuDevice;
use burn::prelude::Device;

fn main() {
    let tpu = TpuDevice::default();
    measures::print(&tpu, &[("slot", Device::from(tpu))]);
}
