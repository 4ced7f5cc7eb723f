//! The lint for 16-bit floats: warns once for each line that loses precision.
//!
//! Owns: what was warned of, and how often each program was looked at. May not know: what loses precision, which
//! `numerics::precision` reads off a program.

use super::DeviceRuntime;
use super::numerics::{NodeReports, NumericsChecks, Replay};
use crate::error::{Result, TpuError};
use crate::lines::StepPart;
use crate::numerics::{LostCounts, Update, long_sums, loss_gradients, updates};
use crate::program::Recorded;
use burn_tpu_graph::{Builder, Graph, NodeId, Op};
use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::{Arc, Weak};

/// The share of the changed elements from which a lost update is reported.
const LOST: f64 = 0.1;

/// The fewest changed elements whose lost share is reported.
const LEAST_CHANGED: u32 = 16;

/// The lint of one device.
#[derive(Default)]
pub(super) struct PrecisionLint {
    /// Kinds of loss and lines.
    warned: Mutex<FxHashSet<(&'static str, String)>>,
    /// By address.
    programs: Mutex<FxHashMap<usize, Linted>>,
}

/// A program that was linted.
struct Linted {
    recorded: Weak<Recorded>,
    runs: u32,
    counts: Option<Arc<Counted>>,
}

/// The updates of a program whose lost elements are counted.
struct Counted {
    updates: Vec<Update>,
    counts: LostCounts,
}

impl PrecisionLint {
    /// Notes a run of a program, and returns its number, from 1, with the updates whose lost elements are counted.
    fn run_of(&self, recorded: &Arc<Recorded>) -> (u32, Option<Arc<Counted>>) {
        let mut programs = self.programs.lock();
        programs.retain(|_, linted| linted.recorded.strong_count() > 0);
        let linted = programs.entry(Arc::as_ptr(recorded).addr()).or_insert_with(|| Linted {
            recorded: Arc::downgrade(recorded),
            runs: 0,
            counts: Counted::of(recorded).map(Arc::new),
        });
        linted.runs = linted.runs.saturating_add(1);
        (linted.runs, linted.counts.clone())
    }

    /// Warns of a loss at a line, unless that was done before.
    fn warn(&self, device: crate::Device, kind: &'static str, line: &str, message: impl FnOnce() -> String) {
        if self.warned.lock().insert((kind, line.to_owned())) {
            let line = if line.is_empty() { "its line was not kept" } else { line };
            tracing::warn!(%device, "{kind}: {} ({line})", message());
        }
    }

    fn has_warned(&self, kind: &'static str, line: &str) -> bool {
        self.warned.lock().contains(&(kind, line.to_owned()))
    }
}

impl Counted {
    fn of(recorded: &Recorded) -> Option<Self> {
        let updates = updates(&recorded.program, recorded.outputs.len());
        if updates.is_empty() {
            return None;
        }
        let counts = LostCounts::of(&recorded.program, &updates);
        let counts = counts.inspect_err(|error| tracing::error!(%error, "a lint is left out (please report it)"));
        counts.ok().map(|counts| Self { updates, counts })
    }
}

const NO_MASTER: &str = "a 16-bit weight without a master copy";
const LOST_UPDATE: &str = "an update that is lost to rounding";
const LONG_SUM: &str = "a long sum in 16 bits";
const NARROW_LOSS: &str = "a loss in 16 bits";

impl DeviceRuntime {
    /// Lints a program that ran and whose numbers are finite: its graph at the first run, and its numbers at the first,
    /// second, fourth run and so on.
    pub(super) fn lint_precision(&self, numerics: &NumericsChecks, replay: &Replay, is_interpreted: bool) {
        let Some(lint) = &numerics.precision else { return };
        let (run, counted) = lint.run_of(&replay.recorded);
        let mut nodes = NodeReports::new(replay);
        if run == 1 {
            self.lint_graph(lint, &mut nodes, counted.as_deref());
        }
        if let Some(counted) = counted.filter(|_| run.is_power_of_two()) {
            let linted = self.lint_updates(lint, &mut nodes, &counted, is_interpreted);
            linted.unwrap_or_else(|error| tracing::debug!(%error, "lost updates are not counted"));
        }
    }

    fn lint_graph(&self, lint: &PrecisionLint, nodes: &mut NodeReports, counted: Option<&Counted>) {
        let graph = nodes.graph();
        for update in counted.into_iter().flat_map(|counted| &counted.updates) {
            if update.is_weight && is_of_backward(nodes, graph, update.change) {
                let (line, ty) = (nodes.line(update.sum), graph.ty(update.parameter));
                let fix = "TpuOptimizer keeps f32 masters, and autocast f32 weights";
                lint.warn(self.open().device, NO_MASTER, &line, || format!("{ty} is updated as it is; {fix}"));
            }
        }
        for (last, length) in long_sums(graph) {
            let (line, dtype) = (nodes.line(last), graph.dtype(last));
            let message = || format!("{length} terms are added one by one in {dtype}; cast to f32, or use one `sum`");
            lint.warn(self.open().device, LONG_SUM, &line, message);
        }
        for root in loss_gradients(&nodes.recorded().graph) {
            let place = nodes.recorded_place(root);
            if place.part == StepPart::Backward {
                let dtype = nodes.recorded().graph.dtype(root);
                let message = || format!("its type is {dtype}; cast what the loss reads to f32");
                lint.warn(self.open().device, NARROW_LOSS, &place.line, message);
            }
        }
    }

    /// Warns of the updates that were lost in a run: counts them by running the program again for these counts alone.
    fn lint_updates(
        &self,
        lint: &PrecisionLint,
        nodes: &mut NodeReports,
        counted: &Counted,
        is_interpreted: bool,
    ) -> Result<()> {
        let lines: Vec<String> = counted.updates.iter().map(|update| nodes.line(update.sum)).collect();
        if lines.iter().all(|line| lint.has_warned(LOST_UPDATE, line)) {
            return Ok(());
        }
        let bytes = self.run_replay(nodes.replay(), &counted.counts.program, is_interpreted)?;
        let bytes = bytes.first().ok_or_else(|| TpuError::Bug("counts have no result".to_owned()))?;
        for ((update, line), (lost, changed)) in counted.updates.iter().zip(lines).zip(LostCounts::read(bytes)) {
            let share = f64::from(lost) / f64::from(changed.max(1));
            if changed >= LEAST_CHANGED && share >= LOST {
                let (ty, percent) = (nodes.graph().ty(update.parameter), 100.0 * share);
                let message =
                    || format!("{percent:.0} % of the {changed} elements of {ty} that change stay as they are");
                lint.warn(self.open().device, LOST_UPDATE, &line, message);
            }
        }
        Ok(())
    }
}

/// Returns whether a value is computed from a value of the backward pass.
fn is_of_backward(nodes: &mut NodeReports, graph: &Graph, value: NodeId) -> bool {
    let (mut seen, mut waiting) = (FxHashSet::from_iter([value]), vec![value]);
    while let Some(id) = waiting.pop() {
        let node = graph.node(id);
        let is_given = matches!(node.op, Op::Parameter { .. } | Op::Slot { .. } | Op::Constant(_));
        if !is_given && nodes.place(id).part == StepPart::Backward {
            return true;
        }
        waiting.extend(node.operands.iter().copied().filter(|&operand| seen.insert(operand)));
    }
    false
}
