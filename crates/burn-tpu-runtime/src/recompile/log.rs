//! The recompiles of a device: the latest are kept, and the ones that a user can avoid are warnings.
//!
//! Programs that are like one another are a *loop*. All rules are stated in its compiles and runs, never in time:
//!
//! 1. A loop begins with compiles in a row whose programs run once at most: the second step finds the
//!    optimizer's state, an offset becomes a scalar. The [`EVERY_STEP`]th in a row says once that every step compiles.
//! 2. A loop is warm when a program ran again since the last compile. Each compile of a warm loop is a warning, with the
//!    number of compiles so far; after [`MOST_WARNINGS`] of them only those whose number is a power of two.
//! 3. A dim that grows in recordings that are otherwise equal is a warning at its [`GROWING_SIZES`]rd size, unless each size
//!    is at least twice the one before, and a dim with other sizes at its [`MANY_SIZES`]th, once for each op and dim.

use super::divergence::{FollowedProgram, MOST_FOLLOWED};
use crate::metrics::{Recompile, RecompileCause};
use crate::warnings;
use burn_tpu_graph::Program;
use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHasher};
use std::collections::{BTreeMap, VecDeque};
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The number of recompiles that are kept.
const MOST_KEPT: usize = 256;

/// The number of sizes of one dim that is no longer chance.
const MANY_SIZES: usize = 5;

/// The number of sizes that a dim takes, each larger than the one before, until it counts as growing.
const GROWING_SIZES: usize = 3;

/// The number of compiles in a row that is no longer a loop's beginning.
const EVERY_STEP: u64 = 5;

/// The number of warnings of a loop's compiles without a gap.
const MOST_WARNINGS: u64 = 8;

/// The number of programs whose loop is remembered.
const MOST_PROGRAMS: usize = 1000;

/// What [`Metrics::recompiles`](crate::Metrics::recompiles) is a copy of, and what the warnings depend on.
#[derive(Default)]
pub(crate) struct RecompileLog {
    latest: Mutex<VecDeque<Recompile>>,
    /// The number of all compiles.
    compiles: AtomicUsize,
    /// The sizes that a dim had, by the op that takes it.
    sizes: Mutex<BTreeMap<(&'static str, usize), Sizes>>,
    /// The loops, by the hashes of their programs.
    loops: Mutex<FxHashMap<u64, Arc<LoopHistory>>>,
    /// The latest programs of all streams, latest first.
    followed: Mutex<VecDeque<FollowedProgram>>,
}

/// The runs and compiles of programs that are like one another.
#[derive(Default)]
pub(crate) struct LoopHistory(Mutex<LoopCounts>);

#[derive(Default)]
struct LoopCounts {
    /// Runs since the last compile.
    runs: u64,
    compiles: u64,
    /// The compiles since the loop was last warm.
    in_a_row: u64,
    warnings: u64,
    /// Whether the user was told that every step compiles.
    told: bool,
}

/// The sizes of one dim, in the order in which they came.
#[derive(Default)]
struct Sizes {
    seen: Vec<usize>,
    /// How often a size was larger than the one before, but less than twice as large.
    grown: usize,
    /// Whether one was not larger than the one before, or came with other differences.
    varies: bool,
}

/// What the sizes of a dim are, if it is time to say so.
#[derive(Debug, PartialEq, Eq)]
enum Sequence {
    Growing,
    Varying,
}

/// The message about a compile, if it gets one.
#[derive(Debug, PartialEq, Eq)]
enum CompileMessage {
    Beginning,
    EveryStep,
    Warm,
    Known,
}

impl LoopHistory {
    /// A program of the loop ran. Returns whether it is the first run after a compile.
    pub(super) fn ran(&self) -> bool {
        let mut state = self.0.lock();
        state.runs += 1;
        state.runs == 1
    }

