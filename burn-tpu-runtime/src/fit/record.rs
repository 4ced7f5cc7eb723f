//! Recording a step without running it: which programs a training loop runs once it has settled.

use crate::engine::Draft;
use crate::error::{Result, TpuError};
use crate::metrics::CutReason;
use crate::{Device, Platform, runtime, topology, trace};
use burn_tpu_graph::Program;
use std::sync::Arc;

/// The first steps of a loop differ (weights are drawn, an optimizer makes its state); by then it must have settled.
const MOST_STEPS: usize = 5;

/// The programs of one step.
pub(super) struct Step {
    pub(super) programs: Vec<Arc<Program>>,
    /// Whether the step before ran the same ones: if not, this loop compiles again and again.
    pub(super) settled: bool,
}

/// Builds a state and steps it until two steps in a row run the same programs.
///
/// # Errors
/// [`TpuError::Step`] for a step that leaves nothing to compute.
pub(super) fn record<S>(build: impl FnOnce(&Device) -> S, mut step: impl FnMut(S, &Device) -> S) -> Result<Step> {
    let draft = Draft::default();
    let device = Device::new(Platform::Topology, topology::register_draft(draft.clone())?);
    let mut state = build(&device);
    trace::cut(device, CutReason::MarkStep)?;
    draft.take();
    let mut last = Vec::new();
    let mut settled = false;
    for _ in 0..MOST_STEPS {
        state = step(state, &device);
        trace::cut(device, CutReason::MarkStep)?;
        let programs = draft.take();
        settled = programs == last;
        last = programs;
        if settled {
            break;
        }
    }
    drop(state);
    trace::forget(device);
    runtime::forget(device);
    if last.is_empty() {
        let reason = "it left nothing alive that has to be computed: return the new state and what you would read";
        return Err(TpuError::Step { reason: reason.into() });
    }
    Ok(Step { programs: last, settled })
}
