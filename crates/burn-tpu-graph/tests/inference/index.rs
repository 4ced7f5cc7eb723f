//! Ops that address elements by run-time integers.

use super::{accepts, refuses};
use burn_tpu_graph::op::{Combine, GatherAttrs, ScatterAttrs, ScatterMode};
use burn_tpu_graph::{Dims, Op};

#[test]
fn dynamic_slices_take_a_start_per_dim() {
    let slice = |sizes: &[usize]| Op::DynamicSlice { sizes: Dims::from_slice(sizes) };
    accepts(slice(&[2, 0]), "f32[4,5] i32[] i32[]", "f32[2,0]");
    accepts(slice(&[]), "f32[]", "f32[]");
    accepts(slice(&[1]), "i1[1] i8[]", "i1[1]");
    refuses(slice(&[2, 6]), "f32[4,5] i32[] i32[]", "does not fit");
    refuses(slice(&[2]), "f32[4,5] i32[] i32[]", "sizes has 1 entries");
    refuses(slice(&[2, 2]), "f32[4,5] i32[]", "starts has 1 entries");
    refuses(slice(&[2, 2]), "f32[4,5] i32[] i64[]", "of one signed integer type");
    refuses(slice(&[2]), "f32[4] f32[]", "scalars of one signed integer type");
    refuses(slice(&[2]), "f32[4] i32[1]", "scalars of one signed integer type");
    accepts(Op::DynamicUpdateSlice, "f32[4,5] f32[1,5] i64[] i64[]", "f32[4,5]");
    accepts(Op::DynamicUpdateSlice, "f32[4] f32[0] i64[]", "f32[4]");
    accepts(Op::DynamicUpdateSlice, "f32[] f32[]", "f32[]");
    refuses(Op::DynamicUpdateSlice, "f32[4] f32[5] i64[]", "does not fit");
    refuses(Op::DynamicUpdateSlice, "f32[4] i32[2] i64[]", "update must be f32");
    refuses(Op::DynamicUpdateSlice, "f32[4] f32[2]", "starts has 0 entries");
}

/// Whole rows of a matrix `[_, 4]`.
fn rows() -> GatherAttrs {
    GatherAttrs {
        offset_dims: Dims::from_slice(&[1]),
        collapsed_slice_dims: Dims::from_slice(&[0]),
        operand_batching_dims: Dims::new(),
        start_indices_batching_dims: Dims::new(),
        start_index_map: Dims::from_slice(&[0]),
        index_vector_dim: 1,
        slice_sizes: Dims::from_slice(&[1, 4]),
    }
}

fn gather(change: impl FnOnce(&mut GatherAttrs)) -> Op {
    let mut attrs = rows();
    change(&mut attrs);
    Op::Gather(Box::new(attrs))
}

#[test]
fn gathers_place_slices_at_offset_dims() {
    accepts(gather(|_| ()), "f32[5,4] i32[3]", "f32[3,4]");
    accepts(gather(|_| ()), "i1[5,4] i8[0]", "i1[0,4]");
    accepts(gather(|_| ()), "f32[5,4] i32[3,1]", "f32[3,4]");
    accepts(gather(|a| a.offset_dims[0] = 0), "f32[5,4] i32[3]", "f32[4,3]");
    accepts(gather(|a| (a.offset_dims[0], a.index_vector_dim) = (0, 0)), "f32[5,4] i32[]", "f32[4]");
    let along = |a: &mut GatherAttrs| {
        a.offset_dims.clear();
        a.operand_batching_dims = Dims::from_slice(&[0]);
        a.start_indices_batching_dims = Dims::from_slice(&[0]);
        a.collapsed_slice_dims[0] = 1;
        a.start_index_map[0] = 1;
        a.index_vector_dim = 2;
        a.slice_sizes = Dims::from_slice(&[1, 1]);
    };
    accepts(gather(along), "f32[5,4] i64[5,2]", "f32[5,2]");
    refuses(gather(along), "f32[5,4] i64[4,2]", "differ");
}

