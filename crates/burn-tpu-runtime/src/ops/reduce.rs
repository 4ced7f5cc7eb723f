//! Reductions, argmax and argmin, and cumulative reductions, for every element type.
//!
//! Sums, products and means of 16-bit floats run in f32 and are rounded once. A NaN counts as both the largest and the
//! smallest value, so `max` and `min` return it and `argmax` and `argmin` return its index. Of equal values the first
//! one is taken. Zero elements have no extreme value and no integer mean, so these panic at record time. An empty sum
//! is 0, an empty product 1, an empty float mean NaN.

use super::broken_rule;
use crate::trace::{Recorder, record, record_many};
use crate::{Platform, Tensor};
use burn_tpu_graph::op::{BinaryOp, Combine, UnaryOp, WindowAttrs};
use burn_tpu_graph::{Builder, DType, Dims, Literal, LiteralData, NodeId, Number, Result, TensorType};

/// Returns the sum of all elements, `[1]`.
pub fn sum(x: Tensor) -> Tensor {
    whole("sum", x, |r, x, dims| r.accumulate(Combine::Sum, x, dims))
}

/// Returns the product of all elements, `[1]`.
pub fn prod(x: Tensor) -> Tensor {
    whole("prod", x, |r, x, dims| r.accumulate(Combine::Prod, x, dims))
}

/// Returns the mean of all elements, `[1]`. Integers truncate toward zero.
pub fn mean(x: Tensor) -> Tensor {
    whole("mean", x, average)
}

/// Returns the largest element, `[1]`.
pub fn max(x: Tensor) -> Tensor {
    whole("max", x, |r, x, dims| extreme(r, Combine::Max, x, dims))
}

/// Returns the smallest element, `[1]`.
pub fn min(x: Tensor) -> Tensor {
    whole("min", x, |r, x, dims| extreme(r, Combine::Min, x, dims))
}

/// Returns the largest absolute value, `[1]`.
pub fn max_abs(x: Tensor) -> Tensor {
    whole("max_abs", x, largest_magnitude)
}

/// Returns whether any element is not zero, `[1]`.
pub fn any(x: Tensor) -> Tensor {
    whole("any", x, |r, x, dims| truth(r, Combine::Or, x, dims))
}

/// Returns whether no element is zero, `[1]`.
pub fn all(x: Tensor) -> Tensor {
    whole("all", x, |r, x, dims| truth(r, Combine::And, x, dims))
}

/// Returns the sum along `dim`, which is kept with size 1.
pub fn sum_dim(x: Tensor, dim: usize) -> Tensor {
    along("sum_dim", x, dim, |r, x, dims| r.accumulate(Combine::Sum, x, dims))
}

/// Returns the sum along several dims, which are kept with size 1.
pub fn sum_dims(x: Tensor, dims: &[usize]) -> Tensor {
    record("sum_dims", [&x], |r, [x]| {
        count(r, x, dims)?;
        let sum = r.accumulate(Combine::Sum, x, dims)?;
        let mut kept = r.dims(x);
        dims.iter().for_each(|&dim| kept[dim] = 1);
        r.reshape(sum, &kept)
    })
}

/// Returns the product along `dim`, which is kept with size 1.
pub fn prod_dim(x: Tensor, dim: usize) -> Tensor {
    along("prod_dim", x, dim, |r, x, dims| r.accumulate(Combine::Prod, x, dims))
}

/// Returns the mean along `dim`, which is kept with size 1. Integers truncate toward zero.
pub fn mean_dim(x: Tensor, dim: usize) -> Tensor {
    along("mean_dim", x, dim, average)
}

/// Returns the largest element along `dim`, which is kept with size 1.
pub fn max_dim(x: Tensor, dim: usize) -> Tensor {
    along("max_dim", x, dim, |r, x, dims| extreme(r, Combine::Max, x, dims))
}

/// Returns the smallest element along `dim`, which is kept with size 1.
pub fn min_dim(x: Tensor, dim: usize) -> Tensor {
    along("min_dim", x, dim, |r, x, dims| extreme(r, Combine::Min, x, dims))
}

/// Returns the largest absolute value along `dim`, which is kept with size 1.
pub fn max_abs_dim(x: Tensor, dim: usize) -> Tensor {
    along("max_abs_dim", x, dim, largest_magnitude)
}

