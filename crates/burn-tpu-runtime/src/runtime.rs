//! The state of a device: its engine, options, program cache, metrics and random state. Started at first use.

mod arguments;
mod call;
mod compile;
mod index_checks;
mod interpret;
#[cfg(feature = "testing")]
mod level;
mod memory;
mod numerics;
mod placement;
mod precision;
pub(crate) mod registry;
mod tier;

pub(crate) use index_checks::{IndexCheckQueue, IndexRange, outside};
#[cfg(feature = "testing")]
pub use level::with_level;
pub use memory::MemoryReport;
pub(crate) use placement::sharding_of_value;
pub(crate) use registry::{default_chip, default_device, forget, runtime, start};

use crate::activity::{Activity, WaitFor, Waiting, describe, waits};
use crate::compiling::Compiling;
use crate::distributed::{self, Agreement};
use crate::engine::{self, Arguments, Engine, Executable, Execution, HostBytes, HostValue, Input, SharedBuffer};
use crate::error::{Result, TpuError};
use crate::lines::Lines;
use crate::metrics::{Counters, CutReason, Metrics};
use crate::options::TpuOptions;
use crate::profile::{self, Phase, ProfiledDevice, StepProfiler};
use crate::program::{CompiledProgram, ProgramCache, Subgraph};
use crate::recompile::{DivergenceTracker, RecompileLog, RecordedRun, note_lines};
use crate::{Device, Platform};
use arguments::{Argument, OnDevice, TraceArguments};
use burn_tpu_graph::{Label, Program, Sharding, TensorType};
use burn_tpu_pjrt::Plugin;
use numerics::{NumericsChecks, RunNumber};
use parking_lot::Mutex;
use placement::sharding_of;
use rustc_hash::FxHashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;
use tier::Tier;

/// The state of one device in use.
pub(crate) struct DeviceRuntime {
    device: Device,
    options: TpuOptions,
    /// A device that is missing keeps the reason; every upload, run and read answers with it.
    engine: Result<Arc<dyn Engine>>,
    cache: ProgramCache,
    compiling: Compiling<Arc<dyn Executable>>,
    counters: Arc<Counters>,
    recompiles: Arc<RecompileLog>,
    rng: Mutex<(u64, u64)>,
    /// Whether a compile is an error.
    frozen: AtomicBool,
    warned_of_full_trace: AtomicBool,
    index_checks: IndexCheckQueue,
    numerics: Option<NumericsChecks>,
    /// The types of the batches that do not split over the mesh, each of which is warned about once.
    uneven_batches: Mutex<FxHashSet<String>>,
    step_profiler: StepProfiler,
    lines: Lines,
    /// The programs that all processes have, for a device whose chips may belong to several.
    agreement: Option<Agreement>,
}

/// Why a program left no results.
pub(crate) enum RunError {
    /// It did not begin, and all of its arguments are what they were.
    Refused(TpuError),
    /// It began and failed; arguments that it took are gone.
    Failed(TpuError),
}

impl DeviceRuntime {
    fn new(device: Device, options: TpuOptions, problem: Option<TpuError>) -> Self {
        let counters = Arc::<Counters>::default();
        let _wait = Waiting::new(Some(device), WaitFor::Start);
        let engine: Result<Arc<dyn Engine>> = match (problem, device.platform()) {
            (Some(error), _) => Err(error),
            (None, Platform::NdArray) => Ok(engine::open_ndarray()),
            (None, Platform::Topology) => engine::open_described(device, &options),
            (None, Platform::Tpu | Platform::Cuda | Platform::Cpu) => engine::open(device, &options, &counters),
            (None, Platform::Mesh) => engine::open_mesh(device, default_chip().platform(), &options, &counters),
            (None, Platform::XlaRs) => engine::open_external(device, &options, &counters),
        };
        let (engine, seed) = match shared_seed(device) {
            Ok(seed) => (engine, seed),
            Err(error) => (engine.and(Err(error)), None),
        };
        let runtime = Self::with_engine(device, options, engine, counters);
        if let Some(seed) = seed {
            runtime.seed(seed);
        }
        runtime
    }

