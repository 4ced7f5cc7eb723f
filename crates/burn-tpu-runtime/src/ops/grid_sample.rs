//! Sampling of images at positions given by a tensor.
//!
//! Owns: coordinates and their padding, corner reads, weights. Coordinates are at least f32: bf16 cannot represent
//! every pixel above 256.

use super::broken_rule;
use super::index::gathered;
use super::module::InterpolateMode;
use crate::Tensor;
use crate::trace::{Recorder, record};
use burn_tpu_graph::op::{BinaryOp, Direction, GatherAttrs, UnaryOp};
use burn_tpu_graph::{Builder, DType, Dims, NodeId, Result};

/// The value of a sample outside its image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum GridSamplePadding {
    /// Zero.
    #[default]
    Zeros,
    /// The nearest pixel of the border.
    Border,
    /// The image mirrored at its border.
    Reflection,
}

/// The options of [`grid_sample_2d`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GridSampleOptions {
    /// Bilinear or nearest. No other mode is supported.
    pub mode: InterpolateMode,
    /// The value of a sample outside its image.
    pub padding: GridSamplePadding,
    /// Whether -1 and 1 are the centres of the outermost pixels instead of their outer edges.
    pub align_corners: bool,
}

impl Default for GridSampleOptions {
    /// Returns bilinear sampling with zeros outside and edges aligned.
    fn default() -> Self {
        Self { mode: InterpolateMode::Bilinear, padding: GridSamplePadding::Zeros, align_corners: false }
    }
}

/// Samples images `[n, c, h, w]` at positions `[n, h_out, w_out, 2]` of (x, y) from -1 to 1. The result is `[n, c,
/// h_out, w_out]`.
pub fn grid_sample_2d(x: Tensor, grid: Tensor, options: GridSampleOptions) -> Tensor {
    record("float_grid_sample_2d", [&x, &grid], |r, [x, grid]| {
        let dtype = r.dtype(x);
        let (dims, places) = (r.dims(x), r.dims(grid));
        let (&[n, c, h, w], &[m, h_out, w_out, 2]) = (&dims[..], &places[..]) else {
            return Err(broken_rule(r, "gather", &[x, grid], "takes [n, c, h, w] and [n, h_out, w_out, 2]"));
        };
        if n != m || h == 0 || w == 0 {
            return Err(broken_rule(r, "gather", &[x, grid], "takes as many grids as images, and images with pixels"));
        }
        let grid = r.convert(grid, dtype.accumulator())?;
        let x_axis = Axis::new(r, grid, 0, w, &options)?;
        let y_axis = Axis::new(r, grid, 1, h, &options)?;
        let pixels = r.reshape(x, &[n, c, h * w])?;
        let pixels = r.convert(pixels, dtype.accumulator())?;
        let mut sum = None;
        for vertical in &y_axis.corners {
            for horizontal in &x_axis.corners {
                let part = weighted_corner(r, pixels, vertical, horizontal, w)?;
                sum = Some(match sum {
                    None => part,
                    Some(sum) => r.binary(BinaryOp::Add, sum, part)?,
                });
            }
        }
        let Some(sum) = sum else {
            return Err(broken_rule(r, "gather", &[x, grid], format!("mode {:?} is not supported", options.mode)));
        };
        let result = r.reshape(sum, &[n, c, h_out, w_out])?;
        r.convert(result, dtype)
    })
}

/// The pixels that a sample reads along one axis: two for bilinear sampling, one for nearest.
struct Axis {
    corners: Vec<Corner>,
}

/// One pixel coordinate per sample, `[n, samples]`, clamped to the image, and its weight.
struct Corner {
    index: NodeId,
    weight: NodeId,
}

impl Axis {
    fn new(r: &mut Recorder, grid: NodeId, component: usize, size: usize, options: &GridSampleOptions) -> Result<Self> {
        let dims = r.dims(grid);
        let position = r.slice_dim(grid, 3, component, component + 1)?;
        let position = r.reshape(position, &[dims[0], dims[1] * dims[2]])?;
        let position = to_pixels(r, position, size, options.align_corners)?;
        let position = match options.padding {
            GridSamplePadding::Zeros => position,
            GridSamplePadding::Border => clamp_const(r, position, 0.0, size as f64 - 1.0)?,
            GridSamplePadding::Reflection => reflect(r, position, size, options.align_corners)?,
        };
        let corners = match options.mode {
            InterpolateMode::Bilinear => {
                let floor = r.unary(UnaryOp::Floor, position)?;
                let next = r.binary_const(BinaryOp::Add, floor, 1.0)?;
                let share = r.binary(BinaryOp::Sub, position, floor)?;
                let rest = r.binary(BinaryOp::Sub, next, position)?;
                vec![Corner::new(r, floor, rest, size, options)?, Corner::new(r, next, share, size, options)?]
            }
            InterpolateMode::Nearest | InterpolateMode::NearestExact => {
                let nearest = r.unary(UnaryOp::RoundNearestEven, position)?;
                let one = r.splat_like(nearest, 1.0)?;
                vec![Corner::new(r, nearest, one, size, options)?]
            }
            InterpolateMode::Bicubic | InterpolateMode::Lanczos3 => Vec::new(),
        };
        Ok(Self { corners })
    }
}

impl Corner {
    /// With zero padding, a coordinate outside the image gets weight 0. With other paddings, only rounding can put it
    /// outside.
    fn new(r: &mut Recorder, at: NodeId, weight: NodeId, size: usize, options: &GridSampleOptions) -> Result<Self> {
        let last = size as f64 - 1.0;
        let inside = clamp_const(r, at, 0.0, last)?;
        let weight = if options.padding == GridSamplePadding::Zeros {
            let same = r.compare(Direction::Eq, inside, at)?;
            let zero = r.splat_like(weight, 0.0)?;
            r.select(same, weight, zero)?
        } else {
            weight
        };
        Ok(Self { index: r.convert(inside, DType::I32)?, weight })
    }
}

