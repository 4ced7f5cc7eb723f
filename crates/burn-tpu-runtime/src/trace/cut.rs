//! Cutting a trace at a position: choose what is live, run it as one program, hand the buffers to the tensors, keep the
//! rest recorded. The rules are those of `trace`'s header.

use super::pending::PendingParameter;
use super::{OpRecord, StreamTrace, Trace};
use crate::engine::Input;
use crate::error::{Result, TpuError};
use crate::lines::Stack;
use crate::metrics::CutReason;
use crate::profile::{self, Phase};
use crate::program::Subgraph;
use crate::runtime::RunError;
use crate::tensor::WaitForDevices;
use burn_tpu_graph::{Builder, Label, NodeId, Op};
use rustc_hash::FxHashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

impl StreamTrace {
    /// The owner's cut: runs everything that is alive.
    pub(super) fn cut_everything(&self, reason: CutReason) -> Result<()> {
        self.refuse_cut(reason)?;
        let mut trace = self.lock_computed(u64::MAX, WaitForDevices::Yes)?;
        self.cut_locked(&mut trace, reason)
    }

    /// [`StreamTrace::cut_everything`] of a trace that is locked already.
    pub(super) fn cut_locked(&self, trace: &mut Trace, reason: CutReason) -> Result<()> {
        let position = self.next_position();
        trace.fullness.nodes = 0;
        trace.fullness.caps = 0;
        self.boundary.store(trace.handles.next_serial(), Relaxed);
        if self.cut_at(trace, position, reason)? && reason == CutReason::MarkStep {
            self.runtime.end_step();
        }
        trace.fullness.error.take().map_or(Ok(()), Err)
    }

    /// The owner's cut at the end of a training step, by rule 5. What runs at a seam is not the step: it runs where it would
    /// run for another thread.
    pub(super) fn cut_step(&self) -> Result<()> {
        self.refuse_cut(CutReason::MarkStep)?;
        let mut trace = self.lock_computed(u64::MAX, WaitForDevices::Yes)?;
        while let Some(position) = self.seam(&mut trace) {
            self.cut_at(&mut trace, position, CutReason::Seam)?;
        }
        self.cut_locked(&mut trace, CutReason::MarkStep)
    }

    /// The first position after which earlier work ends: something before it is alive, and no later op uses anything
    /// recorded before it.
    fn seam(&self, trace: &mut Trace) -> Option<u64> {
        trace.handles.apply(&self.exchange);
        let (nodes, ran) = (trace.recording.nodes(), trace.ran.nodes);
        let recorded = |node: &&NodeId| node.index() >= ran && !matches!(nodes[node.index()].op, Op::Parameter { .. });
        let earliest_input = |op: &OpRecord| op.inputs.iter().filter(recorded).min().map_or(usize::MAX, |n| n.index());
        let mut earliest = usize::MAX;
        let mut seams = Vec::new();
        for pair in trace.ops[trace.ran.ops..].windows(2).rev() {
            earliest = earliest.min(earliest_input(&pair[1]));
            if earliest >= pair[1].start {
                seams.push(pair[0].position);
            }
        }
        let alive = |position: &u64| trace.handles.iter().any(|handle| handle.alive_after(*position));
        seams.into_iter().rev().find(alive)
    }

    /// Runs what was alive just after `position` as one program and keeps the later ops recorded. A cut that failed
    /// earlier is done first, as the program that it would have been. Returns whether anything ran.
    pub(super) fn cut_at(&self, trace: &mut Trace, position: u64, reason: CutReason) -> Result<bool> {
        if let Err(place) = trace.failed_cuts.binary_search(&position) {
            trace.failed_cuts.insert(place, position);
        }
        let mut ran = false;
        while let Some(next) = trace.failed_cuts.first().copied().filter(|&next| next <= position) {
            if next == position || self.is_still_wanted(trace, next) {
                ran |= self.run_until(trace, next, reason)?;
            }
            trace.failed_cuts.retain(|failed| *failed != next);
        }
        Ok(ran)
    }

