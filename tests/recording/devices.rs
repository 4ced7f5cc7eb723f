//! The backend methods about a device: its name, its element types, and the hooks that Burn calls around data.

use crate::common;

use burn_backend::ops::FloatTensorOps;
use burn_backend::quantization::QuantScheme;
use burn_backend::{Backend, DType, DTypeUsage, DeviceOps, TensorData, try_read_sync};
use burn_tpu::Tpu;

type B = Tpu<f32>;

#[test]
fn a_device_reports_its_name_and_its_element_types() {
    let _alone = common::alone();
    let Some(device) = common::cpu() else { return };
    assert_eq!(B::name(&device), format!("tpu<{device}>"));
    assert_eq!(B::device_count(DeviceOps::id(&device).type_id), usize::from(common::CPU_DEVICES));
    assert!(!B::ad_enabled(&device));
    for dtype in [DType::F32, DType::BF16, DType::F16, DType::F64, DType::I8, DType::U64] {
        assert!(B::supports_dtype(&device, dtype), "{dtype:?}");
    }
    let quantized = DType::QFloat(QuantScheme::default());
    assert!(B::dtype_usage(&device, quantized).contains(DTypeUsage::Storage));
    assert!(!B::supports_dtype(&device, quantized));
}

#[test]
fn staging_and_persistent_allocations_keep_the_data() {
    let _alone = common::alone();
    let Some(device) = common::cpu() else { return };
    let mut data = TensorData::from([1.0f32, 2.0]);
    B::staging([&mut data].into_iter(), &device);
    let x = B::memory_persistent_allocations(&device, data.clone(), |data| B::float_from_data(data, &device));
    assert_eq!(try_read_sync(B::float_into_data(x)).unwrap().unwrap(), data);
}
