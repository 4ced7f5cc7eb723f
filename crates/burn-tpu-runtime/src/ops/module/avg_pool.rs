//! Average pools: the sum of each window divided by the number of its counted elements, and the transpose of that.
//!
//! The counts depend only on shapes. With `count_include_pad` every element of the padded input counts, otherwise every
//! element of the input. Padding that ceil mode adds never counts. The count of a window is a product over its dims, so
//! each dim contributes a short vector, or nothing if all windows have the same count.

use super::operands::expect_gradient;
use super::window::Window;
use crate::Tensor;
use crate::trace::record;
use burn_tpu_graph::op::{BinaryOp, Combine, WindowAttrs};
use burn_tpu_graph::{Builder, DType, Dims, NodeId, Result};
use std::ops::Range;

/// Computes `avg_pool1d`, `avg_pool2d` and `avg_pool3d`.
pub fn avg_pool(op: &'static str, x: &Tensor, window: &Window, count_include_pad: bool) -> Tensor {
    record(op, [x], |r, [x]| {
        let (dtype, attrs) = (r.dtype(x), window.attrs(r, x)?);
        let windows = Windows::along(window, &r.dims(x), &window.positions(r, x)?, count_include_pad);
        let wide = r.convert(x, dtype.accumulator())?;
        let sums = r.reduce_window(Combine::Sum, wide, attrs)?;
        let means = divide(r, sums, &windows)?;
        r.convert(means, dtype)
    })
}

/// Computes the gradient: each window's gradient divided by its count, summed over the windows that cover an element.
pub fn avg_pool_backward(
    op: &'static str,
    x: &Tensor,
    grad: &Tensor,
    window: &Window,
    count_include_pad: bool,
) -> Tensor {
    let sizes = Dims::from_slice(x.dims());
    record(op, [grad], |r, [grad]| {
        expect_gradient(r, "reduce_window", &[grad], &sizes, window.rank())?;
        let dtype = r.dtype(grad);
        let positions: Dims = r.dims(grad).iter().skip(2).copied().collect();
        let wide = r.convert(grad, dtype.accumulator())?;
        let shares = divide(r, wide, &Windows::along(window, &sizes, &positions, count_include_pad))?;
        let spread = spread_windows(r, shares, window, &sizes)?;
        let sums = r.reduce_window(Combine::Sum, spread, sliding(window, sizes.len()))?;
        r.convert(sums, dtype)
    })
}

/// Puts each window's value at its start and pads the result so that the window that ends at an element covers exactly
/// the windows that contain the element: element `i` sums over starts `i + padding - span + 1 ..= i + padding`, in steps of
/// the dilation.
fn spread_windows(g: &mut impl Builder, x: NodeId, window: &Window, sizes: &[usize]) -> Result<NodeId> {
    let dims = g.dims(x);
    let (mut low, mut high) = (vec![0; dims.len()], vec![0; dims.len()]);
    let mut interior = vec![0; dims.len()];
    for i in 0..window.rank() {
        let (span, padding) = (window.span(i) as isize, window.padding[i] as isize);
        let spread = (dims[i + 2].max(1) - 1) * window.stride[i] + 1;
        low[i + 2] = span - 1 - padding;
        high[i + 2] = sizes[i + 2] as isize - spread as isize + padding;
        interior[i + 2] = window.stride[i] - 1;
    }
    let zero = g.scalar(g.dtype(x), 0.0)?;
    g.pad(x, zero, &low, &high, &interior)
}

/// Returns the window with stride 1.
fn sliding(window: &Window, rank: usize) -> WindowAttrs {
    let ones = Dims::from_elem(1, rank);
    let all = |values: &Dims| [1, 1].into_iter().chain(values.iter().copied()).collect();
    WindowAttrs {
        dims: all(&window.size),
        strides: ones.clone(),
        base_dilation: ones,
        window_dilation: all(&window.dilation),
        padding: std::iter::repeat_n((0, 0), rank).collect(),
    }
}

/// The windows along one dim, and the places of the padded input that count.
struct Windows {
    size: usize,
    stride: usize,
    dilation: usize,
    positions: usize,
    counted: Range<usize>,
}

