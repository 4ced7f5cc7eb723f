//! The graph: an arena of nodes in the order in which they were recorded, with a hash kept along.
//!
//! Invariants: an operand's id is below its user's; every node passed `infer` when it was added. The hash at a
//! length covers ops (with all attributes) and operand ids of the nodes before it, nothing else: no values, no addresses,
//! no labels.
//!
//! A training step is recorded again and again. So a graph can follow arenas that were recorded before: as long as each node
//! that is added is the next one of an arena, it is that arena up to there, and adding is a comparison: no
//! inference, no hash, no copy. The first other node makes it an arena of its own.

use crate::error::{GraphError, Result};
use crate::{Op, TensorType, infer};
use rustc_hash::FxHasher;
use smallvec::SmallVec;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

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

/// What a node was recorded for, for people: the framework's op, as `float_matmul`. Empty when nobody said.
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

    /// The type of a result, if the node has so many.
    pub fn result_type(&self, index: usize) -> Option<&TensorType> {
        if index == 0 { Some(&self.ty) } else { self.more.get(index - 1) }
    }
}

/// Recorded nodes, for graphs to follow.
#[derive(Clone, Default)]
pub struct Arena {
    nodes: Vec<Node>,
    /// The structural hash behind each node.
    hashes: Vec<u64>,
    /// What each node was recorded for. Never part of a graph's identity.
    labels: Vec<Label>,
    hasher: FxHasher,
}

impl Arena {
    fn push(&mut self, node: Node, label: Label) -> NodeId {
        node.op.hash(&mut self.hasher);
        node.operands.hash(&mut self.hasher);
        self.hashes.push(self.hasher.finish());
        self.labels.push(label);
        let id = NodeId(self.nodes.len() as u32);
        self.nodes.push(node);
        id
    }

    /// The first `len` nodes as an arena of their own, with the hash they had when recording was there.
    fn prefix(&self, len: usize) -> Self {
        let mut prefix = Self::default();
        for (node, label) in self.nodes[..len].iter().zip(&self.labels) {
            prefix.push(node.clone(), label);
        }
        prefix
    }

    fn clear(&mut self) {
        self.nodes.clear();
        self.hashes.clear();
        self.labels.clear();
        self.hasher = FxHasher::default();
    }
}

/// Nodes in recording order. See the module's documentation for what always holds.
#[derive(Clone, Default)]
pub struct Graph {
    own: Arena,
    /// What may be followed. The graph is the last one's first `len` nodes, and `own` is empty, unless there is none.
    followed: Vec<Arc<Arena>>,
    len: usize,
    label: Label,
}

/// Two graphs are equal when their nodes are: this is what a cache compares behind equal hashes.
impl PartialEq for Graph {
    fn eq(&self, other: &Self) -> bool {
        let same_arena = std::ptr::eq(self.arena(), other.arena());
        self.len() == other.len() && (same_arena || self.nodes() == other.nodes())
    }
}

impl Eq for Graph {}

impl std::fmt::Debug for Graph {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.nodes()).finish()
    }
}

impl Graph {
    /// An empty graph.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a node after checking its operands against the op's rule.
    ///
    /// # Errors
    /// Names the op, the operand types and the broken rule.
    pub fn add(&mut self, op: Op, operands: &[NodeId]) -> Result<NodeId> {
        if !self.followed.is_empty() && self.step(&op, operands) {
            self.len += 1;
            return Ok(NodeId(self.len as u32 - 1));
        }
        let (first, more) = {
            let types = self.operand_types(&op, operands)?;
            infer::infer(self, &op, operands, &types)?
        };
        let node = Node { op, operands: Operands::from_slice(operands), ty: first, more };
        Ok(self.own.push(node, self.label))
    }

    /// Whether the next node of a followed arena is this one. Arenas of which that is not true are followed no longer; when
    /// none is left, what was followed becomes the graph's own.
    fn step(&mut self, op: &Op, operands: &[NodeId]) -> bool {
        let len = self.len;
        let next_is =
            |arena: &Arena| arena.nodes.get(len).is_some_and(|node| node.op == *op && node.operands[..] == *operands);
        let Some(current) = self.followed.last() else { return false };
        if next_is(current) {
            return true;
        }
        let current = Arc::clone(current);
        let still = |arena: &&Arc<Arena>| next_is(arena) && arena.nodes[..len] == current.nodes[..len];
        let place = self.followed.iter().rposition(|arena| still(&arena));
        self.followed.truncate(place.map_or(0, |place| place + 1));
        if place.is_none() {
            self.len = 0;
            self.own = current.prefix(len);
        }
        place.is_some()
    }

