//! Expressions of grid indices: which block of an array a step of the grid sees, and where in the array it is.

use std::ops::{Add, Div, Mul, Sub};

/// An integer expression of the grid's indices.
///
/// ```
/// use burn_tpu_kernels::Index;
/// let head = Index::grid(1);
/// assert_eq!((head / 4 + 1).at(&[0, 11]), 3);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Index(pub(crate) Expression);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Expression {
    Constant(i32),
    Grid(usize),
    Binary(IndexOp, Box<Index>, Box<Index>),
}

/// An op of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum IndexOp {
    Add,
    Sub,
    Mul,
    Div,
    Min,
    Max,
}

impl Index {
    /// Returns the index along an axis of the grid.
    pub fn grid(axis: usize) -> Self {
        Self(Expression::Grid(axis))
    }

    /// Returns the smaller of two.
    pub fn min(self, other: impl Into<Index>) -> Self {
        self.with(IndexOp::Min, other.into())
    }

    /// Returns the larger of two.
    pub fn max(self, other: impl Into<Index>) -> Self {
        self.with(IndexOp::Max, other.into())
    }

    /// Returns the value at a step of the grid. Quotients are rounded towards zero; a division by zero is zero, and so is
    /// the index along an axis that the grid has not.
    pub fn at(&self, step: &[i64]) -> i64 {
        match &self.0 {
            Expression::Constant(value) => i64::from(*value),
            Expression::Grid(axis) => step.get(*axis).copied().unwrap_or_default(),
            Expression::Binary(op, lhs, rhs) => op.apply(lhs.at(step), rhs.at(step)),
        }
    }

    /// Returns the number of axes that a grid must have at least.
    pub(crate) fn axes(&self) -> usize {
        match &self.0 {
            Expression::Constant(_) => 0,
            Expression::Grid(axis) => axis + 1,
            Expression::Binary(_, lhs, rhs) => lhs.axes().max(rhs.axes()),
        }
    }

    /// Returns whether the value depends on the index along an axis.
    pub(crate) fn reads(&self, of: usize) -> bool {
        match &self.0 {
            Expression::Constant(_) => false,
            Expression::Grid(axis) => *axis == of,
            Expression::Binary(_, lhs, rhs) => lhs.reads(of) || rhs.reads(of),
        }
    }

    fn with(self, op: IndexOp, other: Index) -> Self {
        Self(Expression::Binary(op, Box::new(self), Box::new(other)))
    }
}

impl IndexOp {
    fn apply(self, lhs: i64, rhs: i64) -> i64 {
        match self {
            IndexOp::Add => lhs.saturating_add(rhs),
            IndexOp::Sub => lhs.saturating_sub(rhs),
            IndexOp::Mul => lhs.saturating_mul(rhs),
            IndexOp::Div => lhs.checked_div(rhs).unwrap_or_default(),
            IndexOp::Min => lhs.min(rhs),
            IndexOp::Max => lhs.max(rhs),
        }
    }
}

impl From<i32> for Index {
    fn from(value: i32) -> Self {
        Self(Expression::Constant(value))
    }
}

macro_rules! arithmetic {
    ($($trait:ident, $method:ident;)*) => {$(
        impl<T: Into<Index>> $trait<T> for Index {
            type Output = Index;

            fn $method(self, other: T) -> Index {
                self.with(IndexOp::$trait, other.into())
            }
        }
    )*};
}

arithmetic! {
    Add, add;
    Sub, sub;
    Mul, mul;
    Div, div;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_have_values_at_steps() {
        let clamped = (Index::grid(0) * 4 - 9).max(0).min(Index::grid(1));
        assert_eq!(clamped.at(&[2, 7]), 0);
        assert_eq!(clamped.at(&[4, 5]), 5);
        assert_eq!(clamped.at(&[3, 5]), 3);
        assert_eq!((clamped.axes(), (Index::grid(0) / 0).at(&[1])), (2, 0));
    }
}
