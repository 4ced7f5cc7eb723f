//! Ops that move whole dims: views where strides can express the result, copies elsewhere.

use super::buffer::dispatch;
use super::error::Result;
use super::tensor::HostTensor;
use super::walk::{Strides, at, copy, merge, row_major};
use burn_tpu_graph::Dims;
use burn_tpu_graph::op::{PadAttrs, SliceAttrs};
use std::sync::Arc;

/// Places operand dim `i` at result dim `mapping[i]` and repeats along all others.
pub(super) fn broadcast_in_dim(x: HostTensor, dims: &[usize], mapping: &[usize]) -> HostTensor {
    let mut strides = Strides::from_elem(0, dims.len());
    for (d, &to) in mapping.iter().enumerate() {
        strides[to] = if x.dims()[d] == 1 { 0 } else { x.strides()[d] };
    }
    let offset = x.offset();
    x.viewed(dims.into(), offset, strides)
}

/// Returns the same elements with other dims.
pub(super) fn reshape(x: HostTensor, dims: &[usize]) -> Result<HostTensor> {
    if let Some(strides) = reshaped_strides(x.dims(), x.strides(), dims) {
        let offset = x.offset();
        return Ok(x.viewed(dims.into(), offset, strides));
    }
    let dense = x.into_dense()?;
    Ok(dense.viewed(dims.into(), 0, row_major(dims)))
}

/// Returns the strides under new dims if no element has to move: a new dim must be a part of dims that form one stride.
fn reshaped_strides(from: &[usize], strides: &[isize], to: &[usize]) -> Option<Strides> {
    if from.contains(&0) {
        return Some(row_major(to));
    }
    let mut new = Strides::from_elem(0, to.len());
    let mut d = to.len();
    for (len, [step]) in merge(from, [strides]) {
        let mut covered = 1;
        while covered < len {
            d = d.checked_sub(1)?;
            new[d] = step * covered as isize;
            covered *= to[d];
        }
        if covered != len {
            return None;
        }
    }
    Some(new)
}

/// Result dim `i` is operand dim `permutation[i]`.
pub(super) fn transpose(x: HostTensor, permutation: &[usize]) -> HostTensor {
    let dims: Dims = permutation.iter().map(|&d| x.dims()[d]).collect();
    let strides: Strides = permutation.iter().map(|&d| x.strides()[d]).collect();
    let offset = x.offset();
    x.viewed(dims, offset, strides)
}

/// Reverses the order of the elements along the dims `reversed`.
pub(super) fn reverse(x: HostTensor, reversed: &[usize]) -> HostTensor {
    let (mut offset, mut strides) = (x.offset(), x.strides().clone());
    for &d in reversed {
        offset = at(offset, strides[d], x.dims()[d].saturating_sub(1));
        strides[d] = -strides[d];
    }
    let dims = x.dims().clone();
    x.viewed(dims, offset, strides)
}

/// Returns a static slice.
pub(super) fn static_slice(x: HostTensor, attrs: &SliceAttrs) -> HostTensor {
    let SliceAttrs { start, limit, stride } = attrs;
    let dims: Dims = (0..start.len()).map(|d| (limit[d] - start[d]).div_ceil(stride[d])).collect();
    // The product may overflow if the stride is larger than the dim; then no element uses it.
    let steps = (0..start.len()).map(|d| x.strides()[d].wrapping_mul(stride[d] as isize)).collect();
    slice_at(x, start, dims, steps)
}

/// Returns the part of `dims` from `start`, with the given strides.
pub(super) fn slice_at(x: HostTensor, start: &[usize], dims: Dims, strides: Strides) -> HostTensor {
    // An empty part may start beyond the buffer's end; nothing reads it.
    let offset = if dims.contains(&0) {
        0
    } else {
        start.iter().zip(x.strides()).fold(x.offset(), |offset, (&start, &stride)| at(offset, stride, start))
    };
    x.viewed(dims, offset, strides)
}

/// Returns a part of a value without the rest of its buffer, if that is most of it and has other owners: the next one may
/// write into it then, and who reads the part several times finds it row-major.
pub(super) fn own_part(part: HostTensor) -> Result<HostTensor> {
    let is_worth_it = part.buffer_len() / 2 >= part.ty().elements() && part.has_other_owners();
    if is_worth_it { part.into_dense() } else { Ok(part) }
}

