//! The collectives over two devices, which are Burn's defaults, and what a device can hold.

use crate::version::{self, Ours, TpuDevice};
use burn_backend::distributed::ReduceOperation;
use burn_backend::ops::*;
use burn_backend::{Backend, TensorData, TensorMetadata, read_sync};
use burn_tpu_0_23::{Device, TpuTensor};

/// Returns two devices of the CPU plugin, if it is there.
fn devices() -> Option<[TpuDevice; 2]> {
    let first = version::device()?;
    let options = burn_tpu_0_23::TpuOptions::development().cpu_devices(crate::CPU_DEVICES);
    options.install(&Device::cpu(4)).ok();
    Some([first, Device::cpu(4).into()])
}

fn floats(values: [f32; 4], device: &TpuDevice) -> TpuTensor {
    Ours::float_from_data(TensorData::from([[values[0], values[1]], [values[2], values[3]]]), device)
}

fn ints(values: [i32; 2], device: &TpuDevice) -> TpuTensor {
    Ours::int_from_data(TensorData::from(values), device)
}

fn read(tensors: Vec<TpuTensor>, devices: [TpuDevice; 2]) -> Vec<Vec<f32>> {
    assert_eq!(tensors.iter().map(TensorMetadata::device).collect::<Vec<_>>(), devices);
    tensors.into_iter().map(|x| x.to_data().unwrap().iter::<f32>().collect()).collect()
}

#[test]
fn floats_are_exchanged() {
    let Some(devices) = devices() else { return };
    let members = || vec![floats([1.0, 2.0, 3.0, 4.0], &devices[0]), floats([10.0, 20.0, 30.0, 40.0], &devices[1])];
    let sums = Ours::float_all_reduce(members(), ReduceOperation::Sum);
    assert_eq!(read(sums, devices), [[11.0, 22.0, 33.0, 44.0]; 2]);
    let means = Ours::float_all_reduce(members(), ReduceOperation::Mean);
    assert_eq!(read(means, devices), [[5.5, 11.0, 16.5, 22.0]; 2]);
    let gathered = Ours::float_all_gather(members(), 0);
    assert_eq!(read(gathered, devices), [[1.0, 2.0, 3.0, 4.0, 10.0, 20.0, 30.0, 40.0]; 2]);
    let scattered = Ours::float_reduce_scatter(members(), 0, ReduceOperation::Sum);
    assert_eq!(read(scattered, devices), [[11.0, 22.0], [33.0, 44.0]]);
    let exchanged = Ours::float_all_to_all(members(), 0, 1);
    assert_eq!(read(exchanged, devices), [[1.0, 2.0, 10.0, 20.0], [3.0, 4.0, 30.0, 40.0]]);
    let [first, _] = <[TpuTensor; 2]>::try_from(members()).unwrap();
    assert_eq!(read(Ours::float_broadcast(first, &devices), devices), [[1.0, 2.0, 3.0, 4.0]; 2]);
}

#[test]
fn integers_and_bools_are_exchanged() {
    let Some(devices) = devices() else { return };
    let members = || vec![ints([1, 2], &devices[0]), ints([4, 7], &devices[1])];
    assert_eq!(read(Ours::int_all_reduce(members(), ReduceOperation::Mean), devices), [[2.0, 4.0]; 2]);
    assert_eq!(read(Ours::int_all_gather(members(), 0), devices), [[1.0, 2.0, 4.0, 7.0]; 2]);
    assert_eq!(read(Ours::int_reduce_scatter(members(), 0, ReduceOperation::Sum), devices), [[5.0], [9.0]]);
    assert_eq!(read(Ours::int_all_to_all(members(), 0, 0), devices), [[1.0, 4.0], [2.0, 7.0]]);
    assert_eq!(read(Ours::int_broadcast(members().remove(1), &devices), devices), [[4.0, 7.0]; 2]);
    let bools = |at: usize, values: [bool; 2]| Ours::bool_from_data(TensorData::from(values), &devices[at]);
    let members = || vec![bools(0, [true, false]), bools(1, [true, true])];
    assert_eq!(read(Ours::bool_all_gather(members(), 0), devices), [[1.0, 0.0, 1.0, 1.0]; 2]);
    assert_eq!(read(Ours::bool_all_to_all(members(), 0, 0), devices), [[1.0, 1.0], [0.0, 1.0]]);
    assert_eq!(read(Ours::bool_broadcast(members().remove(0), &devices), devices), [[1.0, 0.0]; 2]);
}

/// XLA's CPU plugin states no limit, and the interpreter has no plugin.
#[test]
fn a_device_holds_what_its_plugin_states() {
    assert_eq!(Ours::memory_capacity(&TpuDevice::ndarray()), None);
    let Some([cpu, _]) = devices() else { return };
    let x = floats([1.0; 4], &cpu);
    assert_eq!(read_sync(Ours::float_into_data(x)).unwrap().iter::<f32>().sum::<f32>(), 4.0);
    let stated = cpu.memory().plugin.and_then(|plugin| plugin.limit);
    assert_eq!(Ours::memory_capacity(&cpu), stated);
}
