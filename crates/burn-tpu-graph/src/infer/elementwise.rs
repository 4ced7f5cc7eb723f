//! Rules of element-wise ops: equal dims, one element type.

use super::Rule;
use crate::op::{BinaryOp, UnaryOp};
use crate::{DType, DTypeClass, Literal, LiteralData, TensorType};

fn check_class(class: DTypeClass, dtype: DType) -> Rule<()> {
    if class.contains(dtype) { Ok(()) } else { Err(format!("takes {class:?} elements, not {dtype}")) }
}

fn check_same(lhs: &TensorType, rhs: &TensorType) -> Rule<()> {
    if lhs.dims != rhs.dims {
        return Err(format!("dims must be equal or 1, got {:?} and {:?}", lhs.dims, rhs.dims));
    }
    if lhs.dtype != rhs.dtype {
        return Err(format!("element types must be equal, got {} and {}", lhs.dtype, rhs.dtype));
    }
    Ok(())
}

pub(super) fn offset(dtype: DType) -> Rule {
    if dtype.is_int() {
        Ok(TensorType::scalar(dtype))
    } else {
        Err(format!("an offset must be an integer, not {dtype}"))
    }
}

pub(super) fn constant(literal: &Literal) -> Rule {
    if let LiteralData::Dense(bytes) = &literal.data {
        super::bounded(&literal.ty)?;
        if bytes.len() != literal.ty.bytes() {
            return Err(format!("{} takes {} bytes, got {}", literal.ty, literal.ty.bytes(), bytes.len()));
        }
    }
    if literal.ty.dtype == DType::C64 {
        return Err("a complex constant must be built from two real ones".into());
    }
    if let LiteralData::Splat(bits) = literal.data {
        let width = if literal.ty.dtype == DType::Bool { 1 } else { 8 * literal.ty.dtype.size_bytes() as u32 };
        if bits.checked_shr(width).is_some_and(|excess| excess != 0) {
            return Err(format!("{bits:#x} does not fit {}", literal.ty.dtype));
        }
    }
    Ok(literal.ty.clone())
}

pub(super) fn unary(op: UnaryOp, x: &TensorType) -> Rule {
    check_class(op.class(), x.dtype)?;
    Ok(x.clone())
}

pub(super) fn binary(op: BinaryOp, lhs: &TensorType, rhs: &TensorType) -> Rule {
    check_same(lhs, rhs)?;
    check_class(op.class(), lhs.dtype)?;
    Ok(lhs.clone())
}

pub(super) fn compare(lhs: &TensorType, rhs: &TensorType) -> Rule {
    check_same(lhs, rhs)?;
    check_class(DTypeClass::Any, lhs.dtype)?;
    Ok(lhs.with_dtype(DType::Bool))
}

pub(super) fn is_finite(x: &TensorType) -> Rule {
    check_class(DTypeClass::Float, x.dtype)?;
    Ok(x.with_dtype(DType::Bool))
}

pub(super) fn select(predicate: &TensorType, on_true: &TensorType, on_false: &TensorType) -> Rule {
    if predicate.dtype != DType::Bool {
        return Err(format!("the predicate must be bool, not {}", predicate.dtype));
    }
    check_same(on_true, on_false)?;
    if predicate.dims != on_true.dims {
        return Err(format!("the predicate's dims {:?} must be the values' {:?}", predicate.dims, on_true.dims));
    }
    Ok(on_true.clone())
}

pub(super) fn clamp(low: &TensorType, x: &TensorType, high: &TensorType) -> Rule {
    check_same(low, x)?;
    check_same(x, high)?;
    check_class(DTypeClass::Numeric, x.dtype)?;
    Ok(x.clone())
}

pub(super) fn convert(x: &TensorType, dtype: DType) -> Rule {
    check_class(DTypeClass::Any, x.dtype)?;
    check_class(DTypeClass::Any, dtype)?;
    Ok(x.with_dtype(dtype))
}

pub(super) fn bitcast_convert(x: &TensorType, dtype: DType) -> Rule {
    check_class(DTypeClass::Numeric, x.dtype)?;
    check_class(DTypeClass::Numeric, dtype)?;
    if x.dtype.size_bytes() != dtype.size_bytes() {
        return Err(format!("{} and {dtype} differ in width", x.dtype));
    }
    Ok(x.with_dtype(dtype))
}

pub(super) fn complex(real: &TensorType, imag: &TensorType) -> Rule {
    check_same(real, imag)?;
    if real.dtype != DType::F32 {
        return Err(format!("parts must be f32, not {}", real.dtype));
    }
    Ok(real.with_dtype(DType::C64))
}

pub(super) fn complex_part(x: &TensorType) -> Rule {
    if x.dtype != DType::C64 {
        return Err(format!("the operand must be complex, not {}", x.dtype));
    }
    Ok(x.with_dtype(DType::F32))
}
