//! What can go wrong with a checkpoint, each with what a person can do about it.

use burn_tpu::TpuError;
use std::fmt;
use std::path::{Path, PathBuf};

/// The results of this crate.
pub type Result<T, E = CheckpointError> = std::result::Result<T, E>;

/// Why a checkpoint was not saved or not loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// Another process saves to the folder.
    #[error(
        "the checkpoints in `{}` belong to a run that is still going on{}: stop it, or give this run a folder of its own",
        folder.display(), process.as_ref().map(|id| format!(" (process {id})")).unwrap_or_default()
    )]
    InUse {
        /// The folder of checkpoints.
        folder: PathBuf,
        /// The other process, if it left its number.
        process: Option<u32>,
    },

    /// A file or a folder could not be made, written or read.
    #[error("cannot {action} `{}`: {source}{}", path.display(), hint(source))]
    File {
        /// What was tried.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// Why it failed.
        source: std::io::Error,
    },

    /// One of several processes could not do its part, so that nothing was done.
    #[error("process {process} of {count}: {error}")]
    Process {
        /// Its number.
        process: usize,
        /// The number of all.
        count: usize,
        /// Its error.
        error: String,
    },

    /// Another version of this crate wrote the checkpoint.
    #[error(
        "the checkpoint `{}` has format version {found}, and this program reads version {known}: load it with the version \
         of burn-tpu-train that wrote it, or begin in another folder",
        path.display()
    )]
    Version {
        /// The checkpoint's folder.
        path: PathBuf,
        /// Its version.
        found: u64,
        /// The version that this crate reads.
        known: u64,
    },

    /// The checkpoint is not what was written.
    #[error("the checkpoint {0}")]
    Damaged(Damage),

    /// There are checkpoints, and every one of them is damaged.
    #[error("no checkpoint in `{}` is intact:{}", folder.display(), lines(damaged))]
    NoneIntact {
        /// The folder of checkpoints.
        folder: PathBuf,
        /// What is wrong with each, newest first.
        damaged: Vec<Damage>,
    },

    /// The tensors of a part are not those of the module or optimizer that they are loaded into.
    #[error("the part `{part}` of `{}` does not fit{differences}", path.display())]
    Mismatch {
        /// The checkpoint's folder.
        path: PathBuf,
        /// The part.
        part: String,
        /// The tensors that differ.
        differences: Box<Differences>,
    },

    /// The checkpoint has no part of this name and kind.
    #[error("the checkpoint `{}` has no {kind} `{part}`; it has: {}", path.display(), known.join(", "))]
    NoPart {
        /// The checkpoint's folder.
        path: PathBuf,
        /// What was asked for: a model, a value and so on.
        kind: &'static str,
        /// The name that was asked for.
        part: String,
        /// The names that there are.
        known: Vec<String>,
    },

    /// The numbers of a part are not those of the type that they are loaded into, or cannot be written.
    #[error("the part `{part}` is not a `{expected}`: {reason}")]
    Record {
        /// The part.
        part: String,
        /// The type.
        expected: &'static str,
        /// What is wrong.
        reason: String,
    },

    /// Two parts have one name, or a name cannot be that of a file.
    #[error("a part of a checkpoint cannot be called `{0}`: names are unique, and are letters, digits, `_` and `-`")]
    Name(String),

    /// A tensor of a type that safetensors does not have.
    #[error("the tensor `{name}` has the type {dtype}, which a checkpoint cannot hold: save it before it is quantized")]
    DType {
        /// The tensor's name.
        name: String,
        /// Its type.
        dtype: String,
    },

    /// A tensor could not be computed, read or uploaded.
    #[error(transparent)]
    Device(#[from] TpuError),

    /// A bug of this crate.
    #[error("a bug in burn-tpu-train: {0}")]
    Bug(String),
}

impl CheckpointError {
    /// Returns the conversion of an error of the file system.
    pub(crate) fn file(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::File { action, path, source }
    }

    /// Returns whether the same may succeed if it is tried again.
    pub(crate) fn may_pass(&self) -> bool {
        use std::io::ErrorKind::*;
        let Self::File { source, .. } = self else { return false };
        matches!(
            source.kind(),
            BrokenPipe
                | ConnectionAborted
                | ConnectionRefused
                | ConnectionReset
                | DirectoryNotEmpty
                | HostUnreachable
                | Interrupted
                | NetworkDown
                | NetworkUnreachable
                | NotConnected
                | ResourceBusy
                | StaleNetworkFileHandle
                | TimedOut
                | WouldBlock
        )
    }
}

/// A checkpoint that is not what was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The checkpoint's folder.
    pub path: PathBuf,
    /// What is wrong.
    pub reason: String,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is damaged: {}", self.path.display(), self.reason)
    }
}

/// How the tensors of a checkpoint differ from those that are expected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Differences {
    /// Expected, and not in the checkpoint.
    pub missing: Vec<String>,
    /// In the checkpoint, and not expected.
    pub unexpected: Vec<String>,
    /// Of another shape or dtype, with both.
    pub different: Vec<String>,
}

impl Differences {
    /// Returns whether the tensors are the same.
    pub fn is_empty(&self) -> bool {
        self.missing.is_empty() && self.unexpected.is_empty() && self.different.is_empty()
    }
}

impl fmt::Display for Differences {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (what, names) in
            [("missing", &self.missing), ("unexpected", &self.unexpected), ("different", &self.different)]
        {
            if !names.is_empty() {
                write!(f, "\n  {what}: {}", names.join(", "))?;
            }
        }
        Ok(())
    }
}

fn lines(damaged: &[Damage]) -> String {
    damaged.iter().map(|damage| format!("\n  {damage}")).collect()
}

/// Says what helps against an error of the file system.
fn hint(error: &std::io::Error) -> &'static str {
    use std::io::ErrorKind;
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            ": free some space, or keep fewer checkpoints; those that are complete stay as they are"
        }
        ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied => ": give the run a folder that it may write to",
        _ => "",
    }
}
