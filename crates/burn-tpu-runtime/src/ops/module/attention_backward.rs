//! The gradient of attention without a mask and a bias, computed again of each query's logsumexp.
//!
//! The weights are `exp(scores - logsumexp)`, so a training step keeps one number for each query, and no scores. With
//! `o` the output and `do` its gradient, the gradient of the scores is `weights * (do v^T - sum(do * o))`, times the
//! derivative of the softcap. Weights and gradients of scores are f32 between the products, also for 16-bit floats.

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

#[cfg(test)]
mod tests {
    use super::super::attention_with_logsumexp;
    use super::*;
    use crate::ops::testing::{tensor_of, values};
    use burn_tpu_graph::DType;

    /// The dims of queries, keys and values: two query heads share a key head.
    const DIMS: [[usize; 4]; 3] = [[1, 2, 3, 2], [1, 1, 3, 2], [1, 1, 3, 1]];

    fn numbers(seed: f64, dims: [usize; 4]) -> Vec<f64> {
        (0..dims.iter().product()).map(|i| (seed + 0.7 * i as f64).sin()).collect()
    }

    /// Returns the product of the output with fixed weights, as if it were the loss.
    fn loss(operands: &[Vec<f64>; 3], weights: &[f64], options: AttentionOptions) -> f64 {
        let [q, k, v] = [0, 1, 2].map(|i| tensor_of(DType::F64, &operands[i], &DIMS[i]));
        let [output, _] = attention_with_logsumexp([&q, &k, &v], options);
        values(output).iter().zip(weights).map(|(y, weight)| y * weight).sum()
    }

    #[test]
    fn gradients_are_the_quotients_of_differences() {
        let options = AttentionOptions { softcap: Some(1.5), is_causal: true, ..AttentionOptions::default() };
        let operands = [0, 1, 2].map(|i| numbers(i as f64, DIMS[i]));
        let weights = numbers(5.0, [1, 2, 3, 1]);
        let [q, k, v] = [0, 1, 2].map(|i| tensor_of(DType::F64, &operands[i], &DIMS[i]));
        let gradient = tensor_of(DType::F64, &weights, &[1, 2, 3, 1]);
        let [output, logsumexp] = attention_with_logsumexp([&q, &k, &v], options);
        assert_eq!(logsumexp.element(), DType::F32);
        let all = AttentionGradient {
            query: &q,
            key: &k,
            value: &v,
            output: &output,
            logsumexp: &logsumexp,
            output_gradient: &gradient,
        };
        for (i, gradient) in attention_backward(&all, options).into_iter().enumerate() {
            assert_eq!(gradient.dims(), DIMS[i]);
            for (place, found) in values(gradient).into_iter().enumerate() {
                let moved = |by: f64| {
                    let mut operands = operands.clone();
                    operands[i][place] += by;
                    loss(&operands, &weights, options)
                };
                let quotient = (moved(1e-4) - moved(-1e-4)) / 2e-4;
                // The logsumexp is f32.
                assert!((found - quotient).abs() < 1e-5, "operand {i} at {place}: {found}, not {quotient}");
            }
        }
    }
}
