//! Every way in which this crate fails, and whose fault it is.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::bindings::*;
use crate::discovery::DiscoveryError;
use crate::element_type::ElementType;
use crate::occupancy::{LIBTPU_LOCK, LibtpuLock};
use crate::plugin::Version;
use crate::tensor_spec::TensorSpec;

/// This crate's result.
pub type Result<T, E = PjrtError> = std::result::Result<T, E>;

/// Who has to act on an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The caller gave an argument that cannot work.
    User,
    /// The machine: files, variables, versions, a device that is absent or full.
    Environment,
    /// The plugin refused or failed.
    Plugin,
    /// This project broke its own rules.
    Bug,
}

/// A status code of the C API (header: `PJRT_Error_Code`, abseil's status codes).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are abseil's; the enum's own line says where they are explained")]
pub enum Code {
    Cancelled,
    Unknown,
    InvalidArgument,
    DeadlineExceeded,
    NotFound,
    AlreadyExists,
    PermissionDenied,
    ResourceExhausted,
    FailedPrecondition,
    Aborted,
    OutOfRange,
    Unimplemented,
    Internal,
    Unavailable,
    DataLoss,
    Unauthenticated,
    /// A number the header does not name.
    Other(u32),
}

impl Code {
    pub(crate) fn from_raw(raw: PJRT_Error_Code) -> Code {
        match raw {
            PJRT_Error_Code_CANCELLED => Code::Cancelled,
            PJRT_Error_Code_UNKNOWN => Code::Unknown,
            PJRT_Error_Code_INVALID_ARGUMENT => Code::InvalidArgument,
            PJRT_Error_Code_DEADLINE_EXCEEDED => Code::DeadlineExceeded,
            PJRT_Error_Code_NOT_FOUND => Code::NotFound,
            PJRT_Error_Code_ALREADY_EXISTS => Code::AlreadyExists,
            PJRT_Error_Code_PERMISSION_DENIED => Code::PermissionDenied,
            PJRT_Error_Code_RESOURCE_EXHAUSTED => Code::ResourceExhausted,
            PJRT_Error_Code_FAILED_PRECONDITION => Code::FailedPrecondition,
            PJRT_Error_Code_ABORTED => Code::Aborted,
            PJRT_Error_Code_OUT_OF_RANGE => Code::OutOfRange,
            PJRT_Error_Code_UNIMPLEMENTED => Code::Unimplemented,
            PJRT_Error_Code_INTERNAL => Code::Internal,
            PJRT_Error_Code_UNAVAILABLE => Code::Unavailable,
            PJRT_Error_Code_DATA_LOSS => Code::DataLoss,
            PJRT_Error_Code_UNAUTHENTICATED => Code::Unauthenticated,
            other => Code::Other(other),
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// What went wrong between this crate and a plugin. [`PjrtError::fault`] says who has to act.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PjrtError {
    /// No plugin file was found.
    #[error(transparent)]
    Discovery(#[from] DiscoveryError),
    /// The path names no file.
    #[error("the plugin `{}` does not exist: correct the path, or run `cargo xtask setup cpu|tpu|cuda`", .path.display())]
    PluginMissing {
        /// The path asked for.
        path: PathBuf,
    },
    /// The dynamic linker refused the file.
    #[error("`{}` could not be loaded as a shared library: {reason}", .path.display())]
    PluginNotLoadable {
        /// The file.
        path: PathBuf,
        /// The dynamic linker's words.
        reason: String,
    },
    /// A shared library, but no plugin.
    #[error("`{}` is a shared library but no PJRT plugin: {reason}; name a plugin's own file", .path.display())]
    NotAPlugin {
        /// The file.
        path: PathBuf,
        /// What is missing.
        reason: &'static str,
    },
    /// The plugin's C API is one that this crate cannot speak.
    #[error(
        "the plugin `{}` speaks PJRT C API {found}, this build speaks {ours} and needs {needed}: {}", .path.display(),
        advice(*.found)
    )]
    PluginVersion {
        /// The plugin.
        path: PathBuf,
        /// What it speaks.
        found: Version,
        /// What this crate was built from.
        ours: Version,
        /// The oldest that works.
        needed: Version,
    },
    /// libtpu did not initialise because of its lock file.
    #[error("libtpu serves one process at a time, and {}", in_the_way(.lock))]
    TpuLocked {
        /// The plugin.
        path: &'static Path,
        /// Who is in the way, as far as this process can see.
        lock: Box<LibtpuLock>,
    },
    /// The plugin's function table ends before this function.
    #[error(
        "the plugin `{}` (PJRT C API {version}) has no {call}: use a newer plugin, or do without what needs it",
        .path.display()
    )]
    CallMissing {
        /// The plugin.
        path: &'static Path,
        /// What it speaks.
        version: Version,
        /// The C function.
        call: &'static str,
    },
    /// A C function returned an error.
    #[error("{call} failed with {code}: {message} (plugin `{}`)", .path.display())]
    Call {
        /// The plugin.
        path: &'static Path,
        /// The C function, or `event` for work that failed after its call had returned.
        call: &'static str,
        /// Its status code.
        code: Code,
        /// Its message, whole.
        message: String,
    },
    /// A plugin broke the C API's own rules.
    #[error("{call} of the plugin `{}` broke the C API: {what}", .path.display())]
    PluginBroken {
        /// The plugin.
        path: &'static Path,
        /// The C function.
        call: &'static str,
        /// What is wrong.
        what: &'static str,
    },
    /// A flag in `XLA_FLAGS` that this crate does not know to be safe: plugins abort the process on unknown ones.
    #[error(
        "XLA_FLAGS holds `{flag}`, and a plugin aborts the process on a flag that it does not know: remove it and \
         pass `{name}` per compile, CompileOptions::set(\"{name}\", ...), where a typo is an ordinary error",
        name = flag.trim_start_matches('-').split('=').next().unwrap_or_default()
    )]
    XlaFlag {
        /// The whole flag.
        flag: String,
    },
    /// A client or topology option that cannot be passed on.
    #[error("option `{name}`: {reason}")]
    Option {
        /// The option.
        name: String,
        /// Why not.
        reason: String,
    },
    /// Compile options that cannot be passed on.
    #[error("compile options: {reason}")]
    CompileOptions {
        /// Why not.
        reason: String,
    },
    /// A shape that no plugin may see.
    #[error("shape {element_type}{dims:?}: {reason}")]
    Shape {
        /// The element type.
        element_type: ElementType,
        /// The dimensions as given.
        dims: Vec<usize>,
        /// Why not.
        reason: &'static str,
    },
    /// An element type that this crate has no name for.
    #[error("{call} gave element type {raw} (PJRT_Buffer_Type), which this crate does not handle")]
    ElementType {
        /// The C function.
        call: &'static str,
        /// The C enum's number.
        raw: u32,
    },
    /// Host bytes that do not fill the shape.
    #[error("{spec} takes {expected} bytes, {given} were given")]
    ByteLength {
        /// The shape.
        spec: TensorSpec,
        /// What it takes.
        expected: usize,
        /// What came.
        given: usize,
    },
    /// Program text that would kill the process inside a plugin.
    #[error("program text, line {line}: {reason}")]
    Program {
        /// Counted from 1.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// The number of devices or of arguments in an execute call.
    #[error("`{program}` takes {expected} {what}, {given} were given")]
    Count {
        /// The executable's name.
        program: String,
        /// What was counted.
        what: &'static str,
        /// What it takes.
        expected: usize,
        /// What came.
        given: usize,
    },
    /// An argument whose type or shape is not the program's.
    #[error("`{program}`, device {device}: argument {index} must be {expected}, {given} was given")]
    Argument {
        /// The executable's name.
        program: String,
        /// The position in the list of devices.
        device: usize,
        /// The argument's position.
        index: usize,
        /// What the program declares.
        expected: Box<TensorSpec>,
        /// What came.
        given: Box<TensorSpec>,
    },
    /// Any other argument of this crate's functions that cannot work.
    #[error("{call}: {reason}")]
    Usage {
        /// Our function.
        call: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// A call into a plugin from a forked child of the process that loaded it.
    #[error(
        "{call}: the plugin `{}` was loaded by process {loaded_by}, and this is a forked child of it, in which the \
         plugin's threads do not exist: fork before the plugin is loaded, or start the child anew \
         (std::process::Command; `spawn` instead of `fork` in Python's multiprocessing)",
        .path.display()
    )]
    Forked {
        /// The plugin.
        path: &'static Path,
        /// The C function, or our own.
        call: &'static str,
        /// The process that loaded the plugin.
        loaded_by: u32,
    },
    /// A compile or a run that was to start after the process began to exit.
    #[error("nothing is compiled or run: this process is exiting")]
    Exiting,
    /// A serialized executable that is damaged or came from elsewhere.
    #[error("serialized executable: {reason}; compile it again")]
    Serialized {
        /// What is wrong.
        reason: String,
    },
}