impl Windows {
    /// Returns the windows along each spatial dim.
    fn along(window: &Window, sizes: &[usize], positions: &[usize], include_pad: bool) -> Vec<Self> {
        let along = |i: usize| {
            let (size, padding) = (sizes[i + 2], window.padding[i]);
            let counted = if include_pad { 0..size + 2 * padding } else { padding..size + padding };
            let (stride, dilation) = (window.stride[i], window.dilation[i]);
            Self { size: window.size[i], stride, dilation, positions: positions[i], counted }
        };
        (0..window.rank()).map(along).collect()
    }

    /// Returns the number of counted elements of a window. A window without any counts 1, as in Burn.
    fn count(&self, position: usize) -> usize {
        let start = position * self.stride;
        let before = |place: usize| place.saturating_sub(start).div_ceil(self.dilation).min(self.size);
        before(self.counted.end).saturating_sub(before(self.counted.start)).max(1)
    }

    fn have_one_count(&self) -> bool {
        (1..self.positions).all(|position| self.count(position) == self.count(0))
    }

    /// Returns the counts of all windows, `[positions]`. They are computed, since a table of constants has one size.
    fn counts(&self, g: &mut impl Builder, dtype: DType) -> Result<NodeId> {
        let places = g.iota(DType::I32, &[self.positions], 0)?;
        let start = g.binary_const(BinaryOp::Mul, places, self.stride as i64)?;
        let (end, begin) = (self.before(g, start, self.counted.end)?, self.before(g, start, self.counted.start)?);
        let count = g.binary(BinaryOp::Sub, end, begin)?;
        let count = g.binary_const(BinaryOp::Max, count, 1i64)?;
        g.convert(count, dtype)
    }

    /// Returns how many elements of the windows that begin at `start` are before a place.
    fn before(&self, g: &mut impl Builder, start: NodeId, place: usize) -> Result<NodeId> {
        let place = g.splat_like(start, place as i64)?;
        let distance = g.binary(BinaryOp::Sub, place, start)?;
        let distance = g.binary_const(BinaryOp::Max, distance, 0i64)?;
        let rounded_up = g.binary_const(BinaryOp::Add, distance, self.dilation as i64 - 1)?;
        let elements = g.binary_const(BinaryOp::Div, rounded_up, self.dilation as i64)?;
        g.binary_const(BinaryOp::Min, elements, self.size as i64)
    }
}

/// Divides `x` by the product of its windows' counts.
fn divide(g: &mut impl Builder, x: NodeId, windows: &[Windows]) -> Result<NodeId> {
    if windows.iter().all(Windows::have_one_count) {
        let product: usize = windows.iter().map(|windows| windows.count(0)).product();
        return g.binary_const(BinaryOp::Div, x, product as f64);
    }
    let (dtype, dims) = (g.dtype(x), g.dims(x));
    let mut product = g.splat(dtype, &dims[2..], 1.0)?;
    for (i, windows) in windows.iter().enumerate() {
        let along = windows.counts(g, dtype)?;
        let along = g.broadcast_in_dim(along, &dims[2..], &[i])?;
        product = g.binary(BinaryOp::Mul, product, along)?;
    }
    let spatial: Dims = (2..dims.len()).collect();
    let product = g.broadcast_in_dim(product, &dims, &spatial)?;
    g.binary(BinaryOp::Div, x, product)
}

#[cfg(test)]
mod tests {
    use super::super::Rounding;
    use super::*;
    use crate::ops::data::to_device;
    use crate::ops::testing::{devices, tensor, values};

    #[test]
    fn windows_with_gaps_are_averaged_and_their_gradient_is_spread() {
        // Windows of the places -1 and 1, 1 and 3, 3 and 5 of five elements; -1 and 5 are padding.
        let window = Window::dilated([2], [2], [1], [2], Rounding::Floor);
        for device in devices() {
            let x = to_device(tensor([1.0f32, 2.0, 3.0, 4.0, 5.0], &[1, 1, 5]), &device);
            assert_eq!(values(avg_pool("avg_pool1d", &x, &window, true)), [1.0, 3.0, 2.0]);
            assert_eq!(values(avg_pool("avg_pool1d", &x, &window, false)), [2.0, 3.0, 4.0]);
            let grad = to_device(tensor([2.0f32, 4.0, 8.0], &[1, 1, 3]), &device);
            let spread = |include| values(avg_pool_backward("avg_pool1d_backward", &x, &grad, &window, include));
            assert_eq!(spread(true), [0.0, 3.0, 0.0, 6.0, 0.0]);
            assert_eq!(spread(false), [0.0, 4.0, 0.0, 10.0, 0.0]);
        }
    }
}
