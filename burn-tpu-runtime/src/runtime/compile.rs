//! Handles a recording that no program in memory matches: explains why, rewrites the program, compiles it and stores
//! it.

use super::DeviceRuntime;
use crate::compiling::Notice;
use crate::engine::{self, Engine, Executable};
use crate::error::{Result, TpuError};
use crate::metrics::Counters;
use crate::program::{Compiled, Recorded, SlotAssumptions};
use crate::recompile::{DivergenceTracker, Recompile, RecompileCause};
#[cfg(not(feature = "testing"))]
use burn_tpu_fusion::Level;
use burn_tpu_graph::Program;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// How often a warning says that a compile goes on.
const LONG_COMPILE: Duration = Duration::from_secs(10);

impl DeviceRuntime {
    /// Compiles a program, which is a recorded one or a part of it, with the values of its own slots. `older` is the program
    /// whose assumptions no longer hold. It needs no buffer.
    pub(super) fn compile(
        &self,
        recorded: &Recorded,
        recorded_slots: &[u64],
        key: &Arc<Program>,
        slots: &[u64],
        older: Option<Arc<Compiled>>,
        tracker: &DivergenceTracker,
    ) -> Result<Arc<Compiled>> {
        let engine = self.engine()?;
        let start = Instant::now();
        let recompile = self.explain(recorded, recorded_slots, tracker);
        self.refuse_if_frozen(recorded, recompile.as_ref().map(|(recompile, _)| recompile))?;
        let older = older.map(|older| Arc::clone(&older.assumptions));
        let older = older.or_else(|| self.cache.assumed_before(key));
        let (program, assumptions) = self.rewrite(key, slots, older)?;
        let nodes = program.graph().len();
        let _span = tracing::debug_span!("compile", nodes).entered();
        let executable = self.executable(engine, program)?;
        let (seconds, from_disk) = (start.elapsed().as_secs_f64(), executable.is_from_disk());
        tracing::info!(device = %self.device, nodes, seconds, from_disk, "a program is ready");
        let compiled = Arc::new(Compiled { executable, assumptions: Arc::new(assumptions) });
        self.cache.insert(Arc::clone(key), Arc::clone(&compiled), &self.counters);
        if !from_disk {
            let (recompile, like) =
                recompile.map(|(recompile, like)| (Recompile { seconds, ..recompile }, like)).unzip();
            self.counters.recompiles.compiled(&recorded.program, like.flatten().as_deref(), recompile);
        }
        Ok(compiled)
    }

    /// Returns the difference between a recording and the most similar program, if one is similar enough, and that program.
    fn explain(
        &self,
        recorded: &Recorded,
        slots: &[u64],
        tracker: &DivergenceTracker,
    ) -> Option<(Recompile, Option<Arc<Program>>)> {
        let difference = self.cache.explain(recorded, slots)?.of(recorded);
        let numbers = matches!(difference.cause, RecompileCause::Offset | RecompileCause::Scalar);
        let nodes_differ = difference.node.is_some() && !numbers;
        let difference = tracker.difference(recorded).filter(|_| nodes_differ).unwrap_or(difference);
        let location = (difference.cause != RecompileCause::Evicted).then(|| tracker.location(difference.node));
        let program = difference.program.clone();
        let input = difference.node.filter(|_| difference.input).map(|node| &recorded.graph.nodes()[node].ty);
        let uploaded_at = input.and_then(|ty| self.counters.recompiles.uploads.line(ty));
        let recompile = Recompile::new(difference, location, recorded.graph.len());
        Some((Recompile { uploaded_at, ..recompile }, program))
    }

    fn refuse_if_frozen(&self, recorded: &Recorded, recompile: Option<&Recompile>) -> Result<()> {
        if !self.frozen.load(Relaxed) {
            return Ok(());
        }
        let unlike = || format!("{} nodes, not similar to any program in memory", recorded.graph.len());
        let reason = recompile.map_or_else(unlike, Recompile::reason);
        Err(TpuError::Frozen { device: self.device.to_string(), reason })
    }

    /// Returns the program to compile, after the rewrites. It keeps the assumptions of `older` that still hold, or
    /// makes all possible assumptions if there is no older program.
    pub(super) fn rewrite(
        &self,
        program: &Program,
        slots: &[u64],
        older: Option<Arc<SlotAssumptions>>,
    ) -> Result<(Program, SlotAssumptions)> {
        let start = Instant::now();
        let _span = tracing::debug_span!("rewrite").entered();
        let all = || SlotAssumptions::all(program, slots);
        let assumptions = older.map_or_else(all, |older| older.still_true(slots));
        let program = program.bake(|index| assumptions.offset(index)).map_err(internal)?;
        let program = program.share(|index| assumptions.input_of(index)).map_err(internal)?;
        let program = burn_tpu_fusion::optimize(program, level()).map_err(internal)?;
        Counters::add_time(&self.counters.rewrite_ns, start.elapsed());
        Ok((program, assumptions))
    }

    /// Compiles a program on its own thread, and waits at most for the time that the options allow.
    fn executable(&self, engine: &Arc<dyn Engine>, program: Program) -> Result<Arc<dyn Executable>> {
        let (hash, nodes, limit) = (program.stable_hash(), program.graph().len(), self.options.compile_timeout);
        let policy = self.options.fallback_policy();
        let (engine, counters, host_ops) =
            (Arc::clone(engine), Arc::clone(&self.counters), self.options.host_ops.clone());
        let compile = move || {
            let executable: Arc<dyn Executable> = engine::compile(&engine, &program, &host_ops, policy)?.into();
            Counters::add(&counters.compiles, usize::from(!executable.is_from_disk()));
            Ok(executable)
        };
        let device = self.device;
        let call = move |time: Duration| {
            let seconds = time.as_secs();
            tracing::warn!(%device, nodes, seconds, "a program is still being compiled");
        };
        let notice = Notice { every: LONG_COMPILE, call };
        self.compiling.wait_for(hash, limit, notice, compile).unwrap_or_else(|| {
            let program = hash[..8].iter().map(|byte| format!("{byte:02x}")).collect();
            Err(TpuError::CompileTimeout { program, nodes, seconds: limit.as_secs_f64() })
        })
    }
}

/// Returns the level of the rewrites.
#[cfg(not(feature = "testing"))]
fn level() -> Level {
    Level::Full
}

#[cfg(feature = "testing")]
use crate::testing::level;

fn internal(error: impl std::fmt::Display) -> TpuError {
    TpuError::Bug(error.to_string())
}
