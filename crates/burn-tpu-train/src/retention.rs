//! Which checkpoints stay.

/// How many checkpoints a run keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Retention {
    /// The newest that stay.
    pub(crate) last: usize,
    /// Those stay whose step is a multiple of this.
    pub(crate) every: Option<u64>,
}

impl Retention {
    /// Returns the steps to remove after a checkpoint of the step `saved`, of the steps that there are, ascending. Those of
    /// later steps are of another run, or damaged, and are not touched.
    pub(crate) fn outdated(self, steps: &[u64], saved: u64) -> Vec<u64> {
        let known: Vec<u64> = steps.iter().copied().filter(|&step| step <= saved).collect();
        let old = &known[..known.len().saturating_sub(self.last)];
        let is_kept = |step: u64| self.every.is_some_and(|every| step.is_multiple_of(every));
        old.iter().copied().filter(|&step| !is_kept(step)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_and_every_mth_stay() {
        let steps = [10, 20, 25, 30, 40, 50];
        let outdated = |last, every, saved| Retention { last, every }.outdated(&steps, saved);
        assert_eq!(outdated(2, None, 50), [10, 20, 25, 30]);
        assert_eq!(outdated(2, Some(20), 50), [10, 25, 30]);
        assert!(outdated(9, None, 50).is_empty());
        assert_eq!(outdated(1, None, 30), [10, 20, 25], "later ones are not touched");
    }
}
