//! What can go wrong with a language model, each with what a person can do about it.

use burn::tensor::backend::ExecutionError;
use std::path::{Path, PathBuf};

/// The results of this crate.
pub type Result<T, E = LlmError> = std::result::Result<T, E>;

/// Why a model was not loaded or did not write.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LlmError {
    /// A file or a folder could not be read or written.
    #[error("cannot {action} `{}`: {source}", path.display())]
    File {
        /// What was tried.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// Why it failed.
        source: std::io::Error,
    },

    /// A file is not what its name says, or not a whole one.
    #[error("`{}` {reason}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },

    /// The description of a model says something that this crate does not compute.
    #[error("the model's configuration {0}")]
    Config(String),

    /// The tensors of a file are not those of the model that it describes.
    #[error("the weights in `{}` are not those of the model that it describes: {}", path.display(), listed(problems))]
    Weights {
        /// The file or folder.
        path: PathBuf,
        /// What is wrong with each tensor, by name.
        problems: Vec<String>,
    },

    /// An adapter is not one that this crate computes, or not one of the model.
    #[error("the adapter {0}")]
    Adapter(String),

    /// Weights in few bits cannot be what is asked of them.
    #[error("weights in few bits {0}")]
    FewBits(&'static str),

    /// The tokenizer cannot be built, or not divide or join a text.
    #[error("the tokenizer {0}")]
    Tokenizer(String),

    /// The chat template is missing, is no template, or refuses the messages.
    #[error("the chat template {0}")]
    Template(String),

    /// The prompt is empty, or leaves no room for an answer.
    #[error("{0}")]
    Prompt(String),

    /// A number of the sampling makes no sense.
    #[error("{0}")]
    Sampling(String),

    /// A sequence does not divide into the blocks of a context.
    #[error(
        "a sequence of {length} tokens does not divide into {blocks} equal blocks, as the axis `{axis}` of the mesh asks \
         for; the next length that does is {next}"
    )]
    Context {
        /// The tokens of the sequence.
        length: usize,
        /// The blocks.
        blocks: usize,
        /// The axis that splits the context.
        axis: String,
        /// The next length that divides.
        next: usize,
    },

    /// The layers cannot run as a loop.
    #[error(transparent)]
    Loop(#[from] burn_tpu::TpuError),

    /// The backend failed.
    #[error("the device failed: {0}")]
    Device(#[from] ExecutionError),
}

impl LlmError {
    /// Returns the conversion of an error of the file system.
    pub(crate) fn file(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::File { action, path, source }
    }

    /// Returns the error of a file that is not what it should be.
    pub(crate) fn format(path: &Path, reason: impl Into<String>) -> Self {
        Self::Format { path: path.to_path_buf(), reason: reason.into() }
    }
}

/// Lists the first few of many problems.
fn listed(problems: &[String]) -> String {
    const SHOWN: usize = 4;
    let shown = problems.iter().take(SHOWN).cloned().collect::<Vec<_>>().join("; ");
    match problems.len().checked_sub(SHOWN) {
        Some(more @ 1..) => format!("{shown}; and {more} more"),
        _ => shown,
    }
}
