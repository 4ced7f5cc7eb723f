//! Cutting a trace: choose what is live, run it as one program, hand the buffers to the tensors, keep the rest recorded.

use super::{ALIVE, Handle, Liveness, OpRecord, Trace, TraceCell};
use crate::engine::SharedBuffer;
use crate::error::{Result, TpuError};
use crate::metrics::CutReason;
use crate::program::Recorded;
use crate::recompile::Watch;
use crate::tensor::{Tensor, Value};
use burn_tpu_graph::{Graph, NodeId, Op};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// A node's outcome.
type Outcome = Result<SharedBuffer>;

impl TraceCell {
    /// Runs everything that is alive. The recording thread's own cut.
    pub(super) fn cut(&self, reason: CutReason) {
        self.cut_locked(&mut self.trace.lock(), reason);
    }

    pub(super) fn cut_locked(&self, trace: &mut Trace, reason: CutReason) {
        trace.tally.flush(self.runtime.counters());
        let serial = self.liveness.lock().next_serial();
        let live = self.live(trace, serial, ALIVE - 1);
        if !live.is_empty() {
            self.runtime.counters().cut(reason);
            let _span = tracing::debug_span!("cut", device = %self.runtime.device(), ?reason).entered();
            let graph = std::mem::take(&mut trace.graph);
            let room = Vec::with_capacity(trace.buffers.len());
            let buffers = std::mem::replace(&mut trace.buffers, room);
            let (outcomes, graph) = self.run(graph, &live, buffers, &trace.slots, &mut trace.watch);
            trace.graph = graph;
            settle(trace, &live, &outcomes);
            if reason == CutReason::MarkStep {
                self.runtime.counters().step();
            }
        }
        self.liveness.lock().restart(serial);
        trace.reset(serial);
    }

    /// Runs everything that is alive, and what does not belong to the newest work as programs of their own.
    ///
    /// A step that begins while another thread has yet to read the outcome of earlier, unconnected work (the last batch
    /// of a validation) must not become another program for it. So earlier work is cut where that reader would cut it:
    /// at the first place with something alive before it that nothing behind it uses.
    pub(super) fn cut_step(&self, reason: CutReason) {
        let mut trace = self.trace.lock();
        while let Some((op, last)) = self.seam(&trace) {
            self.cut_behind(&mut trace, op, last, reason);
        }
        self.cut_locked(&mut trace, reason);
    }

    /// The first op (with the serial of its last handle) behind which earlier work ends: something before is alive, and
    /// no later op uses anything before but buffers.
    fn seam(&self, trace: &Trace) -> Option<(usize, u64)> {
        let node_of = |op: &OpRecord| {
            let recorded = |node: &&NodeId| !matches!(trace.graph.node(**node).op, Op::Parameter { .. });
            op.inputs.iter().filter(recorded).min().map_or(usize::MAX, |node| node.index())
        };
        let mut earliest = usize::MAX;
        let mut seams = Vec::new();
        for (i, op) in trace.ops.iter().enumerate().skip(1).rev() {
            earliest = earliest.min(node_of(op));
            if earliest >= op.start {
                seams.push(i - 1);
            }
        }
        let last_of = |op: usize| {
            let handles = trace.handles.partition_point(|handle| handle.op <= op);
            (trace.first_serial + handles as u64).checked_sub(1)
        };
        let candidates = seams.into_iter().rev().filter_map(|op| last_of(op).map(|last| (op, last)));
        let mut alive = candidates.filter(|&(_, last)| !self.live(trace, last + 1, last).is_empty());
        alive.next()
    }

    /// Runs what was alive just after the op that made the tensor `serial`: another thread's cut.
    pub(super) fn cut_at(&self, serial: u64) {
        let mut trace = self.trace.lock();
        let Some(handle) = trace.handle(serial) else { return };
        let (last, op) = (handle.last_serial, handle.op);
        self.cut_behind(&mut trace, op, last, CutReason::OtherThread);
    }

    /// Runs what was alive just after op number `op`, whose last handle is `last`, and keeps the rest recorded.
    fn cut_behind(&self, trace: &mut Trace, op: usize, last: u64, reason: CutReason) {
        trace.tally.flush(self.runtime.counters());
        self.runtime.counters().cut(reason);
        let _span = tracing::debug_span!("cut", device = %self.runtime.device(), ?reason).entered();
        let live = self.live(trace, last + 1, last);
        let end = trace.ops[op].end;
        let (graph, buffers) = (trace.graph.prefix(end), trace.buffers.clone());
        let (outcomes, _) = self.run(graph, &live, buffers, &trace.slots, &mut trace.watch);
        settle(trace, &live, &outcomes);
        let rest = rebase(trace, op + 1, last + 1, &outcomes);
        self.liveness.lock().restart(last + 1);
        if let Err(error) = rest {
            tracing::error!(%error, "the rest of a trace could not be kept");
        }
    }

    /// Handles before `limit` that died after `bound`, in recording order.
    fn live(&self, trace: &Trace, limit: u64, bound: u64) -> Vec<Live> {
        let liveness = self.liveness.lock();
        let count = (limit - trace.first_serial) as usize;
        let handles = trace.handles.iter().take(count).zip(&liveness.deaths).enumerate();
        handles
            .filter(|(_, (_, death))| **death > bound)
            .map(|(index, (handle, _))| Live { index, node: handle.node })
            .collect()
    }

