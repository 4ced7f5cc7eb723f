//! Handles a recording that no program in memory matches: explains why, rewrites the program, compiles it and stores
//! it. A program that is too long for a compiler is compiled in pieces.

use super::families::Member;
use super::open::OpenDevice;
use crate::activity::{WaitFor, describe};
use crate::compiling::{Compiling, Notice};
use crate::distributed::{self, Agreement, Described};
use crate::engine::{self, Engine, Executable, InPieces, picked};
use crate::error::{Result, TpuError};
use crate::memory::regions_are_short;
use crate::metrics::{Counters, Recompile, RecompileCause};
use crate::profile::{self, Phase};
use crate::program::{CompiledProgram, Provenance, Recorded, SlotAssumptions};
use crate::recompile::{RecompileLog, RecordedRun, explain, from_followed};
use crate::{Platform, warnings};
use burn_tpu_fusion::{Optimization, Pipeline, Rewrite, Target};
use burn_tpu_graph::{NodeId, Pieces, Program, cost};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The time after which a warning says that a compile goes on.
const LONG_COMPILE: Duration = Duration::from_secs(10);

/// Compiles the programs of a device, and knows what they were compiled for.
pub(crate) struct ProgramCompiler {
    pub(super) open: OpenDevice,
    compiling: Compiling<Arc<dyn Executable>>,
    pub(super) recompiles: Arc<RecompileLog>,
    /// Whether a compile is an error.
    frozen: AtomicBool,
    /// Whether programs were evicted because the process could map too little memory for them.
    is_short_of_regions: AtomicBool,
    /// The programs that all processes have, for a device whose chips may belong to several.
    agreement: Option<Agreement>,
}

impl ProgramCompiler {
    /// `shared` is the name of a device that may be of several processes, which is the same in all of them.
    pub(super) fn new(open: OpenDevice, shared: Option<String>) -> Self {
        let (compiling, recompiles, frozen, is_short_of_regions) = Default::default();
        Self { open, compiling, recompiles, frozen, is_short_of_regions, agreement: shared.map(Agreement::new) }
    }

    /// Whether a compile is an error from now on.
    pub(crate) fn freeze(&self, frozen: bool) {
        self.frozen.store(frozen, Relaxed);
    }

    pub(super) fn is_frozen(&self) -> bool {
        self.frozen.load(Relaxed)
    }

    /// Compiles a program, which is a recorded one, a part of it or that of its family, for runs with these values of its
    /// own slots, of which the first is this run. `older` is the program whose assumptions no longer hold. It needs no
    /// buffer.
    pub(super) fn compile(
        &self,
        run: RecordedRun,
        key: &Arc<Program>,
        runs: &[&[u64]],
        older: Option<Arc<CompiledProgram>>,
    ) -> Result<Arc<CompiledProgram>> {
        self.compile_as(run, key, runs, older, None)
    }

    /// Compiles the program of a bucket for one of its members. See [`ProgramCompiler::compile`].
    pub(super) fn compile_bucket(
        &self,
        run: RecordedRun,
        member: &Member,
        older: Option<Arc<CompiledProgram>>,
    ) -> Result<Arc<CompiledProgram>> {
        let runs = member.runs(run.slots);
        let runs: Vec<&[u64]> = runs.iter().map(Vec::as_slice).collect();
        let compiled = self.compile_as(run, &member.program, &runs, older, Some(member))?;
        self.recompiles.join(&member.program, &run.recorded.program);
        Ok(compiled)
    }

    fn compile_as(
        &self,
        run: RecordedRun,
        key: &Arc<Program>,
        runs: &[&[u64]],
        older: Option<Arc<CompiledProgram>>,
        member: Option<&Member>,
    ) -> Result<Arc<CompiledProgram>> {
        let recorded = run.recorded;
        let engine = self.open.engine()?;
        let start = Instant::now();
        let family = || member.map(|member| member.bucket.to_string());
        let recompile = self.explain(run).map(|(recompile, like)| (Recompile { family: family(), ..recompile }, like));
        self.refuse_if_frozen(recorded, recompile.as_ref().map(|(recompile, _)| recompile))?;
        let (program, assumptions) = self.rewrite(key, older, runs.iter().copied())?;
        self.agree(recorded, key, &program, run.provenance)?;
        let nodes = cost::nodes(&program);
        let _span = tracing::debug_span!("compile", nodes).entered();
        let _profiled = profile::span(Phase::Compile, "compile");
        let compiled = self.whole_or_in_pieces(engine, key, runs, (program, assumptions))?;
        let (seconds, from_disk) = (start.elapsed().as_secs_f64(), compiled.executable.is_from_disk());
        tracing::info!(device = %self.open.device, nodes, seconds, from_disk, "a program is ready");
        let compiled = Arc::new(compiled);
        self.open.cache.insert(Arc::clone(key), Arc::clone(&compiled), &self.open.counters);
        self.open.cache.remember(recorded);
        if let Some(agreement) = &self.agreement {
            agreement.compiled();
        }
        if !from_disk {
            let (recompile, like) =
                recompile.map(|(recompile, like)| (Recompile { seconds, ..recompile }, like)).unzip();
            self.recompiles.compiled(&recorded.program, like.flatten().as_deref(), recompile);
        }
        Ok(compiled)
    }

