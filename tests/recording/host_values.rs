//! Values that come from the host stay there until a compiled program reads them, and what is assembled from them is
//! assembled on the host: counts of transfers and compiles, and the results of burn-ndarray.

use crate::common;

use burn::tensor::backend::Backend;
use burn::tensor::{Bool, Int, Tensor, TensorData};
use burn_ndarray::NdArray;
use burn_tpu::{Metrics, Tpu, TpuDevice, TpuOptions, metrics};
use common::alone;

type B = Tpu<f32>;

/// Returns a device of the CPU plugin with the options of training; `None` if there is no plugin.
fn device() -> Option<TpuDevice> {
    common::cpu_with("training", TpuOptions::training().disk_cache(false))
}

/// Returns what `work` adds to the numbers of transfers to the device, of transfers from it, and of compiles.
fn counted(device: &TpuDevice, work: impl FnOnce()) -> (u64, u64, u64) {
    let count = |metrics: Metrics| (metrics.uploads, metrics.downloads, metrics.compiles);
    let before = count(metrics(device));
    work();
    let after = count(metrics(device));
    (after.0 - before.0, after.1 - before.1, after.2 - before.2)
}

fn number(i: usize) -> f32 {
    (((i + 1) * 104_729) % 1009) as f32 / 1009.0 - 0.5
}

fn table<B: Backend, const D: usize>(dims: [usize; D], device: &B::Device) -> Tensor<B, D> {
    let count = dims.iter().product();
    Tensor::from_data(TensorData::new((0..count).map(number).collect::<Vec<_>>(), dims), device)
}

fn read<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> Vec<f32> {
    tensor.into_data().to_vec().expect("f32 data")
}

fn close(ours: &[f32], theirs: &[f32]) {
    assert_eq!(ours.len(), theirs.len());
    for (a, b) in ours.iter().zip(theirs) {
        assert!((a - b).abs() <= 1e-4 * (1.0 + b.abs()), "{a} and {b}");
    }
}

/// A step: of a weight with a thousand rows, enough work to be compiled at once.
fn step<B: Backend>(weight: &Tensor<B, 2>, batch: Tensor<B, 2>) -> Tensor<B, 2> {
    batch.matmul(weight.clone()).tanh().matmul(weight.clone()) * 0.1
}

#[test]
fn a_value_that_no_program_reads_is_never_transferred() {
    let (Some(device), Some(other)) = (device(), common::cpu()) else { return };
    let _alone = alone();
    let before = metrics(&device).waiting_bytes;
    let counts = counted(&device, || {
        let x = table::<B, 2>([10, 10], &device);
        assert_eq!(metrics(&device).waiting_bytes - before, 400);
        assert_eq!(read(x.clone()), read(x.clone().reshape([100])));
        let y = x.clone().to_device(&other).to_device(&device);
        assert_eq!(read(x), read(y));
    });
    assert_eq!(counts, (0, 0, 0));
    assert_eq!(metrics(&device).waiting_bytes, before, "what is dropped no longer waits");
}

#[test]
fn a_value_is_transferred_once_and_its_memory_is_donated() {
    let Some(device) = device() else { return };
    let _alone = alone();
    let weight = table::<B, 2>([1000, 1000], &device);
    let counts = counted(&device, || {
        for _ in 0..3 {
            drop(read(step(&weight, weight.clone()).narrow(0, 0, 1)));
        }
    });
    assert_eq!(counts, (1, 3, 1));
    // Nothing else holds the state, so the program writes into its memory.
    let before = metrics(&device).donated_bytes;
    let state = table::<B, 2>([1000, 1000], &device) * 0.5 + 0.25;
    device.mark_step();
    assert_eq!(metrics(&device).donated_bytes - before, 1000 * 1000 * 4);
    drop(state);
}

/// As the batcher of Burn's guide does it.
fn stacked<B: Backend>(seed: usize, device: &B::Device) -> Tensor<B, 2> {
    let item = |i: usize| {
        let numbers = (0..200).map(|j| number(seed * 64 + i * 200 + j)).collect::<Vec<_>>();
        let image = Tensor::<B, 1>::from_data(TensorData::new(numbers, [200]), device);
        ((image.reshape([1, 200]) / 255) - 0.1307) / 0.3081
    };
    Tensor::cat((0..64).map(item).collect(), 0)
}

#[test]
fn a_batch_that_is_stacked_item_by_item_is_one_transfer() {
    let Some(device) = device() else { return };
    let _alone = alone();
    let weight = table::<B, 2>([200, 200], &device);
    let reference = table::<NdArray<f32>, 2>([200, 200], &Default::default());
    let mut run = |seed: usize| {
        let result = step(&weight, stacked(seed, &device));
        device.mark_step();
        close(&read(result), &read(step(&reference, stacked(seed, &Default::default()))));
    };
    (0..4).for_each(&mut run);
    let counts = counted(&device, || (4..10).for_each(&mut run));
    assert_eq!(counts, (6, 6, 0));
}

/// Returns what `work` adds to the numbers of ops that were computed at once, and of ops that were recorded.
fn ops(device: &TpuDevice, work: impl FnOnce()) -> (u64, u64) {
    let count = |metrics: Metrics| (metrics.ops_at_once, metrics.recorded_ops);
    device.sync().expect("nothing failed");
    let before = count(metrics(device));
    work();
    device.sync().expect("nothing fails");
    let after = count(metrics(device));
    (after.0 - before.0, after.1 - before.1)
}

