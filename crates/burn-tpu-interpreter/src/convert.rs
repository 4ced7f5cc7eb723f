//! Conversions between element types, as XLA's CPU client does them: from float to integer, values truncate and
//! saturate and NaN gives 0; integers wrap; bf16 is rounded from f32; f16 is rounded once.

use super::buffer::{Element, dispatch};
use super::elementwise::map;
use super::error::Result;
use super::tensor::HostTensor;
use burn_tpu_graph::{DType, Number};
use half::{bf16, f16};

/// Converts the values to `dtype`. The pairs that programs often have are one loop; the others go through the widest
/// type of their kind, which holds every value exactly.
pub(super) fn convert(x: HostTensor, dtype: DType) -> Result<HostTensor> {
    match (x.dtype(), dtype) {
        (same, dtype) if same == dtype => Ok(x),
        (DType::BF16, DType::F32) => map(&x, bf16::to_f32),
        (DType::F16, DType::F32) => map(&x, f16::to_f32),
        (DType::BF16 | DType::F16, dtype) => convert(convert(x, DType::F32)?, dtype),
        (DType::F32, DType::BF16) => map(&x, bf16::from_f32),
        (DType::F32, DType::F16) => map(&x, f16::from_f32),
        (DType::F32, DType::Bool) => map(&x, |v: f32| v != 0.0),
        (DType::F32, DType::I32) => map(&x, |v: f32| v as i32),
        (DType::F32, DType::I64) => map(&x, |v: f32| v as i64),
        (DType::F32, DType::F64) => map(&x, |v: f32| f64::from(v)),
        (DType::F32, dtype) => from_f64(&convert(x, DType::F64)?, dtype),
        (DType::F64, dtype) => from_f64(&x, dtype),
        (DType::Bool, DType::F32) => map(&x, |v: bool| f32::from(u8::from(v))),
        (DType::Bool, DType::I64) => map(&x, |v: bool| i64::from(v)),
        (DType::I32, DType::F32) => map(&x, |v: i32| v as f32),
        (DType::I8, DType::I64) => map(&x, |v: i8| i64::from(v)),
        (DType::I16, DType::I64) => map(&x, |v: i16| i64::from(v)),
        (DType::I32, DType::I64) => map(&x, |v: i32| i64::from(v)),
        (DType::U8, DType::I64) => map(&x, |v: u8| i64::from(v)),
        (DType::U16, DType::I64) => map(&x, |v: u16| i64::from(v)),
        (DType::U32, DType::I64) => map(&x, |v: u32| i64::from(v)),
        // Wraps, as all conversions to integers do: the bits are the same.
        (DType::U64, DType::I64) => map(&x, |v: u64| v as i64),
        (DType::U64, DType::F32) => map(&x, |v: u64| v as f32),
        (DType::U64, DType::F64) => map(&x, |v: u64| v as f64),
        (DType::U64, DType::BF16 | DType::F16) => convert(convert(x, DType::F32)?, dtype),
        (DType::I64, dtype) => from_i64(&x, dtype),
        (DType::C64, _) => Err("complex numbers do not convert".into()),
        (_, dtype) => from_i64(&convert(x, DType::I64)?, dtype),
    }
}

fn from_i64(x: &HostTensor, dtype: DType) -> Result<HostTensor> {
    match dtype {
        DType::Bool => map(x, |v: i64| v != 0),
        DType::I8 => map(x, |v: i64| v as i8),
        DType::I16 => map(x, |v: i64| v as i16),
        DType::I32 => map(x, |v: i64| v as i32),
        DType::I64 => Ok(x.clone()),
        DType::U8 => map(x, |v: i64| v as u8),
        DType::U16 => map(x, |v: i64| v as u16),
        DType::U32 => map(x, |v: i64| v as u32),
        DType::U64 => map(x, |v: i64| v as u64),
        DType::BF16 => map(x, |v: i64| bf16::from_f32(v as f32)),
        // f32 holds every integer exactly that does not overflow an f16.
        DType::F16 => map(x, |v: i64| f16::from_f32(v as f32)),
        DType::F32 => map(x, |v: i64| v as f32),
        DType::F64 => map(x, |v: i64| v as f64),
        DType::C64 => Err("complex numbers are built from two parts".into()),
    }
}

