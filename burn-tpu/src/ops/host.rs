//! Moves Burn's tensor data to and from a device. Bools stored as integers become native bools.

use crate::dtype::from_burn;
use crate::error::failed;
use crate::{TpuDevice, TpuError, TpuTensor, version};
use burn_backend::{ExecutionError, TensorData};
use burn_std::{BoolStore, Bytes, DType as BurnDType};
use burn_tpu_runtime::graph::{DType, TensorType};
use burn_tpu_runtime::ops::data;

/// Uploads host data to a device. Burn's creation ops cannot return an error, so data that cannot be uploaded gives a failed
/// tensor, whose read returns the reason.
pub(crate) fn from_data(name: &'static str, data: TensorData, device: &TpuDevice) -> TpuTensor {
    if let Some(tensor) = version::supplied(&data) {
        return tensor;
    }
    let dtype = match version::dtype(&data) {
        BurnDType::Bool(_) => Some(DType::Bool),
        other => from_burn(other),
    };
    let ty = TensorType::new(dtype.unwrap_or(DType::F32), version::shape(&data).as_slice());
    if dtype.is_none() {
        let error =
            TpuError::DType { op: name, dtype: format!("{:?}", version::dtype(&data)), device: device.to_string() };
        return data::failed(ty, error, &device.0).into();
    }
    match version::dtype(&data) {
        BurnDType::Bool(_) => data::from_bytes(name, ty, bytes(data), &device.0),
        _ => data::from_bytes(name, ty, Given(data.into_bytes()), &device.0),
    }
    .into()
}

/// The elements of Burn's data, where Burn has them.
struct Given(Bytes);

impl AsRef<[u8]> for Given {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Returns row-major bytes, one per bool.
pub(crate) fn bytes(data: TensorData) -> Vec<u8> {
    let dtype = version::dtype(&data);
    let bytes = data.into_bytes().try_into_vec::<u8>().unwrap_or_else(|bytes| bytes.to_vec());
    match dtype {
        BurnDType::Bool(BoolStore::U8) => bytes.iter().map(|&byte| u8::from(byte != 0)).collect(),
        BurnDType::Bool(BoolStore::U32) => bytes.chunks(4).map(|word| u8::from(word != [0; 4])).collect(),
        _ => bytes,
    }
}

/// Runs what was recorded, and returns a future that waits for the tensor's elements, row-major. The cut is at the call:
/// whoever polls the future, on whichever thread and however late, has no part in where the stream is cut.
///
/// # Errors
/// That of any program or upload that the value depends on.
pub(crate) fn into_data(x: TpuTensor) -> impl Future<Output = Result<TensorData, ExecutionError>> + Send {
    let collected = version::collected(&x);
    let started = if collected.is_none() { data::run_for_reads(&[&x.0]) } else { Ok(()) };
    async move {
        match collected {
            Some(ticket) => Ok(ticket),
            None => started.and_then(|()| x.to_data()).map_err(failed),
        }
    }
}
