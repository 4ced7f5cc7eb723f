//! Programs that are checked for NaN and infinities: their arguments are kept until the flag that they compute was read, and
//! one that computed a NaN or an infinity runs again with every value checked.
//!
//! Flags are read at the next read or sync of the device, by whichever thread, and at the next mark step or call of a
//! compiled function, whose error the next read or sync returns. Results of a program that was reported, and what is
//! computed from them, are reported no more.

use super::DeviceRuntime;
use super::precision::PrecisionLint;
use crate::engine::{Arguments, DeviceBuffer, HostValue, Input, SharedBuffer};
use crate::error::{NonFinite, NonFiniteOp, NotFinite, Result, TpuError};
use crate::lines::{OpLines, Resolver, StepPart, StepPlace};
use crate::numerics::{Class, Culprit, Diagnosis, Origin, Probes, flag_of, flagged};
use crate::options::TpuOptions;
use crate::program::Recorded;
use crate::{Device, Platform, distributed};
use burn_tpu_graph::{Graph, Node, NodeId, Op, Program};
use parking_lot::Mutex;
use rustc_hash::FxHashSet;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};

/// The most programs that wait for their check; a further one has all of them checked.
const MOST_WAITING: usize = 16;

/// The most results of reported programs that are remembered.
const MOST_REPORTED: usize = 100_000;

/// The checks of one device.
pub(crate) struct NumericsChecks {
    /// If the options ask for it.
    pub(super) precision: Option<PrecisionLint>,
    /// Oldest first.
    waiting: Mutex<VecDeque<RunCheck>>,
    /// What a mark step or a call found.
    failed: Mutex<Option<TpuError>>,
    /// The results of programs that were reported.
    reported: Mutex<Vec<Weak<dyn DeviceBuffer>>>,
    /// The programs whose results are infinite because the user gave infinities.
    intended: Mutex<FxHashSet<[u8; 32]>>,
    steps: AtomicU64,
    calls: AtomicU64,
}

/// How the runs of a program are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RunNumber {
    /// By mark steps.
    Step,
    /// By calls of compiled functions.
    Call,
}

/// What is needed to run a program again.
pub(super) struct Replay {
    pub(super) recorded: Arc<Recorded>,
    lines: OpLines,
    arguments: Arguments,
    slots: Vec<u64>,
    number: (RunNumber, u64),
}

/// A program that was dispatched and not checked yet.
struct RunCheck {
    replay: Replay,
    flag: SharedBuffer,
    results: Vec<Weak<dyn DeviceBuffer>>,
}

impl NumericsChecks {
    /// Returns the checks of a device whose options ask for them. One that executes nothing has none.
    pub(super) fn of(device: Device, options: &TpuOptions) -> Option<Self> {
        let checked = options.check_numerics && device.platform() != Platform::Topology;
        checked.then(|| Self {
            precision: options.lint_precision.then(PrecisionLint::default),
            waiting: Mutex::default(),
            failed: Mutex::default(),
            reported: Mutex::default(),
            intended: Mutex::default(),
            steps: AtomicU64::new(0),
            calls: AtomicU64::new(0),
        })
    }

    fn has_reported(&self, arguments: &Arguments) -> bool {
        let reported = self.reported.lock();
        let is = |argument: &SharedBuffer| {
            let address = Arc::as_ptr(argument).addr();
            reported.iter().any(|result| result.as_ptr().addr() == address)
        };
        !reported.is_empty() && arguments.iter().flatten().any(is)
    }

    fn add_reported(&self, results: Vec<Weak<dyn DeviceBuffer>>) {
        let mut reported = self.reported.lock();
        reported.retain(|result| result.strong_count() > 0);
        reported.extend(results);
        let surplus = reported.len().saturating_sub(MOST_REPORTED);
        reported.drain(..surplus);
    }
}

impl DeviceRuntime {
    /// Returns the checks for NaN and infinities, if the options ask for them.
    pub(crate) fn numerics(&self) -> Option<&NumericsChecks> {
        self.numerics.as_ref()
    }

