//! Burn's quantized tensors: schemes, and data that packs values into words, as the runtime's quantized values.
//!
//! Supported are symmetric schemes of 8, 4 and 2 bits (Q8F, Q8S, Q4F, Q4S, Q2F, Q2S), one scale for the tensor or one per
//! block of row-major values. Data of a scheme that packs values into words is unpacked to the native scheme, as in Burn's
//! other CPU backends. Float values (E4M3, E5M2, E2M1) and native packing panic with a message that names the scheme.
//!
//! What is not here is Burn's default, which dequantizes.

use crate::backend::{TpuFloat, TpuInt};
use crate::compile::leaves;
use crate::dtype::{from_float, from_int};
use crate::ops::host;
use crate::ops::options::resolved;
use crate::{Tpu, TpuDevice, TpuQTensor, TpuTensor};
use burn_backend::ops::{FloatTensorOps, QTensorOps};
use burn_backend::quantization::{QuantPropagation, QuantizationParametersPrimitive};
use burn_backend::{
    ExecutionError, QTensorPrimitive, TensorData, TensorMetadata, TensorPrimitive, get_device_settings,
};
use burn_std::quantization::{QuantLevel, QuantScheme, QuantStore, QuantValue, QuantizedBytes};
use burn_std::{DType as BurnDType, FloatDType, IntDType, Shape, Slice};
use burn_tpu_runtime::Tensor;
use burn_tpu_runtime::ops::quantized::{self, Blocks, Quantized, Scheme};
use burn_tpu_runtime::ops::{data, index, movement, reduce, sort};

