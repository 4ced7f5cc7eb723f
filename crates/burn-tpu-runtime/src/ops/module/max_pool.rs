//! Max pools. The values come from one `reduce_window`. A separate computation finds the indices, so that a program
//! that does not use the indices does not compute them.
//!
//! An index is the flat position in the input's plane of the first of equal values, or -1 for a window that is entirely
//! in padding. Padding is -inf and never wins. A NaN is the largest value, as in every other maximum.

use super::operands::expect_gradient;
use super::window::Window;
use crate::Tensor;
use crate::trace::{Recorder, record, record_many};
use burn_tpu_graph::op::{BinaryOp, Combine, Direction, UnaryOp, WindowAttrs};
use burn_tpu_graph::{Builder, DType, Dims, NodeId, Result};

/// Computes `max_pool1d`, `max_pool2d` and `max_pool3d`.
pub fn max_pool(op: &'static str, x: &Tensor, window: &Window) -> Tensor {
    record(op, [x], |r, [x]| largest(r, x, window))
}

/// Returns the values and their indices, of type `index`.
pub fn max_pool_with_indices(op: &'static str, x: &Tensor, window: &Window, index: DType) -> [Tensor; 2] {
    record_many(op, &[x], |r, nodes| {
        let values = largest(r, nodes[0], window)?;
        let indices = indices(r, nodes[0], window)?;
        Ok([values, r.convert(indices, index)?])
    })
}

/// Adds each window's gradient to the element that won the window.
///
/// `select_and_scatter` finds the winner again in `x`, so that the forward pass of a training step needs no indices.
/// Its 16-bit gradients accumulate in f32, also where windows do not overlap and 16 bits would be exact. For the CNN of
/// `examples/step_time`, 16 bits move a sixth fewer bytes, all of them on the chip, and take 12 % more cycles on v5e and 5 %
/// more on v6e.
///
/// By the TPU compiler's estimate for v5e (3x3 windows of bf16, step 2 on 112x112 and step 1 on 28x28) it takes 3 and 9
/// times fewer cycles than a comparison of indices. A scatter takes about as many cycles as that comparison, and up to a
/// minute to compile. `select_and_scatter` supports no dilation, no windows entirely in padding and, on TPUs, no f64. These
/// cases compare indices.
pub fn max_pool_backward(op: &'static str, x: &Tensor, grad: &Tensor, indices: &Tensor, window: &Window) -> Tensor {
    let dilated = window.dilation.iter().any(|&d| d != 1);
    if dilated || x.element() == DType::F64 || has_empty_windows(window, x.dims(), grad.dims()) {
        return compare_backward(op, x, grad, indices, window);
    }
    record(op, [x, grad], |r, [x, grad]| {
        let (dtype, attrs) = (r.dtype(grad), window.attrs(r, x)?);
        let wide = r.convert(x, dtype.accumulator())?;
        let grad = r.convert(grad, dtype.accumulator())?;
        let scattered = scatter_to_winners(r, wide, grad, attrs)?;
        r.convert(scattered, dtype)
    })
}

/// Records `select_and_scatter` on a plane that is already padded. If XLA's CPU compiler pads the windows itself, it
/// selects the last of equal elements along the last dim instead of the first.
fn scatter_to_winners(g: &mut impl Builder, x: NodeId, grad: NodeId, attrs: WindowAttrs) -> Result<NodeId> {
    if attrs.padding.iter().all(|&edges| edges == (0, 0)) {
        return g.select_and_scatter(x, grad, attrs);
    }
    let dims = g.dims(x);
    let (low, high): (Vec<isize>, Vec<isize>) = attrs.padding.iter().copied().unzip();
    let lowest = g.scalar(g.dtype(x), f64::NEG_INFINITY)?;
    let padded = g.pad(x, lowest, &low, &high, &vec![0; dims.len()])?;
    let padding = attrs.padding.iter().map(|_| (0, 0)).collect();
    let scattered = g.select_and_scatter(padded, grad, WindowAttrs { padding, ..attrs })?;
    let back = |edges: &[isize]| edges.iter().map(|edge| -edge).collect::<Vec<_>>();
    let zero = g.scalar(g.dtype(x), 0.0)?;
    g.pad(scattered, zero, &back(&low), &back(&high), &vec![0; dims.len()])
}

