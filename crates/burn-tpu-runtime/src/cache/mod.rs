//! The disk cache: compiled programs that later processes load instead of compiling again.
//!
//! It has three parts: the key (what a program depends on), the store (files that processes share), and the policy in
//! this file (which programs are worth storing). An error of the cache never fails the user's program: it is counted
//! and reported as a warning, and the program is compiled.
//!
//! May not know: graphs, and how a plugin serializes and loads programs. Callers pass closures for that.

mod key;
mod store;

pub(crate) use key::{CompileEnvironment, Key};

use crate::metrics::Counters;
use burn_tpu_pjrt::PjrtError;
use sha2::{Digest, Sha256};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::Store;

/// The bytes of the checksum that a note begins with.
const CHECKSUM: usize = 32;

/// A note whose checksum is not that of its text.
#[derive(Debug, thiserror::Error)]
#[error("the note is damaged: its checksum differs")]
struct NoteError;

/// The disk cache of one device.
pub(crate) struct DiskCache {
    store: Store,
    environment: CompileEnvironment,
    /// A program with a shorter compile time is not stored.
    least_compile: Duration,
    counters: Arc<Counters>,
}

impl DiskCache {
    /// Opens the cache in `folder`. Returns `None`, with a warning, if the folder cannot be used.
    pub(crate) fn open(
        folder: &Path,
        budget_bytes: u64,
        least_compile: Duration,
        environment: CompileEnvironment,
        counters: &Arc<Counters>,
    ) -> Option<Self> {
        match Store::open(folder, budget_bytes) {
            Ok(store) => Some(Self { store, environment, least_compile, counters: Arc::clone(counters) }),
            Err(error) => {
                report(counters, "compiled programs are not stored on disk", &error);
                None
            }
        }
    }

    /// Returns the key of a program from the hashes of its graph and of its text.
    pub(crate) fn key(&self, program: [u8; 32], text: [u8; 32]) -> Key {
        self.environment.key(program, text)
    }

    /// Returns the key of a note on a program.
    pub(crate) fn note_key(&self, program: [u8; 32], text: [u8; 32]) -> Key {
        self.key(program, text).note()
    }

    /// Returns what was noted by a key. A note that cannot be read is reported as a warning, and one that is damaged is
    /// removed.
    pub(crate) fn note(&self, key: &Key) -> Option<Vec<u8>> {
        let content =
            self.store.get(key).map_err(|error| self.discard(key, &error, error.is_of_the_content())).ok()??;
        let (checksum, note) = content.split_at_checked(CHECKSUM)?;
        let is_whole = checksum == Sha256::digest(note).as_slice();
        if !is_whole {
            self.discard(key, &NoteError, true);
        }
        is_whole.then(|| note.to_vec())
    }

    /// Notes something by a key. A failure is reported as a warning.
    pub(crate) fn put_note(&self, key: &Key, note: &[u8]) {
        let content = [Sha256::digest(note).as_slice(), note].concat();
        if let Err(error) = self.store.put(key, &content) {
            report(&self.counters, "what was found out about a program was not noted on disk", &error);
        }
    }

    /// Loads a program that an earlier process stored. `load` must check the content before it passes it to a plugin.
    pub(crate) fn load<T>(&self, key: &Key, load: impl FnOnce(&[u8]) -> Result<T, PjrtError>) -> Option<T> {
        let start = Instant::now();
        let loaded = self.try_load(key, load);
        match &loaded {
            Some(_) => Counters::add(&self.counters.disk_hits, 1),
            None => Counters::add(&self.counters.disk_misses, 1),
        }
        Counters::add_time(&self.counters.disk_ns, start.elapsed());
        loaded
    }

    fn try_load<T>(&self, key: &Key, load: impl FnOnce(&[u8]) -> Result<T, PjrtError>) -> Option<T> {
        let content = match self.store.get(key) {
            Ok(Some(content)) => content,
            Ok(None) => {
                self.explain_miss(key);
                return None;
            }
            Err(error) => {
                self.discard(key, &error, error.is_of_the_content());
                return None;
            }
        };
        load(&content).map_err(|error| self.discard(key, &error, true)).ok()
    }

    /// Stores a program if its compile time `compiled_in` is long enough.
    pub(crate) fn insert(
        &self,
        key: &Key,
        compiled_in: Duration,
        serialize: impl FnOnce() -> Result<Vec<u8>, PjrtError>,
    ) {
        if compiled_in < self.least_compile {
            return;
        }
        let start = Instant::now();
        let doing = "a compiled program was not stored on disk";
        match serialize().map(|content| self.store.put(key, &content)) {
            Ok(Ok(Some(evicted))) => {
                Counters::add(&self.counters.disk_writes, 1);
                Counters::add(&self.counters.disk_evictions, evicted);
            }
            Ok(Ok(None)) => {
                tracing::debug!(file = key.file_name(), "a program is larger than the limit of the disk cache")
            }
            Ok(Err(error)) => report(&self.counters, doing, &error),
            Err(error) => report(&self.counters, doing, &error),
        }
        Counters::add_time(&self.counters.disk_ns, start.elapsed());
    }

    /// Removes a file whose content can never load. A file that the system could not read is kept.
    fn discard(&self, key: &Key, error: &(dyn std::error::Error + 'static), useless: bool) {
        report(&self.counters, "a program on disk cannot be used and is compiled again", error);
        if useless {
            self.store.remove(key);
        }
    }

    /// Logs the parts of the key that differ, if the same program is stored for another environment.
    fn explain_miss(&self, key: &Key) {
        if !tracing::enabled!(tracing::Level::DEBUG) {
            return;
        }
        tracing::debug!(file = key.file_name(), parts = key.head(), "not on disk");
        for head in self.store.relatives(key) {
            tracing::debug!(differing = ?key.differing(&head), "the same program is on disk for another environment");
        }
    }
}

fn report(counters: &Counters, what: &str, error: &(dyn std::error::Error + 'static)) {
    Counters::add(&counters.disk_errors, 1);
    tracing::warn!(error, "{what}");
}
