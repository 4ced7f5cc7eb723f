//! Shared by the unit tests of the families: tensors from literals, their values, and the devices to test.

use super::host;
use crate::{TpuDevice, TpuTensor};
use burn_backend::{Element, TensorData, try_read_sync};

/// Returns a tensor with these row-major values.
pub(super) fn tensor<E: Element>(values: impl IntoIterator<Item = E>, dims: &[usize]) -> TpuTensor {
    host::from_data("test", TensorData::new(values.into_iter().collect(), dims.to_vec()), &TpuDevice::ndarray())
}

/// Returns the tensor on another device.
pub(super) fn to_device(x: TpuTensor, device: &TpuDevice) -> TpuTensor {
    burn_tpu_runtime::ops::data::to_device(x.0, &device.0).into()
}

/// Returns the values, row-major, as f64.
pub(super) fn values(x: TpuTensor) -> Vec<f64> {
    let read = try_read_sync(host::into_data(x)).expect("into_data never waits for another future");
    read.expect("the program runs").iter::<f64>().collect()
}

/// Returns the values as bools.
pub(super) fn truths(x: TpuTensor) -> Vec<bool> {
    values(x).into_iter().map(|value| value != 0.0).collect()
}

/// Returns the interpreter's device, and the CPU plugin's if the plugin is there.
pub(super) fn devices() -> Vec<TpuDevice> {
    let cpu = burn_tpu_pjrt::testing::plugin(burn_tpu_pjrt::PluginKind::Cpu).map(|_| TpuDevice::cpu(0));
    std::iter::once(TpuDevice::ndarray()).chain(cpu).collect()
}
