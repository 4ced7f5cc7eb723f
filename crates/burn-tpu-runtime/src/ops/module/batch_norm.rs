//! Batch normalisation of `[batch, channels, spatial...]`, in f32 for 16-bit floats.
//!
//! The statistics of a channel are over all its other dims, and the variance is the biased one.

use super::conv::sum_but_features;
use crate::Tensor;
use crate::ops::broken_rule;
use crate::trace::{Recorder, record_many};
use burn_tpu_graph::op::{BinaryOp, UnaryOp};
use burn_tpu_graph::{Builder, DType, NodeId, Result};

/// Computes `(x - mean) / sqrt(variance + epsilon) * gamma + beta` of `[x, gamma, beta, mean, variance]`; all but `x` are
/// `[channels]`.
pub fn batch_norm(operands: [&Tensor; 5], epsilon: f64) -> Tensor {
    let [y] = record_many("batch_norm", &operands, |r, nodes| {
        let dtype = expect_channels(r, nodes)?;
        let [x, gamma, beta, mean, variance] = widened(r, nodes, dtype)?;
        let normalised = Normalised::of(r, x, mean, variance, epsilon)?;
        let y = normalised.affine(r, gamma, beta)?;
        Ok([r.convert(y, dtype)?])
    });
    y
}

/// Computes [`batch_norm`] of `[x, gamma, beta]` with the statistics of the batch. Also returns its mean and variance,
/// `[channels]`.
pub fn batch_norm_train(operands: [&Tensor; 3], epsilon: f64) -> [Tensor; 3] {
    record_many("batch_norm_train", &operands, |r, nodes| {
        let dtype = expect_channels(r, nodes)?;
        let [x, gamma, beta] = widened(r, nodes, dtype)?;
        let mean = mean(r, x)?;
        let along = per_channel(r, mean, x)?;
        let centered = r.binary(BinaryOp::Sub, x, along)?;
        let square = r.binary(BinaryOp::Mul, centered, centered)?;
        let variance = self::mean(r, square)?;
        let normalised = Normalised::of(r, x, mean, variance, epsilon)?;
        let y = normalised.affine(r, gamma, beta)?;
        Ok([r.convert(y, dtype)?, r.convert(mean, dtype)?, r.convert(variance, dtype)?])
    })
}

/// Returns the gradients with respect to x, gamma and beta. The operands are `[x, gamma, mean, variance, gradient]`, with
/// the mean and the variance that [`batch_norm_train`] returned.
pub fn batch_norm_train_backward(operands: [&Tensor; 5], epsilon: f64) -> [Tensor; 3] {
    record_many("batch_norm_train_backward", &operands, |r, nodes| {
        let dtype = expect_channels(r, nodes)?;
        let [x, gamma, mean, variance, grad] = widened(r, nodes, dtype)?;
        let Normalised { value: normalised, scale } = Normalised::of(r, x, mean, variance, epsilon)?;
        let weighted = r.binary(BinaryOp::Mul, grad, normalised)?;
        let (beta_grad, gamma_grad) = (sum_but_features(r, grad)?, sum_but_features(r, weighted)?);
        // The batch's own statistics depend on x: what the gradient shares with them is removed.
        let (mean_grad, mean_weighted) = (self::mean(r, grad)?, self::mean(r, weighted)?);
        let (mean_grad, mean_weighted) = (per_channel(r, mean_grad, x)?, per_channel(r, mean_weighted, x)?);
        let centered = r.binary(BinaryOp::Sub, grad, mean_grad)?;
        let projected = r.binary(BinaryOp::Mul, normalised, mean_weighted)?;
        let rest = r.binary(BinaryOp::Sub, centered, projected)?;
        let gamma = per_channel(r, gamma, x)?;
        let factor = r.binary(BinaryOp::Mul, gamma, scale)?;
        let x_grad = r.binary(BinaryOp::Mul, factor, rest)?;
        Ok([r.convert(x_grad, dtype)?, r.convert(gamma_grad, dtype)?, r.convert(beta_grad, dtype)?])
    })
}

/// `(x - mean) / sqrt(variance + epsilon)`, and the reciprocal of that root, both of the dims of `x`.
struct Normalised {
    value: NodeId,
    scale: NodeId,
}

impl Normalised {
    fn of(r: &mut Recorder, x: NodeId, mean: NodeId, variance: NodeId, epsilon: f64) -> Result<Self> {
        let epsilon = r.slot_like(variance, epsilon)?;
        let shifted = r.binary(BinaryOp::Add, variance, epsilon)?;
        let scale = r.unary(UnaryOp::Rsqrt, shifted)?;
        let (mean, scale) = (per_channel(r, mean, x)?, per_channel(r, scale, x)?);
        let centered = r.binary(BinaryOp::Sub, x, mean)?;
        Ok(Self { value: r.binary(BinaryOp::Mul, centered, scale)?, scale })
    }

    fn affine(&self, r: &mut Recorder, gamma: NodeId, beta: NodeId) -> Result<NodeId> {
        let (gamma, beta) = (per_channel(r, gamma, self.value)?, per_channel(r, beta, self.value)?);
        let scaled = r.binary(BinaryOp::Mul, self.value, gamma)?;
        r.binary(BinaryOp::Add, scaled, beta)
    }
}

/// Rejects an `x` without channels. Returns its element type.
fn expect_channels(r: &Recorder, nodes: &[NodeId]) -> Result<DType> {
    if r.rank(nodes[0]) < 2 {
        return Err(broken_rule(r, "broadcast_in_dim", nodes, "takes [batch, channels, ..]"));
    }
    Ok(r.dtype(nodes[0]))
}

/// Converts all operands to the type in which `dtype` accumulates.
fn widened<const N: usize>(r: &mut Recorder, nodes: &[NodeId], dtype: DType) -> Result<[NodeId; N]> {
    let mut wide = [nodes[0]; N];
    for (wide, &node) in wide.iter_mut().zip(nodes) {
        *wide = r.convert(node, dtype.accumulator())?;
    }
    Ok(wide)
}

/// Broadcasts `[channels]` to the dims of `like`.
fn per_channel(r: &mut Recorder, x: NodeId, like: NodeId) -> Result<NodeId> {
    let dims = r.dims(like);
    r.broadcast_in_dim(x, &dims, &[1])
}

/// Returns the mean of each channel, `[channels]`.
fn mean(r: &mut Recorder, x: NodeId) -> Result<NodeId> {
    let count = r.ty(x).elements() / r.dims(x)[1].max(1);
    let sum = sum_but_features(r, x)?;
    r.binary_const(BinaryOp::Div, sum, count as f64)
}
