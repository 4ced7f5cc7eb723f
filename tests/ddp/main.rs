//! Burn's own ways to use several devices: `ExecutionStrategy::ddp` and burn-collective.
//!
//! They need many more crates than the backend, so they have a feature of their own: `cargo test --workspace --features ddp --test ddp`.

#[path = "../common/mod.rs"]
mod common;

mod collective;
mod faults;
mod learner;
mod measure;
mod order;
mod training;

use burn::tensor::backend::distributed::{DistributedBackend, ReduceOperation};
use burn::tensor::backend::{DeviceId, DeviceOps};
use burn::tensor::{Tensor, TensorPrimitive};
use burn_tpu::{Tpu, TpuDevice, TpuOptions};
use std::sync::Once;
use std::time::Duration;

type Inner = Tpu<f32>;

/// The devices of the tests. The last two are for waits that end with an error.
const DEVICES: u16 = 6;

/// Returns the first `count` devices; none if the plugin is missing.
fn devices(count: u16) -> Option<Vec<TpuDevice>> {
    common::has_cpu_plugin().then(|| {
        start();
        (0..count).map(TpuDevice::cpu).collect()
    })
}

/// Returns two devices that wait for one another for two seconds only.
fn impatient() -> Option<Vec<TpuDevice>> {
    common::has_cpu_plugin().then(|| {
        start();
        (DEVICES - 2..DEVICES).map(TpuDevice::cpu).collect()
    })
}

fn start() {
    static START: Once = Once::new();
    START.call_once(|| {
        for index in 0..DEVICES {
            let limit = Duration::from_secs(if index < DEVICES - 2 { 300 } else { 2 });
            let options = TpuOptions::training().disk_cache(false).cpu_devices(DEVICES).peer_timeout(limit);
            options.install(&TpuDevice::cpu(index)).expect("no test has used the device");
        }
    });
}

fn ids(devices: &[TpuDevice]) -> Vec<DeviceId> {
    devices.iter().map(DeviceOps::id).collect()
}

/// Reduces over the devices, as a program does that uses Burn's backend directly.
fn all_reduce<const D: usize>(x: Tensor<Inner, D>, op: ReduceOperation, devices: &[TpuDevice]) -> Tensor<Inner, D> {
    let result = Inner::all_reduce(x.into_primitive().tensor(), op, ids(devices)).resolve();
    Tensor::from_primitive(TensorPrimitive::Float(result))
}

fn values<const D: usize>(x: Tensor<Inner, D>) -> Vec<f32> {
    x.into_data().to_vec().expect("f32")
}
