//! What stands behind a device: its engine, options, program cache, metrics and random state. Started at first use.

mod compile;

use crate::compiling::Compiling;
use crate::engine::{self, Arguments, DeviceBuffer, Engine, Executable, SharedBuffer};
use crate::error::{Result, TpuError};
use crate::metrics::Counters;
use crate::options::{TpuOptions, platform_from_environment};
use crate::program::{ProgramCache, Recorded};
use crate::recompile::Watch;
use crate::{Device, Platform};
use burn_tpu_graph::TensorType;
use parking_lot::{Mutex, RwLock};
use rustc_hash::FxHashMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::Instant;

/// The state of one device in use.
pub(crate) struct DeviceRuntime {
    device: Device,
    options: TpuOptions,
    /// A device that is missing keeps the reason; every upload, run and read answers with it.
    engine: Result<Arc<dyn Engine>>,
    cache: ProgramCache,
    compiling: Compiling<Arc<dyn Executable>>,
    counters: Arc<Counters>,
    rng: Mutex<(u64, u64)>,
    /// Whether a compile is an error.
    frozen: AtomicBool,
}

static RUNTIMES: LazyLock<RwLock<FxHashMap<Device, Arc<DeviceRuntime>>>> = LazyLock::new(RwLock::default);

/// The runtime of a device, started with default options if it is not running.
pub(crate) fn runtime(device: Device) -> Arc<DeviceRuntime> {
    if let Some(runtime) = RUNTIMES.read().get(&device) {
        return Arc::clone(runtime);
    }
    let mut runtimes = RUNTIMES.write();
    let start = || {
        let options = TpuOptions::default().with_environment();
        let (options, problem) = match options {
            Ok(options) => (options, None),
            Err(error) => (TpuOptions::default(), Some(error)),
        };
        Arc::new(DeviceRuntime::new(device, options, problem))
    };
    Arc::clone(runtimes.entry(device).or_insert_with(start))
}

/// Starts a device with given options.
pub(crate) fn start(device: Device, options: TpuOptions) -> Result<()> {
    let mut runtimes = RUNTIMES.write();
    if runtimes.contains_key(&device) {
        return Err(TpuError::AlreadyRunning { device: device.to_string() });
    }
    runtimes.insert(device, Arc::new(DeviceRuntime::new(device, options, None)));
    Ok(())
}

/// Lets a device's state go: its programs and its engine. Tensors that are still there keep it alive for themselves.
pub(crate) fn forget(device: Device) {
    let forgotten = RUNTIMES.write().remove(&device);
    drop(forgotten);
}

/// See [`Device::default`].
pub(crate) fn default_device() -> Device {
    static DEVICE: OnceLock<Device> = OnceLock::new();
    *DEVICE.get_or_init(|| match platform_from_environment() {
        Ok(Some(platform)) => Device::new(platform, 0),
        Ok(None) => best_device(),
        Err(error) => {
            tracing::warn!(%error, "BURN_TPU_PLATFORM is ignored");
            best_device()
        }
    })
}

/// The first platform whose device opens; burn-ndarray with one warning when none does.
fn best_device() -> Device {
    let mut reasons = Vec::new();
    for platform in [Platform::Tpu, Platform::Cuda, Platform::Cpu] {
        let device = Device::new(platform, 0);
        if !engine::is_present(platform) {
            reasons.push(format!("no {platform} hardware"));
            continue;
        }
        match &runtime(device).engine {
            Ok(_) => return device,
            Err(error) => {
                RUNTIMES.write().remove(&device);
                reasons.push(error.to_string());
            }
        }
    }
    tracing::warn!(
        "no PJRT plugin is usable, so tensors run on burn-ndarray, slowly. \
         Install the CPU plugin with `cargo xtask setup cpu`, or see docs/plugins.md. Tried: {}",
        reasons.join("; ")
    );
    Device::ndarray()
}

impl DeviceRuntime {
    fn new(device: Device, options: TpuOptions, problem: Option<TpuError>) -> Self {
        let counters = Arc::<Counters>::default();
        let engine: Result<Arc<dyn Engine>> = match (problem, device.platform()) {
            (Some(error), _) => Err(error),
            (None, Platform::NdArray) => engine::open_ndarray(),
            (None, Platform::Topology) => engine::open_described(device, &options),
            (None, Platform::Tpu | Platform::Cuda | Platform::Cpu) => engine::open(device, &options, &counters),
        };
        match &engine {
            Ok(engine) => tracing::info!(%device, engine = engine.describe(), "device started"),
            Err(error) => tracing::error!(%device, %error, "device did not start"),
        }
        let cache = ProgramCache::new(options.cache_entries, options.cache_bytes);
        let rng = Mutex::new((entropy(), 0));
        let frozen = AtomicBool::new(false);
        Self { device, options, engine, cache, compiling: Compiling::default(), counters, rng, frozen }
    }