/// Returns whether any element along `dim` is not zero.
pub fn any_dim(x: Tensor, dim: usize) -> Tensor {
    along("any_dim", x, dim, |r, x, dims| truth(r, Combine::Or, x, dims))
}

/// Returns whether no element along `dim` is zero.
pub fn all_dim(x: Tensor, dim: usize) -> Tensor {
    along("all_dim", x, dim, |r, x, dims| truth(r, Combine::And, x, dims))
}

/// Returns the largest elements along `dim` and their indices.
pub fn max_dim_with_indices(x: Tensor, dim: usize, index: DType) -> (Tensor, Tensor) {
    let [values, indices] =
        record_many("max_dim_with_indices", &[&x], |r, nodes| located_extreme(r, true, nodes[0], dim, index));
    (values, indices)
}

/// Returns the smallest elements along `dim` and their indices.
pub fn min_dim_with_indices(x: Tensor, dim: usize, index: DType) -> (Tensor, Tensor) {
    let [values, indices] =
        record_many("min_dim_with_indices", &[&x], |r, nodes| located_extreme(r, false, nodes[0], dim, index));
    (values, indices)
}

/// Returns the type of positions in an integer tensor, for front ends whose integer ops do not name one: the tensor's type,
/// unless it is too narrow for the count.
pub fn position_type(x: &Tensor) -> DType {
    let own = x.element();
    if own.size_bytes() < DType::I32.size_bytes() { DType::I32 } else { own }
}

/// Returns the indices of the largest elements along `dim`, which is kept with size 1.
pub fn argmax(x: Tensor, dim: usize, index: DType) -> Tensor {
    record("argmax", [&x], |r, [x]| located_extreme(r, true, x, dim, index).map(|[_, place]| place))
}

/// Returns the indices of the smallest elements along `dim`, which is kept with size 1.
pub fn argmin(x: Tensor, dim: usize, index: DType) -> Tensor {
    record("argmin", [&x], |r, [x]| located_extreme(r, false, x, dim, index).map(|[_, place]| place))
}

/// Returns the cumulative sum along `dim`.
pub fn cumsum(x: Tensor, dim: usize) -> Tensor {
    running("cumsum", Combine::Sum, x, dim)
}

/// Returns the cumulative product along `dim`.
pub fn cumprod(x: Tensor, dim: usize) -> Tensor {
    running("cumprod", Combine::Prod, x, dim)
}

/// Returns the cumulative minimum along `dim`. From the first NaN on, all elements are NaN.
pub fn cummin(x: Tensor, dim: usize) -> Tensor {
    running("cummin", Combine::Min, x, dim)
}

/// Returns the cumulative maximum along `dim`. From the first NaN on, all elements are NaN.
pub fn cummax(x: Tensor, dim: usize) -> Tensor {
    running("cummax", Combine::Max, x, dim)
}

/// Records a reduction of all dims. The result is `[1]`, since Burn has no rank 0.
fn whole(
    op: &'static str,
    x: Tensor,
    reduce: impl FnOnce(&mut Recorder, NodeId, &[usize]) -> Result<NodeId>,
) -> Tensor {
    record(op, [&x], |r, [x]| {
        let dims: Dims = (0..r.rank(x)).collect();
        let reduced = reduce(r, x, &dims)?;
        r.reshape(reduced, &[1])
    })
}

/// Records a reduction of one dim, which is kept with size 1.
fn along(
    op: &'static str,
    x: Tensor,
    dim: usize,
    reduce: impl FnOnce(&mut Recorder, NodeId, &[usize]) -> Result<NodeId>,
) -> Tensor {
    record(op, [&x], |r, [x]| {
        let reduced = reduce(r, x, &[dim])?;
        keep_dim(r, reduced, x, dim)
    })
}

/// Returns `reduced` with the removed dim of `x` inserted again, with size 1.
fn keep_dim(r: &mut Recorder, reduced: NodeId, x: NodeId, dim: usize) -> Result<NodeId> {
    let mut dims = r.dims(x);
    dims[dim] = 1;
    r.reshape(reduced, &dims)
}

/// Returns the number of elements that one result combines.
fn count(r: &Recorder, x: NodeId, dims: &[usize]) -> Result<usize> {
    let size = |&dim: &usize| {
        r.ty(x).dims.get(dim).copied().ok_or_else(|| broken_rule(r, "reduce", &[x], format!("there is no dim {dim}")))
    };
    dims.iter().map(size).product()
}

