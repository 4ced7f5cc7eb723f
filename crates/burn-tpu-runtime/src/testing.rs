//! Reference implementations for the tests of this workspace. They need the feature `testing` and are not part of the
//! public interface.

use crate::engine::HostValue;
use crate::profile::{self, Phase};
use crate::{Device, Result};
use burn_tpu_graph::Program;
use std::sync::Arc;

pub use crate::engine::{CPU_COMPILER_FLAGS, interpret_program};
pub use crate::runtime::with_level;

/// Returns the programs of the step that a training loop repeats, after the rewrites. Nothing is compiled or run.
///
/// # Errors
/// Fails for a step that computes nothing that the caller still holds.
pub fn recorded<S>(build: impl FnOnce(&Device) -> S, step: impl FnMut(S, &Device) -> S) -> Result<Vec<Arc<Program>>> {
    crate::fit::record(None, false, build, step).map(|step| step.programs)
}

/// Same as [`recorded`], for a mesh: the programs have placements.
///
/// # Errors
/// Those of [`recorded`].
pub fn recorded_on<S>(
    mesh: crate::Mesh,
    build: impl FnOnce(&Device) -> S,
    step: impl FnMut(S, &Device) -> S,
) -> Result<Vec<Arc<Program>>> {
    crate::fit::record(Some(mesh), false, build, step).map(|step| step.programs)
}

/// Returns whether a tensor's value has been computed: false for one that waits for a cut, and for one whose program runs.
pub fn is_computed(tensor: &crate::Tensor) -> bool {
    matches!(tensor.value(), Some(Ok(buffer)) if buffer.is_computed())
}

/// Returns whether devices of a mesh that have the same part of a tensor's value have the same bits; `None` for a value that
/// is not on a mesh.
///
/// # Errors
/// Those of the transfers.
pub fn replicas_agree(tensor: &crate::Tensor) -> Result<Option<bool>> {
    let Some(Ok(buffer)) = tensor.value() else { return Ok(None) };
    crate::engine::replicas_agree(buffer)
}

/// Returns how a tensor's value is split over a mesh, perhaps in a larger buffer, by the positions of the axes: `[{0},
/// {}]`; `None` for a value that is not on a mesh.
pub fn sharding(tensor: &crate::Tensor) -> Option<String> {
    let Some(Ok(buffer)) = tensor.value() else { return None };
    let larger = HostValue::of(buffer).and_then(HostValue::only_larger);
    let buffer = larger.as_ref().map_or(buffer, |(_, buffer)| buffer);
    buffer.sharding().map(ToString::to_string)
}

/// Begins and ends a span of a profile, and returns whether a profile is running. It is what recording an op does.
pub fn is_profiled() -> bool {
    profile::span(Phase::Record, "").is_some()
}
