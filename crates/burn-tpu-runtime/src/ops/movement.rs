//! Ops that move, repeat, slice or overwrite elements, for every element type.
//!
//! Owns: slices (clamped, with positive or negative steps), assignment to slices, windows. Sizes and steps are
//! part of the program. The start of a slice is an offset, which is a constant until it changes: a static slice
//! compiles to a view or a fused copy.

use super::{broken_rule, expect_dim, mixed};
use crate::Tensor;
use crate::trace::{Recorder, at_once, record, record_or_compute, record_or_compute_many};
use burn_tpu_graph::op::{BinaryOp, GatherAttrs, MemorySpace};
use burn_tpu_graph::{Builder, DType, Dims, NodeId, Number, Result};
use smallvec::{SmallVec, smallvec};
use std::ops::Range;

/// Returns the same value, which the compiler takes for another one: what is computed from it is not merged with what is
/// computed from `x`.
pub fn barrier(x: Tensor) -> Tensor {
    record("barrier", [&x], |r, [x]| r.optimization_barrier(x))
}

/// Moves a value to a memory. Where the device has no other than the host's, the value stays where it is.
pub fn move_to(x: Tensor, memory: MemorySpace) -> Tensor {
    record("move_to", [&x], |r, [x]| r.move_to(x, memory))
}

/// Returns the same elements in row-major order with other dims.
pub fn reshape(mut x: Tensor, dims: &[usize]) -> Tensor {
    if at_once::reshape(&mut x, dims) {
        return x;
    }
    record_or_compute("reshape", [&x], |r, [x]| r.reshape(x, dims))
}

/// Swaps two dims.
pub fn swap_dims(x: Tensor, dim1: usize, dim2: usize) -> Tensor {
    let swapped = |dim| match dim {
        _ if dim == dim1 => dim2,
        _ if dim == dim2 => dim1,
        _ => dim,
    };
    record_or_compute("swap_dims", [&x], |r, [x]| {
        expect_dim(r, "transpose", x, dim1.max(dim2))?;
        let permutation: Dims = (0..r.rank(x)).map(swapped).collect();
        r.transpose(x, &permutation)
    })
}

/// Swaps the last two dims.
pub fn transpose(x: Tensor) -> Tensor {
    record_or_compute("transpose", [&x], |r, [x]| {
        let rank = r.rank(x);
        if rank < 2 {
            return Err(broken_rule(r, "transpose", &[x], "takes at least two dims"));
        }
        let mut permutation: Dims = (0..rank).collect();
        permutation.swap(rank - 2, rank - 1);
        r.transpose(x, &permutation)
    })
}

/// Permutes the dims.
pub fn permute(x: Tensor, axes: &[usize]) -> Tensor {
    record_or_compute("permute", [&x], |r, [x]| r.transpose(x, axes))
}

/// Reverses the elements along some dims.
pub fn flip(x: Tensor, axes: &[usize]) -> Tensor {
    record_or_compute("flip", [&x], |r, [x]| r.reverse(x, axes))
}

/// Broadcasts size-1 dims to a shape, and adds missing leading dims.
pub fn expand(x: Tensor, dims: &[usize]) -> Tensor {
    record("expand", [&x], |r, [x]| {
        if r.rank(x) > dims.len() {
            let rule = format!("more dims than {dims:?}");
            return Err(broken_rule(r, "broadcast_in_dim", &[x], rule));
        }
        r.broadcast_to(x, dims)
    })
}

/// Repeats the whole tensor `times` times along a dim: a broadcast along a new dim before it, which is then merged with
/// it.
pub fn repeat_dim(x: Tensor, dim: usize, times: usize) -> Tensor {
    record("repeat_dim", [&x], |r, [x]| {
        expect_dim(r, "broadcast_in_dim", x, dim)?;
        let mut merged = r.dims(x);
        let mut repeated = merged.clone();
        let rank = merged.len();
        repeated.insert(dim, times);
        merged[dim] = merged[dim].saturating_mul(times);
        let mapping: Dims = (0..=rank).filter(|&d| d != dim).collect();
        let repeated = r.broadcast_in_dim(x, &repeated, &mapping)?;
        r.reshape(repeated, &merged)
    })
}

/// Concatenates tensors along a dim.
pub fn cat(tensors: Vec<Tensor>, dim: usize) -> Tensor {
    let operands: Vec<&Tensor> = tensors.iter().collect();
    at_once::concatenate(&operands, dim)
        .unwrap_or_else(|| record_or_compute_many("cat", &operands, |r, nodes| r.concatenate(nodes, dim)))
}

