//! The nodes of a trace, recorded as a step that was seen before for as long as they are the same.
//!
//! A training step is recorded again and again. So a recording follows earlier ones: as long as each node that is added is
//! the next one of an earlier recording, nothing is inferred, hashed or copied, and adding is a comparison. The first other
//! node makes it a graph of its own. What is recorded does not depend on what is followed.

use burn_tpu_graph::{Builder, Graph, Label, Node, NodeId, Op, Result};
use std::sync::Arc;

/// The nodes of a trace.
#[derive(Default)]
pub(crate) struct Recording {
    /// The nodes, unless a graph is followed.
    own: Graph,
    /// Earlier recordings that begin like this one. The last of them is followed: its first `len` nodes are the recording.
    followed: Vec<Arc<Graph>>,
    len: usize,
    label: Label,
    /// The graph that was followed last, when none is left to follow.
    left: Option<Arc<Graph>>,
}

impl Builder for Recording {
    fn add(&mut self, op: Op, operands: &[NodeId]) -> Result<NodeId> {
        if !self.followed.is_empty() && self.step(&op, operands) {
            self.len += 1;
            return Ok(NodeId(self.len as u32 - 1));
        }
        self.own.set_label(self.label);
        self.own.add(op, operands)
    }

    fn nodes(&self) -> &[Node] {
        match self.following() {
            Some(graph) => &graph.nodes()[..self.len],
            None => self.own.nodes(),
        }
    }

    fn current_label(&self) -> Label {
        self.label
    }
}

impl Recording {
    /// Returns whether the next node of a followed graph is this one. A graph of which that is not true is followed no
    /// longer; when none is left, the nodes become the recording's own.
    fn step(&mut self, op: &Op, operands: &[NodeId]) -> bool {
        let len = self.len;
        let next_is =
            |graph: &Graph| graph.nodes().get(len).is_some_and(|node| node.op == *op && node.operands[..] == *operands);
        let Some(current) = self.followed.last() else { return false };
        if next_is(current) {
            return true;
        }
        let current = Arc::clone(current);
        let still = |graph: &&Arc<Graph>| next_is(graph) && graph.nodes()[..len] == current.nodes()[..len];
        let place = self.followed.iter().rposition(|graph| still(&graph));
        self.followed.truncate(place.map_or(0, |place| place + 1));
        if place.is_none() {
            self.len = 0;
            self.own.become_prefix(&current, len);
            self.left = Some(current);
        }
        place.is_some()
    }

    /// Removes all nodes, and follows these graphs from now on, the first of those that fit.
    pub(crate) fn restart<'a>(&mut self, graphs: impl DoubleEndedIterator<Item = &'a Arc<Graph>>) {
        self.own.clear();
        self.followed.clear();
        self.followed.extend(graphs.rev().cloned());
        self.len = 0;
        self.label = "";
        self.left = None;
    }

    /// Returns the graph that was followed last, when none is left to follow.
    pub(crate) fn left(&self) -> Option<&Arc<Graph>> {
        self.left.as_ref()
    }

    /// Returns the graph that is followed, if one is.
    pub(crate) fn following(&self) -> Option<&Arc<Graph>> {
        self.followed.last()
    }

    /// Returns the number of nodes.
    pub(crate) fn len(&self) -> usize {
        if self.followed.is_empty() { self.own.len() } else { self.len }
    }

    /// Labels the nodes that are added from now on.
    pub(crate) fn set_label(&mut self, label: Label) {
        self.label = label;
    }

    /// Returns the label of a node.
    pub(crate) fn label(&self, id: NodeId) -> Label {
        self.graph().label(id)
    }

    /// Returns the structural hash of the first `len` nodes.
    pub(crate) fn hash_at(&self, len: usize) -> u64 {
        self.graph().hash_at(len)
    }

    /// Returns the first `len` nodes as a graph: the followed one itself if that is all of it.
    pub(crate) fn to_graph(&self, len: usize) -> Arc<Graph> {
        match self.following() {
            Some(graph) if graph.len() == len => Arc::clone(graph),
            _ => Arc::new(self.graph().prefix(len)),
        }
    }

    /// The graph whose first `len` nodes are the recording.
    pub(crate) fn graph(&self) -> &Graph {
        self.following().map_or(&self.own, Arc::as_ref)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn_tpu_graph::op::{BinaryOp, UnaryOp};
    use burn_tpu_graph::{DType, TensorType};

    /// `x + x`, then these functions of it, one after another.
    fn record(recording: &mut Recording, then: &[UnaryOp]) -> NodeId {
        let ty = TensorType::new(DType::F32, [2, 3]);
        let x = recording.add(Op::Parameter { index: 0, ty }, &[]).unwrap();
        let sum = recording.binary(BinaryOp::Add, x, x).unwrap();
        then.iter().fold(sum, |y, &op| recording.unary(op, y).unwrap())
    }

    fn recorded(then: &[UnaryOp]) -> Recording {
        let mut recording = Recording::default();
        recording.set_label("first");
        record(&mut recording, then);
        recording
    }

    const LONG: [UnaryOp; 2] = [UnaryOp::Exp, UnaryOp::Tanh];
    const OTHER: [UnaryOp; 2] = [UnaryOp::Exp, UnaryOp::Log];

    /// Records while following `seen`, and checks that the outcome is what would have been recorded alone.
    fn following(seen: &[&[UnaryOp]], then: &[UnaryOp]) -> Recording {
        let graphs: Vec<_> = seen.iter().map(|then| recorded(then)).map(|r| r.to_graph(r.len())).collect();
        let (mut recording, alone) = (Recording::default(), recorded(then));
        recording.restart(graphs.iter());
        recording.set_label("again");
        let last = record(&mut recording, then);
        assert_eq!(recording.nodes(), alone.nodes());
        assert_eq!((last.index() + 1, recording.len(), recording.ty(last)), (alone.len(), alone.len(), alone.ty(last)));
        assert_eq!(recording.label(NodeId(0)), if seen.is_empty() { "again" } else { "first" });
        for len in 0..=recording.len() {
            let (graph, expected) = (recording.to_graph(len), alone.to_graph(len));
            assert_eq!((&graph, graph.hash_at(len)), (&expected, alone.hash_at(len)));
        }
        recording
    }

    #[test]
    fn a_recording_follows_the_first_graph_that_fits() {
        assert!(following(&[&LONG], &LONG).following().is_some());
        assert!(following(&[&OTHER, &LONG], &LONG).following().is_some());
        assert!(following(&[&[], &OTHER, &LONG], &LONG).following().is_some());
        // A part of a graph is followed up to its end.
        assert!(following(&[&LONG], &LONG[..1]).following().is_some());
    }

    #[test]
    fn a_recording_that_leaves_every_graph_is_its_own() {
        assert!(following(&[], &LONG).following().is_none());
        assert!(following(&[&OTHER], &LONG).following().is_none());
        assert!(following(&[&OTHER, &LONG[..1], &[]], &LONG).following().is_none());
        let mut recording = following(&[&OTHER], &LONG);
        recording.restart(std::iter::empty());
        assert!(recording.nodes().is_empty() && recording.hash_at(0) == 0);
    }

    #[test]
    fn a_followed_node_that_breaks_a_rule_is_refused() {
        let mut recording = Recording::default();
        recording.restart([recorded(&LONG).to_graph(4)].iter());
        assert!(recording.add(Op::Unary(UnaryOp::Exp), &[NodeId(0)]).is_err());
        assert!(recording.nodes().is_empty());
    }
}
