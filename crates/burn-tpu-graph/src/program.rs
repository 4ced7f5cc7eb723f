//! A program: the part of a graph that its outputs need, and nothing else.
//!
//! [`Program::canonical`] is the form that is compared, rewritten, verified, lowered and hashed for the disk cache. Its
//! nodes, parameters and slots are numbered in the order of their use, so two recordings that differ only in dead nodes, or
//! in the parameters and slots that those read, give the same program.

use crate::summary::{KeptSummary, Summary};
use crate::{Graph, GraphError, Mesh, Node, NodeId, Op, Placement, Rebuild, Result, TensorType};
use rustc_hash::FxHasher;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// A graph with its outputs. All nodes are reachable from the outputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The hash of the other fields, made once: a step looks for its program several times, and has hundreds of outputs.
    hash: u64,
    graph: Graph,
    outputs: Vec<NodeId>,
    /// Where arguments and results live, for a program of a mesh.
    placement: Option<Arc<Placement>>,
    summary: KeptSummary,
}

/// What the inputs of a canonical program are in the recording that it came from, by their `index` in the program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bindings {
    /// The recorded index of each parameter.
    pub parameters: Vec<u32>,
    /// The recorded index of each slot or offset.
    pub slots: Vec<u32>,
    /// The recorded id of each node.
    pub nodes: Vec<NodeId>,
}

impl Bindings {
    /// The op with its index in the program instead of the recorded one.
    fn bind(&mut self, op: &Op) -> Op {
        let next = |inputs: &mut Vec<u32>, recorded: u32| {
            inputs.push(recorded);
            inputs.len() as u32 - 1
        };
        match op {
            Op::Parameter { index, ty } => Op::Parameter { index: next(&mut self.parameters, *index), ty: ty.clone() },
            Op::Slot { index, dtype } => Op::Slot { index: next(&mut self.slots, *index), dtype: *dtype },
            Op::Offset { index, dtype } => Op::Offset { index: next(&mut self.slots, *index), dtype: *dtype },
            other => other.clone(),
        }
    }
}

impl Default for Program {
    fn default() -> Self {
        Self::new(Graph::default(), Vec::new(), None)
    }
}

impl Program {
    fn new(graph: Graph, outputs: Vec<NodeId>, placement: Option<Arc<Placement>>) -> Self {
        let mut hasher = FxHasher::default();
        (graph.hash_at(graph.len()), &outputs, &placement).hash(&mut hasher);
        Self { hash: hasher.finish(), graph, outputs, placement, summary: KeptSummary::default() }
    }

    /// The part of `graph` that `outputs` need. Parameters and slots keep their `index`.
    ///
    /// # Errors
    /// If an output does not exist.
    pub fn extract(graph: &Graph, outputs: &[NodeId]) -> Result<Self> {
        let needed = needed(graph, outputs)?;
        let mut copy = Rebuild::with_capacity(graph, count(&needed));
        for id in graph.ids().filter(|id| needed[id.index()]) {
            copy.copy_as(id, graph.node(id).op.clone())?;
        }
        Self::copied(copy, outputs)
    }

    /// The part of `graph` that `outputs` need, in its canonical form, and what its inputs are in `graph`. Other nodes keep
    /// their order; a parameter comes just before its first use, since a dead node may have been the first to read it.
    ///
    /// # Errors
    /// If an output does not exist.
    pub fn canonical(graph: &Graph, outputs: &[NodeId]) -> Result<(Self, Bindings)> {
        let needed = needed(graph, outputs)?;
        let (mut copy, mut bindings) = (Rebuild::with_capacity(graph, count(&needed)), Bindings::default());
        let is_parameter = |id: &NodeId| matches!(graph.node(*id).op, Op::Parameter { .. });
        let mut add = |id: NodeId| {
            if copy.renamed.get(id).is_some() {
                return Ok(());
            }
            bindings.nodes.push(id);
            copy.copy_as(id, bindings.bind(&graph.node(id).op))
        };
        for id in graph.ids().filter(|id| needed[id.index()] && !is_parameter(id)) {
            for &parameter in graph.node(id).operands.iter().filter(|id| is_parameter(id)) {
                add(parameter)?;
            }
            add(id)?;
        }
        for &output in outputs {
            add(output)?;
        }
        Ok((Self::copied(copy, outputs)?, bindings))
    }

