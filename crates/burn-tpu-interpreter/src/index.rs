//! Ops that address elements by run-time integers.
//!
//! As in XLA, a start is clamped so that its slice fits, and a scatter drops a whole window that does not fit.

use super::buffer::{Element, dispatch, dispatch_combined};
use super::convert::splat;
use super::error::Result;
use super::movement::{own_part, slice_at, write_at};
use super::numeric::Combined;
use super::tensor::HostTensor;
use super::walk::{Strides, Walk, at, copy_run, row_major};
use burn_tpu_graph::op::{GatherAttrs, ScatterAttrs, ScatterMode};
use burn_tpu_graph::{DType, Dims};
use std::sync::Arc;

/// Returns the indices as i64; the graph allows only signed ones.
pub(super) fn integers(x: &HostTensor) -> Result<Vec<i64>> {
    let wide = super::convert::convert(x.clone(), DType::I64)?;
    Ok(wide.elements::<i64>()?.into_owned())
}

/// Returns the integer of a scalar. Those that programs have are read as they are.
pub(super) fn integer(x: &HostTensor) -> Result<i64> {
    match x.dtype() {
        DType::I32 => x.item::<i32>().map(i64::from),
        DType::I64 => x.item::<i64>(),
        _ => integers(x)?.first().copied().ok_or_else(|| "holds no element".into()),
    }
}

/// Returns `start`, clamped so that `size` elements fit into `room`.
fn clamped(start: i64, room: usize, size: usize) -> usize {
    start.clamp(0, room.saturating_sub(size) as i64) as usize
}

fn starts(x: &HostTensor, sizes: &[usize], given: &[HostTensor]) -> Result<Dims> {
    let mut starts = Dims::new();
    for ((given, &room), &size) in given.iter().zip(x.dims()).zip(sizes) {
        starts.push(clamped(integer(given)?, room, size));
    }
    Ok(starts)
}

/// Returns a slice of static sizes from run-time starts.
pub(super) fn dynamic_slice(x: HostTensor, given: &[HostTensor], sizes: &[usize]) -> Result<HostTensor> {
    let start = starts(&x, sizes, given)?;
    let strides = x.strides().clone();
    own_part(slice_at(x, &start, sizes.into(), strides))
}

/// Returns `x` with `update` at run-time starts.
pub(super) fn dynamic_update_slice(x: HostTensor, update: &HostTensor, given: &[HostTensor]) -> Result<HostTensor> {
    let start = starts(&x, update.dims(), given)?;
    write_at(x, update, &start)
}

/// The data that gather and scatter share: for each index, where its window starts in the operand and in the slices.
struct Indices {
    /// Row-major, one group of components per index.
    components: Vec<i64>,
    count: usize,
    /// The dims of the indices without the dim of the components.
    batch: Dims,
    /// The operand dim of each component.
    addressed: Dims,
    /// Pairs of an operand batching dim and its batch dim.
    along: Vec<(usize, usize)>,
}

impl Indices {
    fn new(
        indices: &HostTensor,
        vector_dim: usize,
        addressed: &Dims,
        operand_batching: &Dims,
        indices_batching: &Dims,
    ) -> Result<Self> {
        let mut order: Dims = (0..indices.dims().len()).filter(|&d| d != vector_dim).collect();
        let batch: Dims = order.iter().map(|&d| indices.dims()[d]).collect();
        if vector_dim < indices.dims().len() {
            order.push(vector_dim);
        }
        let components = integers(&super::movement::transpose(indices.clone(), &order))?;
        let position = |d: usize| if d > vector_dim { d - 1 } else { d };
        let along = operand_batching.iter().zip(indices_batching).map(|(&o, &i)| (o, position(i))).collect();
        Ok(Self { components, count: batch.iter().product(), batch, addressed: addressed.clone(), along })
    }

