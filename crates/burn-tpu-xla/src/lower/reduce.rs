//! Reductions, with the computations that combine two values.

use super::call::{binary_region, dims, shape, with_regions};
use super::{Built, Operands, constant, operand};
use crate::types::element;
use burn_tpu_runtime::graph::op::{Combine, WindowAttrs};
use burn_tpu_runtime::graph::{DType, Node, Number, TensorType};
use xla::{XlaBuilder, XlaComputation, XlaOp};

/// Returns the computation that combines two scalars.
pub(super) fn combination(combine: Combine, dtype: DType) -> Built<XlaComputation> {
    let builder = XlaBuilder::new("combine");
    let scalar = |place: i64| builder.parameter(place, element(dtype), &[], if place == 0 { "a" } else { "b" });
    let (a, b) = (scalar(0)?, scalar(1)?);
    match combine {
        Combine::Sum => a.add_(&b)?,
        Combine::Prod => a.mul_(&b)?,
        Combine::Max => a.max(&b)?,
        Combine::Min => a.min(&b)?,
        Combine::And => a.and(&b)?,
        Combine::Or => a.or(&b)?,
    }
    .build()
}

/// Returns the name of the HLO op that combines two values.
pub(super) fn hlo_op(combine: Combine) -> &'static str {
    match combine {
        Combine::Sum => "add",
        Combine::Prod => "multiply",
        Combine::Max => "maximum",
        Combine::Min => "minimum",
        Combine::And => "and",
        Combine::Or => "or",
    }
}

pub(super) fn reduce(builder: &XlaBuilder, operands: &Operands, combine: Combine, dims: &[usize]) -> Built<XlaOp> {
    let (x, ty) = operand(operands, 0)?;
    let neutral = constant::scalar(builder, ty.dtype, combine.identity_bits(ty.dtype))?;
    x.reduce(neutral, combination(combine, ty.dtype)?, &crate::types::i64s(dims), false)
}

/// Returns a reduction of (value, index) pairs. Its initial pair is the least extreme value with the largest index, so that
/// every real pair wins. Ties go to the lower index, in whatever order XLA combines.
pub(super) fn arg_reduce(
    builder: &XlaBuilder,
    operands: &Operands,
    node: &Node,
    max: bool,
    dim: usize,
) -> Built<Vec<XlaOp>> {
    let ([(_, values), (_, indices)], combine) =
        ([operand(operands, 0)?, operand(operands, 1)?], if max { Combine::Max } else { Combine::Min });
    let neutral = constant::scalar(builder, values.dtype, combine.identity_bits(values.dtype))?;
    let last = constant::scalar(builder, indices.dtype, Combine::Min.identity_bits(indices.dtype))?;
    let scalars = [values, indices].map(|ty| TensorType::scalar(ty.dtype));
    let all = [operands, &[(&neutral, &scalars[0]), (&last, &scalars[1])]].concat();
    let region = arg_region(&scalars, if max { "GT" } else { "LT" });
    with_regions(builder, &all, node, "reduce", &(dims("dimensions", &[dim]) + ", to_apply=%arg"), &region)
}

