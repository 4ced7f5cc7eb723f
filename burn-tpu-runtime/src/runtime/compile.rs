//! A recording that no program in memory serves: why not, rewritten, compiled, kept.

use super::DeviceRuntime;
use crate::engine::{self, Engine, Executable};
use crate::error::{Result, TpuError};
use crate::metrics::Counters;
use crate::options::FallbackPolicy;
use crate::program::{Assumed, Compiled, Identity, Recorded};
use crate::recompile::{Recompile, RecompileCause, Watch};
use burn_tpu_graph::{Graph, Program};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

impl DeviceRuntime {
    /// Compiles a recorded program; `older` is the one whose assumptions do not hold any more.
    pub(super) fn compile(
        &self,
        recorded: &Recorded,
        slots: &[u64],
        older: Option<Arc<Compiled>>,
        watch: &Watch,
    ) -> Result<Arc<Compiled>> {
        let engine = self.engine()?;
        let start = Instant::now();
        let recompile = self.explain(recorded, slots, watch);
        self.refuse_if_frozen(recorded, recompile.as_ref())?;
        let older = older.map(|older| older.identity.assumed.clone()).or_else(|| self.cache.assumed_before(recorded));
        let (program, assumed) = self.rewrite(recorded, slots, older)?;
        let nodes = program.graph().len();
        let _span = tracing::debug_span!("compile", nodes).entered();
        let executable = self.executable(engine, program)?;
        let (seconds, from_disk) = (start.elapsed().as_secs_f64(), executable.is_from_disk());
        tracing::info!(device = %self.device, nodes, seconds, from_disk, "a program is ready");
        let arena = recorded.graph.to_arena();
        let key = Recorded { graph: Graph::of(Arc::clone(&arena)), outputs: recorded.outputs.clone() };
        let compiled = Arc::new(Compiled { executable, identity: Arc::new(Identity { arena, assumed }) });
        self.cache.insert(key, Arc::clone(&compiled), &self.counters);
        if let Some(recompile) = recompile.filter(|_| !from_disk) {
            self.counters.recompiles.add(Recompile { seconds, ..recompile });
        }
        Ok(compiled)
    }

    /// In what a recording differs from the program most like it, if one is like it.
    fn explain(&self, recorded: &Recorded, slots: &[u64], watch: &Watch) -> Option<Recompile> {
        let difference = self.cache.explain(recorded, slots)?;
        let evicted = difference.cause == RecompileCause::Evicted;
        let location = if evicted { None } else { watch.location(difference.node) };
        Some(Recompile::new(difference, location, recorded.graph.len()))
    }

    fn refuse_if_frozen(&self, recorded: &Recorded, recompile: Option<&Recompile>) -> Result<()> {
        if !self.frozen.load(Relaxed) {
            return Ok(());
        }
        let unlike = || format!("{} nodes that are like no program in memory", recorded.graph.len());
        let reason = recompile.map_or_else(unlike, Recompile::reason);
        Err(TpuError::Frozen { device: self.device.to_string(), reason })
    }

    /// The program to compile: what the outputs need, assuming what `older` does, as far as it holds (all
    /// that it has, when there is none), after the rewrites.
    fn rewrite(&self, recorded: &Recorded, slots: &[u64], older: Option<Assumed>) -> Result<(Program, Assumed)> {
        let start = Instant::now();
        let _span = tracing::debug_span!("rewrite").entered();
        let program = Program::extract(&recorded.graph, &recorded.outputs).map_err(internal)?;
        let assumed = older.map_or_else(|| Assumed::all(&program, slots), |older| older.still(slots));
        let program = program.bake(|index| assumed.offset(index)).map_err(internal)?;
        let program = program.share(|index| assumed.first(index)).map_err(internal)?;
        let program = burn_tpu_fusion::optimize(program, burn_tpu_fusion::Level::Full).map_err(internal)?;
        Counters::add_time(&self.counters.rewrite_ns, start.elapsed());
        Ok((program, assumed))
    }

    /// Has a program compiled on a thread of its own, and waits for as long as the options allow.
    fn executable(&self, engine: &Arc<dyn Engine>, program: Program) -> Result<Arc<dyn Executable>> {
        let (hash, nodes, limit) = (program.stable_hash(), program.graph().len(), self.options.compile_timeout);
        let denied = self.options.strict || self.options.fallback == FallbackPolicy::Deny;
        let (engine, counters, host_ops) =
            (Arc::clone(engine), Arc::clone(&self.counters), self.options.host_ops.clone());
        let compile = move || {
            let executable: Arc<dyn Executable> = engine::compile(&engine, &program, &host_ops, denied)?.into();
            Counters::add(&counters.compiles, usize::from(!executable.is_from_disk()));
            Ok(executable)
        };
        self.compiling.wait_for(hash, limit, compile).unwrap_or_else(|| {
            let program = hash[..8].iter().map(|byte| format!("{byte:02x}")).collect();
            Err(TpuError::CompileTimeout { program, nodes, seconds: limit.as_secs_f64() })
        })
    }
}

fn internal(error: impl std::fmt::Display) -> TpuError {
    TpuError::Bug(error.to_string())
}
