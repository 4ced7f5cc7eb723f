//! Burn's quantized tensors: schemes, and data that packs values into words, as the runtime's quantized values.
//!
//! Supported are symmetric schemes of 8, 4 and 2 bits (Q8F, Q8S, Q4F, Q4S, Q2F, Q2S) with f32 scales of one level: one scale
//! for the tensor, or one per block. Data of a scheme that packs values into words is unpacked to the native scheme, as in
//! Burn's other CPU backends. Any other scheme panics with a message that names it.
//!
//! What is not here is Burn's default, which dequantizes.

use crate::backend::{Tpu, TpuFloat, TpuInt};
use crate::dtype::{from_float, from_int};
use crate::ops::host;
use crate::ops::options::resolved;
use crate::{TpuDevice, TpuQTensor, TpuTensor, version};
use burn_backend::ops::QTensorOps;
use burn_backend::quantization::QuantizationParametersPrimitive;
use burn_backend::{ExecutionError, TensorData, TensorMetadata};
use burn_std::quantization::{QuantScheme, QuantStore, QuantValue};
use burn_std::{DType as BurnDType, FloatDType, IntDType, Shape, Slice};
use burn_tpu_runtime::Tensor;
use burn_tpu_runtime::ops::quantized::{self, Quantized, Scheme};
use burn_tpu_runtime::ops::{index, movement, reduce, sort};

impl<F: TpuFloat, I: TpuInt> QTensorOps<Self> for Tpu<F, I> {
    fn q_from_data(quantized: TensorData, device: &TpuDevice) -> TpuQTensor {
        let BurnDType::QFloat(scheme) = version::dtype(&quantized) else {
            panic!("burn-tpu: q_from_data: the data is {:?}, not quantized", version::dtype(&quantized));
        };
        let native = supported("q_from_data", &scheme);
        let shape = version::shape(&quantized).clone();
        let (values, scales) = version::unpacked(quantized, scheme);
        let count = scales.len();
        let scales = TensorData::new(scales, [count]);
        let values = host::from_data("q_from_data", TensorData::new(values, shape), device);
        TpuQTensor { values, scales: host::from_data("q_from_data", scales, device), scheme: native }
    }

    fn quantize(x: TpuTensor, scheme: &QuantScheme, parameters: QuantizationParametersPrimitive<Self>) -> TpuQTensor {
        let scheme = supported("quantize", scheme);
        of(quantized::quantize(&x.0, &parameters.scales.0, &plain(&scheme)), scheme)
    }

    fn quantize_dynamic(x: TpuTensor, scheme: &QuantScheme) -> TpuQTensor {
        let scheme = supported("quantize_dynamic", scheme);
        of(quantized::quantize_dynamic(&x.0, &plain(&scheme)), scheme)
    }

    fn dequantize(x: TpuQTensor, dtype: FloatDType) -> TpuTensor {
        let scheme = plain(&x.scheme);
        quantized::dequantize(&inner(x), &scheme, from_float(dtype)).into()
    }

    fn q_to_device(x: TpuQTensor, device: &TpuDevice) -> TpuQTensor {
        let scales = version::to_device(x.scales, device);
        TpuQTensor { values: version::to_device(x.values, device), scales, scheme: x.scheme }
    }

    async fn q_into_data(x: TpuQTensor) -> Result<TensorData, ExecutionError> {
        let values = host::into_data(x.values).await?;
        let scales = host::into_data(x.scales).await?;
        let shape = version::shape(&values).clone();
        let (values, scales) = (version::elements::<i8>(values)?, version::elements::<f32>(scales)?);
        Ok(version::quantized(values, shape, x.scheme, &scales))
    }

    fn q_expand(x: TpuQTensor, shape: Shape) -> TpuQTensor {
        moved(x, |x| movement::expand(x, &shape))
    }

    fn q_swap_dims(x: TpuQTensor, dim1: usize, dim2: usize) -> TpuQTensor {
        let scheme = version::swapped(x.scheme, x.values.rank(), dim1, dim2);
        moved_to(x, scheme, |x| movement::swap_dims(x, dim1, dim2))
    }

    fn q_permute(x: TpuQTensor, axes: &[usize]) -> TpuQTensor {
        let scheme = version::permuted(x.scheme, x.values.rank(), axes);
        moved_to(x, scheme, |x| movement::permute(x, axes))
    }

