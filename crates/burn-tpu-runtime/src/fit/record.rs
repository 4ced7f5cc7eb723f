//! Records a step without running it: finds the programs that a training loop repeats.

use crate::device::{NamedValues, RecordedPrograms};
use crate::error::{Result, TpuError};
use crate::metrics::CutReason;
use crate::{Device, Mesh, runtime, trace};
use burn_tpu_graph::Program;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The maximum number of recorded steps. The first steps of a loop differ (they draw weights and create the optimizer's
/// state); by this step the loop must repeat its programs.
const MOST_STEPS: usize = 5;

/// The programs of one step.
pub(crate) struct Step {
    pub(crate) programs: Vec<Arc<Program>>,
    /// Whether the step before ran the same programs. If not, this loop compiles at every step.
    pub(super) settled: bool,
    /// The number of places that these programs were rewritten at, by pass.
    pub(super) rewrites: BTreeMap<&'static str, usize>,
    /// What the layers of these programs can keep.
    pub(super) named: Vec<NamedValues>,
}

/// Builds a state and records steps, for one device or for a mesh, until two consecutive steps run the same programs.
/// `names_lines` says that labels of ops name the lines that recorded them.
///
/// # Errors
/// [`TpuError::Step`] for a step that computes nothing that the caller still holds.
pub(crate) fn record<S>(
    mesh: Option<Mesh>,
    names_lines: bool,
    build: impl FnOnce(&Device) -> S,
    mut step: impl FnMut(S, &Device) -> S,
) -> Result<Step> {
    let recorded = RecordedPrograms::new(names_lines);
    let device = Device::recording(recorded.clone(), mesh)?;
    let mut state = build(&device);
    trace::cut(device, CutReason::MarkStep)?;
    recorded.take();
    let (mut last, mut named) = (Vec::new(), Vec::new());
    let mut settled = false;
    for _ in 0..MOST_STEPS {
        state = step(state, &device);
        trace::cut(device, CutReason::MarkStep)?;
        let (programs, names) = recorded.take();
        settled = programs == last;
        (last, named) = (programs, names);
        if settled {
            break;
        }
    }
    drop(state);
    trace::forget(device);
    runtime::forget(device);
    if last.is_empty() {
        let reason = "it leaves no live tensor to compute: return the new state and the tensors that you want to read";
        return Err(TpuError::Step { reason: reason.into() });
    }
    let rewrites = recorded.rewrites_of(&last);
    Ok(Step { programs: last, settled, rewrites, named })
}