    fn with_engine(
        device: Device,
        options: TpuOptions,
        engine: Result<Arc<dyn Engine>>,
        counters: Arc<Counters>,
    ) -> Self {
        match &engine {
            Ok(engine) => tracing::info!(%device, engine = engine.describe(), "device started"),
            Err(error) => tracing::error!(%device, %error, "device did not start"),
        }
        counters.memory.set_limit(options.memory_limit);
        let step_profiler = StepProfiler::new(options.profile_steps.clone());
        let cache = ProgramCache::new(options.cache_entries, options.cache_bytes);
        let rng = Mutex::new((entropy(), 0));
        let frozen = AtomicBool::new(false);
        let compiling = Compiling::default();
        let warned_of_full_trace = AtomicBool::new(false);
        let index_checks = IndexCheckQueue::default();
        let numerics = NumericsChecks::of(device, &options);
        let uneven_batches = Mutex::default();
        let lines = Lines::new(numerics.is_some(), device.is_recording());
        let agreement = (device.platform() == Platform::Mesh).then(|| Agreement::new(name_for_all(device)));
        let runtime = Self {
            device,
            options,
            engine,
            cache,
            compiling,
            counters,
            recompiles: Arc::default(),
            rng,
            frozen,
            warned_of_full_trace,
            index_checks,
            numerics,
            uneven_batches,
            step_profiler,
            lines,
            agreement,
        };
        runtime.step_profiler.started(&runtime);
        runtime
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

    pub(crate) fn recompiles(&self) -> &Arc<RecompileLog> {
        &self.recompiles
    }

    /// Returns what the device has done since it started.
    fn metrics(&self) -> Metrics {
        self.counters.snapshot(self.recompiles.latest())
    }

    pub(crate) fn cache(&self) -> &ProgramCache {
        &self.cache
    }

    pub(crate) fn engine(&self) -> Result<&Arc<dyn Engine>> {
        self.engine.as_ref().map_err(Clone::clone)
    }

    /// Returns the label of the nodes that an op is about to record: its name, or with the line of source.
    pub(crate) fn label(&self, op: Label) -> Label {
        self.lines.labels.as_ref().map_or(op, |labels| labels.label(op))
    }

    /// Returns the stacks that the device keeps.
    pub(crate) fn lines(&self) -> &Lines {
        &self.lines
    }

    /// Starts the random numbers of this device anew.
    pub(crate) fn seed(&self, seed: u64) {
        *self.rng.lock() = (seed, 0);
    }

    /// Key and first counter of a draw of `words` 32-bit words. Later draws begin after it, so none repeats.
    pub(crate) fn draw(&self, words: usize) -> (u64, u64) {
        let mut rng = self.rng.lock();
        let drawn = *rng;
        rng.1 = rng.1.wrapping_add(words as u64 / 2 + 1);
        drawn
    }

    /// Returns key and first counter of the draws of a call, which takes this many counters.
    pub(crate) fn draws_of_call(&self, counters: u64) -> (u64, u64) {
        let mut rng = self.rng.lock();
        let drawn = *rng;
        rng.1 = rng.1.wrapping_add(counters);
        drawn
    }

    /// Returns key and first counter of the next draw.
    pub(crate) fn next_draw(&self) -> (u64, u64) {
        *self.rng.lock()
    }

    /// Makes the next draw begin at this key and counter.
    pub(crate) fn draw_from(&self, next: (u64, u64)) {
        *self.rng.lock() = next;
    }

    /// Puts a value on the device; on a mesh, split as `sharding` says.
    pub(crate) fn upload(
        &self,
        ty: &TensorType,
        bytes: HostBytes,
        sharding: Option<&Sharding>,
    ) -> Result<SharedBuffer> {
        Counters::add(&self.counters.uploads, 1);
        Counters::add(&self.counters.upload_bytes, ty.bytes());
        let _span = tracing::trace_span!("transfer", direction = "upload", bytes = ty.bytes()).entered();
        let _wait = self.waiting(WaitFor::Upload);
        let _profiled = profile::span(Phase::Transfer, "upload");
        let uploaded = self.engine()?.upload(ty, bytes, sharding);
        uploaded.map_err(|error| self.explain_memory(error, || format!("a value {ty} from the host")))
    }

    /// Puts this process's rows of a batch on a mesh of several processes, and returns the type of the batch; `None` on any
    /// other device.
    pub(crate) fn upload_rows(&self, ty: &TensorType, bytes: HostBytes) -> Result<Option<(TensorType, SharedBuffer)>> {
        let _wait = self.waiting(WaitFor::Upload);
        let uploaded = self.engine()?.upload_rows(ty, bytes)?;
        if uploaded.is_some() {
            Counters::add(&self.counters.uploads, 1);
            Counters::add(&self.counters.upload_bytes, ty.bytes());
        }
        Ok(uploaded)
    }

    /// Returns the device's copy of a value, which stays the value's.
    pub(crate) fn on_device(&self, buffer: &SharedBuffer) -> Result<SharedBuffer> {
        let Some(value) = HostValue::of(buffer) else { return Ok(Arc::clone(buffer)) };
        value.on_device(false, |ty, bytes| self.upload(ty, bytes, None))
    }

    /// Returns the bytes of a value. One that is on the device is waited for and copied to the host.
    pub(crate) fn download(&self, buffer: &SharedBuffer) -> Result<HostBytes> {
        let value = HostValue::of(buffer);
        if let Some(bytes) = value.and_then(HostValue::bytes) {
            return Ok(bytes);
        }
        let transferred = value.and_then(HostValue::buffer);
        let buffer = transferred.as_ref().unwrap_or(buffer);
        let start = Instant::now();
        let _span = tracing::trace_span!("transfer", direction = "download").entered();
        let _wait = self.waiting(WaitFor::Read);
        if profile::is_active() {
            let _waits = profile::span(Phase::Wait, "value");
            self.engine()?.wait_for(buffer)?;
        }
        let _profiled = profile::span(Phase::Transfer, "download");
        let bytes = self.engine()?.download(buffer);
        let bytes =
            bytes.map_err(|error| self.explain_memory(error, || "the program that computes a value".to_owned()))?;
        let bytes = HostBytes::from(bytes);
        Counters::add_time(&self.counters.read_ns, start.elapsed());
        Counters::add(&self.counters.downloads, 1);
        Counters::add(&self.counters.download_bytes, bytes.as_ref().len());
        Ok(bytes)
    }

    /// Waits until everything dispatched has finished.
    pub(crate) fn wait(&self) -> Result<()> {
        let start = Instant::now();
        let _wait = self.waiting(WaitFor::Programs);
        let _profiled = profile::span(Phase::Wait, "device");
        let waited = self.engine()?.wait();
        let waited = waited.map_err(|error| self.explain_memory(error, || "a program".to_owned()));
        Counters::add_time(&self.counters.wait_ns, start.elapsed());
        waited
    }

    /// Notes that the calling thread waits until the returned value is dropped.
    fn waiting(&self, what: WaitFor) -> Waiting {
        Waiting::new(Some(self.device), what)
    }

    /// Returns what the device does at this moment.
    fn activity(&self) -> Activity {
        let programs = self.engine.as_ref().map(|engine| engine.in_flight()).unwrap_or_default();
        Activity { device: self.device, programs, waits: waits(self.device) }
    }

    /// Runs a recorded program where [`tier`] says. One that is to be compiled and is not in memory is compiled now. The
    /// tracker is told how it ran.
    ///
    /// # Errors
    /// [`RunError::Refused`] if nothing ran; `buffers` are then as they were.
    pub(crate) fn run(
        &self,
        subgraph: &Subgraph,
        buffers: &mut [Input],
        slots: &[u64],
        tracker: &mut DivergenceTracker,
        reason: CutReason,
    ) -> Result<Vec<SharedBuffer>, RunError> {
        let start = Instant::now();
        let recorded = self.recorded(subgraph, buffers).map_err(RunError::Refused)?;
        let slots = recorded.slots(slots);
        let arguments = || recorded.arguments(buffers);
        let kept = self.keep(&recorded, &subgraph.provenance.lines, RunNumber::Step, &slots, arguments);
        Counters::add_time(&self.counters.key_ns, start.elapsed());
        let run = RecordedRun { recorded: &recorded, slots: &slots, provenance: &subgraph.provenance };
        let results = self.run_recorded(run, buffers, tracker, reason)?;
        Ok(self.check_when_run(kept, results))
    }

    fn run_recorded(
        &self,
        run: RecordedRun,
        buffers: &mut [Input],
        tracker: &mut DivergenceTracker,
        reason: CutReason,
    ) -> Result<Vec<SharedBuffer>, RunError> {
        let start = Instant::now();
        let RecordedRun { recorded, slots, provenance } = run;
        let tier = self.tier(recorded, slots, buffers, reason).map_err(RunError::Refused)?;
        Counters::add_time(&self.counters.key_ns, start.elapsed());
        let compiled = match tier {
            Tier::Compiled(compiled) => {
                Counters::add(&self.counters.cache_hits, 1);
                compiled
            }
            Tier::Compiler(older) => self.compile(run, &recorded.program, slots, older).map_err(RunError::Refused)?,
            Tier::Interpreter => {
                tracker.interpreted(recorded);
                return self.interpret(recorded, buffers, slots);
            }
            Tier::Split(split) => {
                let results = self.run_split(&split, run, buffers);
                if let Ok(results) = &results {
                    note_lines(recorded, &provenance.lines, results);
                }
                tracker.ran(recorded, &Arc::default());
                return results;
            }
        };
        let sources = recorded.bindings.parameters.iter().copied().map(Argument::OfTrace);
        let mut taken = TraceArguments::new(buffers, sources);
        let results = self.dispatch(&recorded.program, &compiled, &mut taken.arguments, slots);
        if let Ok(results) = &results {
            note_lines(recorded, &provenance.lines, results);
        }
        tracker.ran(recorded, &compiled.assumptions);
        results
    }

    /// Runs a compiled program on its arguments. Those that it does not take stay.
    fn dispatch(
        &self,
        program: &Program,
        compiled: &CompiledProgram,
        arguments: &mut Arguments,
        slots: &[u64],
    ) -> Result<Vec<SharedBuffer>, RunError> {
        let _span = tracing::debug_span!("execute").entered();
        let _profiled = profile::span(Phase::Dispatch, "dispatch");
        let upload = |place: usize, ty: &TensorType, bytes| self.upload(ty, bytes, sharding_of(program, place as u32));
        let on_device = OnDevice::new(arguments, upload).map_err(RunError::Refused)?;
        let start = Instant::now();
        let _wait = self.waiting(WaitFor::Dispatch);
        let run = || compiled.executable.execute(on_device.arguments, slots);
        let panicked = |_| Err(TpuError::Bug(format!("the engine of {} panicked", self.device)));
        let execution = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(panicked);
        let what = || describe(program).to_string();
        let execution = execution.map_err(|error| match on_device.is_complete() {
            true => RunError::Refused(self.explain_memory(error, what)),
            false => RunError::Failed(self.explain_memory(error, what)),
        })?;
        Counters::add_time(&self.counters.dispatch_ns, start.elapsed());
        self.count(&execution);
        Ok(execution.outputs)
    }

    fn count(&self, execution: &Execution) {
        let counters = &self.counters;
        Counters::add(&counters.executions, 1);
        Counters::add(&counters.donated_buffers, execution.donated_buffers);
        Counters::add(&counters.donated_bytes, execution.donated_bytes);
        Counters::add(&counters.argument_bytes, execution.footprint.arguments);
        Counters::add(&counters.output_bytes, execution.footprint.outputs);
        Counters::add(&counters.alias_bytes, execution.footprint.aliases);
        Counters::add(&counters.temporary_bytes, execution.footprint.temporaries);
        Counters::add(&counters.pieces, execution.pieces);
        execution.host_ops.iter().for_each(|op| counters.fallback(op));
    }

    /// A mark step has dispatched its program.
    pub(crate) fn end_step(&self) {
        self.counters.step();
        self.count_step();
        self.step_profiler.step(self);
    }

    /// Warns once that a trace was full.
    pub(crate) fn warn_of_full_trace(&self, full: &TpuError) {
        if !self.warned_of_full_trace.swap(true, Relaxed) {
            tracing::warn!("{full}");
        }
    }

    /// Whether a compile is an error from now on.
    pub(crate) fn freeze(&self, frozen: bool) {
        self.frozen.store(frozen, Relaxed);
    }
}

impl ProfiledDevice for DeviceRuntime {
    fn name(&self) -> Device {
        self.device
    }

    fn idle_plugin(&self) -> Result<Option<Plugin>> {
        self.wait()?;
        Ok(self.engine()?.plugin())
    }
}

/// Returns the name of a mesh, which is the same in all processes: they describe their meshes in the same order.
fn name_for_all(device: Device) -> String {
    format!("{device}#{}", device.index())
}

/// Returns the first seed of a mesh that may span processes, which all of them share; `None` for any other device.
fn shared_seed(device: Device) -> Result<Option<u64>> {
    if device.platform() != Platform::Mesh {
        return Ok(None);
    }
    let Some(group) = distributed::group()? else { return Ok(None) };
    group.shared(&format!("seed/{}", name_for_all(device)), entropy()).map(Some)
}

/// A number that differs from process to process: the seed until `Backend::seed` gives one.
fn entropy() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}
