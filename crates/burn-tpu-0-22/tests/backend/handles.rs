//! The backend methods about a device, tensors as handles, and what a session's programs depend on.

use burn_backend::ops::{FloatTensorOps, IntTensorOps, QTensorOps};
use burn_backend::quantization::{QuantScheme, QuantStore, QuantValue, ScaleDtype};
use burn_backend::tensor::IndexingUpdateOp;
use burn_backend::{
    Backend, DType, DTypeUsage, DeviceOps, FloatDType, IntDType, ProfileOptions, ProfileToken, Scalar, TensorData,
    TensorMetadata, read_sync,
};
use burn_ir::{BackendIr, TensorHandle};
use burn_std::stream::StreamId;
use burn_tpu_0_22::{Device, Tpu, TpuDevice, TpuOptions, TpuTensor};
use burn_tpu_runtime::IndexChecks;
use std::panic::AssertUnwindSafe;

type B = Tpu;

/// Returns a device of the CPU plugin for one test, if the plugin is there: tests that count must not share one.
fn cpu(index: u16) -> Option<TpuDevice> {
    burn_tpu_pjrt::testing::plugin(burn_tpu_pjrt::PluginKind::Cpu)?;
    for number in 1..4 {
        // `ok` since another test may have installed the options.
        let options = TpuOptions::development().check_indices(IndexChecks::Host).check_numerics(false);
        options.cpu_devices(crate::CPU_DEVICES).install(&Device::cpu(number)).ok();
    }
    Some(Device::cpu(index).into())
}

fn host() -> TpuDevice {
    Device::ndarray().into()
}

fn floats(values: &[f32], device: &TpuDevice) -> TpuTensor {
    B::float_from_data(TensorData::new(values.to_vec(), [values.len()]), device)
}

fn values(x: TpuTensor) -> Vec<f32> {
    read_sync(B::float_into_data(x)).expect("a read").try_to_vec().expect("f32")
}

#[test]
fn a_device_reports_its_name_and_its_element_types() {
    let device = host();
    assert_eq!(B::name(&device), "tpu<ndarray:0>");
    assert_eq!(B::device_count(DeviceOps::id(&device).type_id), 1);
    assert!(!B::ad_enabled(&device));
    for dtype in [DType::F32, DType::BF16, DType::F16, DType::F64, DType::I8, DType::U64] {
        assert!(B::supports_dtype(&device, dtype), "{dtype:?}");
    }
    let quantized = |scheme| B::dtype_usage(&device, DType::QFloat(scheme));
    assert!(quantized(QuantScheme::default()).contains(DTypeUsage::Storage));
    assert!(quantized(QuantScheme::default().with_value(QuantValue::E4M3)).is_empty());
    assert!(quantized(QuantScheme::default().per_block([32], ScaleDtype::F16)).is_empty());
    assert_eq!((B::memory_pool_report(&device), B::memory_pool_usage(&device)), (None, None));
}

#[test]
fn staging_and_persistent_allocations_keep_the_data() {
    let device = host();
    let mut data = TensorData::from([1.0f32, 2.0]);
    B::staging([&mut data].into_iter(), &device);
    let x = B::memory_persistent_allocations(&device, data.clone(), |data| B::float_from_data(data, &device));
    B::memory_cleanup(&device);
    assert_eq!(read_sync(B::float_into_data(x)).unwrap(), data);
}

#[test]
fn a_profile_is_measured_between_two_syncs_and_graphs_are_not_captured() {
    let device = host();
    let work = || values(B::float_add_scalar(floats(&[1.0], &host()), Scalar::Float(1.0)));
    let (found, _duration) = B::profile(&device, ProfileOptions::default(), work).unwrap();
    assert_eq!(found, [2.0]);
    assert!(B::profile_start(&device).unwrap().is_none());
    let token = ProfileToken { id: 1, opened_on: 0 };
    assert!(B::profile_end(&device, token, ProfileOptions::default()).is_err());
    B::profile_abandon(&device, token);
    B::graph_prepare(&device).unwrap();
    assert!(B::graph_start_capture(&device).is_err() && B::graph_stop_capture(&device).is_err());
    // There is no graph to replay: its type has no values.
    let _replay = B::graph_replay;
}

