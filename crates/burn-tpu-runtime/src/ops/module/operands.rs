//! Helpers for several families: optional operands, biases, and tables of constants.

use crate::Tensor;
use crate::ops::{broken_rule, mixed};
use crate::trace::{Recorder, record_many};
use burn_tpu_graph::op::BinaryOp;
use burn_tpu_graph::{Builder, DType, Literal, NodeId, Number, Result, TensorType};
use smallvec::SmallVec;

/// Returns the fixed operands and the optional operands that are present, in order. The nodes of the composition have
/// the same positions.
pub(super) fn present<'t>(fixed: &[&'t Tensor], optional: &[Option<&'t Tensor>]) -> SmallVec<[&'t Tensor; 5]> {
    fixed.iter().copied().chain(optional.iter().copied().flatten()).collect()
}

/// Records an op of two operands and adds the optional bias `[features]` to its result, along the result's dim
/// `feature`.
pub(super) fn record_biased(
    op: &'static str,
    [lhs, rhs]: [&Tensor; 2],
    bias: Option<&Tensor>,
    feature: usize,
    build: impl FnOnce(&mut Recorder, NodeId, NodeId) -> Result<NodeId>,
) -> Tensor {
    let [result] = record_many(op, &present(&[lhs, rhs], &[bias]), |r, nodes| {
        let result = build(r, nodes[0], nodes[1])?;
        Ok([add_bias(r, result, nodes.get(2).copied(), feature)?])
    });
    result
}

/// Adds the optional bias `[features]` along dim `feature`.
pub(super) fn add_bias(g: &mut impl Builder, x: NodeId, bias: Option<NodeId>, feature: usize) -> Result<NodeId> {
    let Some(bias) = bias else { return Ok(x) };
    let dims = g.dims(x);
    let bias = g.broadcast_in_dim(bias, &dims, &[feature])?;
    mixed::binary(g, BinaryOp::Add, x, bias)
}

/// Rejects operands that are not `[batch, channels, spatial...]` with `spatial` spatial dims.
pub(super) fn expect_spatial(g: &impl Builder, node: &'static str, operands: &[NodeId], spatial: usize) -> Result<()> {
    if operands.iter().all(|&x| g.rank(x) == spatial + 2) {
        return Ok(());
    }
    Err(broken_rule(g, node, operands, format!("takes [batch, channels, {spatial} spatial dims]")))
}

/// Rejects a gradient's operands, and the dims of the tensor with respect to which it is the gradient, as
/// [`expect_spatial`] does.
pub(super) fn expect_gradient(
    g: &impl Builder,
    node: &'static str,
    operands: &[NodeId],
    dims: &[usize],
    spatial: usize,
) -> Result<()> {
    if dims.len() != spatial + 2 {
        let rule = format!("takes [batch, channels, {spatial} spatial dims], not {dims:?}");
        return Err(broken_rule(g, node, operands, rule));
    }
    expect_spatial(g, node, operands, spatial)
}

/// Returns a vector of constants that are part of the program.
pub(super) fn vector<T: Into<Number> + Copy>(g: &mut impl Builder, dtype: DType, values: &[T]) -> Result<NodeId> {
    let size = dtype.size_bytes();
    let mut bytes = Vec::with_capacity(values.len() * size);
    for &value in values {
        bytes.extend_from_slice(&value.into().bits(dtype).to_le_bytes()[..size]);
    }
    g.constant(Literal::dense(TensorType::new(dtype, [values.len()]), bytes))
}
