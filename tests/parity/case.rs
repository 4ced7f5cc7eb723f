//! A case: the operands of one call, as numbers that every backend can load, and the attributes of the call.

use burn_backend::{DType, FloatDType, IntDType};

/// The elements of an operand or of a result, row-major. Every float type is exact in f64, every integer type in i128.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    Float(Vec<f64>),
    Int(Vec<i128>),
    Bool(Vec<bool>),
}

impl Values {
    fn cycled(&self, count: usize) -> Self {
        fn cycle<T: Clone>(values: &[T], count: usize, other: T) -> Vec<T> {
            let values = if values.is_empty() { &[other][..] } else { values };
            values.iter().cloned().cycle().take(count).collect()
        }
        match self {
            Values::Float(values) => Values::Float(cycle(values, count, 0.5)),
            Values::Int(values) => Values::Int(cycle(values, count, 1)),
            Values::Bool(values) => Values::Bool(cycle(values, count, true)),
        }
    }
}

/// One operand; the case defines the element type of each kind.
#[derive(Clone, Debug)]
pub struct Operand {
    pub dims: Vec<usize>,
    pub values: Values,
}

impl Operand {
    /// Returns the operand with another size of one dim, by repeating its elements.
    pub fn resized(&self, dim: usize, size: usize) -> Self {
        let mut dims = self.dims.clone();
        dims[dim] = size;
        let values = self.values.cycled(dims.iter().product());
        Self { dims, values }
    }
}

/// One call.
#[derive(Clone, Debug)]
pub struct Case<A> {
    pub float: FloatDType,
    pub int: IntDType,
    pub operands: Vec<Operand>,
    pub attr: A,
}

impl<A: Clone> Case<A> {
    /// Returns the case with other attributes.
    pub fn with<T>(self, attr: T) -> Case<T> {
        Case { float: self.float, int: self.int, operands: self.operands, attr }
    }

    /// Returns the case with zeros in place of subnormal floats; `None` if there are none. XLA's CPU and TPU code treats
    /// subnormal operands as zeros.
    pub fn flushed(&self) -> Option<Self> {
        let mut found = false;
        let mut case = self.clone();
        for operand in &mut case.operands {
            let Values::Float(values) = &mut operand.values else { continue };
            for value in values.iter_mut().filter(|v| **v != 0.0 && v.abs() < least(self.float)) {
                found = true;
                *value = 0.0f64.copysign(*value);
            }
        }
        found.then_some(case)
    }
}

/// Returns the magnitude below which values may be flushed to zero and errors do not count: the smallest normal number,
/// except for f16, which is computed in f32: there it is the unit of the subnormals.
pub fn least(dtype: FloatDType) -> f64 {
    match dtype {
        FloatDType::F64 => f64::MIN_POSITIVE,
        FloatDType::F16 => half::f16::from_bits(1).to_f64(),
        FloatDType::F32 | FloatDType::Flex32 | FloatDType::BF16 => f64::from(f32::MIN_POSITIVE),
    }
}

/// Returns the largest finite number of a float type.
pub fn largest(dtype: FloatDType) -> f64 {
    match dtype {
        FloatDType::F64 => f64::MAX,
        FloatDType::F16 => half::f16::MAX.to_f64(),
        FloatDType::BF16 => half::bf16::MAX.to_f64(),
        FloatDType::F32 | FloatDType::Flex32 => f64::from(f32::MAX),
    }
}

/// Returns a number rounded to a float type.
pub fn rounded(value: f64, dtype: FloatDType) -> f64 {
    match dtype {
        FloatDType::F64 => value,
        FloatDType::F16 => half::f16::from_f64(value).to_f64(),
        FloatDType::BF16 => half::bf16::from_f64(value).to_f64(),
        FloatDType::F32 | FloatDType::Flex32 => f64::from(value as f32),
    }
}

/// Returns an integer wrapped to an integer type: the low bits.
pub fn wrapped(value: i128, dtype: IntDType) -> i128 {
    match dtype {
        IntDType::I64 => value as i64 as i128,
        IntDType::I32 => value as i32 as i128,
        IntDType::I16 => value as i16 as i128,
        IntDType::I8 => value as i8 as i128,
        IntDType::U64 => value as u64 as i128,
        IntDType::U32 => value as u32 as i128,
        IntDType::U16 => value as u16 as i128,
        IntDType::U8 => value as u8 as i128,
    }
}

/// Returns the smallest and largest value of an integer type.
pub fn range(dtype: IntDType) -> (i128, i128) {
    let bits = 8 * DType::from(dtype).size() as u32;
    if DType::from(dtype).is_uint() { (0, (1 << bits) - 1) } else { (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) }
}

pub const FLOATS: [FloatDType; 4] = [FloatDType::F32, FloatDType::BF16, FloatDType::F16, FloatDType::F64];
pub const INTS: [IntDType; 8] = [
    IntDType::I32,
    IntDType::I64,
    IntDType::U8,
    IntDType::I8,
    IntDType::U32,
    IntDType::I16,
    IntDType::U16,
    IntDType::U64,
];
