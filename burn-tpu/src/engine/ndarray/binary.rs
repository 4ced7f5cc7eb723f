//! Element-wise ops of two operands, and comparisons.

use super::buffer::{Element, dispatch_bits, dispatch_numeric};
use super::elementwise::{zip, zip_into};
use super::error::Result;
use super::numeric::{Bits, Number, Shift};
use super::tensor::HostTensor;
use burn_tpu_graph::DType;
use burn_tpu_graph::op::{BinaryOp, Direction};

/// The op on tensors whose 16-bit floats were widened.
pub(super) fn binary(op: BinaryOp, lhs: HostTensor, rhs: HostTensor) -> Result<HostTensor> {
    use BinaryOp as B;
    match op {
        B::And | B::Or | B::Xor => dispatch_bits!(lhs.dtype(), T => bits::<T>(op, lhs, rhs)),
        B::Add | B::Mul | B::Max | B::Min if lhs.dtype() == DType::Bool => bits::<bool>(op, lhs, rhs),
        B::Add | B::Sub | B::Mul | B::Div | B::Rem | B::Pow | B::Max | B::Min => {
            dispatch_numeric!(lhs.dtype(), T => arithmetic::<T>(op, lhs, rhs))
        }
        B::Atan2 => match lhs.dtype() {
            DType::F64 => zip_into(lhs, &rhs, f64::atan2),
            _ => zip_into(lhs, &rhs, f32::atan2),
        },
        B::ShiftLeft | B::ShiftRightArithmetic | B::ShiftRightLogical => shift_any(op, lhs, rhs),
    }
}

/// The operands with the one first that can be written in place: only for ops that do not mind.
fn commute<T: Element>(lhs: HostTensor, rhs: HostTensor) -> (HostTensor, HostTensor) {
    if rhs.is_owned::<T>() && !lhs.is_owned::<T>() { (rhs, lhs) } else { (lhs, rhs) }
}

fn commutative<T: Element>(lhs: HostTensor, rhs: HostTensor, f: impl Fn(T, T) -> T) -> Result<HostTensor> {
    let (lhs, rhs) = commute::<T>(lhs, rhs);
    zip_into(lhs, &rhs, f)
}

fn arithmetic<T: Number>(op: BinaryOp, lhs: HostTensor, rhs: HostTensor) -> Result<HostTensor> {
    use BinaryOp as B;
    match op {
        B::Add => commutative(lhs, rhs, T::plus),
        B::Sub => zip_into(lhs, &rhs, T::minus),
        B::Mul => commutative(lhs, rhs, T::times),
        B::Div => zip_into(lhs, &rhs, T::divided),
        B::Rem => zip_into(lhs, &rhs, T::remainder),
        B::Pow => zip_into(lhs, &rhs, T::power),
        B::Max => commutative(lhs, rhs, T::larger),
        B::Min => commutative(lhs, rhs, T::smaller),
        B::Atan2 | B::And | B::Or | B::Xor | B::ShiftLeft | B::ShiftRightArithmetic | B::ShiftRightLogical => {
            refuse(op, T::DTYPE)
        }
    }
}

/// Bit operations; for bool also sums and products, which are logical.
fn bits<T: Bits>(op: BinaryOp, lhs: HostTensor, rhs: HostTensor) -> Result<HostTensor> {
    use BinaryOp as B;
    match op {
        B::And | B::Mul | B::Min => commutative(lhs, rhs, T::and),
        B::Or | B::Add | B::Max => commutative(lhs, rhs, T::or),
        B::Xor => commutative(lhs, rhs, T::xor),
        B::Sub
        | B::Div
        | B::Rem
        | B::Pow
        | B::Atan2
        | B::ShiftLeft
        | B::ShiftRightArithmetic
        | B::ShiftRightLogical => refuse(op, T::DTYPE),
    }
}

fn shift_any(op: BinaryOp, lhs: HostTensor, rhs: HostTensor) -> Result<HostTensor> {
    match lhs.dtype() {
        DType::I8 => shift::<i8>(op, lhs, rhs),
        DType::I16 => shift::<i16>(op, lhs, rhs),
        DType::I32 => shift::<i32>(op, lhs, rhs),
        DType::I64 => shift::<i64>(op, lhs, rhs),
        DType::U8 => shift::<u8>(op, lhs, rhs),
        DType::U16 => shift::<u16>(op, lhs, rhs),
        DType::U32 => shift::<u32>(op, lhs, rhs),
        DType::U64 => shift::<u64>(op, lhs, rhs),
        dtype @ (DType::Bool | DType::BF16 | DType::F16 | DType::F32 | DType::F64 | DType::C64) => refuse(op, dtype),
    }
}

fn shift<T: Shift>(op: BinaryOp, lhs: HostTensor, rhs: HostTensor) -> Result<HostTensor> {
    let f = match op {
        BinaryOp::ShiftLeft => T::shift_left,
        BinaryOp::ShiftRightArithmetic => T::shift_right_arithmetic,
        _ => T::shift_right_logical,
    };
    zip_into(lhs, &rhs, f)
}

fn refuse(op: BinaryOp, dtype: DType) -> Result<HostTensor> {
    Err(format!("{} takes no {dtype} elements", op.mnemonic()).into())
}

/// The relation of every pair; with a NaN only `Ne` holds.
pub(super) fn compare(direction: Direction, lhs: &HostTensor, rhs: &HostTensor) -> Result<HostTensor> {
    if lhs.dtype() == DType::Bool {
        return relation::<bool>(direction, lhs, rhs);
    }
    dispatch_numeric!(lhs.dtype(), T => relation::<T>(direction, lhs, rhs))
}

fn relation<T: Element + PartialOrd>(direction: Direction, lhs: &HostTensor, rhs: &HostTensor) -> Result<HostTensor> {
    match direction {
        Direction::Eq => zip(lhs, rhs, |x: T, y: T| x == y),
        Direction::Ne => zip(lhs, rhs, |x: T, y: T| x != y),
        Direction::Lt => zip(lhs, rhs, |x: T, y: T| x < y),
        Direction::Le => zip(lhs, rhs, |x: T, y: T| x <= y),
        Direction::Gt => zip(lhs, rhs, |x: T, y: T| x > y),
        Direction::Ge => zip(lhs, rhs, |x: T, y: T| x >= y),
    }
}
