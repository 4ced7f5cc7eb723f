//! Scaled dot-product attention: `softmax(q k^T * scale) v` with softcap, masks and bias.
//!
//! Scores are f32 from the first dot to the end of the softmax, also for 16-bit floats. The order is Burn's: scale,
//! softcap, mask, causal mask, bias. A row that is entirely masked gives 0, not NaN, because the maximum is kept finite
//! and the sum is kept above 0.
//!
//! Query heads that share a key head (grouped queries) are the rows of one matrix, so keys and values are not repeated.

use super::operands::present;
use crate::Tensor;
use crate::ops::{broken_rule, mixed};
use crate::trace::{Recorder, record_many};
use burn_tpu_graph::op::{BinaryOp, Combine, Direction, DotAttrs, UnaryOp};
use burn_tpu_graph::{Builder, DType, Dims, NodeId, Result};

/// The options of [`attention`] for the step between its two products.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AttentionOptions {
    /// The factor of the scores. `None` means `1 / sqrt(d)`.
    pub scale: Option<f64>,
    /// The bound of the scores, which become `softcap * tanh(scores / softcap)`. It must be positive.
    pub softcap: Option<f64>,
    /// Whether a query attends only to keys at its own and at earlier positions.
    pub is_causal: bool,
    /// Which positions are the same where there are more keys than queries, or fewer.
    pub alignment: CausalAlignment,
}

/// Where the sequences of queries and keys meet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CausalAlignment {
    /// The last query is at the last key's position, as in a decode step with a cache.
    #[default]
    Ends,
    /// The first query is at the first key's position.
    Starts,
}

impl CausalAlignment {
    /// Returns the position among the keys of the first query.
    fn offset(self, queries: usize, keys: usize) -> i64 {
        match self {
            Self::Ends => keys as i64 - queries as i64,
            Self::Starts => 0,
        }
    }
}

/// Computes attention of q `[batch, heads, seq_q, d]`, k `[batch, kv_heads, seq_k, d]` and v `[batch, kv_heads, seq_k,
/// d_v]`, `[batch, heads, seq_q, d_v]`. Each key head serves `heads / kv_heads` neighbouring query heads. The mask
/// (true: ignore the key) and the bias broadcast to `[batch, heads, seq_q, seq_k]`.
pub fn attention(
    [query, key, value]: [&Tensor; 3],
    mask: Option<&Tensor>,
    bias: Option<&Tensor>,
    options: AttentionOptions,
) -> Tensor {
    let [context] = record_many("attention", &present(&[query, key, value], &[mask, bias]), |r, nodes| {
        expect_heads(r, &nodes[..3])?;
        let dtype = r.dtype(nodes[0]);
        let mut optional = nodes[3..].iter().copied();
        let mask = mask.and_then(|_| optional.next());
        let bias = bias.and_then(|_| optional.next());
        let scores = scores(r, nodes[0], nodes[1], options)?.bounded;
        let scores = restrict(r, scores, mask, options)?;
        let scores = add(r, scores, bias)?;
        let weights = softmax(r, scores)?.weights;
        let weights = r.convert(weights, dtype)?;
        Ok([heads_dot(r, weights, nodes[2], 2, dtype)?])
    });
    context
}

/// Returns what [`attention`] returns without a mask and a bias, and the logarithm of the sum of each query's exponential
/// scores, f32 `[batch, heads, seq_q]`, of which [`attention_backward`](super::attention_backward) computes the weights
/// again. For a query without a key it is the lowest f32.
pub fn attention_with_logsumexp([query, key, value]: [&Tensor; 3], options: AttentionOptions) -> [Tensor; 2] {
    record_many("attention_with_logsumexp", &[query, key, value], |r, nodes| {
        expect_heads(r, nodes)?;
        let dtype = r.dtype(nodes[0]);
        let scores = scores(r, nodes[0], nodes[1], options)?.bounded;
        let scores = restrict(r, scores, None, options)?;
        let Softmax { weights, largest, sum } = softmax(r, scores)?;
        let weights = r.convert(weights, dtype)?;
        let context = heads_dot(r, weights, nodes[2], 2, dtype)?;
        let logarithm = r.unary(UnaryOp::Log, sum)?;
        let logsumexp = r.binary(BinaryOp::Add, largest, logarithm)?;
        // The lowest f64 is no f32.
        let logsumexp = r.binary_const(BinaryOp::Max, logsumexp, f64::from(f32::MIN))?;
        let rows = Dims::from_slice(&r.dims(logsumexp)[..3]);
        let logsumexp = r.reshape(logsumexp, &rows)?;
        Ok([context, r.convert(logsumexp, DType::F32)?])
    })
}

