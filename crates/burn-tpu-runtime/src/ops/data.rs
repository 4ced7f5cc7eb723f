//! Tensors from and to host data, copies between devices, and creation ops.
//!
//! Owns: the only way in ([`from_bytes`]), the only way out ([`into_bytes`]), creation ops. Data that cannot be taken
//! gives a failed tensor, and the read reports the error, since creation ops of front ends return no result.

use crate::engine::{HostBytes, HostElements};
use crate::error::{Result, TpuError};
use crate::metrics::CutReason;
use crate::region::{Part, Region};
use crate::runtime::{DeviceRuntime, runtime, sharding_of_value};
use crate::trace::{Recorder, create, materialise, materialise_together};
use crate::{Device, Tensor, distributed};
use burn_tpu_graph::op::BinaryOp;
use burn_tpu_graph::{Builder, DType, GraphError, NodeId, Number, Sharding, TensorType};
use std::ops::Range;

/// Returns a tensor of host data: row-major little-endian bytes, one byte per bool (0 or 1). They are transferred to
/// the device when a compiled program first reads them, and stay until then in the memory that they are given in.
///
/// Data whose size does not match the type gives a failed tensor.
pub fn from_bytes(
    name: &'static str,
    ty: TensorType,
    bytes: impl AsRef<[u8]> + Send + Sync + 'static,
    device: &Device,
) -> Tensor {
    let runtime = runtime(*device);
    runtime.open().lines().uploads.note(&ty);
    let checked = check(name, &ty, bytes.as_ref());
    held(&runtime, ty, checked.map(|()| HostBytes::given(bytes)))
}

/// Returns a batch of which `bytes` are the rows of this process; those of the others follow or precede them. In one
/// process they are the batch.
///
/// # Errors
/// [`TpuError::Operation`] for data whose size does not match the type, [`TpuError::Sharding`] for rows that do not
/// split over this process's devices, and those of the transfer.
pub fn from_rows(name: &'static str, ty: TensorType, bytes: Vec<u8>, device: &Device) -> Result<Tensor> {
    let runtime = runtime(*device);
    check(name, &ty, &bytes)?;
    let bytes = HostBytes::from(bytes);
    match runtime.open().upload_rows(&ty, bytes.clone())? {
        Some((whole, buffer)) => Ok(Tensor::new(*device, whole, Ok(buffer))),
        None => Ok(held(&runtime, ty, Ok(bytes))),
    }
}

/// Returns the regions of a tensor that this process needs to put it on the device of `like`: on a mesh, those of its
/// devices; the whole tensor on any other device.
///
/// # Errors
/// Those of a device that cannot be opened.
pub fn regions_like(like: &Tensor, ty: &TensorType) -> Result<Vec<Region>> {
    Ok(runtime(like.device()).open().engine()?.regions(ty, &sharding_like(like, ty)))
}

/// Returns a tensor of host data on the device of `like`, where it is transferred at once; on a mesh, split as `like`
/// is if it has the same dims, else whole on every chip. The bytes of [`regions_like`] are given.
///
/// # Errors
/// [`TpuError::Operation`] for data whose size does not match its region, and those of the transfer.
pub fn upload_regions_like(
    like: &Tensor,
    name: &'static str,
    ty: TensorType,
    regions: Vec<(Region, Vec<u8>)>,
) -> Result<Tensor> {
    let given = |(region, bytes): (Region, Vec<u8>)| {
        let part = TensorType::new(ty.dtype, region.sizes.as_slice());
        check(name, &part, &bytes).map(|()| (region, HostBytes::from(bytes)))
    };
    let regions = regions.into_iter().map(given).collect::<Result<_>>()?;
    let buffer = runtime(like.device()).open().upload_regions(&ty, &sharding_like(like, &ty), regions)?;
    Ok(Tensor::new(like.device(), ty, Ok(buffer)))
}

fn sharding_like(like: &Tensor, ty: &TensorType) -> Sharding {
    let known = like.value().and_then(|value| value.as_ref().ok()).and_then(sharding_of_value);
    known.filter(|_| *like.dims() == *ty.dims).unwrap_or_else(|| Sharding::replicated(ty.rank()))
}

