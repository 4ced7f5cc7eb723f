//! Conversions between Burn's element types and the graph's.

use burn_backend::Scalar;
use burn_std::{BoolStore, DType as BurnDType, FloatDType, IntDType};
use burn_tpu_runtime::graph::{DType, Number};

/// Returns Burn's name of an element type. C64 has none, but complex numbers never leave the graph: it maps to f32.
pub(crate) fn to_burn(dtype: DType) -> BurnDType {
    match dtype {
        DType::Bool => BurnDType::Bool(BoolStore::Native),
        DType::I8 => BurnDType::I8,
        DType::I16 => BurnDType::I16,
        DType::I32 => BurnDType::I32,
        DType::I64 => BurnDType::I64,
        DType::U8 => BurnDType::U8,
        DType::U16 => BurnDType::U16,
        DType::U32 => BurnDType::U32,
        DType::U64 => BurnDType::U64,
        DType::BF16 => BurnDType::BF16,
        DType::F16 => BurnDType::F16,
        DType::F32 | DType::C64 => BurnDType::F32,
        DType::F64 => BurnDType::F64,
    }
}

/// Returns the graph's name of an element type; `None` for quantized values and for bools stored as numbers.
pub(crate) fn from_burn(dtype: BurnDType) -> Option<DType> {
    Some(match dtype {
        BurnDType::Bool(BoolStore::Native) => DType::Bool,
        BurnDType::Bool(_) | BurnDType::QFloat(_) => return None,
        BurnDType::I8 => DType::I8,
        BurnDType::I16 => DType::I16,
        BurnDType::I32 => DType::I32,
        BurnDType::I64 => DType::I64,
        BurnDType::U8 => DType::U8,
        BurnDType::U16 => DType::U16,
        BurnDType::U32 => DType::U32,
        BurnDType::U64 => DType::U64,
        BurnDType::BF16 => DType::BF16,
        BurnDType::F16 => DType::F16,
        BurnDType::F32 | BurnDType::Flex32 => DType::F32,
        BurnDType::F64 => DType::F64,
    })
}

/// Returns the graph's name of a float type; Burn's `Flex32` is f32 here.
pub(crate) fn from_float(dtype: FloatDType) -> DType {
    match dtype {
        FloatDType::F64 => DType::F64,
        FloatDType::F32 | FloatDType::Flex32 => DType::F32,
        FloatDType::F16 => DType::F16,
        FloatDType::BF16 => DType::BF16,
    }
}

/// Returns the graph's name of an integer type.
pub(crate) fn from_int(dtype: IntDType) -> DType {
    match dtype {
        IntDType::I64 => DType::I64,
        IntDType::I32 => DType::I32,
        IntDType::I16 => DType::I16,
        IntDType::I8 => DType::I8,
        IntDType::U64 => DType::U64,
        IntDType::U32 => DType::U32,
        IntDType::U16 => DType::U16,
        IntDType::U8 => DType::U8,
    }
}

/// Converts Burn's run-time scalar to the graph's number.
pub(crate) fn number(scalar: Scalar) -> Number {
    match scalar {
        Scalar::Float(v) => Number::Float(v),
        Scalar::Int(v) => Number::Int(v),
        Scalar::UInt(v) => Number::UInt(v),
        Scalar::Bool(v) => Number::Bool(v),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn element_types_map_one_to_one() {
        for dtype in DType::ALL.into_iter().filter(|&d| d != DType::C64) {
            assert_eq!(from_burn(to_burn(dtype)), Some(dtype));
        }
    }
}
