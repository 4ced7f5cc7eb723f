//! Lowers programs and compiles them with a plugin, or loads them from disk.

use super::{compile_environment, scalars::Scalars, spec};
use crate::activity::describe;
use crate::cache::DiskCache;
use crate::engine::custom_calls::compile_error;
use crate::engine::tuning::{self, Tuner};
use crate::engine::{Arguments, Footprint, SharedBuffer, argument};
use crate::error::{Result, TpuError};
use crate::memory::{AllocationSite, Ledger};
use crate::metrics::Counters;
use crate::options::ChosenOptions;
use crate::profile::{self, Phase, ProgramOps};
use crate::{Platform, TpuOptions};
use burn_tpu_graph::op::MemorySpace;
use burn_tpu_graph::{Argument, LowerOptions, Lowered, Program, TensorType, lower_with};
use burn_tpu_pjrt::{Buffer, Client, CompileOptions, LoadedExecutable, PjrtError, TensorSpec};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// The XLA options for the CPU compiler that apply unless the user sets them. If a result is aliased to an argument
/// that another instruction also reads, the compiler copies the argument, except if data dependencies alone order the
/// reader first. With this analysis the compiler schedules the reader first itself. An example is a weight that is also
/// read for its layer's input gradient (decision 8).
///
/// XNNPACK, to which the compiler gives larger products, packs the right-hand side once for each address. A weight that is
/// updated in place keeps its address, so later steps would multiply by its first value (decision 20).
///
/// Fast minima and maxima lose a NaN on their right and the sign of a zero, which StableHLO forbids (decision 53).
///
/// With excess precision the compiler leaves out what conversions of 16-bit floats round where it likes, and the interpreter
/// does not know where. The rewrites leave out what is free, for both (decision 57).
pub const CPU_COMPILER_FLAGS: [(&str, bool); 4] = [
    ("xla_cpu_copy_insertion_use_region_analysis", true),
    ("xla_cpu_use_xnnpack", false),
    ("xla_cpu_enable_fast_min_max", false),
    ("xla_allow_excess_precision", false),
];

/// The smallest loss of donated memory in bytes that is reported.
const LARGE_BYTES: usize = 1 << 20;

/// A client's compiler with its options.
pub(super) struct Compiler {
    client: Client,
    options: CompileOptions,
    dump: Option<PathBuf>,
    disk: Option<DiskCache>,
    /// Whether a result that is not aliased to its donated argument is an error.
    strict: bool,
    /// Programs may have to leave their arguments as they are, to run again on them: `numerics`.
    lowering: LowerOptions,
    counters: Arc<Counters>,
    /// Chooses options for each program, at the level that does so.
    tuner: Option<Tuner>,
}

/// A compiled program and the description of its arguments.
pub(super) struct Loaded {
    pub(super) description: Arc<str>,
    pub(super) executable: LoadedExecutable,
    pub(super) ops: Arc<ProgramOps>,
    /// Each argument with the type of one device's part.
    pub(super) arguments: Vec<(Argument, Arc<TensorSpec>)>,
    pub(super) scalars: Scalars,
    pub(super) footprint: Footprint,
    pub(super) results: Vec<ResultSite>,
    /// Whether values may be in the host's memory, as in [`LowerOptions`].
    pub(super) host_memory: bool,
    pub(super) memory: Arc<Ledger>,
    pub(super) size_bytes: u64,
    pub(super) from_disk: bool,
}

/// Where a result is.
pub(super) struct ResultSite {
    pub(super) memory: MemorySpace,
    /// Where it is counted.
    pub(super) site: Arc<AllocationSite>,
}

