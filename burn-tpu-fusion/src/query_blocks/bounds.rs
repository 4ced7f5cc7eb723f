//! Between which numbers the elements of a value are.
//!
//! Owns: interval arithmetic over the ops that masks are made of, and over those that attention applies to masked scores.
//! May not know: what is done with the bounds.

use burn_tpu_graph::op::{BinaryOp, Direction, UnaryOp};
use burn_tpu_graph::{DType, Op};

/// All numbers from `low` to `high`, both included. Truth values are 0 and 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Bounds {
    pub(super) low: f64,
    pub(super) high: f64,
}

/// Scores up to this number are masked: nothing that is added to them is half as large.
const MASKED: f64 = -1000.0;

impl Bounds {
    /// Any number, or NaN.
    pub(super) const ANY: Self = Self { low: f64::NEG_INFINITY, high: f64::INFINITY };
    pub(super) const ZERO: Self = Self::point(0.0);

    pub(super) const fn point(value: f64) -> Self {
        Self { low: value, high: value }
    }

    /// Returns whether scores between these numbers are masked.
    pub(super) fn is_masked(self) -> bool {
        self.high <= MASKED
    }

    /// Returns the smallest bounds of these numbers; any number if one of them is NaN.
    fn among(numbers: &[f64]) -> Self {
        if numbers.iter().any(|number| number.is_nan()) {
            return Self::ANY;
        }
        let (low, high) = (f64::min as fn(_, _) -> _, f64::max as fn(_, _) -> _);
        Self {
            low: numbers.iter().copied().fold(f64::INFINITY, low),
            high: numbers.iter().copied().fold(f64::NEG_INFINITY, high),
        }
    }

    /// Returns the bounds of a truth value.
    const fn truth(is_true: bool, is_false: bool) -> Self {
        Self { low: if is_true { 1.0 } else { 0.0 }, high: if is_false { 0.0 } else { 1.0 } }
    }

    /// Returns the bounds of numbers of this type: any, if they may have wrapped.
    fn in_type(self, dtype: DType) -> Self {
        // Up to 2^53 every integer is a number of f64.
        let largest = match dtype {
            DType::I32 => f64::from(i32::MAX),
            DType::I64 => 2f64.powi(53),
            DType::Bool => return Self { low: self.low.max(0.0), high: self.high.min(1.0) },
            _ if dtype.is_float() => return self,
            _ => return Self::ANY,
        };
        if self.low >= -largest && self.high <= largest { self } else { Self::ANY }
    }
}

/// Returns the bounds of an op's result of this type from those of its operands; any number for an op whose rule is not
/// known. What zero is multiplied with or divided by is taken for finite.
pub(super) fn of_op(op: &Op, dtype: DType, operands: &[Bounds]) -> Bounds {
    let bounds = match (op, operands) {
        (Op::Unary(op), &[x]) => of_unary(*op, dtype, x),
        (Op::Binary(op), &[lhs, rhs]) if dtype == DType::Bool => of_bool(*op, lhs, rhs),
        (Op::Binary(op), &[lhs, rhs]) => of_numbers(*op, dtype.is_float(), lhs, rhs),
        (Op::Compare(direction), &[lhs, rhs]) => of_compare(*direction, lhs, rhs),
        (Op::Select, &[predicate, on_true, on_false]) => match predicate {
            Bounds { low: 1.0, .. } => on_true,
            Bounds { high: 0.0, .. } => on_false,
            _ => Bounds::among(&[on_true.low, on_true.high, on_false.low, on_false.high]),
        },
        (Op::Convert { dtype: DType::Bool }, &[x]) => of_compare(Direction::Ne, x, Bounds::ZERO),
        (Op::Convert { dtype }, &[x]) if dtype.is_int() => Bounds { low: x.low.trunc(), high: x.high.trunc() },
        (
            Op::Convert { .. }
            | Op::OptimizationBarrier
            | Op::BroadcastInDim { .. }
            | Op::Reshape { .. }
            | Op::Transpose { .. },
            &[x],
        ) => x,
        _ => Bounds::ANY,
    };
    bounds.in_type(dtype)
}

fn of_unary(op: UnaryOp, dtype: DType, x: Bounds) -> Bounds {
    // Smaller exponents give less than half of the smallest number.
    let zero_exponent = if dtype == DType::F64 { -750.0 } else { -150.0 };
    match op {
        UnaryOp::Neg => Bounds { low: -x.high, high: -x.low },
        UnaryOp::Not if dtype == DType::Bool => Bounds { low: 1.0 - x.high, high: 1.0 - x.low },
        UnaryOp::Exp if x.high <= zero_exponent => Bounds::ZERO,
        _ => Bounds::ANY,
    }
}

fn of_bool(op: BinaryOp, a: Bounds, b: Bounds) -> Bounds {
    match op {
        BinaryOp::Or | BinaryOp::Add | BinaryOp::Max => Bounds { low: a.low.max(b.low), high: a.high.max(b.high) },
        BinaryOp::And | BinaryOp::Mul | BinaryOp::Min => Bounds { low: a.low.min(b.low), high: a.high.min(b.high) },
        _ => Bounds::ANY,
    }
}

fn of_numbers(op: BinaryOp, is_float: bool, a: Bounds, b: Bounds) -> Bounds {
    let halved = |masked: Bounds| Bounds { low: f64::NEG_INFINITY, high: masked.high / 2.0 };
    match op {
        BinaryOp::Add | BinaryOp::Sub if is_float && a.is_masked() && b == Bounds::ANY => halved(a),
        BinaryOp::Add if is_float && b.is_masked() && a == Bounds::ANY => halved(b),
        BinaryOp::Add => Bounds::among(&[a.low + b.low, a.high + b.high]),
        BinaryOp::Sub => Bounds::among(&[a.low - b.high, a.high - b.low]),
        BinaryOp::Mul if a == Bounds::ZERO || b == Bounds::ZERO => Bounds::ZERO,
        BinaryOp::Mul => Bounds::among(&[a.low * b.low, a.low * b.high, a.high * b.low, a.high * b.high]),
        BinaryOp::Div if is_float && a == Bounds::ZERO => Bounds::ZERO,
        BinaryOp::Div if is_float && b.low > 0.0 => {
            Bounds::among(&[a.low / b.low, a.low / b.high, a.high / b.low, a.high / b.high])
        }
        BinaryOp::Max => Bounds { low: a.low.max(b.low), high: a.high.max(b.high) },
        BinaryOp::Min => Bounds { low: a.low.min(b.low), high: a.high.min(b.high) },
        _ => Bounds::ANY,
    }
}

fn of_compare(direction: Direction, a: Bounds, b: Bounds) -> Bounds {
    let less = a.high < b.low;
    let greater = a.low > b.high;
    let equal = a == b && a.low == a.high;
    match direction {
        Direction::Lt => Bounds::truth(less, a.low >= b.high),
        Direction::Le => Bounds::truth(a.high <= b.low, greater),
        Direction::Gt => Bounds::truth(greater, a.high <= b.low),
        Direction::Ge => Bounds::truth(a.low >= b.high, less),
        Direction::Eq => Bounds::truth(equal, less || greater),
        Direction::Ne => Bounds::truth(less || greater, equal),
    }
}