    /// Returns whether the work before a cut that failed is still wanted: the owner holds a tensor of it, or a later op
    /// uses one.
    fn is_still_wanted(&self, trace: &mut Trace, failed: u64) -> bool {
        trace.handles.apply(&self.exchange);
        let now = self.position.load(Relaxed);
        if trace.handles.iter().any(|handle| handle.position <= failed && handle.alive_after(now)) {
            return true;
        }
        let (first, nodes) = (trace.ops.partition_point(|op| op.position <= failed), trace.recording.nodes());
        let end = trace.ops[..first].last().map_or(0, |op| op.end);
        let waits = trace.ran.nodes..end;
        let before =
            |node: &NodeId| waits.contains(&node.index()) && !matches!(nodes[node.index()].op, Op::Parameter { .. });
        trace.ops[first..].iter().any(|op| op.inputs.iter().any(before))
    }

    fn run_until(&self, trace: &mut Trace, position: u64, reason: CutReason) -> Result<bool> {
        let counters = self.runtime.counters();
        trace.stats.flush(counters);
        trace.handles.apply(&self.exchange);
        let ops = trace.ops.partition_point(|op| op.position <= position);
        let end = trace.ops[..ops].last().map_or(0, |op| op.end);
        let alive = trace.handles.iter().filter(|handle| handle.alive_after(position));
        let live: Vec<NodeId> = alive.map(|handle| handle.node).collect();
        let ran = !live.is_empty();
        let outcomes = if !ran {
            Outcomes::default()
        } else {
            counters.cut(reason);
            let _span = tracing::debug_span!("cut", device = %self.runtime.device(), ?reason).entered();
            let _profiled = profile::span(Phase::Cut, reason.name());
            if trace.ran.ops == 0 {
                self.run(trace, end, position, live, reason)?
            } else {
                self.run_next(trace, ops, live, reason)?
            }
        };
        if ops == trace.ops.len() {
            self.reset(trace, &outcomes);
        } else if ops > trace.ran.ops {
            self.keep_rest(trace, ops, position, &outcomes);
        }
        Ok(ran)
    }

    /// [`StreamTrace::run`] of the ops after those that ran already, up to number `end`: they are recorded again, into a
    /// trace of their own.
    fn run_next(&self, trace: &mut Trace, end: usize, live: Vec<NodeId>, reason: CutReason) -> Result<Outcomes> {
        let mut next = Trace { tracker: std::mem::take(&mut trace.tracker), ..Trace::default() };
        next.tracker.restart(&mut next.recording);
        let renamed = rerecord_all(&mut next, trace, trace.ran.ops..end);
        next.tracker.resume(&next.recording, with_stack(&next.ops));
        let own = |node: &NodeId| renamed.get(node).copied();
        let count = next.recording.len();
        let last = next.ops.last().map_or(0, |op| op.position);
        let outcomes = self.run(&mut next, count, last, live.iter().filter_map(own).collect(), reason);
        trace.tracker = next.tracker;
        trace.tracker.resume(&trace.recording, with_stack(&trace.ops[end..]));
        let outcomes = outcomes?;
        let (mut outputs, missing) = (live, NodeId(u32::MAX));
        outputs.sort_unstable();
        outputs.dedup();
        let results = outputs.iter().map(|node| outcomes.of(own(node).unwrap_or(missing))).collect();
        Ok(Outcomes { outputs, results, failed: FxHashMap::default() })
    }

