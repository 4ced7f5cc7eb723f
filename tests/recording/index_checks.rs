//! Indices that are out of range are reported, with op, dim, size and line, where the device's options ask for it.

use crate::common;

use burn::tensor::{IndexingUpdateOp, Int, Tensor, TensorData};
use burn_tpu::{Tpu, TpuDevice, TpuOptions};
use common::{alone, counted};

type B = Tpu<f32>;

/// Returns a device that checks computed indices.
fn checked() -> Option<TpuDevice> {
    common::cpu_with("checked", TpuOptions::development())
}

/// Returns a matrix `[3, 4]`.
fn matrix(device: &TpuDevice) -> Tensor<B, 2> {
    Tensor::from_data(TensorData::new((0..12).map(|i| i as f32).collect(), [3, 4]), device)
}

/// Returns indices that the program computes: one more than these.
fn computed<const D: usize>(indices: impl Into<TensorData>, device: &TpuDevice) -> Tensor<B, D, Int> {
    Tensor::from_data(indices, device) + 1
}

fn error(x: Tensor<B, 2>) -> String {
    x.try_into_data().expect_err("an index is out of range").to_string()
}

fn assert_all(text: &str, parts: &[&str]) {
    for part in parts.iter().chain(&["tests/recording/index_checks.rs:"]) {
        assert!(text.contains(part), "{part:?} is not in {text:?}");
    }
}

#[test]
fn computed_indices_out_of_range_are_errors_of_the_read() {
    let Some(device) = checked() else { return };
    let _alone = alone();
    let x = || matrix(&device);
    let far = error(x().select(0, computed([0, 2, -1], &device)));
    assert_all(&far, &["select: an index for dim 0 of size 3", "the smallest is 0, the largest is 3"]);
    let below = error(x().gather(1, computed([[-2], [0], [1]], &device)));
    assert_all(&below, &["gather: an index for dim 1 of size 4", "the smallest is -1, the largest is 2"]);
    let by = || Tensor::<B, 2>::ones([3, 1], &device);
    let scattered = error(x().scatter(1, computed([[3], [0], [1]], &device), by(), IndexingUpdateOp::Add));
    assert_all(&scattered, &["scatter: an index for dim 1 of size 4", "the largest is 4"]);
    let rows = Tensor::<B, 2>::ones([1, 4], &device);
    let assigned = error(x().select_assign(0, computed([9], &device), rows, IndexingUpdateOp::Add));
    assert_all(&assigned, &["select_assign: an index for dim 0 of size 3", "the largest is 10"]);
    let embedded = burn::tensor::module::embedding(x(), computed([[2, 1]], &device));
    assert_all(&error(embedded.sum().unsqueeze()), &["embedding: an index for dim 0 of size 3"]);
    let nd: Tensor<B, 2> = x().gather_nd::<2, 1>(computed([[1, 4], [0, 0]], &device)).unsqueeze();
    assert_all(&error(nd), &["gather_nd: an index for dim 1 of size 4", "the smallest is 1, the largest is 5"]);
}

#[test]
fn an_error_is_reported_once_and_indices_in_range_cause_none() {
    let Some(device) = checked() else { return };
    let _alone = alone();
    let x = matrix(&device);
    let wrong = x.clone().select(0, computed([7], &device));
    device.mark_step();
    device.mark_step();
    assert_all(&device.sync().expect_err("at the sync").to_string(), &["select", "size 3", "the largest is 8"]);
    assert!(device.sync().is_ok(), "once");
    assert_eq!(wrong.into_data().to_vec::<f32>().expect("f32"), [8.0, 9.0, 10.0, 11.0], "the nearest valid index");
    let (right, count) = counted(&device, || x.select(0, computed([1], &device)).into_data());
    assert_eq!((right.to_vec::<f32>().expect("f32"), count.executions), (vec![8.0, 9.0, 10.0, 11.0], 1));
}

/// The error of a step reaches the thread that reads its loss.
#[test]
fn another_threads_read_returns_the_error() {
    let Some(device) = checked() else { return };
    let _alone = alone();
    let loss = matrix(&device).select(0, computed([5], &device)).sum();
    device.mark_step();
    let read = std::thread::spawn(move || loss.try_into_data().map(|_| ()).map_err(|error| error.to_string()));
    let error = read.join().expect("no panic").expect_err("an index is out of range");
    assert_all(&error, &["select", "the largest is 6"]);
}

#[test]
fn programs_are_the_same_unless_computed_indices_are_checked() {
    let Some(device) = checked() else { return };
    let _alone = alone();
    let Some(other) = common::cpu_with("unchecked", TpuOptions::development().check_indices(false)) else { return };
    let nodes = |device: &TpuDevice| {
        let work = || matrix(device).select(0, computed([0], device)).into_data();
        let (_, count) = counted(device, || drop(work()));
        count.nodes
    };
    let (with, without) = (nodes(&device), nodes(&other));
    assert!(with > without, "{with} and {without} nodes");
    let (_, count) = counted(&other, || drop(matrix(&other).select(0, computed([9], &other)).into_data()));
    assert_eq!(count.nodes, without, "and no error");
}
