//! Moves Burn's tensor data to and from a device. Bools stored as integers become native bools.

use crate::dtype::from_burn;
use crate::error::failed;
use crate::{TpuDevice, TpuError, TpuTensor, tickets};
use burn_backend::{ExecutionError, TensorData};
use burn_std::{BoolStore, DType as BurnDType};
use burn_tpu_runtime::graph::{DType, TensorType};
use burn_tpu_runtime::ops::data;

/// Uploads host data to a device. Burn's creation ops cannot return an error, so data that cannot be uploaded gives a failed
/// tensor, whose read returns the reason.
pub(super) fn from_data(name: &'static str, data: TensorData, device: &TpuDevice) -> TpuTensor {
    if let Some(tensor) = tickets::supplied(&data) {
        return tensor;
    }
    let dtype = match data.dtype {
        BurnDType::Bool(_) => Some(DType::Bool),
        other => from_burn(other),
    };
    let ty = TensorType::new(dtype.unwrap_or(DType::F32), data.shape.as_slice());
    if dtype.is_none() {
        let error = TpuError::DType { op: name, dtype: format!("{:?}", data.dtype), device: device.to_string() };
        return data::failed(ty, error, &device.0).into();
    }
    data::from_bytes(name, ty, bytes(data), &device.0).into()
}

/// Returns the batch of which this process gives some rows.
///
/// # Errors
/// Those of [`data::from_rows`]; [`TpuError::DType`] for a type that the device does not have.
pub(crate) fn from_rows(name: &'static str, rows: TensorData, device: &TpuDevice) -> Result<TpuTensor, TpuError> {
    let unknown = || TpuError::DType { op: name, dtype: format!("{:?}", rows.dtype), device: device.to_string() };
    let ty = TensorType::new(from_burn(rows.dtype).ok_or_else(unknown)?, rows.shape.as_slice());
    data::from_rows(name, ty, bytes(rows), &device.0).map(TpuTensor::from)
}

/// Returns row-major bytes, one per bool.
pub(crate) fn bytes(data: TensorData) -> Vec<u8> {
    let dtype = data.dtype;
    let bytes = data.bytes.try_into_vec::<u8>().unwrap_or_else(|bytes| bytes.to_vec());
    match dtype {
        BurnDType::Bool(BoolStore::U8) => bytes.iter().map(|&byte| u8::from(byte != 0)).collect(),
        BurnDType::Bool(BoolStore::U32) => bytes.chunks(4).map(|word| u8::from(word != [0; 4])).collect(),
        _ => bytes,
    }
}

/// Runs what was recorded, and returns a future that waits for the tensor's elements, row-major. The cut is at the call: whoever
/// polls the future, on whichever thread and however late, has no part in where the stream is cut.
///
/// # Errors
/// That of any program or upload that the value depends on.
pub(super) fn into_data(x: TpuTensor) -> impl Future<Output = Result<TensorData, ExecutionError>> + Send {
    let collected = tickets::collected(&x);
    let started = if collected.is_none() { data::run_for_reads(&[&x.0]) } else { Ok(()) };
    async move {
        match collected {
            Some(ticket) => Ok(ticket),
            None => started.and_then(|()| x.to_data()).map_err(failed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::truths;
    use burn_backend::try_read_sync;
    use burn_std::Bytes;

    fn ndarray() -> TpuDevice {
        TpuDevice::ndarray()
    }

    #[test]
    fn bools_stored_as_integers_are_uploaded() {
        let bytes = Bytes::from_bytes_vec(vec![0, 0, 0, 0, 0, 1, 0, 0]);
        let data = TensorData::from_bytes(bytes, [2], BurnDType::Bool(BoolStore::U32));
        assert_eq!(truths(from_data("bool_from_data", data, &ndarray())), [false, true]);
    }

    #[test]
    fn data_of_the_wrong_size_fails_at_the_read() {
        let data = TensorData::from_bytes(Bytes::from_bytes_vec(vec![0; 4]), [2], BurnDType::F32);
        let read = try_read_sync(into_data(from_data("float_from_data", data, &ndarray())));
        let error = read.expect("nothing to wait for").expect_err("four bytes are not two floats");
        assert!(error.to_string().contains("float_from_data"), "{error}");
    }
}
