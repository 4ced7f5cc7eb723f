//! Profiling some steps of a program: `BURN_TPU_PROFILE=DIR,steps=10..15`.

use super::{Profile, RunningProfile};
use crate::error::Result;
use crate::runtime::DeviceRuntime;
use parking_lot::Mutex;
use std::ops::Range;
use std::path::PathBuf;

/// The steps that are profiled if none are named: the first ones compile.
const DEFAULT_STEPS: Range<u64> = 10..15;

/// Which steps to profile, and where to write the profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileSteps {
    folder: PathBuf,
    steps: Range<u64>,
}

impl ProfileSteps {
    /// Profiles these steps of a device, and writes below `folder`. A step ends with a mark step; the first is number 0. The
    /// profile is written when the last one has ended.
    ///
    /// # Panics
    /// If the range is empty.
    pub fn new(folder: impl Into<PathBuf>, steps: Range<u64>) -> Self {
        assert!(!steps.is_empty(), "ProfileSteps: the range {steps:?} has no step");
        Self { folder: folder.into(), steps }
    }

    /// Reads `DIR` or `DIR,steps=10..15`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let rule = "is not DIR or DIR,steps=FIRST..END with FIRST smaller than END, as traces,steps=10..15";
        let (folder, steps) = match text.rsplit_once(",steps=") {
            None => (text, Some(DEFAULT_STEPS)),
            Some((folder, steps)) => (folder, range(steps)),
        };
        let steps = steps.filter(|steps| !steps.is_empty() && !folder.is_empty()).ok_or(rule)?;
        Ok(Self { folder: folder.into(), steps })
    }
}

fn range(text: &str) -> Option<Range<u64>> {
    let (first, end) = text.split_once("..")?;
    Some(first.parse().ok()?..end.parse().ok()?)
}

/// Counts the steps of a device, and profiles the steps that its options name.
#[derive(Default)]
pub(crate) struct StepProfiler {
    plan: Option<ProfileSteps>,
    state: Mutex<StepCount>,
}

#[derive(Default)]
struct StepCount {
    ended: u64,
    running: Option<RunningProfile>,
}

impl StepProfiler {
    pub(crate) fn new(plan: Option<ProfileSteps>) -> Self {
        Self { plan, state: Mutex::default() }
    }

    /// The device has started: begins the profile if it is that of the first step.
    pub(crate) fn started(&self, runtime: &DeviceRuntime) {
        self.begin_if_next(runtime, &mut self.state.lock());
    }

    /// A step has been dispatched: ends or begins the profile if it is its last, or the one before its first.
    pub(crate) fn step(&self, runtime: &DeviceRuntime) {
        if self.plan.is_none() {
            return;
        }
        let mut state = self.state.lock();
        state.ended += 1;
        self.end_if_last(runtime, &mut state);
        self.begin_if_next(runtime, &mut state);
    }

    fn begin_if_next(&self, runtime: &DeviceRuntime, state: &mut StepCount) {
        let is_first = self.plan.as_ref().is_some_and(|plan| plan.steps.start == state.ended);
        if !is_first {
            return;
        }
        // A device that did not start says so at its first read.
        match runtime.wait().and_then(|()| RunningProfile::start(runtime)) {
            Ok(running) => state.running = Some(running),
            Err(error) => tracing::error!(%error, "steps are not profiled"),
        }
    }

    fn end_if_last(&self, runtime: &DeviceRuntime, state: &mut StepCount) {
        let Some(plan) = self.plan.as_ref().filter(|plan| plan.steps.end == state.ended) else { return };
        let Some(running) = state.running.take() else { return };
        let ended = runtime.wait().and_then(|()| running.finish(&plan.folder));
        match ended {
            Ok(Profile { report, files }) => {
                let (file, steps) = (files.xspace.display(), &plan.steps);
                tracing::info!(%file, ?steps, "a profile was written:\n{report}");
            }
            Err(error) => tracing::error!(%error, "a profile was not written"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_read_after_a_folder() {
        let parsed = |text| ProfileSteps::parse(text);
        assert_eq!(parsed("/tmp/a,b,steps=3..6"), Ok(ProfileSteps::new("/tmp/a,b", 3..6)));
        assert_eq!(parsed("traces"), Ok(ProfileSteps::new("traces", DEFAULT_STEPS)));
        for wrong in ["", ",steps=1..2", "d,steps=2..2", "d,steps=5..2", "d,steps=5", "d,steps=a..b", "d,steps="] {
            assert!(parsed(wrong).unwrap_err().contains("FIRST..END"), "{wrong}");
        }
    }
}