    /// Runs the first `end` nodes, which are those of the ops up to `position`, as far as `outputs` need them. Nodes that depend
    /// on a failed buffer fail with its error, and no other does.
    ///
    /// # Errors
    /// Why nothing ran: then the trace is as it was.
    fn run(
        &self,
        trace: &mut Trace,
        end: usize,
        position: u64,
        mut outputs: Vec<NodeId>,
        reason: CutReason,
    ) -> Result<Outcomes> {
        trace.check_computed(position)?;
        let mut failed = failures(trace, end);
        outputs.retain(|node| !failed.contains_key(node));
        outputs.sort_unstable();
        outputs.dedup();
        if outputs.is_empty() {
            return Ok(Outcomes { failed, ..Outcomes::default() });
        }
        if let Some(profile) = profile::active() {
            profile.cut(trace.stacks_by_label(end));
        }
        let provenance = trace.tracker.provenance(trace.lines(end));
        let subgraph = Subgraph { recording: &trace.recording, len: end, outputs, provenance };
        let whole = end == trace.recording.len();
        // Later ops may read the same buffers; a second owner keeps them from being donated.
        let mut copies = if whole { Vec::new() } else { trace.buffers.clone() };
        let buffers = if whole { &mut trace.buffers } else { &mut copies };
        let results = match self.runtime.run(&subgraph, buffers, &trace.slots, &mut trace.tracker, reason) {
            Ok(results) => results.into_iter().map(Ok).collect(),
            Err(RunError::Refused(error)) => return Err(error),
            Err(RunError::Failed(error)) => {
                tracing::error!(%error, "a program failed; its tensors report it when they are read");
                let error = Arc::new(error);
                failed.extend(subgraph.outputs.iter().map(|&node| (node, Arc::clone(&error))));
                Vec::new()
            }
        };
        Ok(Outcomes { outputs: subgraph.outputs, results, failed })
    }

    /// Keeps the ops from number `first` on, as if the cut at `position` had come before them.
    fn keep_rest(&self, trace: &mut Trace, first: usize, position: u64, outcomes: &Outcomes) {
        let values = outcomes.outputs.iter().map(|&node| (node, outcomes.of(node)));
        trace.ran.values.extend(values.chain(outcomes.failed.iter().map(|(&node, error)| (node, Err(error.clone())))));
        (trace.ran.ops, trace.ran.nodes) = (first, trace.ops[..first].last().map_or(0, |op| op.end));
        if trace.recording.len() > 2 * trace.ran.nodes {
            trace.handles.settle(&self.exchange, position, |node| outcomes.of(node), |node| node);
        } else {
            self.rerecord_rest(trace, position, outcomes);
        }
    }

    /// Records the ops that did not run again. What they use of the part that ran are parameters now, in the order in which
    /// the ops name them.
    fn rerecord_rest(&self, trace: &mut Trace, position: u64, outcomes: &Outcomes) {
        let mut old = std::mem::take(trace);
        trace.handles = std::mem::take(&mut old.handles);
        trace.stats = std::mem::take(&mut old.stats);
        trace.tracker = std::mem::take(&mut old.tracker);
        trace.fullness = std::mem::take(&mut old.fullness);
        trace.failed_cuts = std::mem::take(&mut old.failed_cuts);
        trace.tracker.restart(&mut trace.recording);
        let renamed = rerecord_all(trace, &old, old.ran.ops..old.ops.len());
        trace.tracker.resume(&trace.recording, with_stack(&trace.ops));
        let lost = NodeId(u32::MAX);
        let renamed = |node| renamed.get(&node).copied().unwrap_or(lost);
        trace.handles.settle(&self.exchange, position, |node| outcomes.of(node), renamed);
    }
}

/// What the nodes of a cut came to.
#[derive(Default)]
pub(super) struct Outcomes {
    /// The program's outputs, ascending, with their results.
    outputs: Vec<NodeId>,
    results: Vec<Input>,
    /// The nodes that could not be computed.
    failed: FxHashMap<NodeId, Arc<TpuError>>,
}

impl Outcomes {
    pub(super) fn of(&self, node: NodeId) -> Input {
        if let Some(error) = self.failed.get(&node) {
            return Err(error.clone());
        }
        let place = self.outputs.binary_search(&node).ok();
        place.and_then(|place| self.results.get(place)).cloned().unwrap_or_else(|| not_computed(node))
    }
}

impl Trace {
    /// Returns the ops up to node `end` that have a stack, by the labels of their nodes.
    fn stacks_by_label(&self, end: usize) -> impl Iterator<Item = (Label, Stack)> {
        let ops = self.ops.iter().take_while(move |op| op.end <= end).filter(|op| op.start < op.end);
        ops.filter_map(|op| Some((self.recording.label(NodeId(op.start as u32)), op.stack.clone()?)))
    }
}

/// Returns the number of ops that have a stack.
fn with_stack(ops: &[OpRecord]) -> usize {
    ops.iter().filter(|op| op.stack.is_some()).count()
}

fn not_computed(node: NodeId) -> Input {
    Err(Arc::new(TpuError::Bug(format!("a cut did not compute {node}"))))
}

