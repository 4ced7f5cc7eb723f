//! Reductions, their indices, and running reductions, for every element type.
//!
//! Sums, products and means of 16-bit floats run in f32 and round once. A NaN is the largest and the smallest value, so
//! `max` and `min` return it and `argmax` and `argmin` its place; of equal values the first counts. Nothing has no
//! extreme value and no integer mean: these panic at record time. An empty sum is 0, an empty product 1, an empty float
//! mean NaN.

use super::broken_rule;
use crate::trace::{Recorder, record, record_many};
use crate::{Platform, Tensor};
use burn_tpu_graph::op::{BinaryOp, Combine, Direction, UnaryOp, WindowAttrs};
use burn_tpu_graph::{Builder, DType, Dims, Literal, LiteralData, NodeId, Number, Result, TensorType};

/// Sum of all elements, `[1]`.
pub fn sum(x: Tensor) -> Tensor {
    whole("sum", x, |r, x, dims| r.accumulate(Combine::Sum, x, dims))
}

/// Product of all elements, `[1]`.
pub fn prod(x: Tensor) -> Tensor {
    whole("prod", x, |r, x, dims| r.accumulate(Combine::Prod, x, dims))
}

/// Mean of all elements, `[1]`; integers truncate toward zero.
pub fn mean(x: Tensor) -> Tensor {
    whole("mean", x, average)
}

/// Largest element, `[1]`.
pub fn max(x: Tensor) -> Tensor {
    let guard = drops_nan(&x);
    whole("max", x, |r, x, dims| extreme(r, Combine::Max, x, dims, guard))
}

/// Smallest element, `[1]`.
pub fn min(x: Tensor) -> Tensor {
    let guard = drops_nan(&x);
    whole("min", x, |r, x, dims| extreme(r, Combine::Min, x, dims, guard))
}

/// Largest magnitude, `[1]`.
pub fn max_abs(x: Tensor) -> Tensor {
    let guard = drops_nan(&x);
    whole("max_abs", x, |r, x, dims| largest_magnitude(r, x, dims, guard))
}

/// Whether any element is not zero, `[1]`.
pub fn any(x: Tensor) -> Tensor {
    whole("any", x, |r, x, dims| truth(r, Combine::Or, x, dims))
}

/// Whether no element is zero, `[1]`.
pub fn all(x: Tensor) -> Tensor {
    whole("all", x, |r, x, dims| truth(r, Combine::And, x, dims))
}

/// Sum along `dim`, which stays with size 1.
pub fn sum_dim(x: Tensor, dim: usize) -> Tensor {
    along("sum_dim", x, dim, |r, x, dims| r.accumulate(Combine::Sum, x, dims))
}

/// Product along `dim`, which stays with size 1.
pub fn prod_dim(x: Tensor, dim: usize) -> Tensor {
    along("prod_dim", x, dim, |r, x, dims| r.accumulate(Combine::Prod, x, dims))
}

/// Mean along `dim`, which stays with size 1; integers truncate toward zero.
pub fn mean_dim(x: Tensor, dim: usize) -> Tensor {
    along("mean_dim", x, dim, average)
}

/// Largest element along `dim`, which stays with size 1.
pub fn max_dim(x: Tensor, dim: usize) -> Tensor {
    let guard = drops_nan(&x);
    along("max_dim", x, dim, |r, x, dims| extreme(r, Combine::Max, x, dims, guard))
}

/// Smallest element along `dim`, which stays with size 1.
pub fn min_dim(x: Tensor, dim: usize) -> Tensor {
    let guard = drops_nan(&x);
    along("min_dim", x, dim, |r, x, dims| extreme(r, Combine::Min, x, dims, guard))
}

/// Largest magnitude along `dim`, which stays with size 1.
pub fn max_abs_dim(x: Tensor, dim: usize) -> Tensor {
    let guard = drops_nan(&x);
    along("max_abs_dim", x, dim, |r, x, dims| largest_magnitude(r, x, dims, guard))
}

/// Whether any element along `dim` is not zero.
pub fn any_dim(x: Tensor, dim: usize) -> Tensor {
    along("any_dim", x, dim, |r, x, dims| truth(r, Combine::Or, x, dims))
}

/// Whether no element along `dim` is zero.
pub fn all_dim(x: Tensor, dim: usize) -> Tensor {
    along("all_dim", x, dim, |r, x, dims| truth(r, Combine::And, x, dims))
}

/// Largest elements along `dim` and their places.
pub fn max_dim_with_indices(x: Tensor, dim: usize, index: DType) -> (Tensor, Tensor) {
    let [values, indices] =
        record_many("max_dim_with_indices", &[&x], |r, nodes| located_extreme(r, true, nodes[0], dim, index));
    (values, indices)
}