    fn q_flip(x: TpuQTensor, axes: &[usize]) -> TpuQTensor {
        moved(x, |x| movement::flip(x, axes))
    }

    fn q_select(x: TpuQTensor, dim: usize, indices: TpuTensor) -> TpuQTensor {
        moved(x, |x| index::select(x, dim, indices.0))
    }

    fn q_slice(x: TpuQTensor, slices: &[Slice]) -> TpuQTensor {
        let slices = resolved(&x.values, slices);
        moved(x, |x| movement::slice(x, &slices))
    }

    fn q_gather(dim: usize, x: TpuQTensor, indices: TpuTensor) -> TpuQTensor {
        moved(x, |x| index::gather(x, dim, indices.0))
    }

    fn q_repeat_dim(x: TpuQTensor, dim: usize, times: usize) -> TpuQTensor {
        moved(x, |x| movement::repeat_dim(x, dim, times))
    }

    fn q_argmax(x: TpuQTensor, dim: usize, index: IntDType) -> TpuTensor {
        reduce::argmax(comparable(x), dim, from_int(index)).into()
    }

    fn q_argmin(x: TpuQTensor, dim: usize, index: IntDType) -> TpuTensor {
        reduce::argmin(comparable(x), dim, from_int(index)).into()
    }

    fn q_argsort(x: TpuQTensor, dim: usize, descending: bool, index: IntDType) -> TpuTensor {
        sort::argsort(comparable(x), dim, descending, from_int(index)).into()
    }

    fn q_argtopk(x: TpuQTensor, dim: usize, k: usize, index: IntDType) -> TpuTensor {
        sort::argtopk(comparable(x), dim, k, from_int(index)).into()
    }

    fn q_sort(x: TpuQTensor, dim: usize, descending: bool) -> TpuQTensor {
        moved(x, |x| sort::sort(x, dim, descending))
    }

    fn q_topk(x: TpuQTensor, dim: usize, k: usize) -> TpuQTensor {
        moved(x, |x| sort::topk(x, dim, k))
    }

    version::q_methods! {}
}

/// Applies a movement op.
fn moved(x: TpuQTensor, op: impl FnOnce(Tensor) -> Tensor) -> TpuQTensor {
    let scheme = x.scheme;
    moved_to(x, scheme, op)
}

/// Applies a movement op after which the blocks are those of another scheme.
fn moved_to(x: TpuQTensor, after: QuantScheme, op: impl FnOnce(Tensor) -> Tensor) -> TpuQTensor {
    let scheme = plain(&x.scheme);
    of(quantized::moved(inner(x), &scheme, &plain(&after), op), after)
}

/// Returns a tensor that has the order of the values.
fn comparable(x: TpuQTensor) -> Tensor {
    let scheme = plain(&x.scheme);
    quantized::comparable(inner(x), &scheme)
}

pub(crate) fn inner(x: TpuQTensor) -> Quantized {
    Quantized { values: x.values.0, scales: x.scales.0 }
}

fn of(Quantized { values, scales }: Quantized, scheme: QuantScheme) -> TpuQTensor {
    TpuQTensor { values: values.into(), scales: scales.into(), scheme }
}

pub(crate) fn plain(scheme: &QuantScheme) -> Scheme {
    Scheme { range: scheme.value.range(), blocks: version::blocks(scheme) }
}

/// Returns whether tensors of the scheme can be stored.
pub(crate) fn is_supported(scheme: &QuantScheme) -> bool {
    let floats = matches!(scheme.value, QuantValue::E4M3 | QuantValue::E5M2 | QuantValue::E2M1);
    let packed = matches!(scheme.store, QuantStore::PackedNative(_));
    !floats && !packed && version::has_plain_scales(scheme)
}

/// Returns the scheme that is stored on the device.
///
/// # Panics
/// If the scheme is not supported. Burn has no other way to refuse one.
fn supported(op: &'static str, scheme: &QuantScheme) -> QuantScheme {
    if !is_supported(scheme) {
        let rule = "values must be Q8, Q4 or Q2, native or packed in u32, with f32 scales of one level";
        panic!("burn-tpu: {op}: {scheme:?} is not supported: {rule}");
    }
    scheme.with_store(QuantStore::Native)
}
