//! Cutting a trace at a position: choose what is live, run it as one program, hand the buffers to the tensors, keep the
//! rest recorded. The rules are those of `trace`'s header.

use super::recorded::{RecordedOps, Renamed, not_computed, starts, with_stack};
use super::{StreamTrace, Trace, WaitForDevices};
use crate::engine::Input;
use crate::error::{Result, TpuError};
use crate::metrics::CutReason;
use crate::profile::{self, Phase};
use crate::program::Subgraph;
use crate::recompile::DivergenceTracker;
use crate::runtime::RunError;
use burn_tpu_graph::NodeId;
use rustc_hash::FxHashMap;
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
        trace.cap.restart();
        self.boundary.store(trace.handles.next_serial(), Relaxed);
        if self.cut_at(trace, position, reason)? && reason == CutReason::MarkStep {
            self.runtime.end_step();
        }
        trace.cap.error.take().map_or(Ok(()), Err)
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

    /// Returns the first position after which earlier work ends: something before it is alive, and no later op uses anything
    /// recorded before it.
    fn seam(&self, trace: &mut Trace) -> Option<u64> {
        trace.handles.apply(&self.tensors);
        let seams = trace.recorded.seams();
        seams.into_iter().rev().find(|&position| trace.handles.are_alive_after(position))
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
        trace.handles.apply(&self.tensors);
        let now = self.position.load(Relaxed);
        let is_held = trace.handles.iter().any(|handle| handle.position <= failed && handle.alive_after(now));
        is_held || trace.recorded.is_used_after(failed)
    }

    fn run_until(&self, trace: &mut Trace, position: u64, reason: CutReason) -> Result<bool> {
        trace.stats.flush(self.runtime.open().counters());
        trace.handles.apply(&self.tensors);
        let live = trace.handles.alive_nodes(position);
        let has_work = !live.is_empty();
        let results = if has_work { self.run_live(trace, position, live, reason)? } else { CutResults::default() };
        let ops = trace.recorded.ops_until(position);
        if ops == trace.recorded.ops.len() {
            self.reset(trace, &results);
        } else if ops > trace.recorded.executed.ops {
            self.keep_rest(trace, ops, position, &results);
        }
        Ok(has_work)
    }

    /// Runs the ops up to a position as far as `live` needs them.
    ///
    /// # Errors
    /// Why nothing ran: then the trace is as it was.
    fn run_live(&self, trace: &mut Trace, position: u64, live: Vec<NodeId>, reason: CutReason) -> Result<CutResults> {
        self.runtime.open().counters().cut(reason);
        let _span = tracing::debug_span!("cut", device = %self.runtime.open().device(), ?reason).entered();
        let _profiled = profile::span(Phase::Cut, reason.name());
        let Trace { recorded, tracker, .. } = trace;
        if recorded.executed.ops == 0 {
            self.run(recorded, tracker, position, live, reason)
        } else {
            self.run_next(recorded, tracker, position, live, reason)
        }
    }

    /// [`StreamTrace::run`] of the ops after those that ran already: they are recorded again, for this run.
    fn run_next(
        &self,
        recorded: &RecordedOps,
        tracker: &mut DivergenceTracker,
        position: u64,
        live: Vec<NodeId>,
        reason: CutReason,
    ) -> Result<CutResults> {
        let mut next = RecordedOps::default();
        tracker.restart(&mut next.recording);
        let end = recorded.ops_until(position);
        let renamed = next.rerecord(recorded, recorded.executed.ops..end);
        tracker.resume(&next.recording, with_stack(&next.ops));
        let outputs = live.iter().filter_map(|node| renamed.get(node).copied()).collect();
        let results = self.run(&mut next, tracker, position, outputs, reason);
        tracker.resume(&recorded.recording, with_stack(&recorded.ops[end..]));
        Ok(results?.of_renamed(live, &renamed))
    }

    /// Runs the ops up to a position as far as `outputs` need them. Nodes that depend on a failed buffer fail with its
    /// error, and no other does.
    ///
    /// # Errors
    /// Why nothing ran: then the recorded ops are as they were.
    fn run(
        &self,
        recorded: &mut RecordedOps,
        tracker: &mut DivergenceTracker,
        position: u64,
        mut outputs: Vec<NodeId>,
        reason: CutReason,
    ) -> Result<CutResults> {
        recorded.check_computed(position)?;
        let ops = recorded.ops_until(position);
        let end = recorded.nodes_until(ops);
        let mut failed = recorded.failures(end);
        outputs.retain(|node| !failed.contains_key(node));
        outputs.sort_unstable();
        outputs.dedup();
        if outputs.is_empty() {
            return Ok(CutResults { failed, ..CutResults::default() });
        }
        if let Some(profile) = profile::active() {
            profile.cut(recorded.stacks_by_label(end));
        }
        let provenance = tracker.provenance(recorded.lines(end));
        let subgraph = Subgraph { recording: &recorded.recording, len: end, outputs, provenance };
        // Later ops may read the same buffers; a second owner keeps them from being donated.
        let mut copies = if end == recorded.recording.len() { None } else { Some(recorded.buffers.clone()) };
        let buffers = copies.as_mut().unwrap_or(&mut recorded.buffers);
        let starts = || starts(&recorded.ops[..ops], &recorded.initial);
        let results = match self.runtime.run(&subgraph, buffers, &recorded.slots, tracker, (reason, &starts)) {
            Ok(results) => results.into_iter().map(Ok).collect(),
            Err(RunError::Refused(error)) => return Err(error),
            Err(RunError::Failed(error)) => {
                tracing::error!(%error, "a program failed; its tensors report it when they are read");
                let error = Arc::new(error);
                failed.extend(subgraph.outputs.iter().map(|&node| (node, Arc::clone(&error))));
                Vec::new()
            }
        };
        Ok(CutResults { outputs: subgraph.outputs, results, failed })
    }

    /// Keeps the ops from number `first` on, as if the cut at `position` had come before them. They are recorded again once
    /// more ops ran than wait.
    fn keep_rest(&self, trace: &mut Trace, first: usize, position: u64, results: &CutResults) {
        let Trace { recorded, handles, tracker, .. } = trace;
        recorded.executed.nodes = recorded.nodes_until(first);
        recorded.executed.ops = first;
        recorded.executed.values.extend(results.iter());
        if recorded.recording.len() > 2 * recorded.executed.nodes {
            handles.settle(&self.tensors, position, |node| results.of(node), |node| node);
            return;
        }
        let old = std::mem::take(recorded);
        tracker.restart(&mut recorded.recording);
        let renamed = recorded.rerecord(&old, first..old.ops.len());
        tracker.resume(&recorded.recording, with_stack(&recorded.ops));
        let lost = NodeId(u32::MAX);
        let new_node = |node| renamed.get(&node).copied().unwrap_or(lost);
        handles.settle(&self.tensors, position, |node| results.of(node), new_node);
    }
}