    /// Makes an empty graph follow these arenas, the first of those that fit.
    pub fn follow<'a>(&mut self, arenas: impl DoubleEndedIterator<Item = &'a Arc<Arena>>) {
        debug_assert!(self.is_empty(), "only an empty graph can begin to follow");
        self.followed.clear();
        self.followed.extend(arenas.rev().cloned());
    }

    /// The arena that is followed, if one is.
    pub fn following(&self) -> Option<&Arc<Arena>> {
        self.followed.last()
    }

    /// The nodes as an arena for others to follow.
    pub fn to_arena(&self) -> Arc<Arena> {
        match self.following() {
            Some(arena) if arena.nodes.len() == self.len => Arc::clone(arena),
            _ => Arc::new(self.arena().prefix(self.len())),
        }
    }

    /// The graph of a whole arena.
    pub fn of(arena: Arc<Arena>) -> Self {
        Self { len: arena.nodes.len(), followed: vec![arena], ..Self::default() }
    }

    /// The first `len` nodes as a graph of their own, with the hash they had when recording was there.
    ///
    /// # Panics
    /// If there are fewer.
    pub fn prefix(&self, len: usize) -> Self {
        assert!(len <= self.len(), "a graph of {} nodes has no first {len}", self.len());
        Self { own: self.arena().prefix(len), ..Self::default() }
    }

    fn arena(&self) -> &Arena {
        self.followed.last().map_or(&self.own, Arc::as_ref)
    }

    /// Labels the nodes that are added from now on.
    pub fn set_label(&mut self, label: Label) {
        self.label = label;
    }

    /// What a node was recorded for.
    ///
    /// # Panics
    /// If the id is not of this graph.
    pub fn label(&self, id: NodeId) -> Label {
        self.arena().labels[id.index()]
    }

    /// An empty graph that labels its nodes as this one does.
    pub(crate) fn inner(&self) -> Self {
        Self { label: self.label, ..Self::default() }
    }

    fn operand_types(&self, op: &Op, operands: &[NodeId]) -> Result<SmallVec<[&TensorType; 3]>> {
        let mut types = SmallVec::new();
        for id in operands {
            let Some(node) = self.nodes().get(id.index()) else {
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
            graph.own.push(node, "");
        }
        graph
    }

    /// The nodes in recording order.
    pub fn nodes(&self) -> &[Node] {
        &self.arena().nodes[..self.len()]
    }

    /// One node.
    ///
    /// # Panics
    /// If the id is not of this graph.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes()[id.index()]
    }

    /// The type of a node's result 0.
    ///
    /// # Panics
    /// If the id is not of this graph.
    pub fn ty(&self, id: NodeId) -> &TensorType {
        &self.node(id).ty
    }

    /// The number of nodes.
    pub fn len(&self) -> usize {
        if self.followed.is_empty() { self.own.nodes.len() } else { self.len }
    }

    /// Whether there is no node.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The structural hash of the first `len` nodes.
    pub fn hash_at(&self, len: usize) -> u64 {
        if len == 0 { 0 } else { self.hashes()[len - 1] }
    }

    /// The structural hash behind each node.
    pub fn hashes(&self) -> &[u64] {
        &self.arena().hashes[..self.len()]
    }

    /// Removes all nodes and keeps the memory.
    pub fn clear(&mut self) {
        self.own.clear();
        self.followed.clear();
        self.len = 0;
        self.label = "";
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;
    use crate::op::{BinaryOp, UnaryOp};

    /// `x + x`, then these functions of it, one after another.
    fn record(graph: &mut Graph, then: &[UnaryOp]) -> NodeId {
        let ty = TensorType::new(DType::F32, [2, 3]);
        let x = graph.add(Op::Parameter { index: 0, ty }, &[]).unwrap();
        let sum = graph.binary(BinaryOp::Add, x, x).unwrap();
        then.iter().fold(sum, |y, &op| graph.unary(op, y).unwrap())
    }

    fn recorded(then: &[UnaryOp]) -> Graph {
        let mut graph = Graph::new();
        graph.set_label("first");
        record(&mut graph, then);
        graph
    }

    const LONG: [UnaryOp; 2] = [UnaryOp::Exp, UnaryOp::Tanh];
    const OTHER: [UnaryOp; 2] = [UnaryOp::Exp, UnaryOp::Log];

    /// What is recorded while following `seen` is what would have been recorded alone. Says how it ended.
    fn following(seen: &[&[UnaryOp]], then: &[UnaryOp]) -> Graph {
        let arenas: Vec<_> = seen.iter().map(|then| recorded(then).to_arena()).collect();
        let (mut graph, alone) = (Graph::new(), recorded(then));
        graph.follow(arenas.iter());
        graph.set_label("again");
        let last = record(&mut graph, then);
        assert_eq!((&graph, graph.hashes()), (&alone, alone.hashes()));
        assert_eq!((last.index() + 1, graph.len(), graph.ty(last)), (alone.len(), alone.len(), alone.ty(last)));
        assert_eq!(graph.label(NodeId(0)), if seen.is_empty() { "again" } else { "first" });
        for len in 0..graph.len() {
            let prefix = graph.prefix(len);
            assert_eq!((prefix.nodes(), prefix.hash_at(len)), (&alone.nodes()[..len], alone.hash_at(len)));
        }
        assert_eq!(Graph::of(graph.to_arena()), alone);
        graph
    }

    #[test]
    fn a_graph_follows_the_first_arena_that_fits() {
        assert!(following(&[&LONG], &LONG).following().is_some());
        assert!(following(&[&OTHER, &LONG], &LONG).following().is_some());
        assert!(following(&[&[], &OTHER, &LONG], &LONG).following().is_some());
        // A part of an arena is followed up to its end.
        assert!(following(&[&LONG], &LONG[..1]).following().is_some());
    }

    #[test]
    fn a_graph_that_leaves_every_arena_is_its_own() {
        assert!(following(&[], &LONG).following().is_none());
        assert!(following(&[&OTHER], &LONG).following().is_none());
        assert!(following(&[&OTHER, &LONG[..1], &[]], &LONG).following().is_none());
        let mut graph = following(&[&OTHER], &LONG);
        graph.clear();
        assert!(graph.is_empty() && graph.nodes().is_empty() && graph.hash_at(0) == 0);
    }

    #[test]
    fn a_followed_node_that_breaks_a_rule_is_refused() {
        let mut graph = Graph::new();
        graph.follow([recorded(&LONG).to_arena()].iter());
        assert!(graph.add(Op::Unary(UnaryOp::Exp), &[NodeId(0)]).is_err());
        assert!(graph.is_empty());
    }
}
