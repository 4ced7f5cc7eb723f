//! Interpolation of `[batch, channels, height, width]` to another height and width.
//!
//! Every mode is separable and linear in its input. Nearest copies values with a repeat, a stride or a gather, so that
//! infinities do not spread to other pixels. The other modes gather the few inputs of each output, per dim, and sum them
//! with weights, which are computed here in f64. Their gradient is a product with the transposed matrix of weights. 16-bit
//! floats are resampled in f32, since 16-bit floats cannot represent the weights.

use super::coordinates::{Axis, Coordinates, NearestRounding};
use super::operands::{expect_gradient, expect_spatial, vector};
use super::resample::{Tap, Way, along, gathered, sparse, take};
use crate::Tensor;
use crate::ops::broken_rule;
use crate::trace::record;
use burn_tpu_graph::op::Combine;
use burn_tpu_graph::{Builder, DType, Dims, NodeId, Result};

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
    /// Cubic, from four pixels per dim.
    Bicubic,
    /// A windowed sinc, from six pixels per dim.
    Lanczos3,
}

/// The options of [`interpolate`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InterpolateOptions {
    /// The interpolation of a value between pixels. The two nearest modes differ in what [`new`](Self::new) chooses.
    pub mode: InterpolateMode,
    /// Where outputs are among the inputs.
    pub coordinates: Coordinates,
    /// Which input is the nearest one.
    pub rounding: NearestRounding,
    /// The kernel of bicubic interpolation.
    pub cubic: Cubic,
    /// Outputs by inputs in height and width, for coordinates that are scaled. `None`: those of the sizes.
    pub scale: Option<[f64; 2]>,
}

/// The kernel of bicubic interpolation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cubic {
    /// Its slope at the next pixel: -0.75 in PyTorch and ONNX, -0.5 in TensorFlow.
    pub a: f64,
    /// Whether pixels beyond the border are omitted, and the other weights scaled to sum to 1. If not, they have the
    /// value of the border.
    pub excludes_outside: bool,
}

impl InterpolateOptions {
    /// Returns the options of a mode as Burn has them: for nearest the pixels' edges, for the other modes `align_corners`
    /// or the outer edges.
    pub fn new(mode: InterpolateMode, align_corners: bool) -> Self {
        let (coordinates, rounding) = match mode {
            InterpolateMode::Nearest => (Coordinates::Asymmetric, NearestRounding::Floor),
            InterpolateMode::NearestExact => (Coordinates::HalfPixel, NearestRounding::HalfUp),
            _ if align_corners => (Coordinates::AlignCorners, NearestRounding::Floor),
            _ => (Coordinates::HalfPixel, NearestRounding::Floor),
        };
        Self { mode, coordinates, rounding, cubic: Cubic { a: -0.75, excludes_outside: false }, scale: None }
    }

    fn is_nearest(&self) -> bool {
        matches!(self.mode, InterpolateMode::Nearest | InterpolateMode::NearestExact)
    }

    fn axes(&self, sizes: [usize; 2], output: [usize; 2]) -> [Axis; 2] {
        let axis = |index: usize| {
            let scale = self.scale.map(|scale| scale[index]);
            Axis { index, inputs: sizes[index], outputs: output[index], scale }
        };
        [axis(0), axis(1)]
    }

    /// Rejects a region that is no numbers, and a scale that is not above 0.
    fn check(&self, g: &impl Builder, x: NodeId) -> Result<()> {
        if let Coordinates::Region { region, .. } = self.coordinates
            && region.as_flattened().iter().any(|edge| edge.is_nan())
        {
            return Err(broken_rule(g, "dot_general", &[x], format!("the region {region:?} is no range of numbers")));
        }
        match self.scale {
            Some(scale) if scale.iter().any(|&factor| factor.is_nan() || factor <= 0.0 || factor.is_infinite()) => {
                Err(broken_rule(g, "dot_general", &[x], format!("scales are above 0 and finite, not {scale:?}")))
            }
            _ => Ok(()),
        }
    }
}