impl Compiler {
    /// The compiler for programs of a platform, with options that say on which devices they run.
    pub(super) fn new(
        client: &Client,
        platform: Platform,
        start: CompileOptions,
        options: &TpuOptions,
        counters: &Arc<Counters>,
    ) -> Self {
        let flags: &[(&str, bool)] = if platform == Platform::Cpu { &CPU_COMPILER_FLAGS } else { &[] };
        let start = flags.iter().fold(start, |start, &(name, value)| start.set(name, value));
        let compile_options = compiler_flags(start, options);
        Self {
            disk: compile_environment::disk_cache(client, &compile_options, options, counters),
            client: client.clone(),
            options: compile_options,
            dump: options.dump.clone(),
            strict: options.strict,
            lowering: LowerOptions {
                kernels: platform == Platform::Tpu && options.kernels,
                keeps_arguments: options.check_numerics,
                llvm: platform == Platform::Cpu,
                host_memory: platform != Platform::Cpu,
            },
            counters: Arc::clone(counters),
            tuner: None,
        }
    }

    /// Chooses compiler options for each program, if the level says so.
    pub(super) fn tuned(self, options: &TpuOptions) -> Self {
        Self { tuner: Tuner::of(options), ..self }
    }

    pub(super) fn memory(&self) -> &Arc<Ledger> {
        &self.counters.memory
    }

    pub(super) fn compile(&self, program: &Program) -> Result<Loaded> {
        let lowered = {
            let _span = tracing::debug_span!("lower").entered();
            let _profiled = profile::span(Phase::Lower, "lower");
            let start = Instant::now();
            let lowered = lower_with(program, self.lowering);
            let lowered = lowered.map_err(|error| TpuError::Bug(error.to_string()))?;
            Counters::add_time(&self.counters.lower_ns, start.elapsed());
            lowered
        };
        dump_program(self.dump.as_deref(), program, &lowered)?;
        let specs = lowered.arguments.iter().map(|argument| spec(&argument.local(program)));
        let specs = specs.collect::<Result<Vec<_>>>()?;
        let (executable, from_disk) = self.load_or_compile(program, &lowered, &specs)?;
        let footprint = Footprint::of(&executable);
        let granted = footprint.filter(|_| !from_disk).map(|footprint| footprint.aliases);
        match granted.and_then(|granted| lost_donation(program, &lowered.arguments, granted)) {
            Some(lost) if self.strict => return Err(lost),
            Some(lost) => tracing::warn!("{lost}"),
            None => {}
        }
        let reported = executable.executable().code_size().unwrap_or(0).max(0) as u64;
        Ok(Loaded {
            description: describe(program),
            size_bytes: reported.max(lowered.text.len() as u64),
            from_disk,
            ops: Arc::new(ProgramOps::of(program)),
            footprint: footprint.unwrap_or_default(),
            results: self.result_sites(program, &lowered),
            memory: Arc::clone(self.memory()),
            host_memory: self.lowering.host_memory,
            scalars: Scalars::new(&self.counters),
            arguments: lowered.arguments.into_iter().zip(specs).collect(),
            executable,
        })
    }

    /// Returns where each result is.
    fn result_sites(&self, program: &Program, lowered: &Lowered) -> Vec<ResultSite> {
        let in_place = match self.lowering.keeps_arguments {
            true => program.results_in_place(),
            false => lowered.arguments.iter().filter_map(Argument::in_place).collect(),
        };
        let roles = program.roles(&in_place);
        let results = program.output_types().zip(roles).zip(&lowered.memories);
        let site = |((ty, role), &memory): ((&TensorType, _), _)| ResultSite {
            memory,
            site: self.memory().result(ty.clone(), role),
        };
        results.map(site).collect()
    }

