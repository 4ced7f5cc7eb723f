//! Reductions of whole dims: sums and their kin, and the extreme value with its index.

use super::buffer::{Element, dispatch_bits, dispatch_numeric};
use super::error::Result;
use super::movement::transpose;
use super::numeric::{Bits, Number};
use super::tensor::HostTensor;
use super::walk::{Strides, View, Walk, at, row_major};
use burn_tpu_graph::op::Combine;
use burn_tpu_graph::{DType, Dims};

/// Partial results of a run: enough to keep the vector units busy, and a sum's rounding errors small.
const LANES: usize = 16;

/// Combines all elements along `reduced`, which disappear. 16-bit floats were widened.
pub(super) fn reduce(x: &HostTensor, combine: Combine, reduced: &[usize], dims: &[usize]) -> Result<HostTensor> {
    match combine {
        Combine::Sum => dispatch_numeric!(x.dtype(), T => fold(x, reduced, dims, T::ZERO, T::plus)),
        Combine::Prod => dispatch_numeric!(x.dtype(), T => fold(x, reduced, dims, T::ONE, T::times)),
        Combine::Max => dispatch_numeric!(x.dtype(), T => fold(x, reduced, dims, T::LOWEST, T::larger)),
        Combine::Min => dispatch_numeric!(x.dtype(), T => fold(x, reduced, dims, T::HIGHEST, T::smaller)),
        Combine::And => dispatch_bits!(x.dtype(), T => fold(x, reduced, dims, T::ALL_ONES, T::and)),
        Combine::Or => dispatch_bits!(x.dtype(), T => fold(x, reduced, dims, T::ALL_ZEROS, T::or)),
    }
}

fn fold<T: Element>(
    x: &HostTensor,
    reduced: &[usize],
    dims: &[usize],
    identity: T,
    f: impl Fn(T, T) -> T + Copy,
) -> Result<HostTensor> {
    let mut out = vec![identity; dims.iter().product()];
    let targets = target_strides(x.dims().len(), reduced, dims);
    // The order of a reduction is free: the walk follows memory.
    let mut order: Dims = (0..x.dims().len()).collect();
    order.sort_by_key(|&d| std::cmp::Reverse(x.strides()[d].unsigned_abs()));
    let targets: Strides = order.iter().map(|&d| targets[d]).collect();
    let x = transpose(x.clone(), &order);
    accumulate(x.dims(), x.view::<T>()?, &mut out, &targets, identity, f);
    Ok(HostTensor::new(dims, out))
}

/// Steps through the result for each operand dim: none along a reduced one.
fn target_strides(rank: usize, reduced: &[usize], dims: &[usize]) -> Strides {
    let strides = row_major(dims);
    let mut kept = strides.iter().copied();
    (0..rank).map(|d| if reduced.contains(&d) { 0 } else { kept.next().unwrap_or(0) }).collect()
}

fn accumulate<T: Element>(
    dims: &[usize],
    x: View<T>,
    out: &mut [T],
    targets: &[isize],
    identity: T,
    f: impl Fn(T, T) -> T + Copy,
) {
    let walk = Walk::new(dims, [x.strides, targets]);
    let len = walk.len;
    walk.runs([x.offset, 0], |[i, o]| match walk.steps {
        [1, 0] => out[o] = f(out[o], fold_run(&x.data[i..i + len], identity, f)),
        [1, 1] => {
            let terms = x.data[i..i + len].iter();
            out[o..o + len].iter_mut().zip(terms).for_each(|(sum, &term)| *sum = f(*sum, term));
        }
        [s, t] => (0..len).for_each(|k| {
            let target = &mut out[at(o, t, k)];
            *target = f(*target, x.data[at(i, s, k)]);
        }),
    });
}

fn fold_run<T: Element>(run: &[T], identity: T, f: impl Fn(T, T) -> T + Copy) -> T {
    let mut lanes = [identity; LANES];
    let (blocks, rest) = run.as_chunks::<LANES>();
    for block in blocks {
        lanes.iter_mut().zip(block).for_each(|(lane, &v)| *lane = f(*lane, v));
    }
    lanes.into_iter().chain(rest.iter().copied()).fold(identity, f)
}

/// The extreme value along `dim`, which disappears, and the lowest of the `indices` that stand with it. A NaN is more
/// extreme than any number.
pub(super) fn arg_reduce(x: &HostTensor, indices: &HostTensor, max: bool, dim: usize) -> Result<[HostTensor; 2]> {
    if x.dtype() == DType::Bool {
        let [value, index] = arg_reduce(&super::elementwise::map(x, |v: bool| u8::from(v))?, indices, max, dim)?;
        return Ok([super::convert::convert(value, DType::Bool)?, index]);
    }
    dispatch_numeric!(x.dtype(), T => dispatch_numeric!(indices.dtype(), I => extremes::<T, I>(x, indices, max, dim)))
}

fn extremes<T: Number, I: Number>(
    x: &HostTensor,
    indices: &HostTensor,
    max: bool,
    dim: usize,
) -> Result<[HostTensor; 2]> {
    let mut order: Dims = (0..x.dims().len()).filter(|&d| d != dim).collect();
    let dims: Dims = order.iter().map(|&d| x.dims()[d]).collect();
    order.push(dim);
    let lines = x.dims()[dim].max(1);
    let x = transpose(x.clone(), &order);
    let indices = transpose(indices.clone(), &order);
    let (x, indices) = (x.elements::<T>()?, indices.elements::<I>()?);
    let best = |(values, at): (&[T], &[I])| {
        let pairs = values.iter().copied().zip(at.iter().copied());
        pairs.reduce(|kept, new| if wins(new, kept, max) { new } else { kept }).unwrap_or_default()
    };
    let (values, at): (Vec<T>, Vec<I>) = x.chunks_exact(lines).zip(indices.chunks_exact(lines)).map(best).unzip();
    Ok([HostTensor::new(&dims, values), HostTensor::new(&dims, at)])
}

/// Whether the new pair takes the place of the kept one.
fn wins<T: Number, I: Number>(new: (T, I), kept: (T, I), max: bool) -> bool {
    let more_extreme = if max { new.0 > kept.0 } else { new.0 < kept.0 };
    let ties = new.0 == kept.0 || (new.0.is_nan() && kept.0.is_nan());
    more_extreme || (new.0.is_nan() && !kept.0.is_nan()) || (ties && new.1 < kept.1)
}