/// Rejects a reduction of zero elements. A result without elements reads nothing and is allowed.
fn reject_empty(r: &Recorder, what: &'static str, x: NodeId, dims: &[usize]) -> Result<()> {
    let sizes = r.ty(x).dims.iter().enumerate();
    let results = sizes.filter(|(dim, _)| !dims.contains(dim)).all(|(_, &size)| size > 0);
    if results && count(r, x, dims)? == 0 {
        return Err(broken_rule(
            r,
            "reduce",
            &[x],
            format!("there are no elements along dims {dims:?}, so there is no {what}"),
        ));
    }
    Ok(())
}

fn extreme(r: &mut Recorder, combine: Combine, x: NodeId, dims: &[usize]) -> Result<NodeId> {
    reject_empty(r, "extreme value", x, dims)?;
    r.reduce(combine, x, dims)
}

fn largest_magnitude(r: &mut Recorder, x: NodeId, dims: &[usize]) -> Result<NodeId> {
    let unsigned = r.dtype(x).is_unsigned_int();
    let x = if unsigned { x } else { r.unary(UnaryOp::Abs, x)? };
    extreme(r, Combine::Max, x, dims)
}

fn truth(r: &mut Recorder, combine: Combine, x: NodeId, dims: &[usize]) -> Result<NodeId> {
    let x = r.convert(x, DType::Bool)?;
    r.reduce(combine, x, dims)
}

/// Divides the sum by the count in a type that holds both: f32 for 16-bit floats (an f16 sum overflows at 65504), 32
/// bits for narrow integers (the count alone may not fit), 64 for a count that needs them.
fn average(r: &mut Recorder, x: NodeId, dims: &[usize]) -> Result<NodeId> {
    let dtype = r.dtype(x);
    let count = count(r, x, dims)?;
    let wide = mean_type(dtype, count);
    let number = if dtype.is_float() { Number::Float(count as f64) } else { Number::Int(count as i64) };
    if !dtype.is_float() {
        reject_empty(r, "integer mean", x, dims)?;
    }
    let x = r.convert(x, wide)?;
    let sum = r.reduce(Combine::Sum, x, dims)?;
    let mean = r.binary_const(BinaryOp::Div, sum, number)?;
    r.convert(mean, dtype)
}

fn mean_type(dtype: DType, count: usize) -> DType {
    match dtype {
        DType::I8 | DType::I16 | DType::I32 if i32::try_from(count).is_ok() => DType::I32,
        DType::I8 | DType::I16 | DType::I32 => DType::I64,
        DType::U8 | DType::U16 | DType::U32 if u32::try_from(count).is_ok() => DType::U32,
        DType::U8 | DType::U16 | DType::U32 => DType::U64,
        other => other.accumulator(),
    }
}

/// Returns 0, 1, 2, … along `dim`, with the dims of `x`, in 32 bits if they suffice: TPUs have no wider integers in
/// hardware, and a narrower index type of the caller must not wrap before the comparison of indices.
pub fn places(r: &mut Recorder, x: NodeId, dim: usize) -> Result<NodeId> {
    let dims = r.dims(x);
    let long = dims.get(dim).is_some_and(|&size| i32::try_from(size).is_err());
    r.iota(if long { DType::I64 } else { DType::I32 }, &dims, dim)
}

/// Returns the extreme values along `dim` and their indices in the type `index`, both with `dim` of size 1.
fn located_extreme(r: &mut Recorder, max: bool, x: NodeId, dim: usize, index: DType) -> Result<[NodeId; 2]> {
    let places = places(r, x, dim)?;
    let (value, place) = r.arg_reduce(max, x, places, dim)?;
    let place = r.convert(place, index)?;
    Ok([keep_dim(r, value, x, dim)?, keep_dim(r, place, x, dim)?])
}

