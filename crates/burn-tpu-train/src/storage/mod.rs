//! Where checkpoints are: a folder, or a bucket of an object store.
//!
//! Owns what makes a checkpoint complete or absent in each, and the tries after an error that may pass. May not know
//! what the files are.
//!
//! A checkpoint is an *entry* `step-…`. What several processes write for it is its *draft*, which has a name of its
//! own, so that what an earlier try left behind is never taken for a part of it. Process 0 publishes the draft with the
//! manifest.

#[cfg(feature = "object-store")]
mod bucket;
mod folder;
mod retry;
#[cfg(test)]
pub(crate) mod testing;

pub(crate) use retry::{Retries, Retrying};

use crate::error::{CheckpointError, Result};
use folder::Folder;
use std::fmt::Debug;
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// What precedes the step in the name of an entry.
const PREFIX: &str = "step-";

/// The manifest's name in an entry.
pub(crate) const MANIFEST: &str = "manifest.json";

/// Returns the name of the entry of a step.
pub(crate) fn entry(step: u64) -> String {
    format!("{PREFIX}{step:08}")
}

/// Returns the step of an entry; `None` for another name.
fn step_of(name: &str) -> Option<u64> {
    name.strip_prefix(PREFIX)?.parse().ok()
}

/// A checkpoint that is being written, or that was published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Draft {
    pub(crate) entry: String,
    /// Differs from that of every other try to write the entry.
    pub(crate) attempt: String,
}

/// A place of checkpoints of one run.
pub(crate) trait Storage: Debug + Send + Sync {
    /// Returns the folder or the URL.
    fn root(&self) -> &Path;

    /// Takes the place for this process, until the file is closed; `None` where there are no locks.
    ///
    /// # Errors
    /// [`CheckpointError::InUse`] if another process has it.
    fn lock(&self) -> Result<Option<File>>;

    /// Removes what runs that were killed left behind.
    fn remove_left_overs(&self) -> Result<()>;

    /// Returns the steps of the checkpoints, ascending.
    fn steps(&self) -> Result<Vec<u64>>;

    /// Writes a file of a draft, of these pieces; replaces what a failed try wrote. On return it is on the disk.
    fn write(&self, draft: &Draft, name: &str, pieces: &[&[u8]]) -> Result<()>;

    /// Returns the size of a file of a draft.
    fn draft_size(&self, draft: &Draft, name: &str) -> Result<u64>;

    /// Returns whether the files of a checkpoint are where its draft was, so that its manifest has to name the attempt.
    fn keeps_attempts(&self) -> bool;

    /// Makes a draft the checkpoint of its step. An earlier one of the same step is replaced.
    fn publish(&self, draft: &Draft, manifest: &[u8]) -> Result<()>;

    /// Removes a draft that was not published.
    fn discard(&self, draft: &Draft) -> Result<()>;

    /// Removes a checkpoint.
    fn remove(&self, step: u64) -> Result<()>;

    /// Returns the manifest of an entry.
    fn manifest(&self, entry: &str) -> Result<Vec<u8>>;

    /// Returns the size of a file of a checkpoint.
    fn size(&self, published: &Draft, name: &str) -> Result<u64>;

    /// Returns a range of a file of a checkpoint.
    fn read(&self, published: &Draft, name: &str, range: Range<u64>) -> Result<Vec<u8>>;
}

/// Opens a folder, which is made if `create`, or the URL of a bucket.
///
/// # Errors
/// [`CheckpointError::File`] if it cannot be created, or names a store that this program has not.
pub(crate) fn open(root: &Path, create: bool) -> Result<Retrying> {
    let folder: Box<dyn Storage> = match root.to_str().filter(|text| text.contains("://")) {
        Some(url) => return open_url(url),
        None if create => Box::new(Folder::create(root)?),
        None => Box::new(Folder::of(root)),
    };
    Ok(Retrying::new(folder, Retries::default()))
}

#[cfg(feature = "object-store")]
fn open_url(url: &str) -> Result<Retrying> {
    Ok(Retrying::new(Box::new(bucket::Bucket::open(url)?), bucket::RETRIES))
}

#[cfg(not(feature = "object-store"))]
fn open_url(url: &str) -> Result<Retrying> {
    Err(no_feature(url))
}

/// Returns the error of a URL whose store this program was built without.
fn no_feature(url: &str) -> CheckpointError {
    let (scheme, _) = url.split_once("://").unwrap_or_default();
    let text = match scheme {
        "s3" | "gs" => format!("build burn-tpu-train with its feature `{scheme}`"),
        _ => "checkpoints are in folders, and in `s3://…` and `gs://…`".to_owned(),
    };
    let source = std::io::Error::new(std::io::ErrorKind::Unsupported, text);
    CheckpointError::File { action: "open", path: PathBuf::from(url), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_was_not_built_in_is_an_error_that_names_the_feature() {
        let error = |url: &str| no_feature(url).to_string();
        assert!(
            error("s3://bucket/run")
                .contains("cannot open `s3://bucket/run`: build burn-tpu-train with its feature `s3`")
        );
        assert!(error("ftp://host").contains("and in `s3://…` and `gs://…`"));
    }
}
