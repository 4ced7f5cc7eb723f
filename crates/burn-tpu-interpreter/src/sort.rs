//! Sorting along a dim: all operands by the first, stably.

use super::buffer::{Element, dispatch, dispatch_numeric};
use super::error::Result;
use super::movement::transpose;
use super::numeric::{Number, Order};
use super::tensor::HostTensor;
use super::walk::{Strides, row_major};
use burn_tpu_graph::{DType, Dims};

/// Returns all operands in the order of the first one. Both zeros are equal; NaNs are equal, last when ascending and
/// first when descending.
pub(super) fn sort(operands: &[HostTensor], dim: usize, descending: bool) -> Result<Vec<HostTensor>> {
    let Some(first) = operands.first() else { return Err("takes at least one operand".into()) };
    let rank = first.dims().len();
    // The sorted dim becomes the innermost, so that a line to sort is a slice.
    let order: Dims = (0..rank).filter(|&d| d != dim).chain([dim]).collect();
    let inner: Vec<HostTensor> = operands.iter().map(|x| transpose(x.clone(), &order)).collect();
    let Some(key) = inner.first() else { return Ok(Vec::new()) };
    let places = places(key, descending)?;
    inner.iter().map(|x| dispatch!(x.dtype(), T => reordered::<T>(x, &places, &order))).collect()
}

/// Returns the place of the element for every place of the result, row-major with the sorted dim innermost.
fn places(key: &HostTensor, descending: bool) -> Result<Vec<usize>> {
    match key.dtype() {
        DType::Bool => sorted_places::<bool>(key, descending),
        DType::I8 => sorted_places::<i8>(key, descending),
        DType::I16 => sorted_places::<i16>(key, descending),
        DType::I32 => sorted_places::<i32>(key, descending),
        DType::I64 => sorted_places::<i64>(key, descending),
        DType::U8 => sorted_places::<u8>(key, descending),
        DType::U16 => sorted_places::<u16>(key, descending),
        DType::U32 => sorted_places::<u32>(key, descending),
        DType::U64 => sorted_places::<u64>(key, descending),
        DType::BF16 => sorted_places::<half::bf16>(key, descending),
        DType::F16 => sorted_places::<half::f16>(key, descending),
        DType::F32 => sorted_places::<f32>(key, descending),
        DType::F64 => sorted_places::<f64>(key, descending),
        DType::C64 => Err("complex numbers have no order".into()),
    }
}

fn sorted_places<T: Order>(key: &HostTensor, descending: bool) -> Result<Vec<usize>> {
    let keys = key.elements::<T>()?;
    let mut places: Vec<usize> = (0..keys.len()).collect();
    let line = key.dims().last().copied().unwrap_or(1).max(1);
    for line in places.chunks_mut(line) {
        if descending {
            line.sort_by(|&a, &b| keys[b].order(&keys[a]));
        } else {
            line.sort_by(|&a, &b| keys[a].order(&keys[b]));
        }
    }
    Ok(places)
}

fn reordered<T: Element>(x: &HostTensor, places: &[usize], order: &[usize]) -> Result<HostTensor> {
    let data = x.elements::<T>()?;
    let sorted: Vec<T> = places.iter().map(|&place| data[place]).collect();
    let inner = row_major(x.dims());
    let (mut dims, mut strides) = (x.dims().clone(), Strides::from_elem(0, order.len()));
    for (i, &d) in order.iter().enumerate() {
        dims[d] = x.dims()[i];
        strides[d] = inner[i];
    }
    Ok(HostTensor::strided(&dims, strides, std::sync::Arc::new(sorted)))
}

/// Returns the `k` largest elements along the last dim, largest first, and their places. The caller has widened 16-bit
/// floats.
pub(super) fn top_k(x: &HostTensor, k: usize) -> Result<[HostTensor; 2]> {
    dispatch_numeric!(x.dtype(), T => largest::<T>(x, k))
}

fn largest<T: Number + Order>(x: &HostTensor, k: usize) -> Result<[HostTensor; 2]> {
    let elements = x.elements::<T>()?;
    let mut dims = x.dims().clone();
    let line = dims.pop().unwrap_or(1);
    dims.push(k);
    let (mut values, mut found) = (Vec::new(), Vec::new());
    let mut places: Vec<i32> = Vec::new();
    for line in elements.chunks(line.max(1)) {
        // Ordered by place too, so that it is the order of a stable sort.
        let order = |a: &i32, b: &i32| line[*b as usize].order(&line[*a as usize]).then(a.cmp(b));
        places.clear();
        places.extend(0..line.len() as i32);
        if k < places.len() {
            places.select_nth_unstable_by(k, order);
        }
        places[..k].sort_unstable_by(order);
        found.extend_from_slice(&places[..k]);
        let canonical = |x: T| if x == T::ZERO { T::ZERO } else { x };
        values.extend(places[..k].iter().map(|&place| canonical(line[place as usize])));
    }
    Ok([HostTensor::new(&dims, values), HostTensor::new(&dims, found)])
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Trial, values};
    use super::*;
    use burn_tpu_graph::Builder;

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