/// Rejects operands that are not `[batch, heads, sequence, width]`, and query heads that cannot share those of keys and
/// values.
pub(super) fn expect_heads(r: &Recorder, operands: &[NodeId]) -> Result<()> {
    if operands.iter().any(|&x| r.rank(x) != 4) {
        let rule = "takes [batch, heads, sequence, width] three times";
        return Err(broken_rule(r, "dot_general", operands, rule));
    }
    let queries = r.dims(operands[0])[1];
    for shared in operands[1..3].iter().map(|&x| r.dims(x)[1]) {
        if queries != 1 && (shared == 0 || !queries.is_multiple_of(shared)) {
            let rule = format!("{queries} query heads are no multiple of {shared} heads of keys or values");
            return Err(broken_rule(r, "dot_general", operands, rule));
        }
    }
    Ok(())
}

/// The scores of [`attention`] before any is hidden, `[batch, heads, seq_q, seq_k]`.
pub(super) struct Scores {
    /// With the softcap applied.
    pub bounded: NodeId,
    /// `tanh(scores / softcap)`, if there is a softcap.
    pub tanh: Option<NodeId>,
}

/// Returns `q k^T * scale` with the softcap applied, in the accumulator's type.
pub(super) fn scores(r: &mut Recorder, query: NodeId, key: NodeId, options: AttentionOptions) -> Result<Scores> {
    let wide = r.dtype(query).accumulator();
    let raw = heads_dot(r, query, key, 3, wide)?;
    let width = r.dims(query)[3];
    let scaled = scale(r, raw, width, options)?;
    let Some(cap) = options.softcap else { return Ok(Scores { bounded: scaled, tanh: None }) };
    if cap.is_nan() || cap <= 0.0 {
        return Err(broken_rule(r, "divide", &[scaled], format!("softcap must be positive, got {cap}")));
    }
    let cap = r.slot_like(scaled, cap)?;
    let fraction = r.binary(BinaryOp::Div, scaled, cap)?;
    let tanh = r.unary(UnaryOp::Tanh, fraction)?;
    Ok(Scores { bounded: r.binary(BinaryOp::Mul, tanh, cap)?, tanh: Some(tanh) })
}

/// Multiplies by the factor of the scores of queries of a width.
pub(super) fn scale(r: &mut Recorder, x: NodeId, width: usize, options: AttentionOptions) -> Result<NodeId> {
    match options.scale {
        Some(scale) => {
            let scale = r.slot_like(x, scale)?;
            r.binary(BinaryOp::Mul, x, scale)
        }
        None => r.binary_const(BinaryOp::Mul, x, 1.0 / (width as f64).sqrt()),
    }
}

/// Returns -inf where the mask is true and, if causal, where the key comes after the query.
pub(super) fn restrict(
    g: &mut impl Builder,
    scores: NodeId,
    mask: Option<NodeId>,
    options: AttentionOptions,
) -> Result<NodeId> {
    let dims = g.dims(scores);
    let future = if options.is_causal { Some(future(g, &dims, options.alignment)?) } else { None };
    let hidden = match (mask, future) {
        (Some(mask), Some(future)) => g.binary(BinaryOp::Or, mask, future)?,
        (Some(one), None) | (None, Some(one)) => one,
        (None, None) => return Ok(scores),
    };
    let lowest = g.splat_like(scores, f64::NEG_INFINITY)?;
    g.select(hidden, lowest, scores)
}

/// Returns whether the key's position is after the query's, `[1, 1, seq_q, seq_k]`.
fn future(g: &mut impl Builder, dims: &[usize], alignment: CausalAlignment) -> Result<NodeId> {
    let (queries, keys) = (dims[2], dims[3]);
    let row = g.iota(DType::I32, &[1, 1, queries, keys], 2)?;
    let row = g.binary_const(BinaryOp::Add, row, alignment.offset(queries, keys))?;
    let column = g.iota(DType::I32, &[1, 1, queries, keys], 3)?;
    g.compare(Direction::Gt, column, row)
}

fn add(g: &mut impl Builder, scores: NodeId, bias: Option<NodeId>) -> Result<NodeId> {
    let Some(bias) = bias else { return Ok(scores) };
    let bias = g.convert(bias, g.dtype(scores))?;
    g.binary(BinaryOp::Add, scores, bias)
}

/// A softmax over the last dim, and what it is computed of.
struct Softmax {
    weights: NodeId,
    /// The largest score of each row, and the sum of the exponentials of the differences to it; both finite.
    largest: NodeId,
    sum: NodeId,
}

