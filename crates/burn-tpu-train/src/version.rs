//! What this crate must know of Burn's version, here 0.21. The file of 0.22 and 0.23 is in `slots/burn-0.22/train`.

use burn_core::tensor::{DType, TensorData, TensorMetadata};
use burn_tpu::{RandomState, TpuDevice, TpuTensor};

pub(crate) fn dtype(data: &TensorData) -> DType {
    data.dtype
}

/// Returns a tensor's element type and dims.
pub(crate) fn type_of(tensor: &TpuTensor) -> (DType, Vec<usize>) {
    (tensor.dtype(), tensor.shape().to_vec())
}

pub(crate) fn device_of(tensor: &TpuTensor) -> TpuDevice {
    tensor.device()
}

/// Returns the key and the counter of a device's random numbers.
pub(crate) fn random_state(device: &TpuDevice) -> (u64, u64) {
    let RandomState { key, counter } = device.random_state();
    (key, counter)
}

pub(crate) fn set_random_state(device: &TpuDevice, (key, counter): (u64, u64)) {
    device.set_random_state(RandomState { key, counter });
}
