//! Recorded ops, with the nodes, buffers and numbers that they refer to.
//!
//! A cut consumes them: the ops after it are recorded again, as if the cut had come before them. Everything of a trace that
//! outlives a cut stands in [`super::Trace`].
//!
//! Owns: the ops of a trace by position, and recording them again. May not know: which tensors are alive, nor how ops run.

use super::pending::PendingParameter;
use crate::engine::Input;
use crate::error::TpuError;
use crate::lines::{OpLines, Stack};
use crate::recording::Recording;
use burn_tpu_graph::{Builder, Label, NodeId, Op, Result, Starts, TensorType};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::Arc;

/// The ops that a trace recorded and no cut has consumed.
#[derive(Default)]
pub(super) struct RecordedOps {
    pub(super) recording: Recording,
    /// Buffers read by parameter nodes, by parameter index; a failed one fails what uses it.
    pub(super) buffers: Vec<Input>,
    /// The parameter node of a buffer, by the buffer's address (alive while `buffers` holds it).
    parameters: FxHashMap<usize, NodeId>,
    /// Bits of the run-time scalars, by slot index.
    pub(super) slots: Vec<u64>,
    /// Oldest first.
    pub(super) ops: Vec<OpRecord>,
    pub(super) executed: ExecutedOps,
    /// Parameters that had no value when they were used, by ascending position.
    pub(super) pending: Vec<PendingParameter>,
    /// The values that a training step begins with, as far as they are recorded here.
    pub(super) initial: Vec<NodeId>,
}

/// The nodes of one recorded op: `[start, end)`, composed of themselves and `inputs` alone.
pub(super) struct OpRecord {
    pub(super) inputs: SmallVec<[NodeId; 3]>,
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) position: u64,
    /// The stack that recorded it, if that was captured.
    pub(super) stack: Option<Stack>,
}

/// The ops that ran and are still in their trace. A loader's thread records batches ahead, and another thread has them run
/// one by one. So the ops after such a cut stay where they are, until more ran than wait: each op is copied a few times at
/// most, however far ahead the loader is.
#[derive(Default)]
pub(super) struct ExecutedOps {
    /// The number of these ops.
    pub(super) ops: usize,
    /// The number of nodes up to the end of the last of them.
    pub(super) nodes: usize,
    /// The values of the tensors that were alive after them.
    pub(super) values: FxHashMap<NodeId, Input>,
}

/// The new nodes of nodes that were recorded again.
pub(super) type Renamed = FxHashMap<NodeId, NodeId>;

impl RecordedOps {
    /// Removes everything, and keeps the memory. The recording is restarted by who knows what it follows.
    pub(super) fn clear(&mut self) {
        let Self { recording: _, buffers, parameters, slots, ops, executed, pending, initial } = self;
        buffers.clear();
        parameters.clear();
        slots.clear();
        ops.clear();
        *executed = ExecutedOps::default();
        pending.clear();
        initial.clear();
    }

    /// Returns the parameter node of a buffer; one buffer has one node however often it is used.
    pub(super) fn parameter(&mut self, buffer: &Input, ty: &TensorType) -> Result<NodeId> {
        let address = buffer.as_ref().map(|buffer| Arc::as_ptr(buffer).addr()).ok();
        if let Some(&node) = address.and_then(|address| self.parameters.get(&address)) {
            return Ok(node);
        }
        let index = self.buffers.len() as u32;
        let node = self.recording.add(Op::Parameter { index, ty: ty.clone() }, &[])?;
        self.buffers.push(buffer.clone());
        if let Some(address) = address {
            self.parameters.insert(address, node);
        }
        Ok(node)
    }

    /// Returns the number of ops up to a position.
    pub(super) fn ops_until(&self, position: u64) -> usize {
        self.ops.partition_point(|op| op.position <= position)
    }

    /// Returns the number of nodes up to the end of the first `ops` ops.
    pub(super) fn nodes_until(&self, ops: usize) -> usize {
        self.ops[..ops].last().map_or(0, |op| op.end)
    }

    /// Returns the stacks of the ops up to node `end`.
    pub(super) fn lines(&self, end: usize) -> OpLines {
        let ops = self.ops.iter().take_while(|op| op.end <= end);
        OpLines::of_ops(ops.map(|op| (op.end, op.stack.as_ref())))
    }

    /// Returns the ops up to node `end` that have a stack, by the labels of their nodes.
    pub(super) fn stacks_by_label(&self, end: usize) -> impl Iterator<Item = (Label, Stack)> {
        let ops = self.ops.iter().take_while(move |op| op.end <= end).filter(|op| op.start < op.end);
        ops.filter_map(|op| Some((self.recording.label(NodeId(op.start as u32)), op.stack.clone()?)))
    }

    /// Returns the positions after which no op uses anything that was recorded before and has not run, latest first.
    pub(super) fn seams(&self) -> Vec<u64> {
        let mut seams = Vec::new();
        let mut earliest = usize::MAX;
        for pair in self.ops[self.executed.ops..].windows(2).rev() {
            let [before, op] = pair else { continue };
            for &input in op.inputs.iter().filter(|&&input| self.waits_for_cut(input)) {
                earliest = earliest.min(input.index());
            }
            if earliest >= op.start {
                seams.push(before.position);
            }
        }
        seams
    }

    /// Returns whether an op after `position` uses anything that was recorded before and has not run.
    pub(super) fn is_used_after(&self, position: u64) -> bool {
        let ops = self.ops_until(position);
        let end = self.nodes_until(ops);
        let mut inputs = self.ops[ops..].iter().flat_map(|op| &op.inputs);
        inputs.any(|&input| input.index() < end && self.waits_for_cut(input))
    }