    /// Returns the place in the operand and the place in the slices of each index. `locate` returns the former for a
    /// start per operand dim, or none for a window to leave out; `slices` are the strides of the slices' batch dims.
    fn places(&self, rank: usize, slices: &[isize], locate: &dyn Fn(&[i64]) -> Option<usize>) -> Vec<(usize, usize)> {
        let width = self.addressed.len();
        let mut start = vec![0; rank];
        let mut position = Dims::from_elem(0, self.batch.len());
        let mut places = Vec::with_capacity(self.count);
        for n in 0..self.count {
            let components = &self.components[n * width..][..width];
            components.iter().zip(&self.addressed).for_each(|(&c, &d)| start[d] = c);
            self.along.iter().for_each(|&(d, b)| start[d] = position[b] as i64);
            if let Some(place) = locate(&start) {
                places.push((place, position.iter().zip(slices).fold(0, |sum, (&p, &s)| at(sum, s, p))));
            }
            for (p, &size) in position.iter_mut().zip(&self.batch).rev() {
                *p += 1;
                if *p < size {
                    break;
                }
                *p = 0;
            }
        }
        places
    }
}

/// The layout of slices (the result of a gather, the updates of a scatter) around their windows.
struct Slices {
    /// Strides of the batch dims.
    batch: Strides,
    /// Size of the window per operand dim.
    sizes: Dims,
    /// Stride in the slices per operand dim; 0 for a dim that they do not have.
    window: Strides,
}

impl Slices {
    /// `dims` are the slices' dims, `offset_dims` those of the window, `dropped` the operand dims that the slices do
    /// not have.
    fn new(dims: &[usize], strides: &[isize], offset_dims: &[usize], rank: usize, dropped: [&[usize]; 2]) -> Self {
        let batch = (0..dims.len()).filter(|d| !offset_dims.contains(d)).map(|d| strides[d]).collect();
        let mut own = offset_dims.iter();
        let (mut sizes, mut window) = (Dims::new(), Strides::new());
        for d in 0..rank {
            let place = if dropped.iter().any(|dims| dims.contains(&d)) { None } else { own.next() };
            sizes.push(place.map_or(1, |&p| dims[p]));
            window.push(place.map_or(0, |&p| strides[p]));
        }
        Self { batch, sizes, window }
    }
}

/// Computes a gather, in StableHLO's terms.
pub(super) fn gather(x: &HostTensor, indices: &HostTensor, attrs: &GatherAttrs, dims: &[usize]) -> Result<HostTensor> {
    // A slice may be empty while the operand is not, and the other way round with empty batches. A dropped dim of
    // slice size 0 leaves elements that are nowhere in the operand: XLA fills them with zeros.
    if dims.contains(&0) || attrs.slice_sizes.contains(&0) {
        return Ok(splat(x.dtype(), dims, 0));
    }
    let indices = Indices::new(
        indices,
        attrs.index_vector_dim,
        &attrs.start_index_map,
        &attrs.operand_batching_dims,
        &attrs.start_indices_batching_dims,
    )?;
    let rank = x.dims().len();
    let dropped = [&attrs.collapsed_slice_dims[..], &attrs.operand_batching_dims];
    let slices = Slices::new(dims, &row_major(dims), &attrs.offset_dims, rank, dropped);
    let locate = |start: &[i64]| {
        let start = (0..rank).map(|d| clamped(start[d], x.dims()[d], slices.sizes[d]));
        Some(start.zip(x.strides()).fold(x.offset(), |sum, (start, &stride)| at(sum, stride, start)))
    };
    let places = indices.places(rank, &slices.batch, &locate);
    let walk = Walk::new(&slices.sizes, [x.strides(), &slices.window]);
    dispatch!(x.dtype(), T => {
        let from = x.view::<T>()?.data;
        let mut out = vec![T::default(); dims.iter().product()];
        for (place, slice) in places {
            for [i, o] in walk.runs([place, slice]) {
                copy_run(&walk, from, i, &mut out, o);
            }
        }
        Ok(HostTensor::new(dims, out))
    })
}