    /// A program of the loop was compiled. Returns what to say, and the number of compiles.
    fn compiled(&self) -> (CompileMessage, u64) {
        let mut state = self.0.lock();
        // The first of the runs is that of the program that was compiled.
        let warm = std::mem::take(&mut state.runs) > 1;
        state.compiles += 1;
        state.in_a_row = if warm { 1 } else { state.in_a_row + 1 };
        let message = match () {
            () if warm => state.warn(),
            () if state.in_a_row < EVERY_STEP => CompileMessage::Beginning,
            () if std::mem::replace(&mut state.told, true) => CompileMessage::Known,
            () => CompileMessage::EveryStep,
        };
        (message, state.compiles)
    }
}

impl LoopCounts {
    fn warn(&mut self) -> CompileMessage {
        self.warnings += 1;
        let shown = self.warnings <= MOST_WARNINGS || self.compiles.is_power_of_two();
        if shown { CompileMessage::Warm } else { CompileMessage::Known }
    }
}

impl Sizes {
    /// Adds a size that came after another one. Returns the sequence when it is first seen.
    fn add(&mut self, [old, new]: [usize; 2], alone: bool) -> Option<Sequence> {
        if self.seen.len() > MANY_SIZES {
            return None;
        }
        let last = *self.seen.last().unwrap_or(&old);
        if self.seen.is_empty() {
            self.seen.push(old);
        }
        self.varies |= !alone || new <= last;
        // Sizes that double stay few, as the sizes of buckets do.
        let grows = !self.varies && new < 2 * last;
        self.grown += usize::from(grows);
        self.seen.push(new);
        match () {
            () if grows && self.grown + 1 == GROWING_SIZES => Some(Sequence::Growing),
            () if self.varies && self.seen.len() == MANY_SIZES => Some(Sequence::Varying),
            () => None,
        }
    }
}

impl RecompileLog {
    /// Counts a compile of a program that is like `old`, or the first compile of a loop.
    pub(crate) fn compiled(&self, program: &Program, old: Option<&Program>, recompile: Option<Recompile>) {
        self.compiles.fetch_add(1, Ordering::Relaxed);
        let history = self.history_of(old.unwrap_or(program));
        self.loops.lock().insert(hash(program), Arc::clone(&history));
        let (message, compiles) = history.compiled();
        let Some(recompile) = recompile else { return };
        let reason = recompile.reason();
        match message {
            CompileMessage::Beginning | CompileMessage::Known => {
                tracing::debug!(compiles, "a program was compiled again: {reason}")
            }
            CompileMessage::Warm => tracing::warn!(
                seconds = recompile.seconds,
                "a program was compiled again: {reason}; {compiles} compiles of this loop so far"
            ),
            CompileMessage::EveryStep => warnings::error(format_args!(
                "a loop compiles at every step: {EVERY_STEP} programs in a row that are like one another ran only once; the \
                 last was compiled because of {reason}\n  fix: {}; see docs/recompiles.md. This is said once; \
                 metrics().recompiles lists all",
                way_out(recompile.cause)
            )),
        }
        // Sizes of a family have a program for each bucket.
        let says_sizes = !matches!(message, CompileMessage::EveryStep | CompileMessage::Known);
        if says_sizes && recompile.family.is_none() && self.another_size(&recompile) {
            history.0.lock().told = true;
        }
        let mut latest = self.latest.lock();
        if latest.len() == MOST_KEPT {
            latest.pop_front();
        }
        latest.push_back(recompile);
    }

    /// Counts the runs of a program with those of another one: it is a member of that one's bucket, or that bucket.
    pub(crate) fn join(&self, program: &Program, other: &Program) {
        let history = self.history_of(other);
        self.loops.lock().entry(hash(program)).or_insert(history);
    }

    /// Returns the number of all compiles so far.
    pub(super) fn compiles(&self) -> usize {
        self.compiles.load(Ordering::Relaxed)
    }

    /// Returns the loop of a program.
    pub(super) fn history_of(&self, program: &Program) -> Arc<LoopHistory> {
        let mut loops = self.loops.lock();
        if loops.len() > MOST_PROGRAMS {
            loops.clear();
        }
        Arc::clone(loops.entry(hash(program)).or_default())
    }

    /// A stream ran a program that it did not follow.
    pub(super) fn follow(&self, program: &FollowedProgram) {
        let mut followed = self.followed.lock();
        followed.retain(|known| !known.is(program));
        followed.push_front(program.clone());
        followed.truncate(MOST_FOLLOWED);
    }

    /// Returns the latest programs, latest first.
    pub(super) fn followed(&self) -> Vec<FollowedProgram> {
        self.followed.lock().iter().cloned().collect()
    }

    /// Oldest first.
    pub(crate) fn latest(&self) -> Vec<Recompile> {
        self.latest.lock().iter().cloned().collect()
    }