/// Smallest elements along `dim` and their places.
pub fn min_dim_with_indices(x: Tensor, dim: usize, index: DType) -> (Tensor, Tensor) {
    let [values, indices] =
        record_many("min_dim_with_indices", &[&x], |r, nodes| located_extreme(r, false, nodes[0], dim, index));
    (values, indices)
}

/// Places of the largest elements along `dim`, which stays with size 1.
pub fn argmax(x: Tensor, dim: usize, index: DType) -> Tensor {
    record("argmax", [&x], |r, [x]| located_extreme(r, true, x, dim, index).map(|[_, place]| place))
}

/// Places of the smallest elements along `dim`, which stays with size 1.
pub fn argmin(x: Tensor, dim: usize, index: DType) -> Tensor {
    record("argmin", [&x], |r, [x]| located_extreme(r, false, x, dim, index).map(|[_, place]| place))
}

/// Running sum along `dim`.
pub fn cumsum(x: Tensor, dim: usize) -> Tensor {
    running("cumsum", Combine::Sum, x, dim)
}

/// Running product along `dim`.
pub fn cumprod(x: Tensor, dim: usize) -> Tensor {
    running("cumprod", Combine::Prod, x, dim)
}

/// Running minimum along `dim`; NaN from the first NaN on.
pub fn cummin(x: Tensor, dim: usize) -> Tensor {
    running("cummin", Combine::Min, x, dim)
}

/// Running maximum along `dim`; NaN from the first NaN on.
pub fn cummax(x: Tensor, dim: usize) -> Tensor {
    running("cummax", Combine::Max, x, dim)
}

/// Records a reduction of all dims; the result is `[1]`, as Burn has no rank 0.
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

/// Records a reduction of one dim, which stays with size 1.
fn along(
    op: &'static str,
    x: Tensor,
    dim: usize,
    reduce: impl FnOnce(&mut Recorder, NodeId, &[usize]) -> Result<NodeId>,
) -> Tensor {
    record(op, [&x], |r, [x]| {
        let reduced = reduce(r, x, &[dim])?;
        keep(r, reduced, x, dim)
    })
}

/// `reduced` with the dim of `x` that the reduction removed, of size 1.
fn keep(r: &mut Recorder, reduced: NodeId, x: NodeId, dim: usize) -> Result<NodeId> {
    let mut dims = r.dims(x);
    dims[dim] = 1;
    r.reshape(reduced, &dims)
}

/// How many elements one result combines.
fn count(r: &Recorder, x: NodeId, dims: &[usize]) -> Result<usize> {
    let size = |&dim: &usize| {
        r.ty(x).dims.get(dim).copied().ok_or_else(|| broken_rule(r, "reduce", &[x], format!("there is no dim {dim}")))
    };
    dims.iter().map(size).product()
}