    /// Returns whether a node is computed by an op that has not run.
    fn waits_for_cut(&self, node: NodeId) -> bool {
        node.index() >= self.executed.nodes && !matches!(self.recording.node(node).op, Op::Parameter { .. })
    }

    /// Returns the nodes up to `end` that depend on a buffer that failed, with its error.
    pub(super) fn failures(&self, end: usize) -> FxHashMap<NodeId, Arc<TpuError>> {
        let mut failed: FxHashMap<NodeId, Arc<TpuError>> = FxHashMap::default();
        if self.buffers.iter().all(Input::is_ok) {
            return failed;
        }
        for (i, node) in self.recording.nodes()[..end].iter().enumerate() {
            let error = match &node.op {
                Op::Parameter { index, .. } => {
                    self.buffers.get(*index as usize).and_then(|buffer| buffer.as_ref().err())
                }
                _ => node.operands.iter().find_map(|operand| failed.get(operand)),
            };
            if let Some(error) = error.cloned() {
                failed.insert(NodeId(i as u32), error);
            }
        }
        failed
    }

    /// Records ops of an older recording again, and returns the new nodes. What they use of the ops that ran are parameters
    /// now, in the order in which the ops name them.
    pub(super) fn rerecord(&mut self, old: &Self, ops: Range<usize>) -> Renamed {
        let mut renamed = Renamed::default();
        for op in &old.ops[ops] {
            if let Err(error) = self.rerecord_op(old, op, &mut renamed) {
                // Checked when it was recorded first: its operands have the same types.
                tracing::error!(%error, "an op of a trace could not be recorded again");
            }
        }
        self.initial.extend(old.initial.iter().filter_map(|node| renamed.get(node)));
        renamed
    }

    fn rerecord_op(&mut self, old: &Self, op: &OpRecord, renamed: &mut Renamed) -> Result<()> {
        self.recording.set_label(if op.start < op.end { old.recording.label(NodeId(op.start as u32)) } else { "" });
        let mut inputs = SmallVec::new();
        for &input in &op.inputs {
            inputs.push(self.rerecord_input(old, input, renamed)?);
        }
        let start = self.recording.len();
        for i in op.start..op.end {
            let node = self.rerecord_node(old, i, renamed)?;
            renamed.insert(NodeId(i as u32), node);
        }
        self.ops.push(OpRecord {
            inputs,
            start,
            end: self.recording.len(),
            position: op.position,
            stack: op.stack.clone(),
        });
        Ok(())
    }

    /// Returns the new node of an op's input, which becomes a parameter unless it was recorded again.
    fn rerecord_input(&mut self, old: &Self, input: NodeId, renamed: &mut Renamed) -> Result<NodeId> {
        if let Some(&node) = renamed.get(&input) {
            return Ok(node);
        }
        let node = self.parameter(&old.buffer(input), old.recording.ty(input))?;
        if let Some(pending) = old.pending_parameter_of(input) {
            self.pending.push(PendingParameter { index: self.buffers.len() - 1, ..pending.clone() });
        }
        renamed.insert(input, node);
        Ok(node)
    }

    fn rerecord_node(&mut self, old: &Self, i: usize, renamed: &Renamed) -> Result<NodeId> {
        let node = &old.recording.nodes()[i];
        let operands: Vec<NodeId> = node.operands.iter().map(|operand| renamed[operand]).collect();
        let op = match node.op {
            Op::Slot { index, dtype } => Op::Slot { index: self.add_slot(old.slots[index as usize]), dtype },
            Op::Offset { index, dtype } => Op::Offset { index: self.add_slot(old.slots[index as usize]), dtype },
            ref other => other.clone(),
        };
        self.recording.set_label(old.recording.label(NodeId(i as u32)));
        self.recording.add(op, &operands)
    }

    /// Adds a run-time scalar, and returns its index.
    pub(super) fn add_slot(&mut self, bits: u64) -> u32 {
        self.slots.push(bits);
        self.slots.len() as u32 - 1
    }

    /// Returns the buffer of a parameter, or of a result of an op that ran.
    fn buffer(&self, node: NodeId) -> Input {
        let buffer = match self.recording.node(node).op {
            Op::Parameter { index, .. } => self.buffers.get(index as usize),
            _ => self.executed.values.get(&node),
        };
        buffer.cloned().unwrap_or_else(|| not_computed(node))
    }

    /// Returns the pending parameter that a node is, if it is one.
    fn pending_parameter_of(&self, node: NodeId) -> Option<&PendingParameter> {
        let Op::Parameter { index, .. } = self.recording.node(node).op else { return None };
        self.pending.iter().find(|pending| pending.index == index as usize)
    }
}

/// Returns the nodes of ops that a first program may begin with. `initial` are those that a step begins with.
pub(super) fn starts(ops: &[OpRecord], initial: &[NodeId]) -> Starts {
    let creates = |op: &&OpRecord| op.inputs.is_empty() && op.start < op.end;
    let created = ops.iter().filter(creates).map(|op| NodeId(op.end as u32 - 1)).collect();
    Starts { initial: initial.to_vec(), created, ..Starts::default() }
}

/// Returns the number of ops that have a stack.
pub(super) fn with_stack(ops: &[OpRecord]) -> usize {
    ops.iter().filter(|op| op.stack.is_some()).count()
}

/// Returns the error for a node without a value after a cut.
pub(super) fn not_computed(node: NodeId) -> Input {
    Err(Arc::new(TpuError::Bug(format!("a cut did not compute {node}"))))
}
