//! Ops that move whole dims: views where strides can say it, copies where they cannot.

use super::buffer::{Element, dispatch};
use super::error::Result;
use super::tensor::HostTensor;
use super::walk::{Strides, at, copy, merge, row_major};
use burn_tpu_graph::Dims;
use burn_tpu_graph::op::{PadAttrs, SliceAttrs};

/// Places operand dim `i` at result dim `mapping[i]` and repeats along all others.
pub(super) fn broadcast_in_dim(x: HostTensor, dims: &[usize], mapping: &[usize]) -> HostTensor {
    let mut strides = Strides::from_elem(0, dims.len());
    for (d, &to) in mapping.iter().enumerate() {
        strides[to] = if x.dims()[d] == 1 { 0 } else { x.strides()[d] };
    }
    let offset = x.offset();
    x.viewed(dims.into(), offset, strides)
}

/// The same elements under other dims.
pub(super) fn reshape(x: HostTensor, dims: &[usize]) -> Result<HostTensor> {
    if let Some(strides) = reshaped_strides(x.dims(), x.strides(), dims) {
        let offset = x.offset();
        return Ok(x.viewed(dims.into(), offset, strides));
    }
    let dense = x.into_dense()?;
    Ok(dense.viewed(dims.into(), 0, row_major(dims)))
}

/// The strides under new dims, if the elements need not move: new dims must split what runs in one stride.
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

/// Reverses the order along `reversed`.
pub(super) fn reverse(x: HostTensor, reversed: &[usize]) -> HostTensor {
    let (mut offset, mut strides) = (x.offset(), x.strides().clone());
    for &d in reversed {
        offset = at(offset, strides[d], x.dims()[d].saturating_sub(1));
        strides[d] = -strides[d];
    }
    let dims = x.dims().clone();
    x.viewed(dims, offset, strides)
}

/// A static slice.
pub(super) fn static_slice(x: HostTensor, attrs: &SliceAttrs) -> HostTensor {
    let SliceAttrs { start, limit, stride } = attrs;
    let dims: Dims = (0..start.len()).map(|d| (limit[d] - start[d]).div_ceil(stride[d])).collect();
    let steps = (0..start.len()).map(|d| x.strides()[d] * stride[d] as isize).collect();
    slice_at(x, start, dims, steps)
}

/// The part of `dims` from `start`, with steps of its own.
pub(super) fn slice_at(x: HostTensor, start: &[usize], dims: Dims, strides: Strides) -> HostTensor {
    // An empty part may start behind the buffer's end; nothing reads it.
    let offset = if dims.contains(&0) {
        0
    } else {
        start.iter().zip(x.strides()).fold(x.offset(), |offset, (&start, &stride)| at(offset, stride, start))
    };
    x.viewed(dims, offset, strides)
}

/// Elements added before, after and between; negative edges crop.
pub(super) fn pad(x: HostTensor, value: &HostTensor, attrs: &PadAttrs, dims: &[usize]) -> Result<HostTensor> {
    dispatch!(x.dtype(), T => {
        let fill = value.item::<T>()?;
        Ok(HostTensor::new(dims, padded::<T>(x, fill, attrs, dims)?))
    })
}

fn padded<T: Element>(x: HostTensor, value: T, attrs: &PadAttrs, dims: &[usize]) -> Result<Vec<T>> {
    let mut out = vec![value; dims.iter().product()];
    let (mut start, mut kept) = (Dims::new(), Dims::new());
    let mut strides = row_major(dims);
    let mut offset = 0;
    for (d, &size) in dims.iter().enumerate() {
        // Element i lands at low + i * step. The first that lands inside is `first`, the first behind is `end`.
        let (low, step) = (attrs.low[d], attrs.interior[d] as isize + 1);
        let landing = |position: isize| position.div_euclid(step) + isize::from(position.rem_euclid(step) != 0);
        let first = landing(-low).max(0);
        let end = landing(size as isize - low).min(x.dims()[d] as isize).max(first);
        start.push(first as usize);
        kept.push((end - first) as usize);
        offset = at(offset, strides[d] * (low + first * step), 1);
        strides[d] *= step;
    }
    if kept.contains(&0) {
        return Ok(out);
    }
    let steps = x.strides().clone();
    let x = slice_at(x, &start, kept, steps);
    copy(x.dims(), x.view::<T>()?, &mut out, offset, &strides);
    Ok(out)
}

/// Operands in order along `dim`.
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

/// `x` with `update` written at `start`, in place if `x` has no other owner.
pub(super) fn write_at(x: HostTensor, update: &HostTensor, start: &[usize]) -> Result<HostTensor> {
    dispatch!(x.dtype(), T => {
        let dims = x.dims().clone();
        let strides = row_major(&dims);
        let offset = start.iter().zip(&strides).fold(0, |offset, (&start, &stride)| at(offset, stride, start));
        let mut out = x.into_owned::<T>()?;
        copy(update.dims(), update.view::<T>()?, out.as_slice_mut().unwrap_or_default(), offset, &strides);
        Ok(HostTensor::strided(&dims, strides, out))
    })
}
