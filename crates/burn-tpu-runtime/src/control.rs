//! What a program asks of a device: to run what was recorded, to wait, to report, to freeze; and the default device.
//!
//! Everything is one call of the trace or of the registry of runtimes. No other module of this crate but the ops may use it.

use crate::activity::Activity;
use crate::device::{Device, Platform};
use crate::error::Result;
#[cfg(doc)]
use crate::error::TpuError;
use crate::metrics::{CutReason, Metrics};
use crate::options::TpuOptions;
use crate::profile::{Profile, RunningProfile};
use crate::runtime::{MemoryReport, default_device, registry, runtime, start};
use crate::{engine, trace};
use std::path::Path;

impl Device {
    /// Runs everything that the calling thread has recorded on the device as one program, without waiting for it.
    ///
    /// The end of a training step is the place for it: with all of a step in one program, XLA fuses across its ops and
    /// nothing but the step's results is kept.
    pub fn mark_step(self) {
        trace::mark_step(self);
    }

    /// Runs what the calling thread has recorded as one program, without waiting for it.
    ///
    /// # Errors
    /// Why the program was refused; its work stays recorded.
    pub fn flush(self) -> Result<()> {
        trace::cut(self, CutReason::MarkStep)
    }

    /// Runs what the calling thread has recorded and waits for all that the device was given. Afterwards the device is open:
    /// a plugin that waited for its first program is loaded.
    ///
    /// # Errors
    /// Those of [`Device::wait`], and the device's own error if it cannot be opened.
    pub fn sync(self) -> Result<()> {
        self.wait().and_then(|()| runtime(self).open().engine()?.open())
    }

    /// Runs what the calling thread has recorded and waits for all that the device was given.
    ///
    /// # Errors
    /// The device's own error when it did not start; that of a program that was refused, whose work stays recorded, or that
    /// failed while it ran; [`TpuError::Index`] where computed indices are checked, and [`TpuError::NotFinite`] where NaN
    /// and infinities are.
    pub fn wait(self) -> Result<()> {
        let cut = trace::cut(self, CutReason::Sync);
        cut.and(runtime(self).open().wait()).and_then(|()| runtime(self).deferred_errors())
    }

    /// Returns what the device has done since it started: all zeros for one that was not used yet, which this does not
    /// start. Print it for a report.
    pub fn metrics(self) -> Metrics {
        registry::metrics(self)
    }

    /// Returns what the device does at this moment: the programs in flight, and what this process's threads wait for. It
    /// neither starts the device nor waits for it. Print it to see why nothing goes on.
    pub fn activity(self) -> Activity {
        registry::activity(self)
    }

    /// Returns what the device's memory holds, by what it is, with the largest tensors and the lines that made them. It
    /// neither starts the device nor waits for it: a tensor that is recorded and not computed takes no memory yet. Print it
    /// for a table.
    pub fn memory(self) -> MemoryReport {
        registry::memory(self)
    }

    /// Makes every later compile on the device an error, [`TpuError::Frozen`], which says what differs and where. The work
    /// of a refused program stays recorded, and its tensors keep their values: after [`Device::unfreeze`] it runs.
    ///
    /// Freeze a training or serving loop once it is warm: from then on, nothing can stop for a compile unnoticed. A device
    /// that was not used yet is frozen from its start.
    pub fn freeze(self) {
        registry::freeze(self, true);
    }

    /// Compiles the program of every bucket that the device's families of programs need up to the largest sizes that have
    /// come, and runs none. Returns the number of compiles. What was not recorded at three sizes yet is no family. See
    /// `docs/shapes.md`.
    ///
    /// # Errors
    /// Those of the compiler.
    pub fn compile_buckets(self) -> Result<usize> {
        registry::running(self).map_or(Ok(0), |runtime| runtime.compile_buckets())
    }

    /// Ends [`Device::freeze`].
    pub fn unfreeze(self) {
        registry::freeze(self, false);
    }

    /// Returns the identities of the programs in the device's cache, ascending. Two runs that recorded the same programs
    /// give the same list. It is empty for a device that was not used yet.
    pub fn program_keys(self) -> Vec<u64> {
        registry::program_keys(self)
    }

    /// Evicts every compiled program of the device from memory.
    pub fn clear_programs(self) {
        if let Some(runtime) = registry::running(self) {
            runtime.open().cache().clear();
        }
    }

    /// Starts the device's random numbers anew from a seed.
    pub fn seed(self, seed: u64) {
        registry::seed(self, seed);
    }

