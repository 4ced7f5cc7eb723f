//! The gradient of attention without a mask and a bias, computed again of each query's logsumexp.
//!
//! The weights are `exp(scores - logsumexp)`, so a training step keeps one number for each query, and no scores. With `o` the
//! output and `do` its gradient, the gradient of the scores is `weights * (do v^T - sum(do * o))`, times the derivative of
//! the softcap. Weights and gradients of scores are f32 between the products, also for 16-bit floats.

use super::attention::{AttentionOptions, contracted, expect_heads, restrict, scale, scores, stack};
use crate::Tensor;
use crate::ops::broken_rule;
use crate::trace::record_many;
use burn_tpu_graph::op::{BinaryOp, Combine, UnaryOp};
use burn_tpu_graph::{Builder, NodeId, Result};

/// The operands of [`attention_backward`]: those and the results of
/// [`attention_with_logsumexp`](super::attention_with_logsumexp), and the gradient of the output.
pub struct AttentionGradient<'t> {
    /// `[batch, heads, seq_q, d]`.
    pub query: &'t Tensor,
    /// `[batch, kv_heads, seq_k, d]`.
    pub key: &'t Tensor,
    /// `[batch, kv_heads, seq_k, d_v]`.
    pub value: &'t Tensor,
    /// `[batch, heads, seq_q, d_v]`.
    pub output: &'t Tensor,
    /// f32, `[batch, heads, seq_q]`.
    pub logsumexp: &'t Tensor,
    /// `[batch, heads, seq_q, d_v]`.
    pub output_gradient: &'t Tensor,
}

/// Returns the gradients of queries, keys and values, with their dims. Those of a key head are sums over the query heads
/// that share it.
pub fn attention_backward(operands: &AttentionGradient, options: AttentionOptions) -> [Tensor; 3] {
    let AttentionGradient { query, key, value, output, logsumexp, output_gradient } = operands;
    let operands = [*query, key, value, output, logsumexp, output_gradient];
    record_many("attention_backward", &operands, |r, nodes| {
        let &[query, key, value, output, logsumexp, gradient] = nodes else {
            return Err(broken_rule(r, "dot_general", nodes, "takes six operands"));
        };
        expect_heads(r, &[query, key, value])?;
        let (dims, shared) = (r.dims(query), r.dims(key)[1]);
        let is_shared = [key, value].iter().all(|&x| r.dims(x)[..2] == [dims[0], shared]);
        if r.dims(logsumexp)[..] != dims[..3] || !is_shared || dims[1] < shared {
            let rule = "takes a logsumexp of each query, and as many heads of values as of keys";
            return Err(broken_rule(r, "dot_general", nodes, rule));
        }
        let found = scores(r, query, key, options)?;
        let restricted = restrict(r, found.bounded, None, options)?;
        let weights = weights(r, restricted, logsumexp)?;
        let wide = r.dtype(weights);
        // Heads that share keys and values are rows of one matrix from here on.
        let weights = stack(r, weights, shared)?;
        let rows = stack(r, gradient, shared)?;
        let share = row_sums(r, output, gradient)?;
        let share = r.convert(share, wide)?;
        let share = stack(r, share, shared)?;
        let by_weight = contracted(r, rows, value, [3, 3], wide)?;
        let difference = r.binary(BinaryOp::Sub, by_weight, share)?;
        let mut by_score = r.binary(BinaryOp::Mul, weights, difference)?;
        if let Some(tanh) = found.tanh {
            let slope = softcap_slope(r, tanh)?;
            let slope = stack(r, slope, shared)?;
            by_score = r.binary(BinaryOp::Mul, by_score, slope)?;
        }
        let by_score = scale(r, by_score, dims[3], options)?;
        let dtype = r.dtype(query);
        let (by_score, weights) = (r.convert(by_score, dtype)?, r.convert(weights, dtype)?);
        let by_query = contracted(r, by_score, key, [3, 2], dtype)?;
        let query = stack(r, query, shared)?;
        let (key_type, value_type) = (r.dtype(key), r.dtype(value));
        Ok([
            r.reshape(by_query, &dims)?,
            contracted(r, by_score, query, [2, 2], key_type)?,
            contracted(r, weights, rows, [2, 2], value_type)?,
        ])
    })
}

/// Returns `exp(scores - logsumexp)`.
fn weights(g: &mut impl Builder, scores: NodeId, logsumexp: NodeId) -> Result<NodeId> {
    let dims = g.dims(scores);
    let logsumexp = g.convert(logsumexp, g.dtype(scores))?;
    let logsumexp = g.broadcast_in_dim(logsumexp, &dims, &[0, 1, 2])?;
    let difference = g.binary(BinaryOp::Sub, scores, logsumexp)?;
    g.unary(UnaryOp::Exp, difference)
}

/// Returns the sums over the last dim of the product, `[batch, heads, seq_q, 1]`, in the accumulator's type.
fn row_sums(g: &mut impl Builder, output: NodeId, gradient: NodeId) -> Result<NodeId> {
    let wide = g.dtype(output).accumulator();
    let (output, gradient) = (g.convert(output, wide)?, g.convert(gradient, wide)?);
    let product = g.binary(BinaryOp::Mul, output, gradient)?;
    g.accumulate_keepdim(Combine::Sum, product, 3)
}

/// Returns the derivative of `cap * tanh(x / cap)`: `1 - tanh^2`.
fn softcap_slope(g: &mut impl Builder, tanh: NodeId) -> Result<NodeId> {
    let square = g.binary(BinaryOp::Mul, tanh, tanh)?;
    let one = g.splat_like(square, 1.0)?;
    g.binary(BinaryOp::Sub, one, square)
}
