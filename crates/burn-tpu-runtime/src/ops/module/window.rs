//! The window of a pool: its sizes and steps, and its number of positions.

use super::operands::expect_spatial;
use crate::ops::broken_rule;
use burn_tpu_graph::op::WindowAttrs;
use burn_tpu_graph::{Builder, Dims, NodeId, Result};

/// A pool's window; one entry per spatial dim of `[batch, channels, spatial...]`.
pub struct Window {
    /// The number of elements of the window.
    pub size: Dims,
    /// The distance between windows.
    pub stride: Dims,
    /// The number of elements of padding on either side.
    pub padding: Dims,
    /// The distance between elements of the window.
    pub dilation: Dims,
    /// Whether the output includes a last window that is only partly inside the input (ceil mode).
    pub ceil: bool,
}

impl Window {
    /// Creates a window without dilation.
    pub fn new<const N: usize>(size: [usize; N], stride: [usize; N], padding: [usize; N], ceil: bool) -> Self {
        Self::dilated(size, stride, padding, [1; N], ceil)
    }

    /// Creates a window with dilation.
    pub fn dilated<const N: usize>(
        size: [usize; N],
        stride: [usize; N],
        padding: [usize; N],
        dilation: [usize; N],
        ceil: bool,
    ) -> Self {
        let dims = |values: [usize; N]| Dims::from_slice(&values);
        Self { size: dims(size), stride: dims(stride), padding: dims(padding), dilation: dims(dilation), ceil }
    }

    /// Returns the number of spatial dims.
    pub fn rank(&self) -> usize {
        self.size.len()
    }

    /// Returns the extent of the window along spatial dim `i`.
    pub fn span(&self, i: usize) -> usize {
        (self.size[i].max(1) - 1) * self.dilation[i] + 1
    }

    /// Returns the number of windows on `x` along each spatial dim. In Burn the last window of ceil mode may start in
    /// the padding or even after it.
    pub fn positions(&self, g: &impl Builder, x: NodeId) -> Result<Dims> {
        expect_spatial(g, "reduce_window", &[x], self.rank())?;
        let dims = g.dims(x);
        let counts: Option<Dims> = (0..self.rank()).map(|i| self.count(i, dims[i + 2])).collect();
        let Self { size, padding, stride, .. } = self;
        let rule = || format!("a window of {size:?} does not fit, with padding {padding:?} and stride {stride:?}");
        counts.ok_or_else(|| broken_rule(g, "reduce_window", &[x], rule()))
    }

    /// Returns the number of windows on `size` elements along spatial dim `i`; `None` if the window does not fit.
    pub(super) fn count(&self, i: usize, size: usize) -> Option<usize> {
        let padded = size + 2 * self.padding[i];
        let room = padded.checked_sub(self.span(i)).filter(|_| self.size[i] > 0 && self.stride[i] > 0)?;
        let steps = if self.ceil { room.div_ceil(self.stride[i]) } else { room / self.stride[i] };
        Some(steps + 1)
    }

    /// Returns the padding after the input's `size` elements that the last of `positions` windows needs.
    pub fn padding_after(&self, i: usize, size: usize, positions: usize) -> usize {
        let end = (positions - 1) * self.stride[i] + self.span(i);
        end.saturating_sub(size + self.padding[i])
    }

    /// Returns the attributes of `reduce_window` on `x` for this window.
    pub fn attrs(&self, g: &impl Builder, x: NodeId) -> Result<WindowAttrs> {
        let (dims, positions) = (g.dims(x), self.positions(g, x)?);
        let all = |values: &Dims| [1, 1].into_iter().chain(values.iter().copied()).collect::<Dims>();
        let pad = |i: usize| (self.padding[i] as isize, self.padding_after(i, dims[i + 2], positions[i]) as isize);
        Ok(WindowAttrs {
            dims: all(&self.size),
            strides: all(&self.stride),
            base_dilation: Dims::from_elem(1, dims.len()),
            window_dilation: all(&self.dilation),
            padding: [(0, 0), (0, 0)].into_iter().chain((0..self.rank()).map(pad)).collect(),
        })
    }
}