    /// Runs the nodes that `live` needs as one program. Nodes that depend on a failed buffer fail with its error, and
    /// nothing else does. Gives back the graph's memory.
    fn run(
        &self,
        graph: Graph,
        live: &[Live],
        buffers: Vec<Outcome>,
        slots: &[u64],
        watch: &mut Watch,
    ) -> (FxHashMap<NodeId, Outcome>, Graph) {
        let mut outcomes = poisoned(&graph, &buffers);
        let mut outputs: Vec<NodeId> = live.iter().map(|live| live.node).collect();
        outputs.retain(|node| !outcomes.contains_key(node));
        outputs.sort_unstable();
        outputs.dedup();
        if outputs.is_empty() {
            return (outcomes, graph);
        }
        let recorded = Recorded { graph, outputs };
        match self.runtime.run(&recorded, buffers, slots, watch) {
            Ok(results) => outcomes.extend(recorded.outputs.iter().copied().zip(results.into_iter().map(Ok))),
            Err(error) => {
                tracing::error!(%error, "a program failed; its tensors report it when they are read");
                outcomes.extend(recorded.outputs.iter().map(|&node| (node, Err(error.clone()))));
            }
        }
        (outcomes, recorded.graph)
    }
}

/// A handle whose value the cut must leave behind.
struct Live {
    index: usize,
    node: NodeId,
}

impl Liveness {
    /// Forgets the handles before `first`.
    fn restart(&mut self, first: u64) {
        let gone = (first - self.first) as usize;
        self.deaths.drain(..gone.min(self.deaths.len()));
        self.first = first;
        self.alive = self.deaths.iter().filter(|&&death| death == ALIVE).count();
    }
}

/// Gives each live tensor its buffer or its error.
fn settle(trace: &Trace, live: &[Live], outcomes: &FxHashMap<NodeId, Outcome>) {
    for Live { index, node } in live {
        let Some(inner) = trace.handles[*index].tensor.upgrade() else { continue };
        let outcome = outcomes.get(node).cloned();
        let missing = || Err(TpuError::Bug(format!("no result for {node}")));
        let value = outcome.unwrap_or_else(missing).map_or_else(Value::Failed, Value::Ready);
        Tensor::from_inner(inner).set_value(value);
    }
}

/// The nodes that depend on a buffer that failed, with its error.
fn poisoned(graph: &Graph, buffers: &[Outcome]) -> FxHashMap<NodeId, Outcome> {
    let mut poisoned = FxHashMap::default();
    if buffers.iter().all(Result::is_ok) {
        return poisoned;
    }
    for (i, node) in graph.nodes().iter().enumerate() {
        let own = match &node.op {
            Op::Parameter { index, .. } => buffers.get(*index as usize).filter(|buffer| buffer.is_err()),
            _ => node.operands.iter().find_map(|operand| poisoned.get(operand)),
        };
        if let Some(error) = own.cloned() {
            poisoned.insert(NodeId(i as u32), error);
        }
    }
    poisoned
}

/// Records the ops from `first_op` on again, as if the cut had come before them: what they use of the part that ran are
/// now parameters, in the order in which the ops name them.
fn rebase(
    trace: &mut Trace,
    first_op: usize,
    first_serial: u64,
    outcomes: &FxHashMap<NodeId, Outcome>,
) -> burn_tpu_graph::Result<()> {
    let mut old = std::mem::take(trace);
    trace.first_serial = first_serial;
    trace.tally = std::mem::take(&mut old.tally);
    trace.watch = std::mem::take(&mut old.watch);
    trace.watch.restart(&mut trace.graph);
    let mut renamed = FxHashMap::default();
    for op in &old.ops[first_op..] {
        let inputs = op.inputs.iter().map(|&input| match renamed.get(&input) {
            Some(&node) => Ok(node),
            None => {
                let node = trace.parameter(buffer_of(&old, input, outcomes), old.graph.ty(input))?;
                renamed.insert(input, node);
                Ok(node)
            }
        });
        let inputs = inputs.collect::<burn_tpu_graph::Result<_>>()?;
        let start = trace.graph.len();
        for i in op.start..op.end {
            let node = readd(trace, &old, i, &renamed)?;
            renamed.insert(NodeId(i as u32), node);
        }
        let end = trace.graph.len();
        trace.ops.push(OpRecord { inputs, start, end });
    }
    trace.watch.rerecorded(&trace.graph);
    let kept = old.handles.into_iter().skip((first_serial - old.first_serial) as usize);
    trace.handles =
        kept.map(|handle| Handle { node: renamed[&handle.node], op: handle.op - first_op, ..handle }).collect();
    Ok(())
}

fn readd(
    trace: &mut Trace,
    old: &Trace,
    i: usize,
    renamed: &FxHashMap<NodeId, NodeId>,
) -> burn_tpu_graph::Result<NodeId> {
    let node = &old.graph.nodes()[i];
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
    trace.graph.set_label(old.graph.label(NodeId(i as u32)));
    trace.graph.add(op, &operands)
}

/// The buffer behind a node of the part that ran: a parameter of it, or a result.
fn buffer_of(old: &Trace, node: NodeId, outcomes: &FxHashMap<NodeId, Outcome>) -> Outcome {
    let parameter = match old.graph.node(node).op {
        Op::Parameter { index, .. } => old.buffers.get(index as usize),
        _ => None,
    };
    let missing = || Err(TpuError::Bug(format!("{node} was used behind a cut that did not compute it")));
    parameter.or_else(|| outcomes.get(&node)).cloned().unwrap_or_else(missing)
}

const _: fn() = || {
    fn shared<T: Send + Sync>() {}
    shared::<Arc<TraceCell>>();
};