/// Returns the nodes that depend on a buffer that failed, with its error.
fn failures(trace: &Trace, end: usize) -> FxHashMap<NodeId, Arc<TpuError>> {
    let mut failed: FxHashMap<NodeId, Arc<TpuError>> = FxHashMap::default();
    if trace.buffers.iter().all(Input::is_ok) {
        return failed;
    }
    for (i, node) in trace.recording.nodes()[..end].iter().enumerate() {
        let own = match &node.op {
            Op::Parameter { index, .. } => trace.buffers.get(*index as usize).and_then(|buffer| buffer.as_ref().err()),
            _ => node.operands.iter().find_map(|operand| failed.get(operand)),
        };
        if let Some(error) = own.cloned() {
            failed.insert(NodeId(i as u32), error);
        }
    }
    failed
}

/// Records ops of an old trace again, and returns the new names of their nodes.
fn rerecord_all(trace: &mut Trace, old: &Trace, ops: Range<usize>) -> FxHashMap<NodeId, NodeId> {
    let mut renamed = FxHashMap::default();
    for op in &old.ops[ops] {
        if let Err(error) = rerecord(trace, old, op, &mut renamed) {
            // Checked when it was recorded first: its operands have the same types.
            tracing::error!(%error, "an op of a trace could not be recorded again");
        }
    }
    renamed
}

fn rerecord(
    trace: &mut Trace,
    old: &Trace,
    op: &OpRecord,
    renamed: &mut FxHashMap<NodeId, NodeId>,
) -> burn_tpu_graph::Result<()> {
    trace.recording.set_label(if op.start < op.end { old.recording.label(NodeId(op.start as u32)) } else { "" });
    let inputs = op.inputs.iter().map(|&input| match renamed.get(&input) {
        Some(&node) => Ok(node),
        None => {
            let node = trace.parameter(&buffer_of(old, input), old.recording.ty(input))?;
            if let Some(pending) = pending_of(old, input) {
                trace.pending.push(PendingParameter { index: trace.buffers.len() - 1, ..pending.clone() });
            }
            renamed.insert(input, node);
            Ok(node)
        }
    });
    let inputs = inputs.collect::<burn_tpu_graph::Result<_>>()?;
    let start = trace.recording.len();
    for i in op.start..op.end {
        let node = rerecord_node(trace, old, i, renamed)?;
        renamed.insert(NodeId(i as u32), node);
    }
    let end = trace.recording.len();
    trace.ops.push(OpRecord { inputs, start, end, position: op.position, stack: op.stack.clone() });
    Ok(())
}

fn rerecord_node(
    trace: &mut Trace,
    old: &Trace,
    i: usize,
    renamed: &FxHashMap<NodeId, NodeId>,
) -> burn_tpu_graph::Result<NodeId> {
    let node = &old.recording.nodes()[i];
    let operands: Vec<NodeId> = node.operands.iter().map(|operand| renamed[operand]).collect();
    let op = match node.op {
        Op::Slot { index, dtype } => {
            trace.slots.push(old.slots[index as usize]);
            Op::Slot { index: trace.slots.len() as u32 - 1, dtype }
        }
        Op::Offset { index, dtype } => {
            trace.slots.push(old.slots[index as usize]);
            Op::Offset { index: trace.slots.len() as u32 - 1, dtype }
        }
        ref other => other.clone(),
    };
    trace.recording.set_label(old.recording.label(NodeId(i as u32)));
    trace.recording.add(op, &operands)
}

/// The buffer of a node of the part that ran: a parameter of it, or a result.
fn buffer_of(old: &Trace, node: NodeId) -> Input {
    let value = match old.recording.node(node).op {
        Op::Parameter { index, .. } => old.buffers.get(index as usize),
        _ => old.ran.values.get(&node),
    };
    value.cloned().unwrap_or_else(|| not_computed(node))
}

/// Returns the pending parameter that a node is, if it is one.
fn pending_of(old: &Trace, node: NodeId) -> Option<&PendingParameter> {
    let Op::Parameter { index, .. } = old.recording.node(node).op else { return None };
    old.pending.iter().find(|pending| pending.index == index as usize)
}
