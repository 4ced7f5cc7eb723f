//! Test cases for ops with a body: reductions, windows, sorts.

use super::{Cases, Recorder, dtypes};
use crate::op::{Combine, WindowAttrs};
use crate::{Builder, DType, DTypeClass, Dims, NodeId, Result};
use smallvec::SmallVec;

fn combines(dtype: DType) -> impl Iterator<Item = Combine> {
    let numeric = [Combine::Sum, Combine::Prod, Combine::Max, Combine::Min];
    let bits = [Combine::And, Combine::Or];
    let numeric = numeric.into_iter().filter(move |_| DTypeClass::Numeric.contains(dtype));
    numeric.chain(bits.into_iter().filter(move |_| DTypeClass::Bits.contains(dtype)))
}

/// Returns a window of the given sizes and strides without padding or dilation.
fn window(dims: &[usize], strides: &[usize]) -> WindowAttrs {
    WindowAttrs {
        dims: Dims::from_slice(dims),
        strides: Dims::from_slice(strides),
        base_dilation: Dims::from_elem(1, dims.len()),
        window_dilation: Dims::from_elem(1, dims.len()),
        padding: SmallVec::from_elem((0, 0), dims.len()),
    }
}

pub(super) fn add(cases: &mut Cases) -> Result<()> {
    for dtype in dtypes(DTypeClass::Any) {
        for combine in combines(dtype) {
            cases.add(format!("reduce/{combine:?}/{dtype}"), |r| reduce(r, combine, dtype))?;
        }
    }
    for dtype in dtypes(DTypeClass::Any) {
        cases.add(format!("arg_reduce/{dtype}"), |r| arg_reduce(r, dtype))?;
    }
    for dtype in dtypes(DTypeClass::Any) {
        for combine in combines(dtype) {
            cases.add(format!("reduce_window/{combine:?}/{dtype}"), |r| reduce_window(r, combine, dtype))?;
        }
    }
    for dtype in [DType::F32, DType::BF16, DType::F16, DType::F64, DType::I32] {
        cases.add(format!("select_and_scatter/{dtype}"), |r| {
            let (x, source) = (r.parameter(dtype, &[2, 2, 4, 5])?, r.parameter(dtype, &[2, 2, 2, 3])?);
            let mut pool = window(&[1, 1, 2, 3], &[1, 1, 2, 2]);
            pool.padding[3] = (1, 1);
            Ok(vec![r.graph.select_and_scatter(x, source, pool)?])
        })?;
    }
    for dtype in dtypes(DTypeClass::Any) {
        for descending in [false, true] {
            let order = if descending { "descending" } else { "ascending" };
            cases.add(format!("sort/{order}/{dtype}"), |r| sort(r, dtype, descending))?;
        }
    }
    for dtype in dtypes(DTypeClass::Numeric) {
        cases.add(format!("top_k/{dtype}"), |r| {
            let (x, none) = (r.parameter(dtype, &[3, 7])?, r.parameter(dtype, &[2, 0])?);
            let ((values, places), (nothing, _)) = (r.graph.top_k(x, 4)?, r.graph.top_k(none, 0)?);
            Ok(vec![values, places, nothing])
        })?;
    }
    Ok(())
}

fn reduce(r: &mut Recorder, combine: Combine, dtype: DType) -> Result<Vec<NodeId>> {
    let (x, none) = (r.parameter(dtype, &[2, 3, 4])?, r.parameter(dtype, &[2, 0])?);
    Ok(vec![
        r.graph.reduce(combine, x, &[1])?,
        r.graph.reduce(combine, x, &[0, 1, 2])?,
        r.graph.reduce(combine, none, &[1])?,
    ])
}

fn arg_reduce(r: &mut Recorder, dtype: DType) -> Result<Vec<NodeId>> {
    let x = r.parameter(dtype, &[2, 5])?;
    let narrow = r.graph.iota(DType::I32, &[2, 5], 1)?;
    let wide = r.graph.iota(DType::I64, &[2, 5], 0)?;
    let (most, most_at) = r.graph.arg_reduce(true, x, narrow, 1)?;
    let (least, least_at) = r.graph.arg_reduce(false, x, wide, 0)?;
    Ok(vec![most, most_at, least, least_at])
}

fn reduce_window(r: &mut Recorder, combine: Combine, dtype: DType) -> Result<Vec<NodeId>> {
    let x = r.parameter(dtype, &[2, 3, 5, 6])?;
    let pool = window(&[1, 1, 2, 3], &[1, 1, 2, 1]);
    let mut running = window(&[1, 1, 1, 6], &[1, 1, 1, 1]);
    running.padding[3] = (5, 0);
    let mut dilated = window(&[1, 1, 2, 2], &[1, 1, 1, 1]);
    dilated.base_dilation[2] = 2;
    dilated.window_dilation[3] = 2;
    Ok(vec![
        r.graph.reduce_window(combine, x, pool)?,
        r.graph.reduce_window(combine, x, running)?,
        r.graph.reduce_window(combine, x, dilated)?,
    ])
}

fn sort(r: &mut Recorder, dtype: DType, descending: bool) -> Result<Vec<NodeId>> {
    let (keys, none) = (r.parameter(dtype, &[2, 5])?, r.parameter(dtype, &[0])?);
    let indices = r.graph.iota(DType::I32, &[2, 5], 1)?;
    let mut results = r.graph.sort(&[keys, indices], 1, descending)?;
    results.extend(r.graph.sort(&[keys], 0, descending)?);
    results.extend(r.graph.sort(&[none], 0, descending)?);
    Ok(results)
}
