//! Which operands are kept apart from the op that takes them: where XLA would join the two, and be wrong or never end.
//! Constants are kept apart where it would compute with them for too long.
//!
//! A barrier keeps them apart. XLA's CPU compiler removes barriers before it fuses, but looks across no call that it may
//! not inline.

mod folding;
mod reductions;
mod updates;
mod windows;

use super::constant::scalar;
use super::movement::broadcast_in_dim;
use super::printer::{Block, Statement, Value, mlir_type};
use super::{control, function};
use crate::op::OpKind;
use crate::{Graph, LiteralData, Node, NodeId, Op};
use std::collections::HashSet;

/// The operands of a graph's nodes that are kept apart, by node and position.
pub(super) struct Separate {
    /// Those that are joined with no op before them.
    joined: HashSet<(NodeId, usize)>,
    /// Constants, and values that are computed from constants alone.
    constants: HashSet<(NodeId, usize)>,
    llvm: bool,
}

impl Separate {
    /// `llvm` is that of [`LowerOptions`](super::LowerOptions).
    pub(super) fn of(graph: &Graph, llvm: bool) -> Self {
        let mut joined: HashSet<_> =
            windows::of_windows(graph).chain(updates::that_read_what_they_update(graph)).collect();
        if llvm {
            joined.extend(reductions::of_many_paths(graph));
        }
        Self { joined, constants: folding::of_constants(graph), llvm }
    }

    /// Returns the operand of a node as the node takes it: behind what XLA does not look across, if it is kept apart.
    pub(super) fn operand(
        &self,
        block: &mut Block,
        (graph, node, position): (&Graph, NodeId, usize),
        operand: Value,
        functions: &mut Vec<String>,
    ) -> Value {
        let place = (node, position);
        match &graph.node(graph.node(node).operands[position]).op {
            Op::Constant(literal) if self.constants.contains(&place) => match literal.data {
                LiteralData::Splat(bits) => {
                    let value = scalar(block, operand.ty.dtype, bits);
                    let value = barrier(block, value);
                    block.push(&broadcast_in_dim(vec![value], &[]), operand.ty)
                }
                LiteralData::Dense(_) => barrier(block, operand),
            },
            _ if self.joined.contains(&place) && self.llvm => through_memory(block, operand, functions),
            _ if self.joined.contains(&place) || self.constants.contains(&place) => barrier(block, operand),
            _ => operand,
        }
    }
}

fn barrier(block: &mut Block, operand: Value) -> Value {
    let ty = operand.ty.clone();
    block.push(&Statement::new(Op::OptimizationBarrier.mnemonic(), [operand]), ty)
}

fn nodes(graph: &Graph) -> impl Iterator<Item = (NodeId, &Node)> {
    graph.nodes().iter().enumerate().map(|(i, node)| (NodeId(i as u32), node))
}

/// Writes a call that returns its operand, through memory. The function is written if it is new.
fn through_memory(block: &mut Block, operand: Value, functions: &mut Vec<String>) -> Value {
    let ty = operand.ty.clone();
    let name = control::sized_name(&format!("in_memory_{}", ty.dtype), &ty.dims);
    if !control::has_function(functions, &name) {
        let (mlir, value) = (mlir_type(&ty), Value::new("%arg0".into(), ty.clone()));
        functions.push(function(
            &format!("private {name}"),
            &format!("%arg0: {mlir}"),
            &mlir,
            Block::function(),
            &[value],
        ));
    }
    let call = Statement::new("func.call", [operand]).attr("callee", name);
    block.push(&call.attr("mhlo.frontend_attributes", "{inlineable = \"false\"}"), ty)
}

fn is_update(op: &Op) -> bool {
    op.kind() == OpKind::Update
}

/// Returns whether XLA may compute the op in the loop that reads it.
fn is_fused(op: &Op) -> bool {
    use OpKind::{Lookup, Move, Part, Result, View};
    let moves = matches!(op.kind(), View | Move | Part | Lookup | Result) || *op == Op::DynamicUpdateSlice;
    moves || (op.is_elementwise() && *op != Op::OptimizationBarrier)
}

#[cfg(test)]
mod tests {
    use crate::lower::lower;
    use crate::{Builder, DType, Graph, NodeId, Op, Program, Result, TensorType};

    /// Returns the text of a program of a table `[6, 4]` and of places `[count]`.
    pub(super) fn of_places(count: usize, record: impl FnOnce(&mut Graph, NodeId, NodeId) -> Result<NodeId>) -> String {
        let mut g = Graph::new();
        let x = g.add(Op::Parameter { index: 0, ty: TensorType::new(DType::F32, [6, 4]) }, &[]).unwrap();
        let places = g.add(Op::Parameter { index: 1, ty: TensorType::new(DType::I32, [count]) }, &[]).unwrap();
        let result = record(&mut g, x, places).unwrap();
        lower(&Program::extract(&g, &[result]).unwrap()).unwrap().text
    }
}
