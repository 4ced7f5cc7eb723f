//! Numbers that are the same in all elements of a value, for passes that move them.

use burn_tpu_graph::{Graph, NodeId, Op};

/// Returns the number that a value has in all elements, of one element, if the value is a broadcast of it.
pub(crate) fn number(graph: &Graph, id: NodeId) -> Option<NodeId> {
    let Op::BroadcastInDim { .. } = graph.node(id).op else { return None };
    let source = graph.node(id).operands[0];
    (graph.ty(source).elements() == 1).then_some(source)
}
