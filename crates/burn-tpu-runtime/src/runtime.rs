//! The state of a device: its engine, options, program cache, metrics and random state. Started at first use.

mod arguments;
mod beginning;
mod call;
mod compile;
mod draws;
mod families;
mod forms;
mod index_checks;
mod interpret;
#[cfg(feature = "testing")]
mod level;
mod memory;
mod numerics;
mod open;
mod padded;
mod placement;
mod precision;
pub(crate) mod registry;
mod tier;

pub(crate) use call::CallProgram;
pub(crate) use index_checks::{IndexCheckQueue, IndexRange, outside};
#[cfg(feature = "testing")]
pub use level::with_level;
pub use memory::MemoryReport;
pub(crate) use placement::sharding_of_value;
pub(crate) use registry::{default_chip, default_device, forget, runtime, start};

use crate::activity::{WaitFor, Waiting};
use crate::distributed;
use crate::engine::{self, Engine, Input, SharedBuffer};
use crate::error::{Result, TpuError};
use crate::lines::Lines;
use crate::metrics::{Counters, CutReason, Metrics};
use crate::options::TpuOptions;
use crate::profile::{ProfiledDevice, StepProfiler};
use crate::program::{CompiledProgram, ProgramCache, SlotAssumptions, Subgraph};
use crate::recompile::{DivergenceTracker, RecompileLog, RecordedRun, note_lines};
use crate::{Device, Platform};
use arguments::{Argument, TraceArguments};
use burn_tpu_graph::Starts;
use burn_tpu_pjrt::Plugin;
use compile::ProgramCompiler;
use draws::{Draws, entropy};
use families::Families;
use numerics::{NumericsChecks, RunNumber};
use open::OpenDevice;
use parking_lot::Mutex;
use placement::sharding_of;
use rustc_hash::FxHashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;
use tier::Tier;