    /// Compiles a program that is not recorded but made of a recorded one, for runs with these slots, unless one in memory
    /// serves them. It is no recompile, and a frozen device compiles it too.
    ///
    /// # Errors
    /// Those of the compiler.
    pub(super) fn compile_unrecorded(&self, program: &Arc<Program>, runs: &[Vec<u64>]) -> Result<Arc<CompiledProgram>> {
        let found = self.open.cache.get(program);
        let serves = |compiled: &Arc<CompiledProgram>| runs.iter().all(|slots| compiled.assumptions.hold(slots));
        if let Some(compiled) = found.clone().filter(serves) {
            return Ok(compiled);
        }
        let runs: Vec<&[u64]> = runs.iter().map(Vec::as_slice).collect();
        let rewritten = self.rewrite(program, found, runs.iter().copied())?;
        let compiled = Arc::new(self.whole_or_in_pieces(self.open.engine()?, program, &runs, rewritten)?);
        self.open.cache.insert(Arc::clone(program), Arc::clone(&compiled), &self.open.counters);
        Ok(compiled)
    }

    fn whole_or_in_pieces(
        &self,
        engine: &Arc<dyn Engine>,
        key: &Program,
        runs: &[&[u64]],
        (program, assumptions): (Program, SlotAssumptions),
    ) -> Result<CompiledProgram> {
        // Blocks of queries make a program longer than it was recorded, and loops make it shorter.
        match self.pieces(key, cost::nodes(key).min(cost::nodes(&program)))? {
            Some(pieces) => self.in_pieces(engine, pieces, runs),
            None => Ok(CompiledProgram {
                executable: self.executable(engine, program)?,
                assumptions: Arc::new(assumptions),
            }),
        }
    }

    /// Returns the difference between a recording and the most similar program, if one is similar enough, and that program.
    fn explain(&self, run: RecordedRun) -> Option<(Recompile, Option<Arc<Program>>)> {
        let RecordedRun { recorded, slots, provenance } = run;
        let difference = explain(&self.open.cache, recorded, slots)?;
        let numbers = matches!(difference.cause, RecompileCause::Offset | RecompileCause::Scalar);
        let nodes_differ = difference.node.is_some() && !numbers;
        let difference = from_followed(provenance, recorded).filter(|_| nodes_differ).unwrap_or(difference);
        let location = (difference.cause != RecompileCause::Evicted).then(|| provenance.location(difference.node));
        let program = difference.program.clone();
        let input = difference.node.filter(|_| difference.input).map(|node| &recorded.graph.nodes()[node].ty);
        let uploaded_at = input.and_then(|ty| self.open.lines.uploads.line(ty));
        let recompile = difference.event(location, recorded.graph.len());
        Some((Recompile { uploaded_at, ..recompile }, program))
    }

    /// Returns once all processes are about to compile this program, if several run it. See [`distributed`].
    fn agree(&self, recorded: &Recorded, key: &Arc<Program>, program: &Program, provenance: &Provenance) -> Result<()> {
        let Some(agreement) = &self.agreement else { return Ok(()) };
        let Some(group) = distributed::group()? else { return Ok(()) };
        let _span = tracing::debug_span!("agree").entered();
        let caller = |line: usize| {
            let is_whole = Arc::ptr_eq(key, &recorded.program);
            provenance.location(recorded.bindings.nodes.get(line).filter(|_| is_whole).map(|node| node.index()))
        };
        agreement.check(group, Described { hash: program.stable_hash(), lines: || lines(key, program), caller })
    }

    fn refuse_if_frozen(&self, recorded: &Recorded, recompile: Option<&Recompile>) -> Result<()> {
        if !self.is_frozen() {
            return Ok(());
        }
        let unlike = || format!("{} nodes, not similar to any program in memory", recorded.graph.len());
        let reason = recompile.map_or_else(unlike, Recompile::reason);
        Err(TpuError::Frozen { device: self.open.device.to_string(), reason })
    }