/// Computes a scatter, in StableHLO's terms. The caller has widened 16-bit floats that are combined.
pub(super) fn scatter(
    x: HostTensor,
    indices: &HostTensor,
    updates: &HostTensor,
    attrs: &ScatterAttrs,
) -> Result<HostTensor> {
    let indices = Indices::new(
        indices,
        attrs.index_vector_dim,
        &attrs.scatter_dims_to_operand_dims,
        &attrs.input_batching_dims,
        &attrs.scatter_indices_batching_dims,
    )?;
    let (rank, dims, strides) = (x.dims().len(), x.dims().clone(), row_major(x.dims()));
    let dropped = [&attrs.inserted_window_dims[..], &attrs.input_batching_dims];
    let slices = Slices::new(updates.dims(), updates.strides(), &attrs.update_window_dims, rank, dropped);
    let fits = |start: &[i64]| {
        let room = |d: usize| dims[d].checked_sub(slices.sizes[d]);
        (0..rank).all(|d| room(d).is_some_and(|room| (0..=room as i64).contains(&start[d])))
    };
    let locate =
        |start: &[i64]| fits(start).then(|| (0..rank).fold(0, |sum, d| at(sum, strides[d], start[d] as usize)));
    let places = indices.places(rank, &slices.batch, &locate);
    let walk = Walk::new(&slices.sizes, [&slices.window, &strides]);
    match attrs.mode {
        ScatterMode::Assign => dispatch!(x.dtype(), T => {
            scattered::<T>(x, updates, &places, |to, out, from, slice| {
                for [i, o] in walk.runs([slice, to]) {
                    copy_run(&walk, from, i, out, o);
                }
            })
        }),
        ScatterMode::Combine(combine) => dispatch_combined!(x.dtype(), T => {
            let (_, f) = T::combiner(combine)?;
            let [s, t] = walk.steps;
            scattered::<T>(x, updates, &places, |to, out, from, slice| {
                for [i, o] in walk.runs([slice, to]) {
                    for k in 0..walk.len {
                        let target = &mut out[at(o, t, k)];
                        *target = f(*target, from[at(i, s, k)]);
                    }
                }
            })
        }),
    }
}

