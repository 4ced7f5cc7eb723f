//! The arithmetic of an update, on tensors of any rank. The label of each op is that of the optimizer.

use crate::Tensor;
use crate::ops::arithmetic::{binary, binary_scalar, compare_scalar, mask_where, unary};
use crate::ops::movement;
use burn_tpu_graph::Number;
use burn_tpu_graph::op::{BinaryOp, Direction, UnaryOp};

/// What profiles and errors call the ops.
const LABEL: &str = "optimizer";

pub(super) fn add(x: Tensor, y: Tensor) -> Tensor {
    binary(LABEL, BinaryOp::Add, x, y)
}

pub(super) fn sub(x: Tensor, y: Tensor) -> Tensor {
    binary(LABEL, BinaryOp::Sub, x, y)
}

pub(super) fn mul(x: Tensor, y: Tensor) -> Tensor {
    binary(LABEL, BinaryOp::Mul, x, y)
}

pub(super) fn div(x: Tensor, y: Tensor) -> Tensor {
    binary(LABEL, BinaryOp::Div, x, y)
}

pub(super) fn and(x: Tensor, y: Tensor) -> Tensor {
    binary(LABEL, BinaryOp::And, x, y)
}

pub(super) fn or(x: Tensor, y: Tensor) -> Tensor {
    binary(LABEL, BinaryOp::Or, x, y)
}

pub(super) fn not(x: Tensor) -> Tensor {
    unary(LABEL, UnaryOp::Not, x)
}

pub(super) fn neg(x: Tensor) -> Tensor {
    unary(LABEL, UnaryOp::Neg, x)
}

pub(super) fn sqrt(x: Tensor) -> Tensor {
    unary(LABEL, UnaryOp::Sqrt, x)
}

pub(super) fn plus(x: Tensor, number: f32) -> Tensor {
    binary_scalar(LABEL, BinaryOp::Add, x, scalar(number))
}

pub(super) fn times(x: Tensor, number: f32) -> Tensor {
    binary_scalar(LABEL, BinaryOp::Mul, x, scalar(number))
}

pub(super) fn at_most(x: Tensor, number: f32) -> Tensor {
    binary_scalar(LABEL, BinaryOp::Min, x, scalar(number))
}

pub(super) fn at_least(x: Tensor, number: f32) -> Tensor {
    binary_scalar(LABEL, BinaryOp::Max, x, scalar(number))
}

pub(super) fn sign(x: Tensor) -> Tensor {
    unary(LABEL, UnaryOp::Sign, x)
}

pub(super) fn exp(x: Tensor) -> Tensor {
    unary(LABEL, UnaryOp::Exp, x)
}

pub(super) fn log(x: Tensor) -> Tensor {
    unary(LABEL, UnaryOp::Log, x)
}

pub(super) fn compared(x: Tensor, direction: Direction, number: f32) -> Tensor {
    compare_scalar(LABEL, direction, x, scalar(number))
}

/// Returns `new` where the condition `[1]` holds, else `old`.
pub(super) fn chosen(condition: &Tensor, new: Tensor, old: Tensor) -> Tensor {
    let condition = broadcast(condition, old.dims().len());
    mask_where(old, condition, new)
}

/// Returns a number `[1]` as a tensor `[1, 1, ..]` of a rank, which broadcasts.
pub(super) fn broadcast(number: &Tensor, rank: usize) -> Tensor {
    movement::reshape(number.clone(), &vec![1; rank])
}

pub(super) fn scalar(number: f32) -> Number {
    Number::Float(f64::from(number))
}
