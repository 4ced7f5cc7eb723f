//! The graph: an arena of nodes in the order in which they were recorded, with a hash kept along.
//!
//! Invariants: an operand's id is below its user's; every node passed `infer` when it was added. The hash at a
//! length covers ops (with all attributes) and operand ids of the nodes before it, nothing else: no values, no addresses,
//! no labels.

use crate::error::{GraphError, Result};
use crate::{Builder, Op, TensorType, infer};
use rustc_hash::FxHasher;
use smallvec::SmallVec;
use std::hash::{Hash, Hasher};

/// A node's place in its graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u32);

impl NodeId {
    /// The place as an index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl std::fmt::Display for NodeId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "%{}", self.0)
    }
}

/// The framework op that a node was recorded for, as `float_matmul`: for people. Empty where it is unknown.
pub type Label = &'static str;

/// The operands of a node.
pub type Operands = SmallVec<[NodeId; 3]>;

/// One operation with its operands and the types of its results.
#[derive(Clone, Debug)]
pub struct Node {
    /// The operation and its attributes.
    pub op: Op,
    /// What it is applied to.
    pub operands: Operands,
    /// The type of result 0.
    pub ty: TensorType,
    /// The types of the further results; empty for nearly every op.
    pub more: Vec<TensorType>,
}

/// Types follow from op and operands, so equal ops and operands mean equal nodes.
impl PartialEq for Node {
    fn eq(&self, other: &Self) -> bool {
        self.op == other.op && self.operands == other.operands
    }
}

/// Arcs of programs compare by address first, since equality is reflexive.
impl Eq for Node {}

impl Node {
    /// The number of results.
    pub fn results(&self) -> usize {
        1 + self.more.len()
    }

    /// The types of all results, in order.
    pub fn result_types(&self) -> impl Iterator<Item = &TensorType> {
        std::iter::once(&self.ty).chain(&self.more)
    }

    /// The type of a result, if the node has so many.
    pub fn result_type(&self, index: usize) -> Option<&TensorType> {
        if index == 0 { Some(&self.ty) } else { self.more.get(index - 1) }
    }
}

/// Nodes in recording order. The module's documentation states what always holds.
#[derive(Clone, Default)]
pub struct Graph {
    nodes: Vec<Node>,
    /// The structural hash after each node.
    hashes: Vec<u64>,
    /// The label of each node. Never part of a graph's identity.
    labels: Vec<Label>,
    label: Label,
}

/// Two graphs are equal when their nodes are: this is what a cache compares when hashes are equal.
impl PartialEq for Graph {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other) || self.nodes == other.nodes
    }
}

impl Eq for Graph {}

impl std::fmt::Debug for Graph {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(&self.nodes).finish()
    }
}

impl Builder for Graph {
    fn add(&mut self, op: Op, operands: &[NodeId]) -> Result<NodeId> {
        let (ty, more) = {
            let types = self.operand_types(&op, operands)?;
            infer::infer(self, &op, operands, &types)?
        };
        Ok(self.push(Node { op, operands: Operands::from_slice(operands), ty, more }, self.label))
    }

    fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    fn current_label(&self) -> Label {
        self.label
    }
}

impl Graph {
    /// An empty graph.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty graph with room for this many nodes.
    pub(crate) fn with_capacity(nodes: usize) -> Self {
        let (nodes, hashes, labels) = (Vec::with_capacity(nodes), Vec::with_capacity(nodes), Vec::with_capacity(nodes));
        Self { nodes, hashes, labels, ..Self::default() }
    }

    /// Adds a node whose types are known, such as one of another graph.
    pub(crate) fn push(&mut self, node: Node, label: Label) -> NodeId {
        let mut hasher = FxHasher::default();
        (self.hash_at(self.nodes.len()), &node.op, &node.operands).hash(&mut hasher);
        self.hashes.push(hasher.finish());
        self.labels.push(label);
        let id = NodeId(self.nodes.len() as u32);
        self.nodes.push(node);
        id
    }

    /// Returns the first `len` nodes as a graph of their own, with the hash that this one had at that length.
    ///
    /// # Panics
    /// If there are fewer.
    pub fn prefix(&self, len: usize) -> Self {
        let mut prefix = Self::new();
        prefix.become_prefix(self, len);
        prefix
    }

