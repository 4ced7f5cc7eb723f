//! Matrix products of floats and integers, and the cross product.
//!
//! Owns: how batch dims broadcast, and the type in which products accumulate: f32 for 16-bit floats, 32 bits for narrow
//! integers (the wrapped result is the same, and matrix units support nothing narrower).

use super::{broken_rule, expect_dim, mixed};
use crate::Tensor;
use crate::trace::{Recorder, record};
use burn_tpu_graph::op::{BinaryOp, Combine, DotAttrs};
use burn_tpu_graph::{Builder, DType, Dims, NodeId, Result};

/// Computes the product of `[.., m, k]` and `[.., k, n]`. Batch dims of size 1 broadcast.
pub fn matmul(name: &'static str, lhs: Tensor, rhs: Tensor) -> Tensor {
    record(name, [&lhs, &rhs], |r, [x, y]| {
        let (x, y) = mixed::narrowed(r, x, y)?;
        let (rank, dtype) = (r.rank(x), r.dtype(x));
        if rank < 2 || r.rank(y) != rank {
            return Err(broken_rule(r, "dot_general", &[x, y], "takes two operands of one rank, at least 2"));
        }
        if dtype.is_int() && dtype.size_bytes() == 8 {
            return multiply_and_sum(r, x, y);
        }
        let (operand, result) = product_types(dtype);
        let x = r.convert(x, operand)?;
        let (other, _) = product_types(r.dtype(y));
        let y = r.convert(y, other)?;
        let product = batched_dot(r, x, y, result)?;
        r.convert(product, dtype)
    })
}

/// Returns the types of a product's operands and of its accumulator.
fn product_types(dtype: DType) -> (DType, DType) {
    match dtype {
        DType::I8 => (dtype, DType::I32),
        DType::U8 => (dtype, DType::U32),
        DType::I16 => (DType::I32, DType::I32),
        DType::U16 => (DType::U32, DType::U32),
        _ => (dtype, dtype.accumulator()),
    }
}

/// Computes one `dot_general` for any broadcast. A batch dim that has size 1 on one side is a free dim of the other
/// side, so `[b, t, k]` times `[1, k, n]` is a single large product and nothing is repeated in memory.
pub(super) fn batched_dot(r: &mut Recorder, x: NodeId, y: NodeId, result: DType) -> Result<NodeId> {
    let batch = r.rank(x) - 2;
    let (xs, ys) = (r.dims(x), r.dims(y));
    let (x_only, y_only, both) = (
        batch_dims(batch, |&d| ys[d] == 1 && xs[d] != 1),
        batch_dims(batch, |&d| xs[d] == 1 && ys[d] != 1),
        batch_dims(batch, |&d| (xs[d] == 1) == (ys[d] == 1)),
    );
    let (x, x_batch) = drop_dims(r, x, &y_only, &both)?;
    let (y, y_batch) = drop_dims(r, y, &x_only, &both)?;
    let attrs = DotAttrs::new([&x_batch, &y_batch], [&[r.rank(x) - 1], &[r.rank(y) - 2]], result);
    let product = r.dot_general(x, y, attrs)?;
    // The dims of the product: the batch dims of both, then the dims of only x and m, then the dims of only y and n.
    let order: Dims = both.into_iter().chain(x_only).chain([batch]).chain(y_only).chain([batch + 1]).collect();
    let permutation: Dims = (0..batch + 2).filter_map(|d| order.iter().position(|&from| from == d)).collect();
    r.transpose(product, &permutation)
}

fn batch_dims(batch: usize, keep: impl FnMut(&usize) -> bool) -> Dims {
    (0..batch).filter(keep).collect()
}

/// Returns the operand without its size-1 dims `dropped`, and the new positions of the dims `batch`.
fn drop_dims(r: &mut Recorder, x: NodeId, dropped: &[usize], batch: &[usize]) -> Result<(NodeId, Dims)> {
    let dims = r.dims(x);
    let kept: Dims = (0..dims.len()).filter(|d| !dropped.contains(d)).collect();
    let sizes: Dims = kept.iter().map(|&d| dims[d]).collect();
    let places = batch.iter().filter_map(|d| kept.iter().position(|k| k == d)).collect();
    Ok((r.reshape(x, &sizes)?, places))
}

/// Computes the product of 64-bit integers, for which TPUs have no dot. XLA fuses the broadcast product into the sum.
fn multiply_and_sum(r: &mut Recorder, x: NodeId, y: NodeId) -> Result<NodeId> {
    let rank = r.rank(x);
    let mut xs = r.dims(x);
    let mut ys = r.dims(y);
    if xs[rank - 1] != ys[rank - 2] {
        let rule = format!("k is {} on the left and {} on the right", xs[rank - 1], ys[rank - 2]);
        return Err(broken_rule(r, "dot_general", &[x, y], rule));
    }
    xs.push(1);
    ys.insert(rank - 2, 1);
    let x = r.reshape(x, &xs)?;
    let y = r.reshape(y, &ys)?;
    let products = r.binary(BinaryOp::Mul, x, y)?;
    r.reduce(Combine::Sum, products, &[rank - 1])
}

