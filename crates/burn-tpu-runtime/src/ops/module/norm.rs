//! Layer normalisation over the last dim, in f32 for 16-bit floats.

use super::operands::{add_bias, present};
use crate::Tensor;
use crate::ops::broken_rule;
use crate::trace::{Recorder, record_many};
use burn_tpu_graph::op::{BinaryOp, Combine, UnaryOp};
use burn_tpu_graph::{Builder, NodeId, Result};

/// Computes `(x - mean) / sqrt(var + epsilon) * gamma + beta`, with the mean and the biased variance over the last dim.
pub fn layer_norm(x: &Tensor, gamma: &Tensor, beta: Option<&Tensor>, epsilon: f64) -> Tensor {
    let [y] = record_many("layer_norm", &present(&[x, gamma], &[beta]), |r, nodes| {
        if r.rank(nodes[0]) == 0 {
            return Err(broken_rule(r, "reduce", nodes, "takes at least one dim"));
        }
        let (dtype, last) = (r.dtype(nodes[0]), r.rank(nodes[0]).saturating_sub(1));
        let wide = nodes.iter().map(|&node| r.convert(node, dtype.accumulator())).collect::<Result<Vec<_>>>()?;
        let normalised = normalise(r, wide[0], last, epsilon)?;
        let dims = r.dims(normalised);
        let gamma = r.broadcast_in_dim(wide[1], &dims, &[last])?;
        let scaled = r.binary(BinaryOp::Mul, normalised, gamma)?;
        let shifted = add_bias(r, scaled, wide.get(2).copied(), last)?;
        Ok([r.convert(shifted, dtype)?])
    });
    y
}

fn normalise(r: &mut Recorder, x: NodeId, dim: usize, epsilon: f64) -> Result<NodeId> {
    let mean = mean(r, x, dim)?;
    let centered = r.binary(BinaryOp::Sub, x, mean)?;
    let square = r.binary(BinaryOp::Mul, centered, centered)?;
    let variance = self::mean(r, square, dim)?;
    let epsilon = r.slot_like(variance, epsilon)?;
    let shifted = r.binary(BinaryOp::Add, variance, epsilon)?;
    let scale = r.unary(UnaryOp::Rsqrt, shifted)?;
    r.binary(BinaryOp::Mul, centered, scale)
}

/// Returns the mean over `dim`, which is kept with size 1.
fn mean(r: &mut Recorder, x: NodeId, dim: usize) -> Result<NodeId> {
    let count = r.dims(x)[dim];
    let sum = r.accumulate_keepdim(Combine::Sum, x, dim)?;
    r.binary_const(BinaryOp::Div, sum, count as f64)
}