/// Records a cumulative reduction. XLA rewrites a window that extends back to the start into a tree of short windows:
/// on the CPU plugin (0.0.1, f32 `[1, 131072]`) that takes 0.7 ms against 3.2 ms for log-steps, and on a v5e 7 us
/// against 24 us by its compiler's estimate. The window is also faster at `[4096, 8]` and `[512, 512]`, for sum,
/// product and maximum. The interpreter reads every element of every window, so it uses the log-steps.
fn running(op: &'static str, combine: Combine, x: Tensor, dim: usize) -> Tensor {
    let interpreted = x.device().platform() == Platform::NdArray;
    let rounds = matches!(combine, Combine::Sum | Combine::Prod);
    record(op, [&x], |r, [x]| {
        if count(r, x, &[dim])? <= 1 {
            return Ok(x);
        }
        let dtype = r.dtype(x);
        let x = r.convert(x, if rounds { dtype.accumulator() } else { dtype })?;
        let prefixes = if interpreted { doubling(r, combine, x, dim)? } else { growing_window(r, combine, x, dim)? };
        r.convert(prefixes, dtype)
    })
}

/// Combines elements 0 to `i` along `dim` in element `i`: a window of the length of the dim ends at each element.
fn growing_window(r: &mut Recorder, combine: Combine, x: NodeId, dim: usize) -> Result<NodeId> {
    let (rank, size) = (r.rank(x), r.ty(x).dims[dim]);
    let ones = Dims::from_elem(1, rank);
    let mut window = WindowAttrs {
        dims: ones.clone(),
        strides: ones.clone(),
        base_dilation: ones.clone(),
        window_dilation: ones,
        padding: std::iter::repeat_n((0, 0), rank).collect(),
    };
    window.dims[dim] = size;
    window.padding[dim].0 = size as isize - 1;
    r.reduce_window(combine, x, window)
}

