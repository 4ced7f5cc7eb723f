//! Constants, by their bits.

use super::Built;
use crate::types::{element, i64s};
use burn_tpu_runtime::graph::{DType, Literal, LiteralData, Number, TensorType};
use xla::{XlaBuilder, XlaOp};

/// Returns the constant of a literal.
pub(super) fn literal(builder: &XlaBuilder, literal: &Literal) -> Built<XlaOp> {
    match &literal.data {
        LiteralData::Splat(bits) => splat(builder, &literal.ty, *bits),
        LiteralData::Dense(bytes) => dense(builder, &literal.ty, bytes),
    }
}

fn dense(builder: &XlaBuilder, ty: &TensorType, bytes: &[u8]) -> Built<XlaOp> {
    let literal = xla::Literal::create_from_shape_and_untyped_data(element(ty.dtype), &ty.dims, bytes)?;
    builder.constant_literal(&literal)
}

/// Returns a constant of rank 0.
pub(super) fn scalar(builder: &XlaBuilder, dtype: DType, bits: u64) -> Built<XlaOp> {
    dense(builder, &TensorType::scalar(dtype), &bits.to_le_bytes()[..dtype.size_bytes()])
}

/// Returns a constant whose elements all have the given bits.
pub(super) fn splat(builder: &XlaBuilder, ty: &TensorType, bits: u64) -> Built<XlaOp> {
    scalar(builder, ty.dtype, bits)?.broadcast(&i64s(&ty.dims))
}

/// Returns a constant whose elements all are a number.
pub(super) fn number(builder: &XlaBuilder, ty: &TensorType, number: impl Into<Number>) -> Built<XlaOp> {
    splat(builder, ty, number.into().bits(ty.dtype))
}
