//! What this crate must know of Burn's version, here 0.22 and 0.23. The file of 0.21 is in `crates/burn-tpu-train`.

use burn_core::backend::TensorMetadata;
use burn_core::tensor::{DType, TensorData};
use burn_tpu::{TpuDevice, TpuTensor};

pub(crate) fn dtype(data: &TensorData) -> DType {
    data.dtype()
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
    device.next_draw()
}

pub(crate) fn set_random_state(device: &TpuDevice, state: (u64, u64)) {
    device.draw_from(state);
}
