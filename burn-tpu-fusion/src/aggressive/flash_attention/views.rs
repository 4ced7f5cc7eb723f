//! What is data beside the scores: masks and biases that are read from arrays.
//!
//! Owns: along which dims of the scores such a value varies, the value without the other dims, and the conditions that a
//! mask is made of. May not know: what the scores are.

use super::matrix::is_equal;
use super::positions::of_operand;
use burn_tpu_graph::op::{BinaryOp, UnaryOp};
use burn_tpu_graph::{Builder, Graph, GraphError, NodeId, Op};

/// The dims of a value that are the batch, the heads, the queries and the keys; `None` where it does not vary.
pub(super) type Dims4 = [Option<usize>; 4];

/// The number of nodes that one question may look at. Masks that people write need a few dozen.
const MOST_NODES: u32 = 512;

/// A value, and along which of its dims it varies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct View {
    pub(super) value: NodeId,
    dims: Dims4,
}

impl View {
    /// Creates the view of a value with these dims, without what repeats it.
    pub(super) fn new(graph: &Graph, mut value: NodeId, mut dims: Dims4) -> Self {
        loop {
            let node = graph.node(value);
            let moved = match &node.op {
                Op::BroadcastInDim { .. } | Op::Reshape { .. } | Op::Transpose { .. } => {
                    of_operand(graph, &node.op, node.operands[0], dims)
                }
                _ => None,
            };
            match moved {
                Some(moved) => (value, dims) = (node.operands[0], moved),
                None => break,
            }
        }
        let mut left = MOST_NODES;
        let varies = varies(graph, value, dims, &mut left);
        let dims = std::array::from_fn(|role| dims[role].filter(|_| varies[role]));
        Self { value, dims }
    }

    /// Returns whether both are the same elements in the same places.
    pub(super) fn is_same(&self, graph: &Graph, other: &Self) -> bool {
        self.dims == other.dims && is_equal(graph, self.value, other.value, 6)
    }

    /// Returns the sizes of the dims, 1 where it does not vary.
    pub(super) fn sizes(&self, graph: &Graph) -> [usize; 4] {
        let dims = &graph.ty(self.value).dims;
        self.dims.map(|dim| dim.map_or(1, |dim| dims[dim]))
    }

    /// Adds the elements as `[batch, heads, queries, keys]`, with size 1 where they do not vary, to a graph with the value.
    pub(super) fn add(&self, graph: &mut Graph, mut value: NodeId) -> Result<NodeId, GraphError> {
        let sizes = self.dims.map(|dim| dim.map_or(1, |dim| graph.ty(value).dims[dim]));
        let kept: Vec<usize> = self.dims.iter().flatten().copied().collect();
        let dropped: Vec<usize> = (0..graph.rank(value)).filter(|dim| !kept.contains(dim)).collect();
        for &dim in &dropped {
            value = graph.slice_dim(value, dim, 0, 1)?;
        }
        let ordered = graph.transpose(value, &[kept, dropped].concat())?;
        graph.reshape(ordered, &sizes)
    }
}

/// Returns along which of its dims a value may vary.
fn varies(graph: &Graph, id: NodeId, dims: Dims4, left: &mut u32) -> [bool; 4] {
    let node = graph.node(id);
    let all = dims.map(|dim| dim.is_some_and(|dim| node.ty.dims[dim] != 1));
    let Some(rest) = left.checked_sub(1) else { return all };
    *left = rest;
    match &node.op {
        Op::Constant(literal) if literal.splat().is_some() => [false; 4],
        Op::Iota { dim, .. } => std::array::from_fn(|role| all[role] && dims[role] == Some(*dim)),
        Op::BroadcastInDim { .. }
        | Op::Reshape { .. }
        | Op::Transpose { .. }
        | Op::Convert { .. }
        | Op::Unary(_)
        | Op::Binary(_)
        | Op::Compare(_)
        | Op::Select => {
            let mut any = [false; 4];
            for &operand in &node.operands {
                let Some(dims) = of_operand(graph, &node.op, operand, dims) else { return all };
                let own = varies(graph, operand, dims, left);
                any = std::array::from_fn(|role| any[role] || own[role]);
            }
            any
        }
        _ => all,
    }
}

/// A condition on scores: a value of bool with the dims of the scores, and whether it is true for those that are seen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Condition {
    pub(super) value: NodeId,
    pub(super) dims: Dims4,
    pub(super) shows: bool,
}

impl Condition {
    /// Splits the condition into conditions that each hide scores without the others.
    pub(super) fn alone(self, graph: &Graph) -> Vec<Self> {
        let (mut waiting, mut found) = (vec![self], Vec::new());
        while let Some(condition) = waiting.pop() {
            let node = graph.node(condition.value);
            let of = |place: usize| Self { value: node.operands[place], ..condition };
            let is_full = waiting.len() + found.len() >= MOST_NODES as usize;
            match &node.op {
                _ if is_full => found.push(condition),
                Op::Unary(UnaryOp::Not) => waiting.push(Self { shows: !condition.shows, ..of(0) }),
                Op::Binary(BinaryOp::Or) if !condition.shows => waiting.extend([of(0), of(1)]),
                Op::Binary(BinaryOp::And) if condition.shows => waiting.extend([of(0), of(1)]),
                Op::BroadcastInDim { .. } | Op::Reshape { .. } | Op::Transpose { .. } => {
                    match of_operand(graph, &node.op, node.operands[0], condition.dims) {
                        Some(dims) => waiting.push(Self { dims, ..of(0) }),
                        None => found.push(condition),
                    }
                }
                _ => found.push(condition),
            }
        }
        found
    }
}
