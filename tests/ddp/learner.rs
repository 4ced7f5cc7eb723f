//! Training on several devices in Burn's Learner is training on one device with the whole batch.

use super::training::{Data, Model, MultiDeviceOptimKind, Way, fit, fit_by, optimizer};
use super::{Inner, devices};
use burn::backend::Autodiff;
use burn_tpu::{Mesh, Platform, TpuDevice, TpuOptimizer};

type B = Autodiff<Inner>;

const STEPS: usize = 12;

fn trained(model: &Model<B>, way: Way, devices: &[TpuDevice]) -> (Vec<f64>, Vec<f32>) {
    let (rows, items) = (4, 4 * STEPS * devices.len());
    fit(model.clone(), Data { items, rows, way, ..Data::default() }, devices)
}

/// Trains on one device with the batches that `count` devices have together.
fn alone(model: &Model<B>, count: usize, device: TpuDevice) -> (Vec<f64>, Vec<f32>) {
    let (rows, items) = (4 * count, 4 * STEPS * count);
    fit(model.clone(), Data { items, rows, dealt: count, way: Way::Single, ..Data::default() }, &[device])
}

fn difference(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

#[test]
fn ddp_trains_as_one_device_does() {
    let Some(all) = devices(4) else { return };
    let _alone = super::common::alone();
    for count in [2, 4] {
        let model = Model::<B>::new(&all[0]);
        let start = model.weights();
        let (one_losses, one) = alone(&model, count, all[0]);
        let (losses, weights) = trained(&model, Way::Ddp, &all[..count]);
        assert_eq!((one_losses.len(), losses.len()), (STEPS, count * STEPS));
        assert!(difference(&start, &one) > 1e-2, "nothing was learnt");
        let off = difference(&weights, &one);
        assert!(off < 1e-5, "the weights of {count} devices differ by {off}");
        let mean = |losses: &[f64]| losses.iter().sum::<f64>() / losses.len() as f64;
        let off = (mean(&losses) - mean(&one_losses)).abs();
        assert!(off < 1e-5, "the mean loss of {count} devices differs by {off}");
    }
}

/// The programs of a training are those of the one before, and all reductions of a step are one.
#[test]
fn the_programs_of_ddp_settle() {
    let Some(devices) = devices(2) else { return };
    let _alone = super::common::alone();
    let mesh = TpuDevice::mesh(Mesh::new().axis("data", 2).on(Platform::Cpu).devices(0..2));
    let model = Model::<B>::new(&devices[0]);
    let compiles = || devices.iter().chain([&mesh]).map(|device| device.metrics().compiles).collect::<Vec<_>>();
    trained(&model, Way::Ddp, &devices);
    let (before, executions) = (compiles(), mesh.metrics().executions);
    trained(&model, Way::Ddp, &devices);
    assert_eq!(compiles(), before, "compiles of cpu:0, cpu:1 and the mesh");
    assert_eq!(mesh.metrics().executions - executions, STEPS as u64);
}

/// With `TpuOptimizer`, which runs the update before the threads copy the model.
#[test]
fn the_programs_of_multi_device_settle() {
    let Some(devices) = devices(2) else { return };
    let _alone = super::common::alone();
    let model = Model::<B>::new(&devices[0]);
    let compiles = || devices.iter().map(|device| device.metrics().compiles).collect::<Vec<_>>();
    for kind in [MultiDeviceOptimKind::Main, MultiDeviceOptimKind::Sharded] {
        let data = Data { items: 4 * 2 * 130, way: Way::Multi(kind), ..Data::default() };
        // New programs are interpreted for up to a hundred runs, and then compiled. Which thread's gradients arrive first is
        // chance, so a rare program may come late.
        let settled = (0..8).any(|_| {
            let before = compiles();
            fit_by(TpuOptimizer::new(optimizer()), model.clone(), data, &devices);
            compiles() == before
        });
        assert!(settled, "each of eight trainings of 130 steps compiled something");
    }
}

/// Burn adds the gradients of the devices here, and does not divide them.
#[test]
fn multi_device_trains_alike_with_either_optimizer() {
    let Some(devices) = devices(2) else { return };
    let _alone = super::common::alone();
    let model = Model::<B>::new(&devices[0]);
    let [main, sharded] = [MultiDeviceOptimKind::Main, MultiDeviceOptimKind::Sharded]
        .map(|kind| trained(&model, Way::Multi(kind), &devices));
    assert_eq!((main.0.len(), sharded.0.len()), (2 * STEPS, 2 * STEPS));
    let off = difference(&main.1, &sharded.1);
    assert!(off < 1e-5, "the weights differ by {off}");
}