/// Computes the cross product along a dim of size 3. 16-bit floats are rounded once, after the subtraction, which may
/// cancel digits.
pub fn cross(lhs: Tensor, rhs: Tensor, dim: usize) -> Tensor {
    record("float_cross", [&lhs, &rhs], |r, [x, y]| {
        expect_dim(r, "slice", x, dim)?;
        expect_dim(r, "slice", y, dim)?;
        if r.dims(x)[dim] != 3 || r.dims(y)[dim] != 3 {
            return Err(broken_rule(r, "slice", &[x, y], format!("dim {dim} must have size 3")));
        }
        let (dtype, other) = (r.dtype(x), r.dtype(y));
        let x = r.convert(x, dtype.accumulator())?;
        let y = r.convert(y, other.accumulator())?;
        let (x, y) = r.broadcast_pair(x, y)?;
        let mut parts = Vec::with_capacity(3);
        for (a, b) in [(1, 2), (2, 0), (0, 1)] {
            let ab = product_of_parts(r, x, a, y, b, dim)?;
            let ba = product_of_parts(r, x, b, y, a, dim)?;
            parts.push(r.binary(BinaryOp::Sub, ab, ba)?);
        }
        let cross = r.concatenate(&parts, dim)?;
        r.convert(cross, dtype)
    })
}

fn product_of_parts(r: &mut Recorder, x: NodeId, a: usize, y: NodeId, b: usize, dim: usize) -> Result<NodeId> {
    let x = r.slice_dim(x, dim, a, a + 1)?;
    let y = r.slice_dim(y, dim, b, b + 1)?;
    r.binary(BinaryOp::Mul, x, y)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{tensor, tensor_of, values};

    /// Computes the product with sizes and strides. The stride is 0 for a size-1 dim that repeats.
    fn naive(x: &[f64], xs: &[usize; 4], y: &[f64], ys: &[usize; 4]) -> Vec<f64> {
        let (m, k, n) = (xs[2], xs[3], ys[3]);
        let at = |dims: &[usize; 4], a: usize, b: usize| (a % dims[0]) * dims[1] + b % dims[1];
        let mut result = Vec::new();
        for (a, b) in (0..xs[0].max(ys[0])).flat_map(|a| (0..xs[1].max(ys[1])).map(move |b| (a, b))) {
            for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
                let term = |l| x[(at(xs, a, b) * m + i) * k + l] * y[(at(ys, a, b) * k + l) * n + j];
                result.push((0..k).map(term).sum());
            }
        }
        result
    }

    #[test]
    fn batches_broadcast_from_either_side() {
        for (xb, yb) in
            [([2, 3], [2, 3]), ([2, 3], [1, 1]), ([1, 1], [2, 3]), ([2, 1], [1, 3]), ([1, 3], [2, 1]), ([1, 3], [1, 3])]
        {
            let (xs, ys) = ([xb[0], xb[1], 2, 4], [yb[0], yb[1], 4, 3]);
            let x: Vec<f64> = (0..xs.iter().product()).map(|i: usize| i as f64 - 5.0).collect();
            let y: Vec<f64> = (0..ys.iter().product()).map(|i: usize| 3.0 - i as f64).collect();
            for dtype in [DType::F32, DType::I32, DType::I64] {
                let product = matmul("matmul", tensor_of(dtype, &x, &xs), tensor_of(dtype, &y, &ys));
                assert_eq!(product.dims(), [xb[0].max(yb[0]), xb[1].max(yb[1]), 2, 3]);
                assert_eq!(product.element(), dtype);
                assert_eq!(values(product), naive(&x, &xs, &y, &ys), "{xb:?} {yb:?} {dtype:?}");
            }
        }
    }

    #[test]
    fn narrow_integers_wrap_and_16_bit_floats_accumulate_in_f32() {
        let bytes = || tensor([100i8, 100], &[1, 2]);
        let column = tensor([1i8, 1], &[2, 1]);
        assert_eq!(values(matmul("int_matmul", bytes(), column)), [-56.0]);
        // In bf16 arithmetic 256 + 1 is 256, so the three ones would be lost.
        let x = tensor_of(DType::BF16, &[256.0, 1.0, 1.0, 1.0, 1.0], &[1, 5]);
        let ones = tensor_of(DType::BF16, &[1.0; 5], &[5, 1]);
        assert_eq!(values(matmul("float_matmul", x, ones)), [260.0]);
    }

    #[test]
    #[should_panic(expected = "int_matmul")]
    fn inner_sizes_must_agree() {
        matmul("int_matmul", tensor([1i64; 2], &[1, 2]), tensor([1i64; 3], &[3, 1]));
    }

    #[test]
    fn cross_of_unit_vectors() {
        let (x, y) = (tensor([1.0f32, 0.0, 0.0], &[1, 3]), tensor([0.0f32, 1.0, 0.0, 0.0, 0.0, 1.0], &[2, 3]));
        assert_eq!(values(cross(x, y, 1)), [0.0, 0.0, 1.0, 0.0, -1.0, 0.0]);
    }
}
