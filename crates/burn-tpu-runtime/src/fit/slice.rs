//! One slice: compiles the step's programs for it, reads the compiler's output, calculates time and price.

use super::buffers;
use super::report::{Buffer, Costly, Memory, Price, SliceFit, Speed, Verdict};
use super::{Fit, Spec, advice, collectives, costliest, kernels};
use crate::device::Topology;
use crate::engine::Slice;
use crate::error::{Result, TpuError};
use crate::options::ChosenOptions;
use crate::{Optimization, TpuOptions};
use burn_tpu_graph::cost::{Contraction, Cost};
use burn_tpu_graph::{Lowered, Mesh, Program};
use burn_tpu_pjrt::{Executable, HloCollective, HloModule, PjrtError, Value};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// A step that is ready to be compiled: its programs with their text and their counts of operations.
pub(super) struct LoweredStep {
    pub(super) programs: Vec<(Arc<Program>, Lowered)>,
    pub(super) cost: Cost,
    pub(super) contractions: Vec<Contraction>,
}

/// The figures of one compiled program.
struct CompiledFigures {
    memory: Memory,
    buffers: Vec<Buffer>,
    bytes_accessed: u64,
    flops: u64,
    hbm_bytes: u64,
    fusions: usize,
    cycles: Option<u64>,
    costliest: Vec<Costly>,
    collectives: Vec<HloCollective>,
    chosen: Option<ChosenOptions>,
}

/// Returns the entry of a slice for which the step was not compiled.
pub(super) fn failed(slice: Topology, step: &LoweredStep, fit: &Fit, error: &TpuError) -> SliceFit {
    SliceFit { verdict: Verdict::Failed { message: error.to_string() }, ..without_result(slice, step, fit) }
}

/// Returns the entry of a slice before anything is compiled.
fn without_result(slice: Topology, step: &LoweredStep, fit: &Fit) -> SliceFit {
    let spec = fit.specs.of(slice.generation());
    let limit_bytes = spec.usable_bytes();
    SliceFit {
        topology: slice.to_string(),
        generation: slice.generation(),
        chips: slice.chips(),
        devices: slice.chips() * spec.devices_per_chip as usize,
        verdict: Verdict::Fits,
        memory: Memory { limit_bytes, ..Memory::default() },
        buffers: Vec::new(),
        costliest: Vec::new(),
        chosen_options: Vec::new(),
        speed: None,
        mesh: None,
        collectives: Vec::new(),
        price: None,
        advice: advice::matrix_unit(&step.contractions, spec.mxu_tile as usize),
        suggestions: Vec::new(),
        compile_seconds: 0.0,
    }
}

/// Compiles a step for a slice and returns its entry.
pub(super) fn fit(slice: Topology, step: &LoweredStep, fit: &Fit) -> SliceFit {
    let spec = fit.specs.of(slice.generation());
    let start = Instant::now();
    let mut report = without_result(slice, step, fit);
    match compile_all(slice, step, &fit.options, spec) {
        Ok(programs) => {
            let mesh = step.programs.iter().find_map(|(program, _)| Some(program.placement()?.mesh.clone()));
            let found: Vec<_> = programs.iter().flat_map(|program| &program.collectives).cloned().collect();
            report.collectives =
                mesh.as_ref().map_or_else(Vec::new, |mesh| collectives::summary(&found, mesh, slice.slices()));
            // A device has its part of the work.
            let part = 1.0 / mesh.as_ref().map_or(1, Mesh::devices) as f64;
            let (matrix_flops, flops) = (step.cost.matrix_flops() as f64 * part, step.cost.flops() as f64 * part);
            let speed = Speed {
                communication_seconds: collectives::seconds(&report.collectives, spec),
                ..speed(&programs, matrix_flops, flops, spec)
            };
            report.costliest = costliest::joined(programs.iter().flat_map(|program| &program.costliest).cloned());
            let chosen = programs.iter().filter_map(|program| program.chosen.clone());
            report.chosen_options = chosen.filter(|chosen| chosen.tried > 0).collect();
            report.mesh = mesh.map(|mesh| mesh.to_string());
            report.price = price(&speed, &report, fit);
            report.speed = Some(speed);
            if let Some(largest) = programs.into_iter().max_by_key(|program| program.memory.peak_bytes) {
                (report.memory, report.buffers) = (largest.memory, largest.buffers);
            }
        }
        Err(Failure::Memory { message, memory, buffers }) => {
            (report.memory, report.buffers) = (memory, buffers);
            report.suggestions = advice::to_fit(&report.memory, &report.buffers, &fit.specs);
            report.verdict = Verdict::OutOfMemory { message };
        }
        Err(Failure::Other(error)) => report.verdict = Verdict::Failed { message: error.to_string() },
    }
    report.compile_seconds = start.elapsed().as_secs_f64();
    report
}

