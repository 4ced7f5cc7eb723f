//! Interpolation of `[batch, channels, height, width]` to another height and width.
//!
//! Every mode is separable and linear in its input. Nearest copies values with a repeat, a stride or a gather, so that
//! infinities do not spread to other pixels. The other modes gather the few inputs of each output, per dim, and sum them
//! with weights, which are computed here in f64. Their gradient is a product with the transposed matrix of weights. 16-bit
//! floats are resampled in f32, since 16-bit floats cannot represent the weights.

use super::operands::{expect_gradient, expect_spatial};
use super::resample::{Tap, Way, along, gathered, sparse, take};
use crate::Tensor;
use crate::ops::broken_rule;
use crate::trace::record;
use burn_tpu_graph::op::Combine;
use burn_tpu_graph::{Builder, Dims, NodeId, Result};

/// The interpolation of a value between pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InterpolateMode {
    /// The value of one pixel: of the last one that begins at or before the position.
    Nearest,
    /// The value of the pixel whose centre is nearest.
    NearestExact,
    /// Linear, from two pixels per dim.
    Bilinear,
    /// Cubic (a = -0.75), from four pixels per dim.
    Bicubic,
    /// A windowed sinc, from six pixels per dim.
    Lanczos3,
}

/// The options of [`interpolate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterpolateOptions {
    /// The interpolation of a value between pixels.
    pub mode: InterpolateMode,
    /// Whether the centres of the outermost pixels are aligned, instead of their outer edges.
    pub align_corners: bool,
}

/// Resamples images to `output`.
pub fn interpolate(x: &Tensor, output: [usize; 2], options: &InterpolateOptions) -> Tensor {
    record("interpolate", [x], |r, [x]| {
        let sizes = sizes(r, x, output)?;
        match options.mode {
            InterpolateMode::Nearest | InterpolateMode::NearestExact => {
                let exact = options.mode == InterpolateMode::NearestExact;
                let y = nearest(r, x, 3, output[1], exact)?;
                nearest(r, y, 2, output[0], exact)
            }
            InterpolateMode::Bilinear | InterpolateMode::Bicubic | InterpolateMode::Lanczos3 => {
                resample(r, x, sizes, output, options, Way::Forward)
            }
        }
    })
}

/// Returns height and width of the images of `x`. Rejects images and outputs without pixels.
fn sizes(g: &impl Builder, x: NodeId, output: [usize; 2]) -> Result<[usize; 2]> {
    expect_spatial(g, "dot_general", &[x], 2)?;
    let sizes = [g.dims(x)[2], g.dims(x)[3]];
    if sizes.contains(&0) || output.contains(&0) {
        let rule = format!("there are no pixels in images of {sizes:?} or {output:?}");
        return Err(broken_rule(g, "dot_general", &[x], rule));
    }
    Ok(sizes)
}

/// Computes the gradient of [`interpolate`]. `x` provides the sizes of the input.
pub fn interpolate_backward(x: &Tensor, grad: &Tensor, options: &InterpolateOptions) -> Tensor {
    record("interpolate_backward", [grad], |r, [grad]| {
        expect_gradient(r, "dot_general", &[grad], x.dims(), 2)?;
        let sizes = [x.dims()[2], x.dims()[3]];
        let output = [r.dims(grad)[2], r.dims(grad)[3]];
        let factors = [repeats(sizes[0], output[0]), repeats(sizes[1], output[1])];
        match (&options.mode, factors) {
            (InterpolateMode::Nearest | InterpolateMode::NearestExact, [Some(vertical), Some(horizontal)]) => {
                sum_blocks(r, grad, sizes, [vertical, horizontal])
            }
            _ => resample(r, grad, sizes, output, options, Way::Transposed),
        }
    })
}

/// Returns how many times nearest repeats each input, if all inputs are repeated equally.
fn repeats(size: usize, output: usize) -> Option<usize> {
    (size > 0 && output.is_multiple_of(size)).then(|| output / size)
}

/// Returns the input that output `o` copies: `floor(o * size / output)`, or that of `o + 1/2`.
fn source(o: usize, size: usize, output: usize, exact: bool) -> usize {
    if exact { (2 * o + 1) * size / (2 * output) } else { o * size / output }
}

/// Copies the nearest input of dim `dim` to each output.
fn nearest(g: &mut impl Builder, x: NodeId, dim: usize, output: usize, exact: bool) -> Result<NodeId> {
    let dims = g.dims(x);
    let size = dims[dim];
    if let Some(factor) = repeats(size, output) {
        return repeat(g, x, dim, factor);
    }
    if output > 0 && size.is_multiple_of(output) {
        let (mut starts, mut strides) = (Dims::from_elem(0, dims.len()), Dims::from_elem(1, dims.len()));
        starts[dim] = source(0, size, output, exact);
        strides[dim] = size / output;
        return g.slice(x, &starts, &dims, &strides);
    }
    let columns: Vec<i64> = (0..output).map(|o| source(o, size, output, exact) as i64).collect();
    take(g, x, dim, &columns)
}

