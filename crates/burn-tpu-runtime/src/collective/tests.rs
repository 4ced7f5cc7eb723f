//! Reductions over two devices that one thread uses in turn: nothing may wait before the device that is asked last.

use super::{Reduction, all_reduce};
use crate::engine::open_ndarray;
use crate::ops::{arithmetic, data};
use crate::runtime::registry;
use crate::{Device, Function, Platform, Stream, Tensor, TpuOptions};
use burn_tpu_graph::op::BinaryOp;
use burn_tpu_graph::{DType, Number, TensorType};
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};
use std::time::Duration;

/// Two devices of their own.
fn devices() -> [Device; 2] {
    static NEXT: AtomicU16 = AtomicU16::new(3_000);
    let options = TpuOptions::training().peer_timeout(Duration::from_secs(1));
    [(); 2].map(|()| {
        let device = Device::new(Platform::NdArray, NEXT.fetch_add(1, Relaxed));
        registry::start_with(device, options.clone(), open_ndarray());
        device
    })
}

/// A value that its device has recorded and not computed.
fn pending(value: f32, device: &Device) -> Tensor {
    let bytes = value.to_le_bytes().to_vec();
    add(&data::from_bytes("tensor", TensorType::new(DType::F32, [1]), bytes, device), 0.5)
}

fn add(x: &Tensor, number: f64) -> Tensor {
    arithmetic::binary_scalar("add", BinaryOp::Add, x.clone(), Number::Float(number))
}

fn sum(value: f32, device: Device, devices: &[Device]) -> Tensor {
    all_reduce(pending(value, &device), Reduction::Sum, devices)
}

fn read(x: &Tensor) -> f32 {
    f32::from_le_bytes(data::into_bytes(x).expect("it runs").try_into().expect("one f32"))
}

#[test]
fn a_use_waits_for_the_other_devices_at_its_cut() {
    let devices @ [a, b] = devices();
    let first = sum(1.0, a, &devices);
    let used = add(&first, 10.0);
    let second = sum(2.0, b, &devices);
    assert_eq!((read(&used), read(&first), read(&second)), (14.0, 4.0, 4.0));
}

#[test]
fn a_use_of_what_another_stream_made_of_a_reduction_waits_at_its_cut() {
    let devices @ [a, b] = devices();
    let first = sum(1.0, a, &devices);
    let elsewhere = Stream::new().run(|| add(&first, 10.0));
    let used = add(&elsewhere, 100.0);
    let second = sum(2.0, b, &devices);
    assert_eq!((read(&used), read(&elsewhere), read(&second)), (114.0, 14.0, 4.0));
}

#[test]
fn a_compiled_function_takes_the_result_of_a_reduction() {
    let devices @ [a, b] = devices();
    let (first, _second) = (sum(1.0, a, &devices), sum(2.0, b, &devices));
    let function = Function::<()>::default();
    let arguments = vec![first];
    let recorded = function.recorded(a, 0, &arguments, &|tensors| ((), vec![add(&tensors[0], 10.0)]));
    let (_, results) = recorded.expect("it is pure").run(arguments).expect("it runs");
    assert_eq!(results.iter().map(read).collect::<Vec<_>>(), [14.0]);
}

#[test]
fn a_device_that_does_not_come_is_an_error_of_the_read() {
    let devices @ [a, b] = devices();
    let used = add(&sum(1.0, a, &devices), 10.0);
    let error = data::into_bytes(&used).expect_err("nobody came").to_string();
    assert!(error.contains(&format!("{b} did not call all_reduce within 1 s")), "{error}");
    // The group counts anew.
    let (first, second) = (sum(1.0, a, &devices), sum(2.0, b, &devices));
    assert_eq!((read(&first), read(&second)), (4.0, 4.0));
}
