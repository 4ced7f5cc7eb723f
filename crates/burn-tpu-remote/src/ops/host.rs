//! Moves Burn's tensor data to and from a device. Bools stored as integers become native bools.

use crate::dtype::from_burn;
use crate::error::failed;
use crate::{TpuDevice, TpuError, TpuTensor};
use burn_backend::{ExecutionError, TensorData};
use burn_std::{BoolStore, DType as BurnDType};
use burn_tpu_runtime::graph::{DType, TensorType};
use burn_tpu_runtime::ops::data;

/// Uploads host data to a device. Burn's creation ops cannot return an error, so data that cannot be uploaded gives a failed
/// tensor, whose read returns the reason.
pub(super) fn from_data(name: &'static str, data: TensorData, device: &TpuDevice) -> TpuTensor {
    let dtype = match data.dtype() {
        BurnDType::Bool(_) => Some(DType::Bool),
        other => from_burn(other),
    };
    let ty = TensorType::new(dtype.unwrap_or(DType::F32), data.shape().as_slice());
    if dtype.is_none() {
        let error = TpuError::DType { op: name, dtype: format!("{:?}", data.dtype()), device: device.to_string() };
        return data::failed(ty, error, &device.0).into();
    }
    data::from_bytes(name, ty, bytes(data), &device.0).into()
}

/// Returns row-major bytes, one per bool.
fn bytes(data: TensorData) -> Vec<u8> {
    let dtype = data.dtype();
    let bytes = data.into_bytes().try_into_vec::<u8>().unwrap_or_else(|bytes| bytes.to_vec());
    match dtype {
        BurnDType::Bool(BoolStore::U8) => bytes.iter().map(|&byte| u8::from(byte != 0)).collect(),
        BurnDType::Bool(BoolStore::U32) => bytes.chunks(4).map(|word| u8::from(word != [0; 4])).collect(),
        _ => bytes,
    }
}

/// Returns the tensor's elements, row-major. What was recorded runs now, in the calling thread's stream, since another thread
/// may poll the future: a server's session records, and its runtime waits for the value.
///
/// # Errors
/// That of any program or upload that the value depends on.
pub(super) fn into_data(x: TpuTensor) -> impl Future<Output = Result<TensorData, ExecutionError>> + Send {
    let started = data::run_for_reads(&[&x.0]);
    async move { started.and_then(|()| x.to_data()).map_err(failed) }
}
