//! Saves checkpoints to a folder while the run goes on, and finds the newest intact one.
//!
//! Owns the lock of the folder, the thread that writes, and what stays. At most one checkpoint is being written, so at most
//! one is in the host's memory.

use crate::checkpoint::{Checkpoint, CheckpointPart, Copied};
use crate::error::{CheckpointError, Damage, Result};
use crate::folder::Folder;
use crate::manifest::{Manifest, VERSION};
use crate::restored::{Restored, STATE};
use crate::retention::Retention;
use crate::tensor_file;
use burn_tpu::distributed;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

/// The checkpoints that stay unless [`Checkpointer::keep_last`] sets another number.
const KEPT: usize = 3;

/// Saves checkpoints of a run to a folder, and restores the newest one. See the [crate](crate).
///
/// One process saves to a folder at a time. Of several processes that run the same program
/// ([`burn_tpu::distributed`]), the first one writes; all of them call the same methods, on a folder that all can read.
#[derive(Debug)]
pub struct Checkpointer {
    folder: Arc<Folder>,
    /// Held open: it is the lock. None in a process that does not write.
    _lock: Option<File>,
    retention: Retention,
    /// The checkpoint that is being written.
    running: Option<JoinHandle<Result<()>>>,
}

impl Checkpointer {
    /// Opens a folder of checkpoints, which is created if it is not there. What a run that was killed has not finished
    /// writing is removed.
    ///
    /// # Errors
    /// [`CheckpointError::InUse`] if another process saves to it, [`CheckpointError::File`] if it cannot be written.
    pub fn open(folder: impl AsRef<Path>) -> Result<Self> {
        let folder = Folder::create(folder.as_ref())?;
        let lock = match distributed::process_index()? {
            0 => Some(folder.lock()?),
            _ => None,
        };
        if lock.is_some() {
            folder.remove_left_overs()?;
        }
        let retention = Retention { last: KEPT, every: None };
        Ok(Self { folder: Arc::new(folder), _lock: lock, retention, running: None })
    }

    /// Sets how many of the newest checkpoints stay: 3 by default, at least 1.
    pub fn keep_last(mut self, checkpoints: usize) -> Self {
        self.retention.last = checkpoints.max(1);
        self
    }

    /// Also keeps the checkpoints whose steps are multiples of this number.
    pub fn keep_every(mut self, steps: u64) -> Self {
        self.retention.every = Some(steps).filter(|&steps| steps > 0);
        self
    }

    /// Returns the folder.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the steps of the checkpoints in the folder, ascending; the newest may still be damaged.
    ///
    /// # Errors
    /// [`CheckpointError::File`] if the folder cannot be listed.
    pub fn steps(&self) -> Result<Vec<u64>> {
        self.folder.steps()
    }

    /// Saves a checkpoint while the run goes on: returns as soon as a thread has begun to copy the tensors to the host and
    /// to write them. If the checkpoint before this one is still being written, waits for it first.
    ///
    /// Call it between two steps. It ends the step ([`burn_tpu::mark_step`]) on the devices of the tensors. Until a tensor
    /// is copied, the next step cannot reuse its memory.
    ///
    /// # Errors
    /// That of the checkpoint before this one, of which nothing is left then: this one was not begun, and a further call
    /// saves. Those of a part that cannot be captured.
    pub fn save(&mut self, checkpoint: Checkpoint) -> Result<()> {
        self.wait()?;
        let checkpoint = checkpoint.captured()?;
        let (folder, retention) = (Arc::clone(&self.folder), self.retention);
        if distributed::process_count()? == 1 {
            return self.begin(move || save(&folder, retention, checkpoint.copy()?));
        }
        // A value that is not on one host alone is copied by a program, which every process begins in the same order.
        let copied = checkpoint.copy()?;
        match self._lock {
            Some(_) => self.begin(move || save(&folder, retention, copied)),
            None => Ok(()),
        }
    }

    fn begin(&mut self, work: impl FnOnce() -> Result<()> + Send + 'static) -> Result<()> {
        let thread = thread::Builder::new().name("checkpoint".to_owned()).spawn(work);
        self.running = Some(thread.map_err(CheckpointError::file("start a thread for", self.folder.path()))?);
        Ok(())
    }

    /// Waits until the checkpoint that is being written is on the disk.
    ///
    /// # Errors
    /// Why it is not; the checkpoints before it are as they were.
    pub fn wait(&mut self) -> Result<()> {
        let Some(running) = self.running.take() else { return Ok(()) };
        let panicked = |_| Err(CheckpointError::Bug("the thread that writes panicked".to_owned()));
        running.join().unwrap_or_else(panicked)
    }

    /// Returns the newest intact checkpoint; `None` if there is none at all. A damaged one that is newer is named by a
    /// warning and stays where it is.
    ///
    /// # Errors
    /// [`CheckpointError::NoneIntact`] if there are checkpoints and all are damaged, [`CheckpointError::Version`] if the
    /// newest has another format, which is no damage.
    pub fn restore(&self) -> Result<Option<Restored>> {
        let mut damaged = Vec::new();
        for step in self.folder.steps()?.into_iter().rev() {
            match Restored::read(self.folder.of_step(step)) {
                Ok(restored) => return Ok(Some(restored)),
                Err(CheckpointError::Damaged(damage)) => {
                    tracing::warn!("the checkpoint {damage}; trying the one before it");
                    damaged.push(damage);
                }
                Err(error) => return Err(error),
            }
        }
        match damaged.is_empty() {
            true => Ok(None),
            false => Err(none_intact(self.folder.path(), damaged)),
        }
    }
}

fn none_intact(folder: &Path, damaged: Vec<Damage>) -> CheckpointError {
    CheckpointError::NoneIntact { folder: PathBuf::from(folder), damaged }
}

/// Waits for the checkpoint that is being written.
impl Drop for Checkpointer {
    fn drop(&mut self) {
        if let Err(error) = self.wait() {
            tracing::error!(%error, "the last checkpoint was not saved");
        }
    }
}

/// Writes a checkpoint, and then removes those that do not stay.
fn save(folder: &Folder, retention: Retention, copied: Copied) -> Result<()> {
    let step = copied.step;
    let _span = tracing::info_span!("checkpoint", step).entered();
    folder.publish(step, |path| write(path, copied))?;
    for outdated in retention.outdated(&folder.steps()?, step) {
        folder.remove(outdated)?;
    }
    Ok(())
}

/// Writes the files of a checkpoint, the manifest last.
fn write(path: &Path, copied: Copied) -> Result<()> {
    let Copied { step, random, parts } = copied;
    let (mut files, mut state): (Vec<_>, Vec<CheckpointPart>) = Default::default();
    for (part, tensors) in parts {
        if !tensors.is_empty() {
            let name = format!("{}{}", part.name, tensor_file::ENDING);
            files.push(tensor_file::write(path, name, tensors)?);
        }
        state.push(part);
    }
    let mut bytes = Vec::new();
    let written = ciborium::into_writer(&state, &mut bytes);
    written.map_err(|error| CheckpointError::Bug(format!("the state is not CBOR: {error}")))?;
    files.push(tensor_file::write_all(path, STATE.to_owned(), [&bytes[..]].into_iter())?);
    let manifest = Manifest { version: VERSION, step, random, files }.to_json()?;
    tensor_file::write_all(path, Manifest::name().to_owned(), [manifest.as_bytes()].into_iter())?;
    Ok(())
}