#[test]
fn a_handle_is_the_tensor() {
    let x = floats(&[1.0, 2.0], &host());
    let handle = TensorHandle { handle: B::float_tensor_handle(x.clone()), shape: x.shape() };
    assert_eq!(values(B::float_tensor(handle.clone())), [1.0, 2.0]);
    let wrong = std::panic::catch_unwind(AssertUnwindSafe(|| B::int_tensor(handle)))
        .expect_err("a float tensor is no int tensor");
    assert!(wrong.downcast_ref::<String>().is_some_and(|text| text.contains("kind float")));
    let scheme = QuantScheme::default().with_store(QuantStore::Native);
    let q = B::quantize_dynamic(x, &scheme);
    let handle = TensorHandle { handle: B::quantized_tensor_handle(q.clone()), shape: q.shape() };
    let back = values(B::dequantize(B::quantized_tensor(handle), FloatDType::F32));
    assert!((back[1] - 2.0).abs() < 0.01, "half a step of the scale");
    let ints = B::int_arange(0..3, &host(), IntDType::I32);
    let handle = TensorHandle { handle: B::int_tensor_handle(ints.clone()), shape: ints.shape() };
    assert_eq!(B::int_tensor(handle).device(), host());
}

/// A step of a linear model: a forward pass, a gradient, an update. Returns the new weights and the loss.
fn step(weights: TpuTensor, batch: &[f32], device: &TpuDevice) -> (TpuTensor, TpuTensor) {
    let x = floats(batch, device);
    let error =
        B::float_sub(B::float_mul(x.clone(), weights.clone()), B::float_mul_scalar(x.clone(), Scalar::Float(3.0)));
    let loss = B::float_mean(B::float_mul(error.clone(), error.clone()));
    let gradient = B::float_mul_scalar(B::float_mul(error, x), Scalar::Float(0.01));
    (B::float_sub(weights, gradient), loss)
}

#[test]
fn a_step_is_one_program_and_the_same_at_each_step() {
    let Some(device) = cpu(1) else { return };
    let mut weights = floats(&[0.0; 64], &device);
    let mut compiles = Vec::new();
    let before = device.metrics();
    for n in 0..12 {
        let (updated, loss) = step(weights, &[1.0 + n as f32 / 16.0; 64], &device);
        weights = updated;
        assert!(values(loss)[0].is_finite());
        compiles.push(device.metrics().compiles);
    }
    let after = device.metrics();
    assert_eq!(after.executions - before.executions, 12, "a read ends a program, and nothing else does");
    assert_eq!(compiles[4], compiles[11], "the later steps compile nothing: {compiles:?}");
    assert_eq!(after.host_fallbacks, 0);
}

#[test]
fn a_flush_and_a_marked_step_end_a_program_without_a_read() {
    let Some(device) = cpu(2) else { return };
    let mut weights = floats(&[0.0; 64], &device);
    let before = device.metrics().executions;
    for n in 0..6 {
        weights = step(weights, &[1.0; 64], &device).0;
        if n % 2 == 0 { B::flush(&device).unwrap() } else { device.mark_step() }
    }
    assert_eq!(device.metrics().executions - before, 6);
    B::sync(&device).unwrap();
}

/// A client trains on one of its threads and reads losses on another, at a time of its own.
#[test]
fn another_thread_of_a_client_does_not_move_where_programs_end() {
    let Some(device) = cpu(3) else { return };
    burn_tpu_0_22::follow_client_threads();
    let (training, metrics) = (StreamId { value: 71 }, StreamId { value: 72 });
    let run = |delay: usize| {
        let mut weights = training.executes(|| floats(&[0.0; 64], &device));
        let (mut losses, mut found) = (Vec::new(), Vec::new());
        for n in 0..8 {
            let (updated, loss) = training.executes(|| step(weights.clone(), &[1.0 + n as f32; 64], &device));
            // The handles of the server go with the ops of the thread that drops them.
            training.executes(|| weights = updated);
            losses.push(loss);
            if losses.len() > delay {
                let loss = losses.remove(0);
                found.push(metrics.executes(|| values(loss))[0]);
            }
            training.executes(|| B::flush(&device).unwrap());
        }
        training.executes(|| B::sync(&device).unwrap());
        (found, device.program_keys())
    };
    let (late, keys) = run(2);
    let (later, more) = run(2);
    assert_eq!((late.len(), &late, &keys), (6, &later, &more), "the same programs again");
    assert_eq!(device.metrics().host_fallbacks, 0);
}

#[test]
fn updates_assign_and_combine() {
    let device = host();
    let at = || B::int_from_data(TensorData::from([2i32, 0]), &device);
    let by = || floats(&[5.0, 7.0], &device);
    for (update, wanted) in [
        (IndexingUpdateOp::Assign, [7.0, 1.0, 5.0]),
        (IndexingUpdateOp::Mul, [7.0, 1.0, 10.0]),
        (IndexingUpdateOp::Min, [1.0, 1.0, 2.0]),
    ] {
        let x = floats(&[1.0, 1.0, 2.0], &device);
        assert_eq!(values(B::float_scatter(0, x, at(), by(), update)), wanted);
    }
}
