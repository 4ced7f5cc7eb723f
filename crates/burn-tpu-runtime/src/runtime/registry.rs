//! The registry of running devices, of settings for devices that do not run yet, and of the default device.
//!
//! A device's runtime is started by its first tensor, by `sync` or by [`TpuOptions::install`]. Queries and settings
//! that need no engine do not start it. A device that does not run has no metrics and no programs; its frozen state and
//! its seed are stored until it starts.

use super::{DeviceRuntime, MemoryReport};
use crate::activity::{Activity, waits};
use crate::engine;
use crate::error::{Result, TpuError};
use crate::metrics::Metrics;
use crate::options::{TpuOptions, mesh_from_environment, platform_from_environment};
use crate::{Device, Platform, warnings};
use parking_lot::RwLock;
use rustc_hash::FxHashMap;
use std::sync::{Arc, LazyLock, OnceLock};

#[derive(Default)]
struct Registry {
    running: FxHashMap<Device, Arc<DeviceRuntime>>,
    /// The settings of devices that do not run yet.
    pending: FxHashMap<Device, Pending>,
}

/// The settings that a device received before its start.
#[derive(Clone, Copy, Default)]
struct Pending {
    frozen: bool,
    seed: Option<u64>,
}

static REGISTRY: LazyLock<RwLock<Registry>> = LazyLock::new(RwLock::default);

impl Registry {
    fn insert(&mut self, device: Device, runtime: DeviceRuntime) -> Arc<DeviceRuntime> {
        let pending = self.pending.remove(&device).unwrap_or_default();
        runtime.compiler().freeze(pending.frozen);
        if let Some(seed) = pending.seed {
            runtime.draws().seed(seed);
        }
        let runtime = Arc::new(runtime);
        self.running.insert(device, Arc::clone(&runtime));
        runtime
    }
}

/// Returns the runtime of a device. Starts it with default options if it is not running.
pub(crate) fn runtime(device: Device) -> Arc<DeviceRuntime> {
    if let Some(runtime) = running(device) {
        return runtime;
    }
    let mut registry = REGISTRY.write();
    if let Some(runtime) = registry.running.get(&device) {
        return Arc::clone(runtime);
    }
    let (options, problem) = match TpuOptions::default().with_environment() {
        Ok(options) => (options, None),
        Err(error) => (TpuOptions::default(), Some(error)),
    };
    registry.insert(device, DeviceRuntime::new(device, options, problem))
}

/// Returns the runtime of a device, if it is running.
pub(crate) fn running(device: Device) -> Option<Arc<DeviceRuntime>> {
    REGISTRY.read().running.get(&device).cloned()
}

/// Starts a device with the given options. See [`TpuOptions::install`].
pub(crate) fn start(device: Device, options: TpuOptions) -> Result<()> {
    let mut registry = REGISTRY.write();
    if registry.running.contains_key(&device) {
        return Err(TpuError::AlreadyRunning { device: device.to_string() });
    }
    let named_plugin = options.plugin.is_some();
    let runtime = DeviceRuntime::new(device, options, None);
    if let Err(error @ TpuError::ClientOption { .. }) = runtime.open().engine() {
        return Err(error);
    }
    let started = registry.insert(device, runtime);
    if named_plugin { started.open().engine().map(|_| ()) } else { Ok(()) }
}

/// Drops a device's state: its programs and its engine. Tensors that still exist keep the state that they need alive.
pub(crate) fn forget(device: Device) {
    let mut registry = REGISTRY.write();
    let forgotten = registry.running.remove(&device);
    registry.pending.remove(&device);
    drop(registry);
    drop(forgotten);
}

/// Returns the metrics of a device. See [`Device::metrics`].
pub(crate) fn metrics(device: Device) -> Metrics {
    running(device).map(|runtime| runtime.metrics()).unwrap_or_default()
}

/// Returns what a device does at this moment. See [`Device::activity`]. While a device starts, which may take long, nothing
/// is known of programs.
pub(crate) fn activity(device: Device) -> Activity {
    let runtime = REGISTRY.try_read().and_then(|registry| registry.running.get(&device).cloned());
    let idle = || Activity { device, programs: Vec::new(), waits: waits(device) };
    runtime.map_or_else(idle, |runtime| runtime.open().activity())
}

