//! What a fit says, as data. `docs/fit.md` tells where each figure comes from.

use crate::topology::Generation;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;

/// A step on every slice that was asked for.
#[derive(Clone, Debug, Serialize)]
pub struct FitReport {
    /// What the step is, whatever it runs on.
    pub step: StepReport,
    /// One entry per slice, in the order asked.
    pub slices: Vec<SliceFit>,
    /// When the prices were looked up.
    pub priced: String,
}

/// What is counted in the recorded graph: the same for every slice.
#[derive(Clone, Debug, Serialize)]
pub struct StepReport {
    /// Programs that one step runs; 1 when `mark_step` is all that cuts.
    pub programs: usize,
    /// Whether the last two steps recorded the same programs. If not, the loop compiles at every step.
    pub settled: bool,
    /// Graph nodes of all programs.
    pub nodes: usize,
    /// Floating-point operations of a step; a multiply-add is 2.
    pub flops: u64,
    /// Those of them in matrix products and convolutions.
    pub matrix_flops: u64,
    /// Evaluations of `exp`, `log`, roots and the like, not part of `flops`.
    pub transcendentals: u64,
    /// Those nodes by op.
    pub ops: BTreeMap<String, usize>,
    /// SHA-256 of the StableHLO text without its locations, in hexadecimal; of several programs joined by `+`.
    pub hash: String,
}

/// Whether a step can run on a slice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Verdict {
    /// The compiler made a program that fits a device's memory.
    Fits,
    /// The step needs more memory than a device has.
    OutOfMemory {
        /// The compiler's words.
        message: String,
    },
    /// The compiler failed for another reason, or libtpu is missing.
    Failed {
        /// Its words.
        message: String,
    },
}

/// A step on one slice. Figures are those of one device, which runs the whole step; the slice's other devices run copies
/// of it on their own data.
#[derive(Clone, Debug, Serialize)]
pub struct SliceFit {
    /// The slice: `v5e:2x2`.
    pub topology: String,
    /// Its chips' generation.
    #[serde(serialize_with = "name")]
    pub generation: Generation,
    /// Its chips.
    pub chips: usize,
    /// Its devices.
    pub devices: usize,
    /// Whether it can run.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// Memory of one device, of the program that needs most.
    pub memory: Memory,
    /// The largest buffers of that program, largest first.
    pub buffers: Vec<Buffer>,
    /// How fast it can be; `None` when it does not compile.
    pub speed: Option<Speed>,
    /// What it costs; `None` when it does not compile or the generation has no price.
    pub price: Option<Price>,
    /// Matrix products whose dims waste the matrix unit, most wasteful first.
    pub advice: Vec<MxuAdvice>,
    /// What could make it fit; empty when it fits.
    pub suggestions: Vec<String>,
    /// Time that the compiler took, on this machine, beside whatever else it did.
    pub compile_seconds: f64,
}

impl SliceFit {
    /// Whether the step can run there.
    pub fn fits(&self) -> bool {
        self.verdict == Verdict::Fits
    }
}

/// Bytes of one device's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// What the compiler lets a program use.
    pub limit_bytes: u64,
    /// The most in use at once.
    pub peak_bytes: u64,
    /// Arguments: weights, optimizer state, the batch.
    pub argument_bytes: u64,
    /// Results, those in an argument's memory included.
    pub output_bytes: u64,
    /// Results in the memory of a donated argument.
    pub alias_bytes: u64,
    /// Everything in between.
    pub temporary_bytes: u64,
    /// The program itself.
    pub code_bytes: u64,
}

/// What a buffer is to its program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum BufferKind {
    /// Passed in: a weight, optimizer state, the batch.
    Argument,
    /// A result with memory of its own.
    Output,
    /// In between.
    Temporary,
}

/// A buffer of a compiled program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Buffer {
    /// What it is to the program.
    pub kind: BufferKind,
    /// The Burn op that it was recorded for, or that reads it first if it is an argument; XLA's opcode if it has none.
    pub op: String,
    /// Element type and dims: `bf16[32,1024,768]`.
    pub shape: String,
    /// Its bytes in memory.
    pub bytes: u64,
    /// Those of them that only fill up tiles.
    pub padding_bytes: u64,
    /// XLA's name of the instruction that makes it.
    pub instruction: String,
}

/// How fast a step can be on one device.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Speed {
    /// Bytes that the compiler says its instructions access, transfers to on-chip memory counted as well.
    pub bytes_accessed: u64,
    /// Floating-point operations that the compiler says its instructions do: what is computed twice counts twice, the
    /// body of a loop once.
    pub compiled_flops: u64,
    /// Bytes through the device's memory.
    pub hbm_bytes: u64,
    /// Floating-point operations per byte through memory.
    pub intensity: f64,
    /// Fused instructions of the program.
    pub fusions: usize,
    /// The longer of two times: matrix operations at the peak rate, bytes at the peak bandwidth. No step is faster.
    pub roofline_seconds: f64,
    /// The part of the device's peak rate that the step would use if it took the roofline time: the best possible
    /// model-FLOPs utilisation.
    pub mfu: f64,
}

/// What a step costs when it takes its roofline time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Price {
    /// Price of the slice in US dollars per hour.
    pub usd_per_hour: f64,
    /// US dollars for one step of all the slice's devices.
    pub usd_per_step: f64,
    /// US dollars per million samples, where their number per step was given.
    pub usd_per_million_samples: Option<f64>,
    /// US dollars per million tokens, where their number per step was given.
    pub usd_per_million_tokens: Option<f64>,
}

/// A matrix product that fills the matrix unit badly.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MxuAdvice {
    /// The Burn op.
    pub op: String,
    /// How often the step has this shape.
    pub count: usize,
    /// `[batch] m x k x n`.
    pub shape: String,
    /// The part of the step's matrix work, padding included, that this padding is.
    pub wasted: f64,
    /// What to change.
    pub advice: String,
}

fn name<S: Serializer>(generation: &Generation, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.serialize_str(generation.name())
}
