//! Checks that indices are in range, as far as [`TpuOptions::check_indices`](crate::TpuOptions::check_indices) says.
//!
//! Values that the host knows are compared when the op is recorded. For computed indices, the program also computes their
//! extremes, which `runtime::index_checks` compares when the program has run. Devices that execute nothing check nothing.

use crate::engine::{HostBytes, HostValue};
use crate::lines::Stack;
use crate::runtime::{IndexRange, outside, runtime};
use crate::trace::{Recorder, current_function, record};
use crate::{IndexChecks, Platform, Tensor};
use burn_tpu_graph::op::Combine;
use burn_tpu_graph::{Builder, DType, NodeId, Result};
use std::ops::Range;

/// Checks the indices of an op that takes them for dim `dim` of `x`.
///
/// # Panics
/// If the host knows the values, and one is out of range: this is Burn's contract for a user's mistake.
pub(super) fn check(op: &'static str, x: &Tensor, dim: usize, indices: &Tensor) {
    check_components(op, x, dim..dim + 1, indices);
}

/// [`check`] of coordinates: the last dim of `indices` has a component for each of the first dims of `x`.
pub(super) fn check_nd(op: &'static str, x: &Tensor, indices: &Tensor) {
    check_components(op, x, 0..indices.dims().last().copied().unwrap_or(0), indices);
}

fn check_components(op: &'static str, x: &Tensor, dims: Range<usize>, indices: &Tensor) {
    let device = runtime(indices.device());
    let checks = device.open().options().check_indices;
    let first_dim = dims.start;
    // What has no place or no indices breaks another rule of the op, or none.
    let Some(sizes) = x.dims().get(dims).filter(|sizes| !sizes.is_empty()) else { return };
    if checks == IndexChecks::Off || !indices.element().is_int() || indices.ty().elements() == 0 {
        return;
    }
    let components = sizes.len();
    let range = || IndexRange { op, first_dim, sizes: sizes.to_vec(), stack: Stack::capture() };
    if let Some(bytes) = host_bytes(indices) {
        let extremes = extremes_of(bytes.as_ref(), indices.element(), components);
        // The stack is captured for a mistake alone.
        if let Some(error) = outside(sizes, &extremes).and_then(|_| range().violation(&extremes)) {
            panic!("burn-tpu: {error}");
        }
    } else if checks == IndexChecks::All && indices.device().platform() != Platform::Topology {
        let extremes = record("check_indices", [indices], |r, [indices]| recorded_extremes(r, indices, components));
        match current_function() {
            Some(function) => function.check(extremes, range()),
            None => device.check_later(Box::new(move || extremes.value().cloned()), range()),
        }
    }
}

/// Returns the elements of a tensor whose value is on the host.
fn host_bytes(tensor: &Tensor) -> Option<HostBytes> {
    HostValue::of(tensor.value()?.as_ref().ok()?)?.bytes()
}

/// Returns the smallest index of each component, then the largest of each.
fn extremes_of(bytes: &[u8], dtype: DType, components: usize) -> Vec<i64> {
    let mut extremes = [vec![i64::MAX; components], vec![i64::MIN; components]].concat();
    for (i, bytes) in bytes.chunks_exact(dtype.size_bytes()).enumerate() {
        let (index, component) = (integer(bytes, dtype), i % components);
        extremes[component] = extremes[component].min(index);
        extremes[components + component] = extremes[components + component].max(index);
    }
    extremes
}

/// Returns a little-endian integer. One of 64 bits without a sign that is too large is negative, which no range contains.
fn integer(bytes: &[u8], dtype: DType) -> i64 {
    let negative = dtype.is_signed_int() && bytes.last().is_some_and(|byte| *byte >= 0x80);
    let mut wide = [if negative { 0xff } else { 0 }; 8];
    wide[..bytes.len()].copy_from_slice(bytes);
    i64::from_le_bytes(wide)
}

/// [`extremes_of`] as nodes: `i64[2 * components]`.
fn recorded_extremes(r: &mut Recorder, indices: NodeId, components: usize) -> Result<NodeId> {
    let coordinates = r.ty(indices).elements() / components;
    let indices = r.convert(indices, DType::I64)?;
    let indices = r.reshape(indices, &[coordinates, components])?;
    let least = r.reduce(Combine::Min, indices, &[0])?;
    let most = r.reduce(Combine::Max, indices, &[0])?;
    r.concatenate(&[least, most], 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extremes_are_those_of_each_component() {
        let bytes: Vec<u8> = [3i32, -1, 0, 7, 2, 5].into_iter().flat_map(i32::to_le_bytes).collect();
        assert_eq!(extremes_of(&bytes, DType::I32, 1), [-1, 7]);
        assert_eq!(extremes_of(&bytes, DType::I32, 2), [0, -1, 3, 7]);
        assert_eq!(extremes_of(&[200, 3], DType::U8, 1), [3, 200]);
        assert_eq!(extremes_of(&[200, 3], DType::I8, 1), [-56, 3]);
        assert_eq!(extremes_of(&u64::MAX.to_le_bytes(), DType::U64, 1), [-1, -1]);
    }

    #[test]
    fn the_first_component_out_of_range_is_found() {
        assert_eq!(outside(&[3, 4], &[0, 0, 2, 3]), None);
        assert_eq!(outside(&[3, 4], &[0, 0, 2, 4]), Some(1));
        assert_eq!(outside(&[3, 4], &[-1, 0, 2, 4]), Some(0));
        assert_eq!(outside(&[0], &[0, 0]), Some(0));
    }
}
