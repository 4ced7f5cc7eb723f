//! Quantized values: integers and the scales that dequantize them, on the device.
//!
//! A value takes one byte whatever its bits, and scales are f32: one for the tensor, or one for each block of it.
//! Movement ops keep the integers and their scale, so they lose no precision. Most of them break up blocks: then values
//! are dequantized, moved and quantized again. A product of two quantized matrices is one of integers where that pays.
//!
//! May not know: how a front end names schemes, or packs values into words.

use super::matmul::batched_dot;
use crate::trace::{Recorder, record, record_many};
use crate::{Platform, Tensor};
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

/// Returns whether [`matmul`] is for this device. v5e and v6e multiply integers faster than bf16, v5e at twice the rate.
/// What it costs elsewhere is not known.
pub fn multiplies_integers(device: crate::Device) -> bool {
    matches!(device.platform(), Platform::Tpu | Platform::Topology)
}

/// Computes the product of `[.., m, k]` and `[.., k, n]` as a product of the integers, whose sums have 32 bits and are
/// exact. The scales then multiply in f32, and the result is rounded to `dtype`. Batch dims of size 1 broadcast.
///
/// `None` if the scales vary along `k`, or a sum could exceed 32 bits. Of the left side, rows may have a scale each.
pub fn matmul(x: (&Quantized, &Scheme), y: (&Quantized, &Scheme), dtype: DType) -> Option<Tensor> {
    let (dims, rank) = (x.0.values.dims(), x.0.values.dims().len());
    if rank < 2 || y.0.values.dims().len() != rank || y.1.blocks != Blocks::Whole {
        return None;
    }
    let k = dims[rank - 1];
    let rows = match x.1.blocks {
        Blocks::Whole => Dims::from_elem(1, rank),
        Blocks::Rows(size) if size == k => dims[..rank - 1].iter().copied().chain([1]).collect(),
        _ => return None,
    };
    let largest = |scheme: &Scheme| f64::from(scheme.range.0.abs().max(scheme.range.1.abs()));
    if k as f64 * largest(x.1) * largest(y.1) > f64::from(i32::MAX) {
        return None;
    }
    let operands = [&x.0.values, &y.0.values, &x.0.scales, &y.0.scales];
    let [product] = record_many("q_matmul", &operands, |r, nodes| {
        let sums = batched_dot(r, nodes[0], nodes[1], DType::I32)?;
        let sums = r.convert(sums, DType::F32)?;
        let scales = r.reshape(nodes[2], &rows)?;
        let (sums, scales) = r.broadcast_pair(sums, scales)?;
        let product = r.binary(BinaryOp::Mul, sums, scales)?;
        let scale = r.reshape(nodes[3], &Dims::from_elem(1, rank))?;
        let (product, scale) = r.broadcast_pair(product, scale)?;
        let product = r.binary(BinaryOp::Mul, product, scale)?;
        Ok([r.convert(product, dtype)?])
    });
    Some(product)
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

    /// Integers, a scale and numbers whose products and sums are exact in f32.
    fn eighths(dims: &[usize], device: &crate::Device, scheme: &Scheme) -> Quantized {
        let count: usize = dims.iter().product();
        let numbers = (0..count).map(|i| ((i * 37 + 11) % 255) as f32 / 8.0 - 127.0 / 8.0);
        let x = to_device(tensor(numbers, dims), device);
        let blocks = if scheme.blocks == Blocks::Whole { 1 } else { count / dims[dims.len() - 1] };
        let scales =
            to_device(tensor((0..blocks).map(|i| if i % 2 == 0 { 0.125f32 } else { 0.25 }), &[blocks]), device);
        quantize(&x, &scales, scheme)
    }

    #[test]
    fn a_product_of_integers_is_the_product_of_the_numbers() {
        for device in devices() {
            for (xs, ys) in [([1, 3, 8], [1, 8, 5]), ([2, 3, 8], [1, 8, 5]), ([1, 3, 8], [2, 8, 5])] {
                for blocks in [Blocks::Whole, Blocks::Rows(8)] {
                    let (rows, whole) = (scheme(blocks), scheme(Blocks::Whole));
                    let (x, y) = (eighths(&xs, &device, &rows), eighths(&ys, &device, &whole));
                    let found =
                        matmul((&x, &rows), (&y, &whole), DType::F32).expect("these scales do not vary along k");
                    let (x, y) = (dequantize(&x, &rows, DType::F32), dequantize(&y, &whole, DType::F32));
                    let wanted = crate::ops::matmul::matmul("float_matmul", x, y);
                    assert_eq!(found.dims(), wanted.dims());
                    assert_eq!(values(found), values(wanted), "{xs:?} {ys:?} {rows:?}");
                }
            }
        }
    }

    #[test]
    fn a_product_of_integers_needs_scales_that_do_not_vary_within_a_sum() {
        let (whole, rows) = (scheme(Blocks::Whole), |size| scheme(Blocks::Rows(size)));
        let product = |x: &Scheme, y: &Scheme, k| {
            let of =
                |dims: &[usize], scheme: &Scheme| quantize_dynamic(&tensor((0..2 * k).map(|_| 1.0f32), dims), scheme);
            matmul((&of(&[2, k], x), x), (&of(&[k, 2], y), y), DType::F32).is_some()
        };
        assert!(product(&whole, &whole, 8) && product(&rows(8), &whole, 8));
        assert!(!product(&rows(4), &whole, 8), "two scales within a row");
        assert!(!product(&whole, &rows(2), 8), "a scale for each row of the right side");
        assert!(product(&whole, &whole, 133_144) && !product(&whole, &whole, 133_145), "sums of 127 * 127");
    }

    #[test]
    fn a_product_of_integers_is_one_on_tpus_alone() {
        let slice = crate::Device::topology("v5e:1x1").expect("a slice");
        assert!(multiplies_integers(slice) && !multiplies_integers(crate::Device::ndarray()));
    }
}
