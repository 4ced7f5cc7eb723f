//! The level of the rewrites that a test sets for its thread.

use burn_tpu_fusion::Optimization;
use std::cell::Cell;

thread_local! {
    /// The level of the rewrites of the programs that this thread cuts, if it is not that of the options.
    static LEVEL: Cell<Option<Optimization>> = const { Cell::new(None) };
}

pub(super) fn level() -> Option<Optimization> {
    LEVEL.get()
}

/// Returns what `work` returns. New programs that it cuts on this thread are rewritten at `level`.
pub fn with_level<T>(level: Optimization, work: impl FnOnce() -> T) -> T {
    let before = LEVEL.replace(Some(level));
    let result = work();
    LEVEL.set(before);
    result
}
