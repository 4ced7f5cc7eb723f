//! Lowering of integer division.

use super::constant::scalar;
use super::movement::broadcast_in_dim;
use super::printer::{Block, Statement, Value};
use super::region::compare;
use crate::op::{BinaryOp, Direction};
use crate::{DType, Graph, Literal, LiteralData, Node, Op};

/// Returns whether the op divides integers by a value that may be zero.
pub(super) fn may_divide_by_zero(graph: &Graph, node: &Node) -> bool {
    let divisor = node.operands.get(1).map(|&id| &graph.node(id).op);
    let nonzero = matches!(divisor, Some(Op::Constant(Literal { data: LiteralData::Splat(bits), .. })) if *bits != 0);
    matches!(node.op, Op::Binary(BinaryOp::Div | BinaryOp::Rem)) && node.ty.dtype.is_int() && !nonzero
}

/// Lowers a quotient or remainder of integers that XLA may fold. XLA folds with the host processor's division, so a
/// constant zero divisor would abort the process. The lowering divides by 1 where the divisor is 0, and then selects
/// the value that XLA computes at run time: all bits set for a quotient, the dividend for a remainder.
pub(super) fn divide(block: &mut Block, name: &'static str, operands: Vec<Value>) -> Statement {
    let [dividend, divisor] = &operands[..] else { return Statement::new(name, operands) };
    let ty = &divisor.ty;
    let splat = |block: &mut Block, bits: u64| {
        let scalar = scalar(block, ty.dtype, bits);
        if ty.dims.is_empty() { scalar } else { block.push(&broadcast_in_dim(vec![scalar], &[]), ty.clone()) }
    };
    let (zero, one) = (splat(block, 0), splat(block, 1));
    let is_zero = compare(Direction::Eq, [divisor.clone(), zero]);
    let is_zero = block.push(&is_zero, ty.with_dtype(DType::Bool));
    let safe = Statement::new("stablehlo.select", [is_zero.clone(), one, divisor.clone()]);
    let safe = block.push(&safe, ty.clone());
    let divided = block.push(&Statement::new(name, [dividend.clone(), safe]), ty.clone());
    let all_bits = u64::MAX >> (64 - 8 * ty.dtype.size_bytes());
    let otherwise = if name == BinaryOp::Rem.mnemonic() { dividend.clone() } else { splat(block, all_bits) };
    Statement::new("stablehlo.select", [is_zero, otherwise, divided])
}