    /// Returns the executable, and whether it came from disk.
    fn load_or_compile(
        &self,
        program: &Program,
        lowered: &Lowered,
        specs: &[Arc<TensorSpec>],
    ) -> Result<(LoadedExecutable, bool)> {
        let (graph, hash) = (program.stable_hash(), lowered.stable_hash());
        let note = self.disk.as_ref().map(|disk| disk.note_key(graph, hash));
        let noted = self.tuner.as_ref().zip(note.as_ref());
        let noted = noted.and_then(|(tuner, note)| tuner.noted(self.disk.as_ref(), note));
        let key = |chosen: Option<&ChosenOptions>| {
            let disk = self.disk.as_ref()?;
            let options = chosen.map(ChosenOptions::key).unwrap_or_default();
            Some((disk, disk.key(graph, hash).with_options(&options)))
        };
        // A program whose options are still to be chosen is compiled, also if it is on disk with the defaults.
        if let Some((disk, key)) = key(noted.as_ref()).filter(|_| self.tuner.is_none() || noted.is_some())
            && let Some(executable) = disk.load(&key, |bytes| self.client.load_serialized(bytes))
        {
            self.note_options(noted);
            return Ok((executable, true));
        }
        let start = Instant::now();
        let _profiled = profile::span(Phase::Compile, "XLA");
        let compile = |options: &CompileOptions| self.compile_text(lowered, specs.to_vec(), options);
        let (executable, chosen) = match (&self.tuner, noted) {
            (Some(tuner), None) => {
                let cycles = |loaded: &LoadedExecutable| tuning::estimated_cycles(loaded.executable());
                tuner.compile(&self.options, compile, cycles)
            }
            (_, Some(noted)) => compile(&noted.apply(self.options.clone())).map(|program| (program, Some(noted))),
            (None, None) => compile(&self.options).map(|program| (program, None)),
        }
        .map_err(|error| {
            let context = format!("compiling a program of {} nodes", program.graph().len());
            compile_error(program, context, error, |alone| self.compile_alone(alone))
        })?;
        if let (Some(tuner), Some(note), Some(chosen)) = (&self.tuner, &note, &chosen) {
            tuner.note(self.disk.as_ref(), note, chosen);
        }
        let time = start.elapsed();
        Counters::add_time(&self.counters.compile_ns, time);
        if let Some((disk, key)) = key(chosen.as_ref()) {
            disk.insert(&key, time, || executable.executable().serialize());
        }
        self.note_options(chosen);
        Ok((executable, false))
    }

    /// Has the metrics show what was chosen.
    fn note_options(&self, chosen: Option<ChosenOptions>) {
        if let Some(chosen) = chosen.filter(|chosen| chosen.tried > 0) {
            self.counters.chose(chosen);
        }
    }

    fn compile_text(
        &self,
        lowered: &Lowered,
        specs: Vec<Arc<TensorSpec>>,
        options: &CompileOptions,
    ) -> Result<LoadedExecutable, PjrtError> {
        let text = burn_tpu_pjrt::Program::stablehlo(lowered.text.as_str(), specs)?;
        self.client.compile(&text, options)
    }

    /// Compiles the program of a single custom call.
    fn compile_alone(&self, program: &Program) -> Result<Result<(), PjrtError>> {
        let lowered = lower_with(program, self.lowering).map_err(|error| TpuError::Bug(error.to_string()))?;
        let specs = lowered.arguments.iter().map(|argument| spec(argument.ty())).collect::<Result<Vec<_>>>()?;
        Ok(self.compile_text(&lowered, specs, &self.options).map(drop))
    }
}

impl Loaded {
    /// Returns copies of the arguments that are in another memory than the program takes them from, by position.
    /// `copies` makes them for each device; none of a value that is in this memory.
    ///
    /// # Errors
    /// Those of `copies`.
    pub(super) fn moved(
        &self,
        arguments: &Arguments,
        copies: impl Fn(&SharedBuffer, MemorySpace) -> Result<Vec<Buffer>>,
    ) -> Result<BTreeMap<usize, Vec<Buffer>>> {
        let mut moved = BTreeMap::new();
        if !self.host_memory {
            return Ok(moved);
        }
        for (position, (recipe, _)) in self.arguments.iter().enumerate() {
            if let Argument::Parameter { index, memory, .. } = recipe {
                let copies = copies(argument(arguments, *index)?, *memory)?;
                if !copies.is_empty() {
                    moved.insert(position, copies);
                }
            }
        }
        Ok(moved)
    }

