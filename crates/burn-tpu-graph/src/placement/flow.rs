//! How values flow through a program: which belong together, and where dim 0 of an argument goes.

use crate::{Node, NodeId, Op, Program, TensorType};

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
                if !keeps_first_dim(node, position, graph.ty(id)) {
                    uses.leaves = true;
                    continue;
                }
                uses.is_batch |= combines(&node.op);
                if !std::mem::replace(&mut seen[user.index()], true) {
                    uses.reached.push(user);
                }
            }
        }
        uses
    }
}

/// Returns whether the value has no placement of its own: the compiler makes each part where it is needed.
fn is_leaf(op: &Op) -> bool {
    matches!(op, Op::BroadcastInDim { .. } | Op::Constant(_) | Op::Iota { .. } | Op::Slot { .. } | Op::Offset { .. })
}

/// Returns whether an op that keeps dim 0 of an operand shows that it is a batch dim.
fn combines(op: &Op) -> bool {
    matches!(op, Op::DotGeneral(_) | Op::Convolution(_) | Op::Gather(_) | Op::BroadcastInDim { .. })
}

/// Returns the operands that the result is computed from element by element.
fn same_elements(node: &Node) -> &[NodeId] {
    match node.op {
        Op::Unary(_)
        | Op::Binary(_)
        | Op::Compare(_)
        | Op::IsFinite
        | Op::Select
        | Op::Clamp
        | Op::Convert { .. }
        | Op::BitcastConvert { .. }
        | Op::Complex
        | Op::Real
        | Op::Imag
        | Op::OptimizationBarrier
        | Op::ShardingConstraint(_) => &node.operands,
        Op::DynamicUpdateSlice | Op::Scatter(_) => &node.operands[..1],
        Op::Parameter { .. }
        | Op::Slot { .. }
        | Op::Offset { .. }
        | Op::Constant(_)
        | Op::Iota { .. }
        | Op::BroadcastInDim { .. }
        | Op::Reshape { .. }
        | Op::Transpose { .. }
        | Op::Reverse { .. }
        | Op::Slice(_)
        | Op::Pad(_)
        | Op::Concatenate { .. }
        | Op::DynamicSlice { .. }
        | Op::DotGeneral(_)
        | Op::Convolution(_)
        | Op::Reduce { .. }
        | Op::ArgReduce { .. }
        | Op::ReduceWindow { .. }
        | Op::SelectAndScatter { .. }
        | Op::Sort { .. }
        | Op::TopK { .. }
        | Op::Gather(_)
        | Op::RngBitGenerator { .. }
        | Op::Fft { .. }
        | Op::For { .. }
        | Op::CustomCall(_)
        | Op::GetResult { .. } => &[],
    }
}

/// Returns whether dim 0 of the operand at `position` is dim 0 of the result, row by row.
fn keeps_first_dim(node: &Node, position: usize, operand: &TensorType) -> bool {
    let same_size = node.ty.dims.first() == operand.dims.first();
    match &node.op {
        Op::Unary(_)
        | Op::Binary(_)
        | Op::Compare(_)
        | Op::IsFinite
        | Op::Select
        | Op::Clamp
        | Op::Convert { .. }
        | Op::BitcastConvert { .. }
        | Op::Complex
        | Op::Real
        | Op::Imag
        | Op::OptimizationBarrier
        | Op::ShardingConstraint(_)
        | Op::GetResult { .. } => same_size,
        Op::Reshape { dims } => keeps_rows(&operand.dims, dims),
        Op::BroadcastInDim { mapping, .. } => mapping.first() == Some(&0) && same_size,
        Op::Transpose { permutation } => permutation.first() == Some(&0),
        Op::Reverse { dims } => !dims.contains(&0),
        Op::Concatenate { dim } => *dim != 0,
        Op::Slice(_) | Op::Pad(_) | Op::DynamicSlice { .. } | Op::DynamicUpdateSlice => position == 0 && same_size,
        Op::DotGeneral(attrs) => {
            let (batch, contract) = match position {
                0 => (&attrs.lhs_batch, &attrs.lhs_contract),
                _ => (&attrs.rhs_batch, &attrs.rhs_contract),
            };
            match batch.first() {
                Some(&first) => first == 0,
                None => position == 0 && !contract.contains(&0),
            }
        }
        Op::Convolution(attrs) => position == 0 && attrs.input.batch == 0 && attrs.output.batch == 0,
        Op::Reduce { dims, .. } => !dims.contains(&0),
        Op::ArgReduce { dim, .. } | Op::Sort { dim, .. } => *dim != 0,
        Op::ReduceWindow { window, .. } | Op::SelectAndScatter { window } => {
            window.dims.first() == Some(&1) && same_size
        }
        Op::Gather(attrs) => match position {
            0 => {
                attrs.operand_batching_dims.first() == Some(&0) && attrs.start_indices_batching_dims.first() == Some(&0)
            }
            _ => attrs.index_vector_dim != 0 && !attrs.offset_dims.contains(&0),
        },
        Op::Scatter(attrs) => position == 0 && !attrs.scatter_dims_to_operand_dims.contains(&0),
        Op::Fft { .. } | Op::TopK { .. } => operand.rank() > 1,
        Op::CustomCall(call) => plain_keeps_first_dim(call.plain(), position),
        Op::For { .. }
        | Op::Parameter { .. }
        | Op::Slot { .. }
        | Op::Offset { .. }
        | Op::Constant(_)
        | Op::Iota { .. }
        | Op::RngBitGenerator { .. } => false,
    }
}

/// Returns whether dim 0 of this parameter of a plain form stays whole and is that of the first result.
fn plain_keeps_first_dim(plain: &Program, position: usize) -> bool {
    let is_parameter = |node: &Node| matches!(node.op, Op::Parameter { index, .. } if index as usize == position);
    let Some(place) = plain.graph().nodes().iter().position(is_parameter) else { return false };
    let uses = Flow::of(plain).uses_of_first_dim(NodeId(place as u32));
    !uses.leaves && plain.outputs().first().is_some_and(|first| uses.reached.contains(first))
}

/// Returns whether a reshape keeps rows together: dim 0 stays, is merged with the dims after it, or is taken apart.
fn keeps_rows(from: &[usize], to: &[usize]) -> bool {
    let (Some(&before), Some(&after)) = (from.first(), to.first()) else { return false };
    let is_leading = |dims: &[usize], size: usize| {
        let mut product = 1;
        dims.iter().any(|dim| {
            product *= dim;
            product == size
        })
    };
    after > 1 && (is_leading(from, after) || is_leading(to, before))
}
