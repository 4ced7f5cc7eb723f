//! Between which numbers the elements of a value are.
//!
//! Owns: interval arithmetic over the ops that masks are made of, and over those that attention applies to masked scores.
//! Every rule holds for all operands, with infinities and NaN, in every precision that a platform may compute in. May not
//! know: what is done with the bounds.

use burn_tpu_graph::op::{BinaryOp, Direction, UnaryOp};
use burn_tpu_graph::{DType, Op};

/// All numbers from `low` to `high`, both included, and NaN where `nan` says so. Truth values are 0 and 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Bounds {
    pub(super) low: f64,
    pub(super) high: f64,
    pub(super) nan: bool,
}

impl Bounds {
    /// Any number, or NaN.
    pub(super) const ANY: Self = Self { low: f64::NEG_INFINITY, high: f64::INFINITY, nan: true };
    const ZERO: Self = Self::point(0.0);

    pub(super) const fn between(low: f64, high: f64) -> Self {
        Self { low, high, nan: false }
    }

    pub(super) const fn point(value: f64) -> Self {
        Self::between(value, value)
    }

    /// Returns whether this is one number.
    pub(super) fn is_point(self) -> bool {
        self.low == self.high && !self.nan
    }

    /// Returns whether this is zero, or NaN.
    pub(super) fn is_zero_or_nan(self) -> bool {
        (self.low, self.high) == (0.0, 0.0)
    }

    pub(super) fn is_finite(self) -> bool {
        self.low.is_finite() && self.high.is_finite() && !self.nan
    }

    /// Returns the bounds of sums of these numbers.
    pub(super) fn of_sums(self) -> Self {
        if self.is_zero_or_nan() { self } else { Self::ANY }
    }

    fn or_nan(self, nan: bool) -> Self {
        Self { nan: self.nan || nan, ..self }
    }

    /// Returns the smallest bounds of these numbers; any number if one of them is NaN.
    fn among(numbers: &[f64]) -> Self {
        if numbers.iter().any(|number| number.is_nan()) {
            return Self::ANY;
        }
        let (low, high) = (f64::min as fn(_, _) -> _, f64::max as fn(_, _) -> _);
        Self::between(
            numbers.iter().copied().fold(f64::INFINITY, low),
            numbers.iter().copied().fold(f64::NEG_INFINITY, high),
        )
    }

    /// Returns the bounds of a truth value.
    const fn truth(is_true: bool, is_false: bool) -> Self {
        Self::between(if is_true { 1.0 } else { 0.0 }, if is_false { 0.0 } else { 1.0 })
    }

    /// Returns the bounds of integers of this type: any, if they may have wrapped.
    fn in_type(self, dtype: DType) -> Self {
        // Up to 2^53 every integer is a number of f64.
        let largest = match dtype {
            DType::I32 => f64::from(i32::MAX),
            DType::I64 => 2f64.powi(53),
            DType::Bool => return Self::between(self.low.max(0.0), self.high.min(1.0)),
            _ if dtype.is_float() => return self,
            _ => return Self::ANY,
        };
        if self.low >= -largest && self.high <= largest && !self.nan { self } else { Self::ANY }
    }

    /// Returns bounds of these numbers after a rounding to any type of floats; small integers are kept by all types.
    fn rounded(self) -> Self {
        let is_kept = |x: f64| x.is_infinite() || (x.trunc() == x && x.abs() <= 256.0);
        // A type of 16 bits has 8 bits of a number, from 2^-14 to 65,504.
        let step = |x: f64| if x.abs() < 1e-4 { 1e-4 } else { x.abs() / 64.0 };
        let moved = |x: f64, sign: f64| match x + sign * step(x) {
            _ if is_kept(x) => x,
            far if far.abs() > 6e4 && far * sign > 0.0 => sign * f64::INFINITY,
            far => far,
        };
        Self { low: moved(self.low, -1.0), high: moved(self.high, 1.0), nan: self.nan }
    }
}

/// Returns the bounds of an op's result of this type from those of its operands; any number for an op whose rule is not
/// known.
pub(super) fn of_op(op: &Op, dtype: DType, operands: &[Bounds]) -> Bounds {
    let bounds = match (op, operands) {
        (Op::Unary(op), &[x]) => of_unary(*op, dtype, x),
        (Op::Binary(op), &[lhs, rhs]) if dtype == DType::Bool => of_bool(*op, lhs, rhs),
        (Op::Binary(op), &[lhs, rhs]) if dtype.is_float() => of_floats(*op, lhs, rhs),
        (Op::Binary(op), &[lhs, rhs]) => of_integers(*op, lhs, rhs),
        (Op::Compare(direction), &[lhs, rhs]) => of_compare(*direction, lhs, rhs),
        (Op::Select, &[predicate, on_true, on_false]) => match predicate {
            Bounds { low: 1.0, .. } => on_true,
            Bounds { high: 0.0, .. } => on_false,
            _ => Bounds::among(&[on_true.low, on_true.high, on_false.low, on_false.high])
                .or_nan(on_true.nan || on_false.nan),
        },
        (Op::Convert { dtype: DType::Bool }, &[x]) => of_compare(Direction::Ne, x, Bounds::ZERO),
        (Op::Convert { dtype }, &[x]) if dtype.is_int() => {
            Bounds { low: x.low.trunc(), high: x.high.trunc(), nan: x.nan }
        }
        (Op::Convert { .. }, &[x]) => x.rounded(),
        (Op::OptimizationBarrier | Op::BroadcastInDim { .. } | Op::Reshape { .. } | Op::Transpose { .. }, &[x]) => x,
        _ => Bounds::ANY,
    };
    bounds.in_type(dtype)
}

