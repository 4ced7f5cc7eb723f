//! Masks of padding: the keys of each sequence from its length on.
//!
//! Owns: whether a mask is a comparison of the keys' places with a number for each sequence.

use super::matrix::is_equal;
use super::positions::{self, Positions};
use burn_tpu_graph::op::{Direction, UnaryOp};
use burn_tpu_graph::{Graph, NodeId, Op};

/// The number of keys that the queries of each sequence see: a value plus a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Lengths {
    /// An integer for each sequence, in the order of the batch.
    pub(super) value: NodeId,
    pub(super) plus: i64,
}

/// Returns the lengths from which on a mask is true, or false if it `shows`. `dims` are those of the batch, of the queries
/// and of the keys in the mask, and `batch` is the number of sequences.
pub(super) fn of_mask(
    graph: &Graph,
    mut mask: NodeId,
    mut dims: [Option<usize>; 3],
    batch: usize,
    mut shows: bool,
) -> Option<Lengths> {
    let (direction, sides) = loop {
        let node = graph.node(mask);
        match &node.op {
            Op::Unary(UnaryOp::Not) => shows = !shows,
            Op::BroadcastInDim { .. } | Op::Reshape { .. } | Op::Transpose { .. } => {}
            Op::Compare(direction) => break (*direction, [node.operands[0], node.operands[1]]),
            _ => return None,
        }
        let operand = node.operands[0];
        (mask, dims) = (operand, positions::of_operand(graph, &node.op, operand, dims)?);
    };
    let key = |side: NodeId| match positions::of(graph, side, [dims[1], dims[2]])? {
        Positions::Linear { q: 0, k: 1, plus } => Some(plus),
        _ => None,
    };
    let (plus, other, direction) = match (key(sides[0]), key(sides[1])) {
        (Some(plus), None) => (plus, sides[1], direction),
        (None, Some(plus)) => (plus, sides[0], turned(direction)),
        _ => return None,
    };
    // `key + plus` beside the length.
    let plus = match (direction, shows) {
        (Direction::Ge, false) | (Direction::Lt, true) => -plus,
        (Direction::Gt, false) | (Direction::Le, true) => 1 - plus,
        _ => return None,
    };
    let value = number_of_each(graph, other, dims, batch)?;
    Some(Lengths { value, plus })
}

/// Returns the relation with its sides exchanged.
fn turned(direction: Direction) -> Direction {
    match direction {
        Direction::Lt => Direction::Gt,
        Direction::Le => Direction::Ge,
        Direction::Gt => Direction::Lt,
        Direction::Ge => Direction::Le,
        Direction::Eq | Direction::Ne => direction,
    }
}

/// Returns the value with one element for each sequence that an integer is repeated from.
fn number_of_each(graph: &Graph, mut id: NodeId, mut dims: [Option<usize>; 3], batch: usize) -> Option<NodeId> {
    loop {
        let ty = graph.ty(id);
        let is_of_batch = ty.dims.iter().enumerate().all(|(dim, &size)| size == 1 || Some(dim) == dims[0]);
        if is_of_batch && ty.elements() == batch && ty.dtype.is_int() {
            return Some(id);
        }
        let node = graph.node(id);
        match &node.op {
            Op::BroadcastInDim { .. } | Op::Reshape { .. } | Op::Transpose { .. } => {}
            _ => return None,
        }
        let operand = node.operands[0];
        (id, dims) = (operand, positions::of_operand(graph, &node.op, operand, dims)?);
    }
}

impl Lengths {
    /// Returns whether both are the same numbers.
    pub(super) fn is_same(&self, graph: &Graph, other: &Self) -> bool {
        self.plus == other.plus && is_equal(graph, self.value, other.value, 6)
    }
}