enum Failure {
    Memory { message: String, memory: Memory, buffers: Vec<Buffer> },
    Other(TpuError),
}

impl From<TpuError> for Failure {
    fn from(error: TpuError) -> Self {
        Failure::Other(error)
    }
}

fn compile_all(
    slice: Topology,
    step: &LoweredStep,
    options: &TpuOptions,
    spec: &Spec,
) -> Result<Vec<CompiledFigures>, Failure> {
    let limit = spec.usable_bytes();
    let slice = Slice::open(slice, options)?;
    let mut programs = Vec::new();
    for (program, lowered) in &step.programs {
        let (executable, chosen) = match slice.compile(program, lowered) {
            Ok(compiled) => compiled,
            Err(TpuError::Pjrt { source, .. }) if source.is_out_of_memory() => {
                return Err(out_of_memory(&source, slice.topology, program, lowered, options, limit)?);
            }
            Err(error) => return Err(error.into()),
        };
        let figures = CompiledFigures { chosen, ..read(&executable, program, limit)? };
        programs.push(if options.kernels { figures.with_kernels(program, spec) } else { figures });
    }
    Ok(programs)
}

impl CompiledFigures {
    /// Adds the program's kernels, which the compiler does not estimate.
    fn with_kernels(mut self, program: &Program, spec: &Spec) -> Self {
        let kernels = kernels::of(program);
        self.hbm_bytes += kernels.iter().map(kernels::KernelRun::repeated_bytes).sum::<u64>();
        let costly: Vec<Costly> = kernels.iter().filter_map(|kernel| kernel.costly(spec)).collect();
        if !costly.is_empty() {
            let cycles: u64 = costly.iter().map(|kernel| kernel.cycles).sum();
            self.cycles = Some(self.cycles.unwrap_or(0) + cycles);
            self.costliest = costliest::joined(self.costliest.into_iter().chain(costly));
        }
        self
    }
}

/// What the compiler says of a program, whoever wrote it.
pub(super) struct Counts {
    pub(super) memory: Memory,
    pub(super) bytes_accessed: u64,
    pub(super) flops: u64,
    pub(super) hbm_bytes: u64,
    pub(super) module: HloModule,
}

