//! A folder of files, one per key, which several processes share.
//!
//! - A file appears completely or not at all: it is written under a temporary name and renamed. It is not flushed to
//!   the disk: the checksum of the content detects a file that a crash left incomplete.
//! - Readers take no lock: a file that is evicted during a read remains readable. Writers hold the folder's lock while
//!   they make room and rename.
//! - The time of the last read is the time of the last use. The least recently used files are evicted first.
//! - Machine code runs with the rights of this user, so no other user may have been able to write it: the folder and
//!   every file must belong to this user (or root) and be writable by nobody else.
//!
//! May not know: what the bytes are, except the head that a [`Key`] defines.

use super::key::{Key, has_current_format};
use std::fs::{self, File, Metadata, TryLockError};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

const SUFFIX: &str = "program";
const UNFINISHED: &str = ".unfinished-";
const LOCK: &str = ".lock";

/// The age at which an unfinished file is removed, because its process must have died.
const ABANDONED: Duration = Duration::from_secs(3600);

/// The time that a writer waits for the folder's lock. Others hold the lock for the duration of a rename.
const LOCK_WAIT: Duration = Duration::from_secs(2);

/// Why a folder or a file in it is not used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreError {
    /// Another user could have written it.
    #[error("{path} is not trusted: {reason}\n  fix: chown it to yourself and chmod it to 700, or name another folder")]
    Untrusted { path: PathBuf, reason: String },
    /// Another version of burn-tpu or another program wrote it.
    #[error("{path} was not written by this version")]
    Foreign { path: PathBuf },
    /// Its content does not match its name.
    #[error("{path} is damaged: {reason}")]
    Damaged { path: PathBuf, reason: String },
    /// Another process did not release the lock in time.
    #[error("{path} is locked by another process")]
    Locked { path: PathBuf },
    /// The system's error: no permission, a full disk.
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: std::io::Error },
}

impl StoreError {
    /// Returns whether the error is in the content of the file, and not in the access to it.
    pub(crate) fn is_of_the_content(&self) -> bool {
        match self {
            StoreError::Untrusted { .. } | StoreError::Foreign { .. } | StoreError::Damaged { .. } => true,
            StoreError::Locked { .. } | StoreError::Io { .. } => false,
        }
    }
}

pub(crate) type Result<T> = std::result::Result<T, StoreError>;

/// The folder and the maximum number of bytes in it.
#[derive(Debug)]
pub(crate) struct Store {
    folder: PathBuf,
    budget_bytes: u64,
    lock_wait: Duration,
}

impl Store {
    /// Opens the folder, and creates it if it is missing.
    pub(crate) fn open(folder: &Path, budget_bytes: u64) -> Result<Self> {
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(folder).map_err(io(folder))?;
        trust(folder, &fs::metadata(folder).map_err(io(folder))?)?;
        Ok(Self { folder: folder.to_path_buf(), budget_bytes, lock_wait: LOCK_WAIT })
    }

    /// Returns the content of a key's file, if there is one. Only the head has been checked.
    pub(crate) fn get(&self, key: &Key) -> Result<Option<Vec<u8>>> {
        let path = self.path(key);
        let mut file = match File::open(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(io(&path))?,
        };
        // The check reads the metadata of the open file, so that nobody can replace the file after the check.
        trust(&path, &file.metadata().map_err(io(&path))?)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(io(&path))?;
        if !has_current_format(&bytes) {
            return Err(StoreError::Foreign { path });
        }
        let head = key.head();
        if !bytes.starts_with(head.as_bytes()) {
            return Err(StoreError::Damaged { path, reason: "its head does not match its key".into() });
        }
        bytes.drain(..head.len());
        // If the folder is read-only, files are evicted in the order in which they were written.
        file.set_modified(SystemTime::now()).ok();
        Ok(Some(bytes))
    }

    /// Writes a key's file and evicts the least recently used files until all fit. Returns the number of evicted files,
    /// or `None` if the content alone exceeds the limit of the folder.
    pub(crate) fn put(&self, key: &Key, content: &[u8]) -> Result<Option<usize>> {
        let head = key.head();
        let size = (head.len() + content.len()) as u64;
        if size > self.budget_bytes {
            return Ok(None);
        }
        let path = self.path(key);
        let failed = io(&path);
        let mut unfinished = tempfile::Builder::new().prefix(UNFINISHED).tempfile_in(&self.folder).map_err(&failed)?;
        unfinished.write_all(head.as_bytes()).and_then(|()| unfinished.write_all(content)).map_err(&failed)?;
        let _lock = self.lock()?;
        let evicted = self.make_room(size, &path)?;
        unfinished.persist(&path).map_err(|error| failed(error.error))?;
        Ok(Some(evicted))
    }