/// Refuses to reduce nothing. A result without elements asks for nothing and is allowed.
fn refuse_empty(r: &Recorder, what: &'static str, x: NodeId, dims: &[usize]) -> Result<()> {
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

/// Whether a reduction to the extreme loses NaN: the CPU plugin's `maximum` keeps its left operand when the right one is
/// NaN. Its option against that (`xla_cpu_enable_fast_min_max`) stops vectorization: row maxima of f32 `[2048, 2048]` take
/// 18 ms instead of 1.3 and a softmax 34 instead of 4.8, while looking for NaN beside the reduction costs nothing (1.3 ms).
pub(crate) fn drops_nan(x: &Tensor) -> bool {
    x.element().is_float() && x.device().platform() == Platform::Cpu
}

fn extreme(r: &mut Recorder, combine: Combine, x: NodeId, dims: &[usize], guard: bool) -> Result<NodeId> {
    refuse_empty(r, "extreme value", x, dims)?;
    let reduced = r.reduce(combine, x, dims)?;
    if !guard {
        return Ok(reduced);
    }
    let nan = r.compare(Direction::Ne, x, x)?;
    let found = r.reduce(Combine::Or, nan, dims)?;
    nan_where(r, found, reduced)
}

/// NaN where `found` holds, else `x`.
pub(crate) fn nan_where(r: &mut Recorder, found: NodeId, x: NodeId) -> Result<NodeId> {
    let nan = r.splat_like(x, f64::NAN)?;
    r.select(found, nan, x)
}

fn largest_magnitude(r: &mut Recorder, x: NodeId, dims: &[usize], guard: bool) -> Result<NodeId> {
    let unsigned = r.dtype(x).is_unsigned_int();
    let x = if unsigned { x } else { r.unary(UnaryOp::Abs, x)? };
    extreme(r, Combine::Max, x, dims, guard)
}

fn truth(r: &mut Recorder, combine: Combine, x: NodeId, dims: &[usize]) -> Result<NodeId> {
    let x = r.convert(x, DType::Bool)?;
    r.reduce(combine, x, dims)
}

/// Sum over count in a type that holds both: f32 for 16-bit floats (a f16 sum overflows at 65504), 32 bits for narrow
/// integers (the count alone may not fit).
fn average(r: &mut Recorder, x: NodeId, dims: &[usize]) -> Result<NodeId> {
    let dtype = r.dtype(x);
    let (count, wide) = (count(r, x, dims)?, mean_type(dtype));
    let number = if dtype.is_float() { Number::Float(count as f64) } else { Number::Int(count as i64) };
    if !dtype.is_float() {
        refuse_empty(r, "integer mean", x, dims)?;
    }
    let x = r.convert(x, wide)?;
    let sum = r.reduce(Combine::Sum, x, dims)?;
    let mean = r.binary_const(BinaryOp::Div, sum, number)?;
    r.convert(mean, dtype)
}

fn mean_type(dtype: DType) -> DType {
    match dtype {
        DType::I8 | DType::I16 => DType::I32,
        DType::U8 | DType::U16 => DType::U32,
        other => other.accumulator(),
    }
}

/// 0, 1, 2, … along `dim` under the dims of `x`, in 32 bits where they suffice: a TPU has no wider integers in hardware,
/// and a narrower index type that the caller asks for must not wrap before places were compared.
pub fn places(r: &mut Recorder, x: NodeId, dim: usize) -> Result<NodeId> {
    let dims = r.dims(x);
    let long = dims.get(dim).is_some_and(|&size| i32::try_from(size).is_err());
    r.iota(if long { DType::I64 } else { DType::I32 }, &dims, dim)
}

/// The extreme values along `dim` and their places as `index`, both with `dim` of size 1.
fn located_extreme(r: &mut Recorder, max: bool, x: NodeId, dim: usize, index: DType) -> Result<[NodeId; 2]> {
    let places = places(r, x, dim)?;
    let (value, place) = r.arg_reduce(max, x, places, dim)?;
    let place = r.convert(place, index)?;
    Ok([keep(r, value, x, dim)?, keep(r, place, x, dim)?])
}

/// A running reduction. XLA rewrites a window that reaches back to the start into a tree of short ones: on the CPU plugin
/// (0.0.1, f32 `[1, 131072]`) that takes 0.7 ms against 3.2 ms for log-steps, and on a v5e 7 us against 24 us by its
/// compiler's estimate; the window is ahead at `[4096, 8]` and `[512, 512]` too, for sum, product and maximum. The
/// interpreter reads every window whole, so it gets the log-steps.
fn running(op: &'static str, combine: Combine, x: Tensor, dim: usize) -> Tensor {
    let interpreted = x.device().platform() == Platform::NdArray;
    let rounds = matches!(combine, Combine::Sum | Combine::Prod);
    let guard = !rounds && drops_nan(&x);
    record(op, [&x], |r, [x]| {
        if count(r, x, &[dim])? <= 1 {
            return Ok(x);
        }
        let dtype = r.dtype(x);
        let x = r.convert(x, if rounds { dtype.accumulator() } else { dtype })?;
        let prefixes = if interpreted { doubling(r, combine, x, dim)? } else { growing_window(r, combine, x, dim)? };
        if !guard {
            return r.convert(prefixes, dtype);
        }
        let nan = r.compare(Direction::Ne, x, x)?;
        let found = growing_window(r, Combine::Or, nan, dim)?;
        nan_where(r, found, prefixes)
    })
}

/// Element `i` combines elements 0 to `i` along `dim`: a window as long as the dim ends at each element.
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

/// The same in rounds: each combines with what stands 1, 2, 4, … places before.
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
            // XLA divides by a constant through its reciprocal, which may be off in the last bit.
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
    fn sixteen_bits_and_narrow_integers_do_not_overflow_on_the_way() {
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
    fn nan_wins_and_the_first_of_equals_counts() {
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
    fn truths_of_numbers() {
        for device in devices() {
            let x = to_device(tensor([0.0, NAN, 0.0, 0.0], &[2, 2]), &device);
            assert_eq!(truths(any_dim(x.clone(), 1)), [true, false]);
            assert_eq!([truths(any(x.clone())), truths(all(x))], [[true], [false]]);
            let empty = to_device(tensor([0i32; 0], &[0, 2]), &device);
            assert_eq!((truths(any_dim(empty.clone(), 0)), truths(all(empty))), (vec![false, false], vec![true]));
        }
    }

    #[test]
    fn running_reductions_of_every_length() {
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
    fn reductions_of_nothing() {
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
    fn nothing_has_no_maximum() {
        let _ = max(to_device(tensor([0.0f32; 0], &[0]), &Device::ndarray()));
    }
}
