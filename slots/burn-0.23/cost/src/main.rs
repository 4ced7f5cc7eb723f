//! Measures what an op costs the host: by the backend's methods, in the slot and through a group of one device, in one
//! process. `cargo run --release -p burn-tpu-cost`.
//!
//! It owns nothing that another crate uses; `docs/burn-versions.md` has its figures.

#[path = "../../../burn-0.22/cost/src/measures.rs"]
mod measures;

use backend::{Tpu, TpuDevice};
use burn::prelude::Device;
use burn_dispatch::DispatchDevice;
use burn_group::GroupDevice;

fn main() {
    let tpu = TpuDevice::default();
    let group = GroupDevice::new::<Tpu>(&[tpu]).expect("one device is a group");
    let group = Device::new(DispatchDevice::from(group));
    measures::print(&tpu, &[("slot", Device::from(tpu)), ("group", group)]);
}
