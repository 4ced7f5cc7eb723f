//! Maxima of many paths: XLA's CPU compiler fuses a reduction with the elementwise ops before it, in one loop. A maximum in
//! a loop is a choice between the value so far and the next one, and for such a choice LLVM asks whether the loop computes a
//! CRC (`llvm/lib/Analysis/HashRecognize.cpp`, `RecurrenceInfo::digRecurrence`). To answer, it follows every path from the
//! next value back through the loop, also through ops where it has been. The number of paths doubles with each op that reads
//! a value twice: for the maximum of a random draw, of 20 rounds, it never ends.

use super::{is_fused, nodes};
use crate::op::Combine;
use crate::{Graph, NodeId, Op};

/// LLVM follows so many paths in about a tenth of a second.
const MOST_PATHS: u64 = 1 << 22;

/// Returns the operands of reductions whose choice LLVM would follow along too many paths.
pub(super) fn of_many_paths(graph: &Graph) -> impl Iterator<Item = (NodeId, usize)> {
    let mut paths: Vec<u64> = Vec::with_capacity(graph.nodes().len());
    nodes(graph).filter_map(move |(id, node)| {
        let operands = node.operands.iter().map(|id| paths[id.index()]).fold(0, u64::saturating_add);
        paths.push(match &node.op {
            Op::RngBitGenerator { .. } => u64::MAX,
            op if is_fused(op) => operands.saturating_add(1),
            _ => 1,
        });
        (chooses(&node.op) && operands > MOST_PATHS).then_some((id, 0))
    })
}

/// Returns whether a loop over the op's operand chooses between values.
fn chooses(op: &Op) -> bool {
    match op {
        Op::Reduce { combine, .. } | Op::ReduceWindow { combine, .. } => {
            matches!(combine, Combine::Max | Combine::Min)
        }
        Op::ArgReduce { .. } => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lower::{LowerOptions, lower, lower_with};
    use crate::op::BinaryOp;
    use crate::{Builder, DType, Number, Program, TensorType};

    /// The maximum of a value that `doublings` sums with itself make, each of two paths.
    fn maximum(doublings: usize, combine: Combine) -> Program {
        let mut g = Graph::new();
        let mut x = g.add(Op::Parameter { index: 0, ty: TensorType::new(DType::F32, [4, 8]) }, &[]).unwrap();
        for _ in 0..doublings {
            x = g.binary(BinaryOp::Add, x, x).unwrap();
        }
        let result = g.reduce(combine, x, &[1]).unwrap();
        Program::extract(&g, &[result]).unwrap()
    }

    fn is_separate(program: &Program) -> bool {
        of_many_paths(program.graph()).any(|found| found == (program.outputs()[0], 0))
    }

    #[test]
    fn a_maximum_of_many_paths_is_separate_and_others_are_not() {
        assert!(is_separate(&maximum(30, Combine::Max)) && is_separate(&maximum(30, Combine::Min)));
        assert!(!is_separate(&maximum(12, Combine::Max)), "few paths");
        assert!(!is_separate(&maximum(30, Combine::Sum)), "nothing is chosen");
    }

    #[test]
    fn the_maximum_of_a_draw_is_separate() {
        let mut g = Graph::new();
        let state = g.add(Op::Parameter { index: 0, ty: TensorType::new(DType::U64, [2]) }, &[]).unwrap();
        let draw = g.add(Op::RngBitGenerator { ty: TensorType::new(DType::U32, [4, 8]) }, &[state]).unwrap();
        let bits = g.add(Op::GetResult { index: 1 }, &[draw]).unwrap();
        let word = g.binary_const(BinaryOp::ShiftRightLogical, bits, Number::UInt(9)).unwrap();
        let result = g.reduce(Combine::Max, word, &[1]).unwrap();
        assert!(is_separate(&Program::extract(&g, &[result]).unwrap()));
    }

    #[test]
    fn only_programs_for_llvm_have_the_call() {
        let program = maximum(30, Combine::Max);
        let llvm = LowerOptions { llvm: true, ..LowerOptions::default() };
        let text = lower_with(&program, llvm).unwrap().text;
        assert!(
            text.contains("callee = @in_memory_f32_4_8, mhlo.frontend_attributes = {inlineable = \"false\"}"),
            "{text}"
        );
        assert!(text.contains("func.func private @in_memory_f32_4_8("), "{text}");
        assert!(!lower(&program).unwrap().text.contains("in_memory"));
    }
}
