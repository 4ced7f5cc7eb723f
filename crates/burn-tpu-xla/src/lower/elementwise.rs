//! Element-wise ops.

use super::{Built, Operands, call, constant, float, operand};
use burn_tpu_runtime::graph::op::{BinaryOp, Direction, UnaryOp};
use burn_tpu_runtime::graph::{DType, Node, Op, TensorType};
use xla::{XlaBuilder, XlaOp};

pub(super) fn unary(builder: &XlaBuilder, op: UnaryOp, x: &XlaOp, ty: &TensorType) -> Built<XlaOp> {
    match op {
        UnaryOp::Abs => x.abs(),
        UnaryOp::Neg => x.neg(),
        UnaryOp::Sign => x.sign(),
        UnaryOp::Exp => x.exp(),
        UnaryOp::Expm1 => x.expm1(),
        UnaryOp::Log => x.log(),
        UnaryOp::Log1p => x.log1p(),
        UnaryOp::Sqrt => x.sqrt(),
        UnaryOp::Rsqrt => x.rsqrt(),
        UnaryOp::Cbrt => x.cbrt(),
        UnaryOp::Logistic => x.logistic(),
        UnaryOp::Sin => x.sin(),
        UnaryOp::Cos => x.cos(),
        UnaryOp::Tan => from_text(builder, op.into(), &[(x, ty)], ty, "tan"),
        UnaryOp::Tanh => x.tanh(),
        UnaryOp::Sinh
        | UnaryOp::Cosh
        | UnaryOp::Asin
        | UnaryOp::Acos
        | UnaryOp::Atan
        | UnaryOp::Asinh
        | UnaryOp::Acosh
        | UnaryOp::Atanh
        | UnaryOp::ErfInv => float::composed(builder, op, x, ty),
        UnaryOp::Erf => x.erf(),
        UnaryOp::Floor => x.floor(),
        UnaryOp::Ceil => x.ceil(),
        UnaryOp::RoundNearestEven => from_text(builder, op.into(), &[(x, ty)], ty, "round-nearest-even"),
        UnaryOp::Not => x.not(),
    }
}

/// Returns the result of an op that the builder lacks. Its only result has type `ty`.
fn from_text(builder: &XlaBuilder, op: Op, operands: &Operands, ty: &TensorType, hlo: &str) -> Built<XlaOp> {
    let node = Node { op, operands: Default::default(), ty: ty.clone(), more: Vec::new() };
    call::one_op(builder, operands, &node, hlo, "").map(|mut results| results.swap_remove(0))
}

pub(super) fn binary(builder: &XlaBuilder, op: BinaryOp, operands: &Operands, ty: &TensorType) -> Built<XlaOp> {
    let ((lhs, _), (rhs, _)) = (operand(operands, 0)?, operand(operands, 1)?);
    match op {
        // XLA would add constants of bools in one bit.
        BinaryOp::Add if ty.dtype == DType::Bool => lhs.or(rhs),
        BinaryOp::Add => lhs.add_(rhs),
        BinaryOp::Sub => lhs.sub_(rhs),
        BinaryOp::Mul => lhs.mul_(rhs),
        BinaryOp::Div | BinaryOp::Rem if ty.dtype.is_int() => divide(builder, op, lhs, rhs, ty),
        BinaryOp::Div => lhs.div_(rhs),
        BinaryOp::Rem => lhs.rem_(rhs),
        BinaryOp::Pow => lhs.pow(rhs),
        BinaryOp::Max => lhs.max(rhs),
        BinaryOp::Min => lhs.min(rhs),
        BinaryOp::Atan2 => lhs.atan2(rhs),
        BinaryOp::And => lhs.and(rhs),
        BinaryOp::Or => lhs.or(rhs),
        BinaryOp::Xor => lhs.xor(rhs),
        BinaryOp::ShiftLeft => from_text(builder, op.into(), operands, ty, "shift-left"),
        BinaryOp::ShiftRightArithmetic => from_text(builder, op.into(), operands, ty, "shift-right-arithmetic"),
        BinaryOp::ShiftRightLogical => from_text(builder, op.into(), operands, ty, "shift-right-logical"),
    }
}

/// Returns a quotient or remainder of integers. XLA folds constants with the host's division, which a zero divisor ends with
/// the process. So it divides by 1 there, and selects what XLA computes at run time: all bits set, and the dividend.
fn divide(builder: &XlaBuilder, op: BinaryOp, lhs: &XlaOp, rhs: &XlaOp, ty: &TensorType) -> Built<XlaOp> {
    let (zero, one) = (constant::splat(builder, ty, 0)?, constant::splat(builder, ty, 1)?);
    let is_zero = rhs.eq(&zero)?;
    let safe = is_zero.select(&one, rhs)?;
    if op == BinaryOp::Rem {
        return is_zero.select(lhs, &lhs.rem_(&safe)?);
    }
    let all_bits = constant::splat(builder, ty, u64::MAX)?;
    is_zero.select(&all_bits, &lhs.div_(&safe)?)
}

pub(super) fn compare(direction: Direction, operands: &Operands) -> Built<XlaOp> {
    let ((lhs, _), (rhs, _)) = (operand(operands, 0)?, operand(operands, 1)?);
    match direction {
        Direction::Eq => lhs.eq(rhs),
        Direction::Ne => lhs.ne(rhs),
        Direction::Lt => lhs.lt(rhs),
        Direction::Le => lhs.le(rhs),
        Direction::Gt => lhs.gt(rhs),
        Direction::Ge => lhs.ge(rhs),
    }
}

/// Returns `on_true` where the predicate holds, else `on_false`.
pub(super) fn select(operands: &Operands) -> Built<XlaOp> {
    let [(predicate, _), (on_true, _), (on_false, _)] =
        [operand(operands, 0)?, operand(operands, 1)?, operand(operands, 2)?];
    predicate.select(on_true, on_false)
}

/// Returns a value between two bounds, which are the first and the last operand.
pub(super) fn clamp(operands: &Operands) -> Built<XlaOp> {
    let [(low, _), (x, _), (high, _)] = [operand(operands, 0)?, operand(operands, 1)?, operand(operands, 2)?];
    x.clamp(low, high)
}
