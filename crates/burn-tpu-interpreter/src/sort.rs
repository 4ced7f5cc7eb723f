//! Sorting along a dim: all operands by the first, stably.

use super::binary::binary;
use super::buffer::{dispatch, dispatch_some};
use super::convert::splat;
use super::error::Result;
use super::movement::transpose;
use super::numeric::Order;
use super::subnormal;
use super::tensor::HostTensor;
use burn_tpu_graph::Dims;
use burn_tpu_graph::op::BinaryOp;

/// Returns all operands in the order of the first one. Both zeros are equal; NaNs are equal, last when ascending and
/// first when descending.
pub(super) fn sort(operands: &[HostTensor], dim: usize, descending: bool) -> Result<Vec<HostTensor>> {
    let Some(first) = operands.first() else { return Err("takes at least one operand".into()) };
    let rank = first.dims().len();
    // The sorted dim becomes the innermost, so that a line to sort is a slice.
    let order: Dims = (0..rank).filter(|&d| d != dim).chain([dim]).collect();
    let inverse: Dims = (0..rank).map(|d| order.iter().position(|&o| o == d).unwrap_or(d)).collect();
    let places = sorted_places(&transpose(first.clone(), &order), descending)?;
    let sorted = |x: &HostTensor| {
        let inner = transpose(x.clone(), &order);
        Ok(transpose(taken(&inner, &places, inner.dims())?, &inverse))
    };
    operands.iter().map(sorted).collect()
}

/// Returns a number per element, row-major, with the order of the elements.
pub(super) fn keys(x: &HostTensor) -> Result<Vec<u64>> {
    fn of<T: Order>(x: &HostTensor) -> Result<Vec<u64>> {
        Ok(x.elements::<T>()?.iter().map(|&v| v.key()).collect())
    }
    dispatch_some!(x.dtype(), T => of::<T>(x);
        Bool bool, I8 i8, I16 i16, I32 i32, I64 i64, U8 u8, U16 u16, U32 u32, U64 u64,
        BF16 half::bf16, F16 half::f16, F32 f32, F64 f64; C64)
}

/// Returns [`keys`], each replaced by one with the opposite order.
fn descending_keys(x: &HostTensor) -> Result<Vec<u64>> {
    Ok(keys(x)?.into_iter().map(|key| !key).collect())
}

/// Returns the place of the element for every place of the result, row-major with the sorted dim innermost.
fn sorted_places(x: &HostTensor, descending: bool) -> Result<Vec<usize>> {
    let keys = if descending { descending_keys(x)? } else { keys(x)? };
    let mut places: Vec<usize> = (0..keys.len()).collect();
    for line in places.chunks_mut(line(x)) {
        line.sort_by_key(|&place| keys[place]);
    }
    Ok(places)
}

/// Returns the length of the innermost dim, at least 1.
pub(super) fn line(x: &HostTensor) -> usize {
    x.dims().last().copied().unwrap_or(1).max(1)
}

/// Returns the elements at the places, counted row-major.
pub(super) fn taken(x: &HostTensor, places: &[usize], dims: &[usize]) -> Result<HostTensor> {
    dispatch!(x.dtype(), T => {
        let data = x.elements::<T>()?;
        Ok(HostTensor::new(dims, places.iter().map(|&place| data[place]).collect()))
    })
}

/// Returns the `k` largest elements along the last dim, largest first, and their places. The caller has widened 16-bit
/// floats. Zeros have no sign in the result, and subnormal numbers are zeros.
pub(super) fn top_k(x: &HostTensor, k: usize) -> Result<[HostTensor; 2]> {
    let (keys, line) = (descending_keys(x)?, line(x));
    let mut dims = x.dims().clone();
    dims.iter_mut().rev().take(1).for_each(|size| *size = k);
    let (mut largest, mut found) = (Vec::new(), Vec::new());
    let mut places: Vec<usize> = Vec::new();
    for start in (0..keys.len()).step_by(line) {
        // Ordered by place too, so that it is the order of a stable sort.
        let order = |&place: &usize| (keys[place], place);
        places.clear();
        places.extend(start..start + line);
        if k < places.len() {
            places.select_nth_unstable_by_key(k, order);
        }
        places[..k].sort_unstable_by_key(order);
        largest.extend_from_slice(&places[..k]);
        found.extend(places[..k].iter().map(|&place| (place - start) as i32));
    }
    let mut values = taken(x, &largest, &dims)?;
    subnormal::flush(&mut values)?;
    let zero = splat(x.dtype(), &dims, 0);
    Ok([binary(BinaryOp::Add, values, zero)?, HostTensor::new(&dims, found)])
}

