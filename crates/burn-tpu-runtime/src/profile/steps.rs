//! Profiling some steps of a program: `BURN_TPU_PROFILE=DIR,steps=10..15`.

use super::{Profile, RunningProfile};
use crate::Device;
use crate::error::Result;
use crate::options::ProfileSteps;
use burn_tpu_pjrt::Plugin;
use parking_lot::Mutex;

/// A device whose steps are profiled.
pub(crate) trait ProfiledDevice {
    fn name(&self) -> Device;

    /// Waits until the device has finished what it was given, and returns the plugin that runs its programs, if one does.
    fn idle_plugin(&self) -> Result<Option<Plugin>>;
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
    pub(crate) fn started(&self, device: &impl ProfiledDevice) {
        self.begin_if_next(device, &mut self.state.lock());
    }

    /// A step has been dispatched: ends or begins the profile if it is its last, or the one before its first.
    pub(crate) fn step(&self, device: &impl ProfiledDevice) {
        if self.plan.is_none() {
            return;
        }
        let mut state = self.state.lock();
        state.ended += 1;
        self.end_if_last(device, &mut state);
        self.begin_if_next(device, &mut state);
    }

    fn begin_if_next(&self, device: &impl ProfiledDevice, state: &mut StepCount) {
        let is_first = self.plan.as_ref().is_some_and(|plan| plan.steps.start == state.ended);
        if !is_first {
            return;
        }
        // A device that did not start says so at its first read.
        match device.idle_plugin().and_then(|plugin| RunningProfile::start(device.name(), plugin)) {
            Ok(running) => state.running = Some(running),
            Err(error) => tracing::error!(%error, "steps are not profiled"),
        }
    }

    fn end_if_last(&self, device: &impl ProfiledDevice, state: &mut StepCount) {
        let Some(plan) = self.plan.as_ref().filter(|plan| plan.steps.end == state.ended) else { return };
        let Some(running) = state.running.take() else { return };
        let ended = device.idle_plugin().and_then(|_| running.finish(&plan.folder));
        match ended {
            Ok(Profile { report, files }) => {
                let (file, steps) = (files.xspace.display(), &plan.steps);
                tracing::info!(%file, ?steps, "a profile was written:\n{report}");
            }
            Err(error) => tracing::error!(%error, "a profile was not written"),
        }
    }
}
