//! Elements and slices addressed by integer tensors, for every element type.
//!
//! Indices may have any integer type. `index_checks` checks them as far as the device's options say. An index that is not
//! checked and out of range, as every negative one is, is clamped to the nearest valid one by a gather, and a scatter drops
//! its update (Burn's other backends panic in all these cases). Sums and products that are scattered into 16-bit
//! floats run in f32 and are rounded once. With [`ScatterMode::Assign`] and equal indices, the device decides which
//! update is kept.

use super::index_checks::{check, check_nd};
use super::{broken_rule, expect_dim, mixed};
use crate::Tensor;
use crate::trace::{Recorder, record};
use burn_tpu_graph::op::{Combine, GatherAttrs, ScatterAttrs, ScatterMode};
use burn_tpu_graph::{Builder, DType, Dims, NodeId, Result};

/// Returns the elements of `x` at `indices` along `dim`: element `i` is `x` at `i`, with `indices[i]` as the coordinate
/// of `dim`.
pub fn gather(x: Tensor, dim: usize, indices: Tensor) -> Tensor {
    check("gather", &x, dim, &indices);
    record("gather", [&x, &indices], |r, [x, indices]| {
        expect_aligned(r, "gather", x, dim, indices)?;
        let (rank, dims) = (r.rank(x), r.dims(indices));
        let others = all_but(rank, dim);
        let attrs = GatherAttrs {
            offset_dims: Dims::new(),
            collapsed_slice_dims: Dims::from_slice(&[dim]),
            operand_batching_dims: others.clone(),
            start_indices_batching_dims: others,
            start_index_map: Dims::from_slice(&[dim]),
            index_vector_dim: dims.len(),
            slice_sizes: Dims::from_elem(1, rank),
        };
        let indices = as_vectors(r, indices)?;
        gathered(r, x, indices, attrs, &dims)
    })
}

/// Updates by each of `values` the element of `x` at the same coordinates, except `indices` along `dim`.
pub fn scatter(x: Tensor, dim: usize, indices: Tensor, values: Tensor, mode: ScatterMode) -> Tensor {
    check("scatter", &x, dim, &indices);
    record("scatter", [&x, &indices, &values], |r, [x, indices, values]| {
        expect_aligned(r, "scatter", x, dim, indices)?;
        let others = all_but(r.rank(x), dim);
        let attrs = ScatterAttrs {
            update_window_dims: Dims::new(),
            inserted_window_dims: Dims::from_slice(&[dim]),
            input_batching_dims: others.clone(),
            scatter_indices_batching_dims: others,
            scatter_dims_to_operand_dims: Dims::from_slice(&[dim]),
            index_vector_dim: r.rank(indices),
            mode,
        };
        let indices = as_vectors(r, indices)?;
        scattered(r, x, indices, values, attrs)
    })
}

/// Returns the slices of `x` along `dim` at `indices` (`[n]`), in their order.
pub fn select(x: Tensor, dim: usize, indices: Tensor) -> Tensor {
    check("select", &x, dim, &indices);
    record("select", [&x, &indices], |r, [x, indices]| {
        expect_vector(r, "gather", x, dim, indices)?;
        let mut result = r.dims(x);
        if let Some(taken) = result.get_mut(dim) {
            *taken = r.ty(indices).elements();
        }
        let attrs = GatherAttrs::slices_along(&r.dims(x), dim, 1);
        let indices = as_vectors(r, indices)?;
        gathered(r, x, indices, attrs, &result)
    })
}

/// Updates by the slices of `values` along `dim` the slices of `x` at `indices` (`[n]`).
pub fn select_assign(x: Tensor, dim: usize, indices: Tensor, values: Tensor, mode: ScatterMode) -> Tensor {
    check("select_assign", &x, dim, &indices);
    record("select_assign", [&x, &indices, &values], |r, [x, indices, values]| {
        expect_vector(r, "scatter", x, dim, indices)?;
        let attrs = ScatterAttrs {
            update_window_dims: all_but(r.rank(x), dim),
            inserted_window_dims: Dims::from_slice(&[dim]),
            input_batching_dims: Dims::new(),
            scatter_indices_batching_dims: Dims::new(),
            scatter_dims_to_operand_dims: Dims::from_slice(&[dim]),
            index_vector_dim: 1,
            mode,
        };
        let indices = as_vectors(r, indices)?;
        scattered(r, x, indices, values, attrs)
    })
}

/// Returns the slices of `x` at the coordinates `indices` (`[.., k]`) of its first k dims.
pub fn gather_nd(x: Tensor, indices: Tensor) -> Tensor {
    check_nd("gather_nd", &x, &indices);
    record("gather_nd", [&x, &indices], |r, [x, indices]| {
        let indices = wide(r, indices)?;
        slices_at(r, x, indices)
    })
}

