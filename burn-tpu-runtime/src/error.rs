//! The error hierarchy. Every variant says whose fault it is and carries what a person needs to act.

use burn_tpu_graph::GraphError;
use burn_tpu_pjrt::PjrtError;
use std::path::PathBuf;
use std::sync::Arc;

/// Who can fix an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The program that calls: a shape, a dtype, an option.
    User,
    /// The machine: a missing plugin, a folder without permission, memory.
    Environment,
    /// The plugin: it refused or failed.
    Plugin,
    /// burn-tpu itself; please report it.
    Bug,
}

/// What can go wrong, from the plugin's search to a tensor's read.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum TpuError {
    /// No usable plugin or device for the platform.
    #[error("{device} is not available: {reason}\n  fix: {fix}")]
    Unavailable {
        /// The device asked for.
        device: String,
        /// Why it is not there, with every place that was looked at.
        reason: String,
        /// The command that fixes it.
        fix: &'static str,
    },
    /// A call into the plugin failed.
    #[error("{context}: {source}")]
    Pjrt {
        /// What was being done: which program, tensor or transfer.
        context: String,
        /// The call, the code and the plugin's own words.
        source: Arc<PjrtError>,
    },
    /// A program whose results got less of its arguments' memory than they were to take; it needs the difference on top.
    #[error("results were to take the memory of {asked} bytes of donated arguments, the compiler granted {granted}")]
    LostDonation {
        /// Bytes of the arguments that a result updates.
        asked: usize,
        /// Bytes that the compiler let results share with arguments.
        granted: usize,
    },
    /// An operation that its rule does not allow: shapes, dtypes, dims.
    #[error("{op}: {source}")]
    Operation {
        /// The Burn operation.
        op: &'static str,
        /// The node that could not be built.
        source: GraphError,
    },
    /// An element type that the device does not hold.
    #[error("{op}: {dtype} is not supported on {device}; supported are bool, i8-i64, u8-u64, bf16, f16, f32 and f64")]
    DType {
        /// The Burn operation.
        op: &'static str,
        /// The element type, as Burn names it.
        dtype: String,
        /// The device.
        device: String,
    },
    /// A node that the engine cannot lower, while host fallback is denied.
    #[error(
        "{device} cannot run {ops}, and the fallback policy is `deny`\n  fix: allow it with \
         TpuOptions::fallback or BURN_TPU_FALLBACK=warn"
    )]
    FallbackDenied {
        /// The device.
        device: String,
        /// The ops, comma-separated.
        ops: String,
    },
    /// A program would have to be compiled after [`Device::freeze`](crate::Device::freeze).
    #[error(
        "{device} is frozen, and a program had to be compiled: {reason}\n  fix: let steps repeat, or burn_tpu::unfreeze"
    )]
    Frozen {
        /// The device.
        device: String,
        /// As [`Recompile`](crate::Recompile) says it: what differs, and where.
        reason: String,
    },
    /// The interpreter could not run a node.
    #[error("the ndarray engine: {reason}")]
    Host {
        /// The node with its operand types, and why.
        reason: String,
    },
    /// An option or environment variable with a value that means nothing.
    #[error("option {name}: {value:?} {rule}")]
    Option {
        /// The option's or the variable's name.
        name: String,
        /// The value given.
        value: String,
        /// What it must be.
        rule: String,
    },
    /// Options set after the device was first used.
    #[error("{device} is already running: set its options before its first tensor")]
    AlreadyRunning {
        /// The device.
        device: String,
    },
    /// An option of a platform's client, asked for while another device of the platform uses it with another value.
    #[error(
        "{device}: option {option} is {asked}, but the client that the devices of this platform share has {current}\n  fix: \
         set {option} to one value for all of them, before the first is used"
    )]
    ClientOption {
        /// The device.
        device: String,
        /// The option's name, a method of [`TpuOptions`](crate::TpuOptions).
        option: &'static str,
        /// The value asked for.
        asked: String,
        /// The value that the client has.
        current: String,
    },
    /// A file or folder that cannot be used.
    #[error("{what} {path}: {reason}")]
    File {
        /// What the file is for.
        what: &'static str,
        /// Where it is.
        path: PathBuf,
        /// What the system says.
        reason: String,
    },
    /// A TPU slice that cannot be named, or that no generation has.
    #[error("topology {name:?} {rule}")]
    Topology {
        /// The name given.
        name: String,
        /// What is wrong with it.
        rule: String,
    },
    /// A value asked of a device that compiles and does not run.
    #[error(
        "{device} executes nothing: this {ty} has a shape and no value\n  fix: \
         read values on a device that runs, such as TpuDevice::default()"
    )]
    NoValue {
        /// The device.
        device: String,
        /// The tensor's element type and dims.
        ty: String,
    },
    /// A step that is not the one that a golden file pins.
    #[error(
        "the step is not the one in {path} (- pinned, + found):\n{changes}  fix: if that is \
         wanted, run again with BURN_TPU_BLESS=1"
    )]
    Golden {
        /// The file.
        path: PathBuf,
        /// The lines that differ.
        changes: String,
    },
    /// A step that cannot be judged.
    #[error("the step: {reason}")]
    Step {
        /// What is wrong with it.
        reason: String,
    },
    /// A program that is still being compiled after the time that it was given.
    #[error(
        "program {program} of {nodes} nodes is not compiled after {seconds} s\n  fix: give it longer with \
         TpuOptions::compile_timeout or BURN_TPU_COMPILE_TIMEOUT_S; its compile goes on, and is used when the program \
         comes again"
    )]
    CompileTimeout {
        /// The start of its hash: the name of its dump.
        program: String,
        /// Its size.
        nodes: usize,
        /// The time it was given.
        seconds: f64,
    },
    /// In strict mode: a trace reached [`TpuOptions::trace_cap`](crate::TpuOptions::trace_cap) without a cut. Nothing is
    /// lost; what was recorded runs at the cut that reports this.
    #[error(
        "{device}: {nodes} nodes were recorded without a cut\n  fix: call burn_tpu::mark_step at the end of each step, or \
         raise TpuOptions::trace_cap (BURN_TPU_TRACE_CAP)"
    )]
    TraceFull {
        /// The device.
        device: String,
        /// The nodes that wait.
        nodes: usize,
    },
    /// Something that cannot happen, unless burn-tpu is wrong.
    #[error("internal error in burn-tpu (please report it): {0}")]
    Bug(String),
}

impl TpuError {
    /// Who can fix it.
    pub fn fault(&self) -> Fault {
        match self {
            TpuError::Operation { .. }
            | TpuError::DType { .. }
            | TpuError::FallbackDenied { .. }
            | TpuError::Option { .. }
            | TpuError::Frozen { .. }
            | TpuError::AlreadyRunning { .. }
            | TpuError::TraceFull { .. }
            | TpuError::ClientOption { .. }
            | TpuError::Topology { .. }
            | TpuError::NoValue { .. }
            | TpuError::Golden { .. }
            | TpuError::Step { .. } => Fault::User,
            TpuError::Unavailable { .. } | TpuError::File { .. } => Fault::Environment,
            TpuError::Pjrt { .. } | TpuError::CompileTimeout { .. } | TpuError::LostDonation { .. } => Fault::Plugin,
            TpuError::Host { .. } | TpuError::Bug(_) => Fault::Bug,
        }
    }

    pub(crate) fn pjrt(context: impl Into<String>) -> impl FnOnce(PjrtError) -> TpuError {
        let context = context.into();
        move |source| TpuError::Pjrt { context, source: Arc::new(source) }
    }
}

/// What fallible functions of this crate return.
pub type Result<T, E = TpuError> = std::result::Result<T, E>;