impl Counts {
    pub(super) fn of(executable: &Executable, limit_bytes: u64) -> Result<Self> {
        let failed = || TpuError::pjrt("reading a compiled program");
        let stats = executable.memory_stats().map_err(failed())?;
        let module = executable.optimized_program().and_then(|program| HloModule::parse(&program.code));
        let module = module.map_err(failed())?;
        let bytes = |n: i64| n.max(0) as u64;
        let memory = Memory {
            limit_bytes,
            // Of libtpu, with the arguments that are in the host's memory.
            peak_bytes: bytes(stats.peak_bytes - stats.host_argument_bytes),
            argument_bytes: bytes(stats.argument_bytes),
            output_bytes: bytes(stats.output_bytes),
            alias_bytes: bytes(stats.alias_bytes),
            temporary_bytes: bytes(stats.temporary_bytes),
            host_bytes: bytes(
                stats.host_argument_bytes + stats.host_output_bytes - stats.host_alias_bytes
                    + stats.host_temporary_bytes,
            ),
            code_bytes: bytes(stats.code_bytes),
        };
        let costs = executable.cost_analysis().map_err(failed())?;
        let figure = |name: &str| match costs.get(name) {
            Some(Value::Float(figure)) => Some(*figure as u64),
            _ => None,
        };
        let accessed = figure("bytes accessed");
        let hbm_bytes = module.main_memory_bytes(accessed);
        let (bytes_accessed, flops) = (accessed.unwrap_or(hbm_bytes), figure("flops").unwrap_or(0));
        Ok(Self { memory, bytes_accessed, flops, hbm_bytes, module })
    }
}

/// Reads the compiler's output for a program.
fn read(executable: &Executable, program: &Program, limit_bytes: u64) -> Result<CompiledFigures> {
    let Counts { memory, bytes_accessed, flops, hbm_bytes, module } = Counts::of(executable, limit_bytes)?;
    Ok(CompiledFigures {
        memory,
        buffers: buffers::largest(&module, program),
        bytes_accessed,
        flops,
        hbm_bytes,
        fusions: module.fusions(),
        cycles: module.cycles(),
        costliest: costliest::of(&module),
        collectives: module.collectives,
        chosen: None,
    })
}

/// Returns the failure for a step that runs out of memory. The error names no buffers, so the program is compiled again
/// with a dump folder, and the buffers are read from the dump.
fn out_of_memory(
    error: &PjrtError,
    slice: Topology,
    program: &Program,
    lowered: &Lowered,
    options: &TpuOptions,
    limit_bytes: u64,
) -> Result<Failure> {
    let folder = DumpFolder::new()?;
    let options = options
        .clone()
        .optimization(Optimization::Balanced)
        .compiler_flag("xla_dump_to", folder.0.to_string_lossy())
        .compiler_flag("xla_dump_hlo_as_proto", "true");
    // The compile fails again, as expected. Only its dump is used.
    let again = Slice::open(slice, &options)?.compile(program, lowered);
    let module = if again.is_err() { dumped(&folder.0) } else { None };
    let message = match error {
        PjrtError::Call { message, .. } => message.lines().next().unwrap_or_default().to_string(),
        other => other.to_string(),
    };
    let temporary_bytes = needed_bytes(&message).unwrap_or(0);
    let argument_bytes = module.as_ref().map_or(0, buffers::argument_bytes);
    let memory = Memory {
        limit_bytes,
        peak_bytes: argument_bytes + temporary_bytes,
        argument_bytes,
        temporary_bytes,
        ..Memory::default()
    };
    let buffers = module.map(|module| buffers::largest(&module, program)).unwrap_or_default();
    Ok(Failure::Memory { message, memory, buffers })
}

/// A folder that is deleted when this value is dropped.
struct DumpFolder(PathBuf);

impl DumpFolder {
    fn new() -> Result<Self> {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("burn-tpu-fit-{}-{number}", std::process::id()));
        // The folder must be new: in a folder that all users may write to, another user could have created it.
        let reason = |error: std::io::Error| error.to_string();
        let made = std::fs::create_dir(&path).map_err(reason);
        made.map_err(|reason| TpuError::File { what: "the folder for a compiler's dump", path: path.clone(), reason })?;
        Ok(Self(path))
    }
}

impl Drop for DumpFolder {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            tracing::warn!(folder = %self.0.display(), %error, "the folder of a compiler's dump was not deleted");
        }
    }
}

