//! Constants that belong to the structure of a program, and run-time scalars, which do not.

use crate::{DType, TensorType};
use half::{bf16, f16};
use std::sync::Arc;

/// A number as Burn passes it, before it is converted to a tensor's element type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// A float.
    Float(f64),
    /// A signed integer.
    Int(i64),
    /// An unsigned integer.
    UInt(u64),
    /// A bool; 0 or 1 as a number.
    Bool(bool),
}

impl Number {
    /// Returns the number as f64.
    pub fn to_f64(self) -> f64 {
        match self {
            Number::Float(v) => v,
            Number::Int(v) => v as f64,
            Number::UInt(v) => v as f64,
            Number::Bool(v) => f64::from(u8::from(v)),
        }
    }

    /// Returns the number as an integer: floats truncate and saturate as Rust's `as` does, u64 keeps its bits.
    pub fn to_i64(self) -> i64 {
        match self {
            Number::Float(v) => v as i64,
            Number::Int(v) => v,
            Number::UInt(v) => v as i64,
            Number::Bool(v) => i64::from(v),
        }
    }

    /// Returns the number as a bool: everything but zero is true.
    pub fn to_bool(self) -> bool {
        match self {
            Number::Float(v) => v != 0.0,
            Number::Int(v) => v != 0,
            Number::UInt(v) => v != 0,
            Number::Bool(v) => v,
        }
    }

    /// Returns the bits of the number in `dtype`, little-endian in the low bytes. Floats round once, to nearest even;
    /// as integers they truncate and saturate. Integers wrap. For a complex type the number is the real part.
    pub fn bits(self, dtype: DType) -> u64 {
        if let Number::Float(v) = self
            && dtype.is_int()
        {
            return float_to_int(v, dtype);
        }
        match dtype {
            DType::Bool => u64::from(self.to_bool()),
            DType::I8 | DType::U8 => u64::from(self.to_i64() as u8),
            DType::I16 | DType::U16 => u64::from(self.to_i64() as u16),
            DType::I32 | DType::U32 => u64::from(self.to_i64() as u32),
            DType::I64 | DType::U64 => self.to_i64() as u64,
            DType::BF16 => u64::from(bf16::from_f32(round_to_odd(self.to_f64())).to_bits()),
            DType::F16 => u64::from(f16::from_f32(round_to_odd(self.to_f64())).to_bits()),
            DType::F32 | DType::C64 => u64::from((self.to_f64() as f32).to_bits()),
            DType::F64 => self.to_f64().to_bits(),
        }
    }
}

impl Number {
    /// Returns the number that has these bits in `dtype`, as [`Number::bits`] gives them; the real part of a complex one.
    pub fn of_bits(bits: u64, dtype: DType) -> Self {
        let unused = 64 - 8 * dtype.size_bytes().min(8) as u32;
        match dtype {
            DType::Bool => Number::Bool(bits != 0),
            DType::I8 | DType::I16 | DType::I32 | DType::I64 => Number::Int(((bits << unused) as i64) >> unused),
            DType::U8 | DType::U16 | DType::U32 | DType::U64 => Number::UInt(bits),
            DType::BF16 => Number::Float(bf16::from_bits(bits as u16).to_f64()),
            DType::F16 => Number::Float(f16::from_bits(bits as u16).to_f64()),
            DType::F32 | DType::C64 => Number::Float(f32::from_bits(bits as u32).into()),
            DType::F64 => Number::Float(f64::from_bits(bits)),
        }
    }
}

/// Returns the nearest f32 whose last bit is set if the conversion is inexact, so that a second rounding gives the
/// result of one.
fn round_to_odd(v: f64) -> f32 {
    let nearest = v as f32;
    if f64::from(nearest) == v || !nearest.is_finite() || nearest.to_bits() & 1 == 1 {
        return nearest;
    }
    // If the nearest f32 has an even last bit, the neighbour on the other side of `v` has an odd one.
    let away = (f64::from(nearest) < v) == (v > 0.0);
    f32::from_bits(if away { nearest.to_bits() + 1 } else { nearest.to_bits() - 1 })
}

fn float_to_int(v: f64, dtype: DType) -> u64 {
    match dtype {
        DType::I8 => u64::from(v as i8 as u8),
        DType::I16 => u64::from(v as i16 as u16),
        DType::I32 => u64::from(v as i32 as u32),
        DType::U8 => u64::from(v as u8),
        DType::U16 => u64::from(v as u16),
        DType::U32 => u64::from(v as u32),
        DType::U64 => v as u64,
        DType::I64 | DType::Bool | DType::BF16 | DType::F16 | DType::F32 | DType::F64 | DType::C64 => v as i64 as u64,
    }
}

impl From<f64> for Number {
    fn from(v: f64) -> Self {
        Number::Float(v)
    }
}

impl From<i64> for Number {
    fn from(v: i64) -> Self {
        Number::Int(v)
    }
}

impl From<bool> for Number {
    fn from(v: bool) -> Self {
        Number::Bool(v)
    }
}