#[test]
fn an_op_on_small_values_that_nothing_else_holds_is_computed_at_once() {
    let Some(device) = device() else { return };
    let _alone = alone();
    let reference = read(stacked::<NdArray<f32>>(7, &Default::default()));
    let batch = ops(&device, || close(&read(stacked::<B>(7, &device)), &reference));
    assert_eq!(batch, (64 * 4 + 1, 0), "a reshape and three scalars for each item, and the joining");
    let kept = table::<B, 1>([10], &device);
    let again = ops(&device, || drop(read(kept.clone() * 2.0)));
    assert_eq!(again, (0, 1), "the value is used again, perhaps at every step");
    let large = ops(&device, || drop(read(table::<B, 2>([64, 64], &device) * 2.0)));
    assert_eq!(large, (0, 1), "the work is the device's");
    let computed = kept * 2.0;
    let of_a_result = ops(&device, || drop(read((computed + 1.0).exp())));
    assert_eq!(of_a_result, (2, 0));
}

#[test]
fn an_op_is_computed_at_once_also_while_much_waits() {
    let Some(device) = device() else { return };
    let _alone = alone();
    let reference = read(stacked::<NdArray<f32>>(7, &Default::default()));
    // As much as a device lets wait: what follows is transferred when it is made.
    let elements = (64 << 20) - 100;
    let waits = Tensor::<B, 1>::from_data(TensorData::new(vec![0.0f32; elements], [elements]), &device);
    let batch = ops(&device, || close(&read(stacked::<B>(7, &device)), &reference));
    assert_eq!(batch, (64 * 4 + 1, 0));
    drop(waits);
}

#[test]
fn values_side_by_side_are_right_along_every_dim() {
    let Some(device) = device() else { return };
    let _alone = alone();
    fn joined<B: Backend>(dims: [usize; 3], dim: usize, device: &B::Device) -> Tensor<B, 3> {
        let [a, b, c] = dims;
        let item = |_: usize| table::<B, 1>([a * b * c], device).reshape(dims);
        Tensor::cat((0..3).map(item).collect(), dim)
    }
    for (dims, dim) in [([2, 3, 4], 0), ([1, 3, 4], 1), ([2, 3, 4], 1), ([1, 1, 4], 2), ([1, 3, 4], 2)] {
        let expected = joined::<NdArray<f32>>(dims, dim, &Default::default());
        let counts = ops(&device, || close(&read(joined::<B>(dims, dim, &device)), &read(expected)));
        assert_eq!(counts, (4, 0), "three reshapes and the joining of {dims:?} along {dim}");
    }
}

#[test]
#[should_panic(expected = "float_add")]
fn the_error_of_an_op_that_is_computed_at_once_names_it() {
    let device = device().expect("float_add: no plugin");
    let _alone = alone();
    let sum = table::<B, 1>([2], &device).add(table::<B, 1>([2], &device).cast(burn::tensor::DType::F64));
    drop(sum);
}

/// As Burn's `generate_padding_mask` does it, for lengths that differ at every step.
fn mask<B: Backend>(seed: usize, device: &B::Device) -> Tensor<B, 2, Bool> {
    let mut rows = Tensor::<B, 2, Int>::zeros([16, 24], device);
    for row in 0..16 {
        let length = 1 + (seed * 31 + row * 17) % 24;
        let tokens = Tensor::<B, 1, Int>::ones([length], device).reshape([1, length]);
        rows = rows.slice_assign([row..row + 1, 0..length], tokens);
    }
    rows.equal_elem(0)
}

#[test]
fn a_step_with_a_new_mask_is_compiled_twice() {
    let Some(device) = device() else { return };
    let _alone = alone();
    // On the device, as the weights of a step before: the op is recorded, since its operand is used again.
    let given = table::<B, 2>([24, 24], &device);
    let weight = given.clone() * 1.0;
    device.mark_step();
    drop(given);
    let reference = table::<NdArray<f32>, 2>([24, 24], &Default::default());
    fn masked<B: Backend>(weight: &Tensor<B, 2>, mask: Tensor<B, 2, Bool>) -> Tensor<B, 2> {
        let scores = weight.clone().narrow(0, 0, 16).mask_fill(mask, 0.0);
        step(weight, scores)
    }
    let before = metrics(&device).host_parts;
    let counts = counted(&device, || {
        for seed in 0..12 {
            let ours = masked(&weight, mask(seed, &device));
            device.mark_step();
            close(&read(ours), &read(masked(&reference, mask(seed, &Default::default()))));
        }
    });
    assert_eq!(counts.2, 2, "compiles");
    assert_eq!(metrics(&device).host_parts - before, 11);
}

/// A step that transfers images and targets is what it was: one program, without a part on the host.
#[test]
fn a_step_with_few_transfers_is_not_split() {
    let Some(device) = device() else { return };
    let _alone = alone();
    let weight = table::<B, 2>([128, 128], &device);
    let before = metrics(&device).host_parts;
    let counts = counted(&device, || {
        for _ in 0..8 {
            drop(step(&weight, table([64, 128], &device)));
            let result = step(&weight, table([64, 128], &device));
            device.mark_step();
            drop(result);
        }
    });
    assert_eq!(counts, (1 + 8, 0, 1));
    assert_eq!(metrics(&device).host_parts, before);
}
