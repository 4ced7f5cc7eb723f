//! Which steps of a program are profiled: `BURN_TPU_PROFILE=DIR,steps=10..15`.

use std::ops::Range;
use std::path::PathBuf;

/// The steps that are profiled if none are named: the first ones compile.
const DEFAULT_STEPS: Range<u64> = 10..15;

/// Which steps to profile, and where to write the profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileSteps {
    pub(crate) folder: PathBuf,
    pub(crate) steps: Range<u64>,
}

impl ProfileSteps {
    /// Profiles these steps of a device, and writes below `folder`. A step ends with a mark step; the first is number 0. The
    /// profile is written when the last one has ended.
    ///
    /// # Panics
    /// If the range is empty.
    pub fn new(folder: impl Into<PathBuf>, steps: Range<u64>) -> Self {
        assert!(!steps.is_empty(), "ProfileSteps: the range {steps:?} has no step");
        Self { folder: folder.into(), steps }
    }

    /// Reads `DIR` or `DIR,steps=10..15`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let rule = "is not DIR or DIR,steps=FIRST..END with FIRST smaller than END, as traces,steps=10..15";
        let (folder, steps) = match text.rsplit_once(",steps=") {
            None => (text, Some(DEFAULT_STEPS)),
            Some((folder, steps)) => (folder, range(steps)),
        };
        let steps = steps.filter(|steps| !steps.is_empty() && !folder.is_empty()).ok_or(rule)?;
        Ok(Self { folder: folder.into(), steps })
    }
}

fn range(text: &str) -> Option<Range<u64>> {
    let (first, end) = text.split_once("..")?;
    Some(first.parse().ok()?..end.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_read_after_a_folder() {
        let parsed = |text| ProfileSteps::parse(text);
        assert_eq!(parsed("/tmp/a,b,steps=3..6"), Ok(ProfileSteps::new("/tmp/a,b", 3..6)));
        assert_eq!(parsed("traces"), Ok(ProfileSteps::new("traces", DEFAULT_STEPS)));
        for wrong in ["", ",steps=1..2", "d,steps=2..2", "d,steps=5..2", "d,steps=5", "d,steps=a..b", "d,steps="] {
            assert!(parsed(wrong).unwrap_err().contains("FIRST..END"), "{wrong}");
        }
    }
}
