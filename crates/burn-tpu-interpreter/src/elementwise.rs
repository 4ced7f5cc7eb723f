//! Element-wise loops over tensors, and the element-wise ops that are in no table: select, complex parts.
//!
//! If all operands repeat along a dim, one result is computed and repeated: an op on broadcast scalars computes one element.

use super::buffer::{C64, Element, dispatch};
use super::error::Result;
use super::tensor::HostTensor;
use super::vector::vectorized;
use super::walk::{self, row_major};
use burn_tpu_graph::Dims;
use std::sync::Arc;

/// Returns the dims with size 1 for those along which every operand repeats.
fn distinct(operands: &[&HostTensor]) -> Dims {
    let Some(first) = operands.first() else { return Dims::new() };
    let mut dims = Dims::from_slice(first.dims());
    for (d, size) in dims.iter_mut().enumerate().filter(|(_, size)| **size > 0) {
        if operands.iter().all(|x| x.strides()[d] == 0) {
            *size = 1;
        }
    }
    dims
}

/// Returns the row-major elements of `distinct` dims, repeated to `dims`.
fn repeated<T: Element>(dims: &[usize], distinct: &[usize], elements: Vec<T>) -> HostTensor {
    let mut strides = row_major(distinct);
    strides.iter_mut().zip(distinct).filter(|(_, size)| **size == 1).for_each(|(stride, _)| *stride = 0);
    HostTensor::strided(dims, strides, Arc::new(elements))
}

/// Returns `f` of every element.
pub(super) fn map<T: Element, U: Element>(x: &HostTensor, f: impl Fn(T) -> U) -> Result<HostTensor> {
    let dims = distinct(&[x]);
    Ok(repeated(x.dims(), &dims, walk::map(&dims, x.view()?, f)))
}

/// Returns `f` of every element, written in place if the operand has no other owner.
pub(super) fn map_into<T: Element>(mut x: HostTensor, f: impl Fn(T) -> T) -> Result<HostTensor> {
    if let Some((_, elements)) = x.owned_mut::<T>() {
        vectorized(elements.len(), || elements.iter_mut().for_each(|v| *v = f(*v)));
        return Ok(x);
    }
    map(&x, f)
}

/// Returns `f` of every pair of elements.
pub(super) fn zip<A: Element, B: Element, U: Element>(
    a: &HostTensor,
    b: &HostTensor,
    f: impl Fn(A, B) -> U,
) -> Result<HostTensor> {
    let dims = distinct(&[a, b]);
    Ok(repeated(a.dims(), &dims, walk::zip(&dims, a.view()?, b.view()?, f)))
}

/// Returns `f` of every pair of elements, written in place of `a` if it has no other owner.
pub(super) fn zip_into<T: Element, B: Element>(
    mut a: HostTensor,
    b: &HostTensor,
    f: impl Fn(T, B) -> T,
) -> Result<HostTensor> {
    if let Some((dims, elements)) = a.owned_mut::<T>() {
        walk::update(dims, elements, b.view()?, f);
        return Ok(a);
    }
    zip(&a, b, f)
}

/// Returns `on_true` where the predicate holds, otherwise `on_false`.
pub(super) fn select(predicate: &HostTensor, on_true: &HostTensor, on_false: &HostTensor) -> Result<HostTensor> {
    let dims = distinct(&[predicate, on_true, on_false]);
    dispatch!(on_true.dtype(), T => {
        let chosen = walk::choose::<T>(&dims, predicate.view()?, on_true.view()?, on_false.view()?);
        Ok(repeated(on_true.dims(), &dims, chosen))
    })
}

/// Returns a complex value from its parts.
pub(super) fn complex(re: &HostTensor, im: &HostTensor) -> Result<HostTensor> {
    zip(re, im, |re, im| C64 { re, im })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{f32s, i32s, scalar, tensor, values};
    use super::*;
    use burn_tpu_graph::Dims;

    #[test]
    fn select_takes_strided_operands() {
        let predicate = tensor(&[2, 2], &[true, false, false, true]);
        let columns = i32s(&[2, 2], &[1, 2, 3, 4]).viewed(Dims::from_slice(&[2, 2]), 0, [1, 2].as_slice().into());
        let zeros = scalar(0i32).viewed(Dims::from_slice(&[2, 2]), 0, [0, 0].as_slice().into());
        assert_eq!(values::<i32>(&select(&predicate, &columns, &zeros).unwrap()), [1, 0, 0, 4]);
    }

    #[test]
    fn repeated_operands_compute_one_element() {
        let x = scalar(2f32).viewed(Dims::from_slice(&[3, 4]), 0, [0, 0].as_slice().into());
        let sum = zip::<f32, f32, f32>(&x, &x, |a, b| a + b).unwrap();
        assert_eq!(sum.view::<f32>().unwrap().data, [4.0]);
        assert_eq!(values::<f32>(&sum), [4.0; 12]);
    }

    #[test]
    fn a_sole_owner_is_updated_in_place() {
        let x = f32s(&[2], &[1.0, 2.0]);
        let before = x.view::<f32>().unwrap().data.as_ptr();
        let y = zip_into::<f32, f32>(x, &f32s(&[2], &[3.0, 4.0]), |a, b| a * b).unwrap();
        assert_eq!(y.view::<f32>().unwrap().data.as_ptr(), before);
        assert_eq!(values::<f32>(&y), [3.0, 8.0]);
    }
}
