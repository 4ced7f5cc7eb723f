//! Tensors from and to the host, between devices, and from nothing.
//!
//! Owns: the one way in (`from_data`), the one way out (`into_data`), creation ops. What cannot be put on the device makes a
//! failed tensor: Burn's creation ops return no result, so the read says why.

use crate::dtype::{from_burn, number};
use crate::error::{Result, TpuError};
use crate::metrics::CutReason;
use crate::runtime::runtime;
use crate::tensor::Value;
use crate::trace::{Recorder, create, materialise};
use crate::{TpuDevice, TpuTensor};
use burn_backend::{ExecutionError, Scalar, TensorData, TensorMetadata};
use burn_std::{BoolStore, DType as BurnDType, Shape};
use burn_tpu_graph::op::BinaryOp;
use burn_tpu_graph::{DType, GraphError, NodeId, TensorType};
use std::ops::Range;
use std::sync::Arc;

/// Host data on a device. Bools stored as integers become native bools.
pub(crate) fn from_data(name: &'static str, data: TensorData, device: &TpuDevice) -> TpuTensor {
    let dtype = match data.dtype {
        BurnDType::Bool(_) => Some(DType::Bool),
        other => from_burn(other),
    };
    let ty = TensorType::new(dtype.unwrap_or(DType::F32), data.shape.as_slice());
    let bytes = match dtype {
        Some(_) => checked_bytes(name, &ty, data),
        None => Err(TpuError::DType { op: name, dtype: format!("{:?}", data.dtype), device: device.to_string() }),
    };
    upload(device, ty, bytes)
}

/// Row-major bytes, one per bool, as many as the shape asks for.
fn checked_bytes(name: &'static str, ty: &TensorType, data: TensorData) -> Result<Vec<u8>> {
    let dtype = data.dtype;
    let bytes = data.bytes.try_into_vec::<u8>().unwrap_or_else(|bytes| bytes.to_vec());
    let bytes = match dtype {
        BurnDType::Bool(BoolStore::U8) => bytes.iter().map(|&byte| u8::from(byte != 0)).collect(),
        BurnDType::Bool(BoolStore::U32) => bytes.chunks(4).map(|word| u8::from(word != [0; 4])).collect(),
        _ => bytes,
    };
    if bytes.len() == ty.bytes() {
        return Ok(bytes);
    }
    let rule = format!("the shape takes {} bytes, the data holds {}", ty.bytes(), bytes.len());
    let source = GraphError { op: "graph.parameter", operands: ty.to_string(), rule };
    Err(TpuError::Operation { op: name, source })
}

fn upload(device: &TpuDevice, ty: TensorType, bytes: Result<Vec<u8>>) -> TpuTensor {
    let buffer = bytes.and_then(|bytes| runtime(*device).upload(&ty, bytes));
    let value = match buffer {
        Ok(buffer) => Value::Ready(Arc::new(buffer)),
        Err(error) => Value::Failed(error),
    };
    TpuTensor::new(*device, ty, value)
}

/// The tensor's elements, row-major: runs what was recorded and waits. Every failure on the way here is reported now.
pub(crate) async fn into_data(x: TpuTensor) -> Result<TensorData, ExecutionError> {
    let bytes = download(&x, CutReason::Read)?;
    Ok(TensorData::from_bytes_vec(bytes, x.shape(), x.dtype()))
}

fn download(x: &TpuTensor, reason: CutReason) -> Result<Vec<u8>> {
    let buffer = materialise(x, reason)?;
    runtime(x.device()).download(&buffer)
}

/// The tensor on another device, through the host. On its own device it is the tensor itself: Burn's optimizers ask for
/// that at every step.
pub(crate) fn to_device(x: TpuTensor, device: &TpuDevice) -> TpuTensor {
    if x.device() == device.canonical() {
        return x;
    }
    upload(device, x.ty().clone(), download(&x, CutReason::DeviceCopy))
}

/// One constant value: zeros, ones. It belongs to the program.
pub(crate) fn splat(name: &'static str, shape: &Shape, dtype: DType, value: i64, device: &TpuDevice) -> TpuTensor {
    create(name, device, |r| r.splat(dtype, shape.as_slice(), value))
}

/// One value that may differ at the next step.
pub(crate) fn full(name: &'static str, shape: &Shape, value: Scalar, dtype: DType, device: &TpuDevice) -> TpuTensor {
    create(name, device, |r| {
        let value = r.slot(dtype, number(value))?;
        r.broadcast_to(value, shape.as_slice())
    })
}

/// The integers of a range. Only their count is structure: start and step are offsets, so a range that moves (positions of a
/// decode loop) recompiles once and never again. Without a step the integers follow each other.
pub(crate) fn arange(range: Range<i64>, step: Option<usize>, dtype: DType, device: &TpuDevice) -> TpuTensor {
    let length = if range.end > range.start { range.end.abs_diff(range.start) } else { 0 };
    let count = length.div_ceil(step.unwrap_or(1) as u64) as usize;
    // Narrow types would overflow while counting; in 32 bits the result wraps once, at the end.
    let wide = if dtype.size_bytes() < DType::I32.size_bytes() { DType::I32 } else { dtype };
    create("int_arange", device, |r| {
        let mut values = r.iota(wide, &[count], 0)?;
        if let Some(step) = step {
            values = combine(r, BinaryOp::Mul, values, step as i64)?;
        }
        let values = combine(r, BinaryOp::Add, values, range.start)?;
        r.convert(values, dtype)
    })
}

/// An element-wise op with an offset on the right.
fn combine(r: &mut Recorder, op: BinaryOp, x: NodeId, offset: i64) -> burn_tpu_graph::Result<NodeId> {
    let dtype = r.dtype(x);
    let offset = r.offset(dtype, offset)?;
    r.binary(op, x, offset)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{tensor, truths, values};
    use burn_backend::try_read_sync;
    use burn_std::Bytes;

    fn ndarray() -> TpuDevice {
        TpuDevice::ndarray()
    }

    #[test]
    fn bools_come_in_as_integers_too() {
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

    #[test]
    fn ranges_and_fills() {
        assert_eq!(values(arange(-2..3, None, DType::I32, &ndarray())), [-2.0, -1.0, 0.0, 1.0, 2.0]);
        assert_eq!(values(arange(1..8, Some(3), DType::I64, &ndarray())), [1.0, 4.0, 7.0]);
        assert_eq!(values(arange(254..257, None, DType::U8, &ndarray())), [254.0, 255.0, 0.0]);
        assert_eq!(arange(3..3, None, DType::I32, &ndarray()).dims(), [0]);
        let filled = full("float_full", &[2].into(), Scalar::Float(0.5), DType::BF16, &ndarray());
        assert_eq!((filled.dtype(), values(filled)), (BurnDType::BF16, vec![0.5, 0.5]));
        assert_eq!(truths(splat("bool_ones", &[1].into(), DType::Bool, 1, &ndarray())), [true]);
    }

    #[test]
    fn a_copy_to_the_same_device_is_the_same_tensor() {
        let x = tensor([1.0f32], &[1]);
        assert!(Arc::ptr_eq(x.inner(), to_device(x.clone(), &ndarray()).inner()));
    }
}
