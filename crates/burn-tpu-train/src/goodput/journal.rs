//! The file that an account outlives its process in: a line of JSON for each moment that was written.

use super::account::Entry;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The journal of a run.
pub(super) struct Journal {
    path: PathBuf,
    file: File,
    /// What earlier starts wrote.
    pub(super) earlier: Vec<Entry>,
}

impl Journal {
    /// Opens or creates a journal, to write at its end.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let named = |error| named(path, error);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(named)?;
        }
        let mut file = OpenOptions::new().create(true).append(true).open(path).map_err(named)?;
        let text = std::fs::read(path).map_err(named)?;
        let mut earlier = Vec::new();
        for (place, line) in text.split(|&byte| byte == b'\n').enumerate().filter(|(_, line)| !line.is_empty()) {
            match serde_json::from_slice(line) {
                Ok(entry) => earlier.push(entry),
                // The process was killed while it wrote it, or the disk was full.
                Err(error) => tracing::warn!("line {} of `{}` is left out: {error}", place + 1, path.display()),
            }
        }
        // After half a line, the next one begins on its own.
        if text.last().is_some_and(|&byte| byte != b'\n') {
            file.write_all(b"\n").map_err(named)?;
        }
        Ok(Self { path: path.to_owned(), file, earlier })
    }

    pub(super) fn write(&mut self, entry: &Entry) -> io::Result<()> {
        let mut line = serde_json::to_vec(entry)?;
        line.push(b'\n');
        self.file.write_all(&line).map_err(|error| named(&self.path, error))
    }
}

fn named(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("the journal `{}`: {error}", path.display()))
}