fn from_f64(x: &HostTensor, dtype: DType) -> Result<HostTensor> {
    match dtype {
        DType::Bool => map(x, |v: f64| v != 0.0),
        DType::I8 => map(x, |v: f64| v as i8),
        DType::I16 => map(x, |v: f64| v as i16),
        DType::I32 => map(x, |v: f64| v as i32),
        DType::I64 => map(x, |v: f64| v as i64),
        DType::U8 => map(x, |v: f64| v as u8),
        DType::U16 => map(x, |v: f64| v as u16),
        DType::U32 => map(x, |v: f64| v as u32),
        DType::U64 => map(x, |v: f64| v as u64),
        DType::BF16 => map(x, |v: f64| bf16::from_f32(v as f32)),
        // Not `f16::from_f64`, which rounds twice on processors that convert only from f32.
        DType::F16 => map(x, |v: f64| f16::from_bits(Number::Float(v).bits(DType::F16) as u16)),
        DType::F32 => map(x, |v: f64| v as f32),
        DType::F64 => Ok(x.clone()),
        DType::C64 => Err("complex numbers are built from two parts".into()),
    }
}

/// Reinterprets the bits of every element as another type of the same width.
pub(super) fn bitcast(x: &HostTensor, dtype: DType) -> HostTensor {
    HostTensor::from_bytes(x.ty().with_dtype(dtype), x.to_bytes())
}

/// Returns 0, 1, 2, … along `dim`. Numbers that the type cannot hold wrap or round.
pub(super) fn iota(dtype: DType, dims: &[usize], dim: usize) -> Result<HostTensor> {
    let count = dims.get(dim).copied().unwrap_or(1);
    let line = convert(HostTensor::new(&[count], (0..count as i64).collect()), dtype)?;
    let mut strides = super::walk::Strides::from_elem(0, dims.len());
    strides.iter_mut().skip(dim).take(1).for_each(|stride| *stride = 1);
    Ok(line.viewed(dims.into(), 0, strides))
}

/// Converts 16-bit floats to f32, in which they are computed; returns all other types unchanged.
pub(super) fn widen(x: HostTensor) -> Result<HostTensor> {
    let dtype = x.dtype().accumulator();
    convert(x, dtype)
}