/// Returns the softmax over the last dim, which is 0 for rows where all scores are -inf.
fn softmax(g: &mut impl Builder, scores: NodeId) -> Result<Softmax> {
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
    Ok(Softmax { weights: g.binary(BinaryOp::Div, exponentials, sum)?, largest, sum })
}

/// Contracts the last dim of `lhs` `[batch, heads, rows, _]` with dim `contract` of `rhs` `[batch, kv_heads, ..]`, where
/// heads that share one of `rhs` are rows of one matrix. `result` is the element type of the result.
fn heads_dot(g: &mut impl Builder, lhs: NodeId, rhs: NodeId, contract: usize, result: DType) -> Result<NodeId> {
    let (dims, shared) = (g.dims(lhs), g.dims(rhs)[1]);
    if dims[1] <= shared {
        return batched_dot(g, lhs, rhs, contract, result);
    }
    let stacked = stack(g, lhs, shared)?;
    let product = batched_dot(g, stacked, rhs, contract, result)?;
    let (batch, width) = (g.dims(product)[0], g.dims(product)[3]);
    g.reshape(product, &[batch, dims[1], dims[2], width])
}

/// Returns `[batch, heads, rows, width]` as `[batch, shared, heads / shared * rows, width]`.
pub(super) fn stack(g: &mut impl Builder, x: NodeId, shared: usize) -> Result<NodeId> {
    let dims = g.dims(x);
    g.reshape(x, &[dims[0], shared, dims[1] / shared * dims[2], dims[3]])
}

/// Contracts the last dim of `lhs` with dim `contract` of `rhs`, for each `[batch, head]`. `result` is the element type
/// of the result.
fn batched_dot(g: &mut impl Builder, lhs: NodeId, rhs: NodeId, contract: usize, result: DType) -> Result<NodeId> {
    contracted(g, lhs, rhs, [3, contract], result)
}

/// Contracts a dim of `lhs` with one of `rhs`, for each `[batch, head]`.
pub(super) fn contracted(
    g: &mut impl Builder,
    lhs: NodeId,
    rhs: NodeId,
    [left, right]: [usize; 2],
    result: DType,
) -> Result<NodeId> {
    let (lhs, rhs) = mixed::narrowed(g, lhs, rhs)?;
    let (lhs, rhs) = share_heads(g, lhs, rhs)?;
    let attrs = DotAttrs::new([&[0, 1], &[0, 1]], [&[left], &[right]], g.dtype(lhs).accumulator());
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::data::to_device;
    use crate::ops::testing::{devices, tensor, values};

    /// Returns so many numbers that differ.
    fn numbers(count: usize) -> Vec<f32> {
        (0..count).map(|i| (0.7 * i as f32).sin()).collect()
    }

    #[test]
    fn heads_that_share_a_key_are_those_that_have_a_copy() {
        for device in devices() {
            let place = |values: Vec<f32>, dims: &[usize]| to_device(tensor(values, dims), &device);
            let query = place(numbers(24), &[1, 4, 3, 2]);
            let (shared, copies) = (numbers(12), [&numbers(12)[..6]; 2].concat());
            let copies = [copies, [&shared[6..]; 2].concat()].concat();
            let (shared, copies) = (place(shared, &[1, 2, 3, 2]), place(copies, &[1, 4, 3, 2]));
            let options = AttentionOptions { is_causal: true, ..AttentionOptions::default() };
            let grouped = values(attention([&query, &shared, &shared], None, None, options));
            let plain = values(attention([&query, &copies, &copies], None, None, options));
            assert!(grouped.iter().zip(&plain).all(|(a, b)| (a - b).abs() < 1e-5), "{grouped:?} {plain:?}");
        }
    }

    #[test]
    fn positions_meet_at_either_end() {
        for device in devices() {
            let place = |values: Vec<f32>, dims: &[usize]| to_device(tensor(values, dims), &device);
            let (query, key) = (place(numbers(2), &[1, 1, 2, 1]), place(vec![0.0; 3], &[1, 1, 3, 1]));
            let value = place(vec![1.0, 2.0, 6.0], &[1, 1, 3, 1]);
            // Keys of zeros: the mean of the values that a query attends to.
            let means = |alignment| {
                let options = AttentionOptions { is_causal: true, alignment, ..AttentionOptions::default() };
                values(attention([&query, &key, &value], None, None, options))
            };
            assert_eq!(
                (means(CausalAlignment::Ends), means(CausalAlignment::Starts)),
                (vec![1.5, 3.0], vec![1.0, 1.5])
            );
        }
    }
}
