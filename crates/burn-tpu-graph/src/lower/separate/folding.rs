//! Constants that XLA would compute with while it compiles: it evaluates an op whose operands are all constants, one element
//! after another. The argmax of 2 million zeros takes 58 s in libtpu 0.0.51 and 73 s in xla-cpu-pjrt 0.0.1, their cumulative
//! sum 70 s in the latter; of more elements, memory ends first. At run time they take milliseconds.
//!
//! A constant of one value is kept apart as a scalar, which is then broadcast: it takes no memory.

use super::nodes;
use crate::op::OpKind;
use crate::{Graph, Literal, LiteralData, Node, NodeId, Op};
use std::collections::HashSet;

/// XLA may evaluate an op of so many elements, in about a tenth of a second.
const MOST_ELEMENTS: usize = 4096;

/// Returns the operands, by node and position, that XLA must not know: without them, it evaluates no op of many elements.
pub(super) fn of_constants(graph: &Graph) -> HashSet<(NodeId, usize)> {
    let mut unknown = HashSet::new();
    loop {
        let constant = constants(graph, &unknown);
        let evaluated = nodes(graph).find(|(id, node)| constant[id.index()] && takes_long(graph, node));
        let Some((id, _)) = evaluated else { return unknown };
        let known = unknown.len();
        hide_splats(graph, id, &mut unknown);
        if unknown.len() == known {
            unknown.insert((id, 0));
        }
    }
}

/// Returns, for each node, whether XLA could evaluate it.
fn constants(graph: &Graph, unknown: &HashSet<(NodeId, usize)>) -> Vec<bool> {
    let mut constant: Vec<bool> = Vec::with_capacity(graph.len());
    for (id, node) in nodes(graph) {
        let known = |(i, operand): (usize, &NodeId)| constant[operand.index()] && !unknown.contains(&(id, i));
        constant.push(match node.op.kind() {
            OpKind::Constant => true,
            OpKind::Input | OpKind::Draw | OpKind::Inner | OpKind::Marker => false,
            _ => node.operands.iter().enumerate().all(known),
        });
    }
    constant
}

/// Returns whether the op combines many elements.
fn takes_long(graph: &Graph, node: &Node) -> bool {
    use OpKind::{Contraction, Order, Reduction, Transform, Window};
    let combines = matches!(node.op.kind(), Contraction | Order | Reduction | Transform | Window)
        || matches!(node.op, Op::Scatter(_));
    combines && node.operands.iter().any(|&operand| graph.ty(operand).elements() > MOST_ELEMENTS)
}

/// Adds the constants of one value from which the node is computed, where ops take them.
fn hide_splats(graph: &Graph, id: NodeId, unknown: &mut HashSet<(NodeId, usize)>) {
    let mut visited = HashSet::new();
    let mut open = vec![id];
    while let Some(id) = open.pop() {
        for (i, &operand) in graph.node(id).operands.iter().enumerate() {
            if is_splat(&graph.node(operand).op) && graph.ty(operand).elements() > MOST_ELEMENTS {
                unknown.insert((id, i));
            } else if visited.insert(operand) {
                open.push(operand);
            }
        }
    }
}

fn is_splat(op: &Op) -> bool {
    matches!(op, Op::Constant(Literal { data: LiteralData::Splat(_), .. }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lower::lower;
    use crate::op::{Combine, UnaryOp};
    use crate::{Builder, DType, Program};

    fn text(record: impl FnOnce(&mut Graph) -> NodeId) -> String {
        let mut g = Graph::new();
        let result = record(&mut g);
        lower(&Program::extract(&g, &[result]).unwrap()).unwrap().text
    }

    fn argmax_of_zeros(rows: usize) -> String {
        text(|g| {
            let zeros = g.splat(DType::F32, &[rows, 64], 0.0).unwrap();
            let places = g.iota(DType::I32, &[rows, 64], 1).unwrap();
            g.arg_reduce(true, zeros, places, 1).unwrap().1
        })
    }

    #[test]
    fn a_large_constant_is_a_scalar_behind_a_barrier() {
        let large = argmax_of_zeros(65);
        assert!(large.contains("\"stablehlo.optimization_barrier\"(%t0) : (tensor<f32>) -> tensor<f32>"), "{large}");
        assert!(large.contains("\"stablehlo.reduce\"(%t2, %1"), "{large}");
        assert!(!argmax_of_zeros(64).contains("barrier"));
    }

    #[test]
    fn so_is_one_that_other_ops_change_before() {
        let text = text(|g| {
            let ones = g.splat(DType::F32, &[8192], 1.0).unwrap();
            let exp = g.unary(UnaryOp::Exp, ones).unwrap();
            g.reduce(Combine::Max, exp, &[0]).unwrap()
        });
        assert_eq!(text.matches("optimization_barrier").count(), 1, "{text}");
        assert!(text.contains("-> tensor<f32>\n    %t2 = \"stablehlo.broadcast_in_dim\""), "{text}");
    }

    #[test]
    fn a_table_is_kept_apart_as_it_is() {
        let text = text(|g| {
            let places = g.iota(DType::I32, &[8192], 0).unwrap();
            let largest = g.reduce(Combine::Max, places, &[0]).unwrap();
            let sum = g.reduce(Combine::Sum, places, &[0]).unwrap();
            g.binary(crate::op::BinaryOp::Add, largest, sum).unwrap()
        });
        assert_eq!(text.matches("\"stablehlo.optimization_barrier\"(%0)").count(), 2, "{text}");
    }

    #[test]
    fn what_data_decides_is_not_kept_apart() {
        let text = text(|g| {
            let x = g.add(Op::Parameter { index: 0, ty: crate::TensorType::new(DType::F32, [8192]) }, &[]).unwrap();
            let ones = g.splat(DType::F32, &[8192], 1.0).unwrap();
            let sum = g.binary(crate::op::BinaryOp::Add, x, ones).unwrap();
            g.reduce(Combine::Max, sum, &[0]).unwrap()
        });
        assert!(!text.contains("barrier"), "{text}");
    }
}
