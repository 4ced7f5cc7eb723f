//! Conversions between element types, as XLA's CPU client does them: floats truncate and saturate on their way to
//! integers and NaN gives 0, integers wrap, bf16 is reached through f32, f16 in one rounding.

use super::buffer::{Element, dispatch};
use super::elementwise::map;
use super::error::Result;
use super::tensor::HostTensor;
use burn_tpu_graph::DType;
use half::{bf16, f16};

/// The values as `dtype`.
pub(super) fn convert(x: HostTensor, dtype: DType) -> Result<HostTensor> {
    match x.dtype() {
        same if same == dtype => Ok(x),
        DType::BF16 => convert(map(&x, bf16::to_f32)?, dtype),
        DType::F16 => convert(map(&x, f16::to_f32)?, dtype),
        DType::Bool => convert(map(&x, |v: bool| u8::from(v))?, dtype),
        DType::I8 => i8::cast(&x, dtype),
        DType::I16 => i16::cast(&x, dtype),
        DType::I32 => i32::cast(&x, dtype),
        DType::I64 => i64::cast(&x, dtype),
        DType::U8 => u8::cast(&x, dtype),
        DType::U16 => u16::cast(&x, dtype),
        DType::U32 => u32::cast(&x, dtype),
        DType::U64 => u64::cast(&x, dtype),
        DType::F32 => f32::cast(&x, dtype),
        DType::F64 => f64::cast(&x, dtype),
        DType::C64 => Err("complex numbers do not convert".into()),
    }
}

/// A primitive number, which Rust's `as` takes to any other.
trait Cast: Element {
    fn cast(x: &HostTensor, dtype: DType) -> Result<HostTensor>;
}

macro_rules! casts {
    ($($ty:ty)*) => {$(
        impl Cast for $ty {
            fn cast(x: &HostTensor, dtype: DType) -> Result<HostTensor> {
                match dtype {
                    DType::Bool => map(x, |v: $ty| v != <$ty>::default()),
                    DType::I8 => map(x, |v: $ty| v as i8),
                    DType::I16 => map(x, |v: $ty| v as i16),
                    DType::I32 => map(x, |v: $ty| v as i32),
                    DType::I64 => map(x, |v: $ty| v as i64),
                    DType::U8 => map(x, |v: $ty| v as u8),
                    DType::U16 => map(x, |v: $ty| v as u16),
                    DType::U32 => map(x, |v: $ty| v as u32),
                    DType::U64 => map(x, |v: $ty| v as u64),
                    DType::BF16 => map(x, |v: $ty| bf16::from_f32(v as f32)),
                    DType::F16 => map(x, |v: $ty| f16::from_f64(v as f64)),
                    DType::F32 => map(x, |v: $ty| v as f32),
                    DType::F64 => map(x, |v: $ty| v as f64),
                    DType::C64 => Err("complex numbers are built from two parts".into()),
                }
            }
        }
    )*};
}

casts!(i8 i16 i32 i64 u8 u16 u32 u64 f32 f64);

/// The bits of every element under the name of another type of the same width.
pub(super) fn bitcast(x: &HostTensor, dtype: DType) -> HostTensor {
    HostTensor::from_bytes(x.ty().with_dtype(dtype), x.to_bytes())
}

/// 0, 1, 2, … along `dim`. What the type cannot count it wraps or rounds.
pub(super) fn iota(dtype: DType, dims: &[usize], dim: usize) -> Result<HostTensor> {
    let count = dims.get(dim).copied().unwrap_or(1);
    let line = convert(HostTensor::new(&[count], (0..count as i64).collect()), dtype)?;
    let mut strides = super::walk::Strides::from_elem(0, dims.len());
    strides.iter_mut().skip(dim).take(1).for_each(|stride| *stride = 1);
    Ok(line.viewed(dims.into(), 0, strides))
}

/// The values of 16-bit floats in f32, in which they are computed; all others as they are.
pub(super) fn widen(x: HostTensor) -> Result<HostTensor> {
    let dtype = x.dtype().accumulator();
    convert(x, dtype)
}

/// One value for every element.
pub(super) fn splat(dtype: DType, dims: &[usize], bits: u64) -> HostTensor {
    let value = dispatch!(dtype, T => {
        let one = T::read(&bits.to_le_bytes());
        HostTensor::new(&[], one.into_iter().take(1).collect())
    });
    let strides = super::walk::Strides::from_elem(0, dims.len());
    value.viewed(dims.into(), 0, strides)
}
