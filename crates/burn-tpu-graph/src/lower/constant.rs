//! Exact constants: splats of floats by their bits, tables as hex blobs, never decimals of floats.

use super::printer::{Block, Statement, Value, mlir_type};
use crate::{DType, Literal, LiteralData, TensorType};

/// Returns the constant op of a literal. A table of bools is written as bytes, since readers differ in how they
/// unpack `i1` from a blob.
pub(super) fn constant(block: &mut Block, literal: &Literal) -> Statement {
    let bool_table = literal.ty.dtype == DType::Bool && matches!(literal.data, LiteralData::Dense(_));
    if !bool_table || literal.ty.elements() == 0 {
        return statement(&literal.ty, &literal.data);
    }
    let ty = literal.ty.with_dtype(DType::U8);
    let bytes = block.push(&statement(&ty, &literal.data), ty);
    Statement::new("stablehlo.convert", [bytes])
}

/// Writes a rank-0 constant of the given bits, for initial values.
pub(super) fn scalar(block: &mut Block, dtype: DType, bits: u64) -> Value {
    splat(block, TensorType::scalar(dtype), bits)
}

/// Writes a constant whose elements all have the given bits.
pub(super) fn splat(block: &mut Block, ty: TensorType, bits: u64) -> Value {
    block.push(&statement(&ty, &LiteralData::Splat(bits)), ty)
}

fn statement(ty: &TensorType, data: &LiteralData) -> Statement {
    let values = match data {
        _ if ty.elements() == 0 => String::new(),
        LiteralData::Splat(bits) => element(ty.dtype, *bits),
        LiteralData::Dense(bytes) => blob(bytes),
    };
    Statement::new("stablehlo.constant", []).attr("value", format!("dense<{values}> : {}", mlir_type(ty)))
}

/// Returns the text of one element: floats as hex digits of their bits, the only form that keeps NaNs and never rounds.
fn element(dtype: DType, bits: u64) -> String {
    match dtype {
        DType::Bool => (bits != 0).to_string(),
        DType::I8 => (bits as i8).to_string(),
        DType::I16 => (bits as i16).to_string(),
        DType::I32 => (bits as i32).to_string(),
        DType::I64 => (bits as i64).to_string(),
        DType::U8 | DType::U16 | DType::U32 | DType::U64 => bits.to_string(),
        DType::BF16 | DType::F16 => format!("0x{bits:04X}"),
        DType::F32 => format!("0x{bits:08X}"),
        DType::F64 => format!("0x{bits:016X}"),
        // Inference rejects complex constants.
        DType::C64 => format!("(0x{bits:08X}, 0x00000000)"),
    }
}

fn blob(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let mut text = String::with_capacity(2 * bytes.len() + 4);
    text.push_str("\"0x");
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text.push('"');
    text
}
