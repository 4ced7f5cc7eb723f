//! How a program is named for people: by the start of its hash, its size and its largest work.

use burn_tpu_graph::{NodeId, Program, cost};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The number of ops that are named of a program without matrix products.
const OPS: usize = 3;

/// Returns a description such as `program 3fa2b1c4d5e6f708 (412 nodes, 24 products, the largest float_matmul [512, 192] x
/// [192, 768])`.
/// The number is that of the file which [`TpuOptions::dump`](crate::TpuOptions::dump) writes.
pub(crate) fn describe(program: &Program) -> Arc<str> {
    let number: String = program.stable_hash()[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    let (nodes, work) = (cost::nodes(program), largest(program).unwrap_or_else(|| ops(program)));
    format!("program {number} ({nodes} nodes{work})").into()
}

/// Describes the matrix product or convolution with the most operations; `None` if there is none.
fn largest(program: &Program) -> Option<String> {
    let products = cost::contractions(program);
    let of = products.iter().max_by_key(|product| product.flops)?;
    let which = match products.len() {
        1 => "the product".to_owned(),
        count => format!("{count} products, the largest"),
    };
    let batch = if of.batch > 1 { format!("{} times ", of.batch) } else { String::new() };
    Some(format!(", {which} {} {batch}[{}, {}] x [{}, {}]", of.label, of.m, of.k, of.k, of.n))
}

/// Names the ops that most nodes were recorded for.
fn ops(program: &Program) -> String {
    let graph = program.graph();
    let mut counts = BTreeMap::new();
    let labels = (0..graph.len()).map(|index| graph.label(NodeId(index as u32))).filter(|label| !label.is_empty());
    labels.for_each(|label| *counts.entry(label).or_insert(0usize) += 1);
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|&(label, count)| (std::cmp::Reverse(count), label));
    counts.iter().take(OPS).map(|(label, _)| format!(", {label}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn_tpu_graph::op::{BinaryOp, DotAttrs};
    use burn_tpu_graph::{Builder, DType, Graph, Op, TensorType};

    fn parameters(graph: &mut Graph, dims: [[usize; 2]; 2]) -> [NodeId; 2] {
        let mut index = 0;
        dims.map(|dims| {
            let op = Op::Parameter { index, ty: TensorType::new(DType::F32, dims) };
            index += 1;
            graph.add(op, &[]).unwrap()
        })
    }

    #[test]
    fn a_program_is_named_by_its_largest_product() {
        let mut graph = Graph::new();
        let [x, y] = parameters(&mut graph, [[512, 192], [192, 768]]);
        graph.set_label("float_matmul");
        let attrs = DotAttrs::new([&[], &[]], [&[1], &[0]], DType::F32);
        let product = graph.dot_general(x, y, attrs).unwrap();
        let text = describe(&Program::canonical(&graph, &[product]).unwrap().0);
        assert!(text.ends_with("(3 nodes, the product float_matmul [512, 192] x [192, 768])"), "{text}");
    }

    #[test]
    fn a_program_without_products_is_named_by_its_ops() {
        let mut graph = Graph::new();
        let [x, y] = parameters(&mut graph, [[2, 2], [2, 2]]);
        graph.set_label("float_add");
        let sum = graph.binary(BinaryOp::Add, x, y).unwrap();
        graph.set_label("float_mul");
        let square = graph.binary(BinaryOp::Mul, sum, sum).unwrap();
        let square = graph.binary(BinaryOp::Mul, square, sum).unwrap();
        let text = describe(&Program::canonical(&graph, &[square]).unwrap().0);
        assert!(text.ends_with("(5 nodes, float_mul, float_add)"), "{text}");
    }
}