impl PjrtError {
    /// Who has to act.
    pub fn fault(&self) -> Fault {
        use PjrtError::*;
        match self {
            Discovery(_) | PluginMissing { .. } | PluginNotLoadable { .. } | NotAPlugin { .. } => Fault::Environment,
            PluginVersion { .. } | CallMissing { .. } | XlaFlag { .. } | Serialized { .. } => Fault::Environment,
            TpuLocked { .. } | Exiting => Fault::Environment,
            Call { code: Code::Unavailable, .. } => Fault::Environment,
            Call { .. } if self.is_out_of_memory() => Fault::Environment,
            Call { .. } | PluginBroken { .. } | ElementType { .. } => Fault::Plugin,
            Option { .. } | CompileOptions { .. } | Shape { .. } | Usage { .. } | Forked { .. } => Fault::User,
            // Programs and their arguments are built by this project's own lowering and recording.
            ByteLength { .. } | Program { .. } | Count { .. } | Argument { .. } => Fault::Bug,
        }
    }

    /// The plugin's status code, if a C function failed.
    pub fn code(&self) -> Option<Code> {
        match self {
            PjrtError::Call { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// Whether a device or its allocator was full: when compiling on TPUs, when running elsewhere.
    ///
    /// The code says so mostly; the CPU plugin calls scratch memory that it cannot get an internal error.
    pub fn is_out_of_memory(&self) -> bool {
        match self {
            PjrtError::Call { code: Code::ResourceExhausted, .. } => true,
            PjrtError::Call { code: Code::Internal, message, .. } => message.contains("Out of memory"),
            _ => false,
        }
    }

    pub(crate) fn usage(call: &'static str, reason: impl Into<String>) -> PjrtError {
        PjrtError::Usage { call, reason: reason.into() }
    }
}

fn in_the_way(lock: &LibtpuLock) -> String {
    match lock {
        LibtpuLock::Held(holder) => {
            format!("{holder} has it: wait for it, or end it with `kill {}`", holder.pid)
        }
        LibtpuLock::Foreign { owner } => {
            format!("`{LIBTPU_LOCK}` was left by user {owner}: remove it, `sudo rm {LIBTPU_LOCK}`")
        }
        LibtpuLock::Free => "one that cannot be seen from here, in another container perhaps, has it: end that".into(),
    }
}

fn advice(found: Version) -> &'static str {
    if found.major != Version::HEADER.major {
        "another major version is another interface; use a plugin of the major version that this build speaks"
    } else {
        "use a newer plugin (`cargo xtask setup` fetches the tested ones)"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_distinct_and_complete() {
        let named = (1..=PJRT_Error_Code_UNAUTHENTICATED).map(Code::from_raw);
        assert!(named.clone().all(|code| !matches!(code, Code::Other(_))));
        assert_eq!(named.collect::<std::collections::HashSet<_>>().len(), 16);
        assert_eq!(Code::from_raw(99), Code::Other(99));
    }

    #[test]
    fn a_flag_error_names_the_override_that_replaces_it() {
        let error = PjrtError::XlaFlag { flag: "--xla_cpu_enable_fast_math=true".into() };
        assert!(error.to_string().contains("CompileOptions::set(\"xla_cpu_enable_fast_math\""), "{error}");
        assert_eq!(error.fault(), Fault::Environment);
    }

    #[test]
    fn full_devices_are_the_environments_fault() {
        let error = |code, message: &str| {
            let (path, message) = (Path::new("/p.so"), message.to_owned());
            PjrtError::Call { path, call: "event", code, message }
        };
        for full in
            [error(Code::ResourceExhausted, ""), error(Code::Internal, "Error: Out of memory allocating 9 bytes.")]
        {
            assert!(full.is_out_of_memory() && full.fault() == Fault::Environment, "{full}");
        }
        let other = error(Code::Internal, "RET_CHECK failure");
        assert!(!other.is_out_of_memory() && other.fault() == Fault::Plugin);
    }

    #[test]
    fn errors_stay_small_enough_to_return_by_value() {
        assert!(size_of::<PjrtError>() <= 128, "{}", size_of::<PjrtError>());
    }
}
