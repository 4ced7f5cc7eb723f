//! Tries after errors that may pass: a connection that broke, a server that is busy. Their number is limited.

use super::{Draft, Storage};
use crate::error::{CheckpointError, Result};
use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};

/// The time after which a write is called slow.
const SLOW: Duration = Duration::from_secs(30);

/// How often something is tried.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Retries {
    /// The most tries in all.
    pub(crate) tries: u32,
    /// The pause after the first; each further one is twice as long.
    pub(crate) pause: Duration,
}

impl Default for Retries {
    fn default() -> Self {
        Self { tries: 6, pause: Duration::from_millis(250) }
    }
}

impl Retries {
    /// Does something until it succeeds, fails for good, or was tried as often as may be.
    pub(crate) fn run<T>(self, mut work: impl FnMut() -> Result<T>) -> Result<T> {
        let mut pause = self.pause;
        for tried in 1.. {
            match work() {
                Err(error) if tried < self.tries && error.may_pass() => {
                    tracing::warn!(%error, tried, of = self.tries, "trying again in {pause:?}");
                    std::thread::sleep(pause);
                    pause *= 2;
                }
                Err(CheckpointError::File { action, path, source }) if tried > 1 => {
                    let source = std::io::Error::new(source.kind(), format!("{source} (tried {tried} times)"));
                    return Err(CheckpointError::File { action, path, source });
                }
                result => return result,
            }
        }
        work()
    }
}

/// A storage of which every call is tried again that may be done twice.
#[derive(Debug)]
pub(crate) struct Retrying {
    storage: Box<dyn Storage>,
    retries: Retries,
}

impl Retrying {
    pub(crate) fn new(storage: Box<dyn Storage>, retries: Retries) -> Self {
        Self { storage, retries }
    }

    pub(crate) fn root(&self) -> &Path {
        self.storage.root()
    }

    pub(crate) fn lock(&self) -> Result<Option<File>> {
        self.storage.lock()
    }

    pub(crate) fn remove_left_overs(&self) -> Result<()> {
        self.retries.run(|| self.storage.remove_left_overs())
    }

    pub(crate) fn steps(&self) -> Result<Vec<u64>> {
        self.retries.run(|| self.storage.steps())
    }

    /// Writes a file of a draft, and says so if that takes long.
    pub(crate) fn write(&self, draft: &Draft, name: &str, pieces: &[&[u8]]) -> Result<()> {
        let begun = Instant::now();
        let written = self.retries.run(|| self.storage.write(draft, name, pieces));
        let bytes = pieces.iter().map(|piece| piece.len()).sum();
        if let Some(text) = slowness(draft, name, bytes, begun.elapsed()) {
            tracing::warn!(process = burn_tpu::distributed::process_index().unwrap_or(0), "{text}");
        }
        written
    }

    pub(crate) fn draft_size(&self, draft: &Draft, name: &str) -> Result<u64> {
        self.retries.run(|| self.storage.draft_size(draft, name))
    }

    pub(crate) fn keeps_attempts(&self) -> bool {
        self.storage.keeps_attempts()
    }

    /// Publishes a draft. It is not tried again, since a second try would find no draft.
    pub(crate) fn publish(&self, draft: &Draft, manifest: &[u8]) -> Result<()> {
        self.storage.publish(draft, manifest)
    }

    /// Removes a draft that was not published; the space may be what was missing.
    pub(crate) fn discard(&self, draft: &Draft) {
        if let Err(error) = self.retries.run(|| self.storage.discard(draft)) {
            tracing::warn!(%error, "what was written of `{}` stays", draft.entry);
        }
    }

    pub(crate) fn remove(&self, step: u64) -> Result<()> {
        self.storage.remove(step)
    }

    pub(crate) fn manifest(&self, entry: &str) -> Result<Vec<u8>> {
        self.retries.run(|| self.storage.manifest(entry))
    }

    pub(crate) fn size(&self, published: &Draft, name: &str) -> Result<u64> {
        self.retries.run(|| self.storage.size(published, name))
    }

    pub(crate) fn read(&self, published: &Draft, name: &str, range: Range<u64>) -> Result<Vec<u8>> {
        self.retries.run(|| self.storage.read(published, name, range.clone()))
    }
}

/// Says that the writing of a file took long, if it did.
fn slowness(draft: &Draft, name: &str, bytes: usize, took: Duration) -> Option<String> {
    let (seconds, entry) = (took.as_secs_f64(), &draft.entry);
    let rate = bytes as f64 / 1e6 / seconds;
    let text =
        || format!("writing `{name}` of `{entry}` took {seconds:.0} s, {rate:.1} MB/s: the next save waits for it");
    (took > SLOW).then(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Error, ErrorKind};

    #[test]
    fn a_slow_write_is_named_with_its_rate() {
        let draft = Draft { entry: "step-00000003".to_owned(), attempt: String::new() };
        let text = |seconds| slowness(&draft, "model-2-of-4.safetensors", 100_000_000, Duration::from_secs(seconds));
        let expected =
            "writing `model-2-of-4.safetensors` of `step-00000003` took 40 s, 2.5 MB/s: the next save waits for it";
        assert_eq!((text(29), text(40).as_deref()), (None, Some(expected)));
    }

    fn fails(kinds: &[ErrorKind]) -> (Result<()>, usize) {
        let retries = Retries { tries: 3, pause: Duration::ZERO };
        let mut tried = 0;
        let result = retries.run(|| {
            tried += 1;
            let failed = |kind: &ErrorKind| Err(CheckpointError::file("read", Path::new("x"))(Error::from(*kind)));
            kinds.get(tried - 1).map_or(Ok(()), failed)
        });
        (result, tried)
    }

    #[test]
    fn what_may_pass_is_tried_again_and_not_for_ever() {
        let passes = ErrorKind::ConnectionReset;
        assert!(matches!(fails(&[passes, ErrorKind::TimedOut]), (Ok(()), 3)));
        let (error, tried) = fails(&[passes; 9]);
        assert_eq!(tried, 3);
        assert!(error.unwrap_err().to_string().contains("(tried 3 times)"));
        let (error, tried) = fails(&[ErrorKind::StorageFull; 9]);
        assert_eq!(tried, 1);
        assert!(error.unwrap_err().to_string().contains("free some space"));
    }
}
