//! Reports whether a training step fits a TPU, how fast it can be there and what it costs, without a TPU.
//!
//! The step is recorded once, as on any device, but not run. libtpu then compiles its programs ahead of time for each
//! slice. Owns: recording a step, reading the compiler's output, the calculations from it, and the data of the TPU
//! generations. May not know: how programs are recorded or lowered.

mod advice;
mod against;
mod buffers;
mod collectives;
mod costliest;
mod golden;
mod kernels;
mod record;
mod report;
pub mod search;
mod slice;
mod specs;
mod table;

pub use crate::device::NamedValues;
pub use against::{Against, Ratios};
pub use report::{
    Buffer, BufferKind, Collective, Costly, FitReport, Memory, MxuAdvice, Price, SliceFit, Speed, StepReport, Verdict,
};
pub use specs::{Spec, Specs};

#[cfg(feature = "testing")]
pub(crate) use record::record;

use crate::device::{Generation, Topology};
use crate::engine;
use crate::error::Result;
use crate::{Device, Mesh, TpuOptions};
use burn_tpu_graph::cost::{contractions, cost};
use burn_tpu_graph::{Lowered, Program};
use slice::LoweredStep;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The purpose of libtpu in errors.
const COMPILING: &str = "compiling for TPUs";

/// The settings of a fit: the slices, the prices, and the number of samples or tokens per step.
#[derive(Clone, Debug)]
pub struct Fit {
    slices: Vec<Topology>,
    specs: Specs,
    samples: Option<u64>,
    tokens: Option<u64>,
    mesh: Option<Mesh>,
    options: TpuOptions,
}

impl Fit {
    /// Creates a fit for one chip of every generation, with the built-in prices.
    ///
    /// # Errors
    /// The same as [`Specs::builtin`] and [`TpuOptions::with_environment`].
    pub fn new() -> Result<Self> {
        let slices = Generation::ALL.into_iter().map(Generation::chip).collect();
        let options = TpuOptions::default().with_environment()?;
        Ok(Self { slices, specs: Specs::builtin()?, samples: None, tokens: None, mesh: None, options })
    }

    /// Sets the slices to compile for, instead of one chip of every generation.
    pub fn slices(mut self, slices: impl IntoIterator<Item = Topology>) -> Self {
        self.slices = slices.into_iter().collect();
        self
    }

    /// Sets the number of samples that one device processes in a step, which gives the price of a million samples.
    pub fn samples(mut self, samples: u64) -> Self {
        self.samples = Some(samples);
        self
    }

    /// Sets the number of tokens that one device processes in a step, which gives the price of a million tokens.
    pub fn tokens(mut self, tokens: u64) -> Self {
        self.tokens = Some(tokens);
        self
    }

    /// Splits the step over all devices of each slice as a mesh with these axes. Without a mesh, each device runs a copy of
    /// the step.
    pub fn mesh(mut self, mesh: Mesh) -> Self {
        self.mesh = Some(mesh);
        self
    }

    /// Replaces the built-in specifications and prices.
    pub fn specs(mut self, specs: Specs) -> Self {
        self.specs = specs;
        self
    }

    /// Adds an XLA option, by its `xla_…` name, to every compile.
    pub fn compiler_flag(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.options = self.options.compiler_flag(name, value);
        self
    }

    /// Records a training or inference step and compiles it for each slice. As many compiles run in parallel as there
    /// are processors.
    ///
    /// `build` creates the state that persists between steps. `step` takes it and returns it, together with everything
    /// else that the caller would read (a loss, predictions); what is not returned is not computed. Steps are repeated
    /// until two consecutive steps record the same programs, since the first steps also draw weights and create an
    /// optimizer's state. A `mark_step` after each step is implied. Values cannot be read, because this device does not
    /// compute them.
    ///
    /// If a slice has too little memory for the step, or its compile fails, the report contains an entry with that
    /// verdict.
    ///
    /// # Errors
    /// [`TpuError::Step`](crate::TpuError::Step) if the step computes nothing.
    pub fn run<S>(&self, build: impl FnOnce(&Device) -> S, step: impl FnMut(S, &Device) -> S) -> Result<FitReport> {
        let step = record::record(self.mesh.clone(), true, build, step)?;
        let lowered = lower(&step.programs, &self.options)?;
        let report = StepReport {
            programs: step.programs.len(),
            settled: step.settled,
            nodes: step.programs.iter().map(|program| program.graph().len()).sum(),
            flops: lowered.cost.flops(),
            matrix_flops: lowered.cost.matrix_flops(),
            transcendentals: lowered.cost.transcendentals,
            ops: ops(&step.programs),
            rewrites: step.rewrites,
            named: step.named,
            hash: hash(&lowered),
        };
        Ok(FitReport { step: report, slices: self.compile(&lowered), priced: self.specs.priced.clone() })
    }

    /// Compiles the step for every slice, each with the next free worker; the report keeps the requested order. Without
    /// libtpu every slice has the same failure.
    fn compile(&self, lowered: &LoweredStep) -> Vec<SliceFit> {
        let missing = if self.slices.is_empty() { None } else { engine::libtpu(COMPILING, &self.options).err() };
        if let Some(error) = missing {
            return self.slices.iter().map(|&slice| slice::failed(slice, lowered, self, &error)).collect();
        }
        let workers = std::thread::available_parallelism().map_or(1, usize::from).min(self.slices.len());
        let next = AtomicUsize::new(0);
        let work = || {
            let mut done = Vec::new();
            loop {
                let place = next.fetch_add(1, Ordering::Relaxed);
                let Some(&slice) = self.slices.get(place) else { return done };
                done.push((place, slice::fit(slice, lowered, self)));
            }
        };
        let mut done: Vec<(usize, SliceFit)> = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
            workers.into_iter().filter_map(|worker| worker.join().ok()).flatten().collect()
        });
        done.sort_by_key(|(place, _)| *place);
        done.into_iter().map(|(_, fit)| fit).collect()
    }
}

/// Lowers the programs, and writes their text into the folder that `BURN_TPU_DUMP` names.
fn lower(programs: &[Arc<Program>], options: &TpuOptions) -> Result<LoweredStep> {
    let mut step = LoweredStep { programs: Vec::new(), cost: Default::default(), contractions: Vec::new() };
    for program in programs {
        step.cost += cost(program);
        step.contractions.extend(contractions(program));
        let lowered = engine::lower_for_tpu(program, options.kernels)?;
        engine::dump_program(options.dump.as_deref(), program, &lowered)?;
        step.programs.push((Arc::clone(program), lowered));
    }
    Ok(step)
}

/// Returns the programs' hashes, joined by `+`.
fn hash(step: &LoweredStep) -> String {
    let hex = |lowered: &Lowered| lowered.stable_hash().iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    step.programs.iter().map(|(_, lowered)| hex(lowered)).collect::<Vec<_>>().join("+")
}

fn ops(programs: &[Arc<Program>]) -> BTreeMap<String, usize> {
    let mut ops = BTreeMap::new();
    for node in programs.iter().flat_map(|program| program.graph().nodes()) {
        *ops.entry(node.op.mnemonic().to_owned()).or_default() += 1;
    }
    ops
}
