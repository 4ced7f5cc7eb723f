//! Rules of ops that combine or sort the elements of a dim or of a window.

use super::contract::window_positions;
use super::{Rule, check_dim, check_distinct, check_len};
use crate::op::{Combine, WindowAttrs};
use crate::{DType, DTypeClass, Dims, TensorType};

pub(super) fn check_combine(combine: Combine, dtype: DType) -> Rule<()> {
    let class = match combine {
        Combine::And | Combine::Or => DTypeClass::Bits,
        Combine::Sum | Combine::Prod | Combine::Max | Combine::Min => DTypeClass::Numeric,
    };
    if class.contains(dtype) { Ok(()) } else { Err(format!("{combine:?} takes {class:?} elements, not {dtype}")) }
}

/// Returns the type of `x` without the dims `removed`.
fn without(x: &TensorType, removed: &[usize]) -> TensorType {
    let dims: Dims = (0..x.rank()).filter(|d| !removed.contains(d)).map(|d| x.dims[d]).collect();
    TensorType { dtype: x.dtype, dims }
}

pub(super) fn reduce(x: &TensorType, combine: Combine, dims: &[usize]) -> Rule {
    check_combine(combine, x.dtype)?;
    check_distinct(dims, x.rank())?;
    Ok(without(x, dims))
}

pub(super) fn arg_reduce(types: &[&TensorType], dim: usize) -> Rule<(TensorType, TensorType)> {
    let (values, indices) = (types[0], types[1]);
    check_dim(dim, values.rank())?;
    if values.dims != indices.dims || !indices.dtype.is_int() || !DTypeClass::Any.contains(values.dtype) {
        return Err("values and integer indices must have the same dims".into());
    }
    if values.dims[dim] == 0 {
        return Err(format!("dim {dim} is empty and has no extreme value"));
    }
    Ok((without(values, &[dim]), without(indices, &[dim])))
}

fn check_window(x: &TensorType, window: &WindowAttrs) -> Rule<Dims> {
    for (what, len) in [
        ("window dims", window.dims.len()),
        ("strides", window.strides.len()),
        ("base_dilation", window.base_dilation.len()),
        ("window_dilation", window.window_dilation.len()),
        ("padding", window.padding.len()),
    ] {
        check_len(what, len, x.rank())?;
    }
    let w = window;
    let size = |i: usize| {
        let (low, high) = w.padding[i];
        window_positions(x.dims[i], w.dims[i], w.strides[i], w.base_dilation[i], w.window_dilation[i], low, high)
    };
    if w.dims.contains(&0) {
        return Err(format!("window dims {:?} must be at least 1", w.dims));
    }
    (0..x.rank()).map(size).collect()
}

pub(super) fn reduce_window(x: &TensorType, combine: Combine, window: &WindowAttrs) -> Rule {
    check_combine(combine, x.dtype)?;
    Ok(TensorType { dtype: x.dtype, dims: check_window(x, window)? })
}

pub(super) fn select_and_scatter(x: &TensorType, source: &TensorType, window: &WindowAttrs) -> Rule {
    check_combine(Combine::Sum, x.dtype)?;
    let dims = check_window(x, window)?;
    if window.base_dilation.iter().chain(&window.window_dilation).any(|&d| d != 1) {
        return Err("dilation is not supported".into());
    }
    if source.dtype != x.dtype || source.dims != dims {
        return Err(format!("the source must be {}", TensorType { dtype: x.dtype, dims }));
    }
    Ok(x.clone())
}

/// Returns the types of the results after the first.
pub(super) fn sort(types: &[&TensorType], dim: usize) -> Rule<Vec<TensorType>> {
    check_dim(dim, types[0].rank())?;
    if types.iter().any(|ty| ty.dims != types[0].dims || ty.dtype == DType::C64) {
        return Err("all operands must have the same dims".into());
    }
    Ok(types[1..].iter().map(|&ty| ty.clone()).collect())
}

/// Returns the types of the values and of their places.
pub(super) fn top_k(x: &TensorType, k: usize) -> Rule<(TensorType, TensorType)> {
    if matches!(x.dtype, DType::Bool | DType::C64) {
        return Err(format!("takes numbers that have an order, not {}", x.dtype));
    }
    let Some(&size) = x.dims.last() else { return Err("a scalar has no dim to search".into()) };
    if k > size || i32::try_from(size).is_err() {
        return Err(format!("there are {size} elements along the last dim: not {k}, or more than places of i32"));
    }
    let mut dims = x.dims.clone();
    dims.pop();
    dims.push(k);
    Ok((TensorType::new(x.dtype, &dims), TensorType::new(DType::I32, &dims)))
}