/// Returns one value for every element.
pub(super) fn splat(dtype: DType, dims: &[usize], bits: u64) -> HostTensor {
    let value = dispatch!(dtype, T => {
        let mut one = T::read(&bits.to_le_bytes());
        one.truncate(1);
        HostTensor::new(&[], one)
    });
    let strides = super::walk::Strides::from_elem(0, dims.len());
    value.viewed(dims.into(), 0, strides)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{run, tensor, values};
    use super::*;
    use burn_tpu_graph::Builder;

    fn to<T: Element, U: Element>(x: &[T]) -> Vec<U> {
        run(|t| {
            let x = t.input(&[x.len()], x);
            t.graph.convert(x, U::DTYPE)
        })
    }

    #[test]
    fn floats_truncate_and_saturate() {
        let x = [1.9f32, -1.9, 1e20, -1e20, f32::INFINITY, f32::NAN];
        assert_eq!(to::<_, i32>(&x), [1, -1, i32::MAX, i32::MIN, i32::MAX, 0]);
        assert_eq!(to::<_, u8>(&x), [1, 0, 255, 0, 255, 0]);
        assert_eq!(to::<_, i64>(&x), [1, -1, i64::MAX, i64::MIN, i64::MAX, 0]);
    }

    #[test]
    fn integers_wrap() {
        assert_eq!(to::<i32, i8>(&[300, -129]), [44, 127]);
        assert_eq!(to::<i32, u64>(&[-1]), [u64::MAX]);
        assert_eq!(to::<u64, i32>(&[u64::MAX]), [-1]);
    }

    #[test]
    fn everything_except_zero_is_true() {
        // A subnormal number is zero to XLA.
        assert_eq!(to::<f32, bool>(&[0.0, -0.0, 1e-40, 1e-37, f32::NAN]), [false, false, false, true, true]);
        assert_eq!(to::<i8, bool>(&[0, -1]), [false, true]);
        assert_eq!(to::<bool, f64>(&[true, false]), [1.0, 0.0]);
    }

    fn halves<T: Element>(x: &[T]) -> Vec<f32> {
        to::<T, f16>(x).into_iter().map(f16::to_f32).collect()
    }

    #[test]
    fn f64_rounds_to_f16_once() {
        // Above the tie between 1 and 1 + 2^-10 by less than f32 can represent: a conversion through f32 would round
        // to 1.
        let above = 1.0 + 2f64.powi(-11) + 2f64.powi(-40);
        let below = 1.0 + 3.0 * 2f64.powi(-11) - 2f64.powi(-40);
        let next = 1.0 + 2f32.powi(-10);
        assert_eq!(halves::<f64>(&[above, below, -above]), [next, next, -next]);
        assert_eq!(to::<f64, f16>(&[65519.999, 65520.0]), [f16::MAX, f16::INFINITY]);
        let subnormal = 2f64.powi(-25);
        assert_eq!(to::<f64, f16>(&[subnormal, subnormal * 1.000001]), [f16::ZERO, f16::from_bits(1)]);
        assert!(to::<f64, f16>(&[f64::NAN])[0].is_nan());
    }

    #[test]
    fn large_integers_overflow_f16() {
        assert_eq!(to::<i64, f16>(&[65519, 65520, -i64::MAX]), [f16::MAX, f16::INFINITY, f16::NEG_INFINITY]);
        assert_eq!(halves::<u64>(&[2049, 2051]), [2048.0, 2052.0]);
    }

    #[test]
    fn bf16_rounds_to_even() {
        assert_eq!(
            to::<f32, bf16>(&[257.0, 259.0, f32::MAX]).into_iter().map(bf16::to_f32).collect::<Vec<_>>(),
            [256.0, 260.0, f32::INFINITY]
        );
    }

    #[test]
    fn bitcasts_keep_every_bit() {
        assert_eq!(values::<u32>(&bitcast(&tensor(&[1], &[1.0f32]), DType::U32)), [0x3F80_0000]);
        assert_eq!(values::<i64>(&bitcast(&tensor(&[1], &[-0.0f64]), DType::I64)), [i64::MIN]);
        assert_eq!(values::<bf16>(&bitcast(&tensor(&[1], &[0x3F80u16]), DType::BF16)), [bf16::ONE]);
    }

    #[test]
    fn iota_counts_along_its_dim() {
        assert_eq!(values::<i32>(&iota(DType::I32, &[2, 3], 1).unwrap()), [0, 1, 2, 0, 1, 2]);
        assert_eq!(values::<u8>(&iota(DType::U8, &[2, 2], 0).unwrap()), [0, 0, 1, 1]);
        assert!(values::<f32>(&iota(DType::F32, &[0, 3], 1).unwrap()).is_empty());
        assert_eq!(values::<i8>(&iota(DType::I8, &[130], 0).unwrap())[127..], [127, -128, -127]);
    }

    #[test]
    fn a_splat_holds_one_element() {
        let ones = splat(DType::I16, &[3, 4], 7);
        assert_eq!(ones.view::<i16>().unwrap().data, [7]);
        assert_eq!(values::<i16>(&ones), [7; 12]);
        assert_eq!(values::<bool>(&splat(DType::Bool, &[2], 1)), [true, true]);
    }
}
