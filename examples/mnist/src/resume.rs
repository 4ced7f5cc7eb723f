//! How a run goes on when it is started again: Burn's own checkpoints, one for each epoch.
//!
//! Burn's Learner saves between epochs alone. A run that is told to end stops after its step and goes on from its last
//! epoch.

use anyhow::{Context, Result};
use burn::record::{FullPrecisionSettings, NamedMpkFileRecorder};
use burn_tpu_train::{Notice, Preemption};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Writes numbers as they are: master weights stay f32.
pub type Recorder = NamedMpkFileRecorder<FullPrecisionSettings>;

/// The files of an epoch, as the Learner names them.
const FILES: [&str; 3] = ["model", "optim", "scheduler"];

/// A run that is saved, and that listens for notices to end.
#[derive(Clone)]
pub struct Resumable {
    folder: PathBuf,
    preemption: Arc<Preemption>,
}

impl Resumable {
    /// Saves to a folder from now on.
    pub fn new(folder: &Path) -> Result<Self> {
        Ok(Self { folder: folder.to_path_buf(), preemption: Arc::new(Preemption::watch()?) })
    }

    /// Returns the last epoch that was saved, if there is one.
    pub fn last_epoch(&self) -> Option<usize> {
        let files = std::fs::read_dir(self.folder.join("checkpoint")).ok()?.flatten();
        let names: Vec<_> = files.filter_map(|file| file.file_name().into_string().ok()).collect();
        let epoch = |name: &String| name.strip_prefix("model-")?.strip_suffix(".mpk")?.parse().ok();
        let is_whole = |epoch: &usize| FILES.iter().all(|file| names.contains(&format!("{file}-{epoch}.mpk")));
        names.iter().filter_map(epoch).filter(is_whole).max()
    }

    /// Returns the notice if the run has to end after this many steps.
    pub fn told_to_end(&self, steps: usize) -> Result<Option<&Notice>> {
        self.preemption.stop_after(steps as u64).context("the processes cannot stop together")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_epoch_is_one_with_all_files() {
        let folder = tempfile::tempdir().unwrap();
        let run = Resumable::new(folder.path()).unwrap();
        assert_eq!(run.last_epoch(), None);
        let saved = folder.path().join("checkpoint");
        std::fs::create_dir(&saved).unwrap();
        for name in
            ["model-2", "optim-2", "scheduler-2", "model-10", "optim-10", "scheduler-10", "model-11", "optim-11"]
        {
            std::fs::write(saved.join(name).with_extension("mpk"), "").unwrap();
        }
        assert_eq!(run.last_epoch(), Some(10));
    }
}
