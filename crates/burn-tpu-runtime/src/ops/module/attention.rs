//! Scaled dot-product attention: `softmax(q k^T * scale) v` with softcap, masks and bias.
//!
//! Scores are f32 from the first dot to the end of the softmax, also for 16-bit floats. The order is Burn's: scale,
//! softcap, mask, causal mask, bias. A row that is entirely masked gives 0, not NaN, because the maximum is kept finite
//! and the sum is kept above 0.

use super::operands::present;
use crate::Tensor;
use crate::ops::{broken_rule, mixed};
use crate::trace::{Recorder, record_many};
use burn_tpu_graph::op::{BinaryOp, Combine, Direction, DotAttrs, UnaryOp};
use burn_tpu_graph::{Builder, DType, NodeId, Result};

/// The options of [`attention`] for the step between its two products.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AttentionOptions {
    /// The factor of the scores. `None` means `1 / sqrt(d)`.
    pub scale: Option<f64>,
    /// The bound of the scores, which become `softcap * tanh(scores / softcap)`. It must be positive.
    pub softcap: Option<f64>,
    /// Whether a query attends only to keys at its own and at earlier positions.
    pub is_causal: bool,
}

/// Computes attention of q `[batch, heads, seq_q, d]`, k `[batch, heads, seq_k, d]` and v `[batch, heads, seq_k, d_v]`.
/// The mask (true: ignore the key) and the bias broadcast to `[batch, heads, seq_q, seq_k]`.
pub fn attention(
    [query, key, value]: [&Tensor; 3],
    mask: Option<&Tensor>,
    bias: Option<&Tensor>,
    options: AttentionOptions,
) -> Tensor {
    let [context] = record_many("attention", &present(&[query, key, value], &[mask, bias]), |r, nodes| {
        if nodes[..3].iter().any(|&x| r.rank(x) != 4) {
            return Err(broken_rule(
                r,
                "dot_general",
                &nodes[..3],
                "takes [batch, heads, sequence, width] three times",
            ));
        }
        let dtype = r.dtype(nodes[0]);
        let mut optional = nodes[3..].iter().copied();
        let mask = mask.and_then(|_| optional.next());
        let bias = bias.and_then(|_| optional.next());
        let scores = scores(r, nodes[0], nodes[1], options)?;
        let scores = restrict(r, scores, mask, options.is_causal)?;
        let scores = add(r, scores, bias)?;
        let weights = softmax(r, scores)?;
        let weights = r.convert(weights, dtype)?;
        Ok([batched_dot(r, weights, nodes[2], 2, dtype)?])
    });
    context
}

/// Returns `q k^T * scale` with the softcap applied.
fn scores(r: &mut Recorder, query: NodeId, key: NodeId, options: AttentionOptions) -> Result<NodeId> {
    let wide = r.dtype(query).accumulator();
    let raw = batched_dot(r, query, key, 3, wide)?;
    let scaled = match options.scale {
        Some(scale) => {
            let scale = r.slot_like(raw, scale)?;
            r.binary(BinaryOp::Mul, raw, scale)?
        }
        None => {
            let width = r.dims(query)[3] as f64;
            r.binary_const(BinaryOp::Mul, raw, 1.0 / width.sqrt())?
        }
    };
    let Some(cap) = options.softcap else { return Ok(scaled) };
    if cap.is_nan() || cap <= 0.0 {
        return Err(broken_rule(r, "divide", &[scaled], format!("softcap must be positive, got {cap}")));
    }
    let cap = r.slot_like(scaled, cap)?;
    let fraction = r.binary(BinaryOp::Div, scaled, cap)?;
    let bounded = r.unary(UnaryOp::Tanh, fraction)?;
    r.binary(BinaryOp::Mul, bounded, cap)
}

/// Returns -inf where the mask is true and, if causal, where the key comes after the query. Sequences of different
/// lengths are aligned at their ends, as in a decode step with a cache.
fn restrict(g: &mut impl Builder, scores: NodeId, mask: Option<NodeId>, causal: bool) -> Result<NodeId> {
    let dims = g.dims(scores);
    let future = if causal { Some(future(g, &dims)?) } else { None };
    let hidden = match (mask, future) {
        (Some(mask), Some(future)) => g.binary(BinaryOp::Or, mask, future)?,
        (Some(one), None) | (None, Some(one)) => one,
        (None, None) => return Ok(scores),
    };
    let lowest = g.splat_like(scores, f64::NEG_INFINITY)?;
    g.select(hidden, lowest, scores)
}

/// Returns whether the key's position is after the query's, `[1, 1, seq_q, seq_k]`.
fn future(g: &mut impl Builder, dims: &[usize]) -> Result<NodeId> {
    let (queries, keys) = (dims[2], dims[3]);
    let row = g.iota(DType::I32, &[1, 1, queries, keys], 2)?;
    let row = g.binary_const(BinaryOp::Add, row, keys as i64 - queries as i64)?;
    let column = g.iota(DType::I32, &[1, 1, queries, keys], 3)?;
    g.compare(Direction::Gt, column, row)
}

fn add(g: &mut impl Builder, scores: NodeId, bias: Option<NodeId>) -> Result<NodeId> {
    let Some(bias) = bias else { return Ok(scores) };
    let bias = g.convert(bias, g.dtype(scores))?;
    g.binary(BinaryOp::Add, scores, bias)
}

/// Returns the softmax over the last dim, which is 0 for rows where all scores are -inf.
fn softmax(g: &mut impl Builder, scores: NodeId) -> Result<NodeId> {
    let (lowest, smallest) = match g.dtype(scores) {
        DType::F64 => (f64::MIN, f64::MIN_POSITIVE),
        _ => (f64::from(f32::MIN), f64::from(f32::MIN_POSITIVE)),
    };
    let largest = g.accumulate_keepdim(Combine::Max, scores, 3)?;
    let largest = g.binary_const(BinaryOp::Max, largest, lowest)?;
    let shifted = g.binary(BinaryOp::Sub, scores, largest)?;
    let exponentials = g.unary(UnaryOp::Exp, shifted)?;
    let sum = g.accumulate_keepdim(Combine::Sum, exponentials, 3)?;
    let sum = g.binary_const(BinaryOp::Max, sum, smallest)?;
    g.binary(BinaryOp::Div, exponentials, sum)
}

/// Contracts the last dim of `lhs` with dim `contract` of `rhs`, for each `[batch, head]`. `result` is the element type
/// of the result.
fn batched_dot(g: &mut impl Builder, lhs: NodeId, rhs: NodeId, contract: usize, result: DType) -> Result<NodeId> {
    let (lhs, rhs) = mixed::narrowed(g, lhs, rhs)?;
    let (lhs, rhs) = share_heads(g, lhs, rhs)?;
    let attrs = DotAttrs::new([&[0, 1], &[0, 1]], [&[3], &[contract]], g.dtype(lhs).accumulator());
    let product = g.dot_general(lhs, rhs, attrs)?;
    g.convert(product, result)
}

/// Broadcasts batch and head dims of size 1 on either side.
fn share_heads(g: &mut impl Builder, lhs: NodeId, rhs: NodeId) -> Result<(NodeId, NodeId)> {
    let (mut left, mut right) = (g.dims(lhs), g.dims(rhs));
    for d in 0..2.min(left.len()).min(right.len()) {
        let common = if left[d] == 1 { right[d] } else { left[d] };
        left[d] = common;
        right[d] = if right[d] == 1 { common } else { right[d] };
    }
    Ok((g.broadcast_to(lhs, &left)?, g.broadcast_to(rhs, &right)?))
}