    /// Warns once of a dim that grows, and once of a dim with many sizes. Returns whether one grows.
    fn another_size(&self, recompile: &Recompile) -> bool {
        let Recompile { cause: RecompileCause::Shape, op, dim: Some(dim), sizes: Some(both), .. } = recompile else {
            return false;
        };
        let mut sizes = self.sizes.lock();
        let sizes = sizes.entry((op, *dim)).or_default();
        let sequence = sizes.add(*both, recompile.only_dims);
        let seen = sizes.seen.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
        let location = recompile.location.as_deref().unwrap_or("no line");
        match sequence {
            Some(Sequence::Growing) => warnings::warn(format_args!(
                "dim {dim} of what {op} takes grows ({location}): sizes {seen}, each a program of its own, of no family \
                 (docs/shapes.md)\n  fix: give it few sizes. Pad it on the host with burn_tpu::Buckets, `let (tokens, mask) = Buckets::doubling(32, \
                 512)?.pad(tokens, {dim}, 0)?;`, or write each step into a buffer of one size, `cache = \
                 cache.slice_assign([.., position..position + 1, ..], step);`, and mask what is not written yet"
            )),
            Some(Sequence::Varying) => warnings::warn(format_args!(
                "dim {dim} of what {op} takes had {MANY_SIZES} sizes ({location}): {seen}, each a program of its own, of no \
                 family (docs/shapes.md): pad it to a few sizes with burn_tpu::Buckets"
            )),
            None => {}
        }
        sequence == Some(Sequence::Growing)
    }
}

impl std::fmt::Debug for RecompileLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecompileLog").field("latest", &self.latest).finish_non_exhaustive()
    }
}

/// Returns what a user can change about a loop that compiles at every step.
fn way_out(cause: RecompileCause) -> &'static str {
    match cause {
        RecompileCause::Shape => {
            "let tensors keep their sizes, or find out why these share no program (docs/shapes.md): shape_buckets is off, a \
             warning named an op that refuses, or more than sizes differs. Else pad on the host with burn_tpu::Buckets"
        }
        RecompileCause::LiveSet => "keep the same tensors alive at the end of each step",
        RecompileCause::Sharding => "place parameters once, and let batches keep a size that splits over the mesh",
        RecompileCause::Evicted => "raise TpuOptions::cache_entries or cache_bytes",
        _ => "record the same ops in each step",
    }
}

fn hash(program: &Program) -> u64 {
    let mut hasher = FxHasher::default();
    program.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the message of each compile; the programs run as often as `runs` says.
    fn messages(runs: &[u64]) -> Vec<CompileMessage> {
        let history = LoopHistory::default();
        let after = |runs: &u64| {
            let (message, _) = history.compiled();
            (0..*runs).for_each(|_| {
                history.ran();
            });
            message
        };
        runs.iter().map(after).collect()
    }

    #[test]
    fn the_beginning_of_a_loop_is_silent_and_a_warm_loop_warns() {
        use CompileMessage::{Beginning, EveryStep, Known, Warm};
        assert_eq!(messages(&[1, 100, 2, 1, 9]), [Beginning, Beginning, Warm, Warm, Beginning]);
        assert_eq!(messages(&[1; 7]), [Beginning, Beginning, Beginning, Beginning, EveryStep, Known, Known]);
        let warm = messages(&[2; 40]).iter().filter(|message| **message == Warm).count();
        assert_eq!(warm, 8 + 2, "the first eight, then the 16th and the 32nd");
    }

    #[test]
    fn a_dim_grows_while_each_size_is_larger_and_nothing_else_differs() {
        let said = |steps: &[[usize; 2]]| {
            let mut sizes = Sizes::default();
            steps.iter().map(|step| sizes.add(*step, true)).collect::<Vec<_>>()
        };
        assert_eq!(said(&[[4, 5], [5, 6], [6, 7]]), [None, Some(Sequence::Growing), None]);
        assert_eq!(said(&[[1, 2], [2, 3], [3, 4]]), [None, None, Some(Sequence::Growing)]);
        assert_eq!(said(&[[16, 32], [32, 64], [64, 128], [128, 256], [256, 512]]), [const { None }; 5], "buckets");
        assert_eq!(said(&[[4, 5], [5, 3], [3, 7], [7, 8]]), [None, None, None, Some(Sequence::Varying)]);
        let mut with_others = Sizes::default();
        assert_eq!(with_others.add([4, 5], false), None);
        assert_eq!(with_others.add([5, 6], true), None, "something else differed");
    }
}
