//! New programs with little work run in the interpreter, and are compiled when they come back often enough. What only reads
//! values of the host is always interpreted.

use crate::common;

use burn::tensor::backend::Backend;
use burn::tensor::{Tensor, TensorData, linalg};
use burn_ndarray::NdArray;
use burn_tpu::{Metrics, Platform, ShapeBuckets, Tpu, TpuDevice, TpuOptions, metrics};
use common::alone;

type B = Tpu<f32>;

/// Runs before a program is compiled.
const RUNS: u64 = 100;

/// Returns a device of the CPU plugin that interprets new programs; `None` if there is no plugin.
fn device() -> Option<TpuDevice> {
    common::cpu_with("training", TpuOptions::training().disk_cache(false).shape_buckets(ShapeBuckets::Off))
}

/// Returns what `work` adds to the numbers of interpreted and of compiled programs.
fn counted(device: &TpuDevice, work: impl FnOnce()) -> (u64, u64) {
    let count = |metrics: Metrics| (metrics.interpreted, metrics.compiles);
    let before = count(metrics(device));
    work();
    let after = count(metrics(device));
    (after.0 - before.0, after.1 - before.1)
}

/// Numbers from -0.5 to 0.5 that are the same on every backend.
fn table<B: Backend>(dims: [usize; 2], device: &B::Device) -> Tensor<B, 2> {
    let number = |i: usize| (((i + 1) * 104_729) % 1009) as f32 / 1009.0 - 0.5;
    Tensor::from_data(TensorData::new((0..dims[0] * dims[1]).map(number).collect::<Vec<_>>(), dims), device)
}

fn read<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> Vec<f32> {
    tensor.into_data().to_vec().expect("f32 data")
}

fn close(ours: &[f32], theirs: &[f32]) {
    assert_eq!(ours.len(), theirs.len());
    for (a, b) in ours.iter().zip(theirs) {
        assert!((a - b).abs() <= 1e-5 * (1.0 + b.abs()), "{a} and {b}");
    }
}

/// A small step: a layer, a softmax and a scalar that changes.
fn step<B: Backend>(weight: &Tensor<B, 2>, rows: usize, scale: f32) -> Vec<f32> {
    let x = table::<B>([rows, 6], &weight.device());
    read(burn::tensor::activation::softmax(x.matmul(weight.clone()) * scale, 1))
}

/// The same step of burn-ndarray.
fn expected(rows: usize, scale: f32) -> Vec<f32> {
    step::<NdArray<f32>>(&table([6, 4], &Default::default()), rows, scale)
}

/// Returns a tensor whose value is on the device: the result of a compiled program. Its operand is used again, so the op is
/// not computed at once.
fn on_device(dims: [usize; 2], device: &TpuDevice) -> Tensor<B, 2> {
    let given = table::<B>(dims, device);
    let weight = given.clone() * 1.0;
    device.mark_step();
    drop(given);
    weight
}

#[test]
fn a_program_that_comes_back_is_compiled_at_a_fixed_count() {
    let Some(device) = device() else { return };
    let _alone = alone();
    let weight = on_device([6, 4], &device);
    for run in 0..RUNS + 4 {
        let scale = run as f32;
        let mut ours = Vec::new();
        let counts = counted(&device, || ours = step(&weight, 5, scale));
        let runs = if run < RUNS { (1, 0) } else { (0, u64::from(run == RUNS)) };
        assert_eq!(counts, runs, "run {run}");
        close(&ours, &expected(5, scale));
    }
}

/// A chain of 600 nodes compiles for more than a second, and runs in a millisecond.
#[test]
fn a_long_compile_is_not_begun_before_as_many_runs_took_as_long() {
    let Some(device) = device() else { return };
    let _alone = alone();
    let weight = on_device([6, 4], &device);
    let counts = counted(&device, || {
        for _ in 0..RUNS + 10 {
            let chain = (0..300).fold(weight.clone(), |x, step| (x * 0.99).add_scalar(step as f32 / 1e3));
            drop(read(chain));
        }
    });
    assert_eq!(counts, (RUNS + 10, 0));
}

#[test]
fn programs_that_never_come_back_are_not_compiled() {
    let Some(device) = device() else { return };
    let _alone = alone();
    let weight = on_device([6, 4], &device);
    let counts = counted(&device, || (40..90).for_each(|rows| close(&step(&weight, rows, 1.0), &expected(rows, 1.0))));
    assert_eq!(counts, (50, 0));
}

