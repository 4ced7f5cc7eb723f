//! The window of a pool: its sizes and steps, and its number of positions.

use super::operands::expect_spatial;
use crate::ops::broken_rule;
use burn_tpu_graph::op::WindowAttrs;
use burn_tpu_graph::{Builder, Dims, NodeId, Result};

/// How many windows there are along a dim, where the steps do not divide it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// Those inside the padded input.
    Floor,
    /// And one for the elements that are left, wherever it starts: ceil mode of Burn 0.21.
    Ceil,
    /// And one for the elements that are left, if it starts in the input or in the padding before it: ceil mode of Burn
    /// from 0.22 on, of PyTorch and of ONNX. The only window may be larger than the padded input by less than a step.
    CeilInside,
}

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
    /// Which windows there are that are only partly inside the input.
    pub rounding: Rounding,
}

impl Window {
    /// Creates a window without dilation.
    pub fn new<const N: usize>(size: [usize; N], stride: [usize; N], padding: [usize; N], rounding: Rounding) -> Self {
        Self::dilated(size, stride, padding, [1; N], rounding)
    }

    /// Creates a window with dilation.
    pub fn dilated<const N: usize>(
        size: [usize; N],
        stride: [usize; N],
        padding: [usize; N],
        dilation: [usize; N],
        rounding: Rounding,
    ) -> Self {
        let dims = |values: [usize; N]| Dims::from_slice(&values);
        Self { size: dims(size), stride: dims(stride), padding: dims(padding), dilation: dims(dilation), rounding }
    }

    /// Returns the number of spatial dims.
    pub fn rank(&self) -> usize {
        self.size.len()
    }

    /// Returns the extent of the window along spatial dim `i`.
    pub fn span(&self, i: usize) -> usize {
        (self.size[i].max(1) - 1) * self.dilation[i] + 1
    }

    /// Returns the number of windows on `x` along each spatial dim.
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
        let (padded, span, stride) = (size + 2 * self.padding[i], self.span(i), self.stride[i]);
        if self.size[i] == 0 || stride == 0 {
            return None;
        }
        let is_inside = |steps: &usize| steps * stride < size + self.padding[i];
        match (padded.checked_sub(span), self.rounding) {
            (Some(room), Rounding::Floor) => Some(room / stride + 1),
            (Some(room), Rounding::Ceil) => Some(room.div_ceil(stride) + 1),
            (Some(room), Rounding::CeilInside) => {
                let steps = room.div_ceil(stride);
                Some(if is_inside(&steps) { steps + 1 } else { steps })
            }
            (None, Rounding::CeilInside) => (span - padded < stride && is_inside(&0)).then_some(1),
            (None, _) => None,
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_counted() {
        let count = |size, stride, padding, rounding| Window::new([size], [stride], [padding], rounding).count(0, 5);
        // Windows start at -1, 1, 3 and 5: the last one holds elements of the padding alone.
        let counts = [Rounding::Floor, Rounding::Ceil, Rounding::CeilInside].map(|mode| count(2, 2, 1, mode));
        assert_eq!(counts, [Some(3), Some(4), Some(3)]);
        let counts = [Rounding::Floor, Rounding::Ceil, Rounding::CeilInside].map(|mode| count(2, 2, 0, mode));
        assert_eq!(counts, [Some(2), Some(3), Some(3)]);
        // One element larger than the input.
        let counts = [Rounding::Floor, Rounding::Ceil, Rounding::CeilInside].map(|mode| count(6, 2, 0, mode));
        assert_eq!(counts, [None, None, Some(1)]);
        assert_eq!(count(7, 2, 0, Rounding::CeilInside), None, "larger by a whole step");
        let with_gaps = |stride| Window::dilated([3], [stride], [0], [3], Rounding::CeilInside).count(0, 5);
        assert_eq!([2, 3].map(with_gaps), [None, Some(1)]);
    }
}