/// Returns whether a window contains no element of the input.
fn has_empty_windows(window: &Window, sizes: &[usize], positions: &[usize]) -> bool {
    let planes = sizes.len() == window.rank() + 2 && positions.len() == sizes.len();
    (0..window.rank()).any(|i| {
        planes && {
            let last = (positions[i + 2].max(1) - 1) * window.stride[i];
            window.size[i] <= window.padding[i] || last >= window.padding[i] + sizes[i + 2]
        }
    })
}

/// For each element of the window, selects the gradients whose index refers to it, puts them at its position in the
/// input, and sums them.
fn compare_backward(op: &'static str, x: &Tensor, grad: &Tensor, indices: &Tensor, window: &Window) -> Tensor {
    let sizes = Dims::from_slice(x.dims());
    record(op, [grad, indices], |r, [grad, indices]| {
        expect_gradient(r, "select", &[grad, indices], &sizes, window.rank())?;
        let dtype = r.dtype(grad);
        let grad = r.convert(grad, dtype.accumulator())?;
        let indices = r.convert(indices, DType::I32)?;
        let windows = r.dims(grad);
        let starts = window_starts(r, &windows, &sizes, window)?;
        let within = r.binary(BinaryOp::Sub, indices, starts)?;
        let zero = r.splat_like(grad, 0.0)?;
        let mut sum = r.splat(dtype.accumulator(), &sizes, 0.0)?;
        for element in 0..window.size.iter().product() {
            let at = offsets(window, element);
            let flat: usize = (0..at.len()).map(|i| at[i] * plane_stride(&sizes, i)).sum();
            let hit = r.compare_const(Direction::Eq, within, flat as i64)?;
            let share = r.select(hit, grad, zero)?;
            let placed = place(r, share, &at, &sizes, window)?;
            sum = r.binary(BinaryOp::Add, sum, placed)?;
        }
        r.convert(sum, dtype)
    })
}

/// Returns the distance of a window's `element`, in row-major order, from the window's start along each spatial dim.
fn offsets(window: &Window, element: usize) -> Dims {
    let mut rest = element;
    let mut at: Dims = window.size.clone();
    for i in (0..at.len()).rev() {
        at[i] = rest % window.size[i] * window.dilation[i];
        rest /= window.size[i];
    }
    at
}

/// Returns the distance in a flat plane between neighbours along spatial dim `i`.
fn plane_stride(sizes: &[usize], i: usize) -> usize {
    sizes[i + 3..].iter().product()
}

/// Returns the flat position in the plane at which each window starts. In padding it is outside the plane or in another
/// row; [`place`] crops the result of comparisons with such a position.
fn window_starts(g: &mut impl Builder, dims: &[usize], sizes: &[usize], window: &Window) -> Result<NodeId> {
    let padding: usize = (0..window.rank()).map(|i| window.padding[i] * plane_stride(sizes, i)).sum();
    let mut start = g.splat(DType::I32, dims, -(padding as i64))?;
    for i in 0..window.rank() {
        let position = g.iota(DType::I32, dims, i + 2)?;
        let step = (window.stride[i] * plane_stride(sizes, i)) as i64;
        let position = g.binary_const(BinaryOp::Mul, position, step)?;
        start = g.binary(BinaryOp::Add, start, position)?;
    }
    Ok(start)
}

/// Puts one value per window, at offset `at` from the window's start, into a plane of zeros. Values in padding are
/// cropped.
fn place(g: &mut impl Builder, x: NodeId, at: &[usize], sizes: &[usize], window: &Window) -> Result<NodeId> {
    let dims = g.dims(x);
    let (mut low, mut high) = (vec![0; dims.len()], vec![0; dims.len()]);
    let mut interior = vec![0; dims.len()];
    for i in 0..at.len() {
        let extent = (dims[i + 2].max(1) - 1) * window.stride[i] + 1;
        low[i + 2] = at[i] as isize - window.padding[i] as isize;
        high[i + 2] = sizes[i + 2] as isize - extent as isize - low[i + 2];
        interior[i + 2] = window.stride[i] - 1;
    }
    let zero = g.scalar(g.dtype(x), 0.0)?;
    g.pad(x, zero, &low, &high, &interior)
}