/// Converts -1 to 1 to pixel coordinates, between the centres of the outermost pixels or between their outer edges.
fn to_pixels(r: &mut Recorder, position: NodeId, size: usize, align_corners: bool) -> Result<NodeId> {
    let (scale, offset) = pixel_scale(size, align_corners);
    let moved = r.binary_const(BinaryOp::Add, position, 1.0)?;
    let scaled = r.binary_const(BinaryOp::Mul, moved, scale)?;
    r.binary_const(BinaryOp::Add, scaled, offset)
}

fn pixel_scale(size: usize, align_corners: bool) -> (f64, f64) {
    if align_corners { ((size as f64 - 1.0) / 2.0, 0.0) } else { (size as f64 / 2.0, -0.5) }
}

/// Mirrors coordinates at both ends, any number of times: a triangle wave.
fn reflect(r: &mut Recorder, position: NodeId, size: usize, align_corners: bool) -> Result<NodeId> {
    let (scale, low) = pixel_scale(size, align_corners);
    let span = 2.0 * scale;
    if span <= 0.0 {
        return r.splat_like(position, low);
    }
    let distance = r.binary_const(BinaryOp::Sub, position, low)?;
    let distance = r.unary(UnaryOp::Abs, distance)?;
    let phase = r.binary_const(BinaryOp::Rem, distance, 2.0 * span)?;
    let from_turn = r.binary_const(BinaryOp::Sub, phase, span)?;
    let from_turn = r.unary(UnaryOp::Abs, from_turn)?;
    let top = r.splat_like(from_turn, span + low)?;
    let reflected = r.binary(BinaryOp::Sub, top, from_turn)?;
    clamp_const(r, reflected, 0.0, size as f64 - 1.0)
}

fn clamp_const(r: &mut Recorder, x: NodeId, low: f64, high: f64) -> Result<NodeId> {
    let low = r.splat_like(x, low)?;
    let high = r.splat_like(x, high)?;
    r.clamp(low, x, high)
}

/// Returns the pixels `[n, c, samples]` at one corner of every sample, multiplied by their weight.
fn weighted_corner(
    r: &mut Recorder,
    pixels: NodeId,
    vertical: &Corner,
    horizontal: &Corner,
    width: usize,
) -> Result<NodeId> {
    let row = r.binary_const(BinaryOp::Mul, vertical.index, width as i64)?;
    let index = r.binary(BinaryOp::Add, row, horizontal.index)?;
    let (images, channels, samples) = (r.dims(pixels)[0], r.dims(pixels)[1], r.dims(index)[1]);
    let attrs = GatherAttrs {
        offset_dims: Dims::from_slice(&[1]),
        collapsed_slice_dims: Dims::from_slice(&[2]),
        operand_batching_dims: Dims::from_slice(&[0]),
        start_indices_batching_dims: Dims::from_slice(&[0]),
        start_index_map: Dims::from_slice(&[2]),
        index_vector_dim: 2,
        slice_sizes: Dims::from_slice(&[1, channels, 1]),
    };
    let values = gathered(r, pixels, index, attrs, &[images, channels, samples])?;
    let weight = r.binary(BinaryOp::Mul, vertical.weight, horizontal.weight)?;
    let result = r.dims(values);
    let weight = r.broadcast_in_dim(weight, &result, &[0, 2])?;
    r.binary(BinaryOp::Mul, values, weight)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{tensor, tensor_of, values};

    /// Samples a 1 x 1 x 2 x 2 image of the values 0 to 3.
    fn sampled(dtype: DType, positions: &[f64], options: GridSampleOptions) -> Vec<f64> {
        let image = tensor_of(dtype, &[0.0, 1.0, 2.0, 3.0], &[1, 1, 2, 2]);
        let grid = tensor_of(dtype, positions, &[1, 1, positions.len() / 2, 2]);
        values(grid_sample_2d(image, grid, options))
    }

    #[test]
    fn bilinear_between_and_outside() {
        let options = GridSampleOptions::default();
        let positions = [0.0, 0.0, 0.5, 0.5, -1.0, -1.0, 9.0, 9.0];
        for dtype in [DType::F32, DType::BF16] {
            assert_eq!(sampled(dtype, &positions, options), [1.5, 3.0, 0.0, 0.0]);
            let border = GridSampleOptions { padding: GridSamplePadding::Border, ..options };
            assert_eq!(sampled(dtype, &positions, border), [1.5, 3.0, 0.0, 3.0]);
            let reflected =
                GridSampleOptions { padding: GridSamplePadding::Reflection, align_corners: true, ..options };
            assert_eq!(sampled(dtype, &[1.0, 1.0, 3.0, 3.0], reflected), [3.0, 0.0]);
        }
    }

    #[test]
    fn nearest_reads_one_pixel() {
        let options = GridSampleOptions { mode: InterpolateMode::Nearest, ..Default::default() };
        assert_eq!(sampled(DType::F32, &[0.4, -0.4, -0.6, 0.6], options), [1.0, 2.0]);
    }

    #[test]
    #[should_panic(expected = "Bicubic is not supported")]
    fn other_modes_are_rejected() {
        let x = tensor([0.0f32; 4], &[1, 1, 2, 2]);
        grid_sample_2d(
            x,
            tensor([0.0f32; 2], &[1, 1, 1, 2]),
            GridSampleOptions { mode: InterpolateMode::Bicubic, ..Default::default() },
        );
    }
}
