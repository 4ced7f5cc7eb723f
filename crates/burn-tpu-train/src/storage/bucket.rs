//! Checkpoints in a bucket of an object store, by the crate `object_store`.
//!
//! Objects cannot be renamed together, so the files of a draft stay where they are written, `step-…/attempt/name`, and
//! `step-…/manifest.json` names the attempt. A checkpoint is there if its manifest is, which is put last and at once,
//! and removed first. Files that no manifest names are left-overs.
//!
//! The crate is asynchronous. Each call runs on a thread of its own, so that a program may use a runtime of its own.

use super::{Draft, MANIFEST, Retries, Storage, entry, step_of};
use crate::error::{CheckpointError, Result};
use object_store::path::Path as ObjectPath;
use object_store::{ObjectStore, ObjectStoreExt, PutPayload, WriteMultipart};
use serde::Deserialize;
use std::fs::File;
use std::future::Future;
use std::io::{Error, ErrorKind};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

/// The tries of a whole file or range. A request is tried again by the crate, ten times within three minutes.
pub(super) const RETRIES: Retries = Retries { tries: 3, pause: Duration::from_secs(1) };

/// A file of more bytes is put in parts of as many.
const PART_BYTES: usize = 16 << 20;

/// The parts that are put at once, and the most that a file has: stores allow 10,000.
const PARTS_AT_ONCE: usize = 4;
const MOST_PARTS: usize = 9_000;

/// A place in a bucket.
#[derive(Debug)]
pub(super) struct Bucket {
    store: Arc<dyn ObjectStore>,
    /// The URL.
    root: PathBuf,
    prefix: ObjectPath,
    runtime: Runtime,
}

/// What is below a prefix.
struct Listed {
    prefixes: Vec<ObjectPath>,
    objects: Vec<ObjectPath>,
}

impl Bucket {
    /// Opens `s3://bucket/prefix` or `gs://bucket/prefix`, with the credentials that the environment has.
    pub(super) fn open(url: &str) -> Result<Self> {
        let (scheme, place) = url.split_once("://").unwrap_or_default();
        let store: Option<Arc<dyn ObjectStore>> = match scheme {
            #[cfg(feature = "s3")]
            "s3" => {
                let store = object_store::aws::AmazonS3Builder::from_env().with_url(url).build();
                Some(Arc::new(store.map_err(|error| failed("open", Path::new(url), error))?))
            }
            #[cfg(feature = "gs")]
            "gs" => {
                let store = object_store::gcp::GoogleCloudStorageBuilder::from_env().with_url(url).build();
                Some(Arc::new(store.map_err(|error| failed("open", Path::new(url), error))?))
            }
            _ => None,
        };
        let store = store.ok_or_else(|| super::no_feature(url))?;
        let (_, prefix) = place.split_once('/').unwrap_or_default();
        Self::of(store, url, prefix)
    }

    /// A place in a store.
    pub(super) fn of(store: Arc<dyn ObjectStore>, url: &str, prefix: &str) -> Result<Self> {
        let root = PathBuf::from(url);
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(CheckpointError::file("start the runtime for", &root))?;
        Ok(Self { store, root, prefix: ObjectPath::from(prefix), runtime })
    }

    /// Runs a request to its end. `action` and the object's path are those of its error.
    fn run<T: Send>(
        &self,
        action: &'static str,
        path: &ObjectPath,
        request: impl Future<Output = object_store::Result<T>> + Send,
    ) -> Result<T> {
        let done = std::thread::scope(|threads| threads.spawn(|| self.runtime.block_on(request)).join());
        let done = done.map_err(|_| CheckpointError::Bug(format!("the object store panicked: {action} {path}")))?;
        done.map_err(|error| failed(action, &self.named(path), error))
    }

    /// Names an object, for errors.
    fn named(&self, path: &ObjectPath) -> PathBuf {
        let rest = path.as_ref().strip_prefix(self.prefix.as_ref()).unwrap_or(path.as_ref());
        self.root.join(rest.trim_start_matches('/'))
    }

    fn entry_path(&self, entry: &str) -> ObjectPath {
        self.prefix.clone().join(entry)
    }

    fn manifest_path(&self, entry: &str) -> ObjectPath {
        self.entry_path(entry).join(MANIFEST)
    }

    fn file_path(&self, draft: &Draft, name: &str) -> ObjectPath {
        self.entry_path(&draft.entry).join(draft.attempt.as_str()).join(name)
    }

    fn list(&self, prefix: &ObjectPath) -> Result<Listed> {
        let listed = self.run("list", prefix, self.store.list_with_delimiter(Some(prefix)))?;
        let objects = listed.objects.into_iter().map(|object| object.location).collect();
        Ok(Listed { prefixes: listed.common_prefixes, objects })
    }

    /// Returns the steps that have objects, with a manifest or without.
    fn begun(&self) -> Result<Vec<u64>> {
        let step = |prefix: &ObjectPath| step_of(prefix.filename()?);
        Ok(self.list(&self.prefix)?.prefixes.iter().filter_map(step).collect())
    }