fn of_unary(op: UnaryOp, dtype: DType, x: Bounds) -> Bounds {
    // Smaller exponents give less than half of the smallest number.
    let zero_exponent = if dtype == DType::F64 { -750.0 } else { -150.0 };
    match op {
        UnaryOp::Neg => Bounds { low: -x.high, high: -x.low, nan: x.nan },
        UnaryOp::Not if dtype == DType::Bool => Bounds::between(1.0 - x.high, 1.0 - x.low),
        UnaryOp::Exp if x.high <= zero_exponent => Bounds::ZERO.or_nan(x.nan),
        _ => Bounds::ANY,
    }
}

fn of_bool(op: BinaryOp, a: Bounds, b: Bounds) -> Bounds {
    match op {
        BinaryOp::Or | BinaryOp::Add | BinaryOp::Max => Bounds::between(a.low.max(b.low), a.high.max(b.high)),
        BinaryOp::And | BinaryOp::Mul | BinaryOp::Min => Bounds::between(a.low.min(b.low), a.high.min(b.high)),
        _ => Bounds::ANY,
    }
}

fn of_integers(op: BinaryOp, a: Bounds, b: Bounds) -> Bounds {
    match op {
        BinaryOp::Add => Bounds::among(&[a.low + b.low, a.high + b.high]),
        BinaryOp::Sub => Bounds::among(&[a.low - b.high, a.high - b.low]),
        BinaryOp::Mul => Bounds::among(&[a.low * b.low, a.low * b.high, a.high * b.low, a.high * b.high]),
        BinaryOp::Max => Bounds::between(a.low.max(b.low), a.high.max(b.high)),
        BinaryOp::Min => Bounds::between(a.low.min(b.low), a.high.min(b.high)),
        _ => Bounds::ANY,
    }
}

fn of_floats(op: BinaryOp, a: Bounds, b: Bounds) -> Bounds {
    let nan = a.nan || b.nan;
    let is_lowest = |x: Bounds| x.high == f64::NEG_INFINITY;
    match op {
        // -inf and any number is -inf, or NaN.
        BinaryOp::Add | BinaryOp::Sub if is_lowest(a) => Bounds::point(f64::NEG_INFINITY).or_nan(true),
        BinaryOp::Add if is_lowest(b) => Bounds::point(f64::NEG_INFINITY).or_nan(true),
        BinaryOp::Mul if a.is_zero_or_nan() || b.is_zero_or_nan() => {
            Bounds::ZERO.or_nan(!(a.is_finite() && b.is_finite()))
        }
        BinaryOp::Div if a.is_zero_or_nan() => Bounds::ZERO.or_nan(true),
        BinaryOp::Max => Bounds { low: a.low.max(b.low), high: a.high.max(b.high), nan },
        BinaryOp::Min => Bounds { low: a.low.min(b.low), high: a.high.min(b.high), nan },
        BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul if a.is_finite() && b.is_finite() => {
            of_integers(op, a, b).rounded()
        }
        _ => Bounds::ANY,
    }
}

fn of_compare(direction: Direction, a: Bounds, b: Bounds) -> Bounds {
    let less = a.high < b.low;
    let greater = a.low > b.high;
    let equal = a.low == a.high && (a.low, a.high) == (b.low, b.high);
    let bounds = match direction {
        Direction::Lt => Bounds::truth(less, a.low >= b.high),
        Direction::Le => Bounds::truth(a.high <= b.low, greater),
        Direction::Gt => Bounds::truth(greater, a.high <= b.low),
        Direction::Ge => Bounds::truth(a.low >= b.high, less),
        Direction::Eq => Bounds::truth(equal, less || greater),
        Direction::Ne => Bounds::truth(less || greater, equal),
    };
    // Every relation with NaN is false, except that it is another number.
    match direction {
        _ if !(a.nan || b.nan) => bounds,
        Direction::Ne => Bounds::between(bounds.low, 1.0),
        _ => Bounds::between(0.0, bounds.high),
    }
}