/// Updates the slices of `x` at the coordinates `indices` (`[.., k]`) of its first k dims.
pub fn scatter_nd(x: Tensor, indices: Tensor, values: Tensor, mode: ScatterMode) -> Tensor {
    check_nd("scatter_nd", &x, &indices);
    record("scatter_nd", [&x, &indices, &values], |r, [x, indices, values]| {
        let indices = wide(r, indices)?;
        into_slices_at(r, x, indices, values, mode)
    })
}

/// Returns the rows of `weights` (`[v, d]`) at `indices` (`[..]`), with shape `[.., d]`.
pub fn embedding(weights: Tensor, indices: Tensor) -> Tensor {
    check("embedding", &weights, 0, &indices);
    record("embedding", [&weights, &indices], |r, [weights, indices]| {
        let indices = as_vectors(r, indices)?;
        slices_at(r, weights, indices)
    })
}

/// Returns the gradient of [`embedding`] with respect to `weights`, of which only the dims are used: for each index,
/// the sum of its rows of `gradient` (`[.., d]`).
pub fn embedding_backward(weights: Tensor, gradient: Tensor, indices: Tensor) -> Tensor {
    record("embedding_backward", [&gradient, &indices], |r, [gradient, indices]| {
        let indices = as_vectors(r, indices)?;
        let dtype = r.dtype(gradient);
        let zeros = r.splat(dtype, weights.dims(), 0.0)?;
        into_slices_at(r, zeros, indices, gradient, ScatterMode::Combine(Combine::Sum))
    })
}

/// Rejects indices whose dims differ from those of `x` other than `dim`.
fn expect_aligned(r: &Recorder, node: &'static str, x: NodeId, dim: usize, indices: NodeId) -> Result<()> {
    expect_dim(r, node, x, dim)?;
    let (dims, mut places) = (r.dims(x), r.dims(indices));
    if let Some(size) = places.get_mut(dim) {
        *size = dims[dim];
    }
    if places == dims {
        return Ok(());
    }
    Err(broken_rule(r, node, &[x, indices], format!("indices must have the operand's dims but along dim {dim}")))
}

/// Rejects indices for `dim` that are not a vector.
fn expect_vector(r: &Recorder, node: &'static str, x: NodeId, dim: usize, indices: NodeId) -> Result<()> {
    expect_dim(r, node, x, dim)?;
    if r.rank(indices) == 1 {
        return Ok(());
    }
    Err(broken_rule(r, node, &[x, indices], "takes indices of rank 1"))
}

fn all_but(rank: usize, dim: usize) -> Dims {
    (0..rank).filter(|&other| other != dim).collect()
}

/// Converts indices to signed integers of at least 32 bits. XLA computes positions in the type of the indices, where 8
/// bits wrap, and treats the upper half of unsigned indices as negative.
fn wide(r: &mut Recorder, indices: NodeId) -> Result<NodeId> {
    match r.dtype(indices) {
        DType::U64 => r.convert(indices, DType::I64),
        DType::I8 | DType::I16 | DType::U8 | DType::U16 | DType::U32 => r.convert(indices, DType::I32),
        _ => Ok(indices),
    }
}

/// Converts single coordinates to vectors of one component, in a new last dim.
fn as_vectors(r: &mut Recorder, indices: NodeId) -> Result<NodeId> {
    let mut dims = r.dims(indices);
    dims.push(1);
    let indices = wide(r, indices)?;
    r.reshape(indices, &dims)
}

/// Returns the slices of `x` at the coordinates `indices` (`[.., k]`) of its first k dims.
fn slices_at(r: &mut Recorder, x: NodeId, indices: NodeId) -> Result<NodeId> {
    let (mut slice_sizes, mut result) = (r.dims(x), r.dims(indices));
    let components = result.pop().unwrap_or(0).min(slice_sizes.len());
    let batch = result.len();
    result.extend_from_slice(&slice_sizes[components..]);
    slice_sizes[..components].fill(1);
    let attrs = GatherAttrs {
        offset_dims: (batch..result.len()).collect(),
        collapsed_slice_dims: (0..components).collect(),
        operand_batching_dims: Dims::new(),
        start_indices_batching_dims: Dims::new(),
        start_index_map: (0..components).collect(),
        index_vector_dim: batch,
        slice_sizes,
    };
    gathered(r, x, indices, attrs, &result)
}

