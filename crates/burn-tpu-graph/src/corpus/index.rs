//! Test cases for ops that address elements by run-time integers.

use super::{Cases, MOVED, Recorder, dtypes};
use crate::op::{Combine, GatherAttrs, ScatterAttrs, ScatterMode};
use crate::{Builder, DType, DTypeClass, NodeId, Result};
use smallvec::smallvec;

pub(super) fn add(cases: &mut Cases) -> Result<()> {
    for dtype in MOVED {
        cases.add(format!("dynamic/{dtype}"), |r| {
            let (x, update) = (r.parameter(dtype, &[4, 5])?, r.parameter(dtype, &[2, 3])?);
            let starts = [r.slot(DType::I32)?, r.slot(DType::I32)?];
            let wide = [r.slot(DType::I64)?, r.offset(DType::I64)?];
            Ok(vec![
                r.graph.dynamic_slice(x, &starts, &[2, 3])?,
                r.graph.dynamic_slice(x, &wide, &[4, 1])?,
                r.graph.dynamic_update_slice(x, update, &starts)?,
            ])
        })?;
        cases.add(format!("gather/{dtype}"), |r| gather(r, dtype))?;
    }
    for dtype in dtypes(DTypeClass::Any) {
        cases.add(format!("scatter/assign/{dtype}"), |r| scatter(r, dtype, ScatterMode::Assign))?;
    }
    let numeric = [Combine::Sum, Combine::Prod, Combine::Max, Combine::Min];
    for (combine, dtype) in numeric.into_iter().flat_map(|c| dtypes(DTypeClass::Numeric).map(move |d| (c, d))) {
        let mode = ScatterMode::Combine(combine);
        cases.add(format!("scatter/{combine:?}/{dtype}"), |r| scatter(r, dtype, mode))?;
    }
    for (combine, dtype) in [(Combine::And, DType::Bool), (Combine::Or, DType::Bool), (Combine::Or, DType::U8)] {
        let mode = ScatterMode::Combine(combine);
        cases.add(format!("scatter/{combine:?}/{dtype}"), |r| scatter(r, dtype, mode))?;
    }
    Ok(())
}

fn gather(r: &mut Recorder, dtype: DType) -> Result<Vec<NodeId>> {
    let (x, rows) = (r.parameter(dtype, &[5, 4])?, r.parameter(DType::I32, &[3])?);
    let (along, points) = (r.parameter(DType::I64, &[5, 2])?, r.parameter(DType::I32, &[3, 2])?);
    // Whole rows, as an embedding lookup reads them.
    let take_rows = GatherAttrs {
        offset_dims: smallvec![1],
        collapsed_slice_dims: smallvec![0],
        operand_batching_dims: smallvec![],
        start_indices_batching_dims: smallvec![],
        start_index_map: smallvec![0],
        index_vector_dim: 1,
        slice_sizes: smallvec![1, 4],
    };
    // One element per index from the same row.
    let take_along = GatherAttrs {
        offset_dims: smallvec![],
        collapsed_slice_dims: smallvec![1],
        operand_batching_dims: smallvec![0],
        start_indices_batching_dims: smallvec![0],
        start_index_map: smallvec![1],
        index_vector_dim: 2,
        slice_sizes: smallvec![1, 1],
    };
    // A window at each point.
    let windows = GatherAttrs {
        offset_dims: smallvec![0, 2],
        collapsed_slice_dims: smallvec![],
        start_index_map: smallvec![0, 1],
        slice_sizes: smallvec![2, 3],
        ..take_rows.clone()
    };
    Ok(vec![
        r.graph.gather(x, rows, take_rows)?,
        r.graph.gather(x, along, take_along)?,
        r.graph.gather(x, points, windows)?,
    ])
}

fn scatter(r: &mut Recorder, dtype: DType, mode: ScatterMode) -> Result<Vec<NodeId>> {
    let (x, rows) = (r.parameter(dtype, &[5, 4])?, r.parameter(DType::I32, &[3])?);
    let along = r.parameter(DType::I64, &[5, 2])?;
    let (row_updates, along_updates) = (r.parameter(dtype, &[3, 4])?, r.parameter(dtype, &[5, 2])?);
    let put_rows = ScatterAttrs {
        update_window_dims: smallvec![1],
        inserted_window_dims: smallvec![0],
        input_batching_dims: smallvec![],
        scatter_indices_batching_dims: smallvec![],
        scatter_dims_to_operand_dims: smallvec![0],
        index_vector_dim: 1,
        mode,
    };
    let put_along = ScatterAttrs {
        update_window_dims: smallvec![],
        inserted_window_dims: smallvec![1],
        input_batching_dims: smallvec![0],
        scatter_indices_batching_dims: smallvec![0],
        scatter_dims_to_operand_dims: smallvec![1],
        index_vector_dim: 2,
        mode,
    };
    Ok(vec![r.graph.scatter(x, rows, row_updates, put_rows)?, r.graph.scatter(x, along, along_updates, put_along)?])
}