    /// Returns a recorded program as this device runs it: with a flag if numbers are checked.
    pub(super) fn flagged(&self, program: Program) -> Program {
        if self.numerics.is_none() {
            return program;
        }
        let unflagged = program.clone();
        flagged(program).unwrap_or_else(|error| {
            tracing::error!(%error, "a program is not checked for NaN (please report it)");
            unflagged
        })
    }

    /// A mark step has ended.
    pub(super) fn count_step(&self) {
        if let Some(numerics) = &self.numerics {
            numerics.steps.fetch_add(1, Relaxed);
        }
    }

    /// Keeps what a program needs to run again, if it has a flag.
    pub(super) fn keep(
        &self,
        recorded: &Arc<Recorded>,
        lines: &OpLines,
        number: RunNumber,
        slots: &[u64],
        arguments: impl FnOnce() -> Arguments,
    ) -> Option<Replay> {
        let numerics = self.numerics.as_ref()?;
        let count = match number {
            RunNumber::Step => numerics.steps.load(Relaxed),
            RunNumber::Call => numerics.calls.fetch_add(1, Relaxed),
        };
        if recorded.program.outputs().len() == recorded.outputs.len() {
            return None;
        }
        if numerics.waiting.lock().len() >= MOST_WAITING {
            self.note_numeric_errors();
        }
        let (recorded, lines, slots) = (Arc::clone(recorded), lines.clone(), slots.to_vec());
        Some(Replay { recorded, lines, arguments: arguments(), slots, number: (number, count) })
    }

    /// Takes the flag from the results of a program, to be checked when it has run.
    pub(super) fn check_when_run(&self, replay: Option<Replay>, mut results: Vec<SharedBuffer>) -> Vec<SharedBuffer> {
        let Some((numerics, replay)) = self.numerics.as_ref().zip(replay) else { return results };
        if let Some(flag) = results.pop() {
            let results = results.iter().map(Arc::downgrade).collect();
            numerics.waiting.lock().push_back(RunCheck { replay, flag, results });
        }
        results
    }

    /// Checks what waits for its check: computed indices, and programs for NaN and infinities.
    ///
    /// # Errors
    /// [`TpuError::Index`] or [`TpuError::NotFinite`] for the oldest mistake, once.
    pub(crate) fn deferred_errors(&self) -> Result<()> {
        self.check_indices().and_then(|()| self.check_numbers())
    }

    /// [`DeviceRuntime::deferred_errors`] where no error can be returned: it is logged, and the next read or sync
    /// returns it.
    pub(crate) fn note_deferred_errors(&self) {
        self.note_index_errors();
        self.note_numeric_errors();
    }

    /// Checks the programs that were dispatched, oldest first, and waits for them. The programs after a mistake wait for the
    /// next check.
    fn check_numbers(&self) -> Result<()> {
        let Some(numerics) = &self.numerics else { return Ok(()) };
        if let Some(failed) = numerics.failed.lock().take() {
            return Err(failed);
        }
        loop {
            let next = numerics.waiting.lock().pop_front();
            let Some(check) = next else { return Ok(()) };
            self.check_run(numerics, check)?;
        }
    }

    pub(super) fn note_numeric_errors(&self) {
        let Some(numerics) = self.numerics.as_ref().filter(|numerics| numerics.failed.lock().is_none()) else { return };
        if let Err(error) = self.check_numbers() {
            tracing::error!(device = %self.open().device, "{error}");
            *numerics.failed.lock() = Some(error);
        }
    }

    fn check_run(&self, numerics: &NumericsChecks, RunCheck { replay, flag, results }: RunCheck) -> Result<()> {
        // The read of the program's own results reports why nothing was computed.
        let class = self.open().download(&flag).map_or(Class::Finite, |bytes| flag_of(bytes.as_ref()));
        let program = &replay.recorded.program;
        let is_intended = || class == Class::Infinite && numerics.intended.lock().contains(&program.stable_hash());
        let is_interpreted = HostValue::of(&flag).is_some();
        if class == Class::Finite || is_intended() {
            self.lint_precision(numerics, &replay, is_interpreted);
            return Ok(());
        }
        if numerics.has_reported(&replay.arguments) {
            numerics.add_reported(results);
            return Ok(());
        }
        let diagnosis = self.run_again(&replay, is_interpreted).unwrap_or_else(|error| {
            tracing::warn!(device = %self.open().device, %error, "a step with a NaN could not run again");
            Diagnosis::Finite
        });
        let culprit = match diagnosis {
            Diagnosis::Intended => {
                numerics.intended.lock().insert(program.stable_hash());
                return Ok(());
            }
            Diagnosis::Culprit(culprit) => Some(culprit),
            Diagnosis::Finite => None,
        };
        numerics.add_reported(results);
        Err(TpuError::NotFinite(Box::new(replay.report(class, culprit))))
    }

