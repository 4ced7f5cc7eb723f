//! The exponentials of a softmax that is written op by op: `e` of `e / sum(e)`, which nothing else reads.
//!
//! XLA computes them where the sum is and again where the quotients are, so that nothing is written. Where a gradient reads
//! them too, they are.

use burn_tpu_graph::op::{BinaryOp, UnaryOp};
use burn_tpu_graph::{DType, Node, NodeId, Op, Program};
use std::collections::{BTreeMap, BTreeSet};

/// Returns the exponentials of 16-bit floats that only a sum and a division read.
pub(super) fn exponentials(program: &Program) -> BTreeSet<NodeId> {
    let graph = program.graph();
    let is_exponential = |node: &Node| node.ty.dtype.is_half() && node.op == UnaryOp::Exp.into();
    let all = graph.ids().filter(|&id| is_exponential(graph.node(id)));
    let mut readers: BTreeMap<NodeId, Vec<NodeId>> = all.map(|id| (id, Vec::new())).collect();
    if readers.is_empty() {
        return BTreeSet::new();
    }
    for id in graph.ids() {
        for operand in &graph.node(id).operands {
            if let Some(readers) = readers.get_mut(operand) {
                readers.push(id);
            }
        }
    }
    // A sum is of f32. It comes before what divides by it.
    let is_of_softmax = |id: NodeId, readers: &[NodeId]| {
        let &[sum, quotient] = readers else { return false };
        let (sum, quotient) = (graph.node(sum), graph.node(quotient));
        let is_quotient = quotient.op == BinaryOp::Div.into() && quotient.operands[0] == id;
        sum.op == Op::Convert { dtype: DType::F32 } && is_quotient && !program.outputs().contains(&id)
    };
    readers.into_iter().filter(|(id, readers)| is_of_softmax(*id, readers)).map(|(id, _)| id).collect()
}