/// Pads before, after and between elements; negative edges crop.
pub(super) fn pad(x: HostTensor, value: &HostTensor, attrs: &PadAttrs, dims: &[usize]) -> Result<HostTensor> {
    let (x, offset, strides) = kept(x, attrs, dims);
    dispatch!(x.dtype(), T => {
        let mut out = vec![value.item::<T>()?; dims.iter().product()];
        copy(x.dims(), x.view::<T>()?, &mut out, offset, &strides);
        Ok(HostTensor::new(dims, out))
    })
}

/// Returns the part of the operand that is inside the result, where its first element is in it, and how far apart its
/// elements are.
fn kept(x: HostTensor, attrs: &PadAttrs, dims: &[usize]) -> (HostTensor, usize, Strides) {
    let (mut start, mut sizes) = (Dims::new(), Dims::new());
    let mut strides = row_major(dims);
    let mut offset = 0;
    for (d, &size) in dims.iter().enumerate() {
        // Element i is at position low + i * step. `first` is the first element inside, `end` the first one after.
        // The sums are in i128, since the attributes of a dim that keeps one element or none may be as large as their types.
        let (low, step) = (attrs.low[d] as i128, attrs.interior[d] as i128 + 1);
        let landing = |position: i128| position.div_euclid(step) + i128::from(position.rem_euclid(step) != 0);
        let first = landing(-low).max(0);
        let end = landing(size as i128 - low).min(x.dims()[d] as i128).max(first);
        start.push(first as usize);
        sizes.push((end - first) as usize);
        offset = at(offset, strides[d], (low + first * step) as usize);
        strides[d] = strides[d].wrapping_mul(step as isize);
    }
    let steps = x.strides().clone();
    (slice_at(x, &start, sizes, steps), offset, strides)
}

/// Concatenates the operands along `dim`, in order.
pub(super) fn concatenate(operands: &[HostTensor], dim: usize, dims: &[usize]) -> Result<HostTensor> {
    let Some(first) = operands.first() else { return Err("takes at least one operand".into()) };
    dispatch!(first.dtype(), T => {
        let strides = row_major(dims);
        let mut out = vec![T::default(); dims.iter().product()];
        let mut start = 0;
        for x in operands {
            copy(x.dims(), x.view::<T>()?, &mut out, at(0, strides[dim], start), &strides);
            start += x.dims()[dim];
        }
        Ok(HostTensor::new(dims, out))
    })
}