    /// Checks that a run fits the limit of the memory, if there is one. It donates so many bytes on each of `devices`.
    ///
    /// # Errors
    /// [`TpuError::OutOfMemory`].
    pub(super) fn check_room(&self, donated_bytes: usize, devices: usize) -> Result<()> {
        let Footprint { outputs, temporaries, .. } = self.footprint;
        let needed = (outputs + temporaries).saturating_sub(donated_bytes) * devices;
        self.memory.check(&self.description, needed as u64).map_err(TpuError::OutOfMemory)
    }
}

/// Returns the options with the user's XLA options added.
pub(in crate::engine) fn compiler_flags(start: CompileOptions, options: &TpuOptions) -> CompileOptions {
    options.compiler_flags.iter().fold(start, |o, (name, value)| match (value.as_str(), value.parse::<i64>()) {
        ("true" | "false", _) => o.set(name, value == "true"),
        (_, Ok(number)) => o.set(name, number),
        _ => o.set(name, value.as_str()),
    })
}

/// Returns an error if the compiler aliased at least [`LARGE_BYTES`] less argument memory to results than requested.
fn lost_donation(program: &Program, arguments: &[Argument], granted: usize) -> Option<TpuError> {
    let updated = |argument: &&Argument| {
        matches!(argument, Argument::Parameter { result: Some(_), memory: MemorySpace::Device, .. })
    };
    let asked = arguments.iter().filter(updated).map(|argument| argument.local(program).bytes()).sum();
    (granted + LARGE_BYTES <= asked).then_some(TpuError::LostDonation { asked, granted })
}

/// Writes the program's text into `folder`, if there is one.
pub(crate) fn dump_program(folder: Option<&Path>, program: &Program, lowered: &Lowered) -> Result<()> {
    let Some(folder) = folder else { return Ok(()) };
    let name: String = program.stable_hash()[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    let path = folder.join(name + ".mlir");
    let written = std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&path, &lowered.text));
    written.map_err(|error| TpuError::File { what: "the dump of a program", path, reason: error.to_string() })
}

impl Footprint {
    /// Returns the memory statistics of an executable, or `None` if the plugin reports none. They are those of one device.
    fn of(executable: &LoadedExecutable) -> Option<Self> {
        let bytes = |n: i64| usize::try_from(n).unwrap_or(0);
        let stats = executable.executable().memory_stats().ok()?;
        Some(Self {
            arguments: bytes(stats.argument_bytes),
            outputs: bytes(stats.output_bytes),
            aliases: bytes(stats.alias_bytes),
            temporaries: bytes(stats.temporary_bytes),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn_tpu_graph::op::MemorySpace;
    use burn_tpu_graph::{DType, Graph};

    #[test]
    fn a_large_loss_of_donated_memory_is_reported() {
        let program = Program::extract(&Graph::new(), &[]).unwrap();
        let ty = TensorType::new(DType::F32, [2 << 20]);
        let argument =
            |index, result| Argument::Parameter { index, ty: ty.clone(), result, memory: MemorySpace::Device };
        let (updated, read) = ([argument(0, Some(1)), argument(1, Some(0))], [argument(0, None)]);
        let lost = |arguments: &[Argument], granted| lost_donation(&program, arguments, granted);
        assert!(matches!(
            lost(&updated, 8 << 20),
            Some(TpuError::LostDonation { asked: 0x0100_0000, granted: 0x0080_0000 })
        ));
        // No loss, a small loss, and no request.
        assert!(lost(&updated, 16 << 20).is_none() && lost(&updated, (16 << 20) - 4096).is_none());
        assert!(lost(&read, 0).is_none());
    }
}
