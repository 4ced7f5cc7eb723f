//! What a step costs on a mesh, with `MultiDevice` and with `ddp`: the same model and the same batch, in turns.
//!
//!     cargo test --release --workspace --features ddp --test ddp -- --ignored --nocapture measure
#![allow(clippy::print_stdout, reason = "a measurement prints its results")]

use super::training::{Data, Model, MultiDeviceOptimKind, Way, fit};
use super::{Inner, devices};
use burn::backend::Autodiff;
use burn::module::Module;
use burn_tpu::{Mesh, Platform, TpuDevice};
use std::time::Instant;

const STEPS: usize = 100;
const ROUNDS: usize = 5;
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
    for round in 0..=ROUNDS {
        let mut line = Vec::new();
        for (name, way, devices) in ways {
            let model = model.clone().fork(&devices[0]);
            let rows = ROWS * 2 / devices.len();
            let data = Data { items: STEPS * ROWS * 2, rows, way, ..Data::default() };
            let begun = Instant::now();
            let (losses, _) = fit(model, data, devices);
            assert_eq!(losses.len(), STEPS * devices.len());
            line.push(format!("{name} {:.2} ms", begun.elapsed().as_secs_f64() * 1000.0 / STEPS as f64));
        }
        println!("{}: {}", if round == 0 { "with compiles" } else { "warm" }, line.join(", "));
    }
}