#[test]
fn a_large_program_is_compiled_at_once() {
    let Some(device) = device() else { return };
    let _alone = alone();
    let product = || {
        let x = table::<B>([900, 900], &device);
        drop(read(x.clone().matmul(x)));
    };
    assert_eq!(counted(&device, product), (0, 1));
    assert_eq!(counted(&device, product), (0, 0));
}

/// Rows of changing numbers times a weight that a compiled program has read: on the CPU plugin, a copy costs less than a
/// compile.
#[test]
fn a_weight_on_the_device_is_copied_once_for_what_is_new() {
    let Some(device) = device().filter(|device| device.platform() == Platform::Cpu) else { return };
    let _alone = alone();
    let size = [400, 700];
    let weight = table::<B>(size, &device);
    let doubled = weight.clone() * 2.0;
    device.mark_step();
    let before = metrics(&device);
    let counts = counted(&device, || {
        for rows in 1..=3 {
            let product = table::<B>([rows, size[0]], &device).matmul(weight.clone());
            let expected = table::<NdArray<f32>>([rows, size[0]], &Default::default());
            close(&read(product), &read(expected.matmul(table(size, &Default::default()))));
        }
    });
    assert_eq!(counts, (3, 0));
    assert_eq!(metrics(&device).downloads - before.downloads, 1);
    drop(doubled);
}

#[test]
fn a_frozen_device_goes_on_interpreting_and_refuses_what_is_new() {
    let Some(device) = device() else { return };
    let _alone = alone();
    let weight = on_device([6, 4], &device);
    step(&weight, 7, 1.0);
    device.freeze();
    let counts = counted(&device, || (0..2 * RUNS).for_each(|_| drop(step(&weight, 7, 1.0))));
    let given = table::<B>([8, 8], &device);
    let refused = given.clone().sin().try_into_data();
    device.unfreeze();
    assert_eq!(counts, (2 * RUNS, 0));
    assert!(refused.is_err());
    assert_eq!(counted(&device, || drop(step(&weight, 7, 1.0))), (1, 0));
}

/// A state that a loop updates stays on the host while it is interpreted; what other tensors still hold is not changed.
#[test]
fn a_state_passes_from_the_interpreter_to_the_compiled_program() {
    let Some(device) = device() else { return };
    let _alone = alone();
    let weight = on_device([3, 3], &device);
    let mut state = table::<B>([3, 3], &device);
    let first = state.clone();
    let before = metrics(&device);
    let counts = counted(&device, || {
        for _ in 0..2 * RUNS {
            state = state.clone().matmul(weight.clone()) + 1.0;
            B::sync(&device).expect("it runs");
        }
    });
    assert_eq!(counts, (RUNS, 1));
    let after = metrics(&device);
    // The weight is fetched for each interpreted run. The state goes to the device once.
    assert_eq!((after.downloads - before.downloads, after.uploads - before.uploads), (RUNS, 1));
    let ndarray = Default::default();
    let (weight, start) = (table::<NdArray<f32>>([3, 3], &ndarray), table::<NdArray<f32>>([3, 3], &ndarray));
    close(&read(first), &read(start.clone()));
    close(&read(state), &read((0..2 * RUNS).fold(start, |state, _| state.matmul(weight.clone()) + 1.0)));
}

/// A marked step is expected to come back.
#[test]
fn a_marked_step_is_compiled_at_once() {
    let Some(device) = device() else { return };
    let _alone = alone();
    let given = table::<B>([3, 9], &device);
    let marked = || {
        let x = given.clone().cos();
        device.mark_step();
        drop(read(x));
    };
    assert_eq!(counted(&device, marked), (0, 1));
}

/// The loop over columns is one long recording, different for every size.
#[test]
fn a_factorisation_is_not_compiled() {
    let Some(device) = device() else { return };
    let _alone = alone();
    let size = [24, 40];
    let counts = counted(&device, || {
        let ours = linalg::lu::<B, 2, 1>(table(size, &device));
        let theirs = linalg::lu::<NdArray<f32>, 2, 1>(table(size, &Default::default()));
        close(&read(ours.0), &read(theirs.0));
        close(&read(ours.1), &read(theirs.1));
        close(&read(ours.2), &read(theirs.2));
    });
    assert_eq!(counts.1, 0);
}
