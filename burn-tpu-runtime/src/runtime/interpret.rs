//! New programs with little work: they run in the interpreter until they have come back often enough to be worth a compile.
//!
//! Whether a program is interpreted depends on its size, on what cut it and on how often it came, never on time: the same
//! run interprets and compiles the same programs, and gives the same bits.

use super::{DeviceRuntime, RunError};
use crate::engine::{self, Input, SharedBuffer};
use crate::error::{Result, TpuError};
use crate::metrics::{Counters, CutReason};
use crate::program::Recorded;
use burn_tpu_graph::{Program, cost};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// The runs of a program in the interpreter before it is compiled.
const MOST_RUNS: u32 = 8;

/// The most work per node of an interpreted program, in element operations. The interpreter takes about 5 ns for each, so
/// this is half a millisecond, less than a compiler takes for a node.
const MOST_WORK: u64 = 100_000;

impl DeviceRuntime {
    /// Returns whether a program that is not in memory runs in the interpreter now, and counts the run.
    ///
    /// A frozen device compiles nothing: it goes on interpreting what it has interpreted before.
    pub(super) fn is_interpreted(&self, program: &Arc<Program>, reason: CutReason) -> bool {
        let nodes = program.graph().len();
        let long = self.options.interpreted_nodes().is_some_and(|least| nodes >= least);
        let compiles_slowly = || self.engine().is_ok_and(|engine| engine.compiles_slowly());
        if !long || reason == CutReason::MarkStep || !engine::HAS_INTERPRETER || !compiles_slowly() {
            return false;
        }
        if self.frozen.load(Relaxed) {
            return self.cache.was_interpreted(program);
        }
        // It was compiled before, and evicted.
        if self.cache.assumed_before(program).is_some() {
            return false;
        }
        let little_work = || cost::work(program) <= MOST_WORK * nodes as u64;
        (self.cache.was_interpreted(program) || little_work()) && self.cache.count_interpreted(program) <= MOST_RUNS
    }

    /// Runs a program in the interpreter: fetches the buffers that it is bound to, which may take until they are computed,
    /// and puts its results on the device.
    ///
    /// # Errors
    /// [`RunError::Failed`]: an argument has no value, because the program that makes it failed.
    pub(super) fn interpret(
        &self,
        recorded: &Recorded,
        buffers: &[Input],
        slots: &[u64],
    ) -> Result<Vec<SharedBuffer>, RunError> {
        let program = &*recorded.program;
        let nodes = program.graph().len();
        let _span = tracing::debug_span!("interpret", nodes).entered();
        tracing::info!(device = %self.device, nodes, "a new program with little work runs in the interpreter");
        let fetched = |&index: &u32| match &buffers[index as usize] {
            Ok(buffer) => self.download(buffer),
            Err(error) => Err(TpuError::clone(error)),
        };
        let arguments = recorded.bindings.parameters.iter().map(fetched).collect::<Result<Vec<_>>>();
        let results = arguments.and_then(|arguments| engine::interpret(program, &arguments, slots));
        Counters::add(&self.counters.interpreted, 1);
        let results = results.map_err(RunError::Failed)?;
        let uploaded = program.output_types().zip(results).map(|(ty, bytes)| self.upload(ty, bytes));
        uploaded.collect::<Result<_>>().map_err(RunError::Refused)
    }
}
