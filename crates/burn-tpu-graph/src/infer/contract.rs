//! Rules of contractions: `dot_general` and `convolution`.

use super::{Rule, check_distinct, check_len};
use crate::op::{ConvAttrs, ConvDims, DotAttrs};
use crate::{DType, Dims, TensorType};

/// Checks that both operands have one type and that the result has that type or its accumulator's.
fn check_types(lhs: &TensorType, rhs: &TensorType, result: DType) -> Rule<()> {
    if lhs.dtype != rhs.dtype {
        return Err(format!("element types must be equal, got {} and {}", lhs.dtype, rhs.dtype));
    }
    let wider = lhs.dtype.is_int() && result.is_int() && result.size_bytes() >= lhs.dtype.size_bytes();
    if (lhs.dtype.is_float() || lhs.dtype.is_int())
        && (result == lhs.dtype || result == lhs.dtype.accumulator() || wider)
    {
        return Ok(());
    }
    Err(format!("{} operands cannot have a {result} result", lhs.dtype))
}

pub(super) fn dot_general(lhs: &TensorType, rhs: &TensorType, attrs: &DotAttrs) -> Rule {
    check_types(lhs, rhs, attrs.result)?;
    check_len("rhs_batch", attrs.rhs_batch.len(), attrs.lhs_batch.len())?;
    check_len("rhs_contract", attrs.rhs_contract.len(), attrs.lhs_contract.len())?;
    let lhs_named: Dims = attrs.lhs_batch.iter().chain(&attrs.lhs_contract).copied().collect();
    let rhs_named: Dims = attrs.rhs_batch.iter().chain(&attrs.rhs_contract).copied().collect();
    check_distinct(&lhs_named, lhs.rank())?;
    check_distinct(&rhs_named, rhs.rank())?;
    for (&l, &r) in lhs_named.iter().zip(&rhs_named) {
        if lhs.dims[l] != rhs.dims[r] {
            return Err(format!(
                "lhs dim {l} of size {} does not match rhs dim {r} of size {}",
                lhs.dims[l], rhs.dims[r]
            ));
        }
    }
    let mut dims: Dims = attrs.lhs_batch.iter().map(|&d| lhs.dims[d]).collect();
    dims.extend((0..lhs.rank()).filter(|d| !lhs_named.contains(d)).map(|d| lhs.dims[d]));
    dims.extend((0..rhs.rank()).filter(|d| !rhs_named.contains(d)).map(|d| rhs.dims[d]));
    Ok(TensorType { dtype: attrs.result, dims })
}

fn check_roles(what: &str, roles: &ConvDims, rank: usize) -> Rule<()> {
    let all: Dims = [roles.batch, roles.feature].into_iter().chain(roles.spatial.iter().copied()).collect();
    check_len(what, all.len(), rank)?;
    check_distinct(&all, rank)
}

pub(super) fn convolution(x: &TensorType, kernel: &TensorType, attrs: &ConvAttrs) -> Rule {
    check_types(x, kernel, attrs.result)?;
    let rank = x.rank();
    check_len("the kernel's dims", kernel.rank(), rank)?;
    check_roles("input dims", &attrs.input, rank)?;
    check_roles("kernel dims", &attrs.kernel, rank)?;
    check_roles("output dims", &attrs.output, rank)?;
    let spatial = rank - 2;
    for (what, len) in [
        ("strides", attrs.strides.len()),
        ("padding", attrs.padding.len()),
        ("lhs_dilation", attrs.lhs_dilation.len()),
        ("rhs_dilation", attrs.rhs_dilation.len()),
    ] {
        check_len(what, len, spatial)?;
    }
    let (batch, features) = (x.dims[attrs.input.batch], x.dims[attrs.input.feature]);
    let (out_features, group_features) = (kernel.dims[attrs.kernel.batch], kernel.dims[attrs.kernel.feature]);
    check_groups(attrs, batch, features, out_features, group_features)?;
    let mut dims = Dims::from_elem(0, rank);
    dims[attrs.output.batch] = batch / attrs.batch_groups;
    dims[attrs.output.feature] = out_features;
    for i in 0..spatial {
        dims[attrs.output.spatial[i]] = spatial_size(x, kernel, attrs, i)?;
    }
    Ok(TensorType { dtype: attrs.result, dims })
}

fn check_groups(attrs: &ConvAttrs, batch: usize, features: usize, out: usize, per_group: usize) -> Rule<()> {
    let (fg, bg) = (attrs.feature_groups, attrs.batch_groups);
    if fg == 0 || bg == 0 || (fg > 1 && bg > 1) {
        return Err(format!("feature_groups {fg} and batch_groups {bg}: at least 1, and only one above 1"));
    }
    if features != per_group * fg {
        return Err(format!("{features} input features are not {fg} groups of {per_group}"));
    }
    if !out.is_multiple_of(fg) || !out.is_multiple_of(bg) || !batch.is_multiple_of(bg) {
        return Err(format!("{out} output features or a batch of {batch} do not divide into {fg} and {bg} groups"));
    }
    Ok(())
}

fn spatial_size(x: &TensorType, kernel: &TensorType, attrs: &ConvAttrs, i: usize) -> Rule<usize> {
    let (size, window) = (x.dims[attrs.input.spatial[i]], kernel.dims[attrs.kernel.spatial[i]]);
    let (low, high) = attrs.padding[i];
    window_positions(size, window, attrs.strides[i], attrs.lhs_dilation[i], attrs.rhs_dilation[i], low, high)
}

/// Returns the number of positions of a window of `window` elements on a dim of `size`.
pub(super) fn window_positions(
    size: usize,
    window: usize,
    stride: usize,
    base_dilation: usize,
    window_dilation: usize,
    low: isize,
    high: isize,
) -> Rule<usize> {
    if stride == 0 || base_dilation == 0 || window_dilation == 0 {
        return Err("strides and dilations must be at least 1".into());
    }
    let spread = |n: usize, dilation: usize| match n {
        0 => Some(0),
        n => (n - 1).checked_mul(dilation).and_then(|s| s.checked_add(1)),
    };
    let overflow = || format!("a window of {window} on a size of {size} overflows");
    let base = spread(size, base_dilation).ok_or_else(overflow)?;
    let padded = base.checked_add_signed(low).and_then(|n| n.checked_add_signed(high));
    let padded = padded.ok_or_else(|| format!("padding ({low}, {high}) crops more than the size {base}"))?;
    let window = spread(window, window_dilation).ok_or_else(overflow)?;
    Ok(if window > padded || window == 0 { 0 } else { (padded - window) / stride + 1 })
}
