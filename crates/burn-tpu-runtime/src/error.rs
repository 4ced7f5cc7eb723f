//! The error hierarchy. Every variant has a [`Fault`], the party that can fix the error, and the data for the fix.

mod not_finite;

pub use not_finite::{NonFinite, NonFiniteOp, NotFinite};

use crate::memory::OutOfMemory;
use burn_tpu_graph::GraphError;
use burn_tpu_pjrt::PjrtError;
use burn_tpu_profile::ProfileError;
use std::path::PathBuf;
use std::sync::Arc;

/// Who can fix an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The calling program: a shape, a dtype, an option.
    User,
    /// The machine: a missing plugin, a folder without permission, too little memory.
    Environment,
    /// The plugin: it rejected a call or failed.
    Plugin,
    /// burn-tpu itself. Please report it.
    Bug,
}

/// Everything that can go wrong, from the search for a plugin to the read of a tensor.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum TpuError {
    /// There is no usable plugin or device for the platform.
    #[error("{device} is not available: {reason}\n  fix: {fix}")]
    Unavailable {
        /// The requested device.
        device: String,
        /// Why it is not available, with every place that was searched.
        reason: String,
        /// The command that fixes it.
        fix: &'static str,
    },
    /// A call into the plugin failed.
    #[error("{context}: {source}")]
    Pjrt {
        /// What was being done, with the program, tensor or transfer.
        context: String,
        /// The call, the code and the plugin's message.
        source: Arc<PjrtError>,
    },
    /// An engine of another crate failed. See [`ExternalEngine`](crate::ExternalEngine).
    #[error("{engine}: {context}: {message}")]
    Engine {
        /// The engine's name.
        engine: &'static str,
        /// What was being done, with the program, tensor or transfer.
        context: String,
        /// The engine's message.
        message: String,
    },
    /// The compiler aliased less argument memory to a program's results than was requested. The program needs the
    /// difference in additional memory.
    #[error("results should reuse {asked} bytes of donated arguments, but the compiler aliased only {granted} bytes")]
    LostDonation {
        /// Bytes of the arguments that the results update.
        asked: usize,
        /// Bytes of arguments that the compiler aliased to results.
        granted: usize,
    },
    /// An operation with shapes, dtypes or dims that it does not allow.
    #[error("{op}: {source}")]
    Operation {
        /// The Burn operation.
        op: &'static str,
        /// Why the graph node could not be built.
        source: GraphError,
    },
    /// An index that is out of range. See [`TpuOptions::check_indices`](crate::TpuOptions::check_indices).
    #[error(
        "{op}: an index for dim {dim} of size {size} is out of range: the smallest is {least}, the largest is {most} \
         ({caller})"
    )]
    Index {
        /// The operation.
        op: &'static str,
        /// The dim that the index addresses.
        dim: usize,
        /// Its size.
        size: usize,
        /// The smallest index of the op.
        least: i64,
        /// The largest index of the op.
        most: i64,
        /// The line that recorded the op, or its thread.
        caller: String,
    },
    /// A step made a NaN or an infinity. See [`TpuOptions::check_numerics`](crate::TpuOptions::check_numerics).
    #[error("{0}")]
    NotFinite(Box<NotFinite>),
    /// An element type that the device does not support.
    #[error("{op}: {dtype} is not supported on {device}; supported are bool, i8-i64, u8-u64, bf16, f16, f32 and f64")]
    DType {
        /// The Burn operation.
        op: &'static str,
        /// The element type, under its Burn name.
        dtype: String,
        /// The device.
        device: String,
    },
    /// A node that the engine cannot lower, when the fallback policy denies host fallback.
    #[error(
        "{device} cannot run {ops}, and the fallback policy is `deny`\n  fix: allow it with \
         TpuOptions::fallback or BURN_TPU_FALLBACK=warn"
    )]
    FallbackDenied {
        /// The device.
        device: String,
        /// The mnemonics of the ops, comma-separated.
        ops: String,
    },
    /// A program had to be compiled on a frozen device. See [`Device::freeze`](crate::Device::freeze).
    #[error(
        "{device} is frozen, and a program had to be compiled: {reason}\n  fix: let steps repeat, or burn_tpu::unfreeze"
    )]
    Frozen {
        /// The device.
        device: String,
        /// What differs from an earlier recording, and where, in the words of [`Recompile`](crate::Recompile).
        reason: String,
    },
    /// A function that cannot be recorded once and run many times: it reads a value, or is not the same when it is recorded
    /// again.
    #[error("the function cannot be compiled: {reason}{}", place(op, caller))]
    Impure {
        /// What it does that a compiled function may not do.
        reason: String,
        /// The operation; empty if it is none.
        op: String,
        /// The line that recorded it; empty if it is not known.
        caller: String,
    },
    /// A custom op whose forms do not agree, or that is called with other types than it has, or whose text or kernel the
    /// plugin does not compile.
    #[error("custom op `{name}`: {reason}")]
    CustomOp {
        /// The op's name.
        name: String,
        /// The rule that it breaks, with both types; or the plugin's message.
        reason: String,
    },
    /// Layers that are no loop: they differ in more than the values of their tensors, or one gives what the next cannot
    /// take.
    #[error("layers: {reason}")]
    Layers {
        /// The rule that they break.
        reason: String,
    },
    /// Values that are to be in the host's memory, on a device whose programs cannot have any there.
    #[error("programs of {device} cannot have values in the host's memory: it has no memory `pinned_host`")]
    HostMemory {
        /// The device.
        device: String,
    },
    /// The interpreter failed to run a node.
    #[error("the ndarray engine: {reason}")]
    Host {
        /// The node with its operand types, and the cause.
        reason: String,
    },
    /// The device has no room for a program or a value. What was there is still there.
    #[error("{0}")]
    OutOfMemory(Box<OutOfMemory>),
    /// An option or environment variable with an invalid value.
    #[error("option {name}: {value:?} {rule}")]
    Option {
        /// The name of the option or variable.
        name: String,
        /// The given value.
        value: String,
        /// The rule that the value breaks.
        rule: String,
    },
    /// Options were set after the device was first used.
    #[error("{device} is already running: set its options before its first tensor")]
    AlreadyRunning {
        /// The device.
        device: String,
    },
    /// An option of a platform's client differs from the value that another device of the platform already uses.
    #[error(
        "{device}: option {option} is {asked}, but the client that the devices of this platform share has {current}\n  fix: \
         set {option} to one value for all of them, before the first is used"
    )]
    ClientOption {
        /// The device.
        device: String,
        /// The option's name, a method of [`TpuOptions`](crate::TpuOptions).
        option: &'static str,
        /// The requested value.
        asked: String,
        /// The client's value.
        current: String,
    },
    /// A file or folder that cannot be used.
    #[error("{what} {path}: {reason}")]
    File {
        /// The purpose of the file.
        what: &'static str,
        /// Its path.
        path: PathBuf,
        /// The system's message.
        reason: String,
    },
    /// A topology name that does not parse, or a slice that no generation has.
    #[error("topology {name:?} {rule}")]
    Topology {
        /// The given name.
        name: String,
        /// The rule that the name breaks.
        rule: String,
    },
    /// A mesh that cannot be: of more chips than there are, or with an axis that does not exist.
    #[error("mesh {mesh}: {rule}")]
    Mesh {
        /// The mesh, as `data=4,model=2`.
        mesh: String,
        /// The rule that it breaks.
        rule: String,
    },
    /// A value that cannot be split over a mesh as it was asked.
    #[error("{what}: {rule}")]
    Sharding {
        /// The parameter's path, or the operation.
        what: String,
        /// The broken rule; for a dim that does not divide, with the nearest size that does.
        rule: String,
    },
    /// A collective operation of several devices that cannot be completed: one of them gave something else, or its thread
    /// has ended or does not come.
    #[error("devices that work together: {reason}")]
    Peer {
        /// The reason.
        reason: String,
    },
    /// A read of a tensor on a device that compiles programs but does not run them.
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
    /// A step that differs from the one in a golden file.
    #[error(
        "the step is not the one in {path} (- pinned, + found):\n{changes}  fix: if that is \
         wanted, run again with BURN_TPU_BLESS=1"
    )]
    Golden {
        /// The golden file.
        path: PathBuf,
        /// The lines that differ.
        changes: String,
    },
    /// A step that [`fit`](crate::fit) cannot evaluate.
    #[error("the step: {reason}")]
    Step {
        /// The reason.
        reason: String,
    },
    /// A program whose compile did not finish within the time limit.
    #[error(
        "program {program} of {nodes} nodes is not compiled after {seconds} s\n  fix: give it longer with \
         TpuOptions::compile_timeout or BURN_TPU_COMPILE_TIMEOUT_S; the compile continues, and a later run of \
         the program uses its result"
    )]
    CompileTimeout {
        /// The start of the program's hash, which is the name of its dump.
        program: String,
        /// The number of nodes.
        nodes: usize,
        /// The time limit in seconds.
        seconds: f64,
    },
    /// In strict mode, a trace reached [`TpuOptions::trace_cap`](crate::TpuOptions::trace_cap) without a cut. No data
    /// is lost: the cut that reports this error also runs what was recorded.
    #[error(
        "{device}: {nodes} nodes were recorded without a cut\n  fix: call burn_tpu::mark_step at the end of each step, or \
         raise TpuOptions::trace_cap (BURN_TPU_TRACE_CAP)"
    )]
    TraceFull {
        /// The device.
        device: String,
        /// The number of recorded nodes.
        nodes: usize,
    },
    /// Processes that must run the same programs recorded different ones. All of them return this error.
    #[error(
        "{device}: process 0 and process {process} recorded different programs: program {program} first differs at op \
         {op}\n  process 0: {first}\n  process {process}: {other}\n  here: {caller}\n  fix: every process has to record the \
         same ops in the same order; only values may differ"
    )]
    Disagreement {
        /// The device.
        device: String,
        /// The number of the program among those that were compiled for the device.
        program: u64,
        /// The position of the op in the program.
        op: usize,
        /// The process that differs from process 0.
        process: usize,
        /// The op of process 0, with its attributes and type.
        first: String,
        /// The op of the other process.
        other: String,
        /// The line that recorded the op in this process, or that had the program run.
        caller: String,
    },
    /// A process did not get where others wait for it.
    #[error(
        "process {process} of {count} did not come within {seconds} s: {what}\n  fix: see why it ended or waits; give it \
         longer with BURN_TPU_STORE_TIMEOUT_S"
    )]
    MissingProcess {
        /// The process that did not come.
        process: usize,
        /// The number of processes.
        count: usize,
        /// What the others wait for.
        what: String,
        /// The time limit in seconds.
        seconds: f64,
    },
    /// The store that several processes share cannot be served or reached.
    #[error("the store at {address}: {reason}")]
    Store {
        /// Its address.
        address: String,
        /// The system's or the server's message.
        reason: String,
    },
    /// The process has a profile running, and there can be one.
    #[error("a profile is running in this process already: end it first (BURN_TPU_PROFILE runs one for its steps)")]
    ProfileRunning,
    /// The files of a profile cannot be written.
    #[error("the profile is lost: {source}")]
    Profile {
        /// Why.
        source: Arc<ProfileError>,
    },
    /// A violated invariant, which is a bug in burn-tpu.
    #[error("internal error in burn-tpu (please report it): {0}")]
    Bug(String),
}

