//! What keeps `deploy` from printing: each variant says what is wrong and what would be right.

use burn_tpu_runtime::TpuError;
use std::path::{Path, PathBuf};

/// An error of `burn-tpu deploy`. Each is the user's fault, or the file system's.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The command line has excluded it.
    #[error("a slice is needed: --slice NAME, or --fit REPORT")]
    NoSlice,
    /// The name of the slice does not parse.
    #[error("{0}")]
    Topology(#[from] TpuError),
    #[error("Google Cloud has no slice `{name}`; {legal}")]
    NoSuchSlice { name: String, legal: String },
    #[error("`{name}` names {slices} slices, and deploy renders one: name the slice alone, such as `{one}`")]
    SeveralSlices { name: String, slices: usize, one: String },
    #[error(
        "TPU VMs of `{name}` cannot be ordered through gcloud compute tpus: use `burn-tpu deploy gke --slice {name}`"
    )]
    NoVm { name: String },
    #[error("the name `{name}` needs {rule}")]
    Name { name: String, rule: &'static str },
    /// A variable, in the words of `launch`.
    #[error("{0}")]
    Variable(String),
    #[error("`{}` is no report of `fit --json`: {reason}", path.display())]
    Report { path: PathBuf, reason: String },
    #[error(
        "no slice of `{}` can be deployed:\n{tried}\nrun fit with other slices: --generations v5e:2x4,v5e:4x4,v6e:4x4",
        path.display()
    )]
    NoneFits { path: PathBuf, tried: String },
    #[error("cannot write `{}`: {error}", path.display())]
    Write { path: PathBuf, error: std::io::Error },
}

/// The result of a rendering.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub fn report(path: &Path, reason: impl ToString) -> Self {
        Error::Report { path: path.into(), reason: reason.to_string() }
    }
}