    /// Removes a key's file, whose content cannot be used. A failure to remove it is ignored: the file will be
    /// replaced, or rejected again.
    pub(crate) fn remove(&self, key: &Key) {
        fs::remove_file(self.path(key)).ok();
    }

    /// Returns the heads of other files of the same program, which was compiled for other environments.
    pub(crate) fn relatives(&self, key: &Key) -> Vec<String> {
        let family = key.family();
        let files = self.files(|name| name.starts_with(&family) && name.ends_with(SUFFIX)).unwrap_or_default();
        files.iter().filter_map(|file| read_head(&file.path)).collect()
    }

    fn path(&self, key: &Key) -> PathBuf {
        self.folder.join(key.file_name())
    }

    /// Returns the folder's lock, which is held until it is dropped. It is a lock of the operating system, which
    /// releases it when the process dies.
    fn lock(&self) -> Result<File> {
        let path = self.folder.join(LOCK);
        let file = File::options().create(true).write(true).truncate(false).open(&path).map_err(io(&path))?;
        let end = Instant::now() + self.lock_wait;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::Error(source)) => return Err(StoreError::Io { path, source }),
                Err(TryLockError::WouldBlock) if Instant::now() >= end => return Err(StoreError::Locked { path }),
                Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    /// Removes the files that crashed processes left, then the least recently used files, until `size` more bytes fit
    /// in addition to all files except `replaced`.
    fn make_room(&self, size: u64, replaced: &Path) -> Result<usize> {
        for file in self.files(|name| name.starts_with(UNFINISHED))? {
            if file.used.elapsed().is_ok_and(|age| age > ABANDONED) {
                fs::remove_file(&file.path).ok();
            }
        }
        let mut files = self.files(|name| name.ends_with(SUFFIX))?;
        files.retain(|file| file.path != replaced);
        files.sort_by(|a, b| (a.used, &a.path).cmp(&(b.used, &b.path)));
        let mut bytes: u64 = files.iter().map(|file| file.bytes).sum();
        let mut evicted = 0;
        for file in &files {
            if bytes + size <= self.budget_bytes {
                break;
            }
            fs::remove_file(&file.path).map_err(io(&file.path))?;
            bytes -= file.bytes;
            evicted += 1;
        }
        Ok(evicted)
    }

    fn files(&self, wanted: impl Fn(&str) -> bool) -> Result<Vec<StoredFile>> {
        let entries = fs::read_dir(&self.folder).map_err(io(&self.folder))?.flatten();
        let wanted = entries.filter(|entry| entry.file_name().to_str().is_some_and(&wanted));
        // Another process may have evicted the file in the meantime.
        let known = wanted.filter_map(|entry| entry.metadata().ok().map(|metadata| (entry, metadata)));
        let known = known.filter(|(_, metadata)| metadata.is_file()).map(|(entry, metadata)| StoredFile {
            path: entry.path(),
            bytes: metadata.len(),
            used: metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH),
        });
        Ok(known.collect())
    }
}

struct StoredFile {
    path: PathBuf,
    bytes: u64,
    used: SystemTime,
}

/// Returns a file's lines before the first empty line.
fn read_head(path: &Path) -> Option<String> {
    // No head is longer than this. A damaged file may have no empty line.
    let lines = BufReader::new(File::open(path).ok()?.take(4096)).lines();
    let head = lines.map_while(std::result::Result::ok).take_while(|line| !line.is_empty());
    Some(head.map(|line| line + "\n").collect())
}

/// Checks that only this user (or root) can have written the file or folder of `metadata`.
#[cfg(unix)]
fn trust(path: &Path, metadata: &Metadata) -> Result<()> {
    use std::os::unix::fs::MetadataExt;
    let (owner, us) = (metadata.uid(), rustix::process::geteuid().as_raw());
    let reason = if owner != us && owner != 0 {
        format!("it belongs to user {owner}, but this process runs as user {us}")
    } else if metadata.mode() & 0o022 != 0 {
        format!("other users can write it (mode {:o})", metadata.mode() & 0o777)
    } else {
        return Ok(());
    };
    Err(StoreError::Untrusted { path: path.to_path_buf(), reason })
}

/// On other systems a user's cache folder is private by default.
#[cfg(not(unix))]
fn trust(_path: &Path, _metadata: &Metadata) -> Result<()> {
    Ok(())
}

fn io(path: &Path) -> impl Fn(std::io::Error) -> StoreError + use<> {
    let path = path.to_path_buf();
    move |source| StoreError::Io { path: path.clone(), source }
}

#[cfg(test)]
mod tests;