/// A slice of one dim: the elements at multiples of `step` in a range of the dim. A negative step starts at the last
/// element of the same range and goes down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    /// The range within the dim. It is empty if it ends before it starts.
    pub range: Range<usize>,
    /// The distance between two elements; 0 counts as 1.
    pub step: isize,
}

/// The elements of a slice in one dim: `count` elements with distance `stride`, from the lowest one on, possibly in
/// reverse order.
#[derive(Clone, Copy)]
struct Span {
    lowest: usize,
    count: usize,
    stride: usize,
    reversed: bool,
}

impl Span {
    fn new(Slice { range, step }: &Slice) -> Self {
        let (reversed, step) = (*step < 0, step.unsigned_abs().max(1));
        let count = range.len().div_ceil(step);
        let stride = if count > 1 { step } else { 1 };
        let reach = count.saturating_sub(1) * stride;
        let lowest = if reversed && count > 0 { range.end - 1 - reach } else { range.start };
        Self { lowest, count, stride, reversed }
    }

    /// Returns the number of elements from the lowest to the highest element of the slice, both included.
    fn reach(self) -> usize {
        if self.count == 0 { 0 } else { (self.count - 1) * self.stride + 1 }
    }
}

/// Returns one span per dim. A dim without a slice has a span of all its elements.
fn spans(dims: &[usize], slices: &[Slice]) -> SmallVec<[Span; 4]> {
    let whole = |size| Span::new(&Slice { range: 0..size, step: 1 });
    dims.iter().enumerate().map(|(d, &size)| slices.get(d).map_or_else(|| whole(size), Span::new)).collect()
}

/// Rejects slices of dims that `x` does not have.
fn expect_slices(r: &Recorder, x: NodeId, slices: &[Slice]) -> Result<()> {
    let (count, rank) = (slices.len(), r.rank(x));
    if count <= rank {
        return Ok(());
    }
    Err(broken_rule(r, "slice", &[x], format!("{count} slices for rank {rank}")))
}

fn reversed_dims(spans: &[Span]) -> Dims {
    (0..spans.len()).filter(|&d| spans[d].reversed && spans[d].count > 1).collect()
}

/// Returns the elements of the slices.
pub fn slice(x: Tensor, slices: &[Slice]) -> Tensor {
    let spans = spans(x.dims(), slices);
    record_or_compute("slice", [&x], |r, [x]| {
        expect_slices(r, x, slices)?;
        let reach: Dims = spans.iter().map(|s| s.reach()).collect();
        let stride: Dims = spans.iter().map(|s| s.stride).collect();
        let mut taken = x;
        if r.ty(x).dims != reach {
            let starts = starts(r, x, &spans)?;
            taken = r.dynamic_slice(x, &starts, &reach)?;
        }
        let taken = r.slice(taken, &Dims::from_elem(0, spans.len()), &reach, &stride)?;
        r.reverse(taken, &reversed_dims(&spans))
    })
}

/// Returns the starts of the spans: zero for a dim that is taken as a whole or not at all, an offset for any other dim.
fn starts(r: &mut Recorder, x: NodeId, spans: &[Span]) -> Result<SmallVec<[NodeId; 4]>> {
    let dims = r.dims(x);
    let dtype = if dims.iter().all(|&size| i32::try_from(size).is_ok()) { DType::I32 } else { DType::I64 };
    let start = |(span, &size): (&Span, &usize)| match span.reach() == size || span.count == 0 {
        true => r.scalar(dtype, 0i64),
        false => r.offset(dtype, span.lowest as i64),
    };
    spans.iter().zip(&dims).map(start).collect()
}

/// Returns `x` with the elements of the slices replaced by those of `value`.
///
/// A contiguous region is a `dynamic_update_slice`, which XLA performs in place. For a region with gaps, its whole
/// extent is sliced, changed at its strides and written back: interior padding and a mask, which are three fused
/// element-wise ops. A scatter would address each element separately.
pub fn slice_assign(x: Tensor, slices: &[Slice], value: Tensor) -> Tensor {
    let spans = spans(x.dims(), slices);
    if spans.iter().any(|span| span.count == 0) {
        return x;
    }
    record("slice_assign", [&x, &value], |r, [x, value]| {
        expect_slices(r, x, slices)?;
        let value = mixed::alike(r, x, value)?;
        let counts: Dims = spans.iter().map(|s| s.count).collect();
        let value = r.broadcast_to(value, &counts)?;
        let value = r.reverse(value, &reversed_dims(&spans))?;
        let reach: Dims = spans.iter().map(|s| s.reach()).collect();
        let whole = r.ty(x).dims == reach;
        let starts = if whole { SmallVec::new() } else { starts(r, x, &spans)? };
        let mut value = value;
        if spans.iter().any(|span| span.stride > 1) {
            let reached = if whole { x } else { r.dynamic_slice(x, &starts, &reach)? };
            value = assign_with_gaps(r, reached, &spans, value)?;
        }
        if whole { Ok(value) } else { r.dynamic_update_slice(x, value, &starts) }
    })
}