    pub(crate) fn device(&self) -> Device {
        self.device
    }

    pub(crate) fn options(&self) -> &TpuOptions {
        &self.options
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    pub(crate) fn cache(&self) -> &ProgramCache {
        &self.cache
    }

    pub(crate) fn engine(&self) -> Result<&Arc<dyn Engine>> {
        self.engine.as_ref().map_err(Clone::clone)
    }

    /// Starts the random numbers of this device anew.
    pub(crate) fn seed(&self, seed: u64) {
        *self.rng.lock() = (seed, 0);
    }

    /// Key and first counter of a draw of `words` 32-bit words. Later draws begin behind it, so none repeats.
    pub(crate) fn draw(&self, words: usize) -> (u64, u64) {
        let mut rng = self.rng.lock();
        let drawn = *rng;
        rng.1 = rng.1.wrapping_add(words as u64 / 2 + 1);
        drawn
    }

    /// Puts row-major little-endian bytes on the device.
    pub(crate) fn upload(&self, ty: &TensorType, bytes: Vec<u8>) -> Result<DeviceBuffer> {
        Counters::add(&self.counters.uploads, 1);
        Counters::add(&self.counters.upload_bytes, bytes.len());
        let _span = tracing::trace_span!("transfer", direction = "upload", bytes = bytes.len()).entered();
        self.engine()?.upload(ty, bytes)
    }

    /// Waits for a value and copies its bytes to the host.
    pub(crate) fn download(&self, buffer: &DeviceBuffer) -> Result<Vec<u8>> {
        let start = Instant::now();
        let _span = tracing::trace_span!("transfer", direction = "download").entered();
        let bytes = self.engine()?.download(buffer)?;
        Counters::add_time(&self.counters.read_ns, start.elapsed());
        Counters::add(&self.counters.downloads, 1);
        Counters::add(&self.counters.download_bytes, bytes.len());
        Ok(bytes)
    }

    /// Waits until everything dispatched has finished.
    pub(crate) fn wait(&self) -> Result<()> {
        let start = Instant::now();
        let waited = self.engine()?.wait();
        Counters::add_time(&self.counters.wait_ns, start.elapsed());
        waited
    }

    /// Dispatches a recorded program, compiled now if it was never seen. The watch says which lines recorded it.
    pub(crate) fn run(
        &self,
        recorded: &Recorded,
        buffers: Arguments,
        slots: &[u64],
        watch: &mut Watch,
    ) -> Result<Vec<SharedBuffer>> {
        let start = Instant::now();
        let found = self.cache.get(recorded);
        Counters::add_time(&self.counters.key_ns, start.elapsed());
        let compiled = match found {
            Some(compiled) if compiled.identity.assumed.fits(slots) => {
                Counters::add(&self.counters.cache_hits, 1);
                compiled
            }
            older => self.compile(recorded, slots, older, watch)?,
        };
        watch.ran(&compiled.identity);
        let _span = tracing::debug_span!("execute").entered();
        let start = Instant::now();
        let execution = compiled.executable.execute(buffers, slots)?;
        Counters::add_time(&self.counters.dispatch_ns, start.elapsed());
        Counters::add(&self.counters.executions, 1);
        Counters::add(&self.counters.donated_buffers, execution.donated_buffers);
        Counters::add(&self.counters.donated_bytes, execution.donated_bytes);
        Counters::add(&self.counters.argument_bytes, execution.footprint.arguments);
        Counters::add(&self.counters.output_bytes, execution.footprint.outputs);
        Counters::add(&self.counters.alias_bytes, execution.footprint.aliases);
        Counters::add(&self.counters.temporary_bytes, execution.footprint.temporaries);
        execution.host_ops.iter().for_each(|op| self.counters.fallback(op));
        Ok(execution.outputs.into_iter().map(Arc::new).collect())
    }

    /// Whether a compile is an error from now on.
    pub(crate) fn freeze(&self, frozen: bool) {
        self.frozen.store(frozen, Relaxed);
    }
}

/// A number that differs from process to process: the seed until `Backend::seed` gives one.
fn entropy() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}