    /// Runs a program again, where it ran, with every value checked.
    fn run_again(&self, replay: &Replay, is_interpreted: bool) -> Result<Diagnosis> {
        let bug = |error: burn_tpu_graph::GraphError| TpuError::Bug(error.to_string());
        let program = &*replay.recorded.program;
        let count = replay.recorded.outputs.len();
        let probes = Probes::of(program, count).map_err(bug)?;
        let bytes = self.run_replay(replay, &probes.program, is_interpreted)?;
        let classes = probes.classes(program.graph(), &bytes);
        Ok(Diagnosis::of(program.graph(), &program.outputs()[..count], &classes))
    }

    /// Runs a program with the parameters and slots of one that ran, on the arguments that were kept. Returns the bytes of
    /// its results.
    pub(super) fn run_replay(
        &self,
        replay: &Replay,
        program: &Arc<Program>,
        is_interpreted: bool,
    ) -> Result<Vec<Vec<u8>>> {
        if is_interpreted {
            return self.interpret_replay(replay, program);
        }
        if self.open().device.platform() == Platform::Mesh && distributed::group()?.is_some() {
            let reason = "several processes run it; run one to find the op".to_owned();
            return Err(TpuError::Step { reason });
        }
        let placed: Vec<_> = replay.arguments.iter().map(Option::as_ref).collect();
        let program = self.placed(program, &parameters(program, &placed))?;
        let compiled = self.compiler.compile_unrecorded(&program, std::slice::from_ref(&replay.slots))?;
        let mut arguments = replay.arguments.clone();
        let results = self.open().dispatch(&program, &compiled, &mut arguments, &replay.slots);
        let results = results.map_err(|error| match error {
            super::RunError::Refused(error) | super::RunError::Failed(error) => error,
        })?;
        results.iter().map(|result| Ok(self.open().download(result)?.into_vec())).collect()
    }

    fn interpret_replay(&self, replay: &Replay, program: &Program) -> Result<Vec<Vec<u8>>> {
        let missing = || Err(Arc::new(TpuError::Bug("an argument was not kept".to_owned())));
        let inputs: Vec<Input> =
            replay.arguments.iter().map(|argument| argument.clone().map_or_else(missing, Ok)).collect();
        let places = 0..inputs.len() as u32;
        let results = self.interpreted(program, places, &inputs, &replay.slots)?;
        Ok(results.iter().map(|result| result.to_bytes()).collect())
    }
}

/// Returns the arguments of a program's parameters, in their order.
fn parameters<'a>(program: &Program, arguments: &[Option<&'a SharedBuffer>]) -> Vec<Option<&'a SharedBuffer>> {
    program.parameters().map(|(index, _)| arguments.get(index as usize).copied().flatten()).collect()
}

impl Replay {
    /// Returns the report about a program that computed a value of this class.
    fn report(&self, class: Class, culprit: Option<Culprit>) -> NotFinite {
        let class = culprit.map_or(class, |culprit| culprit.class);
        let value = if class == Class::Nan { NonFinite::Nan } else { NonFinite::Infinity };
        let mut nodes = NodeReports::new(self);
        let op = culprit.map(|culprit| nodes.origin(culprit.origin));
        let infinity = culprit.and_then(|culprit| culprit.infinity);
        let infinity = infinity.map(|infinity| nodes.origin(infinity));
        let forward = culprit.zip(op.as_ref()).and_then(|(culprit, op)| nodes.forward_op(culprit.origin.node, op));
        let (number, step) = self.number;
        NotFinite { value, op, infinity, forward, step, is_call: number == RunNumber::Call }
    }
}

