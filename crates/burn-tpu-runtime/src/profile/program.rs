//! The Burn ops that a compiled program consists of.

use burn_tpu_graph::{Label, NodeId, Op, Program};
use rustc_hash::FxHashMap;

/// The number of ops in a program's name.
const NAMED: usize = 3;

/// The Burn ops of a compiled program, by the labels of its nodes.
#[derive(Debug)]
pub(crate) struct ProgramOps {
    /// Its identity and first ops, as `1a2b3c4d: float_matmul, float_add, 12 more`.
    pub(crate) name: String,
    /// The number of nodes of each op, most first; of a loop's body, once.
    pub(crate) ops: Vec<(Label, usize)>,
}

impl ProgramOps {
    pub(crate) fn of(program: &Program) -> Self {
        let mut counts = FxHashMap::default();
        count(program, &mut counts);
        let mut ops: Vec<(Label, usize)> = counts.into_iter().collect();
        ops.sort_unstable_by_key(|&(label, count)| (std::cmp::Reverse(count), label));
        let hash: String = program.stable_hash()[..4].iter().map(|byte| format!("{byte:02x}")).collect();
        let first: Vec<Label> = ops.iter().take(NAMED).map(|(label, _)| *label).collect();
        let more = match ops.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(", {more} more"),
        };
        Self { name: format!("{hash}: {}{more}", first.join(", ")), ops }
    }

    /// Returns the ops with their counts: `float_matmul 37, float_add 12`.
    pub(crate) fn burn_ops(&self) -> String {
        let ops: Vec<String> = self.ops.iter().map(|(label, count)| format!("{label} {count}")).collect();
        ops.join(", ")
    }
}

/// Counts the nodes that compute something.
fn count(program: &Program, counts: &mut FxHashMap<Label, usize>) {
    for (i, node) in program.graph().nodes().iter().enumerate() {
        match &node.op {
            Op::Parameter { .. } | Op::Slot { .. } | Op::Offset { .. } | Op::GetResult { .. } => continue,
            Op::For { body, .. } => count(body, counts),
            _ => match program.graph().label(NodeId(i as u32)) {
                "" => {}
                label => *counts.entry(label).or_default() += 1,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn_tpu_graph::op::UnaryOp;
    use burn_tpu_graph::{Builder, DType, Graph, TensorType};

    #[test]
    fn a_program_is_named_by_its_most_frequent_ops() {
        let mut graph = Graph::new();
        graph.set_label("float_from_data");
        let mut x = graph.add(Op::Parameter { index: 0, ty: TensorType::new(DType::F32, [2]) }, &[]).unwrap();
        for label in ["float_exp", "float_tanh", "float_exp", "float_cos", "float_sin"] {
            graph.set_label(label);
            x = graph.unary(UnaryOp::Exp, x).unwrap();
        }
        let ops = ProgramOps::of(&Program::extract(&graph, &[x]).unwrap());
        assert_eq!(ops.burn_ops(), "float_exp 2, float_cos 1, float_sin 1, float_tanh 1");
        let (hash, name) = ops.name.split_once(": ").unwrap();
        assert_eq!((hash.len(), name), (8, "float_exp, float_cos, float_sin, 1 more"));
    }
}
