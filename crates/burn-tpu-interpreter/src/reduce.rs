//! Reductions of whole dims: sums and similar reductions, and the extreme value with its index.

use super::buffer::{Element, dispatch_combined};
use super::error::Result;
use super::movement::transpose;
use super::numeric::{Combined, Number};
use super::sort::{keys, line, taken};
use super::tensor::HostTensor;
use super::vector::vectorized;
use super::walk::{Strides, View, Walk, at, row_major};
use burn_tpu_graph::op::Combine;
use burn_tpu_graph::{DType, Dims};

/// Partial results per block, enough to use the vector units.
const LANES: usize = 16;

/// Elements of a run that are combined before they are added to the total, which keeps the rounding error of a long
/// sum small.
const BLOCK: usize = 4096;

/// Combines all elements along `reduced`, which the result does not have. The caller has widened 16-bit floats.
pub(super) fn reduce(x: &HostTensor, combine: Combine, reduced: &[usize], dims: &[usize]) -> Result<HostTensor> {
    match (combine, x.dtype()) {
        // Loops of their own, which use the vector units.
        (Combine::Sum, DType::F32) => fold(x, reduced, dims, f32::ZERO, f32::plus),
        (Combine::Max, DType::F32) => fold(x, reduced, dims, f32::LOWEST, f32::larger),
        (_, dtype) => dispatch_combined!(dtype, T => {
            let (identity, f) = T::combiner(combine)?;
            fold(x, reduced, dims, identity, f)
        }),
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
    let (x, targets) = in_memory_order(x, &target_strides(x.dims().len(), reduced, dims));
    accumulate(x.dims(), x.view::<T>()?, &mut out, &targets, identity, f);
    Ok(HostTensor::new(dims, out))
}

/// Returns the operand and the strides in the result, both with the dims in the operand's order in memory: a reduction
/// may combine in any order.
fn in_memory_order(x: &HostTensor, targets: &[isize]) -> (HostTensor, Strides) {
    let mut order: Dims = (0..x.dims().len()).collect();
    order.sort_by_key(|&d| std::cmp::Reverse(x.strides()[d].unsigned_abs()));
    let targets = order.iter().map(|&d| targets[d]).collect();
    (transpose(x.clone(), &order), targets)
}

/// Returns the stride in the result for each operand dim: 0 along a reduced one.
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
    for [i, o] in walk.runs([x.offset, 0]) {
        match walk.steps {
            [1, 0] => out[o] = f(out[o], vectorized(len, || fold_run(&x.data[i..i + len], identity, f))),
            [s, 0] => out[o] = f(out[o], fold_steps(x.data, (i, s, len), identity, f)),
            [1, 1] => {
                let terms = out[o..o + len].iter_mut().zip(&x.data[i..i + len]);
                vectorized(len, || terms.for_each(|(sum, &term)| *sum = f(*sum, term)));
            }
            [s, t] => {
                for k in 0..len {
                    let target = &mut out[at(o, t, k)];
                    *target = f(*target, x.data[at(i, s, k)]);
                }
            }
        }
    }
}

/// Inlined, as is what it calls, so that the form for the processor's vector units is one loop.
#[inline(always)]
fn fold_run<T: Element>(run: &[T], identity: T, f: impl Fn(T, T) -> T + Copy) -> T {
    let mut total = identity;
    for block in run.chunks(BLOCK) {
        total = f(total, fold_block(block, identity, f));
    }
    total
}

#[inline(always)]
fn fold_block<T: Element>(block: &[T], identity: T, f: impl Fn(T, T) -> T + Copy) -> T {
    let mut lanes = [identity; LANES];
    let (rows, rest) = block.as_chunks::<LANES>();
    for row in rows {
        for (lane, &v) in lanes.iter_mut().zip(row) {
            *lane = f(*lane, v);
        }
    }
    let mut total = identity;
    for &v in lanes.iter().chain(rest) {
        total = f(total, v);
    }
    total
}

/// As [`fold_run`], for `len` elements from `start`, `step` apart.
fn fold_steps<T: Element>(
    data: &[T],
    (start, step, len): (usize, isize, usize),
    identity: T,
    f: impl Fn(T, T) -> T + Copy,
) -> T {
    let block = |first: usize| {
        let mut lanes = [identity; LANES];
        for k in first..len.min(first + BLOCK) {
            let lane = &mut lanes[k % LANES];
            *lane = f(*lane, data[at(start, step, k)]);
        }
        lanes.into_iter().fold(identity, f)
    };
    (0..len).step_by(BLOCK).map(block).fold(identity, f)
}