/// Returns a tensor whose read reports `error`.
pub fn failed(ty: TensorType, error: TpuError, device: &Device) -> Tensor {
    Tensor::new(*device, ty, Err(error))
}

/// Checks that the number of bytes matches the shape and, for bools, that each is 0 or 1. What is uploaded may have come
/// over a network, and the plugin checks neither.
fn check(name: &'static str, ty: &TensorType, bytes: &[u8]) -> Result<()> {
    let expected = ty.dims.iter().try_fold(ty.dtype.size_bytes(), |bytes, &dim| bytes.checked_mul(dim));
    let is_empty = ty.dims.contains(&0);
    let rule = match expected {
        Some(expected) if expected != bytes.len() => {
            format!("the shape takes {expected} bytes, the data holds {}", bytes.len())
        }
        None if !is_empty || !bytes.is_empty() => "the shape takes more bytes than there are addresses".into(),
        _ if ty.dtype == DType::Bool && bytes.iter().any(|&byte| byte > 1) => "a bool is a byte of 0 or 1".into(),
        _ => return Ok(()),
    };
    let source = GraphError { op: "graph.parameter", operands: ty.to_string(), rule };
    Err(TpuError::Operation { op: name, source })
}

fn held(runtime: &DeviceRuntime, ty: TensorType, bytes: Result<HostBytes>) -> Tensor {
    let buffer = bytes.and_then(|bytes| runtime.open().hold_input(&ty, HostElements::Bytes(bytes)));
    Tensor::new(runtime.open().device(), ty, buffer)
}

/// Returns the tensor's elements, row-major and little-endian, one byte per bool. Runs the recorded ops and waits.
///
/// # Errors
/// Every earlier failure is reported now: of an upload, of a program that the value depends on, of the transfer.
pub fn into_bytes(x: &Tensor) -> Result<Vec<u8>> {
    download(x, CutReason::Read).map(HostBytes::into_vec)
}

/// Returns the regions into which a tensor is split over the processes, each once, with the processes that have it. A
/// tensor whose whole value each process has is one region of all of them. Runs the recorded ops.
///
/// # Errors
/// The failure of a program that the value depends on.
pub fn parts(x: &Tensor) -> Result<Vec<Part>> {
    let buffer = materialise(x, CutReason::Read)?;
    match runtime(x.device()).open().parts(&buffer)? {
        Some(parts) => Ok(parts),
        None => {
            let processes = (0..distributed::process_count()?).collect();
            Ok(vec![Part { region: Region::whole(x.dims()), processes }])
        }
    }
}

/// Returns the elements of regions that this process has, of those that [`parts`] returned: row-major and
/// little-endian, one byte per bool. Waits for the value; other processes need not do the same.
///
/// # Errors
/// [`TpuError::Sharding`] for a region of another process; those of [`into_bytes`].
pub fn parts_into_bytes(x: &Tensor, regions: &[Region]) -> Result<Vec<Vec<u8>>> {
    let whole = Region::whole(x.dims());
    if regions.iter().all(|region| *region == whole) && parts(x)?.iter().all(|part| part.region == whole) {
        return regions.iter().map(|_| into_bytes(x)).collect();
    }
    let buffer = materialise(x, CutReason::Read)?;
    let parts = runtime(x.device()).open().download_parts(&buffer, regions)?;
    runtime(x.device()).deferred_errors().map(|()| parts)
}

/// Runs the recorded ops of several tensors that will be read, in as few programs as their traces allow.
///
/// # Errors
/// The error of the first program that fails to start. Its tensors remain unchanged.
pub fn run_for_reads(tensors: &[&Tensor]) -> Result<()> {
    materialise_together(tensors.iter().copied(), CutReason::Read)
}

fn download(x: &Tensor, reason: CutReason) -> Result<HostBytes> {
    let buffer = materialise(x, reason)?;
    let bytes = runtime(x.device()).open().download(&buffer)?;
    runtime(x.device()).deferred_errors().map(|()| bytes)
}