/// Returns what a device's memory holds: nothing, for a device that was not started.
pub(crate) fn memory(device: Device) -> MemoryReport {
    let empty = || MemoryReport::empty(device);
    running(device).map_or_else(empty, |runtime| runtime.open().memory())
}

/// Returns the keys of a device's programs. See [`Device::program_keys`].
pub(crate) fn program_keys(device: Device) -> Vec<u64> {
    running(device).map(|runtime| runtime.open().cache().keys()).unwrap_or_default()
}

/// Freezes or unfreezes a device. See [`Device::freeze`].
pub(crate) fn freeze(device: Device, frozen: bool) {
    now_or_at_start(device, |runtime| runtime.compiler().freeze(frozen), |pending| pending.frozen = frozen);
}

/// Seeds the random numbers of a device.
pub(crate) fn seed(device: Device, seed: u64) {
    now_or_at_start(device, |runtime| runtime.draws().seed(seed), |pending| pending.seed = Some(seed));
}

fn now_or_at_start(device: Device, now: impl FnOnce(&DeviceRuntime), at_start: impl FnOnce(&mut Pending)) {
    let mut registry = REGISTRY.write();
    match registry.running.get(&device) {
        Some(runtime) => now(runtime),
        None => at_start(registry.pending.entry(device).or_default()),
    }
}

/// Returns the default device. See [`Device::default`].
pub(crate) fn default_device() -> Device {
    static DEVICE: OnceLock<Device> = OnceLock::new();
    *DEVICE.get_or_init(|| match mesh_from_environment() {
        Ok(Some(mesh)) => Device::mesh(mesh),
        Ok(None) => default_chip(),
        Err(error) => {
            tracing::warn!(%error, "BURN_TPU_MESH is ignored");
            default_chip()
        }
    })
}

/// Returns the default device without regard to meshes: the first chip of the platform that is asked for, or the best one.
pub(crate) fn default_chip() -> Device {
    static CHIP: OnceLock<Device> = OnceLock::new();
    *CHIP.get_or_init(|| match platform_from_environment() {
        Ok(Some(platform)) => Device::new(platform, 0),
        Ok(None) => best_device(),
        Err(error) => {
            tracing::warn!(%error, "BURN_TPU_PLATFORM is ignored");
            best_device()
        }
    })
}

/// Returns the first device of the first platform whose client opens, or may wait and has a plugin. If there is none, it
/// returns the interpreter's device with one warning. If the user named a plugin file, it returns the device for which the
/// file was named; the first read of that device reports the error.
fn best_device() -> Device {
    // The first use of the device reports a variable with an invalid value.
    let options = TpuOptions::default().with_environment().unwrap_or_default();
    let named = std::env::var_os(burn_tpu_pjrt::discovery::PLUGIN_VARIABLE).is_some_and(|path| !path.is_empty());
    let (mut reasons, mut failed) = (Vec::new(), None);
    for platform in [Platform::Tpu, Platform::Cuda, Platform::Cpu] {
        let device = Device::new(platform, 0);
        if !engine::is_present(platform) {
            reasons.push(format!("no {platform} hardware"));
            continue;
        }
        match engine::open_client(device, &options) {
            Ok(()) => return device,
            Err(error) => {
                failed.get_or_insert(device);
                reasons.push(error.to_string());
            }
        }
    }
    let tried = reasons.join("; ");
    if let (true, Some(device)) = (named, failed) {
        warnings::error(format_args!("the plugin that BURN_TPU_PLUGIN names cannot be used: {tried}"));
        return device;
    }
    warnings::warn(format_args!(
        "no PJRT plugin is usable, so tensors run in the interpreter, slowly. \
         Install the CPU plugin with `cargo xtask setup cpu`, or see docs/plugins.md. Tried: {tried}"
    ));
    Device::ndarray()
}

/// Starts a device with an engine of a test's own.
#[cfg(test)]
pub(crate) fn start_with(device: Device, options: TpuOptions, engine: Arc<dyn engine::Engine>) {
    let runtime = DeviceRuntime::with_engine(device, options, Ok(engine), Arc::default());
    REGISTRY.write().insert(device, runtime);
}
