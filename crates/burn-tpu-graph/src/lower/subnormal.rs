//! Functions in which XLA's CPU compiler does not take subnormal numbers for zeros, as all its arithmetic does, and
//! then is wrong: an `atan2` of two of them is NaN, a power of one is off by a factor of ten (xla-cpu-pjrt 0.0.1).

use super::constant::splat;
use super::printer::{Block, Statement, Value};
use super::region::compare;
use crate::op::{BinaryOp, Direction, UnaryOp};
use crate::{DType, Node, Number, Op};

/// Returns whether the op is such a function of floats that can be subnormal in arithmetic. Those of f16 are normal in
/// f32, in which they are computed.
pub(super) fn takes_them_as_they_are(node: &Node) -> bool {
    use BinaryOp::{Atan2, Pow, Rem};
    let function = matches!(node.op, Op::Unary(UnaryOp::Cbrt) | Op::Binary(Atan2 | Pow | Rem));
    function && matches!(node.ty.dtype, DType::BF16 | DType::F32 | DType::F64)
}

/// Lowers such a function, of operands that are not subnormal and, as arithmetic does, with a result that is not.
pub(super) fn function(block: &mut Block, name: &'static str, operands: Vec<Value>) -> Statement {
    let mut flush = |x: Value| {
        let ty = x.ty.clone();
        let flushed = flushed(block, x);
        block.push(&flushed, ty)
    };
    let operands: Vec<Value> = operands.into_iter().map(&mut flush).collect();
    let statement = Statement::new(name, operands.clone());
    match &operands[..] {
        // The only one that is subnormal for some operands that are not.
        [x, _] if name == BinaryOp::Rem.mnemonic() => {
            let rest = block.push(&statement, x.ty.clone());
            flushed(block, rest)
        }
        _ => statement,
    }
}

/// Returns zero, with its sign, for a subnormal number, and every other number as it is. LLVM leaves out what compares
/// it with zero, and XLA a product with 1 and a sum with 0.
fn flushed(block: &mut Block, x: Value) -> Statement {
    let ty = x.ty.clone();
    let mut constant = |value: f64| splat(block, ty.clone(), Number::Float(value).bits(ty.dtype));
    let (zero, normal) = (constant(0.0), constant(smallest_normal(ty.dtype)));
    let size = block.push(&Statement::new(UnaryOp::Abs.mnemonic(), [x.clone()]), ty.clone());
    let is_small = block.push(&compare(Direction::Lt, [size, normal]), ty.with_dtype(DType::Bool));
    let signed_zero = block.push(&Statement::new(BinaryOp::Mul.mnemonic(), [x.clone(), zero]), ty);
    Statement::new("stablehlo.select", [is_small, signed_zero, x])
}

/// Returns the smallest number of a float type that is not subnormal. bf16 has that of f32.
fn smallest_normal(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => f64::MIN_POSITIVE,
        _ => f32::MIN_POSITIVE.into(),
    }
}