/// Resamples images to `output`.
pub fn interpolate(x: &Tensor, output: [usize; 2], options: &InterpolateOptions) -> Tensor {
    record("interpolate", [x], |r, [x]| {
        let axes = options.axes(sizes(r, x, output)?, output);
        options.check(r, x)?;
        let mut y = x;
        if options.is_nearest() {
            for axis in axes.iter().rev() {
                y = nearest(r, y, axis, options)?;
            }
        } else {
            y = resample(r, x, axes, options, Way::Forward)?;
        }
        match options.coordinates {
            Coordinates::Region { outside, .. } => replace_outside(r, y, axes, options, outside),
            _ => Ok(y),
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
        options.check(r, grad)?;
        let output = [r.dims(grad)[2], r.dims(grad)[3]];
        let sizes = [x.dims()[2], x.dims()[3]];
        if sizes.contains(&0) {
            return Err(broken_rule(r, "dot_general", &[grad], format!("there are no pixels in images of {sizes:?}")));
        }
        let axes = options.axes(sizes, output);
        let repeated = |axis: &Axis| {
            let factor = repeats(axis)?;
            let columns = nearest_inputs(axis, options);
            options.is_nearest().then_some(factor).filter(|_| is_repeat(&columns, factor))
        };
        match (repeated(&axes[0]), repeated(&axes[1])) {
            (Some(vertical), Some(horizontal)) => sum_blocks(r, grad, sizes, [vertical, horizontal]),
            _ => resample(r, grad, axes, options, Way::Transposed),
        }
    })
}

/// Returns the number of outputs for each input, if it is a whole one.
fn repeats(axis: &Axis) -> Option<usize> {
    axis.outputs.is_multiple_of(axis.inputs).then(|| axis.outputs / axis.inputs)
}

/// Returns whether each input is copied to `factor` outputs in a row.
fn is_repeat(columns: &[Option<usize>], factor: usize) -> bool {
    columns.iter().enumerate().all(|(output, &column)| column == Some(output / factor))
}

/// Returns the input that each output copies; `None` for outputs that another value replaces.
fn nearest_inputs(axis: &Axis, options: &InterpolateOptions) -> Vec<Option<usize>> {
    let nearest = |position: Option<f64>| position.map(|position| axis.nearest(position, options.rounding));
    axis.positions(options.coordinates).into_iter().map(nearest).collect()
}

/// Copies the nearest input along an axis to each output. An output that another value replaces gets the first input.
fn nearest(g: &mut impl Builder, x: NodeId, axis: &Axis, options: &InterpolateOptions) -> Result<NodeId> {
    let (dims, dim, columns) = (g.dims(x), axis.index + 2, nearest_inputs(axis, options));
    if let Some(factor) = repeats(axis).filter(|&factor| is_repeat(&columns, factor)) {
        return repeat(g, x, dim, factor);
    }
    let step = axis.inputs / axis.outputs;
    let start = columns[0].unwrap_or(0);
    let is_stride = |(output, &column): (usize, &Option<usize>)| column == Some(start + output * step);
    if axis.inputs.is_multiple_of(axis.outputs) && columns.iter().enumerate().all(is_stride) {
        let (mut starts, mut strides) = (Dims::from_elem(0, dims.len()), Dims::from_elem(1, dims.len()));
        (starts[dim], strides[dim]) = (start, step);
        return g.slice(x, &starts, &dims, &strides);
    }
    let columns: Vec<i64> = columns.into_iter().map(|column| column.unwrap_or(0) as i64).collect();
    take(g, x, dim, &columns)
}

/// Puts another value where an output's row or column is outside of the inputs.
fn replace_outside(
    g: &mut impl Builder,
    y: NodeId,
    axes: [Axis; 2],
    options: &InterpolateOptions,
    value: f64,
) -> Result<NodeId> {
    let mut result = y;
    for axis in axes {
        let outside: Vec<bool> = axis.positions(options.coordinates).iter().map(Option::is_none).collect();
        if outside.contains(&true) {
            let is_outside = vector(g, DType::Bool, &outside)?;
            let is_outside = g.broadcast_in_dim(is_outside, &g.dims(y), &[axis.index + 2])?;
            let value = g.splat_like(y, value)?;
            result = g.select(is_outside, value, result)?;
        }
    }
    Ok(result)
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
    axes: [Axis; 2],
    options: &InterpolateOptions,
    way: Way,
) -> Result<NodeId> {
    let dtype = g.dtype(x);
    let mut y = g.convert(x, dtype.accumulator())?;
    for axis in axes.iter().rev() {
        let (dim, taps) = (axis.index + 2, taps(axis, options));
        y = match way {
            Way::Forward => gathered(g, y, dim, &taps)?,
            Way::Transposed => {
                let matrix = sparse(g, dtype.accumulator(), &taps, axis.inputs)?;
                along(g, y, dim, matrix, way)?
            }
        };
    }
    g.convert(y, dtype)
}

/// Returns the inputs that each output reads, with their weights. An output that another value replaces reads none.
fn taps(axis: &Axis, options: &InterpolateOptions) -> Vec<Tap> {
    let last = axis.inputs as f64 - 1.0;
    let positions = axis.positions(options.coordinates);
    match options.mode {
        InterpolateMode::Nearest | InterpolateMode::NearestExact => {
            let one = |position: Option<f64>| match position {
                Some(position) => (axis.nearest(position, options.rounding) as i64, 1.0),
                None => (0, 0.0),
            };
            vec![positions.into_iter().map(one).unzip()]
        }
        InterpolateMode::Bilinear => {
            let inside: Vec<_> = positions.iter().map(|p| p.map(|p| p.clamp(0.0, last))).collect();
            clamped(&inside, 0..=1, last, |d| (1.0 - d.abs()).max(0.0))
        }
        InterpolateMode::Bicubic if options.cubic.excludes_outside => {
            let nearest = |position: f64| if position < 0.0 { 0.0 } else { last };
            let is_sum = |sum: f64| sum != 0.0 && sum.is_finite();
            scaled(
                &positions,
                -1..=2,
                last,
                |d| cubic(d, options.cubic.a),
                |position, sum| (!is_sum(sum)).then(|| nearest(position)),
            )
        }
        InterpolateMode::Bicubic => clamped(&positions, -1..=2, last, |d| cubic(d, options.cubic.a)),
        InterpolateMode::Lanczos3 => scaled(&positions, -2..=3, last, sinc3, |_, _| None),
    }
}

/// Returns one tap per offset from the input below each position, weighted by its distance. Positions beyond the border
/// have the value of the border.
fn clamped(
    positions: &[Option<f64>],
    offsets: std::ops::RangeInclusive<i64>,
    last: f64,
    weight: impl Fn(f64) -> f64,
) -> Vec<Tap> {
    let tap = |offset: i64| {
        let one = |position: &Option<f64>| {
            let Some(position) = position else { return (0, 0.0) };
            let input = position.floor() + offset as f64;
            (input.clamp(0.0, last) as i64, weight(position - input))
        };
        positions.iter().map(one).unzip()
    };
    offsets.map(tap).collect()
}

/// Returns the kernel of bicubic interpolation.
fn cubic(distance: f64, a: f64) -> f64 {
    let d = distance.abs();
    if d <= 1.0 { ((a + 2.0) * d - (a + 3.0)) * d * d + 1.0 } else { ((a * d - 5.0 * a) * d + 8.0 * a) * d - 4.0 * a }
}

/// Returns the taps of a kernel without the inputs beyond the border; the other weights are scaled to sum to 1. `instead`
/// names the input that is read alone where a position and its sum say so.
fn scaled(
    positions: &[Option<f64>],
    offsets: std::ops::RangeInclusive<i64>,
    last: f64,
    weight: impl Fn(f64) -> f64,
    instead: impl Fn(f64, f64) -> Option<f64>,
) -> Vec<Tap> {
    let inside = |position: f64, offset: i64| {
        let input = position.floor() + offset as f64;
        (0.0..=last).contains(&input).then(|| (input, weight(position - input)))
    };
    let sum = |position: f64| {
        offsets.clone().filter_map(|offset| inside(position, offset)).map(|(_, weight)| weight).sum::<f64>()
    };
    let tap = |offset: i64| {
        let one = |position: &Option<f64>| {
            let Some(position) = *position else { return (0, 0.0) };
            let sum = sum(position);
            match (instead(position, sum), inside(position, offset)) {
                (Some(input), _) => (input as i64, if offset == *offsets.start() { 1.0 } else { 0.0 }),
                (None, Some((input, weight))) => (input as i64, if sum == 0.0 { weight } else { weight / sum }),
                (None, None) => (0, 0.0),
            }
        };
        positions.iter().map(one).unzip()
    };
    offsets.clone().map(tap).collect()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::data::to_device;
    use crate::ops::testing::{devices, tensor, values};

    #[test]
    fn outputs_outside_of_the_inputs_have_another_value_and_no_gradient() {
        let region = Coordinates::Region { region: [[0.0, 1.0], [0.0, 2.0]], outside: 9.0 };
        for mode in [InterpolateMode::Nearest, InterpolateMode::Bilinear, InterpolateMode::Bicubic] {
            let options = InterpolateOptions { coordinates: region, ..InterpolateOptions::new(mode, true) };
            for device in devices() {
                let x = to_device(tensor([1.0f32, 2.0, 3.0], &[1, 1, 1, 3]), &device);
                assert_eq!(values(interpolate(&x, [1, 3], &options)), [1.0, 3.0, 9.0], "{mode:?}");
                let grad = to_device(tensor([4.0f32, 5.0, f32::INFINITY], &[1, 1, 1, 3]), &device);
                assert_eq!(values(interpolate_backward(&x, &grad, &options)), [4.0, 0.0, 5.0], "{mode:?}");
            }
        }
    }

    #[test]
    fn a_cubic_kernel_may_omit_what_is_outside() {
        let cubic = Cubic { a: -0.5, excludes_outside: true };
        let options = InterpolateOptions { cubic, ..InterpolateOptions::new(InterpolateMode::Bicubic, false) };
        for device in devices() {
            let x = to_device(tensor([8.0f32, 8.0], &[1, 1, 1, 2]), &device);
            // Weights that sum to 1 keep a constant.
            let y = values(interpolate(&x, [1, 5], &options));
            assert!(y.iter().all(|y| (y - 8.0).abs() < 1e-5), "{y:?}");
        }
    }

    #[test]
    fn ties_are_rounded_as_asked() {
        for device in devices() {
            let x = to_device(tensor([1.0f32, 2.0, 3.0, 4.0], &[1, 1, 1, 4]), &device);
            // The outputs are at 0.5 and 2.5.
            for (rounding, expected) in [(NearestRounding::HalfDown, [1.0, 3.0]), (NearestRounding::HalfUp, [2.0, 4.0])]
            {
                let options = InterpolateOptions::new(InterpolateMode::NearestExact, false);
                let options = InterpolateOptions { rounding, ..options };
                assert_eq!(values(interpolate(&x, [1, 2], &options)), expected);
            }
        }
    }
}