/// Copies the tensor to another device through the host. On the same device it returns the tensor itself, since
/// optimizers call this at every step.
pub fn to_device(x: Tensor, device: &Device) -> Tensor {
    if x.device() == *device {
        return x;
    }
    held(&runtime(*device), x.ty().clone(), download(&x, CutReason::DeviceCopy))
}

/// Returns a tensor filled with a constant, such as zero or one. The constant is part of the program.
pub fn splat(name: &'static str, dims: &[usize], dtype: DType, value: i64, device: &Device) -> Tensor {
    create(name, device, |r| r.splat(dtype, dims, value))
}

/// Returns a tensor filled with a value that may differ at the next step.
pub fn full(name: &'static str, dims: &[usize], value: Number, dtype: DType, device: &Device) -> Tensor {
    create(name, device, |r| {
        let value = r.slot(dtype, value)?;
        r.broadcast_to(value, dims)
    })
}

/// Returns the integers of a range. Only their count is part of the program. Start and step are offsets, so a range
/// that moves (positions in a decode loop) recompiles only once. Without a step the integers are consecutive.
pub fn arange(range: Range<i64>, step: Option<usize>, dtype: DType, device: &Device) -> Tensor {
    let length = if range.end > range.start { range.end.abs_diff(range.start) } else { 0 };
    let count = length.div_ceil(step.unwrap_or(1) as u64) as usize;
    // Narrow types would overflow while counting. In 32 bits the result wraps once, at the end.
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

/// Computes an element-wise op with an offset on the right.
fn combine(r: &mut Recorder, op: BinaryOp, x: NodeId, offset: i64) -> burn_tpu_graph::Result<NodeId> {
    let dtype = r.dtype(x);
    let offset = r.offset(dtype, offset)?;
    r.binary(op, x, offset)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{tensor, truths, values};

    fn ndarray() -> Device {
        Device::ndarray()
    }

    #[test]
    fn data_of_the_wrong_size_fails_at_the_read() {
        let x = from_bytes("float_from_data", TensorType::new(DType::F32, [2]), vec![0u8; 4], &ndarray());
        let error = into_bytes(&x).expect_err("four bytes are not two floats");
        assert!(error.to_string().contains("float_from_data"), "{error}");
    }

    #[test]
    fn sizes_that_overflow_and_bytes_that_are_no_bools_fail_at_the_read() {
        let refused = |ty, bytes: &[u8]| {
            let x = from_bytes("float_from_data", ty, bytes.to_vec(), &ndarray());
            into_bytes(&x).expect_err("the data does not fit").to_string()
        };
        // 2^62 elements of four bytes wrap to none.
        let error = refused(TensorType::new(DType::F32, [1 << 31, 1 << 31]), &[]);
        assert!(error.contains("more bytes than there are addresses"), "{error}");
        let error = refused(TensorType::new(DType::Bool, [2]), &[1, 2]);
        assert!(error.contains("0 or 1"), "{error}");
    }

    #[test]
    fn ranges_and_fills() {
        assert_eq!(values(arange(-2..3, None, DType::I32, &ndarray())), [-2.0, -1.0, 0.0, 1.0, 2.0]);
        assert_eq!(values(arange(1..8, Some(3), DType::I64, &ndarray())), [1.0, 4.0, 7.0]);
        assert_eq!(values(arange(254..257, None, DType::U8, &ndarray())), [254.0, 255.0, 0.0]);
        assert_eq!(arange(3..3, None, DType::I32, &ndarray()).dims(), [0]);
        let filled = full("float_full", &[2], Number::Float(0.5), DType::BF16, &ndarray());
        assert_eq!((filled.element(), values(filled)), (DType::BF16, vec![0.5, 0.5]));
        assert_eq!(truths(splat("bool_ones", &[1], DType::Bool, 1, &ndarray())), [true]);
    }

    #[test]
    fn a_copy_to_the_same_device_is_the_same_tensor() {
        let x = tensor([1.0f32], &[1]);
        assert!(x.is(&to_device(x.clone(), &ndarray())));
    }
}
