//! Shared code of the integration tests: the device under test, and counters that no other test changes.
#![allow(dead_code, reason = "each test binary uses only some of it")]
#![allow(clippy::print_stderr, reason = "a skipped test reports the reason")]

pub mod child;
pub mod programs;

use burn_tpu::{Metrics, Platform, TpuDevice, TpuOptions};
use proptest::test_runner::{Config as ProptestConfig, RngSeed};
use std::sync::{Arc, Mutex, MutexGuard};
use tracing_subscriber::util::SubscriberInitExt;

/// Returns the CPU plugin's device; `None` if the plugin is missing and `BURN_TPU_REQUIRE_PLUGIN` does not forbid skipping.
pub fn cpu() -> Option<TpuDevice> {
    has_cpu_plugin().then(|| installed(TpuDevice::cpu(0)))
}

/// Returns whether the CPU plugin is there; if it is not, `BURN_TPU_REQUIRE_PLUGIN` may forbid to go on.
pub fn has_cpu_plugin() -> bool {
    match burn_tpu_pjrt::discovery::find(burn_tpu_pjrt::PluginKind::Cpu, None) {
        Ok(_) => true,
        Err(error) if std::env::var("BURN_TPU_REQUIRE_PLUGIN").is_ok_and(|v| v == "1") => panic!("{error}"),
        Err(error) => {
            eprintln!("skipped: {error}");
            false
        }
    }
}

/// Returns the options of development for two devices. Computed indices and numbers are not checked, so that programs are
/// those of training.
pub fn development() -> TpuOptions {
    TpuOptions::development().cpu_devices(2).check_indices(burn_tpu::IndexChecks::Host).check_numerics(false)
}

/// Same as [`cpu`], with another device: Burn keeps one default float type per device, so bf16 and f32 tests of one process
/// must not share one.
pub fn bf16_cpu() -> Option<TpuDevice> {
    cpu().map(|_| installed(TpuDevice::cpu(1)))
}

/// Returns the device under test: the first of the platform that `BURN_TPU_TEST_PLATFORM` names, else [`cpu`].
pub fn device() -> Option<TpuDevice> {
    match test_platform() {
        Platform::Cpu => cpu(),
        platform => Some(installed(TpuDevice::new(platform, 0))),
    }
}

/// Same as [`device`], as [`bf16_cpu`] is to [`cpu`]. A platform with one device has no second one: the test is skipped.
pub fn bf16_device() -> Option<TpuDevice> {
    match test_platform() {
        Platform::Cpu => bf16_cpu(),
        platform if platform.device_count() > 1 => Some(installed(TpuDevice::new(platform, 1))),
        platform => {
            eprintln!("skipped: {} has one device", platform.name());
            None
        }
    }
}

/// Returns the platform that `BURN_TPU_TEST_PLATFORM` names, or the CPU plugin's.
fn test_platform() -> Platform {
    std::env::var("BURN_TPU_TEST_PLATFORM").map_or(Platform::Cpu, |name| name.parse().unwrap())
}

/// Returns a device with the options of [`development`]: two CPU devices, whichever test comes first.
fn installed(device: TpuDevice) -> TpuDevice {
    // Another test may have installed them.
    development().install(&device).ok();
    device
}

/// Returns a configuration for `cases` random cases from a fixed seed, so that runs of the same code have the same result.
/// `PROPTEST_CASES` sets another number, `PROPTEST_RNG_SEED` another seed.
pub fn cases(cases: u32) -> ProptestConfig {
    let asked = |name| std::env::var(name).ok().and_then(|value: String| value.parse::<u64>().ok());
    ProptestConfig {
        cases: asked("PROPTEST_CASES").map_or(cases, |asked| asked as u32),
        rng_seed: RngSeed::Fixed(asked("PROPTEST_RNG_SEED").unwrap_or(0)),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

/// Returns a lock for tests that count: tests of one binary share the device and its metrics.
pub fn alone() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Returns the result of `work` and what it adds to the device's counters.
pub fn counted<T>(device: &TpuDevice, work: impl FnOnce() -> T) -> (T, Counted) {
    let before = burn_tpu::metrics(device);
    let result = work();
    let after = burn_tpu::metrics(device);
    (result, Counted::between(&before, &after))
}

/// The differences of the counters that tests read.
#[derive(Debug, PartialEq, Eq)]
pub struct Counted {
    pub compiles: u64,
    pub hits: u64,
    pub executions: u64,
    pub donated: u64,
    pub fallbacks: u64,
    pub nodes: u64,
}

impl Counted {
    fn between(before: &Metrics, after: &Metrics) -> Self {
        Self {
            compiles: after.compiles - before.compiles,
            hits: after.cache_hits - before.cache_hits,
            executions: after.executions - before.executions,
            donated: after.donated_buffers - before.donated_buffers,
            fallbacks: after.host_fallbacks - before.host_fallbacks,
            nodes: after.recorded_nodes - before.recorded_nodes,
        }
    }
}

/// Returns whether libtpu can compile ahead of time here; if not, tests skip, unless `BURN_TPU_REQUIRE_LIBTPU` forbids it.
pub fn has_libtpu() -> bool {
    if burn_tpu_pjrt::presence::tpu_present() {
        eprintln!("skipped: compiling ahead of time is for machines without a TPU");
        return false;
    }
    match burn_tpu_pjrt::discovery::find(burn_tpu_pjrt::PluginKind::Tpu, None) {
        Ok(_) => true,
        Err(error) if std::env::var("BURN_TPU_REQUIRE_LIBTPU").is_ok_and(|v| v == "1") => panic!("{error}"),
        Err(error) => {
            eprintln!("skipped: {error}");
            false
        }
    }
}

/// Returns the log of this thread at level warn.
pub fn warnings(work: impl FnOnce()) -> String {
    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);
    impl std::io::Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().expect("no panic holds it").extend(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let (sink, level) = (Sink::default(), tracing_subscriber::filter::LevelFilter::WARN);
    let writer = sink.clone();
    let subscriber = tracing_subscriber::fmt().with_max_level(level).with_writer(move || writer.clone()).finish();
    let subscribed = subscriber.set_default();
    work();
    drop(subscribed);
    let bytes = sink.0.lock().expect("no panic holds it").clone();
    String::from_utf8(bytes).expect("text")
}
