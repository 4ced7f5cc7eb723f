//! Sorting on the device, for every numeric element type.
//!
//! Sorts are stable, also in descending order: equal elements keep their order. NaN is the largest value: last when
//! ascending, first when descending.

use super::reduce::places;
use super::{broken_rule, expect_dim};
use crate::Tensor;
use crate::trace::{Recorder, record, record_many};
use burn_tpu_graph::{Builder, DType, Dims, NodeId, Result};

/// Returns the elements sorted along `dim`.
pub fn sort(x: Tensor, dim: usize, descending: bool) -> Tensor {
    record("sort", [&x], |r, [x]| ordered(r, x, dim, descending))
}

/// Returns the elements sorted along `dim`, and their original indices.
pub fn sort_with_indices(x: Tensor, dim: usize, descending: bool, index: DType) -> (Tensor, Tensor) {
    let [values, indices] =
        record_many("sort_with_indices", &[&x], |r, nodes| ordered_places(r, nodes[0], dim, descending, index));
    (values, indices)
}

/// Returns the indices that sort the elements along `dim`.
pub fn argsort(x: Tensor, dim: usize, descending: bool, index: DType) -> Tensor {
    record("argsort", [&x], |r, [x]| ordered_places(r, x, dim, descending, index).map(|[_, places]| places))
}

/// Returns the `k` largest elements along `dim`, largest first.
pub fn topk(x: Tensor, dim: usize, k: usize) -> Tensor {
    record("topk", [&x], |r, [x]| largest(r, x, dim, k, DType::I32).map(|[values, _]| values))
}

/// Returns the `k` largest elements along `dim`, largest first, and their indices.
pub fn topk_with_indices(x: Tensor, dim: usize, k: usize, index: DType) -> (Tensor, Tensor) {
    let [values, indices] = record_many("topk_with_indices", &[&x], |r, nodes| largest(r, nodes[0], dim, k, index));
    (values, indices)
}

/// Returns the indices of the `k` largest elements along `dim`, largest first. Of equal elements the lowest index comes
/// first.
pub fn argtopk(x: Tensor, dim: usize, k: usize, index: DType) -> Tensor {
    record("argtopk", [&x], |r, [x]| largest(r, x, dim, k, index).map(|[_, places]| places))
}

/// Returns the `k` largest elements along `dim` and their places.
fn largest(r: &mut Recorder, x: NodeId, dim: usize, k: usize, index: DType) -> Result<[NodeId; 2]> {
    expect_dim(r, "topk", x, dim)?;
    let size = r.dims(x)[dim];
    if k > size {
        return Err(broken_rule(r, "topk", &[x], format!("the {k} largest of dim {dim} of size {size}")));
    }
    // All of them are a sort.
    if k == size || r.ty(x).dtype == DType::Bool || i32::try_from(size).is_err() {
        let [values, places] = ordered_places(r, x, dim, true, index)?;
        return Ok([r.slice_dim(values, dim, 0, k)?, r.slice_dim(places, dim, 0, k)?]);
    }
    // The op searches the last dim.
    let mut order: Dims = (0..r.dims(x).len()).collect();
    order.swap(dim, r.dims(x).len() - 1);
    let x = r.transpose(x, &order)?;
    let (values, places) = r.top_k(x, k)?;
    let places = r.convert(places, index)?;
    Ok([r.transpose(values, &order)?, r.transpose(places, &order)?])
}

fn ordered(r: &mut Recorder, x: NodeId, dim: usize, descending: bool) -> Result<NodeId> {
    Ok(r.sort(&[x], dim, descending)?[0])
}

fn ordered_places(r: &mut Recorder, x: NodeId, dim: usize, descending: bool, index: DType) -> Result<[NodeId; 2]> {
    let places = places(r, x, dim)?;
    let sorted = r.sort(&[x, places], dim, descending)?;
    Ok([sorted[0], r.convert(sorted[1], index)?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{devices, tensor, truths, values};
    use crate::ops::{arithmetic, data};

    #[test]
    fn sorts_along_any_dim_with_indices() {
        for device in devices() {
            let x = data::to_device(tensor([3.0f32, -1.0, 2.0, 0.5, 4.0, -2.0], &[2, 3]), &device);
            assert_eq!(values(sort(x.clone(), 1, false)), [-1.0, 2.0, 3.0, -2.0, 0.5, 4.0]);
            assert_eq!(values(sort(x.clone(), 0, true)), [3.0, 4.0, 2.0, 0.5, -1.0, -2.0]);
            let (sorted, places) = sort_with_indices(x.clone(), 1, true, DType::I64);
            assert_eq!(
                (values(sorted), values(places.clone())),
                (vec![3.0, 2.0, -1.0, 4.0, 0.5, -2.0], vec![0.0, 2.0, 1.0, 1.0, 0.0, 2.0])
            );
            assert_eq!(places.element(), DType::I64);
            assert_eq!(values(argsort(x.clone(), 0, false, DType::U8)), [1.0, 0.0, 1.0, 0.0, 1.0, 0.0]);
            assert_eq!(values(topk(x.clone(), 1, 2)), [3.0, 2.0, 4.0, 0.5]);
            let (largest, places) = topk_with_indices(x.clone(), 1, 2, DType::I64);
            assert_eq!((values(largest), places.element()), (vec![3.0, 2.0, 4.0, 0.5], DType::I64));
            assert_eq!(values(places), [0.0, 2.0, 1.0, 0.0]);
            assert_eq!(values(argtopk(x, 1, 1, DType::I32)), [0.0, 1.0]);
        }
    }

    #[test]
    fn equal_elements_keep_their_order() {
        for device in devices() {
            let x = data::to_device(tensor([2i32, 1, 2, 1, 2], &[5]), &device);
            assert_eq!(values(argsort(x.clone(), 0, false, DType::I32)), [1.0, 3.0, 0.0, 2.0, 4.0]);
            assert_eq!(values(argsort(x.clone(), 0, true, DType::I32)), [0.0, 2.0, 4.0, 1.0, 3.0]);
            assert_eq!(values(argtopk(x, 0, 4, DType::I32)), [0.0, 2.0, 4.0, 1.0]);
        }
    }

    #[test]
    fn nan_is_the_largest() {
        for device in devices() {
            let x = data::to_device(tensor([1.0f32, f32::NAN, f32::INFINITY, -f32::INFINITY], &[4]), &device);
            assert_eq!(values(argsort(x.clone(), 0, false, DType::I32)), [3.0, 0.0, 2.0, 1.0]);
            assert_eq!(values(argsort(x.clone(), 0, true, DType::I32)), [1.0, 2.0, 0.0, 3.0]);
            assert_eq!(truths(arithmetic::is_nan(sort(x, 0, false))), [false, false, false, true]);
        }
    }

    #[test]
    fn zero_and_one_elements_are_sorted() {
        for device in devices() {
            let empty = data::to_device(tensor([0.0f32; 0], &[0, 3]), &device);
            assert_eq!(argsort(empty.clone(), 0, false, DType::I32).dims(), [0, 3]);
            assert_eq!(values(sort(empty, 1, false)), [0.0; 0]);
            let one = data::to_device(tensor([7i64], &[1, 1]), &device);
            assert_eq!(values(argsort(one, 0, true, DType::I32)), [0.0]);
        }
    }
}
