//! The report of a fit, as data. `docs/fit.md` describes where each figure comes from.

use crate::device::{Generation, NamedValues};
use crate::options::ChosenOptions;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;

/// The report of a step on every requested slice.
#[derive(Clone, Debug, Serialize)]
pub struct FitReport {
    /// The figures of the step that do not depend on the device.
    pub step: StepReport,
    /// One entry per slice, in the requested order.
    pub slices: Vec<SliceFit>,
    /// The date of the prices.
    pub priced: String,
}

/// The figures of the recorded graph, which are the same for every slice.
#[derive(Clone, Debug, Serialize)]
pub struct StepReport {
    /// The number of programs that one step runs. It is 1 if only `mark_step` cuts the trace.
    pub programs: usize,
    /// Whether the last two steps recorded the same programs. If not, the loop compiles at every step.
    pub settled: bool,
    /// The number of graph nodes of all programs.
    pub nodes: usize,
    /// The floating-point operations of a step. A multiply-add counts as 2.
    pub flops: u64,
    /// The part of `flops` in matrix products and convolutions.
    pub matrix_flops: u64,
    /// The number of evaluations of `exp`, `log`, roots and similar functions, which `flops` does not include.
    pub transcendentals: u64,
    /// The number of graph nodes by op.
    pub ops: BTreeMap<String, usize>,
    /// The number of places that the programs were rewritten at, by pass.
    pub rewrites: BTreeMap<&'static str, usize>,
    /// What loops over layers can keep for the backward pass by a name.
    pub named: Vec<NamedValues>,
    /// The SHA-256 of the StableHLO text without its locations, in hexadecimal. The hashes of several programs are
    /// joined by `+`.
    pub hash: String,
}

/// Whether a step can run on a slice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Verdict {
    /// The compiled program fits a device's memory.
    Fits,
    /// The step needs more memory than a device has.
    OutOfMemory {
        /// The compiler's message.
        message: String,
    },
    /// The compiler failed for another reason, or libtpu is missing.
    Failed {
        /// The message of the compiler or of the search for libtpu.
        message: String,
    },
}

/// The report of a step on one slice. The figures are per device. Without a mesh, a device runs the whole step, and the
/// slice's other devices run copies of the step on their own data. With a mesh, it runs its part of the step.
#[derive(Clone, Debug, Serialize)]
pub struct SliceFit {
    /// The slice, such as `v5e:2x2`.
    pub topology: String,
    /// The generation of the chips.
    #[serde(serialize_with = "name")]
    pub generation: Generation,
    /// The number of chips.
    pub chips: usize,
    /// The number of devices.
    pub devices: usize,
    /// Whether the step can run on the slice.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// The memory of one device, for the program that needs most.
    pub memory: Memory,
    /// The largest buffers of that program, largest first.
    pub buffers: Vec<Buffer>,
    /// The instructions that take the most time by the compiler's estimate, the costliest first.
    pub costliest: Vec<Costly>,
    /// The compiler options that were chosen for each large program of the step by trying several, at the level `aggressive`
    /// without a mesh.
    pub chosen_options: Vec<ChosenOptions>,
    /// The best possible speed. `None` if the step does not compile.
    pub speed: Option<Speed>,
    /// The axes of the mesh that the step is split over, as `data=4,model=2`; `None` if each device runs the whole step.
    pub mesh: Option<String>,
    /// The communication of a step on a mesh, by operation and axes. Empty for a step on one device.
    pub collectives: Vec<Collective>,
    /// The price. `None` if the step does not compile or the generation has no price.
    pub price: Option<Price>,
    /// The matrix products whose dims waste the matrix unit, the most wasteful first.
    pub advice: Vec<MxuAdvice>,
    /// Suggestions to make the step fit. Empty if it fits.
    pub suggestions: Vec<String>,
    /// The time that the compiler took on this machine, possibly in parallel with other work.
    pub compile_seconds: f64,
}

impl SliceFit {
    /// Returns whether the step can run on the slice.
    pub fn fits(&self) -> bool {
        self.verdict == Verdict::Fits
    }
}

/// The collectives of one kind in one step. Sizes are per device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Collective {
    /// XLA's name: `all-reduce`, `all-gather`, `reduce-scatter`, `all-to-all`, `collective-permute`.
    pub kind: String,
    /// The axes of the mesh along which the devices communicate.
    pub axes: Vec<String>,
    /// Whether it connects slices, over the data center's network (DCN), and not the chips of a slice (ICI).
    pub across_slices: bool,
    /// The number of collectives. One in the body of a loop counts once.
    pub count: usize,
    /// The bytes that a device gives.
    pub operand_bytes: u64,
    /// The bytes that a device must send at least.
    pub moved_bytes: u64,
}