impl TpuError {
    /// Returns whether a device had no room.
    pub(crate) fn is_out_of_memory(&self) -> bool {
        match self {
            TpuError::OutOfMemory(_) => true,
            TpuError::Pjrt { source, .. } => source.is_out_of_memory(),
            _ => false,
        }
    }

    /// Returns who can fix the error.
    pub fn fault(&self) -> Fault {
        match self {
            TpuError::Operation { .. }
            | TpuError::Index { .. }
            | TpuError::NotFinite(_)
            | TpuError::DType { .. }
            | TpuError::FallbackDenied { .. }
            | TpuError::Option { .. }
            | TpuError::Frozen { .. }
            | TpuError::Impure { .. }
            | TpuError::CustomOp { .. }
            | TpuError::Layers { .. }
            | TpuError::HostMemory { .. }
            | TpuError::AlreadyRunning { .. }
            | TpuError::TraceFull { .. }
            | TpuError::ClientOption { .. }
            | TpuError::Topology { .. }
            | TpuError::Mesh { .. }
            | TpuError::Sharding { .. }
            | TpuError::Peer { .. }
            | TpuError::NoValue { .. }
            | TpuError::Golden { .. }
            | TpuError::Step { .. }
            | TpuError::ProfileRunning
            | TpuError::Disagreement { .. } => Fault::User,
            TpuError::Unavailable { .. }
            | TpuError::Profile { .. }
            | TpuError::OutOfMemory(_)
            | TpuError::File { .. }
            | TpuError::MissingProcess { .. }
            | TpuError::Store { .. } => Fault::Environment,
            TpuError::Pjrt { .. }
            | TpuError::Engine { .. }
            | TpuError::CompileTimeout { .. }
            | TpuError::LostDonation { .. } => Fault::Plugin,
            TpuError::Host { .. } | TpuError::Bug(_) => Fault::Bug,
        }
    }

    pub(crate) fn pjrt(context: impl Into<String>) -> impl FnOnce(PjrtError) -> TpuError {
        let context = context.into();
        move |source| TpuError::Pjrt { context, source: Arc::new(source) }
    }
}

/// Returns an operation and its line for the end of a message.
fn place(op: &str, caller: &str) -> String {
    match (op, caller) {
        ("", "") => String::new(),
        ("", place) | (place, "") => format!(" ({place})"),
        (op, caller) => format!(" ({op}, {caller})"),
    }
}

/// The result type of this crate's fallible functions.
pub type Result<T, E = TpuError> = std::result::Result<T, E>;
