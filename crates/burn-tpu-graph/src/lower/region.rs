//! Lowering of ops with a body: reductions, windows, sorts, and the updates of a scatter.

use super::constant::{scalar, splat};
use super::printer::{Block, Statement, Value, array, edges};
use crate::literal::extremes;
use crate::op::{Combine, Direction, ScatterMode, WindowAttrs};
use crate::{DType, Number, TensorType};

/// Returns a comparison in the element type's default order. The order is written out although it is StableHLO's
/// default: without it, a plugin compares signed integers as unsigned ones if both operands are constants.
pub(super) fn compare(direction: Direction, operands: impl Into<Vec<Value>>) -> Statement {
    let operands = operands.into();
    let order = match element_type(&operands) {
        dtype if dtype.is_signed_int() => "SIGNED",
        dtype if dtype.is_int() || dtype == DType::Bool => "UNSIGNED",
        _ => "FLOAT",
    };
    compare_by(order, direction, operands)
}

fn compare_by(order: &str, direction: Direction, operands: impl Into<Vec<Value>>) -> Statement {
    let name = match direction {
        Direction::Eq => "EQ",
        Direction::Ne => "NE",
        Direction::Lt => "LT",
        Direction::Le => "LE",
        Direction::Gt => "GT",
        Direction::Ge => "GE",
    };
    Statement::new("stablehlo.compare", operands)
        .attr("comparison_direction", format!("#stablehlo<comparison_direction {name}>"))
        .attr("compare_type", format!("#stablehlo<comparison_type {order}>"))
}

fn scalars(operands: &[Value]) -> Vec<TensorType> {
    operands.iter().map(|value| TensorType::scalar(value.ty.dtype)).collect()
}

/// Returns the element type of an op's first operand; every op here has one.
fn element_type(operands: &[Value]) -> DType {
    operands.first().map_or(DType::F32, |value| value.ty.dtype)
}

/// Ops on the scalars of a region.
struct Body {
    block: Block,
}

impl Body {
    fn op(&mut self, name: &'static str, operands: &[&Value], dtype: DType) -> Value {
        let operands: Vec<Value> = operands.iter().map(|&value| value.clone()).collect();
        self.block.push(&Statement::new(name, operands), TensorType::scalar(dtype))
    }

    fn compare(&mut self, direction: Direction, lhs: &Value, rhs: &Value) -> Value {
        let statement = compare(direction, [lhs.clone(), rhs.clone()]);
        self.block.push(&statement, TensorType::scalar(DType::Bool))
    }

    fn finish(mut self, results: &[Value]) -> Block {
        self.block.finish("stablehlo.return", results);
        self.block
    }
}

/// Creates a region of two scalars of one type.
fn pair(dtype: DType) -> (Body, Value, Value) {
    let (block, mut arguments) = Block::region(&[TensorType::scalar(dtype), TensorType::scalar(dtype)]);
    let last = |arguments: &mut Vec<Value>| arguments.pop();
    let rhs = last(&mut arguments).unwrap_or_else(|| Value::new("%a1".into(), TensorType::scalar(dtype)));
    let lhs = last(&mut arguments).unwrap_or_else(|| Value::new("%a0".into(), TensorType::scalar(dtype)));
    (Body { block }, lhs, rhs)
}

fn combine_body(combine: Combine, dtype: DType) -> Block {
    let (mut body, lhs, rhs) = pair(dtype);
    let result = body.op(combine.op().mnemonic(), &[&lhs, &rhs], dtype);
    body.finish(&[result])
}

/// Returns the region that combines an element with its update in a scatter.
pub(super) fn update_body(mode: ScatterMode, operands: &[Value]) -> Block {
    let dtype = element_type(operands);
    match mode {
        ScatterMode::Combine(combine) => combine_body(combine, dtype),
        ScatterMode::Assign => {
            let (body, _, update) = pair(dtype);
            body.finish(&[update])
        }
    }
}

pub(super) fn reduce(block: &mut Block, mut operands: Vec<Value>, combine: Combine, dims: &[usize]) -> Statement {
    let dtype = element_type(&operands);
    operands.push(scalar(block, dtype, combine.identity_bits(dtype)));
    Statement::new("stablehlo.reduce", operands).attr("dimensions", array(dims)).region(combine_body(combine, dtype))
}

/// Returns a reduction of (value, index) pairs. Its initial pair is the least extreme value with the largest index,
/// so that every real pair wins. Ties go to the lower index, in whatever order XLA combines.
pub(super) fn arg_reduce(block: &mut Block, mut operands: Vec<Value>, max: bool, dim: usize) -> Statement {
    let combine = if max { Combine::Max } else { Combine::Min };
    let body = arg_body(&scalars(&operands), if max { Direction::Gt } else { Direction::Lt });
    let dtypes: Vec<DType> = operands.iter().map(|value| value.ty.dtype).collect();
    for (i, dtype) in dtypes.into_iter().enumerate() {
        let bits = if i == 0 { combine.identity_bits(dtype) } else { extremes(dtype).1 };
        operands.push(scalar(block, dtype, bits));
    }
    Statement::new("stablehlo.reduce", operands).attr("dimensions", array([dim])).region(body)
}

