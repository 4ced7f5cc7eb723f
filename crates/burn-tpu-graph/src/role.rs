//! What the results of a program are to the steps that run it: weights, the rest of a step's state, or other values.
//!
//! A program does not say what its values mean, but how it uses them does. A step reads a weight, combines it with
//! activations, and returns it with an update added. An optimizer's moment or a master copy is updated the same way, and is
//! combined element by element with values of its own shape alone.

use crate::op::{BinaryOp, OpKind};
use crate::{NodeId, Op, Program};

/// What a result is to the steps that run a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A weight that the program updates.
    Parameter,
    /// State that the program updates and uses for updates alone: an optimizer's moments, master copies, running
    /// statistics.
    State,
    /// Any other value.
    Value,
}

impl Program {
    /// Returns the role of each result. `in_place` is what [`Program::results_in_place`] returns: the result that updates
    /// each parameter, if any.
    pub fn roles(&self, in_place: &[Option<usize>]) -> Vec<Role> {
        let mut roles = vec![Role::Value; self.outputs().len()];
        let nodes = self.graph().nodes().iter().enumerate();
        let parameters = nodes.filter(|(_, node)| matches!(node.op, Op::Parameter { .. }));
        let meets = self.combined();
        for ((index, _), result) in parameters.zip(in_place) {
            let Some(result) = result.filter(|&result| self.is_sum(self.outputs()[result])) else { continue };
            roles[result] = if meets[index] { Role::Parameter } else { Role::State };
        }
        roles
    }

    /// Returns, for each node, whether its elements, perhaps in another type or with other dims, are combined with values of
    /// another shape.
    fn combined(&self) -> Vec<bool> {
        let nodes = self.graph().nodes();
        let mut combined = vec![false; nodes.len()];
        for (index, node) in nodes.iter().enumerate().rev() {
            let is_combined = match use_of(&node.op) {
                Use::Same => combined[index],
                Use::Elementwise => false,
                Use::Combined => true,
            };
            node.operands.iter().for_each(|operand| combined[operand.index()] |= is_combined);
        }
        combined
    }

    /// Returns whether a result is a sum or a difference, perhaps one that a condition selects.
    fn is_sum(&self, output: NodeId) -> bool {
        let mut waiting = vec![output];
        // A chain of copies and selections of an update is short; a longer one is not looked through.
        for _ in 0..64 {
            let Some(node) = waiting.pop().map(|id| self.graph().node(id)) else { return false };
            match &node.op {
                Op::Binary(BinaryOp::Add | BinaryOp::Sub) => return true,
                Op::Select => waiting.extend_from_slice(&node.operands[1..]),
                op if use_of(op) == Use::Same => waiting.extend_from_slice(&node.operands),
                _ => {}
            }
        }
        false
    }
}

/// How a node uses its operands.
#[derive(PartialEq, Eq)]
enum Use {
    /// Its result is the operand.
    Same,
    /// Element by element, with others of the shape; or to fewer numbers.
    Elementwise,
    Combined,
}

fn use_of(op: &Op) -> Use {
    match op.kind() {
        OpKind::Cast | OpKind::Marker => Use::Same,
        OpKind::Arithmetic | OpKind::Test | OpKind::Reduction => Use::Elementwise,
        _ if matches!(op, Op::Reshape { .. }) => Use::Same,
        _ => Use::Combined,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::{Direction, DotAttrs, UnaryOp};
    use crate::{Builder, DType, Graph, TensorType};

    fn matmul(g: &mut Graph, lhs: NodeId, rhs: NodeId) -> NodeId {
        let attrs = DotAttrs::new([&[], &[]], [&[1], &[0]], DType::F32);
        g.dot_general(lhs, rhs, attrs).unwrap()
    }

    /// `m = m / 2 + g; master = master - m; w = bf16(master)`, with the gradient g = x x^T w, and a cache of which one row
    /// is written and all are read.
    #[test]
    fn weights_and_the_rest_of_the_state_are_told_apart_by_their_use() {
        let g = &mut Graph::new();
        let types = [(DType::BF16, 4), (DType::F32, 4), (DType::F32, 4), (DType::BF16, 3)];
        let mut parameter = |(index, (dtype, rows)): (usize, (DType, usize))| {
            let ty = TensorType::new(dtype, [rows, 4]);
            g.add(Op::Parameter { index: index as u32, ty }, &[]).unwrap()
        };
        let ids: Vec<NodeId> = types.into_iter().enumerate().map(&mut parameter).collect();
        let [w, master, m, cache] = ids[..] else { unreachable!() };
        let gradient = matmul(g, w, w);
        let half = g.binary_const(BinaryOp::Mul, m, 0.5).unwrap();
        let new_m = g.binary(BinaryOp::Add, half, gradient).unwrap();
        let new_master = g.binary(BinaryOp::Sub, master, new_m).unwrap();
        let new_w = g.convert(new_master, DType::BF16).unwrap();
        let product = matmul(g, cache, w);
        let read = g.convert(product, DType::BF16).unwrap();
        let loud = g.unary(UnaryOp::Exp, cache).unwrap();
        let is_row = g.compare(Direction::Gt, read, loud).unwrap();
        let new_cache = g.select(is_row, cache, read).unwrap();
        let program = Program::extract(g, &[new_w, new_m, new_master, new_cache, read]).unwrap();
        let in_place = program.results_in_place();
        assert_eq!(in_place, [Some(0), Some(2), Some(1), Some(3)]);
        let roles = [Role::Parameter, Role::State, Role::State, Role::Value, Role::Value];
        assert_eq!(program.roles(&in_place), roles);
    }
}