#[cfg(test)]
mod tests {
    use super::super::buffer::Element;
    use super::super::testing::{Trial, values};
    use burn_tpu_graph::{Builder, DType};

    /// The sorted keys, and where each came from.
    fn sorted<T: Element>(dims: &[usize], x: &[T], dim: usize, descending: bool) -> (Vec<T>, Vec<i32>) {
        let mut t = Trial::default();
        let x = t.input(dims, x);
        let indices = t.graph.iota(DType::I32, dims, dim).unwrap();
        let both = t.graph.sort(&[x, indices], dim, descending).unwrap();
        let found = t.run(&both);
        (values(&found[0]), values(&found[1]))
    }

    #[test]
    fn equal_keys_keep_their_order_in_both_directions() {
        assert_eq!(sorted(&[4], &[2, 1, 2, 1], 0, false), (vec![1, 1, 2, 2], vec![1, 3, 0, 2]));
        assert_eq!(sorted(&[4], &[2, 1, 2, 1], 0, true), (vec![2, 2, 1, 1], vec![0, 2, 1, 3]));
        assert_eq!(sorted(&[2], &[0f32, -0.], 0, false).1, [0, 1]);
    }

    #[test]
    fn nan_sorts_above_every_number() {
        let x = [f32::NAN, f32::INFINITY, -f32::NAN, 1., f32::NEG_INFINITY];
        assert_eq!(sorted(&[5], &x, 0, false).1, [4, 3, 1, 0, 2]);
        assert_eq!(sorted(&[5], &x, 0, true).1, [0, 2, 1, 3, 4]);
    }

    #[test]
    fn other_dims_sort_line_by_line() {
        assert_eq!(sorted(&[2, 2], &[3u8, 1, 2, 5], 0, false), (vec![2, 1, 3, 5], vec![1, 0, 0, 1]));
        assert_eq!(sorted(&[2, 2], &[3u8, 1, 2, 5], 1, true), (vec![3, 1, 5, 2], vec![0, 1, 1, 0]));
    }

    #[test]
    fn unsigned_keys_and_bools_use_their_own_order() {
        assert_eq!(sorted(&[2], &[u64::MAX, 1], 0, false).0, [1, u64::MAX]);
        assert_eq!(sorted(&[3], &[true, false, true], 0, false).1, [1, 0, 2]);
    }

    #[test]
    fn top_k_is_the_beginning_of_a_descending_sort() {
        let largest = |x: &[f32], k| {
            let mut t = Trial::default();
            let x = t.input(&[2, x.len() / 2], x);
            let (of, at) = t.graph.top_k(x, k).unwrap();
            let found = t.run(&[of, at]);
            (values::<f32>(&found[0]), values::<i32>(&found[1]))
        };
        let (of, at) = largest(&[1.0, 3.0, 3.0, -2.0, -0.0, 0.0, -1.0, 0.0], 3);
        assert_eq!((&of[..3], &at[..3]), (&[3.0, 3.0, 1.0][..], &[1, 2, 0][..]));
        assert_eq!((of[3..].iter().map(|x| x.to_bits()).collect::<Vec<_>>(), &at[3..]), (vec![0; 3], &[0, 1, 3][..]));
        let (of, at) = largest(&[1.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY], 2);
        assert!(of[0].is_nan() && of[1] == 1.0 && of[2..] == [f32::INFINITY, f32::NEG_INFINITY], "{of:?}");
        assert_eq!(at, [1, 0, 0, 1]);
        assert_eq!(largest(&[1.0, 2.0], 0), (vec![], vec![]));
    }

    #[test]
    fn empty_and_single_lines_are_sorted() {
        assert_eq!(sorted::<f32>(&[0], &[], 0, false), (vec![], vec![]));
        assert_eq!(sorted::<f32>(&[2, 0], &[], 1, false), (vec![], vec![]));
        assert_eq!(sorted(&[1, 2], &[4i8, 3], 0, true), (vec![4, 3], vec![0, 0]));
    }
}
