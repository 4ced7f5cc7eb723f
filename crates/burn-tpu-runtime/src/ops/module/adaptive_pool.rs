//! Adaptive average pools: output position `o` averages inputs `floor(o * in / out) .. ceil((o + 1) * in / out)`.
//!
//! If the input divides evenly (as in a global pool), the pool is a reshape and a mean. Otherwise it is a product with
//! an averaging matrix per spatial dim.

use super::operands::{expect_gradient, expect_spatial};
use super::resample::{Way, along, averaging};
use crate::Tensor;
use crate::trace::record;
use burn_tpu_graph::op::{BinaryOp, Combine};
use burn_tpu_graph::{Builder, Dims, NodeId, Result};

/// Computes `adaptive_avg_pool1d`, `adaptive_avg_pool2d` and `adaptive_avg_pool3d`.
pub fn adaptive_avg_pool(op: &'static str, x: &Tensor, output: &[usize]) -> Tensor {
    record(op, [x], |r, [x]| {
        expect_spatial(r, "reduce", &[x], output.len())?;
        let (dtype, sizes) = (r.dtype(x), spatial(&r.dims(x)));
        let wide = r.convert(x, dtype.accumulator())?;
        let pooled = match factors(&sizes, output) {
            Some(factors) => mean_blocks(r, wide, output, &factors)?,
            None => resample(r, wide, &sizes, output, Way::Forward)?,
        };
        r.convert(pooled, dtype)
    })
}

/// Distributes each output's gradient evenly over the inputs that it averaged.
pub fn adaptive_avg_pool_backward(op: &'static str, x: &Tensor, grad: &Tensor) -> Tensor {
    let (sizes, output) = (spatial(x.dims()), spatial(grad.dims()));
    record(op, [grad], |r, [grad]| {
        expect_gradient(r, "reduce", &[grad], x.dims(), sizes.len())?;
        let dtype = r.dtype(grad);
        let wide = r.convert(grad, dtype.accumulator())?;
        let spread = match factors(&sizes, &output) {
            Some(factors) => spread_blocks(r, wide, &sizes, &factors)?,
            None => resample(r, wide, &sizes, &output, Way::Transposed)?,
        };
        r.convert(spread, dtype)
    })
}

fn spatial(dims: &[usize]) -> Dims {
    dims.iter().skip(2).copied().collect()
}

/// Returns the number of inputs per output, if all outputs average the same number of inputs without overlap.
fn factors(sizes: &[usize], output: &[usize]) -> Option<Dims> {
    let factor =
        |(&size, &out): (&usize, &usize)| (out > 0 && size > 0 && size.is_multiple_of(out)).then(|| size / out);
    sizes.iter().zip(output).map(factor).collect()
}

/// Returns `[n, c, out_h, factor_h, out_w, factor_w]`.
fn blocks(lead: &[usize], output: &[usize], factors: &[usize]) -> Dims {
    let pairs = output.iter().zip(factors).flat_map(|(&out, &factor)| [out, factor]);
    lead.iter().copied().chain(pairs).collect()
}

/// Returns the means of blocks.
fn mean_blocks(g: &mut impl Builder, x: NodeId, output: &[usize], factors: &[usize]) -> Result<NodeId> {
    let blocks = blocks(&g.dims(x)[..2], output, factors);
    let within: Dims = (0..factors.len()).map(|i| 2 * i + 3).collect();
    let x = g.reshape(x, &blocks)?;
    let sums = g.reduce(Combine::Sum, x, &within)?;
    g.binary_const(BinaryOp::Div, sums, factors.iter().product::<usize>() as f64)
}

/// Returns each value divided by the block's size and repeated over its block.
fn spread_blocks(g: &mut impl Builder, x: NodeId, sizes: &[usize], factors: &[usize]) -> Result<NodeId> {
    let dims = g.dims(x);
    let share = g.binary_const(BinaryOp::Div, x, factors.iter().product::<usize>() as f64)?;
    let blocks = blocks(&dims[..2], &dims[2..], factors);
    let mapping: Dims = [0, 1].into_iter().chain((0..factors.len()).map(|i| 2 * i + 2)).collect();
    let spread = g.broadcast_in_dim(share, &blocks, &mapping)?;
    let whole: Dims = dims[..2].iter().chain(sizes).copied().collect();
    g.reshape(spread, &whole)
}

fn resample(g: &mut impl Builder, x: NodeId, sizes: &[usize], output: &[usize], way: Way) -> Result<NodeId> {
    let mut y = x;
    for i in (0..sizes.len()).rev() {
        let (size, out) = (sizes[i], output[i]);
        let range = |o: usize| (o * size / out, ((o + 1) * size).div_ceil(out).min(size));
        let ranges: Vec<_> = (0..out).map(range).collect();
        let matrix = averaging(g, g.dtype(x), &ranges, size)?;
        y = along(g, y, i + 2, matrix, way)?;
    }
    Ok(y)
}