/// Returns the module of a compiler's dump, in its state before buffer assignment.
fn dumped(folder: &Path) -> Option<HloModule> {
    let files = std::fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
    let endings = ["after_optimizations_before_buffer_assignment.hlo.pb", "after_optimizations.hlo.pb"];
    let mut found: Vec<_> = files
        .filter_map(|path| {
            let name = path.file_name()?.to_str()?;
            Some((endings.iter().position(|ending| name.ends_with(ending))?, path.clone()))
        })
        .collect();
    found.sort();
    found.iter().find_map(|(_, path)| HloModule::parse(&std::fs::read(path).ok()?).ok())
}

/// Returns the first size in the compiler's message, such as `107.01G`, which is the memory that the program needs.
fn needed_bytes(message: &str) -> Option<u64> {
    let words = message.split(|c: char| c.is_whitespace() || matches!(c, '(' | ')' | ','));
    let size = |word: &str| {
        let unit = word.chars().last()?;
        let number: f64 = word.strip_suffix(unit)?.parse().ok()?;
        let shift = ['K', 'M', 'G', 'T'].iter().position(|&known| known == unit)?;
        Some((number * 1024f64.powi(shift as i32 + 1)) as u64)
    };
    words.filter(|word| word.contains('.')).find_map(size)
}

/// Returns the speed of a step on one device, without its communication: no program is faster than its matrix operations at
/// the peak rate, or its bytes at the peak bandwidth. The programs of a step run one after another, so their times are
/// added.
fn speed(programs: &[CompiledFigures], matrix_flops: f64, flops: f64, spec: &super::Spec) -> Speed {
    let sum = |of: fn(&CompiledFigures) -> u64| programs.iter().map(of).sum::<u64>();
    let hbm_bytes = sum(|program| program.hbm_bytes);
    let estimated_cycles = programs.iter().filter_map(|program| program.cycles).reduce(|sum, cycles| sum + cycles);
    let seconds = |cycles: u64| Some(cycles as f64 / (spec.estimate_ghz? * 1e9));
    let matrix_seconds = matrix_flops / spec.flops_per_second();
    let roofline_seconds = matrix_seconds.max(hbm_bytes as f64 / spec.bytes_per_second());
    Speed {
        bytes_accessed: sum(|program| program.bytes_accessed),
        compiled_flops: sum(|program| program.flops),
        hbm_bytes,
        intensity: flops / hbm_bytes.max(1) as f64,
        fusions: programs.iter().map(|program| program.fusions).sum(),
        estimated_cycles,
        estimated_seconds: estimated_cycles.and_then(seconds),
        roofline_seconds,
        communication_seconds: 0.0,
        mfu: if roofline_seconds > 0.0 { matrix_flops / (roofline_seconds * spec.flops_per_second()) } else { 0.0 },
    }
}

/// Returns the price. The whole slice is paid for, and its devices run copies of the step.
fn price(speed: &Speed, report: &SliceFit, fit: &Fit) -> Option<Price> {
    let usd_per_hour = fit.specs.of(report.generation).usd_per_chip_hour? * report.chips as f64;
    let usd_per_step = usd_per_hour / 3600.0 * speed.roofline_seconds.max(speed.communication_seconds);
    // A step on a mesh is one step of the whole slice.
    let steps = if fit.mesh.is_some() { 1 } else { report.devices };
    let per_million = |count: Option<u64>| {
        let count = count.filter(|&count| count > 0)? as f64 * steps as f64;
        Some(usd_per_step / count * 1e6)
    };
    Some(Price {
        usd_per_hour,
        usd_per_step,
        usd_per_million_samples: per_million(fit.samples),
        usd_per_million_tokens: per_million(fit.tokens),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_in_an_out_of_memory_message_is_read() {
        let message = "Ran out of memory on HBM, the total memory required for \
            HLO temporaries (107.50G) exceeds available HBM (15.75G).";
        assert_eq!(needed_bytes(message), Some((107.5 * 1024f64.powi(3)) as u64));
        assert_eq!(needed_bytes("Used 1.50M of 0.50M hbm"), Some(3 << 19));
        assert_eq!(needed_bytes("E1000: no size. At all."), None);
    }
}
