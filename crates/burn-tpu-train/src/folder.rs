//! The folder of checkpoints: one folder for each, its name, and the steps that make it complete or absent.
//!
//! A checkpoint is written to a folder with a leading dot, which is renamed when all of its files are on the disk. A
//! checkpoint that is removed is renamed first. So a folder `step-…` is complete at any moment at which the process, or the
//! machine, may stop; what has a dot is a left-over that the next run removes.

use crate::error::{CheckpointError, Result};
use std::fs::{self, File, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

const PREFIX: &str = "step-";
/// What is being written, and what is being removed.
const PARTIAL: &str = ".writing-";
const DISCARDED: &str = ".removing-";
const LOCK: &str = "lock";

/// Returns the name of a step's checkpoint.
pub(crate) fn name(step: u64) -> String {
    format!("{PREFIX}{step:08}")
}

/// The folder of checkpoints of one run.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
}

impl Folder {
    /// Creates the folder if it is not there.
    pub(crate) fn create(path: &Path) -> Result<Self> {
        fs::create_dir_all(path).map_err(CheckpointError::file("create the folder", path))?;
        Ok(Self { path: path.to_path_buf() })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the folder of a step's checkpoint, which need not exist.
    pub(crate) fn of_step(&self, step: u64) -> PathBuf {
        self.path.join(name(step))
    }

    /// Takes the folder for this process, until the file is closed.
    ///
    /// # Errors
    /// [`CheckpointError::InUse`] if another process has it.
    pub(crate) fn lock(&self) -> Result<File> {
        let path = self.path.join(LOCK);
        let opened = File::options().read(true).write(true).create(true).truncate(false).open(&path);
        let mut file = opened.map_err(CheckpointError::file("open the lock", &path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut text = String::new();
                let process = file.read_to_string(&mut text).ok().and_then(|_| text.trim().parse().ok());
                return Err(CheckpointError::InUse { folder: self.path.clone(), process });
            }
            Err(TryLockError::Error(source)) => return Err(CheckpointError::file("lock", &path)(source)),
        }
        let written = file.set_len(0).and_then(|()| file.rewind());
        let written = written.and_then(|()| writeln!(file, "{}", std::process::id()));
        written.map_err(CheckpointError::file("write", &path))?;
        Ok(file)
    }

    /// Removes what runs that were killed left behind.
    pub(crate) fn remove_left_overs(&self) -> Result<()> {
        for (path, name) in self.entries()? {
            if name.starts_with(PARTIAL) || name.starts_with(DISCARDED) {
                tracing::info!(path = %path.display(), "removing what an earlier run left behind");
                fs::remove_dir_all(&path).map_err(CheckpointError::file("remove", &path))?;
            }
        }
        Ok(())
    }

    /// Returns the steps of the checkpoints, ascending.
    pub(crate) fn steps(&self) -> Result<Vec<u64>> {
        let step = |(path, name): (PathBuf, String)| {
            let step = name.strip_prefix(PREFIX)?.parse().ok()?;
            path.is_dir().then_some(step)
        };
        let mut steps: Vec<u64> = self.entries()?.into_iter().filter_map(step).collect();
        steps.sort_unstable();
        steps.dedup();
        Ok(steps)
    }

    fn entries(&self) -> Result<Vec<(PathBuf, String)>> {
        let failed = || CheckpointError::file("list the folder", &self.path);
        let entries = fs::read_dir(&self.path).map_err(failed())?;
        let entry = |entry: std::io::Result<fs::DirEntry>| {
            let entry = entry.map_err(failed())?;
            Ok((entry.path(), entry.file_name().to_string_lossy().into_owned()))
        };
        entries.map(entry).collect()
    }

    /// Writes a step's checkpoint with `write`, which gets a folder for its files and puts them on the disk. The checkpoint
    /// is complete or absent; an earlier one of the same step is replaced.
    pub(crate) fn publish(&self, step: u64, write: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
        let partial = self.path.join(format!("{PARTIAL}{}", name(step)));
        let written = self.write(step, &partial, write);
        if written.is_err() && partial.exists() {
            // The space may be what was missing.
            let removed = fs::remove_dir_all(&partial);
            removed.unwrap_or_else(|error| tracing::warn!(path = %partial.display(), %error, "cannot be removed"));
        }
        written
    }

    fn write(&self, step: u64, partial: &Path, write: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
        if partial.exists() {
            fs::remove_dir_all(partial).map_err(CheckpointError::file("remove", partial))?;
        }
        fs::create_dir(partial).map_err(CheckpointError::file("create the folder", partial))?;
        write(partial)?;
        sync_folder(partial)?;
        if self.of_step(step).exists() {
            self.remove(step)?;
        }
        let path = self.of_step(step);
        fs::rename(partial, &path).map_err(CheckpointError::file("rename a checkpoint to", &path))?;
        sync_folder(&self.path)
    }

    /// Removes a step's checkpoint.
    pub(crate) fn remove(&self, step: u64) -> Result<()> {
        let (path, discarded) = (self.of_step(step), self.path.join(format!("{DISCARDED}{}", name(step))));
        if discarded.exists() {
            fs::remove_dir_all(&discarded).map_err(CheckpointError::file("remove", &discarded))?;
        }
        fs::rename(&path, &discarded).map_err(CheckpointError::file("rename for removal", &path))?;
        fs::remove_dir_all(&discarded).map_err(CheckpointError::file("remove", &discarded))
    }
}

/// Puts the names in a folder on the disk.
fn sync_folder(path: &Path) -> Result<()> {
    let synced = File::open(path).and_then(|folder| folder.sync_all());
    synced.map_err(CheckpointError::file("write", path))
}