#[test]
fn gathers_refuse_inconsistent_dim_roles() {
    refuses(gather(|_| ()), "f32[5,4] f32[3]", "indices must be signed integers");
    refuses(gather(|_| ()), "f32[5,3] i32[3]", "does not fit");
    refuses(gather(|_| ()), "f32[5,4] i32[3,2]", "an index has 2 entries");
    refuses(gather(|a| a.index_vector_dim = 2), "f32[5,4] i32[3]", "index_vector_dim 2 is out of range");
    refuses(gather(|a| a.slice_sizes[0] = 2), "f32[5,4] i32[3]", "must be 1");
    refuses(gather(|a| a.offset_dims[0] = 2), "f32[5,4] i32[3]", "out of range");
    refuses(gather(|a| a.offset_dims.clear()), "f32[5,4] i32[3]", "offset or window dims has 0 entries");
    refuses(gather(|a| a.collapsed_slice_dims = Dims::from_slice(&[1, 0])), "f32[5,4] i32[3]", "must increase");
    refuses(gather(|a| a.start_index_map[0] = 2), "f32[5,4] i32[3]", "out of range");
    refuses(gather(|a| a.operand_batching_dims = Dims::from_slice(&[0])), "f32[5,4] i32[3]", "named twice");
    let vector_is_batch = |a: &mut GatherAttrs| {
        a.collapsed_slice_dims.clear();
        a.operand_batching_dims = Dims::from_slice(&[0]);
        a.start_indices_batching_dims = Dims::from_slice(&[1]);
        a.start_index_map[0] = 1;
    };
    refuses(gather(vector_is_batch), "f32[5,4] i32[3,1]", "cannot be a batching dim");
}

fn scatter(mode: ScatterMode, change: impl FnOnce(&mut ScatterAttrs)) -> Op {
    let mut attrs = ScatterAttrs {
        update_window_dims: Dims::from_slice(&[1]),
        inserted_window_dims: Dims::from_slice(&[0]),
        input_batching_dims: Dims::new(),
        scatter_indices_batching_dims: Dims::new(),
        scatter_dims_to_operand_dims: Dims::from_slice(&[0]),
        index_vector_dim: 1,
        mode,
    };
    change(&mut attrs);
    Op::Scatter(Box::new(attrs))
}

#[test]
fn scatters_take_updates_of_the_shape_that_a_gather_returns() {
    let assign = || scatter(ScatterMode::Assign, |_| ());
    accepts(assign(), "f32[5,4] i32[3] f32[3,4]", "f32[5,4]");
    accepts(assign(), "i1[5,4] i32[0] i1[0,4]", "i1[5,4]");
    accepts(assign(), "f32[5,4] i32[3] f32[3,2]", "f32[5,4]");
    accepts(assign(), "f32[0,4] i32[3] f32[3,4]", "f32[0,4]");
    refuses(assign(), "f32[5,4] i32[3] f32[2,4]", "do not match");
    refuses(assign(), "f32[5,4] i32[3] f32[3,5]", "does not fit");
    refuses(assign(), "f32[5,4] i32[3] bf16[3,4]", "updates must be f32");
    refuses(assign(), "f32[5,4] f32[3] f32[3,4]", "indices must be signed integers");
    refuses(scatter(ScatterMode::Assign, |a| a.update_window_dims.clear()), "f32[5,4] i32[3] f32[3]", "has 0 entries");
    refuses(
        scatter(ScatterMode::Assign, |a| a.inserted_window_dims = Dims::from_slice(&[0, 0])),
        "f32[5,4] i32[3] f32[3,4]",
        "named twice",
    );
}

#[test]
fn scatters_take_the_element_types_of_their_combination() {
    let combine = |c| scatter(ScatterMode::Combine(c), |_| ());
    accepts(combine(Combine::Sum), "bf16[5,4] i32[3] bf16[3,4]", "bf16[5,4]");
    accepts(combine(Combine::Or), "i1[5,4] i32[3] i1[3,4]", "i1[5,4]");
    refuses(combine(Combine::Sum), "i1[5,4] i32[3] i1[3,4]", "Sum takes Numeric");
    refuses(combine(Combine::And), "f32[5,4] i32[3] f32[3,4]", "And takes Bits");
}
