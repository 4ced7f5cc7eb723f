//! Checkpoints in a folder: a folder for each, and the steps that make it complete or absent.
//!
//! A checkpoint is written to a folder with a leading dot, which is renamed when all of its files are on the disk. A
//! checkpoint that is removed is renamed first. So a folder `step-…` is complete at any moment at which the process, or
//! the machine, may stop; what has a dot is a left-over that the next run removes.

use super::{Draft, MANIFEST, Storage, entry, step_of};
use crate::error::{CheckpointError, Result};
use std::fs::{self, File, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// What is being written, and what is being removed.
const PARTIAL: &str = ".writing-";
const DISCARDED: &str = ".removing-";
const LOCK: &str = "lock";

/// The folder of checkpoints of one run.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
}

impl Folder {
    /// Creates the folder if it is not there.
    pub(super) fn create(path: &Path) -> Result<Self> {
        fs::create_dir_all(path).map_err(CheckpointError::file("create the folder", path))?;
        Ok(Self::of(path))
    }

    /// A folder that is there already.
    pub(super) fn of(path: &Path) -> Self {
        Self { path: path.to_path_buf() }
    }

    fn draft(&self, draft: &Draft) -> PathBuf {
        self.path.join(format!("{PARTIAL}{}-{}", draft.entry, draft.attempt))
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
}

impl Storage for Folder {
    fn root(&self) -> &Path {
        &self.path
    }

    fn lock(&self) -> Result<Option<File>> {
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
        Ok(Some(file))
    }

    fn remove_left_overs(&self) -> Result<()> {
        for (path, name) in self.entries()? {
            if name.starts_with(PARTIAL) || name.starts_with(DISCARDED) {
                tracing::info!(path = %path.display(), "removing what an earlier run left behind");
                fs::remove_dir_all(&path).map_err(CheckpointError::file("remove", &path))?;
            }
        }
        Ok(())
    }

    fn steps(&self) -> Result<Vec<u64>> {
        let step = |(path, name): (PathBuf, String)| step_of(&name).filter(|_| path.is_dir());
        let mut steps: Vec<u64> = self.entries()?.into_iter().filter_map(step).collect();
        steps.sort_unstable();
        steps.dedup();
        Ok(steps)
    }

    fn write(&self, draft: &Draft, name: &str, pieces: &[&[u8]]) -> Result<()> {
        let folder = self.draft(draft);
        fs::create_dir_all(&folder).map_err(CheckpointError::file("create the folder", &folder))?;
        let path = folder.join(name);
        let failed = || CheckpointError::file("write", &path);
        let mut file = File::create(&path).map_err(failed())?;
        pieces.iter().try_for_each(|piece| file.write_all(piece)).map_err(failed())?;
        file.sync_all().map_err(failed())
    }

    fn draft_size(&self, draft: &Draft, name: &str) -> Result<u64> {
        size(&self.draft(draft).join(name))
    }

    fn keeps_attempts(&self) -> bool {
        false
    }

    fn publish(&self, draft: &Draft, manifest: &[u8]) -> Result<()> {
        self.write(draft, MANIFEST, &[manifest])?;
        let (partial, path) = (self.draft(draft), self.path.join(&draft.entry));
        sync_folder(&partial)?;
        if let Some(step) = step_of(&draft.entry).filter(|_| path.exists()) {
            self.remove(step)?;
        }
        fs::rename(&partial, &path).map_err(CheckpointError::file("rename a checkpoint to", &path))?;
        sync_folder(&self.path)
    }

    fn discard(&self, draft: &Draft) -> Result<()> {
        let path = self.draft(draft);
        match path.exists() {
            true => fs::remove_dir_all(&path).map_err(CheckpointError::file("remove", &path)),
            false => Ok(()),
        }
    }

    fn remove(&self, step: u64) -> Result<()> {
        let (path, discarded) = (self.path.join(entry(step)), self.path.join(format!("{DISCARDED}{}", entry(step))));
        if discarded.exists() {
            fs::remove_dir_all(&discarded).map_err(CheckpointError::file("remove", &discarded))?;
        }
        fs::rename(&path, &discarded).map_err(CheckpointError::file("rename for removal", &path))?;
        fs::remove_dir_all(&discarded).map_err(CheckpointError::file("remove", &discarded))
    }

    fn manifest(&self, entry: &str) -> Result<Vec<u8>> {
        let path = self.path.join(entry).join(MANIFEST);
        fs::read(&path).map_err(CheckpointError::file("read", &path))
    }

    fn size(&self, published: &Draft, name: &str) -> Result<u64> {
        size(&self.path.join(&published.entry).join(name))
    }

    fn read(&self, published: &Draft, name: &str, range: Range<u64>) -> Result<Vec<u8>> {
        let path = self.path.join(&published.entry).join(name);
        let mut bytes = vec![0; (range.end - range.start) as usize];
        let read = |mut file: File| {
            file.seek(SeekFrom::Start(range.start))?;
            file.read_exact(&mut bytes)
        };
        File::open(&path).and_then(read).map_err(CheckpointError::file("read", &path))?;
        Ok(bytes)
    }
}

fn size(path: &Path) -> Result<u64> {
    fs::metadata(path).map(|found| found.len()).map_err(CheckpointError::file("read", path))
}

/// Puts the names in a folder on the disk.
fn sync_folder(path: &Path) -> Result<()> {
    let synced = File::open(path).and_then(|folder| folder.sync_all());
    synced.map_err(CheckpointError::file("write", path))
}
