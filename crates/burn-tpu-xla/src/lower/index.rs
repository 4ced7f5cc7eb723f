//! Ops that address elements by run-time integers, and sorts.

use super::call::{binary_region, dims, shape, with_regions};
use super::{Built, Operands, call, constant, operand, reduce};
use crate::types::{element, i64s};
use burn_tpu_runtime::graph::op::{GatherAttrs, ScatterAttrs, ScatterMode};
use burn_tpu_runtime::graph::{DType, Node, Number, TensorType};
use xla::{XlaBuilder, XlaComputation, XlaOp};

fn values<'a>(operands: &Operands<'a>) -> Vec<&'a XlaOp> {
    operands.iter().map(|(value, _)| *value).collect()
}

pub(super) fn dynamic_slice(operands: &Operands, sizes: &[usize]) -> Built<XlaOp> {
    operand(operands, 0)?.0.dynamic_slice(&values(operands)[1..], &i64s(sizes))
}

pub(super) fn dynamic_update_slice(operands: &Operands) -> Built<XlaOp> {
    let ((x, _), (update, _)) = (operand(operands, 0)?, operand(operands, 1)?);
    x.dynamic_update_slice(update, &values(operands)[2..])
}

/// The builder's gather has no batching dims: one with them is HLO text.
pub(super) fn gather(builder: &XlaBuilder, operands: &Operands, node: &Node, attrs: &GatherAttrs) -> Built<Vec<XlaOp>> {
    if attrs.operand_batching_dims.is_empty() {
        let gathered = operand(operands, 0)?.0.gather(
            operand(operands, 1)?.0,
            &i64s(&attrs.offset_dims),
            &i64s(&attrs.collapsed_slice_dims),
            &i64s(&attrs.start_index_map),
            Some(attrs.index_vector_dim as i64),
            &i64s(&attrs.slice_sizes),
        );
        return Ok(vec![gathered?]);
    }
    let attributes = [
        ("offset_dims", &attrs.offset_dims),
        ("collapsed_slice_dims", &attrs.collapsed_slice_dims),
        ("operand_batching_dims", &attrs.operand_batching_dims),
        ("start_indices_batching_dims", &attrs.start_indices_batching_dims),
        ("start_index_map", &attrs.start_index_map),
        ("slice_sizes", &attrs.slice_sizes),
    ];
    let attributes: String = attributes.iter().map(|(name, list)| dims(name, list)).collect();
    let attributes = format!("{attributes}, index_vector_dim={}", attrs.index_vector_dim);
    call::one_op(builder, operands, node, "gather", &attributes)
}

/// The builder's scatter has no batching dims: one with them is HLO text.
pub(super) fn scatter(
    builder: &XlaBuilder,
    operands: &Operands,
    node: &Node,
    attrs: &ScatterAttrs,
) -> Built<Vec<XlaOp>> {
    if attrs.input_batching_dims.is_empty() {
        let ((x, ty), (indices, _), (updates, _)) =
            (operand(operands, 0)?, operand(operands, 1)?, operand(operands, 2)?);
        let updated = match attrs.mode {
            ScatterMode::Combine(combine) => reduce::combination(combine, ty.dtype)?,
            ScatterMode::Assign => assignment(ty.dtype)?,
        };
        let scattered = x.scatter(
            indices,
            updates,
            &updated,
            &i64s(&attrs.update_window_dims),
            &i64s(&attrs.inserted_window_dims),
            &i64s(&attrs.scatter_dims_to_operand_dims),
            attrs.index_vector_dim as i64,
        );
        return Ok(vec![scattered?]);
    }
    let attributes = [
        ("update_window_dims", &attrs.update_window_dims),
        ("inserted_window_dims", &attrs.inserted_window_dims),
        ("input_batching_dims", &attrs.input_batching_dims),
        ("scatter_indices_batching_dims", &attrs.scatter_indices_batching_dims),
        ("scatter_dims_to_operand_dims", &attrs.scatter_dims_to_operand_dims),
    ];
    let attributes: String = attributes.iter().map(|(name, list)| dims(name, list)).collect();
    let attributes = format!("{attributes}, index_vector_dim={}, to_apply=%update", attrs.index_vector_dim);
    let dtype = operand(operands, 0)?.1.dtype;
    let region = match attrs.mode {
        ScatterMode::Combine(combine) => binary_region("update", reduce::hlo_op(combine), dtype),
        ScatterMode::Assign => {
            let ty = shape(&TensorType::scalar(dtype));
            format!("%update {{\n  %a = {ty} parameter(0)\n  ROOT %b = {ty} parameter(1)\n}}\n")
        }
    };
    with_regions(builder, operands, node, "scatter", &attributes, &region)
}