/// Computes the same as [`growing_window`] in log-steps: the rounds combine elements at distance 1, 2, 4, ….
fn doubling(r: &mut Recorder, combine: Combine, x: NodeId, dim: usize) -> Result<NodeId> {
    let (dtype, rank, size) = (r.dtype(x), r.rank(x), r.ty(x).dims[dim]);
    let data = LiteralData::Splat(combine.identity_bits(dtype));
    let neutral = r.constant(Literal { ty: TensorType::scalar(dtype), data })?;
    let mut prefixes = x;
    let mut distance = 1;
    while distance < size {
        let (mut low, mut high) = (vec![0; rank], vec![0; rank]);
        (low[dim], high[dim]) = (distance as isize, -(distance as isize));
        let before = r.pad(prefixes, neutral, &low, &high, &vec![0; rank])?;
        prefixes = r.binary(combine.op(), before, prefixes)?;
        distance *= 2;
    }
    Ok(prefixes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Device;
    use crate::ops::data::to_device;
    use crate::ops::testing::{devices, tensor, tensor_of, truths, values};

    const NAN: f32 = f32::NAN;

    #[test]
    fn whole_tensors_and_dims() {
        for device in devices() {
            let x = to_device(tensor([1.0f32, -2.0, 3.0, 4.0, 5.0, -6.0], &[2, 3]), &device);
            let whole = [sum, prod, max, min, max_abs].map(|op| values(op(x.clone()))[0]);
            assert_eq!(whole, [5.0, 720.0, 5.0, -6.0, 6.0]);
            // XLA divides by a constant with its reciprocal, which may differ in the last bit.
            assert!((values(mean(x.clone()))[0] - 5.0 / 6.0).abs() < 1e-7);
            assert_eq!(sum(x.clone()).dims(), [1]);
            assert_eq!(values(sum_dim(x.clone(), 0)), [5.0, 3.0, -3.0]);
            assert_eq!(values(prod_dim(x.clone(), 1)), [-6.0, -120.0]);
            assert_eq!(values(max_abs_dim(x.clone(), 1)), [3.0, 6.0]);
            assert_eq!(mean_dim(x.clone(), 1).dims(), [2, 1]);
            let (values_, places) = max_dim_with_indices(x.clone(), 0, DType::I64);
            assert_eq!((values(values_), values(places)), (vec![4.0, 5.0, 3.0], vec![1.0, 1.0, 0.0]));
            assert_eq!(values(min_dim_with_indices(x, 1, DType::I32).1), [1.0, 2.0]);
        }
    }

    #[test]
    fn intermediate_sums_do_not_overflow() {
        for device in devices() {
            let f16 = to_device(tensor_of(DType::F16, &[60000.0; 4], &[4]), &device);
            assert_eq!(values(mean(f16.clone())), values(max(f16)));
            let ones = to_device(tensor_of(DType::BF16, &[1.0; 600], &[600]), &device);
            assert_eq!(values(sum(ones.clone())), [600.0]);
            assert_eq!(values(cumsum(ones, 0))[511], 512.0);
            let i8s = to_device(tensor([100i8; 200], &[200]), &device);
            assert_eq!(values(mean(i8s.clone())), [100.0]);
            assert_eq!(values(mean(to_device(tensor([-3i32, -4], &[2]), &device))), [-3.0], "truncates");
        }
    }

    #[test]
    fn the_count_of_an_integer_mean_does_not_wrap() {
        let one = i32::MAX as usize;
        assert_eq!([one, one + 1].map(|count| mean_type(DType::I32, count)), [DType::I32, DType::I64]);
        assert_eq!([2 * one + 1, 2 * one + 2].map(|count| mean_type(DType::U8, count)), [DType::U32, DType::U64]);
    }

    #[test]
    fn nan_wins_and_the_first_of_equal_values_is_taken() {
        for device in devices() {
            let x = to_device(tensor([1.0, NAN, 3.0, NAN, 3.0, 0.0, 3.0, 1.0], &[2, 4]), &device);
            let nan = [max(x.clone()), min(x.clone()), max_abs(x.clone())].map(|y| values(y)[0].is_nan());
            assert_eq!(nan, [true; 3], "{device}");
            assert_eq!(values(argmax(x.clone(), 1, DType::I32)), [1.0, 0.0]);
            assert_eq!(values(argmin(x.clone(), 1, DType::I32)), [1.0, 1.0]);
            let nans: Vec<_> = values(cummax(x, 1)).into_iter().map(f64::is_nan).collect();
            assert_eq!(nans, [false, true, true, true, false, false, false, false]);
        }
    }

    #[test]
    fn any_and_all_of_numbers() {
        for device in devices() {
            let x = to_device(tensor([0.0, NAN, 0.0, 0.0], &[2, 2]), &device);
            assert_eq!(truths(any_dim(x.clone(), 1)), [true, false]);
            assert_eq!([truths(any(x.clone())), truths(all(x))], [[true], [false]]);
            let empty = to_device(tensor([0i32; 0], &[0, 2]), &device);
            assert_eq!((truths(any_dim(empty.clone(), 0)), truths(all(empty))), (vec![false, false], vec![true]));
        }
    }

    #[test]
    fn cumulative_reductions_of_every_length() {
        for device in devices() {
            for size in [1, 2, 3, 7, 64, 65, 300] {
                let numbers: Vec<i32> = (0..2 * size as i32).map(|i| (i * 7919) % 13 - 6).collect();
                let x = to_device(tensor(numbers.clone(), &[2, size]), &device);
                for (op, step) in RUNNING {
                    let expected = numbers.chunks(size).flat_map(|row| {
                        row.iter().scan(None, |total: &mut Option<i32>, &v| {
                            *total = Some(total.map_or(v, |t| step(t, v)));
                            *total
                        })
                    });
                    assert_eq!(
                        values(op(x.clone(), 1)),
                        expected.map(f64::from).collect::<Vec<_>>(),
                        "{size} on {device}"
                    );
                }
            }
            let columns = to_device(tensor([1.0f32, 2.0, 3.0, 4.0], &[2, 2]), &device);
            assert_eq!(values(cumprod(columns, 0)), [1.0, 2.0, 3.0, 8.0]);
        }
    }

    type Running = (fn(Tensor, usize) -> Tensor, fn(i32, i32) -> i32);
    const RUNNING: [Running; 4] =
        [(cumsum, i32::wrapping_add), (cumprod, i32::wrapping_mul), (cummin, i32::min), (cummax, i32::max)];

    #[test]
    fn reductions_of_zero_elements() {
        for device in devices() {
            let empty = to_device(tensor([0.0f32; 0], &[0, 2]), &device);
            assert_eq!(values(sum_dim(empty.clone(), 0)), [0.0, 0.0]);
            assert_eq!(values(prod(empty.clone())), [1.0]);
            assert!(values(mean(empty.clone()))[0].is_nan());
            assert_eq!(max_dim(empty.clone(), 1).dims(), [0, 1]);
            assert_eq!(cumsum(empty, 0).dims(), [0, 2]);
        }
    }

    #[test]
    #[should_panic(expected = "max: reduce(f32[0]): there are no elements along dims [0]")]
    fn zero_elements_have_no_maximum() {
        let _ = max(to_device(tensor([0.0f32; 0], &[0]), &Device::ndarray()));
    }
}
