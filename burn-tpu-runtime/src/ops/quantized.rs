//! Quantized values: integers and the scales that dequantize them, on the device.
//!
//! A value takes one byte whatever its bits, and scales are f32: one for the tensor, or one for each block of it.
//! Movement ops keep the integers and their scale, so they lose no precision. Most of them break up blocks: then values
//! are dequantized, moved and quantized again.
//!
//! May not know: how a front end names schemes, or packs values into words.

use crate::Tensor;
use crate::trace::{Recorder, record, record_many};
use burn_tpu_graph::op::{BinaryOp, Combine, Direction, UnaryOp};
use burn_tpu_graph::{Builder, DType, Dims, NodeId, Result};
use smallvec::SmallVec;

/// How numbers become integers.
#[derive(Clone, Debug)]
pub struct Scheme {
    /// The smallest and the largest integer.
    pub range: (f32, f32),
    /// Which values share a scale.
    pub blocks: Blocks,
}

/// Which values of a tensor share a scale.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Blocks {
    /// All of them.
    Whole,
    /// Each range of so many consecutive values, row-major.
    Rows(usize),
    /// Each rectangle of these sizes along the last dims; it has size 1 along the dims before them.
    Tiles(SmallVec<[usize; 4]>),
}

/// A quantized tensor.
#[derive(Clone)]
pub struct Quantized {
    /// i8, of the tensor's dims.
    pub values: Tensor,
    /// f32, `[blocks]`, in the row-major order of the blocks; `[1]` for the whole tensor.
    pub scales: Tensor,
}

/// Quantizes with the given scales. One that is zero, or no number, is replaced by 0.1.
pub fn quantize(x: &Tensor, scales: &Tensor, scheme: &Scheme) -> Quantized {
    let [values, scales] = record_many("quantize", &[x, scales], |r, nodes| {
        let scales = r.convert(nodes[1], DType::F32)?;
        quantized(r, nodes[0], scales, scheme)
    });
    Quantized { values, scales }
}

/// Quantizes with the scale that maps the largest magnitude, of the tensor or of a block, to the end of the value range.
pub fn quantize_dynamic(x: &Tensor, scheme: &Scheme) -> Quantized {
    let [values, scales] = record_many("quantize_dynamic", &[x], |r, nodes| {
        let scales = fitting_scales(r, nodes[0], scheme)?;
        quantized(r, nodes[0], scales, scheme)
    });
    Quantized { values, scales }
}

/// Returns the numbers, in an element type.
pub fn dequantize(x: &Quantized, scheme: &Scheme, dtype: DType) -> Tensor {
    record("dequantize", [&x.values, &x.scales], |r, [values, scales]| {
        let dims = r.dims(values);
        let values = r.convert(values, DType::F32)?;
        let values = split(r, values, scheme)?;
        let scales = per_block(r, scales, values)?;
        let product = r.binary(BinaryOp::Mul, values, scales)?;
        let product = r.reshape(product, &dims)?;
        r.convert(product, dtype)
    })
}

/// Applies a movement op to the integers if there is one scale, else to the dequantized values, which are then quantized
/// again by the scheme `after`.
pub fn moved(x: Quantized, scheme: &Scheme, after: &Scheme, op: impl FnOnce(Tensor) -> Tensor) -> Quantized {
    if scheme.blocks == Blocks::Whole {
        return Quantized { values: op(x.values), ..x };
    }
    quantize_dynamic(&op(dequantize(&x, scheme, DType::F32)), after)
}

/// Returns a tensor that has the order of the values: the integers if there is one scale (above 0), else the dequantized
/// values.
pub fn comparable(x: Quantized, scheme: &Scheme) -> Tensor {
    if scheme.blocks == Blocks::Whole { x.values } else { dequantize(&x, scheme, DType::F32) }
}

/// Reshapes so that each block is a range of its own dims: `[1, values]`, `[blocks, values]` or, for tiles, two dims for
/// each of the tensor, the second within the tile. A tensor that is not a whole number of blocks is refused by the reshape.
fn split(r: &mut Recorder, x: NodeId, scheme: &Scheme) -> Result<NodeId> {
    let (elements, dims) = (r.ty(x).elements(), r.dims(x));
    let split: Dims = match &scheme.blocks {
        Blocks::Whole => Dims::from_slice(&[1, elements]),
        Blocks::Rows(size) => Dims::from_slice(&[elements.div_ceil((*size).max(1)), *size]),
        Blocks::Tiles(sizes) => {
            let size = |dim: usize| (dim + sizes.len()).checked_sub(dims.len()).map_or(1, |place| sizes[place].max(1));
            dims.iter().enumerate().flat_map(|(dim, &all)| [all.div_ceil(size(dim)), size(dim)]).collect()
        }
    };
    r.reshape(x, &split)
}

/// The dims of split values that are within a block.
fn within(rank: usize) -> Dims {
    (1..rank).step_by(2).collect()
}

/// Broadcasts `[blocks]` to the dims of split values.
fn per_block(r: &mut Recorder, scales: NodeId, split: NodeId) -> Result<NodeId> {
    let dims = r.dims(split);
    let kept: Dims = (0..dims.len()).step_by(2).collect();
    let blocks: Dims = kept.iter().map(|&dim| dims[dim]).collect();
    let scales = r.reshape(scales, &blocks)?;
    r.broadcast_in_dim(scales, &dims, &kept)
}