    /// Replaces all nodes by the first `len` of another graph, as [`Graph::prefix`], and keeps the memory.
    ///
    /// # Panics
    /// If there are fewer.
    pub fn become_prefix(&mut self, of: &Self, len: usize) {
        self.clear();
        self.nodes.extend_from_slice(&of.nodes[..len]);
        self.hashes.extend_from_slice(&of.hashes[..len]);
        self.labels.extend_from_slice(&of.labels[..len]);
    }

    /// Labels the nodes that are added from now on.
    pub fn set_label(&mut self, label: Label) {
        self.label = label;
    }

    /// Returns the label of a node.
    ///
    /// # Panics
    /// If the id is not of this graph.
    pub fn label(&self, id: NodeId) -> Label {
        self.labels[id.index()]
    }

    fn operand_types(&self, op: &Op, operands: &[NodeId]) -> Result<SmallVec<[&TensorType; 3]>> {
        let mut types = SmallVec::new();
        for id in operands {
            let Some(node) = self.nodes.get(id.index()) else {
                return Err(GraphError::new(op.mnemonic(), &types, format!("operand {id} does not exist")));
            };
            types.push(&node.ty);
        }
        let (least, most) = op.arity();
        if operands.len() < least || operands.len() > most {
            let takes = match most {
                usize::MAX => format!("{least} or more"),
                _ => most.to_string(),
            };
            let rule = format!("takes {takes} operands, got {}", operands.len());
            return Err(GraphError::new(op.mnemonic(), &types, rule));
        }
        Ok(types)
    }

    /// A graph of nodes that nobody checked, for tests of what refuses them.
    #[cfg(test)]
    pub(crate) fn unchecked(nodes: Vec<Node>) -> Self {
        let mut graph = Self::new();
        for node in nodes {
            graph.push(node, "");
        }
        graph
    }

    /// The nodes in recording order.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The ids of the nodes in recording order.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = NodeId> + use<> {
        (0..self.nodes.len() as u32).map(NodeId)
    }

    /// One node.
    ///
    /// # Panics
    /// If the id is not of this graph.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// The type of a node's result 0.
    ///
    /// # Panics
    /// If the id is not of this graph.
    pub fn ty(&self, id: NodeId) -> &TensorType {
        &self.node(id).ty
    }

    /// Returns the number of nodes.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Returns whether there is no node.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The structural hash of the first `len` nodes.
    pub fn hash_at(&self, len: usize) -> u64 {
        if len == 0 { 0 } else { self.hashes[len - 1] }
    }

    /// The structural hash after each node.
    pub fn hashes(&self) -> &[u64] {
        &self.hashes
    }

    /// Removes all nodes and keeps the memory.
    pub fn clear(&mut self) {
        self.nodes.clear();
        self.hashes.clear();
        self.labels.clear();
        self.label = "";
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;
    use crate::op::{BinaryOp, UnaryOp};

    /// `exp(x + x)`.
    fn recorded(label: Label) -> Graph {
        let mut graph = Graph::new();
        graph.set_label(label);
        let ty = TensorType::new(DType::F32, [2, 3]);
        let x = graph.add(Op::Parameter { index: 0, ty }, &[]).unwrap();
        let sum = graph.binary(BinaryOp::Add, x, x).unwrap();
        graph.unary(UnaryOp::Exp, sum).unwrap();
        graph
    }

    #[test]
    fn labels_are_no_part_of_a_graphs_identity() {
        let (a, b) = (recorded("a"), recorded("b"));
        assert_eq!((&a, a.hashes()), (&b, b.hashes()));
        assert_ne!(a.label(NodeId(0)), b.label(NodeId(0)));
    }

    #[test]
    fn a_prefix_has_the_hash_of_its_length() {
        let whole = recorded("");
        for len in 0..=whole.len() {
            let prefix = whole.prefix(len);
            assert_eq!((prefix.nodes(), prefix.hash_at(len)), (&whole.nodes()[..len], whole.hash_at(len)));
        }
    }

    #[test]
    fn a_cleared_graph_records_as_a_new_one_does() {
        let mut graph = recorded("");
        graph.clear();
        assert!(graph.is_empty() && graph.hash_at(0) == 0);
        let ty = TensorType::new(DType::F32, [2, 3]);
        graph.add(Op::Parameter { index: 0, ty }, &[]).unwrap();
        assert_eq!(graph.hash_at(1), recorded("").hash_at(1));
        assert!(graph.add(Op::Unary(UnaryOp::Exp), &[NodeId(7)]).is_err());
        assert_eq!(graph.len(), 1);
    }
}