/// The results of a cut: the values of its nodes, and the errors of those that were not computed.
#[derive(Default)]
pub(super) struct CutResults {
    /// The program's outputs, ascending, with their results.
    outputs: Vec<NodeId>,
    results: Vec<Input>,
    failed: FxHashMap<NodeId, Arc<TpuError>>,
}

impl CutResults {
    /// Returns the result of a node.
    pub(super) fn of(&self, node: NodeId) -> Input {
        if let Some(error) = self.failed.get(&node) {
            return Err(error.clone());
        }
        let place = self.outputs.binary_search(&node).ok();
        place.and_then(|place| self.results.get(place)).cloned().unwrap_or_else(|| not_computed(node))
    }

    /// Returns the nodes with their results.
    fn iter(&self) -> impl Iterator<Item = (NodeId, Input)> {
        let failed = self.failed.iter().map(|(&node, error)| (node, Err(Arc::clone(error))));
        self.outputs.iter().map(|&node| (node, self.of(node))).chain(failed)
    }

    /// Returns the results of nodes that ran under new names.
    fn of_renamed(&self, mut nodes: Vec<NodeId>, renamed: &Renamed) -> Self {
        nodes.sort_unstable();
        nodes.dedup();
        let mut results = Vec::with_capacity(nodes.len());
        for node in &nodes {
            results.push(renamed.get(node).map_or_else(|| not_computed(*node), |&new| self.of(new)));
        }
        Self { outputs: nodes, results, failed: FxHashMap::default() }
    }
}
