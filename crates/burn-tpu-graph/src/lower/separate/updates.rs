//! Updates that read what they update: XLA writes a window in place, in the loop that computes it, also if that loop reads
//! the same memory. Reshapes before or after hide that from it: `x[1..] = x[..-1]` becomes the first element everywhere.

use super::windows::is_window;
use super::{is_fused, is_update, nodes};
use crate::op::OpKind;
use crate::{Graph, Node, NodeId, Op};
use std::collections::{HashMap, HashSet};

/// Returns the updates that read what they update. One that reads the window that it writes, element by element, is not
/// among them: it is right in place.
pub(super) fn that_read_what_they_update(graph: &Graph) -> impl Iterator<Item = (NodeId, usize)> {
    let updates = graph.nodes().iter().any(|node| is_update(&node.op));
    let memory = if updates { memory(graph) } else { Vec::new() };
    nodes(graph).filter_map(move |(id, node)| {
        let update = match &node.op {
            Op::DynamicUpdateSlice => 1,
            Op::Scatter(_) if is_window(graph, node) => 2,
            _ => return None,
        };
        reads_updated(graph, &memory, id, node.operands[update]).then_some((id, update))
    })
}

/// Returns for each node the first value in whose memory XLA may have its result. XLA computes equal values once.
fn memory(graph: &Graph) -> Vec<NodeId> {
    let (mut first, mut memory) = (HashMap::new(), Vec::<NodeId>::with_capacity(graph.nodes().len()));
    // The first of the nodes that are equal to each.
    let mut equal: Vec<NodeId> = Vec::with_capacity(graph.nodes().len());
    for (id, node) in nodes(graph) {
        let operands: Vec<NodeId> = node.operands.iter().map(|operand| equal[operand.index()]).collect();
        equal.push(*first.entry((&node.op, operands)).or_insert(id));
        let alike = |of: &&NodeId| graph.ty(**of).bytes() == node.ty.bytes();
        let of = node.operands.first().filter(alike).filter(|_| is_view(&node.op) || is_update(&node.op));
        memory.push(of.map_or(equal[id.index()], |of| memory[of.index()]));
    }
    memory
}

/// Returns whether XLA may have the result in the operand's memory if it is as large.
fn is_view(op: &Op) -> bool {
    use OpKind::{Cast, Marker, Move, Part, Result, View};
    matches!(op.kind(), View | Move | Part | Cast | Marker | Result)
}

/// Returns whether XLA may read the memory that the node `user` updates in the loop that computes its operand `update`.
fn reads_updated(graph: &Graph, memory: &[NodeId], user: NodeId, update: NodeId) -> bool {
    let (updated, (mut seen, mut next)) = (memory[user.index()], (HashSet::new(), vec![(update, true)]));
    while let Some((id, aligned)) = next.pop() {
        let node = graph.node(id);
        if aligned && is_same_window(graph, node, graph.node(user)) {
            continue;
        }
        if memory[id.index()] == updated {
            return true;
        }
        // Operands come before their user.
        if id > updated && seen.insert((id, aligned)) && (is_fused(&node.op) || is_update(&node.op)) {
            let aligned = aligned && node.op.keeps_order();
            next.extend(node.operands.iter().map(|&operand| (operand, aligned)));
        }
    }
    false
}

/// Returns whether a node reads the window that another updates.
fn is_same_window(graph: &Graph, read: &Node, update: &Node) -> bool {
    matches!((&read.op, &update.op), (Op::DynamicSlice { .. }, Op::DynamicUpdateSlice))
        && read.operands[0] == update.operands[0]
        && read.operands[1..] == update.operands[2..]
        && read.ty.dims == graph.ty(update.operands[1]).dims
}

#[cfg(test)]
mod tests {
    use super::super::tests::of_places;
    use crate::op::UnaryOp;
    use crate::{Builder, DType, Dims, Op};

    #[test]
    fn an_update_that_reads_what_it_updates_is_after_a_barrier() {
        let update = |own: bool| {
            of_places(1, |g, x, places| {
                let (start, zero) = (g.reshape(places, &[])?, g.scalar(DType::I32, 0)?);
                let read = if own { x } else { g.splat_like(x, 1.0)? };
                let (x, read) = (g.reshape(x, &[4, 6])?, g.unary(UnaryOp::Neg, read)?);
                let rows = g.reshape(read, &[4, 6]).and_then(|read| g.slice_dim(read, 0, 0, 3))?;
                g.dynamic_update_slice(x, rows, &[start, zero])
            })
        };
        assert_eq!(update(true).matches("stablehlo.optimization_barrier").count(), 1);
        assert!(!update(false).contains("optimization_barrier"));
        let own_window = of_places(1, |g, x, places| {
            let (start, zero) = (g.reshape(places, &[])?, g.scalar(DType::I32, 0)?);
            let rows = g.dynamic_slice(x, &[start, zero], &[3, 4])?;
            let rows = g.unary(UnaryOp::Neg, rows)?;
            g.dynamic_update_slice(x, rows, &[start, zero])
        });
        assert!(!own_window.contains("optimization_barrier"));
        let own_bits = of_places(1, |g, x, places| {
            let (start, zero) = (g.reshape(places, &[])?, g.scalar(DType::I32, 0)?);
            let rows = g.dynamic_slice(x, &[start, zero], &[3, 4])?;
            let bits = g.bitcast_convert(rows, DType::I32)?;
            let bits = g.unary(UnaryOp::Not, bits)?;
            let rows = g.bitcast_convert(bits, DType::F32)?;
            g.dynamic_update_slice(x, rows, &[start, zero])
        });
        assert!(!own_bits.contains("optimization_barrier"));
        let equal = of_places(1, |g, x, places| {
            let (start, zero) = (g.reshape(places, &[])?, g.scalar(DType::I32, 0)?);
            let [x, read] = [g.unary(UnaryOp::Exp, x)?, g.unary(UnaryOp::Exp, x)?];
            let rows = g.slice_dim(read, 0, 0, 3)?;
            g.dynamic_update_slice(x, rows, &[start, zero])
        });
        assert!(equal.contains("optimization_barrier"));
    }

    /// XLA leaves out a slice of everything, and a concatenation of one operand.
    #[test]
    fn an_update_of_what_is_no_copy_is_after_a_barrier() {
        let update = |of: Op, starts: usize| {
            of_places(1, |g, x, places| {
                let (start, zero) = (g.reshape(places, &[])?, g.scalar(DType::I32, 0)?);
                let operands = [x, zero, zero];
                let same = g.add(of.clone(), &operands[..1 + starts])?;
                let read = g.unary(UnaryOp::Neg, x).and_then(|read| g.reshape(read, &[4, 6]))?;
                let (same, rows) = (g.reshape(same, &[4, 6])?, g.slice_dim(read, 0, 0, 3)?);
                g.dynamic_update_slice(same, rows, &[start, zero])
            })
        };
        let slice = update(Op::DynamicSlice { sizes: Dims::from_slice(&[6, 4]) }, 2);
        let joined = update(Op::Concatenate { dim: 0 }, 0);
        assert!([slice, joined].iter().all(|text| text.contains("optimization_barrier")));
    }
}
