//! Lowering of the error function.
//!
//! XLA's CPU compiler clamps the argument of its rational approximation, which ends at 0.99999982: `1 + erf(x)` of a large
//! negative x, a factor of GELU, is not 0 (xla-cpu-pjrt 0.0.1).

use super::constant::splat;
use super::printer::{Block, Statement, Value};
use super::region::compare;
use crate::op::{Direction, UnaryOp};
use crate::{DType, Number};

/// From here on, erf is 1 in f32: `1 - erf(4)` is 1.5e-8, a quarter of the distance from 1 to the next smaller f32.
const END: f64 = 4.0;

/// Returns whether the approximation does not end at 1. That of f64 does.
pub(super) fn ends_below_one(dtype: DType) -> bool {
    dtype.accumulator() == DType::F32
}

/// Lowers erf for XLA's CPU compiler, with 1 and -1 at its ends.
pub(super) fn erf(block: &mut Block, operands: Vec<Value>) -> Statement {
    let [x] = &operands[..] else { return Statement::new(UnaryOp::Erf.mnemonic(), operands) };
    let ty = x.ty.clone();
    let mut unary = |op: UnaryOp| block.push(&Statement::new(op.mnemonic(), [x.clone()]), ty.clone());
    let (erf, size, sign) = (unary(UnaryOp::Erf), unary(UnaryOp::Abs), unary(UnaryOp::Sign));
    let end = splat(block, ty.clone(), Number::Float(END).bits(ty.dtype));
    let is_end = block.push(&compare(Direction::Ge, [size, end]), ty.with_dtype(DType::Bool));
    Statement::new("stablehlo.select", [is_end, sign, erf])
}