    /// Returns the program to compile, after the rewrites, for runs with these slots. It keeps the assumptions that still
    /// hold of the program in memory, or of the one that was evicted; a new one makes all that are possible.
    pub(super) fn rewrite<'s>(
        &self,
        program: &Program,
        older: Option<Arc<CompiledProgram>>,
        runs: impl Iterator<Item = &'s [u64]>,
    ) -> Result<(Program, SlotAssumptions)> {
        let start = Instant::now();
        let _span = tracing::debug_span!("rewrite").entered();
        let _profiled = profile::span(Phase::Rewrite, "rewrite");
        let older =
            older.map(|older| Arc::clone(&older.assumptions)).or_else(|| self.open.cache.assumed_before(program));
        let assumptions = SlotAssumptions::of_runs(program, older.as_deref(), runs);
        let program = assumptions.applied_to(program).map_err(internal)?;
        let pipeline = Pipeline::with_target(self.optimization(), &self.open.options.skip_rewrites, self.target());
        let optimized = pipeline.run(program).map_err(internal)?;
        self.open.counters.rewrote(&optimized.applied);
        if let Some(recorded) = self.open.engine.as_ref().ok().and_then(|engine| engine.recorded()) {
            recorded.rewrote(&optimized.program, &optimized.applied);
        }
        Counters::add_time(&self.open.counters.rewrite_ns, start.elapsed());
        Ok((optimized.program, assumptions))
    }

    /// Returns what programs are rewritten for.
    fn target(&self) -> Target {
        let takes_kernels = |engine: &Arc<dyn Engine>| self.open.options.kernels && engine.takes_tpu_kernels();
        match (&self.open.engine, self.open.device.platform()) {
            (Ok(engine), _) if takes_kernels(engine) => Target::Tpu,
            (_, Platform::Cpu) => Target::Cpu,
            _ => Target::Any,
        }
    }

    /// Returns a program as every tier computes it: with the roundings that its level leaves out of the whole of it. The
    /// interpreter, and who divides a program, begin with that form.
    pub(super) fn rounded(&self, program: &Arc<Program>) -> Result<Arc<Program>> {
        if !program.summary().has_half_floats {
            return Ok(Arc::clone(program));
        }
        self.open.cache.rounded(program, || {
            let rounded = self.roundings().run(Program::clone(program)).map_err(internal)?;
            Ok(Arc::new(rounded.program))
        })
    }

    /// Returns the rewrites of the level that leave out roundings.
    pub(super) fn roundings(&self) -> Pipeline {
        Pipeline::of_roundings(self.optimization(), &self.open.options.skip_rewrites)
    }

    /// Returns the level of the rewrites.
    fn optimization(&self) -> Optimization {
        #[cfg(feature = "testing")]
        if let Some(level) = super::level::level() {
            return level;
        }
        self.open.options.optimization
    }

    /// Returns whether the gradient of attention is rewritten in layers before they become loops. Kernels of attention are
    /// found by the gradient as it is recorded.
    pub(crate) fn rewrites_layers(&self) -> bool {
        self.rewrites(Rewrite::SoftmaxGradient) && self.optimization() < Optimization::Aggressive
    }

    /// Returns whether programs are rewritten so.
    fn rewrites(&self, rewrite: Rewrite) -> bool {
        rewrite.level() <= self.optimization() && !self.open.options.skip_rewrites.contains(&rewrite)
    }

    /// Returns the level, with the rewrites that are skipped, if it makes loops of what repeats.
    pub(super) fn loops_at(&self) -> Option<(Optimization, &[Rewrite])> {
        let (level, skipped) = (self.optimization(), &*self.open.options.skip_rewrites);
        self.rewrites(Rewrite::Roll).then_some((level, skipped))
    }

    /// Returns the pieces of a program that has too many nodes after the rewrites. One that is placed on a mesh stays whole:
    /// between pieces, the partitioner could not choose where values live.
    fn pieces(&self, program: &Program, nodes: usize) -> Result<Option<Pieces>> {
        match self.open.options.program_cap {
            cap if cap == 0 || nodes <= cap || program.placement().is_some() => Ok(None),
            cap => {
                let rounded = self.roundings().run(program.clone()).map_err(internal)?;
                Pieces::of(&rounded.program, cap).map_err(internal)
            }
        }
    }

    /// Returns a program in pieces. Those that are not in memory are compiled now.
    fn in_pieces(&self, engine: &Arc<dyn Engine>, pieces: Pieces, runs: &[&[u64]]) -> Result<CompiledProgram> {
        let (mut compiled, mut is_new) = (Vec::with_capacity(pieces.programs.len()), false);
        for (index, program) in pieces.programs.iter().enumerate() {
            let runs = pieces.runs_of(index).flat_map(|piece| runs.iter().map(|slots| picked(&piece.slots, slots)));
            let piece = self.piece(engine, program, &runs.collect::<Vec<_>>(), &mut is_new)?;
            compiled.push(piece);
        }
        let parts = pieces.pieces.iter().map(|piece| (&*compiled[piece.program].assumptions, &*piece.slots));
        let assumptions = Arc::new(SlotAssumptions::of_pieces(parts));
        let executables = compiled.iter().map(|piece| Arc::clone(&piece.executable)).collect();
        tracing::debug!(pieces = pieces.pieces.len(), programs = compiled.len(), "a program runs in pieces");
        Ok(CompiledProgram { executable: Arc::new(InPieces::new(pieces, executables, !is_new)), assumptions })
    }

    /// Returns the compiled form of a piece that serves all of its runs.
    fn piece(
        &self,
        engine: &Arc<dyn Engine>,
        program: &Arc<Program>,
        runs: &[Vec<u64>],
        is_new: &mut bool,
    ) -> Result<Arc<CompiledProgram>> {
        let found = self.open.cache.get(program);
        if let Some(piece) = found.clone().filter(|piece| runs.iter().all(|slots| piece.assumptions.hold(slots))) {
            return Ok(piece);
        }
        let (rewritten, assumptions) = self.rewrite(program, found, runs.iter().map(Vec::as_slice))?;
        let executable = self.executable(engine, rewritten)?;
        *is_new |= !executable.is_from_disk();
        let piece = Arc::new(CompiledProgram { executable, assumptions: Arc::new(assumptions) });
        self.open.cache.insert(Arc::clone(program), Arc::clone(&piece), &self.open.counters);
        Ok(piece)
    }

    /// Compiles a program on its own thread, and waits at most for the time that the options allow.
    fn executable(&self, engine: &Arc<dyn Engine>, program: Program) -> Result<Arc<dyn Executable>> {
        let evicted = self.open.cache.make_room(regions_are_short, &self.open.counters);
        if evicted > 0 && !self.is_short_of_regions.swap(true, Relaxed) {
            warnings::warn(format_args!(
                "{}: {evicted} programs left memory, since the process has mapped half of the memory regions that Linux lets \
                 it have; `sysctl -w vm.max_map_count=262144` lets it have more; this is said once",
                self.open.device
            ));
        }
        let (hash, nodes, limit) = (program.stable_hash(), program.graph().len(), self.open.options.compile_timeout);
        let (policy, description) = (self.open.options.fallback_policy(), describe(&program));
        let (engine, counters, host_ops) =
            (Arc::clone(engine), Arc::clone(&self.open.counters), self.open.options.host_ops.clone());
        let compile = move || {
            let executable: Arc<dyn Executable> = engine::compile(&engine, &program, &host_ops, policy)?.into();
            Counters::add(&counters.compiles, usize::from(!executable.is_from_disk()));
            Ok(executable)
        };
        let (device, _wait) = (self.open.device, self.open.waiting(WaitFor::Compile { program: description }));
        let call = move |time: Duration| {
            let seconds = time.as_secs();
            warnings::warn(format_args!(
                "{device}: a program of {nodes} nodes is still being compiled after {seconds} s; this is said once"
            ));
        };
        let notice = Notice { after: LONG_COMPILE, call };
        self.compiling.wait_for(hash, limit, notice, compile).unwrap_or_else(|| {
            let program = hash[..8].iter().map(|byte| format!("{byte:02x}")).collect();
            Err(TpuError::CompileTimeout { program, nodes, seconds: limit.as_secs_f64() })
        })
    }
}

/// Returns the lines of a program's text with the names of the recorded ops, then those of the program that is compiled,
/// which has the values of offsets too.
fn lines(recorded: &Program, compiled: &Program) -> Vec<String> {
    let graph = recorded.graph();
    let label = |line: usize| if line < graph.len() { graph.label(NodeId(line as u32)) } else { "" };
    let (recorded, compiled) = (recorded.to_string(), compiled.to_string());
    let named = recorded.lines().enumerate().map(|(line, text)| match label(line) {
        "" => text.to_owned(),
        label => format!("{text}\t{label}"),
    });
    named.chain(compiled.lines().map(|text| format!("compiled: {text}"))).collect()
}

fn internal(error: impl std::fmt::Display) -> TpuError {
    TpuError::Bug(error.to_string())
}
