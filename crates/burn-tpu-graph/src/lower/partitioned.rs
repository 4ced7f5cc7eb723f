//! Forms of ops for a mesh, where XLA's partitioner or a plugin's collectives fail on the usual one.

use super::printer::{Block, Statement, Value};
use super::{movement, region};
use crate::op::{Combine, PadAttrs, SliceAttrs};
use crate::{DType, Dims, TensorType};

/// Returns a pad for a mesh: XLA's partitioner aborts the process on a dim with both interior and negative padding. So what
/// a negative edge removes is cut off after the padding.
pub(super) fn pad(block: &mut Block, operands: Vec<Value>, attrs: &PadAttrs) -> Statement {
    let aborts = |dim: usize| attrs.interior[dim] > 0 && (attrs.low[dim] < 0 || attrs.high[dim] < 0);
    if !(0..attrs.interior.len()).any(aborts) {
        return movement::pad(operands, attrs);
    }
    let grown = |edges: &[isize]| edges.iter().map(|&edge| edge.max(0)).collect();
    let grown = PadAttrs { low: grown(&attrs.low), high: grown(&attrs.high), interior: attrs.interior.clone() };
    let dims = &operands[0].ty.dims;
    let size = |dim: usize| {
        let inner = dims[dim] + dims[dim].saturating_sub(1) * attrs.interior[dim];
        inner + grown.low[dim].unsigned_abs() + grown.high[dim].unsigned_abs()
    };
    let ty = TensorType::new(operands[0].ty.dtype, (0..dims.len()).map(size).collect::<Dims>());
    let cut = |edge: isize| edge.min(0).unsigned_abs();
    let limit = ty.dims.iter().zip(&attrs.high).map(|(size, &high)| size.saturating_sub(cut(high)));
    let cut = SliceAttrs {
        start: attrs.low.iter().map(|&low| cut(low)).collect(),
        limit: limit.collect(),
        stride: Dims::from_elem(1, ty.rank()),
    };
    let padded = block.push(&movement::pad(operands, &grown), ty);
    movement::slice(vec![padded], &cut)
}

/// Returns a value of which these dims are whole on every device; the partitioner chooses for the others.
fn whole(block: &mut Block, value: &Value, is_whole: impl Fn(usize) -> bool) -> Value {
    let dims: Vec<&str> = (0..value.ty.rank()).map(|dim| if is_whole(dim) { "{}" } else { "{?}" }).collect();
    let sharding = format!("#sdy.sharding<@mesh, [{}]>", dims.join(", "));
    let constraint = Statement::new("sdy.sharding_constraint", [value.clone()]).attr("sharding", sharding);
    block.push(&constraint, value.ty.clone())
}

/// Returns a reduction. The CPU plugin has no all-reduce with a logical or bitwise op: truth values are counted, as 32-bit
/// integers, and integers are combined on one device.
pub(super) fn reduce(
    block: &mut Block,
    mut operands: Vec<Value>,
    combine: Combine,
    dims: &[usize],
    result: &TensorType,
) -> Statement {
    if !matches!(combine, Combine::And | Combine::Or) {
        return region::reduce(block, operands, combine, dims);
    }
    let mut value = operands.swap_remove(0);
    if result.dtype != DType::Bool {
        let value = whole(block, &value, |dim| dims.contains(&dim));
        return region::reduce(block, vec![value], combine, dims);
    }
    let not = |value: Value| Statement::new("stablehlo.not", [value]);
    if combine == Combine::And {
        let ty = value.ty.clone();
        value = block.push(&not(value), ty);
    }
    let ty = value.ty.with_dtype(DType::I32);
    let number = block.push(&Statement::new("stablehlo.convert", [value]), ty);
    let count = region::reduce(block, vec![number], Combine::Sum, dims);
    let count = block.push(&count, result.with_dtype(DType::I32));
    let is_any = Statement::new("stablehlo.convert", [count]);
    if combine == Combine::Or {
        return is_any;
    }
    let is_any = block.push(&is_any, result.clone());
    not(is_any)
}