/// Returns the scales, f32 `[blocks]`: twice the largest magnitude divided by the width of the value range.
fn fitting_scales(r: &mut Recorder, x: NodeId, scheme: &Scheme) -> Result<NodeId> {
    let (low, high) = scheme.range;
    let x = r.convert(x, DType::F32)?;
    let x = split(r, x, scheme)?;
    let magnitudes = r.unary(UnaryOp::Abs, x)?;
    let within = within(r.rank(magnitudes));
    let largest = r.reduce(Combine::Max, magnitudes, &within)?;
    let width = r.binary_const(BinaryOp::Mul, largest, 2.0)?;
    // A slot, though it never changes: XLA divides by a constant through its reciprocal, and a scale with a wrong last bit
    // moves the largest values, which lie at a half in the asymmetric ranges.
    let range = r.slot_like(width, f64::from(high - low))?;
    let scales = r.binary(BinaryOp::Div, width, range)?;
    let blocks = r.ty(scales).elements();
    r.reshape(scales, &[blocks])
}

/// Returns round(x / scale) within the value range, i8 with the dims of x, and the scales used, f32 `[blocks]`.
fn quantized(r: &mut Recorder, x: NodeId, scales: NodeId, scheme: &Scheme) -> Result<[NodeId; 2]> {
    let (low, high) = scheme.range;
    let dims = r.dims(x);
    let x = r.convert(x, DType::F32)?;
    let x = split(r, x, scheme)?;
    let blocks = r.ty(scales).elements();
    let scales = r.reshape(scales, &[blocks])?;
    let scales = usable(r, scales)?;
    let divisor = per_block(r, scales, x)?;
    let quotient = r.binary(BinaryOp::Div, x, divisor)?;
    let rounded = round_half_away(r, quotient)?;
    let (low, high) = (r.splat_like(rounded, f64::from(low))?, r.splat_like(rounded, f64::from(high))?);
    let clamped = r.clamp(low, rounded, high)?;
    let values = r.convert(clamped, DType::I8)?;
    Ok([r.reshape(values, &dims)?, scales])
}

/// Replaces scales that are zero or NaN by 0.1, as burn-ndarray does: they come from values that are all 0 or not numbers.
fn usable(r: &mut Recorder, scales: NodeId) -> Result<NodeId> {
    let smallest = f64::from(f32::MIN_POSITIVE);
    let positive = r.compare_const(Direction::Ge, scales, smallest)?;
    let finite = r.is_finite(scales)?;
    let good = r.binary(BinaryOp::And, positive, finite)?;
    let other = r.splat_like(scales, 0.1)?;
    r.select(good, scales, other)
}

/// Rounds to the nearest integer, halves away from zero as Burn's other backends do (StableHLO's usual rounding is to even).
fn round_half_away(r: &mut Recorder, x: NodeId) -> Result<NodeId> {
    let size = r.unary(UnaryOp::Abs, x)?;
    let floor = r.unary(UnaryOp::Floor, size)?;
    // The fraction is exact; `size + 0.5` is not.
    let fraction = r.binary(BinaryOp::Sub, size, floor)?;
    let up = r.compare_const(Direction::Ge, fraction, 0.5)?;
    let next = r.binary_const(BinaryOp::Add, floor, 1.0)?;
    let rounded = r.select(up, next, floor)?;
    let sign = r.unary(UnaryOp::Sign, x)?;
    r.binary(BinaryOp::Mul, sign, rounded)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::data::to_device;
    use crate::ops::testing::{devices, tensor, values};

    fn scheme(blocks: Blocks) -> Scheme {
        Scheme { range: (-127.0, 127.0), blocks }
    }

    #[test]
    fn tiles_have_a_scale_each() {
        for device in devices() {
            let numbers = [1.0f32, 2.0, 10.0, 20.0, 0.5, -4.0, 30.0, -127.0];
            let x = to_device(tensor(numbers, &[2, 4]), &device);
            let tiles = scheme(Blocks::Tiles(SmallVec::from_slice(&[2, 2])));
            let quantized = quantize_dynamic(&x, &tiles);
            assert_eq!(values(quantized.scales.clone()), [f64::from(8.0f32 / 254.0), 1.0]);
            let back = values(dequantize(&quantized, &tiles, DType::F32));
            for (found, wanted) in back.into_iter().zip(numbers) {
                assert!((found - f64::from(wanted)).abs() <= 0.5, "{found} {wanted}");
            }
        }
    }

    #[test]
    fn a_tile_of_the_last_dim_is_a_row() {
        for device in devices() {
            let x = to_device(tensor((0..32).map(|i| i as f32 - 13.0), &[4, 8]), &device);
            let rows = quantize_dynamic(&x, &scheme(Blocks::Rows(4)));
            let tiles = quantize_dynamic(&x, &scheme(Blocks::Tiles(SmallVec::from_slice(&[4]))));
            assert_eq!(values(rows.values), values(tiles.values));
            assert_eq!(values(rows.scales), values(tiles.scales));
        }
    }
}
