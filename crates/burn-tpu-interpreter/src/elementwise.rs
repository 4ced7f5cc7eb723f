//! Element-wise loops over tensors, and the element-wise ops that are in no table: select, clamp, complex parts.
//!
//! If all operands repeat along a dim, one result is computed and repeated: an op on broadcast scalars computes one element.

use super::buffer::{C64, Element, dispatch};
use super::error::Result;
use super::numeric::Number;
use super::tensor::HostTensor;
use super::walk::{self, View, Walk, at, row_major};
use burn_tpu_graph::Dims;
use std::sync::Arc;

/// Returns the dims with size 1 for those along which every operand repeats.
fn distinct(operands: &[&HostTensor]) -> Dims {
    let Some(first) = operands.first() else { return Dims::new() };
    let repeats = |d: usize| operands.iter().all(|x| x.strides()[d] == 0);
    let size = |(d, &size): (usize, &usize)| if size > 0 && repeats(d) { 1 } else { size };
    first.dims().iter().enumerate().map(size).collect()
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
pub(super) fn map_into<T: Element>(x: HostTensor, f: impl Fn(T) -> T) -> Result<HostTensor> {
    if !x.is_owned::<T>() {
        return map(&x, f);
    }
    let dims = x.dims().clone();
    let mut out = x.into_owned::<T>()?;
    Arc::make_mut(&mut out).iter_mut().for_each(|v| *v = f(*v));
    Ok(HostTensor::strided(&dims, row_major(&dims), out))
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
    a: HostTensor,
    b: &HostTensor,
    f: impl Fn(T, B) -> T,
) -> Result<HostTensor> {
    if !a.is_owned::<T>() {
        return zip(&a, b, f);
    }
    let dims = a.dims().clone();
    let mut out = a.into_owned::<T>()?;
    walk::update(&dims, Arc::make_mut(&mut out).as_mut_slice(), b.view()?, f);
    Ok(HostTensor::strided(&dims, row_major(&dims), out))
}

/// Returns `on_true` where the predicate holds, otherwise `on_false`.
pub(super) fn select(predicate: &HostTensor, on_true: &HostTensor, on_false: &HostTensor) -> Result<HostTensor> {
    let dims = distinct(&[predicate, on_true, on_false]);
    dispatch!(on_true.dtype(), T => {
        let chosen = choose::<T>(&dims, predicate.view()?, on_true.view()?, on_false.view()?);
        Ok(repeated(on_true.dims(), &dims, chosen))
    })
}

fn choose<T: Element>(dims: &[usize], predicate: View<bool>, on_true: View<T>, on_false: View<T>) -> Vec<T> {
    let walk = Walk::new(dims, [predicate.strides, on_true.strides, on_false.strides]);
    let mut out = Vec::with_capacity(dims.iter().product());
    let len = walk.len;
    let pick = |holds: bool, yes: T, no: T| if holds { yes } else { no };
    walk.runs([predicate.offset, on_true.offset, on_false.offset], |[i, j, k]| match walk.steps {
        [1, 1, 1] => {
            let (mask, choices) =
                (&predicate.data[i..i + len], on_true.data[j..j + len].iter().zip(&on_false.data[k..]));
            out.extend(mask.iter().zip(choices).map(|(&holds, (&yes, &no))| pick(holds, yes, no)));
        }
        [1, 1, 0] => {
            let (mask, no) = (&predicate.data[i..i + len], on_false.data[k]);
            out.extend(mask.iter().zip(&on_true.data[j..j + len]).map(|(&holds, &yes)| pick(holds, yes, no)));
        }
        [1, 0, 1] => {
            let (mask, yes) = (&predicate.data[i..i + len], on_true.data[j]);
            out.extend(mask.iter().zip(&on_false.data[k..k + len]).map(|(&holds, &no)| pick(holds, yes, no)));
        }
        [p, t, f] => {
            let at = |n| (predicate.data[at(i, p, n)], on_true.data[at(j, t, n)], on_false.data[at(k, f, n)]);
            out.extend((0..len).map(at).map(|(holds, yes, no)| pick(holds, yes, no)));
        }
    });
    out
}

/// Returns min(max(x, low), high): the upper bound wins if it is below the lower one, and NaN in any operand is NaN.
pub(super) fn clamp<T: Number>(low: &HostTensor, x: HostTensor, high: &HostTensor) -> Result<HostTensor> {
    zip_into(zip_into(x, low, T::larger)?, high, T::smaller)
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

    #[test]
    fn in_clamp_the_upper_bound_wins_and_nan_is_kept() {
        let low = f32s(&[5], &[0.0, 0.0, f32::NAN, 0.0, 5.0]);
        let high = f32s(&[5], &[1.0, 1.0, 1.0, f32::NAN, 2.0]);
        let x = f32s(&[5], &[f32::NAN, -1.0, 1.0, 1.0, 3.0]);
        let clamped = values::<f32>(&clamp::<f32>(&low, x, &high).unwrap());
        assert!(clamped[0].is_nan() && clamped[2].is_nan() && clamped[3].is_nan());
        assert_eq!((clamped[1], clamped[4]), (0.0, 2.0));
    }
}