impl<F: TpuFloat, I: TpuInt> QTensorOps<Self> for Tpu<F, I> {
    fn q_from_data(quantized: TensorData, device: &TpuDevice) -> TpuQTensor {
        let BurnDType::QFloat(scheme) = quantized.dtype else {
            panic!("burn-tpu: q_from_data: the data is {:?}, not quantized", quantized.dtype);
        };
        let native = supported("q_from_data", &scheme);
        let (shape, num_elements) = (quantized.shape.clone(), quantized.num_elements());
        let (values, parameters) = QuantizedBytes { bytes: quantized.into_bytes(), scheme, num_elements }.into_vec_i8();
        let scales = TensorData::new(parameters.scales.clone(), [parameters.scales.len()]);
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

    fn q_device(x: &TpuQTensor) -> TpuDevice {
        leaves::visited(&x.scales);
        leaves::visited(&x.values).device()
    }

    fn q_to_device(x: TpuQTensor, device: &TpuDevice) -> TpuQTensor {
        let moved = |tensor| leaves::replaced(tensor, |tensor| data::to_device(tensor.0, &device.0).into());
        let scales = moved(x.scales);
        TpuQTensor { values: moved(x.values), scales, scheme: x.scheme }
    }

    /// Reshapes the integers. Blocks are ranges of row-major values, so a reshape keeps them.
    fn q_reshape(x: TpuQTensor, shape: Shape) -> TpuQTensor {
        TpuQTensor { values: movement::reshape(x.values.0, &shape).into(), ..x }
    }

    async fn q_into_data(x: TpuQTensor) -> Result<TensorData, ExecutionError> {
        let values = host::into_data(x.values).await?;
        let scales = host::into_data(x.scales).await?;
        let shape = values.shape.clone();
        let unread = |error| ExecutionError::WithContext { reason: format!("q_into_data: {error:?}") };
        let (values, scales) = (values.into_vec::<i8>().map_err(unread)?, scales.into_vec::<f32>().map_err(unread)?);
        Ok(TensorData::quantized(values, shape, x.scheme, &scales))
    }

    fn q_expand(x: TpuQTensor, shape: Shape) -> TpuQTensor {
        moved(x, |x| movement::expand(x, &shape))
    }

    fn q_swap_dims(x: TpuQTensor, dim1: usize, dim2: usize) -> TpuQTensor {
        moved(x, |x| movement::swap_dims(x, dim1, dim2))
    }

    fn q_permute(x: TpuQTensor, axes: &[usize]) -> TpuQTensor {
        moved(x, |x| movement::permute(x, axes))
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

    /// Multiplies integers on TPUs if both sides are quantized and the scales allow it, else the dequantized values.
    fn q_matmul(x: TensorPrimitive<Self>, y: TensorPrimitive<Self>) -> TensorPrimitive<Self> {
        use TensorPrimitive::{Float, QFloat};
        let (product, by) = match (x, y) {
            (Float(x), Float(y)) => return Float(Self::float_matmul(x, y)),
            (Float(x), QFloat(y)) => {
                let dtype = x.dtype().into();
                (Self::float_matmul(x, Self::dequantize(y.clone(), dtype)), y)
            }
            (QFloat(x), Float(y)) => {
                let dtype = y.dtype().into();
                (Self::float_matmul(Self::dequantize(x.clone(), dtype), y), x)
            }
            (QFloat(x), QFloat(y)) => (product::<F, I>(x, y.clone()), y),
        };
        match by.propagation() {
            QuantPropagation::Propagate => QFloat(Self::quantize_dynamic(product, by.scheme())),
            QuantPropagation::Inhibit => Float(product),
        }
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
}

/// Multiplies two quantized matrices; the product has the device's float type.
fn product<F: TpuFloat, I: TpuInt>(x: TpuQTensor, y: TpuQTensor) -> TpuTensor {
    let device = Tpu::<F, I>::q_device(&x);
    let dtype = get_device_settings::<Tpu<F, I>>(&device).float_dtype;
    let (schemes, integers) = ((plain(&x.scheme), plain(&y.scheme)), (inner(x.clone()), inner(y.clone())));
    let product = quantized::multiplies_integers(device.0)
        .then(|| quantized::matmul((&integers.0, &schemes.0), (&integers.1, &schemes.1), from_float(dtype)));
    match product.flatten() {
        Some(product) => product.into(),
        None => {
            let [x, y] = [x, y].map(|x| Tpu::<F, I>::dequantize(x, dtype));
            Tpu::<F, I>::float_matmul(x, y)
        }
    }
}

/// Applies a movement op.
fn moved(x: TpuQTensor, op: impl FnOnce(Tensor) -> Tensor) -> TpuQTensor {
    let (burn, scheme) = (x.scheme, plain(&x.scheme));
    of(quantized::moved(inner(x), &scheme, &scheme, op), burn)
}

/// Returns a tensor that has the order of the values.
fn comparable(x: TpuQTensor) -> Tensor {
    let scheme = plain(&x.scheme);
    quantized::comparable(inner(x), &scheme)
}

fn inner(x: TpuQTensor) -> Quantized {
    Quantized { values: x.values.0, scales: x.scales.0 }
}

fn of(Quantized { values, scales }: Quantized, scheme: QuantScheme) -> TpuQTensor {
    TpuQTensor { values: values.into(), scales: scales.into(), scheme }
}

fn plain(scheme: &QuantScheme) -> Scheme {
    let blocks = match scheme.level {
        QuantLevel::Tensor => Blocks::Whole,
        QuantLevel::Block(size) => Blocks::Rows(size.num_elements()),
    };
    Scheme { range: scheme.value.range(), blocks }
}

/// Returns the scheme that is stored on the device.
///
/// # Panics
/// If the scheme's values are not small integers. Burn has no other way to refuse a scheme.
fn supported(op: &'static str, scheme: &QuantScheme) -> QuantScheme {
    let floats = matches!(scheme.value, QuantValue::E4M3 | QuantValue::E5M2 | QuantValue::E2M1);
    if floats || matches!(scheme.store, QuantStore::PackedNative(_)) {
        panic!("burn-tpu: {op}: {scheme:?} is not supported: values must be Q8, Q4 or Q2, native or packed in u32");
    }
    scheme.with_store(QuantStore::Native)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{devices, tensor, to_device, values};
    use burn_backend::ops::FloatTensorOps;
    use burn_backend::{QTensorPrimitive, TensorMetadata, try_read_sync};
    use burn_ndarray::NdArray;
    use burn_tpu_runtime::graph::DType;

    type B = Tpu<f32>;
    type Nd = NdArray<f32>;

    fn scheme(value: QuantValue) -> QuantScheme {
        TpuQTensor::default_scheme().with_value(value)
    }

    fn numbers(count: usize) -> Vec<f32> {
        (0..count).map(|i| ((i * 7919) % 101) as f32 / 7.0 - 6.5).collect()
    }

    fn read(x: TpuQTensor) -> TensorData {
        try_read_sync(B::q_into_data(x)).expect("nothing to wait for").expect("a readable tensor")
    }

    #[test]
    fn quantizes_as_burn_ndarray_does() {
        for device in devices() {
            for level in [QuantLevel::Tensor, QuantLevel::block([8])] {
                for value in [QuantValue::Q8S, QuantValue::Q8F] {
                    let (host, scheme) = (TensorData::new(numbers(48), [6, 8]), scheme(value).with_level(level));
                    let ours = B::quantize_dynamic(host::from_data("test", host.clone(), &device), &scheme);
                    let theirs = Nd::quantize_dynamic(Nd::float_from_data(host, &Default::default()), &scheme);
                    let wanted = try_read_sync(Nd::q_into_data(theirs.clone())).unwrap().unwrap();
                    assert_eq!(read(ours.clone()).as_bytes(), wanted.as_bytes(), "{scheme:?} on {device}");
                    let wanted = try_read_sync(Nd::float_into_data(Nd::dequantize(theirs, FloatDType::F32)));
                    let wanted: Vec<f64> = wanted.unwrap().unwrap().iter().collect();
                    assert_eq!(values(B::dequantize(ours, FloatDType::F32)), wanted, "{scheme:?} on {device}");
                }
            }
        }
    }

    #[test]
    fn uploaded_data_is_read_back_unchanged() {
        for device in devices() {
            let native =
                TensorData::quantized(vec![-127i8, -71, 0, 35], [4], scheme(QuantValue::Q8S), &[0.014_173_228]);
            let x = B::q_from_data(native.clone(), &device);
            assert_eq!((x.shape().to_vec(), x.values.0.element()), (vec![4], DType::I8));
            assert_eq!(read(x).as_bytes(), native.as_bytes());
            let blocks = scheme(QuantValue::Q8S).with_level(QuantLevel::block([2]));
            let blocks = TensorData::quantized(vec![1i8, 2, 3, 4], [2, 2], blocks, &[0.5, 2.0]);
            let x = B::q_from_data(blocks.clone(), &device);
            assert_eq!(values(B::dequantize(x.clone(), FloatDType::BF16)), [0.5, 1.0, 6.0, 8.0]);
            assert_eq!(read(x).as_bytes(), blocks.as_bytes());
            // 4-bit values -8, 7, -1, 1, 0, 0, 0, 2 in one word, the lowest bits first, then the scale.
            let packed = [0x2000_1f78u32.to_le_bytes(), 0.5f32.to_le_bytes()].concat();
            let dtype = BurnDType::QFloat(scheme(QuantValue::Q4F).with_store(QuantStore::PackedU32(0)));
            let x = B::q_from_data(TensorData::from_bytes_vec(packed, [8], dtype), &device);
            assert_eq!(values(B::dequantize(x, FloatDType::F32)), [-4.0, 3.5, -0.5, 0.5, 0.0, 0.0, 0.0, 1.0]);
        }
    }

    #[test]
    fn halves_round_away_from_zero_and_values_stay_in_range() {
        for device in devices() {
            let x = to_device(tensor([0.5f32, -0.5, 1.5, 0.499_999_97, 9.0, -9.0], &[6]), &device);
            let scales = to_device(tensor([1.0f32], &[1]), &device);
            for (value, last) in [(QuantValue::Q4F, [7.0, -8.0]), (QuantValue::Q2S, [1.0, -1.0])] {
                let x =
                    B::quantize(x.clone(), &scheme(value), QuantizationParametersPrimitive { scales: scales.clone() });
                let middle = if value == QuantValue::Q4F { 2.0 } else { 1.0 };
                assert_eq!(values(x.values), [1.0, -1.0, middle, 0.0, last[0], last[1]]);
            }
            let zeros = B::quantize_dynamic(to_device(tensor([0.0f32; 3], &[3]), &device), &scheme(QuantValue::Q8S));
            assert_eq!(values(B::dequantize(zeros, FloatDType::F32)), [0.0; 3]);
        }
    }

    #[test]
    fn movement_keeps_the_values() {
        for device in devices() {
            for level in [QuantLevel::Tensor, QuantLevel::block([4])] {
                let host = TensorData::new(numbers(32), [4, 8]);
                let x = B::quantize_dynamic(
                    host::from_data("test", host, &device),
                    &scheme(QuantValue::Q8S).with_level(level),
                );
                let before = values(B::dequantize(x.clone(), FloatDType::F32));
                let at = to_device(tensor([2i32, 0], &[2]), &device);
                let moved = [
                    (B::q_permute(x.clone(), &[1, 0]), (0..32).map(|i| before[i % 4 * 8 + i / 4]).collect::<Vec<_>>()),
                    (B::q_reshape(x.clone(), [8, 4].into()), before.clone()),
                    (B::q_select(x.clone(), 0, at), [&before[16..24], &before[..8]].concat()),
                    (B::q_flip(x.clone(), &[0]), before.chunks(8).rev().flatten().copied().collect()),
                ];
                for (moved, wanted) in moved {
                    let tolerance = if level == QuantLevel::Tensor { 0.0 } else { 0.06 };
                    for (found, wanted) in values(B::dequantize(moved, FloatDType::F32)).into_iter().zip(wanted) {
                        assert!((found - wanted).abs() <= tolerance, "{found} {wanted} {level:?} on {device}");
                    }
                }
                let places = values(B::q_argmax(x.clone(), 1, IntDType::I32));
                let largest = before.chunks(8).map(|row| row.iter().position(|v| row.iter().all(|w| w <= v)));
                assert_eq!(places, largest.map(|place| place.unwrap() as f64).collect::<Vec<_>>());
                let mut sorted = before;
                sorted[..8].sort_by(f64::total_cmp);
                let found = values(B::dequantize(B::q_sort(x, 1, false), FloatDType::F32));
                assert!(found.iter().zip(&sorted[..8]).all(|(f, w)| (f - w).abs() < 0.06));
            }
        }
    }

    #[test]
    #[should_panic(expected = "E4M3")]
    fn an_unsupported_scheme_is_named() {
        let _ = B::quantize_dynamic(tensor([1.0f32], &[1]), &scheme(QuantValue::E4M3));
    }
}
