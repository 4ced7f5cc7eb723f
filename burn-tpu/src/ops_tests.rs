//! Unit tests of the operations on Burn 0.21: against burn-ndarray, and of what they refuse. `ops/` has none, since other
//! versions of Burn compile it too.

use crate::ops::host;
use crate::{TpuDevice, TpuTensor};
use burn_backend::{Element, TensorData, try_read_sync};

/// Returns a tensor with these row-major values.
fn tensor<E: Element>(values: impl IntoIterator<Item = E>, dims: &[usize]) -> TpuTensor {
    host::from_data("test", TensorData::new(values.into_iter().collect(), dims.to_vec()), &TpuDevice::ndarray())
}

/// Returns the tensor on another device.
fn to_device(x: TpuTensor, device: &TpuDevice) -> TpuTensor {
    burn_tpu_runtime::ops::data::to_device(x.0, &device.0).into()
}

/// Returns the values, row-major, as f64.
fn values(x: TpuTensor) -> Vec<f64> {
    let read = try_read_sync(host::into_data(x)).expect("into_data never waits for another future");
    read.expect("the program runs").iter::<f64>().collect()
}

/// Returns the values as bools.
fn truths(x: TpuTensor) -> Vec<bool> {
    values(x).into_iter().map(|value| value != 0.0).collect()
}

/// Returns the interpreter's device, and the CPU plugin's if the plugin is there.
fn devices() -> Vec<TpuDevice> {
    let cpu = burn_tpu_pjrt::testing::plugin(burn_tpu_pjrt::PluginKind::Cpu).map(|_| TpuDevice::cpu(0));
    std::iter::once(TpuDevice::ndarray()).chain(cpu).collect()
}

mod options {
    use super::*;
    use crate::ops::options::resolved;
    use burn_std::Slice;
    use burn_std::s;
    use burn_tpu_runtime::ops::movement;

    #[test]
    fn slices_are_resolved_within_the_dims() {
        let x = tensor([0.0f32; 6], &[2, 3]);
        let resolve = |slices: &[Slice]| resolved(&x, slices).into_vec();
        let slice = |range, step| movement::Slice { range, step };
        assert_eq!(resolve(&[s![1..2], s![-2..]]), [slice(1..2, 1), slice(1..3, 1)]);
        assert_eq!(resolve(&[s![..;-1], s![0..9;2]]), [slice(0..2, -1), slice(0..3, 2)]);
        assert_eq!(resolve(&[s![..], s![..], s![..]])[2], slice(0..0, 1), "the op refuses it");
    }
}

mod host_data {
    use super::*;
    use crate::ops::host::{from_data, into_data};
    use burn_std::Bytes;
    use burn_std::{BoolStore, DType as BurnDType};

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

mod floats {
    use super::*;
    use crate::Tpu;
    use burn_backend::ops::FloatTensorOps;
    use burn_backend::ops::IntTensorOps;
    use burn_ndarray::NdArray;

    type B = Tpu<f32>;
    type Nd = NdArray<f32, i32>;

    #[test]
    fn random_places_as_burn_ndarray_does() {
        let host = Default::default();
        let numbers = |count: usize| (0..count).map(|i| (i * 7919 % 101) as f32).collect::<Vec<_>>();
        let floats = |x| try_read_sync(Nd::float_into_data(x)).unwrap().unwrap().iter::<f64>().collect::<Vec<_>>();
        for device in devices() {
            for (dim, count) in [(0, 5), (1, 1), (2, 7)] {
                let mut shape = [4, 3, 6];
                let (size, x) = (shape[dim], TensorData::new(numbers(72), shape));
                shape[dim] = count;
                let elements = shape.iter().product();
                let at: Vec<i32> = (0..elements).map(|i| (i * 31 % 17 % size) as i32).collect();
                let (at, by) = (TensorData::new(at, shape), TensorData::new(numbers(elements), shape));
                let [our_x, our_by] = [&x, &by].map(|data| B::float_from_data(data.clone(), &device));
                let our_at = B::int_from_data(at.clone(), &device);
                let [x, by] = [&x, &by].map(|data| Nd::float_from_data(data.clone(), &host));
                let at = Nd::int_from_data(at, &host);
                let gathered = floats(Nd::float_gather(dim, x.clone(), at.clone()));
                assert_eq!(values(B::float_gather(dim, our_x.clone(), our_at.clone())), gathered, "{dim} on {device}");
                let scattered = floats(Nd::float_scatter_add(dim, x, at, by));
                assert_eq!(values(B::float_scatter_add(dim, our_x, our_at, our_by)), scattered, "{dim} on {device}");
            }
        }
    }
}

mod quantized {
    use super::*;
    use crate::{Tpu, TpuQTensor};
    use burn_backend::ops::FloatTensorOps;
    use burn_backend::ops::QTensorOps;
    use burn_backend::quantization::QuantizationParametersPrimitive;
    use burn_backend::{QTensorPrimitive, TensorMetadata};
    use burn_ndarray::NdArray;
    use burn_std::quantization::{QuantLevel, QuantScheme, QuantStore, QuantValue};
    use burn_std::{DType as BurnDType, FloatDType, IntDType};
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
