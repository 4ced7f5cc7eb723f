//! Shared code of the integration tests: the device under test, and counters that no other test changes.
#![allow(dead_code, reason = "each test binary uses only some of it")]
#![allow(clippy::print_stderr, reason = "a skipped test reports the reason")]

pub mod child;
pub mod programs;

use burn_tpu::{Metrics, Platform, TpuDevice, TpuOptions};
use burn_tpu_pjrt::{PluginKind, testing};
use proptest::test_runner::{Config as ProptestConfig, RngSeed};
use std::panic::Location;
use std::sync::{Arc, Mutex, MutexGuard};
use tracing_subscriber::util::SubscriberInitExt;

/// The number of CPU devices of a test program, which all tests of the process share: two for each file, and those that
/// files name.
pub const CPU_DEVICES: u16 = 40;

/// The first of the devices that are given to files. Meshes take those below.
const FIRST_OF_FILES: u16 = 2;

/// Returns the CPU device of the calling file for tests in f32; `None` if the plugin is missing and
/// `BURN_TPU_REQUIRE_PLUGIN` does not forbid skipping.
///
/// Each file has devices of its own, since the programs, options and counters of a device are shared by all tests that use
/// it.
#[track_caller]
pub fn cpu() -> Option<TpuDevice> {
    cpu_with("f32", development())
}

/// Same as [`cpu`], with another device: Burn keeps one default float type per device, so bf16 and f32 tests of one process
/// must not share one.
#[track_caller]
pub fn bf16_cpu() -> Option<TpuDevice> {
    cpu_with("bf16", development())
}

/// Returns the CPU device of the calling file that has this name and, from its first use, these options.
#[track_caller]
pub fn cpu_with(name: &str, options: TpuOptions) -> Option<TpuDevice> {
    static DEVICES: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let index = FIRST_OF_FILES + position(&DEVICES, format!("{}: {name}", Location::caller().file()));
    assert!(index < CPU_DEVICES, "a test program has {CPU_DEVICES} CPU devices");
    has_cpu_plugin().then(|| installed(TpuDevice::cpu(index), options.cpu_devices(CPU_DEVICES)))
}

/// Returns the interpreter's device of the calling file that has this name and, from its first use, these options.
#[track_caller]
pub fn interpreter_with(name: &str, options: TpuOptions) -> TpuDevice {
    static DEVICES: Mutex<Vec<String>> = Mutex::new(Vec::new());
    // Device 0 is that of tests which do not count and have no options.
    let index = 1 + position(&DEVICES, format!("{}: {name}", Location::caller().file()));
    installed(TpuDevice::new(Platform::NdArray, index), options)
}

/// Returns the place of a name in a list, to which it is added if it is new.
fn position(names: &Mutex<Vec<String>>, name: String) -> u16 {
    let mut names = names.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let known = names.iter().position(|known| *known == name);
    let position = known.unwrap_or_else(|| {
        names.push(name);
        names.len() - 1
    });
    position as u16
}

/// Returns whether the CPU plugin is there; if it is not, `BURN_TPU_REQUIRE_PLUGIN` may forbid to go on.
pub fn has_cpu_plugin() -> bool {
    testing::plugin(PluginKind::Cpu).is_some()
}

/// Returns whether libtpu can compile ahead of time here; if not, tests skip, unless `BURN_TPU_REQUIRE_LIBTPU` forbids it.
pub fn has_libtpu() -> bool {
    testing::libtpu().is_some()
}

/// Returns the options of development. Computed indices and numbers are not checked, so that programs are those of
/// training.
pub fn development() -> TpuOptions {
    let options = TpuOptions::development().check_indices(burn_tpu::IndexChecks::Host).check_numerics(false);
    // Sizes of other tests would be of one family with those of a test that counts.
    let options = options.shape_buckets(burn_tpu::ShapeBuckets::Off);
    // Each program that the CPU plugin keeps makes it slower to capture a stack.
    options.cpu_devices(CPU_DEVICES).cache_entries(16)
}

/// Returns the device under test: the first of the platform that `BURN_TPU_TEST_PLATFORM` names, else [`cpu`].
#[track_caller]
pub fn device() -> Option<TpuDevice> {
    match test_platform() {
        Platform::Cpu => cpu(),
        platform => Some(installed(TpuDevice::new(platform, 0), development())),
    }
}

/// Same as [`device`], as [`bf16_cpu`] is to [`cpu`]. A platform with one device has no second one: the test is skipped.
#[track_caller]
pub fn bf16_device() -> Option<TpuDevice> {
    match test_platform() {
        Platform::Cpu => bf16_cpu(),
        platform if platform.device_count() > 1 => Some(installed(TpuDevice::new(platform, 1), development())),
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

/// Returns a device with these options.
fn installed(device: TpuDevice, options: TpuOptions) -> TpuDevice {
    // Another test may have installed them.
    options.install(&device).ok();
    device
}

/// Returns whether this is the long mode, which `BURN_TPU_TEST_LONG=1` selects (`docs/testing.md`, "What CI leaves out").
pub fn is_long() -> bool {
    std::env::var_os("BURN_TPU_TEST_LONG").is_some_and(|value| value == "1")
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

/// Returns a lock for tests that count: the tests of a file share its devices and their counters, and those of a program its
/// memory, its live handles and its profiles.
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