/// A constant: one value for all elements, or row-major bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Literal {
    /// Element type and dims.
    pub ty: TensorType,
    /// The values.
    pub data: LiteralData,
}

/// The values of a [`Literal`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LiteralData {
    /// The bits of the single value of all elements, little-endian in the low bytes.
    Splat(u64),
    /// Row-major little-endian elements; bools take one byte.
    Dense(Arc<[u8]>),
}

impl Literal {
    /// Creates a rank-0 constant.
    pub fn scalar(dtype: DType, value: impl Into<Number>) -> Self {
        Self { ty: TensorType::scalar(dtype), data: LiteralData::Splat(value.into().bits(dtype)) }
    }

    /// Creates a constant table from row-major little-endian bytes.
    pub fn dense(ty: TensorType, bytes: impl Into<Arc<[u8]>>) -> Self {
        Self { ty, data: LiteralData::Dense(bytes.into()) }
    }

    /// Returns the value of all elements, if they have one.
    pub fn splat(&self) -> Option<Number> {
        match self.data {
            LiteralData::Splat(bits) => Some(Number::of_bits(bits, self.ty.dtype)),
            LiteralData::Dense(_) => None,
        }
    }

    /// Returns the row-major little-endian bytes of the value.
    pub fn to_bytes(&self) -> Vec<u8> {
        match &self.data {
            LiteralData::Splat(bits) => bits.to_le_bytes()[..self.ty.dtype.size_bytes()].repeat(self.ty.elements()),
            LiteralData::Dense(bytes) => bytes.to_vec(),
        }
    }
}

/// Returns the bits of an integer type's (or bool's) smallest and largest value, or of a float's -inf and +inf.
pub(crate) fn extremes(dtype: DType) -> (u64, u64) {
    let float = |lo: f64, hi: f64| (Number::Float(lo).bits(dtype), Number::Float(hi).bits(dtype));
    match dtype {
        DType::Bool => (0, 1),
        DType::I8 => (u64::from(i8::MIN as u8), i8::MAX as u64),
        DType::I16 => (u64::from(i16::MIN as u16), i16::MAX as u64),
        DType::I32 => (u64::from(i32::MIN as u32), i32::MAX as u64),
        DType::I64 => (i64::MIN as u64, i64::MAX as u64),
        DType::U8 => (0, u64::from(u8::MAX)),
        DType::U16 => (0, u64::from(u16::MAX)),
        DType::U32 => (0, u64::from(u32::MAX)),
        DType::U64 => (0, u64::MAX),
        DType::BF16 | DType::F16 | DType::F32 | DType::F64 | DType::C64 => float(f64::NEG_INFINITY, f64::INFINITY),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns the bf16 values at and next to `value`.
    fn around(value: f64) -> impl Iterator<Item = f64> {
        let near = bf16::from_f64(value).to_bits();
        let beside = [near.wrapping_sub(1), near, near.wrapping_add(1)].map(|bits| bf16::from_bits(bits).to_f64());
        beside.into_iter().filter(|value| value.is_finite())
    }

    proptest! {
        #[test]
        fn floats_round_once(near in any::<u16>(), offset in -3i64..4) {
            // Half a step above a bf16 value, plus or minus a few f64 units: rounding twice gives wrong results here.
            let tie = (f64::from(bf16::from_bits(near)).to_bits() + (1 << 44)) as i64 + offset;
            let value = f64::from_bits(tie as u64);
            let found = bf16::from_bits(Number::Float(value).bits(DType::BF16) as u16).to_f64();
            if value.is_finite() && found.is_finite() {
                let best = around(value).map(|other| (other - value).abs()).fold(f64::INFINITY, f64::min);
                prop_assert_eq!((found - value).abs(), best, "{} -> {}", value, found);
            }
        }
    }

    #[test]
    fn numbers_take_each_element_type() {
        let cases = [
            (Number::Float(300.7), DType::I8, 127),
            (Number::Float(-1.9), DType::I16, 0xFFFF),
            (Number::Float(-1.0), DType::U32, 0),
            (Number::Float(f64::INFINITY), DType::I64, i64::MAX as u64),
            (Number::Float(f64::NAN), DType::I32, 0),
            (Number::Int(300), DType::U8, 44),
            (Number::Int(-1), DType::U64, u64::MAX),
            (Number::UInt(u64::MAX), DType::I64, u64::MAX),
            (Number::Float(-0.0), DType::F32, 0x8000_0000),
            (Number::Float(1e40), DType::F32, 0x7F80_0000),
            (Number::Float(1.0), DType::BF16, 0x3F80),
            (Number::Float(1.0), DType::F16, 0x3C00),
            (Number::Float(f64::NAN), DType::Bool, 1),
            (Number::Float(1e-300), DType::BF16, 0),
            (Number::Int(2), DType::Bool, 1),
        ];
        for (number, dtype, bits) in cases {
            assert_eq!(number.bits(dtype), bits, "{number:?} as {dtype}");
        }
    }
}
