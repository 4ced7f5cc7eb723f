//! A folder whose writes wait until they may go on, for tests of what goes on meanwhile.

use super::folder::Folder;
use super::{Draft, Retries, Retrying, Storage};
use crate::error::Result;
use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};

/// How many writes were begun, and how many may be.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    state: Mutex<(usize, usize)>,
    changed: Condvar,
}

impl Gate {
    /// Lets so many further writes go on.
    pub(crate) fn let_through(&self, writes: usize) {
        self.state.lock().unwrap().1 += writes;
        self.changed.notify_all();
    }

    /// Waits until so many writes were begun in all.
    pub(crate) fn wait_for(&self, writes: usize) {
        let state = self.state.lock().unwrap();
        drop(self.changed.wait_while(state, |(begun, _)| *begun < writes).unwrap());
    }

    /// Returns how many writes were begun.
    pub(crate) fn begun(&self) -> usize {
        self.state.lock().unwrap().0
    }

    fn pass(&self) {
        let mut state = self.state.lock().unwrap();
        state.0 += 1;
        let own = state.0;
        self.changed.notify_all();
        drop(self.changed.wait_while(state, |(_, through)| *through < own).unwrap());
    }
}

#[derive(Debug)]
struct Gated {
    folder: Folder,
    gate: Arc<Gate>,
}

/// Returns a folder, and the gate of its writes.
pub(crate) fn gated(path: &Path) -> (Retrying, Arc<Gate>) {
    let (folder, gate) = (Folder::of(path), Arc::<Gate>::default());
    let gated = Gated { folder, gate: Arc::clone(&gate) };
    (Retrying::new(Box::new(gated), Retries::default()), gate)
}

impl Storage for Gated {
    fn write(&self, draft: &Draft, name: &str, pieces: &[&[u8]]) -> Result<()> {
        self.gate.pass();
        self.folder.write(draft, name, pieces)
    }

    fn root(&self) -> &Path {
        self.folder.root()
    }

    fn lock(&self) -> Result<Option<File>> {
        self.folder.lock()
    }

    fn remove_left_overs(&self) -> Result<()> {
        self.folder.remove_left_overs()
    }

    fn steps(&self) -> Result<Vec<u64>> {
        self.folder.steps()
    }

    fn draft_size(&self, draft: &Draft, name: &str) -> Result<u64> {
        self.folder.draft_size(draft, name)
    }

    fn keeps_attempts(&self) -> bool {
        self.folder.keeps_attempts()
    }

    fn publish(&self, draft: &Draft, manifest: &[u8]) -> Result<()> {
        self.folder.publish(draft, manifest)
    }

    fn discard(&self, draft: &Draft) -> Result<()> {
        self.folder.discard(draft)
    }

    fn remove(&self, step: u64) -> Result<()> {
        self.folder.remove(step)
    }

    fn manifest(&self, entry: &str) -> Result<Vec<u8>> {
        self.folder.manifest(entry)
    }

    fn size(&self, published: &Draft, name: &str) -> Result<u64> {
        self.folder.size(published, name)
    }

    fn read(&self, published: &Draft, name: &str, range: Range<u64>) -> Result<Vec<u8>> {
        self.folder.read(published, name, range)
    }
}