/// Returns the region that keeps the left pair if its value is more extreme, or if the values are equal and its index
/// is lower.
fn arg_body(types: &[TensorType], more_extreme: Direction) -> Block {
    let all: Vec<TensorType> = types.iter().chain(types).cloned().collect();
    let (block, arguments) = Block::region(&all);
    let mut body = Body { block };
    let [lhs, lhs_index, rhs, rhs_index] = arguments.as_slice() else {
        return body.finish(&arguments);
    };
    let mut wins = body.compare(more_extreme, lhs, rhs);
    let mut ties = body.compare(Direction::Eq, lhs, rhs);
    if lhs.ty.dtype.is_float() {
        let lhs_nan = body.compare(Direction::Ne, lhs, lhs);
        let rhs_nan = body.compare(Direction::Ne, rhs, rhs);
        let rhs_number = body.compare(Direction::Eq, rhs, rhs);
        let only_lhs = body.op("stablehlo.and", &[&lhs_nan, &rhs_number], DType::Bool);
        let both = body.op("stablehlo.and", &[&lhs_nan, &rhs_nan], DType::Bool);
        wins = body.op("stablehlo.or", &[&wins, &only_lhs], DType::Bool);
        ties = body.op("stablehlo.or", &[&ties, &both], DType::Bool);
    }
    let lower = body.compare(Direction::Lt, lhs_index, rhs_index);
    let lower = body.op("stablehlo.and", &[&ties, &lower], DType::Bool);
    let keep = body.op("stablehlo.or", &[&wins, &lower], DType::Bool);
    let value = body.op("stablehlo.select", &[&keep, lhs, rhs], lhs.ty.dtype);
    let index = body.op("stablehlo.select", &[&keep, lhs_index, rhs_index], lhs_index.ty.dtype);
    body.finish(&[value, index])
}

pub(super) fn reduce_window(
    block: &mut Block,
    mut operands: Vec<Value>,
    combine: Combine,
    window: &WindowAttrs,
) -> Statement {
    let dtype = element_type(&operands);
    operands.push(scalar(block, dtype, combine.identity_bits(dtype)));
    Statement::new("stablehlo.reduce_window", operands)
        .attr("window_dimensions", array(&window.dims))
        .attr("window_strides", array(&window.strides))
        .attr("base_dilations", array(&window.base_dilation))
        .attr("window_dilations", array(&window.window_dilation))
        .attr("padding", edges(&window.padding))
        .region(combine_body(combine, dtype))
}

/// Returns a `select_and_scatter`. `GE` keeps the first of equal elements, since the element selected so far is the
/// left operand.
pub(super) fn select_and_scatter(block: &mut Block, mut operands: Vec<Value>, window: &WindowAttrs) -> Statement {
    let dtype = element_type(&operands);
    operands.push(scalar(block, dtype, 0));
    let (mut select, lhs, rhs) = pair(dtype);
    let keep = select.compare(Direction::Ge, &lhs, &rhs);
    Statement::new("stablehlo.select_and_scatter", operands)
        .attr("window_dimensions", array(&window.dims))
        .attr("window_strides", array(&window.strides))
        .attr("padding", edges(&window.padding))
        .region(select.finish(&[keep]))
        .region(combine_body(Combine::Sum, dtype))
}

pub(super) fn sort(operands: Vec<Value>, dim: usize, descending: bool) -> Statement {
    let body = sort_body(&operands, if descending { Direction::Gt } else { Direction::Lt });
    Statement::new("stablehlo.sort", operands)
        .attr("dimension", format!("{dim} : i64"))
        .attr("is_stable", true)
        .region(body)
}

/// Returns the region that tests whether the left key is strictly before the right one. Floats are compared in IEEE
/// total order, after all zeros and all NaNs are made equal, so that -0 and +0 keep their order and a NaN is above
/// every number: a strict weak order.
fn sort_body(operands: &[Value], before: Direction) -> Block {
    let types: Vec<TensorType> = scalars(operands).into_iter().flat_map(|ty| [ty.clone(), ty]).collect();
    let (block, arguments) = Block::region(&types);
    let mut body = Body { block };
    let [lhs, rhs, ..] = arguments.as_slice() else { return body.finish(&arguments) };
    let first = if lhs.ty.dtype.is_float() {
        let keys = [canonical(&mut body.block, lhs), canonical(&mut body.block, rhs)];
        let statement = compare_by("TOTALORDER", before, keys);
        body.block.push(&statement, TensorType::scalar(DType::Bool))
    } else {
        body.compare(before, lhs, rhs)
    };
    body.finish(&[first])
}

/// Writes floats of which all zeros and all NaNs are equal.
fn canonical(block: &mut Block, key: &Value) -> Value {
    let ty = &key.ty;
    let zero = splat(block, ty.clone(), 0);
    let nan = splat(block, ty.clone(), Number::Float(f64::NAN).bits(ty.dtype));
    let truth = ty.with_dtype(DType::Bool);
    let is_zero = block.push(&compare(Direction::Eq, [key.clone(), zero.clone()]), truth.clone());
    let is_nan = block.push(&compare(Direction::Ne, [key.clone(), key.clone()]), truth);
    let unsigned = block.push(&Statement::new("stablehlo.select", [is_zero, zero, key.clone()]), ty.clone());
    block.push(&Statement::new("stablehlo.select", [is_nan, nan, unsigned]), ty.clone())
}

/// Compares floats in IEEE total order as `sort` does, which makes zeros and NaNs equal before.
pub(super) fn top_k(block: &mut Block, operands: Vec<Value>, k: usize) -> Statement {
    let keys = operands.into_iter().map(|x| if x.ty.dtype.is_float() { canonical(block, &x) } else { x });
    let keys: Vec<Value> = keys.collect();
    Statement::new("chlo.top_k", keys).attr("k", format!("{k} : i64"))
}