/// The state of one device in use.
pub(crate) struct DeviceRuntime {
    compiler: ProgramCompiler,
    draws: Draws,
    families: Families,
    index_checks: IndexCheckQueue,
    numerics: Option<NumericsChecks>,
    /// The types of the batches that do not split over the mesh, each of which is warned about once.
    uneven_batches: Mutex<FxHashSet<String>>,
    step_profiler: StepProfiler,
    warned_of_full_trace: AtomicBool,
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
            (None, Platform::XlaRs) => engine::open_xla_rs(device, &counters),
        };
        let (engine, seed) = match shared_seed(device) {
            Ok(seed) => (engine, seed),
            Err(error) => (engine.and(Err(error)), None),
        };
        let runtime = Self::with_engine(device, options, engine, counters);
        if let Some(seed) = seed {
            runtime.draws.seed(seed);
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
        let numerics = NumericsChecks::of(device, &options);
        let lines = Lines::new(numerics.is_some(), device.names_lines());
        let shared = (device.platform() == Platform::Mesh).then(|| name_for_all(device));
        let runtime = Self {
            compiler: ProgramCompiler::new(OpenDevice { device, options, engine, cache, counters, lines }, shared),
            draws: Draws::default(),
            families: Families::default(),
            index_checks: IndexCheckQueue::default(),
            numerics,
            uneven_batches: Mutex::default(),
            step_profiler,
            warned_of_full_trace: AtomicBool::new(false),
        };
        runtime.step_profiler.started(&runtime);
        runtime
    }

    /// Returns the device with its engine.
    pub(crate) fn open(&self) -> &OpenDevice {
        &self.compiler.open
    }

    /// Returns what compiles the device's programs.
    pub(crate) fn compiler(&self) -> &ProgramCompiler {
        &self.compiler
    }

    /// Returns the device's random numbers.
    pub(crate) fn draws(&self) -> &Draws {
        &self.draws
    }

    pub(crate) fn recompiles(&self) -> &Arc<RecompileLog> {
        &self.compiler.recompiles
    }

    /// Returns what the device has done since it started.
    fn metrics(&self) -> Metrics {
        self.open().counters.snapshot(self.compiler.recompiles.latest())
    }

    /// Runs a recorded program where [`tier`] says. One that is to be compiled and is not in memory is compiled now. The
    /// tracker is told how it ran. `cut` is the reason of the cut, and what tells the nodes that a first program may begin
    /// with.
    ///
    /// # Errors
    /// [`RunError::Refused`] if nothing ran; `buffers` are then as they were.
    pub(crate) fn run(
        &self,
        subgraph: &Subgraph,
        buffers: &mut [Input],
        slots: &[u64],
        tracker: &mut DivergenceTracker,
        cut: (CutReason, &dyn Fn() -> Starts),
    ) -> Result<Vec<SharedBuffer>, RunError> {
        let start = Instant::now();
        let recorded = self.recorded(subgraph, buffers).map_err(RunError::Refused)?;
        let slots = recorded.slots(slots);
        let arguments = || recorded.arguments(buffers);
        let kept = self.keep(&recorded, &subgraph.provenance.lines, RunNumber::Step, &slots, arguments);
        Counters::add_time(&self.open().counters.key_ns, start.elapsed());
        let run = RecordedRun { recorded: &recorded, slots: &slots, provenance: &subgraph.provenance };
        let results = self.run_recorded(run, buffers, tracker, cut)?;
        Ok(self.check_when_run(kept, results))
    }

    fn run_recorded(
        &self,
        run: RecordedRun,
        buffers: &mut [Input],
        tracker: &mut DivergenceTracker,
        cut: (CutReason, &dyn Fn() -> Starts),
    ) -> Result<Vec<SharedBuffer>, RunError> {
        let start = Instant::now();
        let RecordedRun { recorded, slots, provenance } = run;
        let tier = self.tier(recorded, slots, buffers, cut).map_err(RunError::Refused)?;
        Counters::add_time(&self.open().counters.key_ns, start.elapsed());
        let nothing = Arc::<SlotAssumptions>::default;
        let (results, assumptions) = match tier {
            Tier::Interpreter => {
                tracker.interpreted(recorded);
                return self.interpret(recorded, buffers, slots);
            }
            Tier::Compiled(compiled) => {
                Counters::add(&self.open().counters.cache_hits, 1);
                (self.run_compiled(run, &compiled, buffers), Arc::clone(&compiled.assumptions))
            }
            Tier::Compiler(older) => {
                self.warn_of_uneven_batches(recorded);
                let compiled = self.compiler.compile(run, &recorded.program, &[slots], older);
                let compiled = compiled.map_err(RunError::Refused)?;
                (self.run_compiled(run, &compiled, buffers), Arc::clone(&compiled.assumptions))
            }
            Tier::Begun(beginning) => (self.run_begun(&beginning, run, buffers), nothing()),
            Tier::Split(split) => (self.run_split(&split, None, run, buffers), nothing()),
            Tier::Member(split, member) => {
                let results = match &split {
                    None => self.run_member(&member, run, buffers),
                    Some(split) => self.run_split(split, Some(&member), run, buffers),
                };
                match results {
                    Err(RunError::Refused(error)) => {
                        let compiled = self.exact_instead(&member, run, error).map_err(RunError::Refused)?;
                        (self.run_compiled(run, &compiled, buffers), Arc::clone(&compiled.assumptions))
                    }
                    results => {
                        self.recompiles().join(&recorded.program, &member.program);
                        (results, nothing())
                    }
                }
            }
        };
        if let Ok(results) = &results {
            note_lines(recorded, &provenance.lines, results);
        }
        tracker.ran(recorded, &assumptions);
        results
    }

    /// Runs a program as it is.
    fn run_compiled(
        &self,
        run: RecordedRun,
        compiled: &CompiledProgram,
        buffers: &mut [Input],
    ) -> Result<Vec<SharedBuffer>, RunError> {
        let RecordedRun { recorded, slots, .. } = run;
        let sources = recorded.bindings.parameters.iter().copied().map(Argument::OfTrace);
        let mut taken = TraceArguments::new(buffers, sources);
        self.open().dispatch(&recorded.program, compiled, &mut taken.arguments, slots)
    }

    /// A mark step has dispatched its program.
    pub(crate) fn end_step(&self) {
        self.open().counters.step();
        self.count_step();
        self.step_profiler.step(self);
    }

    /// Warns once that a trace was full.
    pub(crate) fn warn_of_full_trace(&self, full: &TpuError) {
        if !self.warned_of_full_trace.swap(true, Relaxed) {
            tracing::warn!("{full}");
        }
    }
}

impl ProfiledDevice for DeviceRuntime {
    fn name(&self) -> Device {
        self.open().device
    }

    fn idle_plugin(&self) -> Result<Option<Plugin>> {
        self.open().wait()?;
        Ok(self.open().engine()?.plugin())
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
