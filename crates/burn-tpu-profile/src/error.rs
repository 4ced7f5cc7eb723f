//! What can go wrong with the files of a profile.

use std::path::PathBuf;

/// Why a profile was not read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// A file or folder cannot be read or written.
    #[error("`{}`: {source}", .path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// The system's message.
        source: std::io::Error,
    },
    /// A folder has no profile.
    #[error(
        "`{}` has no profile: name the folder that was given to `profile` or `BURN_TPU_PROFILE`, one of its runs, or an \
         `.xplane.pb` file",
        .path.display()
    )]
    None {
        /// The folder.
        path: PathBuf,
    },
    /// Bytes that are no XSpace.
    #[error("{what} is no XSpace message: {reason}")]
    Message {
        /// The file, or the plugin whose bytes they are.
        what: String,
        /// Where the decoder stopped.
        reason: String,
    },
}