/// Returns the largest value of each window.
fn largest(r: &mut Recorder, x: NodeId, window: &Window) -> Result<NodeId> {
    let attrs = window.attrs(r, x)?;
    r.reduce_window(Combine::Max, x, attrs)
}

/// Returns the position of each window's first largest element, `i32`. It reduces dim by dim, last dim first: the first
/// largest of each row of the window, then the first largest of those. The result is the first in row-major order, in
/// as many steps as the sum of the window's sizes.
fn indices(g: &mut impl Builder, x: NodeId, window: &Window) -> Result<NodeId> {
    let attrs = window.attrs(g, x)?;
    let positions = window.positions(g, x)?;
    let padded = attrs.padding.iter().any(|&edges| edges != (0, 0));
    let mut value = x;
    let mut index = plane_positions(g, &g.dims(x))?;
    for i in (0..window.rank()).rev() {
        let edges = attrs.padding[i + 2];
        value = pad_dim(g, value, f64::NEG_INFINITY, i + 2, edges)?;
        index = pad_dim(g, index, -1.0, i + 2, edges)?;
        (value, index) =
            first_largest(g, (value, index), padded, |g, x, t| tap(g, x, window, i, t, positions[i]), window.size[i])?;
    }
    Ok(index)
}

/// Returns the flat position of each element in its plane.
fn plane_positions(g: &mut impl Builder, dims: &[usize]) -> Result<NodeId> {
    let mut position = g.iota(DType::I32, dims, dims.len() - 1)?;
    let mut stride = dims[dims.len() - 1];
    for dim in (2..dims.len() - 1).rev() {
        let along = g.iota(DType::I32, dims, dim)?;
        let along = g.binary_const(BinaryOp::Mul, along, stride as i64)?;
        position = g.binary(BinaryOp::Add, position, along)?;
        stride *= dims[dim];
    }
    Ok(position)
}

/// Reduces the window along one dim. A later element replaces the best one if it is larger, if it is the first NaN or,
/// in a padded plane, if all elements before it are padding.
fn first_largest<B: Builder>(
    g: &mut B,
    (values, indices): (NodeId, NodeId),
    padded: bool,
    tap: impl Fn(&mut B, NodeId, usize) -> Result<NodeId>,
    size: usize,
) -> Result<(NodeId, NodeId)> {
    let mut best = (tap(g, values, 0)?, tap(g, indices, 0)?);
    for t in 1..size {
        let next = (tap(g, values, t)?, tap(g, indices, t)?);
        let mut wins = beats(g, next.0, best.0)?;
        if padded {
            let nothing_yet = g.compare_const(Direction::Lt, best.1, 0)?;
            wins = g.binary(BinaryOp::Or, wins, nothing_yet)?;
        }
        best = (g.select(wins, next.0, best.0)?, g.select(wins, next.1, best.1)?);
    }
    Ok(best)
}

/// Returns whether `next` is larger than `best`, or is NaN while `best` is a number.
fn beats(g: &mut impl Builder, next: NodeId, best: NodeId) -> Result<NodeId> {
    let not_above = g.compare(Direction::Le, next, best)?;
    let above = g.unary(UnaryOp::Not, not_above)?;
    let number = g.compare(Direction::Eq, best, best)?;
    g.binary(BinaryOp::And, above, number)
}

fn pad_dim(g: &mut impl Builder, x: NodeId, value: f64, dim: usize, (low, high): (isize, isize)) -> Result<NodeId> {
    let rank = g.rank(x);
    let along = |edge: isize| (0..rank).map(|d| if d == dim { edge } else { 0 }).collect::<Vec<_>>();
    let value = g.scalar(g.dtype(x), value)?;
    g.pad(x, value, &along(low), &along(high), &vec![0; rank])
}

/// Returns element `t` of every window along spatial dim `i` of the padded `x`.
fn tap(g: &mut impl Builder, x: NodeId, window: &Window, i: usize, t: usize, positions: usize) -> Result<NodeId> {
    let mut limits = g.dims(x);
    let mut starts = Dims::from_elem(0, limits.len());
    let mut strides = Dims::from_elem(1, limits.len());
    starts[i + 2] = t * window.dilation[i];
    strides[i + 2] = window.stride[i];
    limits[i + 2] = starts[i + 2] + (positions - 1) * window.stride[i] + 1;
    g.slice(x, &starts, &limits, &strides)
}
