//! A program: the part of a graph that its outputs need, renumbered, and nothing else.
//!
//! This is the canonical form that is rewritten, verified, lowered and hashed for the disk cache: two recordings that differ
//! only in dead nodes give the same program.

use crate::{Graph, GraphError, Node, NodeId, Op, Result, TensorType};
use std::hash::{Hash, Hasher};

/// A graph with its outputs. All nodes are reachable from the outputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    graph: Graph,
    outputs: Vec<NodeId>,
}

impl Program {
    /// The part of `graph` that `outputs` need. Parameters and slots keep their `index`.
    ///
    /// # Errors
    /// If an output does not exist.
    pub fn extract(graph: &Graph, outputs: &[NodeId]) -> Result<Self> {
        if let Some(missing) = outputs.iter().find(|id| id.index() >= graph.len()) {
            return Err(GraphError {
                op: "graph.output",
                operands: missing.to_string(),
                rule: "does not exist".into(),
            });
        }
        let mut needed = vec![false; graph.len()];
        outputs.iter().for_each(|id| needed[id.index()] = true);
        for (i, node) in graph.nodes().iter().enumerate().rev() {
            if needed[i] {
                node.operands.iter().for_each(|id| needed[id.index()] = true);
            }
        }
        Self::rebuild(graph, outputs, |i| needed[i])
    }

    fn rebuild(graph: &Graph, outputs: &[NodeId], keep: impl Fn(usize) -> bool) -> Result<Self> {
        let mut kept = Graph::new();
        let mut renamed = vec![NodeId(u32::MAX); graph.len()];
        for (i, node) in graph.nodes().iter().enumerate().filter(|(i, _)| keep(*i)) {
            let operands: Vec<_> = node.operands.iter().map(|id| renamed[id.index()]).collect();
            kept.set_label(graph.label(NodeId(i as u32)));
            renamed[i] = kept.add(node.op.clone(), &operands)?;
        }
        let outputs = outputs.iter().map(|id| renamed[id.index()]).collect();
        Ok(Self { graph: kept, outputs })
    }

    /// A program of parts that nobody checked, for tests of what refuses them.
    #[cfg(test)]
    pub(crate) fn unchecked(nodes: Vec<Node>, outputs: Vec<NodeId>) -> Self {
        Self { graph: Graph::unchecked(nodes), outputs }
    }

    /// The nodes.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The results, in order.
    pub fn outputs(&self) -> &[NodeId] {
        &self.outputs
    }

    /// The types of the results, in order.
    pub fn output_types(&self) -> impl Iterator<Item = &TensorType> {
        self.outputs.iter().map(|&id| self.graph.ty(id))
    }

    /// The parameters that the program reads: `index` among the trace's buffers, and type, in node order.
    pub fn parameters(&self) -> impl Iterator<Item = (u32, &TensorType)> {
        self.graph.nodes().iter().filter_map(|node| {
            let Op::Parameter { index, ty } = &node.op else { return None };
            Some((*index, ty))
        })
    }

    /// The slots and offsets that the program reads: node, `index` among the trace's slots and element type, in node order.
    pub fn slots(&self) -> impl Iterator<Item = (NodeId, u32, crate::DType)> {
        self.graph.nodes().iter().enumerate().filter_map(|(i, node)| match node.op {
            Op::Slot { index, dtype } | Op::Offset { index, dtype } => Some((NodeId(i as u32), index, dtype)),
            _ => None,
        })
    }

    /// A copy whose nodes went through `rewrite`, which adds its replacement for each node to the new graph and says
    /// which node that is. What nothing needs any more is dropped. Replacements inherit the label of what they replace.
    ///
    /// # Errors
    /// If a replacement breaks an op's rule.
    pub fn rewrite(
        &self,
        mut rewrite: impl FnMut(&mut Graph, NodeId, &Node, &[NodeId]) -> Result<NodeId>,
    ) -> Result<Self> {
        let mut graph = Graph::new();
        let mut renamed: Vec<NodeId> = Vec::with_capacity(self.graph.len());
        for (i, node) in self.graph.nodes().iter().enumerate() {
            let operands: Vec<_> = node.operands.iter().map(|id| renamed[id.index()]).collect();
            graph.set_label(self.graph.label(NodeId(i as u32)));
            renamed.push(rewrite(&mut graph, NodeId(i as u32), node, &operands)?);
        }
        let outputs: Vec<_> = self.outputs.iter().map(|id| renamed[id.index()]).collect();
        Self::extract(&graph, &outputs)
    }

    /// How often each node is read, outputs included.
    pub fn use_counts(&self) -> Vec<u32> {
        let mut counts = vec![0; self.graph.len()];
        let operands = self.graph.nodes().iter().flat_map(|node| &node.operands);
        operands.chain(&self.outputs).for_each(|id| counts[id.index()] += 1);
        counts
    }
}

impl Hash for Program {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.graph.hash_at(self.graph.len()).hash(state);
        self.outputs.hash(state);
    }
}