/// Returns the computation that keeps the left pair if its value is more extreme, or if the values are equal and its index
/// is lower. A NaN is more extreme than any number, and equal to a NaN.
fn arg_region([value, index]: &[TensorType; 2], more_extreme: &str) -> String {
    let nan_wins = if value.dtype.is_float() {
        "  %lhs_nan = pred[] compare(%a, %a), direction=NE\n  %rhs_nan = pred[] compare(%b, %b), direction=NE\n  \
         %rhs_number = pred[] not(%rhs_nan)\n  %only_lhs = pred[] and(%lhs_nan, %rhs_number)\n  \
         %both = pred[] and(%lhs_nan, %rhs_nan)\n  %wins = pred[] or(%more, %only_lhs)\n  \
         %ties = pred[] or(%same, %both)\n"
    } else {
        "  %wins = pred[] copy(%more)\n  %ties = pred[] copy(%same)\n"
    };
    let (v, i) = (shape(value), shape(index));
    format!(
        "%arg {{\n  %a = {v} parameter(0)\n  %i = {i} parameter(1)\n  %b = {v} parameter(2)\n  %j = {i} parameter(3)\n  \
         %more = pred[] compare(%a, %b), direction={more_extreme}\n  \
         %same = pred[] compare(%a, %b), direction=EQ\n{nan_wins}  \
         %lower = pred[] compare(%i, %j), direction=LT\n  %tie = pred[] and(%ties, %lower)\n  \
         %keep = pred[] or(%wins, %tie)\n  %value = {v} select(%keep, %a, %b)\n  %index = {i} select(%keep, %i, %j)\n  \
         ROOT %pair = ({v}, {i}) tuple(%value, %index)\n}}\n"
    )
}

pub(super) fn reduce_window(
    builder: &XlaBuilder,
    operands: &Operands,
    node: &Node,
    combine: Combine,
    attrs: &WindowAttrs,
) -> Built<Vec<XlaOp>> {
    let dtype = operand(operands, 0)?.1.dtype;
    let (neutral, ty) = (constant::scalar(builder, dtype, combine.identity_bits(dtype))?, TensorType::scalar(dtype));
    let all = [operands, &[(&neutral, &ty)]].concat();
    let region = binary_region("combine", hlo_op(combine), dtype);
    with_regions(builder, &all, node, "reduce-window", &(window(attrs) + ", to_apply=%combine"), &region)
}

/// Returns a `select-and-scatter`. `GE` keeps the first of equal elements, since the element selected so far is the left
/// operand.
pub(super) fn select_and_scatter(
    builder: &XlaBuilder,
    operands: &Operands,
    node: &Node,
    attrs: &WindowAttrs,
) -> Built<Vec<XlaOp>> {
    let ty = TensorType::scalar(operand(operands, 0)?.1.dtype);
    let zero = constant::number(builder, &ty, Number::Int(0))?;
    let all = [operands, &[(&zero, &ty)]].concat();
    let scalar = shape(&ty);
    let select = format!(
        "%choose {{\n  %a = {scalar} parameter(0)\n  %b = {scalar} parameter(1)\n  \
         ROOT %r = pred[] compare(%a, %b), direction=GE\n}}\n"
    );
    let regions = select + &binary_region("sum", "add", ty.dtype);
    with_regions(
        builder,
        &all,
        node,
        "select-and-scatter",
        &(window(attrs) + ", select=%choose, scatter=%sum"),
        &regions,
    )
}

/// Returns `, window={size=2x2 stride=2x2 pad=0_0x0_1 …}`; nothing for rank 0.
fn window(attrs: &WindowAttrs) -> String {
    if attrs.dims.is_empty() {
        return String::new();
    }
    let list = |numbers: &[usize]| numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join("x");
    let padding: Vec<String> = attrs.padding.iter().map(|(low, high)| format!("{low}_{high}")).collect();
    format!(
        ", window={{size={} stride={} pad={} lhs_dilate={} rhs_dilate={}}}",
        list(&attrs.dims),
        list(&attrs.strides),
        padding.join("x"),
        list(&attrs.base_dilation),
        list(&attrs.window_dilation)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn_tpu_runtime::graph::Dims;

    #[test]
    fn a_window_has_all_its_attributes() {
        let two = |a: usize, b: usize| [a, b].into_iter().collect::<Dims>();
        let attrs = WindowAttrs {
            dims: two(3, 2),
            strides: two(1, 2),
            base_dilation: two(1, 1),
            window_dilation: two(2, 1),
            padding: [(0, 1), (-1, 0)].into_iter().collect(),
        };
        assert_eq!(window(&attrs), ", window={size=3x2 stride=1x2 pad=0_1x-1_0 lhs_dilate=1x1 rhs_dilate=2x1}");
    }
}
