//! How values flow through a program: which belong together, and where dim 0 of an argument goes.

use crate::op::{AxisRule, OpKind};
use crate::{Graph, Node, NodeId, Op, Program};

/// The uses of each value, and the values that belong together.
pub(super) struct Flow<'p> {
    program: &'p Program,
    /// The users of each node, with the position of the operand.
    users: Vec<Vec<(NodeId, usize)>>,
    /// For each node an earlier one that it belongs to, or itself.
    earlier: Vec<NodeId>,
}

/// What a program does with dim 0 of an argument.
pub(super) struct Uses {
    /// The nodes whose dim 0 it is, the argument included.
    pub(super) reached: Vec<NodeId>,
    /// It stays dim 0 through an op that combines the value with others of another shape.
    pub(super) is_batch: bool,
    /// It is contracted, moved or taken apart.
    pub(super) leaves: bool,
}

impl<'p> Flow<'p> {
    pub(super) fn of(program: &'p Program) -> Self {
        let graph = program.graph();
        let mut flow = Self {
            program,
            users: vec![Vec::new(); graph.len()],
            earlier: (0..graph.len() as u32).map(NodeId).collect(),
        };
        for (node, id) in graph.nodes().iter().zip((0..).map(NodeId)) {
            for (position, &operand) in node.operands.iter().enumerate() {
                flow.users[operand.index()].push((id, position));
            }
            for &operand in same_elements(node) {
                let (ty, op) = (graph.ty(operand), &graph.node(operand).op);
                if ty.dims == node.ty.dims && !is_leaf(op) {
                    flow.join(operand, id);
                }
            }
        }
        flow
    }

    fn join(&mut self, a: NodeId, b: NodeId) {
        let (a, b) = (self.first_of(a), self.first_of(b));
        self.earlier[a.max(b).index()] = a.min(b);
        // Shorter ways for the nodes that come next.
        self.earlier[b.index()] = a.min(b);
    }

    /// Returns the first of the values that a value belongs to.
    pub(super) fn first_of(&self, mut id: NodeId) -> NodeId {
        while self.earlier[id.index()] != id {
            id = self.earlier[id.index()];
        }
        id
    }

    /// Follows dim 0 of a node through the program.
    pub(super) fn uses_of_first_dim(&self, start: NodeId) -> Uses {
        let graph = self.program.graph();
        let mut uses = Uses { reached: vec![start], is_batch: false, leaves: false };
        let mut seen = vec![false; graph.len()];
        seen[start.index()] = true;
        let mut next = 0;
        while let Some(&id) = uses.reached.get(next) {
            next += 1;
            for &(user, position) in &self.users[id.index()] {
                let node = graph.node(user);
                let mut kept_by = Some(user);
                if matches!(node.op, Op::For { .. }) {
                    // What a loop does with it is not known, but a batch that it carries comes out as one.
                    uses.leaves = true;
                    kept_by = self.carried(user, position);
                } else if !keeps_first_dim(graph, node, position) {
                    uses.leaves = true;
                    kept_by = None;
                }
                let Some(kept_by) = kept_by else { continue };
                uses.is_batch |= combines(&node.op);
                if !std::mem::replace(&mut seen[kept_by.index()], true) {
                    uses.reached.push(kept_by);
                }
            }
        }
        uses
    }

    /// Returns the node of what a loop leaves of its carry at `position`, if something reads it.
    fn carried(&self, of: NodeId, position: usize) -> Option<NodeId> {
        let graph = self.program.graph();
        let is_result = |id: NodeId| matches!(graph.node(id).op, Op::GetResult { index } if index == position);
        let mut readers = self.users[of.index()].iter().map(|&(reader, _)| reader);
        if position == 0 { Some(of) } else { readers.find(|&reader| is_result(reader)) }
    }
}

/// Returns whether the value has no placement of its own: the compiler makes each part where it is needed.
fn is_leaf(op: &Op) -> bool {
    matches!(op, Op::BroadcastInDim { .. }) || (op.is_leaf() && !matches!(op, Op::Parameter { .. }))
}

/// Returns whether an op that keeps dim 0 of an operand shows that it is a batch dim.
fn combines(op: &Op) -> bool {
    matches!(op.kind(), OpKind::Contraction | OpKind::Lookup) || matches!(op, Op::BroadcastInDim { .. })
}

/// Returns the operands that the result is computed from element by element.
fn same_elements(node: &Node) -> &[NodeId] {
    match node.op.kind() {
        OpKind::Update => &node.operands[..1],
        _ if node.op.is_elementwise() => &node.operands,
        _ => &[],
    }
}

/// Returns whether dim 0 of the operand at `position` is dim 0 of the result, row by row, and the rows are of a batch: those
/// of a second factor or of a table are not, nor is what an update writes.
fn keeps_first_dim(graph: &Graph, node: &Node, position: usize) -> bool {
    let is_of_batch = match &node.op {
        Op::CustomCall(call) => {
            return call.parts().is_some_and(|parts| parts.keeps_first_dim(position))
                || plain_keeps_first_dim(call.plain(), position);
        }
        Op::GetResult { .. } => return node.ty.dims.first() == graph.ty(node.operands[0]).dims.first(),
        Op::DotGeneral(attrs) => position == 0 || !attrs.rhs_batch.is_empty(),
        Op::Gather(attrs) => position > 0 || attrs.operand_batching_dims.contains(&0),
        op => position == 0 || !matches!(op.kind(), OpKind::Contraction | OpKind::Update),
    };
    is_of_batch
        && match graph.axis_rules(node, position).first() {
            Some(AxisRule::Kept(to)) => *to == 0,
            // Rows stay together when dim 0 is merged with the dims after it, or taken apart.
            Some(AxisRule::Regrouped { from, to }) => {
                (from.start, to.start) == (0, 0) && (from.len() == 1 || to.len() == 1)
            }
            // An update at a computed start replaces rows, and leaves the others where they are.
            Some(AxisRule::Addressed(_)) => node.op == Op::DynamicUpdateSlice,
            _ => false,
        }
}

/// Returns whether dim 0 of this parameter of a plain form stays whole and is that of the first result.
fn plain_keeps_first_dim(plain: &Program, position: usize) -> bool {
    let is_parameter = |node: &Node| matches!(node.op, Op::Parameter { index, .. } if index as usize == position);
    let Some(place) = plain.graph().nodes().iter().position(is_parameter) else { return false };
    let uses = Flow::of(plain).uses_of_first_dim(NodeId(place as u32));
    !uses.leaves && plain.outputs().first().is_some_and(|first| uses.reached.contains(first))
}
