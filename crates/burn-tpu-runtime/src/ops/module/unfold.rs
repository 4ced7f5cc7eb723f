//! Unfolds an image into its windows: `[batch, channels * kernel, windows]`, with the channel as the outermost index.
//!
//! Windows that tile the image are a reshape. Other windows are strided slices, one per element of a side of the
//! kernel, first along the height and then along the width. Slices are copies, which are exact for every value and
//! every element type.

use super::window::Window;
use crate::Tensor;
use crate::trace::record;
use burn_tpu_graph::{Builder, Dims, NodeId, Result};

/// Computes `unfold4d`.
pub fn unfold4d(x: &Tensor, window: &Window) -> Tensor {
    record("unfold4d", [x], |r, [x]| {
        let dims = r.dims(x);
        let positions = window.positions(r, x)?;
        // `[n, c, kernel_h, kernel_w, windows_h, windows_w]`
        let blocks =
            if tiles(window, &dims, &positions) { tile(r, x, window)? } else { slices(r, x, window, &positions)? };
        r.reshape(blocks, &[dims[0], dims[1] * window.size[0] * window.size[1], positions[0] * positions[1]])
    })
}

/// Returns whether every element of the image belongs to exactly one window.
pub(super) fn tiles(window: &Window, dims: &[usize], positions: &[usize]) -> bool {
    (0..2).all(|i| {
        let covers = positions[i] * window.size[i] == dims[i + 2];
        covers && window.stride[i] == window.size[i] && window.padding[i] == 0 && window.dilation[i] == 1
    })
}

fn tile(g: &mut impl Builder, x: NodeId, window: &Window) -> Result<NodeId> {
    let dims = g.dims(x);
    let (height, width) = (window.size[0], window.size[1]);
    let split = g.reshape(x, &[dims[0], dims[1], dims[2] / height, height, dims[3] / width, width])?;
    g.transpose(split, &[0, 1, 3, 5, 2, 4])
}

fn slices(g: &mut impl Builder, x: NodeId, window: &Window, positions: &[usize]) -> Result<NodeId> {
    let edge: Vec<isize> = [0, 0, window.padding[0], window.padding[1]].iter().map(|&p| p as isize).collect();
    let zero = g.scalar(g.dtype(x), 0.0)?;
    let padded = g.pad(x, zero, &edge, &edge, &[0; 4])?;
    // `[n, c, windows_h, w]` per kernel row, stacked at dim 2, then `[n, c, kernel_h, windows_h, windows_w]` per column.
    let rows = stack(g, padded, (2, 2), window, 0, positions)?;
    stack(g, rows, (4, 3), window, 1, positions)
}

/// Returns element `t` of every window along dim `dim`, for each `t`, stacked along a new dim `at`.
fn stack(
    g: &mut impl Builder,
    x: NodeId,
    (dim, at): (usize, usize),
    window: &Window,
    i: usize,
    positions: &[usize],
) -> Result<NodeId> {
    let mut parts = Vec::with_capacity(window.size[i]);
    for t in 0..window.size[i] {
        let mut limits = g.dims(x);
        let mut starts = Dims::from_elem(0, limits.len());
        let mut strides = Dims::from_elem(1, limits.len());
        starts[dim] = t * window.dilation[i];
        strides[dim] = window.stride[i];
        limits[dim] = starts[dim] + (positions[i] - 1) * window.stride[i] + 1;
        let part = g.slice(x, &starts, &limits, &strides)?;
        let mut unsqueezed = g.dims(part);
        unsqueezed.insert(at, 1);
        parts.push(g.reshape(part, &unsqueezed)?);
    }
    g.concatenate(&parts, at)
}
