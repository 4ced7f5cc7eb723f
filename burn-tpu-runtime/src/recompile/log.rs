//! The recompiles of a device: the latest are kept, each is a warning, and a dim with many sizes is one more.

use super::{Recompile, RecompileCause};
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};

/// The number of recompiles that are kept.
const MOST_KEPT: usize = 256;

/// The number of sizes of one dim that is no longer chance.
const MANY_SIZES: usize = 5;

/// What [`Metrics::recompiles`](crate::Metrics::recompiles) is a copy of.
#[derive(Debug, Default)]
pub(crate) struct RecompileLog {
    latest: Mutex<VecDeque<Recompile>>,
    /// The number of sizes that a dim had, by the op that takes it.
    sizes: Mutex<BTreeMap<(&'static str, usize), usize>>,
}

impl RecompileLog {
    /// Keeps and reports a recompile.
    pub(crate) fn add(&self, recompile: Recompile) {
        tracing::warn!(seconds = recompile.seconds, "a program was compiled again: {}", recompile.reason());
        self.another_size(&recompile);
        let mut latest = self.latest.lock();
        if latest.len() == MOST_KEPT {
            latest.pop_front();
        }
        latest.push_back(recompile);
    }

    /// Oldest first.
    pub(crate) fn latest(&self) -> Vec<Recompile> {
        self.latest.lock().iter().cloned().collect()
    }

    /// Warns once of a dim with many sizes.
    fn another_size(&self, recompile: &Recompile) {
        let Recompile { cause: RecompileCause::Shape, op, dim: Some(dim), old, new, .. } = recompile else { return };
        let mut sizes = self.sizes.lock();
        let count = sizes.entry((op, *dim)).or_insert(1);
        *count += 1;
        if *count == MANY_SIZES {
            tracing::warn!(
                "dim {dim} of what {op} takes had {count} sizes, each a program of its own ({old}, {new}, …): \
                 pad it to a few sizes with burn_tpu::Buckets"
            );
        }
    }
}