    /// Returns the attempt that an entry's manifest names; `None` if it has no manifest, or one that cannot be read.
    fn published(&self, entry: &str) -> Result<Option<String>> {
        /// What is needed of the manifest here.
        #[derive(Deserialize)]
        struct Attempt {
            attempt: String,
        }
        match self.manifest(entry) {
            Ok(bytes) => Ok(serde_json::from_slice::<Attempt>(&bytes).ok().map(|found| found.attempt)),
            Err(CheckpointError::File { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Removes the files of an entry's attempts but for one.
    fn remove_attempts(&self, entry: &str, but: Option<&str>) -> Result<()> {
        for attempt in self.list(&self.entry_path(entry))?.prefixes {
            if but.is_some_and(|but| attempt.filename() == Some(but)) {
                continue;
            }
            for object in self.list(&attempt)?.objects {
                self.delete(&object)?;
            }
        }
        Ok(())
    }

    /// Removes an object, which need not be there.
    fn delete(&self, path: &ObjectPath) -> Result<()> {
        match self.run("remove", path, self.store.delete(path)) {
            Err(CheckpointError::File { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(()),
            deleted => deleted,
        }
    }

    fn size_of(&self, path: &ObjectPath) -> Result<u64> {
        self.run("read", path, self.store.head(path)).map(|found| found.size)
    }
}

impl Storage for Bucket {
    fn root(&self) -> &Path {
        &self.root
    }

    fn lock(&self) -> Result<Option<File>> {
        Ok(None)
    }

    fn remove_left_overs(&self) -> Result<()> {
        for step in self.begun()? {
            let published = self.published(&entry(step))?;
            self.remove_attempts(&entry(step), published.as_deref())?;
        }
        Ok(())
    }

    fn steps(&self) -> Result<Vec<u64>> {
        let mut steps = Vec::new();
        for step in self.begun()? {
            match self.size_of(&self.manifest_path(&entry(step))) {
                Ok(_) => steps.push(step),
                Err(CheckpointError::File { source, .. }) if source.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        steps.sort_unstable();
        Ok(steps)
    }

    fn write(&self, draft: &Draft, name: &str, pieces: &[&[u8]]) -> Result<()> {
        let (path, bytes) = (self.file_path(draft, name), pieces.iter().map(|piece| piece.len()).sum::<usize>());
        if bytes <= PART_BYTES {
            let payload = PutPayload::from(pieces.concat());
            return self.run("write", &path, self.store.put(&path, payload)).map(drop);
        }
        self.run("write", &path, async {
            let part = PART_BYTES.max(bytes.div_ceil(MOST_PARTS));
            let mut writer = WriteMultipart::new_with_chunk_size(self.store.put_multipart(&path).await?, part);
            for chunk in pieces.iter().flat_map(|piece| piece.chunks(part)) {
                writer.wait_for_capacity(PARTS_AT_ONCE).await?;
                writer.write(chunk);
            }
            writer.finish().await
        })?;
        Ok(())
    }

    fn draft_size(&self, draft: &Draft, name: &str) -> Result<u64> {
        self.size_of(&self.file_path(draft, name))
    }

    fn keeps_attempts(&self) -> bool {
        true
    }

    fn publish(&self, draft: &Draft, manifest: &[u8]) -> Result<()> {
        let path = self.manifest_path(&draft.entry);
        let put = || self.run("write", &path, self.store.put(&path, PutPayload::from(manifest.to_vec())));
        RETRIES.run(put)?;
        self.remove_attempts(&draft.entry, Some(&draft.attempt))
    }

    fn discard(&self, draft: &Draft) -> Result<()> {
        let attempt = self.entry_path(&draft.entry).join(draft.attempt.as_str());
        self.list(&attempt)?.objects.iter().try_for_each(|object| self.delete(object))
    }

    fn remove(&self, step: u64) -> Result<()> {
        self.delete(&self.manifest_path(&entry(step)))?;
        self.remove_attempts(&entry(step), None)
    }

    fn manifest(&self, entry: &str) -> Result<Vec<u8>> {
        let path = self.manifest_path(entry);
        let bytes = self.run("read", &path, async { self.store.get(&path).await?.bytes().await })?;
        Ok(bytes.to_vec())
    }

    fn size(&self, published: &Draft, name: &str) -> Result<u64> {
        self.draft_size(published, name)
    }

    fn read(&self, published: &Draft, name: &str, range: Range<u64>) -> Result<Vec<u8>> {
        let path = self.file_path(published, name);
        if range.is_empty() {
            return Ok(Vec::new());
        }
        let bytes = self.run("read", &path, self.store.get_range(&path, range.clone()))?;
        let expected = range.end - range.start;
        if bytes.len() as u64 == expected {
            return Ok(bytes.to_vec());
        }
        let text = format!("{} bytes came instead of {expected}", bytes.len());
        Err(CheckpointError::file("read", &self.named(&path))(Error::new(ErrorKind::ConnectionAborted, text)))
    }
}

/// Returns an error of a store as one of a file.
fn failed(action: &'static str, path: &Path, error: object_store::Error) -> CheckpointError {
    use object_store::Error as Store;
    let kind = match &error {
        Store::NotFound { .. } => ErrorKind::NotFound,
        Store::PermissionDenied { .. } | Store::Unauthenticated { .. } => ErrorKind::PermissionDenied,
        // A status such as 503, a connection or a body that broke.
        Store::Generic { .. } => ErrorKind::ConnectionAborted,
        _ => ErrorKind::Other,
    };
    CheckpointError::file(action, path)(Error::new(kind, error))
}

#[cfg(test)]
mod tests;