/// Returns the elements within the extent of the spans, with those at their strides replaced.
fn assign_with_gaps(r: &mut Recorder, reached: NodeId, spans: &[Span], value: NodeId) -> Result<NodeId> {
    let dims = r.dims(reached);
    let mut mask = None;
    for (d, &span) in spans.iter().enumerate().filter(|(_, span)| span.stride > 1) {
        let taken = r.splat(DType::Bool, &[span.count], true)?;
        let taken = spread(r, taken, &[span])?;
        let taken = r.broadcast_in_dim(taken, &dims, &[d])?;
        mask = Some(match mask {
            None => taken,
            Some(mask) => r.binary(BinaryOp::And, mask, taken)?,
        });
    }
    let value = spread(r, value, spans)?;
    mask.map_or(Ok(value), |mask| r.select(mask, value, reached))
}

/// Returns `value` with zeros in the gaps of the spans.
fn spread(r: &mut Recorder, value: NodeId, spans: &[Span]) -> Result<NodeId> {
    let dtype = r.dtype(value);
    let zero = r.scalar(dtype, 0i64)?;
    let edge = SmallVec::<[isize; 4]>::from_elem(0, spans.len());
    let interior: Dims = spans.iter().map(|s| s.stride - 1).collect();
    r.pad(value, zero, &edge, &edge, &interior)
}

/// The maximum number of slices per window. Windows that need more use a gather.
const MAX_SLICES: usize = 64;

/// Returns all complete windows of `size` elements at distance `step` along a dim. The elements of a window become the
/// last dim.
///
/// Blocks of `step` elements are concatenated: window `w` consists of the blocks `w`, `w + 1`, …, truncated to `size`.
/// That takes `size / step` slices and one concatenation. A step of at least `size` takes a single reshape.
pub fn unfold(x: Tensor, dim: usize, size: usize, step: usize) -> Tensor {
    record("unfold", [&x], |r, [x]| {
        expect_dim(r, "slice", x, dim)?;
        if step == 0 {
            return Err(broken_rule(r, "slice", &[x], "the step must be at least 1"));
        }
        // A dim that is shorter than a window has no windows.
        let windows = (r.dims(x)[dim] + step).saturating_sub(size) / step;
        match size.div_ceil(step).max(1) {
            blocks if blocks <= MAX_SLICES => windows_of_blocks(r, x, dim, [windows, size, step, blocks]),
            _ => gathered_windows(r, x, dim, [windows, size, step]),
        }
    })
}

fn windows_of_blocks(
    r: &mut Recorder,
    x: NodeId,
    dim: usize,
    [windows, size, step, blocks]: [usize; 4],
) -> Result<NodeId> {
    let (mut dims, dtype) = (r.dims(x), r.dtype(x));
    let rank = dims.len();
    let all_blocks = windows + blocks - 1;
    // The padding completes the last block of the last window and is removed again. Negative padding removes elements
    // that no window covers.
    let low: SmallVec<[isize; 4]> = smallvec![0; rank];
    let mut high = low.clone();
    high[dim] = (all_blocks * step) as isize - dims[dim] as isize;
    let zero = r.scalar(dtype, 0i64)?;
    let padded = r.pad(x, zero, &low, &high, &Dims::from_elem(0, rank))?;
    dims[dim] = all_blocks;
    dims.insert(dim + 1, step);
    let split = r.reshape(padded, &dims)?;
    let side_by_side = (0..blocks).map(|block| r.slice_dim(split, dim, block, block + windows));
    let side_by_side = side_by_side.collect::<Result<Vec<_>>>()?;
    let joined = r.concatenate(&side_by_side, dim + 1)?;
    let cut = r.slice_dim(joined, dim + 1, 0, size)?;
    let last: Dims = (0..=rank).filter(|&d| d != dim + 1).chain([dim + 1]).collect();
    r.transpose(cut, &last)
}