/// Returns the extreme value along `dim`, which the results do not have, and the lowest of the `indices` of the
/// elements that have it. A NaN is more extreme than any number.
pub(super) fn arg_reduce(x: &HostTensor, indices: &HostTensor, max: bool, dim: usize) -> Result<[HostTensor; 2]> {
    let mut order: Dims = (0..x.dims().len()).filter(|&d| d != dim).collect();
    let dims: Dims = order.iter().map(|&d| x.dims()[d]).collect();
    order.push(dim);
    let (x, indices) = (transpose(x.clone(), &order), transpose(indices.clone(), &order));
    let (mut ranks, indices_keys) = (keys(&x)?, keys(&indices)?);
    for rank in &mut ranks {
        *rank = match (max, x.dtype().is_float()) {
            (true, _) => !*rank,
            // The largest key, of NaN, becomes the smallest.
            (false, true) => rank.wrapping_add(1),
            (false, false) => *rank,
        };
    }
    let line = line(&x);
    let first = |start: usize| (start..start + line).min_by_key(|&place| (ranks[place], indices_keys[place]));
    let places: Vec<usize> = (0..ranks.len()).step_by(line).filter_map(first).collect();
    Ok([taken(&x, &places, &dims)?, taken(&indices, &places, &dims)?])
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Trial, run, run_as, values};
    use super::*;
    use burn_tpu_graph::Builder;

    fn reduced<T: Element>(combine: Combine, dims: &[usize], x: &[T], over: &[usize]) -> Vec<T> {
        run(|t| {
            let x = t.input(dims, x);
            t.graph.reduce(combine, x, over)
        })
    }

    #[test]
    fn any_dims_can_be_reduced() {
        let x: Vec<i32> = (0..8).collect();
        assert_eq!(reduced(Combine::Sum, &[2, 2, 2], &x, &[1]), [2, 4, 10, 12]);
        assert_eq!(reduced(Combine::Sum, &[2, 2, 2], &x, &[0, 2]), [10, 18]);
        assert_eq!(reduced(Combine::Max, &[2, 2, 2], &x, &[0, 1, 2]), [7]);
    }

    #[test]
    fn no_elements_reduce_to_the_neutral_element() {
        assert_eq!(reduced::<f32>(Combine::Sum, &[2, 0], &[], &[1]), [0., 0.]);
        assert_eq!(reduced::<f32>(Combine::Max, &[0], &[], &[0]), [f32::NEG_INFINITY]);
        assert_eq!(reduced::<u8>(Combine::Min, &[0], &[], &[0]), [255]);
        assert_eq!(reduced::<i16>(Combine::Prod, &[0], &[], &[0]), [1]);
        assert_eq!(reduced::<bool>(Combine::And, &[0], &[], &[0]), [true]);
        assert!(reduced::<f32>(Combine::Sum, &[2, 0], &[], &[0]).is_empty());
    }

    #[test]
    fn integers_wrap_and_bits_combine() {
        assert_eq!(reduced(Combine::Sum, &[2], &[i32::MAX, 1], &[0]), [i32::MIN]);
        assert_eq!(reduced(Combine::Or, &[3], &[1u8, 2, 4], &[0]), [7]);
        assert_eq!(reduced(Combine::And, &[2], &[6u8, 3], &[0]), [2]);
    }

    #[test]
    fn a_nan_is_kept_and_long_runs_include_every_element() {
        let mut x = vec![1f32; 100];
        assert_eq!(reduced(Combine::Sum, &[100], &x, &[0]), [100.]);
        x[37] = f32::NAN;
        for combine in [Combine::Max, Combine::Min, Combine::Sum, Combine::Prod] {
            assert!(reduced(combine, &[100], &x, &[0])[0].is_nan(), "{combine:?}");
        }
    }

    #[test]
    fn long_sums_of_a_repeated_value_keep_their_digits() {
        let found = run::<f32>(|t| {
            let x = t.input(&[], &[0.1f32]);
            let x = t.graph.broadcast_to(x, &[1 << 20])?;
            t.graph.reduce(Combine::Sum, x, &[0])
        });
        assert!((found[0] / 104857.6 - 1.0).abs() < 1e-4, "{found:?}");
    }

    #[test]
    fn strided_operands_reduce_in_any_order() {
        let found = run::<f32>(|t| {
            let x = t.counted(&[3, 4]);
            let x = t.graph.transpose(x, &[1, 0])?;
            let x = t.graph.slice(x, &[0, 0], &[4, 3], &[2, 2])?;
            let x = t.graph.reverse(x, &[0])?;
            t.graph.reduce(Combine::Sum, x, &[1])
        });
        assert_eq!(found, [12., 8.]);
    }

    #[test]
    fn halves_accumulate_in_f32() {
        let mut x = vec![1f32; 512];
        x[0] = 256.0;
        assert_eq!(run_as(DType::BF16, &x, |t, x| t.graph.reduce(Combine::Sum, x, &[0])), [768.]);
    }

    fn extreme<T: Element>(max: bool, dims: &[usize], x: &[T], dim: usize) -> (Vec<T>, Vec<i32>) {
        let mut t = Trial::default();
        let x = t.input(dims, x);
        let indices = t.graph.iota(DType::I32, dims, dim).unwrap();
        let (value, index) = t.graph.arg_reduce(max, x, indices, dim).unwrap();
        let found = t.run(&[value, index]);
        (values(&found[0]), values(&found[1]))
    }

    #[test]
    fn the_lowest_index_of_the_most_extreme_wins() {
        assert_eq!(extreme(true, &[5], &[1, 7, 7, 0, 7], 0), (vec![7], vec![1]));
        assert_eq!(extreme(false, &[2, 2], &[3f32, 1., 3., 0.], 0), (vec![3., 0.], vec![0, 1]));
        assert_eq!(extreme(true, &[3], &[false, true, true], 0), (vec![true], vec![1]));
        assert_eq!(extreme(true, &[2], &[-0f32, 0.], 0).1, [0]);
    }

    #[test]
    fn nan_is_the_most_extreme() {
        for max in [true, false] {
            let (value, index) = extreme(max, &[4], &[f32::INFINITY, f32::NAN, f32::NEG_INFINITY, f32::NAN], 0);
            assert!(value[0].is_nan() && index == [1]);
        }
    }

    #[test]
    fn empty_batches_have_no_extremes() {
        assert_eq!(extreme::<f32>(true, &[0, 3], &[], 1), (vec![], vec![]));
    }
}