/// The memory of one device in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// The memory that the compiler lets a program use.
    pub limit_bytes: u64,
    /// The peak memory in use.
    pub peak_bytes: u64,
    /// The arguments: weights, optimizer state, the batch.
    pub argument_bytes: u64,
    /// The results, including those that are aliased to arguments.
    pub output_bytes: u64,
    /// The results that are aliased to donated arguments.
    pub alias_bytes: u64,
    /// The intermediate values.
    pub temporary_bytes: u64,
    /// What the program keeps in the host's memory, beside all of the above: arguments, results and intermediate values.
    pub host_bytes: u64,
    /// The code of the program.
    pub code_bytes: u64,
}

/// The role of a buffer in its program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum BufferKind {
    /// An argument: a weight, optimizer state, the batch.
    Argument,
    /// A result in its own memory.
    Output,
    /// An intermediate value.
    Temporary,
}

/// A buffer of a compiled program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Buffer {
    /// The role of the buffer in the program.
    pub kind: BufferKind,
    /// The Burn op that recorded it; for an argument, the op that reads it first; XLA's opcode if there is no Burn op.
    pub op: String,
    /// The line of source that recorded this op, as `src/gpt.rs:41 in app::Gpt::loss`; empty if it is not known.
    pub line: String,
    /// Element type and dims: `bf16[32,1024,768]`.
    pub shape: String,
    /// The size in memory, in bytes.
    pub bytes: u64,
    /// The part of `bytes` that is tile padding.
    pub padding_bytes: u64,
    /// XLA's name of the instruction that creates the buffer.
    pub instruction: String,
}

/// Instructions of a compiled program that are alike: of one Burn op, with results of one shape and equal estimates.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Costly {
    /// The Burn op that recorded the last op of the instruction; XLA's opcode if there is none.
    pub op: String,
    /// The line of source that recorded this op, as `src/gpt.rs:41 in app::Gpt::loss`; for an op of the backward pass or of
    /// the optimizer, the line that called these; empty if it is not known.
    pub line: String,
    /// The results: `bf16[8,12,1024,64]`, several of them separated by `+`.
    pub shape: String,
    /// XLA's name of the first of these instructions; for a kernel, `kernel` and its name.
    pub instruction: String,
    /// The number of times that such an instruction runs in a step.
    pub runs: u64,
    /// The clock cycles of all these runs.
    pub cycles: u64,
}

/// The speed of a step on one device: bounds, and the compiler's estimate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Speed {
    /// The bytes that the program's instructions access according to the compiler, including transfers to on-chip
    /// memory.
    pub bytes_accessed: u64,
    /// The floating-point operations of the program's instructions according to the compiler. Recomputed values count
    /// again; the body of a loop counts once.
    pub compiled_flops: u64,
    /// The bytes that are read from and written to the device's memory.
    pub hbm_bytes: u64,
    /// The floating-point operations per byte of memory traffic.
    pub intensity: f64,
    /// The number of fused instructions of the program.
    pub fusions: usize,
    /// The clock cycles that the compiler estimates for the step's instructions, one after the other; for kernels, the
    /// cycles at the roofline by their own estimate. The compiler does not estimate asynchronous copies and sorts, nor some
    /// gathers and scatters. `None` if it estimated none.
    pub estimated_cycles: Option<u64>,
    /// The time of these cycles. `None` for a generation whose clock is not known.
    pub estimated_seconds: Option<f64>,
    /// The roofline time: the larger of the matrix operations at the peak rate and the bytes at the peak bandwidth. It
    /// is a lower bound of the step time.
    pub roofline_seconds: f64,
    /// The least time of the communication: the bytes that each device must send, at the rate of all links of its chip, or
    /// at its part of the data center's network if that takes longer. 0 on one device. A step that hides its communication
    /// takes at least the longer of this time and the roofline time; one that hides none takes at least their sum.
    pub communication_seconds: f64,
    /// The fraction of the device's peak rate that the step would use at the roofline time, which is the best possible
    /// model-FLOPs utilisation.
    pub mfu: f64,
}

/// The price of a step at its roofline time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Price {
    /// The price of the slice in US dollars per hour.
    pub usd_per_hour: f64,
    /// The price in US dollars of one step on all of the slice's devices.
    pub usd_per_step: f64,
    /// The price in US dollars of a million samples, if their number per step was given.
    pub usd_per_million_samples: Option<f64>,
    /// The price in US dollars of a million tokens, if their number per step was given.
    pub usd_per_million_tokens: Option<f64>,
}

/// A matrix product that uses the matrix unit badly.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MxuAdvice {
    /// The Burn op.
    pub op: String,
    /// The number of products of this shape in the step.
    pub count: usize,
    /// `[batch] m x k x n`.
    pub shape: String,
    /// The padding of these products as a fraction of the step's matrix work, padding included.
    pub wasted: f64,
    /// The advice for the dims.
    pub advice: String,
}

fn name<S: Serializer>(generation: &Generation, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.serialize_str(generation.name())
}