    /// Returns the key and the counter of the device's next random draw. Starts the device.
    pub fn next_draw(self) -> (u64, u64) {
        runtime(self).draws().next_draw()
    }

    /// Makes the device's next random draw begin at a key and a counter. Starts the device.
    pub fn draw_from(self, next: (u64, u64)) {
        runtime(self).draws().draw_from(next);
    }
}

/// Ends a training step: runs what the calling thread has recorded on any device. What was recorded before the step and
/// the step does not use runs as programs of its own, so that the step is the same program every time.
pub fn end_step() {
    trace::end_step();
}

/// Returns the devices of a platform that this process can use: those of its host, or of its part of the host.
pub fn local_devices(platform: Platform) -> Vec<Device> {
    let count = u16::try_from(platform.device_count()).unwrap_or(u16::MAX);
    (0..count).map(|index| Device::new(platform, index)).collect()
}

/// Runs a closure and writes what host and device did meanwhile below `folder`, where TensorBoard and XProf look for it.
/// What was recorded before runs before the profile begins; it ends when the device has finished.
///
/// # Errors
/// [`TpuError::ProfileRunning`] if the process has a profile running; [`TpuError::Profile`] if its files cannot be written;
/// an error of [`Device::sync`] or of the plugin's profiler. If the closure was run, its result is lost then.
pub fn profile<R>(
    device: &impl AsRef<Device>,
    folder: impl AsRef<Path>,
    run: impl FnOnce() -> R,
) -> Result<(R, Profile)> {
    let device = *device.as_ref();
    device.sync()?;
    let running = RunningProfile::start(device, runtime(device).open().engine()?.plugin())?;
    let result = run();
    device.sync()?;
    Ok((result, running.finish(folder.as_ref())?))
}

impl Default for Device {
    /// The best device present: TPU, CUDA, CPU plugin, interpreter. `BURN_TPU_PLATFORM` picks the platform instead, and
    /// `BURN_TPU_MESH` makes a mesh of its chips.
    ///
    /// The answer is found once per process. When only the interpreter is left, one warning says how to install a plugin.
    fn default() -> Self {
        default_device()
    }
}

impl Platform {
    /// Returns whether the platform's hardware seems to be present, without loading a plugin. The host's processor always
    /// is.
    pub fn is_present(self) -> bool {
        engine::is_present(self)
    }

    /// Returns the platform's place in an order for type ids: the platform of `Device::default()` is 0, since programs use
    /// type id 0, and the others follow in the order of [`Platform::ALL`].
    pub fn position(self) -> usize {
        let (first, place) = (Device::default().platform() as usize, self as usize);
        match place.cmp(&first) {
            std::cmp::Ordering::Less => place + 1,
            std::cmp::Ordering::Equal => 0,
            std::cmp::Ordering::Greater => place,
        }
    }

    /// Returns the platform at a place: the inverse of [`Platform::position`].
    pub fn at_position(position: usize) -> Option<Platform> {
        let first = Device::default().platform() as usize;
        let place = match position {
            0 => first,
            position if position <= first => position - 1,
            position => position,
        };
        Platform::ALL.get(place).copied()
    }

    /// Returns the number of devices of a platform that has been opened; 1 for the interpreter, and for the crate `xla` in a
    /// program that has its engine.
    pub fn device_count(self) -> usize {
        engine::device_count(self)
    }
}

impl TpuOptions {
    /// Sets these options for `device`, after the environment's overrides.
    ///
    /// Call it before the device's first tensor. Choosing a device ([`Device::default`]), counting the devices of a
    /// platform, [`Device::metrics`], [`Device::program_keys`], [`Device::freeze`] and [`Device::seed`] do not count as a
    /// use.
    ///
    /// The options `plugin`, `memory_fraction` and `cpu_devices` belong to the client of a platform, which all its
    /// devices share. A device that does not set them accepts the existing client.
    ///
    /// # Errors
    /// - [`TpuError::AlreadyRunning`] if the device is already in use.
    /// - [`TpuError::ClientOption`] if another device of the platform is in use with another value of an option that
    ///   belongs to the client. The device is then not started.
    /// - [`TpuError::Option`] if an environment variable has an invalid value.
    /// - [`TpuError::Unavailable`] if these options name a plugin file that cannot be used. The device then reports the
    ///   same error at every read. If no file is named, the first read reports a missing plugin.
    pub fn install(self, device: &impl AsRef<Device>) -> Result<()> {
        start(*device.as_ref(), self.with_environment()?)
    }
}
