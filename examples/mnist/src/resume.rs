//! How a run goes on when it is started again: Burn's own checkpoints, one for each epoch.

use burn::record::{FullPrecisionSettings, NamedMpkFileRecorder};
use std::path::Path;

/// Writes numbers as they are: master weights stay f32.
pub type Recorder = NamedMpkFileRecorder<FullPrecisionSettings>;

/// The files of an epoch, as the Learner names them.
const FILES: [&str; 3] = ["model", "optim", "scheduler"];

/// Returns the last epoch that was saved to a folder, if there is one.
pub fn last_epoch(folder: &Path) -> Option<usize> {
    let files = std::fs::read_dir(folder.join("checkpoint")).ok()?.flatten();
    let names: Vec<_> = files.filter_map(|file| file.file_name().into_string().ok()).collect();
    let epoch = |name: &String| name.strip_prefix("model-")?.strip_suffix(".mpk")?.parse().ok();
    let is_whole = |epoch: &usize| FILES.iter().all(|file| names.contains(&format!("{file}-{epoch}.mpk")));
    names.iter().filter_map(epoch).filter(is_whole).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_epoch_is_one_with_all_files() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(last_epoch(folder.path()), None);
        let saved = folder.path().join("checkpoint");
        std::fs::create_dir(&saved).unwrap();
        for name in
            ["model-2", "optim-2", "scheduler-2", "model-10", "optim-10", "scheduler-10", "model-11", "optim-11"]
        {
            std::fs::write(saved.join(name).with_extension("mpk"), "").unwrap();
        }
        assert_eq!(last_epoch(folder.path()), Some(10));
    }
}