/// Returns `x` with the slices at the coordinates `indices` (`[.., k]`) of its first k dims updated.
fn into_slices_at(r: &mut Recorder, x: NodeId, indices: NodeId, values: NodeId, mode: ScatterMode) -> Result<NodeId> {
    let batch = r.rank(indices).saturating_sub(1);
    let components = r.dims(indices).last().copied().unwrap_or(0);
    let attrs = ScatterAttrs {
        update_window_dims: (batch..r.rank(values)).collect(),
        inserted_window_dims: (0..components).collect(),
        input_batching_dims: Dims::new(),
        scatter_indices_batching_dims: Dims::new(),
        scatter_dims_to_operand_dims: (0..components).collect(),
        index_vector_dim: batch,
        mode,
    };
    scattered(r, x, indices, values, attrs)
}

/// Gathers a result with `dims`. A result without elements uses no gather, since a slice would not fit an empty
/// operand.
pub(crate) fn gathered(
    g: &mut impl Builder,
    x: NodeId,
    indices: NodeId,
    attrs: GatherAttrs,
    dims: &[usize],
) -> Result<NodeId> {
    if dims.contains(&0) {
        return g.splat(g.dtype(x), dims, false);
    }
    g.gather(x, indices, attrs)
}

/// Scatters with one rounding of 16-bit floats. Returns `x` if there is no update or no element.
fn scattered(r: &mut Recorder, x: NodeId, indices: NodeId, values: NodeId, attrs: ScatterAttrs) -> Result<NodeId> {
    if r.ty(values).elements() == 0 || r.ty(x).elements() == 0 {
        return Ok(x);
    }
    let (dtype, values) = (r.dtype(x), mixed::alike(r, x, values)?);
    if r.dtype(values) != dtype {
        return Err(broken_rule(r, "scatter", &[x, indices, values], format!("updates must be {dtype}")));
    }
    let sums = matches!(attrs.mode, ScatterMode::Combine(Combine::Sum | Combine::Prod));
    let wide = if sums { dtype.accumulator() } else { dtype };
    let x = r.convert(x, wide)?;
    let values = r.convert(values, wide)?;
    let scattered = r.scatter(x, indices, values, attrs)?;
    r.convert(scattered, dtype)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::arithmetic::binary_scalar;
    use crate::ops::data::to_device;
    use crate::ops::testing::{devices, tensor, tensor_of, truths, values};
    use burn_tpu_graph::Number;
    use burn_tpu_graph::op::BinaryOp;

    const SUM: ScatterMode = ScatterMode::Combine(Combine::Sum);

    /// Returns the same indices as values of a program, which are not checked by default.
    /// Indices that are recorded, and no value of the host: their operand has another handle.
    fn computed(indices: Tensor) -> Tensor {
        let _held = indices.clone();
        binary_scalar("int_add_scalar", BinaryOp::Add, indices, Number::Int(0))
    }

    #[test]
    fn gathers_along_a_dim() {
        for device in devices() {
            let x = to_device(tensor([0.0f32, 1.0, 2.0, 3.0, 4.0, 5.0], &[2, 3]), &device);
            let rows = to_device(tensor([0i64, 1, 0, 1, 0, 1], &[2, 3]), &device);
            assert_eq!(values(gather(x.clone(), 0, rows)), [0.0, 4.0, 2.0, 3.0, 1.0, 5.0]);
            let columns = to_device(tensor([2u8, 1, 0, 0, 2, 0, 1, 2], &[2, 4]), &device);
            assert_eq!(values(gather(x.clone(), 1, columns)), [2.0, 1.0, 0.0, 0.0, 5.0, 3.0, 4.0, 5.0]);
            let far = computed(to_device(tensor([-1i32, 9], &[2, 1]), &device));
            assert_eq!(values(gather(x.clone(), 1, far)), [0.0, 5.0], "the nearest valid index");
            assert_eq!(gather(x, 1, to_device(tensor([0i32; 0], &[2, 0]), &device)).dims(), [2, 0]);
        }
    }

    #[test]
    fn scatters_along_a_dim() {
        for device in devices() {
            let x = to_device(tensor([0.0f32; 6], &[2, 3]), &device);
            let by = to_device(tensor([1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], &[2, 3]), &device);
            let rows = to_device(tensor([1i32, 0, 1, 1, 1, 0], &[2, 3]), &device);
            let scattered = scatter(x.clone(), 0, rows, by, SUM);
            assert_eq!(values(scattered), [0.0, 2.0, 6.0, 5.0, 5.0, 3.0]);
            let far = computed(to_device(tensor([1i32, 3, -1, 2], &[2, 2]), &device));
            let by = to_device(tensor([1.0f32, 9.0, 9.0, 4.0], &[2, 2]), &device);
            assert_eq!(values(scatter(x.clone(), 1, far, by, SUM)), [0.0, 1.0, 0.0, 0.0, 0.0, 4.0], "dropped");
            let none = to_device(tensor([0i32; 0], &[2, 0]), &device);
            let nothing = to_device(tensor([0.0f32; 0], &[2, 0]), &device);
            assert_eq!(values(scatter(x, 1, none, nothing, SUM)), [0.0; 6]);
            let bools = to_device(tensor([false, true, false], &[3]), &device);
            let at = to_device(tensor([0i32, 1, 2, 2], &[4]), &device);
            let by = to_device(tensor([true, false, false, true], &[4]), &device);
            assert_eq!(truths(scatter(bools, 0, at, by, ScatterMode::Combine(Combine::Or))), [true; 3]);
        }
    }

    #[test]
    fn sums_of_16_bit_floats_are_rounded_once() {
        for device in devices() {
            let x = to_device(tensor_of(DType::BF16, &[256.0, 0.0], &[2]), &device);
            let ones = to_device(tensor_of(DType::BF16, &[1.0; 8], &[8]), &device);
            let at = to_device(tensor([0i32; 8], &[8]), &device);
            assert_eq!(values(select_assign(x, 0, at, ones, SUM)), [264.0, 0.0]);
        }
    }

    #[test]
    fn selects_and_updates_slices() {
        for device in devices() {
            let x = to_device(tensor([0i32, 1, 2, 3, 4, 5], &[2, 3]), &device);
            let at = to_device(tensor([2i32, 0, 2], &[3]), &device);
            assert_eq!(values(select(x.clone(), 1, at.clone())), [2.0, 0.0, 2.0, 5.0, 3.0, 5.0]);
            let by = to_device(tensor([10i32, 20, 30, 40, 50, 60], &[2, 3]), &device);
            assert_eq!(values(select_assign(x.clone(), 1, at, by, SUM)), [20.0, 1.0, 42.0, 53.0, 4.0, 105.0]);
            let empty = to_device(tensor([0i32; 0], &[0, 3]), &device);
            assert_eq!(select(empty, 0, to_device(tensor([0i32; 0], &[0]), &device)).dims(), [0, 3]);
            assert_eq!(select(x, 0, to_device(tensor([0i32; 0], &[0]), &device)).dims(), [0, 3]);
        }
    }

    #[test]
    fn coordinates_address_elements_and_slices() {
        use Combine::{Max, Min, Prod, Sum};
        use ScatterMode::{Assign, Combine as By};
        for device in devices() {
            let x = to_device(tensor([1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], &[2, 3]), &device);
            let elements = to_device(tensor([0i32, 1, 1, 2], &[2, 2]), &device);
            let rows = to_device(tensor([1i32, 0, 1], &[3, 1]), &device);
            assert_eq!(values(gather_nd(x.clone(), elements.clone())), [2.0, 6.0]);
            assert_eq!(values(gather_nd(x.clone(), rows)), [4.0, 5.0, 6.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
            let by = to_device(tensor([5.0f32, 3.0], &[2]), &device);
            for (op, two) in [
                (Assign, [5.0, 3.0]),
                (By(Sum), [7.0, 9.0]),
                (By(Prod), [10.0, 18.0]),
                (By(Min), [2.0, 3.0]),
                (By(Max), [5.0, 6.0]),
            ] {
                let updated = scatter_nd(x.clone(), elements.clone(), by.clone(), op);
                assert_eq!(values(updated), [1.0, two[0], 3.0, 4.0, 5.0, two[1]], "{op:?}");
            }
            let row = to_device(tensor([1i64], &[1, 1]), &device);
            let by = to_device(tensor([7.0f32, 8.0, 9.0], &[1, 3]), &device);
            assert_eq!(values(scatter_nd(x, row, by, Assign)), [1.0, 2.0, 3.0, 7.0, 8.0, 9.0]);
        }
    }

    #[test]
    fn embeddings_and_their_gradient() {
        for device in devices() {
            let weights = to_device(tensor([1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], &[3, 2]), &device);
            let at = to_device(tensor([2i32, 0, 2, 2], &[2, 2]), &device);
            let rows = embedding(weights.clone(), at.clone());
            assert_eq!(rows.dims(), [2, 2, 2]);
            assert_eq!(values(rows.clone()), [5.0, 6.0, 1.0, 2.0, 5.0, 6.0, 5.0, 6.0]);
            assert_eq!(values(embedding_backward(weights, rows, at)), [1.0, 2.0, 0.0, 0.0, 15.0, 18.0]);
        }
    }
}