/// Repeats each element of dim `dim` `factor` times in a row.
fn repeat(g: &mut impl Builder, x: NodeId, dim: usize, factor: usize) -> Result<NodeId> {
    let dims = g.dims(x);
    let mut blocks = dims.clone();
    blocks.insert(dim + 1, factor);
    let mapping: Dims = (0..blocks.len()).filter(|&d| d != dim + 1).collect();
    let repeated = g.broadcast_in_dim(x, &blocks, &mapping)?;
    let mut joined = dims;
    joined[dim] *= factor;
    g.reshape(repeated, &joined)
}

/// Computes the gradient of [`repeat`] along both dims.
fn sum_blocks(g: &mut impl Builder, grad: NodeId, sizes: [usize; 2], factors: [usize; 2]) -> Result<NodeId> {
    let dims = g.dims(grad);
    let blocks = g.reshape(grad, &[dims[0], dims[1], sizes[0], factors[0], sizes[1], factors[1]])?;
    g.accumulate(Combine::Sum, blocks, &[3, 5])
}

fn resample(
    g: &mut impl Builder,
    x: NodeId,
    sizes: [usize; 2],
    output: [usize; 2],
    options: &InterpolateOptions,
    way: Way,
) -> Result<NodeId> {
    let dtype = g.dtype(x);
    let mut y = g.convert(x, dtype.accumulator())?;
    for i in [1, 0] {
        let taps = taps(options, sizes[i], output[i]);
        y = match way {
            Way::Forward => gathered(g, y, i + 2, &taps)?,
            Way::Transposed => {
                let matrix = sparse(g, dtype.accumulator(), &taps, sizes[i])?;
                along(g, y, i + 2, matrix, way)?
            }
        };
    }
    g.convert(y, dtype)
}

/// Returns the inputs that each output reads, with their weights.
fn taps(options: &InterpolateOptions, size: usize, output: usize) -> Vec<Tap> {
    let last = size.saturating_sub(1) as f64;
    let positions = (0..output).map(|o| position(o, size, output, options.align_corners));
    match options.mode {
        InterpolateMode::Nearest | InterpolateMode::NearestExact => {
            let exact = options.mode == InterpolateMode::NearestExact;
            vec![(0..output).map(|o| (source(o, size, output, exact) as i64, 1.0)).unzip()]
        }
        InterpolateMode::Bilinear => {
            filter(positions.map(|p| p.clamp(0.0, last)), 0..=1, last, |d| (1.0 - d.abs()).max(0.0))
        }
        InterpolateMode::Bicubic => filter(positions, -1..=2, last, cubic),
        InterpolateMode::Lanczos3 => lanczos3(positions, last),
    }
}

/// Returns the position of output `o` among the inputs.
fn position(o: usize, size: usize, output: usize, align_corners: bool) -> f64 {
    if align_corners {
        o as f64 * (size.saturating_sub(1) as f64 / output.saturating_sub(1).max(1) as f64)
    } else {
        (o as f64 + 0.5) * (size as f64 / output as f64) - 0.5
    }
}

/// Returns one tap per offset from the input below each position, weighted by its distance. Positions beyond the border
/// have the value of the border.
fn filter(
    positions: impl Iterator<Item = f64> + Clone,
    offsets: std::ops::RangeInclusive<i64>,
    last: f64,
    weight: impl Fn(f64) -> f64,
) -> Vec<Tap> {
    let tap = |offset: i64| {
        let one = |position: f64| {
            let input = position.floor() + offset as f64;
            (input.clamp(0.0, last) as i64, weight(position - input))
        };
        positions.clone().map(one).unzip()
    };
    offsets.map(tap).collect()
}

/// Returns the kernel of bicubic interpolation, with a = -0.75.
fn cubic(distance: f64) -> f64 {
    const A: f64 = -0.75;
    let d = distance.abs();
    if d <= 1.0 { ((A + 2.0) * d - (A + 3.0)) * d * d + 1.0 } else { ((A * d - 5.0 * A) * d + 8.0 * A) * d - 4.0 * A }
}

/// Returns the taps of the windowed sinc over six inputs. Inputs beyond the border are omitted, and the other weights
/// are scaled to sum to 1.
fn lanczos3(positions: impl Iterator<Item = f64> + Clone, last: f64) -> Vec<Tap> {
    let inside = |position: f64, offset: i64| {
        let input = position.floor() + offset as f64;
        (0.0..=last).contains(&input).then_some((input, sinc3(position - input)))
    };
    let sum = |position: f64| (-2..=3).filter_map(|offset| inside(position, offset)).map(|(_, w)| w).sum::<f64>();
    let tap = |offset: i64| {
        let one = |position: f64| match (inside(position, offset), sum(position)) {
            (Some((input, weight)), sum) if sum != 0.0 => (input as i64, weight / sum),
            (Some((input, weight)), _) => (input as i64, weight),
            (None, _) => (0, 0.0),
        };
        positions.clone().map(one).unzip()
    };
    (-2..=3).map(tap).collect()
}

/// Returns sinc(x) * sinc(x / 3) for |x| < 3, else 0.
fn sinc3(x: f64) -> f64 {
    let radians = std::f64::consts::PI * x;
    if x == 0.0 {
        1.0
    } else if x.abs() >= 3.0 {
        0.0
    } else {
        radians.sin() * (radians / 3.0).sin() / (radians * radians / 3.0)
    }
}