    /// Returns the program of a copy of the nodes that the outputs need.
    fn copied(copy: Rebuild, outputs: &[NodeId]) -> Result<Self> {
        let outputs = copy.renamed.ids(outputs)?.into_vec();
        Ok(Self::new(copy.graph, outputs, None))
    }

    /// A program of parts that nobody checked, for tests of what refuses them.
    #[cfg(test)]
    pub(crate) fn unchecked(nodes: Vec<Node>, outputs: Vec<NodeId>) -> Self {
        Self::new(Graph::unchecked(nodes), outputs, None)
    }

    /// The same program for a mesh, with this placement of its arguments and results.
    pub fn placed(self, placement: impl Into<Arc<Placement>>) -> Self {
        Self::new(self.graph, self.outputs, Some(placement.into()))
    }

    /// The same program for one device.
    pub fn unplaced(self) -> Self {
        Self::new(self.graph, self.outputs, None)
    }

    /// Where arguments and results live; `None` for a program of one device.
    pub fn placement(&self) -> Option<&Arc<Placement>> {
        self.placement.as_ref()
    }

    /// Returns the mesh, if the program runs on several devices.
    pub fn mesh(&self) -> Option<&Mesh> {
        self.placement.as_ref().map(|placement| &placement.mesh).filter(|mesh| mesh.devices() > 1)
    }

    /// The nodes.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// What is asked of the program whenever it runs.
    pub fn summary(&self) -> &Summary {
        self.summary.of(self)
    }

    /// The results, in order.
    pub fn outputs(&self) -> &[NodeId] {
        &self.outputs
    }

    /// The types of the results, in order.
    pub fn output_types(&self) -> impl Iterator<Item = &TensorType> {
        self.outputs.iter().map(|&id| self.graph.ty(id))
    }

    /// The parameters that the program reads: `index` and type, in node order.
    pub fn parameters(&self) -> impl Iterator<Item = (u32, &TensorType)> {
        self.graph.nodes().iter().filter_map(|node| {
            let Op::Parameter { index, ty } = &node.op else { return None };
            Some((*index, ty))
        })
    }

    /// The slots and offsets that the program reads: node, `index` and element type, in node order.
    pub fn slots(&self) -> impl Iterator<Item = (NodeId, u32, crate::DType)> {
        self.graph.nodes().iter().enumerate().filter_map(|(i, node)| match node.op {
            Op::Slot { index, dtype } | Op::Offset { index, dtype } => Some((NodeId(i as u32), index, dtype)),
            _ => None,
        })
    }

    /// Returns a copy in which each node is replaced by the one that `rewrite` adds to the new graph and returns. Nodes that
    /// no output needs any more are dropped. A replacement has the label of what it replaces.
    ///
    /// # Errors
    /// If a replacement breaks an op's rule.
    pub fn rewrite(
        &self,
        mut rewrite: impl FnMut(&mut Graph, NodeId, &Node, &[NodeId]) -> Result<NodeId>,
    ) -> Result<Self> {
        self.rebuild(|new, id| {
            let node = self.graph.node(id);
            let operands = new.renamed.ids(&node.operands)?;
            rewrite(&mut new.graph, id, node, &operands)
        })
    }

    /// Returns what [`Program::rewrite`] does, for replacements that read other old values than the operands.
    ///
    /// # Errors
    /// If a replacement breaks an op's rule.
    pub fn rebuild(&self, mut replace: impl FnMut(&mut Rebuild, NodeId) -> Result<NodeId>) -> Result<Self> {
        let mut new = Rebuild::new(&self.graph);
        for id in self.graph.ids() {
            new.label(id);
            let replacement = replace(&mut new, id)?;
            new.renamed.set(id, replacement);
        }
        new.finish(self)
    }

