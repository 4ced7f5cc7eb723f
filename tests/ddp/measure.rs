//! What a step costs on a mesh, with `MultiDevice` and with `ddp`: the same model and the same batch, in turns.
//!
//!     cargo test --release --workspace --features ddp --test ddp -- --ignored --nocapture measure
#![allow(clippy::print_stdout, reason = "a measurement prints its results")]

use super::training::{Data, Model, MultiDeviceOptimKind, Way, fit_by, optimizer};
use super::{Inner, devices};
use burn::backend::Autodiff;
use burn::module::Module;
use burn_tpu::{Mesh, Platform, TpuDevice, TpuOptimizer};
use std::time::Instant;

const STEPS: usize = 100;
const ROUNDS: usize = 7;
/// Rows of each of the two devices.
const ROWS: usize = 32;

#[test]
#[ignore = "a measurement"]
fn the_mesh_multi_device_and_ddp_in_turns() {
    let Some(devices) = devices(2) else { return };
    let _alone = super::common::alone();
    let mesh = TpuDevice::mesh(Mesh::new().axis("data", 2).on(Platform::Cpu).devices(0..2));
    let model = Model::<Autodiff<Inner>>::of_width(256, &devices[0]);
    let ways = [
        ("one device", Way::Single, &devices[..1]),
        ("mesh", Way::Single, &[mesh][..]),
        ("MultiDevice", Way::Multi(MultiDeviceOptimKind::Main), &devices[..]),
        ("ddp", Way::Ddp, &devices[..]),
    ];
    let compiles = || devices.iter().chain([&mesh]).map(|device| device.metrics().compiles).sum::<u64>();
    for round in 0..=ROUNDS {
        let mut line = Vec::new();
        for (name, way, devices) in ways {
            let model = model.clone().fork(&devices[0]);
            let rows = ROWS * 2 / devices.len();
            let data = Data { items: STEPS * ROWS * 2, rows, way, ..Data::default() };
            let (begun, before) = (Instant::now(), compiles());
            let (losses, _) = fit_by(TpuOptimizer::new(optimizer()), model, data, devices);
            assert_eq!(losses.len(), STEPS * devices.len());
            let step_ms = begun.elapsed().as_secs_f64() * 1000.0 / STEPS as f64;
            line.push(format!("{name} {step_ms:.2} ms ({} compiles)", compiles() - before));
        }
        println!("{}: {}", if round == 0 { "with compiles" } else { "warm" }, line.join(", "));
    }
}