/// Returns the computation whose result is its second argument.
fn assignment(dtype: DType) -> Built<XlaComputation> {
    let builder = XlaBuilder::new("assign");
    builder.parameter(0, element(dtype), &[], "a")?;
    builder.parameter(1, element(dtype), &[], "b")?.build()
}

/// The builder sorts one array, and cannot compare floats in total order.
pub(super) fn sort(
    builder: &XlaBuilder,
    operands: &Operands,
    node: &Node,
    dim: usize,
    descending: bool,
) -> Built<Vec<XlaOp>> {
    let attributes = format!(", dimensions={{{dim}}}, is_stable=true, to_apply=%before");
    let types: Vec<&TensorType> = operands.iter().map(|(_, ty)| *ty).collect();
    let region = before(&types, if descending { "GT" } else { "LT" });
    with_regions(builder, operands, node, "sort", &attributes, &region)
}

/// Returns the computation that tests whether the left key is strictly before the right one. Floats are compared in IEEE
/// total order, after all zeros and all NaNs are made equal, so that -0 and +0 keep their order and a NaN is above every
/// number.
fn before(types: &[&TensorType], direction: &str) -> String {
    let mut text = "%before {\n".to_owned();
    for (place, ty) in types.iter().flat_map(|ty| [ty, ty]).enumerate() {
        text += &format!("  %p{place} = {} parameter({place})\n", shape(&TensorType::scalar(ty.dtype)));
    }
    let Some(key) = types.first().map(|ty| ty.dtype) else { return text };
    let ty = shape(&TensorType::scalar(key));
    if !key.is_float() {
        return text + &format!("  ROOT %r = pred[] compare(%p0, %p1), direction={direction}\n}}\n");
    }
    text += &format!("  %zero = {ty} constant(0)\n  %nan = {ty} constant(nan)\n");
    for side in 0..2 {
        text += &format!(
            "  %is_zero{side} = pred[] compare(%p{side}, %zero), direction=EQ\n  \
             %is_nan{side} = pred[] compare(%p{side}, %p{side}), direction=NE\n  \
             %unsigned{side} = {ty} select(%is_zero{side}, %zero, %p{side})\n  \
             %key{side} = {ty} select(%is_nan{side}, %nan, %unsigned{side})\n"
        );
    }
    text + &format!("  ROOT %r = pred[] compare(%key0, %key1), direction={direction}, type=TOTALORDER\n}}\n")
}

/// Compares floats in IEEE total order, so zeros and NaNs are made equal before.
pub(super) fn top_k(builder: &XlaBuilder, operands: &Operands, k: usize) -> Built<Vec<XlaOp>> {
    let (x, ty) = operand(operands, 0)?;
    let keys = if ty.dtype.is_float() { canonical(builder, x, ty)? } else { x.clone() };
    let largest = keys.top_k(k as i64, true)?;
    Ok(vec![largest.get_tuple_element(0)?, largest.get_tuple_element(1)?])
}

/// Returns floats of which all zeros and all NaNs are equal.
fn canonical(builder: &XlaBuilder, x: &XlaOp, ty: &TensorType) -> Built<XlaOp> {
    let zero = constant::splat(builder, ty, 0)?;
    let nan = constant::number(builder, ty, Number::Float(f64::NAN))?;
    let unsigned = x.eq(&zero)?.select(&zero, x)?;
    x.ne(x)?.select(&nan, &unsigned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sort_compares_its_first_operand() {
        let (f, i) = (TensorType::new(DType::F32, [2]), TensorType::new(DType::I32, [2]));
        let text = before(&[&i, &f], "LT");
        assert!(
            text.contains("%p3 = f32[] parameter(3)") && text.contains("compare(%p0, %p1), direction=LT\n"),
            "{text}"
        );
        assert!(before(&[&f], "GT").contains("type=TOTALORDER"));
    }
}