fn gathered_windows(r: &mut Recorder, x: NodeId, dim: usize, [windows, size, step]: [usize; 3]) -> Result<NodeId> {
    let first = r.iota(DType::I32, &[windows, size], 0)?;
    let first = r.binary_const(BinaryOp::Mul, first, Number::UInt(step as u64))?;
    let offset = r.iota(DType::I32, &[windows, size], 1)?;
    let indices = r.binary(BinaryOp::Add, first, offset)?;
    let attrs = GatherAttrs::slices_along(&r.dims(x), dim, 2);
    r.gather(x, indices, attrs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{tensor, values};

    fn at(range: Range<usize>, step: isize) -> Slice {
        Slice { range, step }
    }

    fn ascending(dims: &[usize]) -> Tensor {
        tensor((0..dims.iter().product::<usize>()).map(|i| i as f32), dims)
    }

    #[test]
    fn negative_steps_reverse_the_range() {
        assert_eq!(values(slice(ascending(&[9]), &[at(2..8, -2)])), [7.0, 5.0, 3.0]);
        assert_eq!(values(slice(ascending(&[5]), &[at(0..5, -1)])), [4.0, 3.0, 2.0, 1.0, 0.0]);
        assert_eq!(values(slice(ascending(&[5]), &[at(0..5, 2)])), [0.0, 2.0, 4.0]);
        assert_eq!(values(slice(ascending(&[2, 3]), &[at(1..2, 1), at(1..3, 1)])), [4.0, 5.0]);
        let backwards = at(Range { start: 2, end: 1 }, 1);
        assert_eq!(slice(ascending(&[2, 3]), &[at(0..2, 1), backwards]).dims(), [2, 0]);
    }

    #[test]
    fn assignment_is_the_inverse_of_a_slice() {
        for slices in [
            vec![at(1..3, 1), at(0..4, 1)],
            vec![at(1..4, -1), at(2..3, 1)],
            vec![at(0..4, 2), at(1..5, 1)],
            vec![at(0..4, -3), at(0..5, -2)],
            vec![at(2..3, 1)],
        ] {
            let taken = slice(ascending(&[4, 5]), &slices);
            let marked = tensor((0..taken.dims().iter().product()).map(|i: usize| 100.0 + i as f32), taken.dims());
            let assigned = slice_assign(ascending(&[4, 5]), &slices, marked.clone());
            assert_eq!(values(slice(assigned.clone(), &slices)), values(marked.clone()), "{slices:?}");
            let kept = values(assigned).into_iter().filter(|&value| value < 100.0).count();
            assert_eq!(kept, 20 - values(marked).len(), "{slices:?}");
        }
        assert_eq!(values(slice_assign(ascending(&[3]), &[at(1..1, 1)], ascending(&[0]))), [0.0, 1.0, 2.0]);
    }

    #[test]
    fn windows_with_overlap_and_with_gaps() {
        let naive = |n: usize, size: usize, step: usize| {
            let windows = if n < size { 0 } else { (n - size) / step + 1 };
            let values = (0..windows).flat_map(|w| (0..size).map(move |j| (w * step + j) as f64));
            ([windows, size], values.collect::<Vec<_>>())
        };
        for (n, size, step) in
            [(7, 3, 1), (7, 3, 2), (8, 2, 2), (8, 2, 3), (10, 2, 3), (10, 5, 3), (2, 3, 1), (200, 90, 1)]
        {
            let windows = unfold(ascending(&[n]), 0, size, step);
            let (dims, expected) = naive(n, size, step);
            assert_eq!((windows.dims(), values(windows.clone())), (&dims[..], expected), "{n} {size} {step}");
        }
        let rows = unfold(ascending(&[3, 2]), 0, 2, 1);
        assert_eq!((rows.dims(), values(rows.clone())), (&[2, 2, 2][..], vec![0.0, 2.0, 1.0, 3.0, 2.0, 4.0, 3.0, 5.0]));
    }

    #[test]
    fn repeats_expands_and_joins() {
        assert_eq!(values(repeat_dim(ascending(&[2, 1]), 0, 2)), [0.0, 1.0, 0.0, 1.0]);
        assert_eq!(values(repeat_dim(ascending(&[2, 1]), 1, 2)), [0.0, 0.0, 1.0, 1.0]);
        assert_eq!(repeat_dim(ascending(&[2, 3]), 1, 0).dims(), [2, 0]);
        assert_eq!(values(expand(ascending(&[2]), &[2, 2])), [0.0, 1.0, 0.0, 1.0]);
        let joined = cat(vec![ascending(&[1, 2]), ascending(&[2, 2]), ascending(&[0, 2])], 0);
        assert_eq!(values(joined), [0.0, 1.0, 0.0, 1.0, 2.0, 3.0]);
        assert_eq!(values(swap_dims(ascending(&[2, 2]), 0, 1)), [0.0, 2.0, 1.0, 3.0]);
    }

    #[test]
    #[should_panic(expected = "reshape")]
    fn a_wrong_shape_panics_when_it_is_recorded() {
        reshape(ascending(&[6]), &[4, 2]);
    }
}
