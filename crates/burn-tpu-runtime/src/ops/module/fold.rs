//! Folds windows back into an image, the transpose of [`unfold4d`](super::unfold4d): each pixel is the sum of the window
//! elements that it was copied to.
//!
//! Windows that tile the image are a reshape. Otherwise each element of a side of the kernel is placed at its strides and
//! the placed images are summed, first along the width and then along the height. 16-bit floats are summed in f32.

use super::unfold::tiles;
use super::window::Window;
use crate::Tensor;
use crate::ops::broken_rule;
use crate::trace::{Recorder, record};
use burn_tpu_graph::op::BinaryOp;
use burn_tpu_graph::{Builder, Dims, NodeId, Result};

/// Computes `fold4d` of `[batch, channels * kernel, windows]`: `[batch, channels, height, width]` for an `output` of
/// `[height, width]`.
pub fn fold4d(x: &Tensor, output: [usize; 2], window: &Window) -> Tensor {
    record("fold4d", [x], |r, [x]| {
        let dims = r.dims(x);
        let kernel = window.size[0] * window.size[1];
        let positions: Option<Dims> = (0..2).map(|i| window.count(i, output[i])).collect();
        let fits = |positions: &Dims| {
            dims.len() == 3 && kernel > 0 && dims[1].is_multiple_of(kernel) && dims[2] == positions[0] * positions[1]
        };
        let Some(positions) = positions.filter(fits) else {
            let rule = format!("windows of {:?} on {output:?} are [batch, channels * {kernel}, windows]", window.size);
            return Err(broken_rule(r, "pad", &[x], rule));
        };
        let (batch, channels) = (dims[0], dims[1] / kernel);
        let dtype = r.dtype(x);
        let wide = r.convert(x, dtype.accumulator())?;
        let blocks = [batch, channels, window.size[0], window.size[1], positions[0], positions[1]];
        let blocks = r.reshape(wide, &blocks)?;
        let image = [batch, channels, output[0], output[1]];
        let folded = if tiles(window, &image, &positions) {
            let blocks = r.transpose(blocks, &[0, 1, 4, 2, 5, 3])?;
            r.reshape(blocks, &image)?
        } else {
            // `[n, c, kernel_h, windows_h, w]`, then `[n, c, h, w]`.
            let rows = placed(r, blocks, (3, 5), (1, output[1]), window)?;
            placed(r, rows, (2, 3), (0, output[0]), window)?
        };
        r.convert(folded, dtype)
    })
}

/// Sums, over dim `kernel`, the windows along dim `at` after each is placed among `size` pixels of spatial dim `i`. Removes
/// dim `kernel`.
fn placed(
    r: &mut Recorder,
    x: NodeId,
    (kernel, at): (usize, usize),
    (i, size): (usize, usize),
    window: &Window,
) -> Result<NodeId> {
    let zero = r.scalar(r.dtype(x), 0.0)?;
    let mut sum = None;
    for tap in 0..window.size[i] {
        let part = r.slice_dim(x, kernel, tap, tap + 1)?;
        let mut dims = r.dims(part);
        dims.remove(kernel);
        let (part, at) = (r.reshape(part, &dims)?, at - 1);
        let reach = (dims[at].max(1) - 1) * window.stride[i] + 1;
        let (mut low, mut high) = (vec![0; dims.len()], vec![0; dims.len()]);
        let mut interior = vec![0; dims.len()];
        // What lies in the padding is cropped.
        low[at] = (tap * window.dilation[i]) as isize - window.padding[i] as isize;
        high[at] = size as isize - reach as isize - low[at];
        interior[at] = window.stride[i] - 1;
        let part = r.pad(part, zero, &low, &high, &interior)?;
        sum = Some(match sum {
            None => part,
            Some(sum) => r.binary(BinaryOp::Add, sum, part)?,
        });
    }
    sum.map_or_else(|| Err(broken_rule(r, "pad", &[x], "a window has at least one element")), Ok)
}

#[cfg(test)]
mod tests {
    use super::super::{Rounding, unfold4d};
    use super::*;
    use crate::ops::data;
    use crate::ops::testing::{devices, tensor, values};

    #[test]
    fn counts_the_windows_of_each_pixel() {
        for device in devices() {
            let ones = data::to_device(tensor([1.0f32; 20], &[1, 1, 4, 5]), &device);
            let window = Window::dilated([2, 2], [1, 2], [1, 0], [2, 1], Rounding::Floor);
            let folded = fold4d(&unfold4d(&ones, &window), [4, 5], &window);
            let row = |count: f64| [count, count, count, count, 0.0];
            let counts: Vec<f64> = [1.0, 2.0, 2.0, 1.0].into_iter().flat_map(row).collect();
            assert_eq!(values(folded), counts, "on {device}");
        }
    }

    #[test]
    fn tiles_are_put_back() {
        for device in devices() {
            let x = data::to_device(tensor((0..48).map(|i| i as f32), &[1, 2, 4, 6]), &device);
            let window = Window::new([2, 3], [2, 3], [0, 0], Rounding::Floor);
            assert_eq!(values(fold4d(&unfold4d(&x, &window), [4, 6], &window)), values(x), "on {device}");
        }
    }
}