    /// Returns the number of reads of each node, outputs included.
    pub fn use_counts(&self) -> Vec<u32> {
        use_counts(&self.graph, &self.outputs)
    }
}

/// Returns how often each node of a graph is read: by other nodes, and as an output.
pub fn use_counts(graph: &Graph, outputs: &[NodeId]) -> Vec<u32> {
    let mut counts = vec![0; graph.len()];
    let operands = graph.nodes().iter().flat_map(|node| &node.operands);
    operands.chain(outputs).for_each(|id| counts[id.index()] += 1);
    counts
}

/// Returns for each node whether an output needs it.
fn needed(graph: &Graph, outputs: &[NodeId]) -> Result<Vec<bool>> {
    if let Some(missing) = outputs.iter().find(|id| id.index() >= graph.len()) {
        let rule = "does not exist".into();
        return Err(GraphError { op: "graph.output", operands: missing.to_string(), rule });
    }
    let mut needed = vec![false; graph.len()];
    outputs.iter().for_each(|id| needed[id.index()] = true);
    for (i, node) in graph.nodes().iter().enumerate().rev() {
        if needed[i] {
            node.operands.iter().for_each(|id| needed[id.index()] = true);
        }
    }
    Ok(needed)
}

fn count(needed: &[bool]) -> usize {
    needed.iter().filter(|needed| **needed).count()
}

impl Hash for Program {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.hash.hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::BinaryOp;
    use crate::{Builder, DType, verify};

    /// `(b + offset) * slot + late` after `dead` unused parameters and as many unused slots.
    fn canonical(dead: u32) -> (Program, Bindings) {
        let mut graph = Graph::new();
        let ty = TensorType::new(DType::I32, [2]);
        let mut late = None;
        for index in 0..dead {
            let unused = graph.add(Op::Parameter { index, ty: ty.clone() }, &[]).unwrap();
            let slot = graph.add(Op::Slot { index, dtype: DType::I32 }, &[]).unwrap();
            let slot = graph.broadcast_to(slot, &[2]).unwrap();
            graph.binary(BinaryOp::Add, unused, slot).unwrap();
            late = Some(unused);
        }
        let b = graph.add(Op::Parameter { index: dead, ty: ty.clone() }, &[]).unwrap();
        let offset = graph.add(Op::Offset { index: dead, dtype: DType::I32 }, &[]).unwrap();
        let sum = graph.binary(BinaryOp::Add, b, offset).unwrap();
        let slot = graph.add(Op::Slot { index: dead + 1, dtype: DType::I32 }, &[]).unwrap();
        let scaled = graph.binary(BinaryOp::Mul, sum, slot).unwrap();
        // A parameter that a dead node was the first to read, or that is new.
        let index = dead + 1;
        let late = late.unwrap_or_else(|| graph.add(Op::Parameter { index, ty }, &[]).unwrap());
        let last = graph.binary(BinaryOp::Add, scaled, late).unwrap();
        Program::canonical(&graph, &[last]).unwrap()
    }

    #[test]
    fn dead_nodes_and_their_inputs_do_not_change_the_canonical_form() {
        let (live, bindings) = canonical(0);
        assert_eq!((bindings.parameters, bindings.slots), (vec![0, 1], vec![0, 1]));
        verify(&live).unwrap();
        for dead in 1..3 {
            let (program, bindings) = canonical(dead);
            assert_eq!(program, live);
            assert_eq!(program.stable_hash(), live.stable_hash());
            assert_eq!((bindings.parameters, bindings.slots), (vec![dead, dead - 1], vec![dead, dead + 1]));
            assert_eq!(bindings.nodes.len(), program.graph().len());
        }
    }
}