/// Returns `x` after `write` of every window: its place in `x`, the elements of `x`, those of the updates and the
/// window's place in them.
fn scattered<T: Element>(
    x: HostTensor,
    updates: &HostTensor,
    places: &[(usize, usize)],
    write: impl Fn(usize, &mut [T], &[T], usize),
) -> Result<HostTensor> {
    let (dims, new) = (x.dims().clone(), updates.view::<T>()?);
    let mut flat = x.into_owned::<T>()?;
    let out = Arc::make_mut(&mut flat).as_mut_slice();
    for &(place, slice) in places {
        write(place, out, new.data, new.offset + slice);
    }
    Ok(HostTensor::strided(&dims, row_major(&dims), flat))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Trial, run};
    use super::*;
    use burn_tpu_graph::Builder;
    use burn_tpu_graph::op::Combine;
    use smallvec::smallvec;

    fn dynamic<I: Element>(starts: [I; 2]) -> Vec<f32> {
        run(|t| {
            let x = t.counted(&[3, 4]);
            let starts = starts.map(|start| t.input(&[], &[start]));
            t.graph.dynamic_slice(x, &starts, &[2, 3])
        })
    }

    #[test]
    fn starts_clamp_so_that_the_slice_fits() {
        assert_eq!(dynamic([0i32, 0]), [0., 1., 2., 4., 5., 6.]);
        assert_eq!(dynamic([-5i32, 9]), [1., 2., 3., 5., 6., 7.]);
        assert_eq!(dynamic([i64::MAX, i64::MIN]), [4., 5., 6., 8., 9., 10.]);
        assert_eq!(dynamic([100i8, 1]), [5., 6., 7., 9., 10., 11.]);
    }

    #[test]
    fn an_update_clamps_as_a_slice_does() {
        let updated = run::<f32>(|t| {
            let (x, update) = (t.counted(&[3]), t.input(&[2], &[7f32, 8.]));
            let start = t.input(&[], &[5i32]);
            t.graph.dynamic_update_slice(x, update, &[start])
        });
        assert_eq!(updated, [0., 7., 8.]);
    }

    #[test]
    fn empty_updates_change_nothing_and_empty_slices_are_empty() {
        let updated = run::<f32>(|t| {
            let (x, update) = (t.counted(&[2, 2]), t.input::<f32>(&[0, 2], &[]));
            let starts = [t.input(&[], &[9i32]), t.input(&[], &[9i32])];
            t.graph.dynamic_update_slice(x, update, &starts)
        });
        assert_eq!(updated, [0., 1., 2., 3.]);
        let taken = run::<f32>(|t| {
            let (x, start) = (t.counted(&[2]), t.input(&[], &[2i32]));
            t.graph.dynamic_slice(x, &[start], &[0])
        });
        assert!(taken.is_empty());
    }

    /// Returns the attributes for whole slices of `sizes` at each index into dim 0, which the result drops.
    fn rows(sizes: &[usize]) -> GatherAttrs {
        GatherAttrs {
            offset_dims: (1..sizes.len()).collect(),
            collapsed_slice_dims: smallvec![0],
            operand_batching_dims: smallvec![],
            start_indices_batching_dims: smallvec![],
            start_index_map: smallvec![0],
            index_vector_dim: 1,
            slice_sizes: sizes.into(),
        }
    }

    fn gather_rows(dims: &[usize], indices: &[i32], sizes: &[usize]) -> Vec<f32> {
        run(|t| {
            let (x, indices) = (t.counted(dims), t.input(&[indices.len()], indices));
            t.graph.gather(x, indices, rows(sizes))
        })
    }

    #[test]
    fn a_gather_clamps_its_indices() {
        assert_eq!(gather_rows(&[3, 2], &[2, 0, -1, 7], &[1, 2]), [4., 5., 0., 1., 0., 1., 4., 5.]);
    }

    #[test]
    fn a_gather_of_partial_rows_starts_at_their_first_element() {
        assert_eq!(gather_rows(&[3, 2], &[1], &[1, 1]), [2.]);
        assert!(gather_rows(&[3, 2], &[1, 2], &[1, 0]).is_empty());
        assert!(gather_rows(&[3, 2], &[], &[1, 2]).is_empty());
    }

    #[test]
    fn a_dropped_dim_of_slice_size_zero_leaves_zeros() {
        assert_eq!(gather_rows(&[0, 2], &[0, 5], &[0, 2]), [0.; 4]);
        assert_eq!(gather_rows(&[3, 2], &[1], &[0, 2]), [0.; 2]);
    }

    #[test]
    fn a_gather_follows_its_batching_dims() {
        let attrs = GatherAttrs {
            offset_dims: smallvec![],
            collapsed_slice_dims: smallvec![1],
            operand_batching_dims: smallvec![0],
            start_indices_batching_dims: smallvec![0],
            start_index_map: smallvec![1],
            index_vector_dim: 2,
            slice_sizes: smallvec![1, 1],
        };
        let empty = GatherAttrs { slice_sizes: smallvec![0, 1], ..attrs.clone() };
        let along = |attrs: &GatherAttrs, dims: &[usize], indices: &[i64], shape: &[usize]| {
            run::<f32>(|t| {
                let (x, indices) = (t.counted(dims), t.input(shape, indices));
                t.graph.gather(x, indices, attrs.clone())
            })
        };
        assert_eq!(along(&attrs, &[2, 3], &[2, 0, 1, 1], &[2, 2]), [2., 0., 4., 4.]);
        assert!(along(&empty, &[0, 3], &[], &[0, 2]).is_empty());
    }

    #[test]
    fn windows_at_points_are_clamped_as_a_whole() {
        let attrs = GatherAttrs {
            offset_dims: smallvec![0, 1],
            collapsed_slice_dims: smallvec![],
            start_index_map: smallvec![1, 0],
            index_vector_dim: 0,
            ..rows(&[2, 2])
        };
        let found = run::<f32>(|t| {
            let (x, point) = (t.counted(&[3, 3]), t.input(&[2], &[5i32, 1]));
            t.graph.gather(x, point, attrs)
        });
        assert_eq!(found, [4., 5., 7., 8.]);
    }

    fn put_rows(mode: ScatterMode) -> ScatterAttrs {
        ScatterAttrs {
            update_window_dims: smallvec![1],
            inserted_window_dims: smallvec![0],
            input_batching_dims: smallvec![],
            scatter_indices_batching_dims: smallvec![],
            scatter_dims_to_operand_dims: smallvec![0],
            index_vector_dim: 1,
            mode,
        }
    }

    fn scatter_rows<T: Element>(mode: ScatterMode, x: &[T], indices: &[i32], updates: &[T]) -> Vec<T> {
        run(|t: &mut Trial| {
            let (x, indices) = (t.input(&[x.len() / 2, 2], x), t.input(&[indices.len()], indices));
            let updates = t.input(&[updates.len() / 2, 2], updates);
            t.graph.scatter(x, indices, updates, put_rows(mode))
        })
    }

    #[test]
    fn updates_out_of_range_are_dropped() {
        let mode = ScatterMode::Assign;
        assert_eq!(scatter_rows(mode, &[0i32, 1, 2, 3], &[-1, 2, 1], &[7, 7, 8, 8, 9, 9]), [0, 1, 9, 9]);
        assert!(scatter_rows::<i32>(mode, &[], &[0], &[7, 7]).is_empty());
        assert_eq!(scatter_rows::<i32>(mode, &[1, 2], &[], &[]), [1, 2]);
    }

    #[test]
    fn a_window_that_does_not_fit_is_dropped_as_a_whole() {
        let attrs = ScatterAttrs {
            update_window_dims: smallvec![1],
            inserted_window_dims: smallvec![],
            ..put_rows(ScatterMode::Assign)
        };
        let found = run::<i32>(|t| {
            let (x, at) = (t.input(&[4], &[0i32; 4]), t.input(&[3], &[3i32, -1, 1]));
            let updates = t.input(&[3, 2], &[1i32, 2, 3, 4, 5, 6]);
            t.graph.scatter(x, at, updates, attrs)
        });
        assert_eq!(found, [0, 5, 6, 0]);
    }

    #[test]
    fn duplicates_combine_in_every_mode() {
        let twice = |combine, x: [i32; 2]| scatter_rows(ScatterMode::Combine(combine), &x, &[0, 0], &[3, 5, 6, 1]);
        assert_eq!(twice(Combine::Sum, [1, 1]), [10, 7]);
        assert_eq!(twice(Combine::Prod, [2, 2]), [36, 10]);
        assert_eq!(twice(Combine::Max, [4, 4]), [6, 5]);
        assert_eq!(twice(Combine::Min, [4, 4]), [3, 1]);
        assert_eq!(twice(Combine::Or, [8, 8]), [15, 13]);
        assert_eq!(twice(Combine::And, [7, 7]), [2, 1]);
        let bools = scatter_rows(ScatterMode::Combine(Combine::And), &[true, true], &[0], &[true, false]);
        assert_eq!(bools, [true, false]);
    }

    #[test]
    fn a_nan_is_the_scattered_extreme() {
        for combine in [Combine::Max, Combine::Min] {
            let found = scatter_rows(ScatterMode::Combine(combine), &[1f32, f32::NAN], &[0], &[f32::NAN, 1.]);
            assert!(found.iter().all(|v| v.is_nan()));
        }
    }

    #[test]
    fn sums_into_halves_round_once() {
        let ones = vec![half::bf16::ONE; 512];
        let into = [half::bf16::from_f32(256.), half::bf16::ZERO];
        let found = scatter_rows(ScatterMode::Combine(Combine::Sum), &into, &[0; 256], &ones);
        assert_eq!(found.iter().map(|v| v.to_f32()).collect::<Vec<_>>(), [512., 256.]);
    }

    #[test]
    fn a_rank_0_operand_takes_all_updates() {
        let attrs = ScatterAttrs {
            update_window_dims: smallvec![],
            inserted_window_dims: smallvec![],
            scatter_dims_to_operand_dims: smallvec![],
            ..put_rows(ScatterMode::Combine(Combine::Sum))
        };
        let found = run::<f32>(|t| {
            let (x, at) = (t.input(&[], &[1f32]), t.input::<i32>(&[3, 0], &[]));
            let updates = t.input(&[3], &[1f32, 2., 3.]);
            t.graph.scatter(x, at, updates, attrs)
        });
        assert_eq!(found, [7.]);
    }
}