/// Returns `x` with `update` written at `start`, in place if `x` has no other owner.
pub(super) fn write_at(x: HostTensor, update: &HostTensor, start: &[usize]) -> Result<HostTensor> {
    dispatch!(x.dtype(), T => {
        let dims = x.dims().clone();
        let strides = row_major(&dims);
        let offset = start.iter().zip(&strides).fold(0, |offset, (&start, &stride)| at(offset, stride, start));
        let mut out = x.into_owned::<T>()?;
        copy(update.dims(), update.view::<T>()?, Arc::make_mut(&mut out).as_mut_slice(), offset, &strides);
        Ok(HostTensor::strided(&dims, strides, out))
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{f32s, run, values};
    use super::*;
    use burn_tpu_graph::Builder;
    use burn_tpu_graph::NodeId;

    const NONE: [f32; 0] = [];

    fn moved(
        dims: &[usize],
        build: impl FnOnce(&mut burn_tpu_graph::Graph, NodeId) -> burn_tpu_graph::Result<NodeId>,
    ) -> Vec<f32> {
        run(|t| {
            let x = t.counted(dims);
            build(&mut t.graph, x)
        })
    }

    #[test]
    fn broadcasts_repeat_size_one_dims() {
        assert_eq!(moved(&[2, 1], |g, x| g.broadcast_in_dim(x, &[2, 2, 2], &[0, 2])), [0., 0., 0., 0., 1., 1., 1., 1.]);
        assert_eq!(moved(&[], |g, x| g.broadcast_in_dim(x, &[3], &[])), [0.0; 3]);
        assert_eq!(moved(&[1], |g, x| g.broadcast_in_dim(x, &[0], &[0])), NONE);
        assert_eq!(moved(&[0], |g, x| g.broadcast_in_dim(x, &[3, 0], &[1])), NONE);
    }

    #[test]
    fn reshapes_of_views_copy_only_when_they_must() {
        let x = f32s(&[2, 3], &[0., 1., 2., 3., 4., 5.]);
        let flat = reshape(x.clone(), &[6]).unwrap();
        assert_eq!(flat.view::<f32>().unwrap().data.as_ptr(), x.view::<f32>().unwrap().data.as_ptr());
        let turned = reshape(transpose(x, &[1, 0]), &[6]).unwrap();
        assert_eq!(values::<f32>(&turned), [0., 3., 1., 4., 2., 5.]);
    }

    #[test]
    fn reshapes_take_any_size_one_and_empty_dims() {
        assert_eq!(moved(&[1, 2, 1], |g, x| g.reshape(x, &[2, 1, 1, 1])), [0., 1.]);
        assert_eq!(moved(&[1], |g, x| g.reshape(x, &[])), [0.]);
        assert_eq!(moved(&[2, 0], |g, x| g.reshape(x, &[0, 5])), NONE);
    }

    #[test]
    fn transposes_compose() {
        let twice = moved(&[2, 3, 4], |g, x| {
            let y = g.transpose(x, &[2, 0, 1])?;
            g.transpose(y, &[1, 2, 0])
        });
        assert_eq!(twice, (0..24).map(|i| i as f32).collect::<Vec<_>>());
        assert_eq!(moved(&[2, 2], |g, x| g.transpose(x, &[1, 0])), [0., 2., 1., 3.]);
    }

    #[test]
    fn reverses_take_empty_and_single_dims() {
        assert_eq!(moved(&[2, 2], |g, x| g.reverse(x, &[0, 1])), [3., 2., 1., 0.]);
        assert_eq!(moved(&[0, 2], |g, x| g.reverse(x, &[0, 1])), NONE);
        assert_eq!(moved(&[1, 2], |g, x| g.reverse(x, &[0])), [0., 1.]);
    }

    #[test]
    fn slices_step_and_may_be_empty() {
        assert_eq!(moved(&[7], |g, x| g.slice(x, &[1], &[7], &[3])), [1., 4.]);
        assert_eq!(moved(&[7], |g, x| g.slice(x, &[7], &[7], &[1])), NONE);
        assert_eq!(moved(&[3, 3], |g, x| g.slice(x, &[0, 2], &[3, 3], &[2, usize::MAX])), [2., 8.]);
    }

    fn padded(dims: &[usize], low: &[isize], high: &[isize], interior: &[usize]) -> Vec<f32> {
        run(|t| {
            let (x, value) = (t.counted(dims), t.input(&[], &[9f32]));
            t.graph.pad(x, value, low, high, interior)
        })
    }

    #[test]
    fn pads_add_crop_and_spread() {
        assert_eq!(padded(&[3], &[1], &[2], &[0]), [9., 0., 1., 2., 9., 9.]);
        assert_eq!(padded(&[3], &[-1], &[-1], &[0]), [1.]);
        assert_eq!(padded(&[3], &[-1], &[1], &[2]), [9., 9., 1., 9., 9., 2., 9.]);
        assert_eq!(padded(&[2, 2], &[0, 1], &[0, -1], &[1, 0]), [9., 0., 9., 9., 9., 2.]);
    }

    #[test]
    fn pads_fill_the_result_when_every_element_is_cropped() {
        assert_eq!(padded(&[0], &[1], &[1], &[5]), [9., 9.]);
        assert_eq!(padded(&[2], &[-2], &[3], &[0]), [9., 9., 9.]);
        assert_eq!(padded(&[2, 0], &[0, 1], &[0, 0], &[0, 0]), [9., 9.]);
    }

    #[test]
    fn interior_padding_of_one_element_may_be_of_any_size() {
        for interior in [usize::MAX, isize::MAX as usize] {
            assert_eq!(padded(&[1], &[1], &[0], &[interior]), [9., 0.]);
            assert_eq!(padded(&[0, 2], &[1, 0], &[0, 0], &[interior, 0]), [9., 9.]);
        }
    }

    #[test]
    fn concatenation_takes_empty_and_strided_operands() {
        let joined = run::<f32>(|t| {
            let (x, none) = (t.counted(&[2, 2]), t.counted(&[2, 0]));
            let turned = t.graph.transpose(x, &[1, 0])?;
            t.graph.concatenate(&[x, none, turned], 1)
        });
        assert_eq!(joined, [0., 1., 0., 2., 2., 3., 1., 3.]);
    }
}