/// Describes the nodes of a program as the ops that recorded them.
pub(super) struct NodeReports<'k> {
    replay: &'k Replay,
    resolver: Resolver,
}

impl<'k> NodeReports<'k> {
    pub(super) fn new(replay: &'k Replay) -> Self {
        Self { replay, resolver: Resolver::default() }
    }

    pub(super) fn replay(&self) -> &'k Replay {
        self.replay
    }

    pub(super) fn recorded(&self) -> &'k Recorded {
        &self.replay.recorded
    }

    pub(super) fn graph(&self) -> &'k Graph {
        self.replay.recorded.program.graph()
    }

    /// Returns the op that recorded an origin. For a given value it is the first op that reads it.
    fn origin(&mut self, Origin { node, is_given }: Origin) -> NonFiniteOp {
        let reads = |reader: &Node| reader.operands.contains(&node);
        let reader = self.graph().nodes().iter().position(reads).filter(|_| is_given);
        self.op(reader.map_or(node, |reader| NodeId(reader as u32)), is_given)
    }

    fn op(&mut self, node: NodeId, is_given: bool) -> NonFiniteOp {
        let graph = self.graph();
        let of = graph.node(node);
        let types: Vec<String> = of.operands.iter().map(|&id| graph.ty(id).to_string()).collect();
        let StepPlace { line, part, gradient_of } = self.place(node);
        NonFiniteOp {
            op: if graph.label(node).is_empty() { of.op.mnemonic() } else { graph.label(node) }.to_owned(),
            line,
            part,
            gradient_of,
            computes: format!("{}: {} -> {}", of.op.mnemonic(), types.join(", "), of.ty),
            is_given,
        }
    }

    /// Returns where a node of the program was recorded.
    pub(super) fn place(&mut self, node: NodeId) -> StepPlace {
        let recorded = self.replay.recorded.bindings.nodes.get(node.index()).copied();
        recorded.map_or_else(unknown_place, |node| self.recorded_place(node))
    }

    /// Returns where a node of the recording was recorded.
    pub(super) fn recorded_place(&mut self, node: NodeId) -> StepPlace {
        let stack = self.replay.lines.of(node.index());
        stack.map_or_else(unknown_place, |stack| self.resolver.place(stack))
    }

    /// Returns the line that recorded a node of the program; empty if it is not known.
    pub(super) fn line(&mut self, node: NodeId) -> String {
        self.place(node).line
    }

    /// Returns the op of the forward pass whose gradient an op of the backward pass computes: the latest one with the name
    /// that shares a value with it. Where the name is not known, it is the latest op whose value it took.
    fn forward_op(&mut self, node: NodeId, op: &NonFiniteOp) -> Option<NonFiniteOp> {
        if op.part != StepPart::Backward {
            return None;
        }
        let graph = self.graph();
        let mut values = vec![node];
        for _ in 0..MOST_FOLLOWED {
            values.extend(values.clone().into_iter().flat_map(|id| graph.node(id).operands.iter().copied()));
            values.sort_unstable();
            values.dedup();
        }
        values.retain(|&id| !matches!(graph.node(id).op, Op::Slot { .. } | Op::Constant(_)));
        for id in (0..node.0).rev().map(NodeId) {
            let earlier = graph.node(id);
            let is_candidate = match &op.gradient_of {
                Some(name) => {
                    let shares =
                        values.contains(&id) || earlier.operands.iter().any(|operand| values.contains(operand));
                    graph.label(id) == name && shares
                }
                None => values.contains(&id) && !matches!(earlier.op, Op::Parameter { .. }),
            };
            if is_candidate && self.place(id).part == StepPart::Forward {
                return Some(self.op(id, false));
            }
        }
        None
    }
}

fn unknown_place() -> StepPlace {
    StepPlace { line: String::new(), part: StepPart::Forward, gradient_of: None }
}

/// The most ops between an op of the backward pass and a value that it shares with its op of the forward pass.
const MOST_FOLLOWED: usize = 6;
