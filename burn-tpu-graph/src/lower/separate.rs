//! Which reductions are kept apart from what computes their operand, for LLVM's sake.
//!
//! XLA's CPU compiler fuses a reduction with the elementwise ops before it, in one loop. A maximum in a loop is a choice
//! between the value so far and the next one, and for such a choice LLVM asks whether the loop computes a CRC
//! (`llvm/lib/Analysis/HashRecognize.cpp`, `RecurrenceInfo::digRecurrence`). To answer, it follows every path from the next
//! value back through the loop, also through ops where it has been. The number of paths doubles with each op that reads a
//! value twice: for the maximum of a random draw, of 20 rounds, it never ends.
//!
//! XLA's CPU compiler removes barriers before it fuses. A call that it may not inline is what it does not fuse across.

use super::printer::{Block, Statement, Value, mlir_type};
use super::{control, function};
use crate::op::Combine;
use crate::{Graph, Op};

/// LLVM follows so many paths in about a tenth of a second.
const MOST_PATHS: u64 = 1 << 22;

/// Returns for each node whether it is a reduction whose operand goes through memory.
pub(super) fn reductions(graph: &Graph) -> Vec<bool> {
    let mut paths: Vec<u64> = Vec::with_capacity(graph.nodes().len());
    let mut separate = Vec::with_capacity(graph.nodes().len());
    for node in graph.nodes() {
        let operands = node.operands.iter().map(|id| paths[id.index()]).fold(0, u64::saturating_add);
        separate.push(chooses(&node.op) && operands > MOST_PATHS);
        paths.push(match &node.op {
            Op::RngBitGenerator { .. } => u64::MAX,
            op if is_fused(op) => operands.saturating_add(1),
            _ => 1,
        });
    }
    separate
}

/// Writes a call that returns its operand, through memory. The function is written if it is new.
pub(super) fn through_memory(block: &mut Block, operand: Value, functions: &mut Vec<String>) -> Value {
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

/// Returns whether XLA may compute the op in the loop that reads it.
fn is_fused(op: &Op) -> bool {
    match op {
        Op::Unary(_)
        | Op::Binary(_)
        | Op::Compare(_)
        | Op::IsFinite
        | Op::Select
        | Op::Clamp
        | Op::Convert { .. }
        | Op::BitcastConvert { .. }
        | Op::Reshape { .. }
        | Op::BroadcastInDim { .. }
        | Op::Transpose { .. }
        | Op::Reverse { .. }
        | Op::Slice(_)
        | Op::Pad(_)
        | Op::Concatenate { .. }
        | Op::DynamicSlice { .. }
        | Op::DynamicUpdateSlice
        | Op::Gather(_)
        | Op::Complex
        | Op::Real
        | Op::Imag
        | Op::GetResult { .. }
        | Op::ShardingConstraint(_) => true,
        Op::Parameter { .. }
        | Op::Slot { .. }
        | Op::Offset { .. }
        | Op::Constant(_)
        | Op::Iota { .. }
        | Op::DotGeneral(_)
        | Op::Convolution(_)
        | Op::Reduce { .. }
        | Op::ArgReduce { .. }
        | Op::ReduceWindow { .. }
        | Op::SelectAndScatter { .. }
        | Op::Sort { .. }
        | Op::TopK { .. }
        | Op::Scatter(_)
        | Op::RngBitGenerator { .. }
        | Op::Fft { .. }
        | Op::OptimizationBarrier
        | Op::For { .. }
        | Op::CustomCall(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lower::{LowerOptions, lower, lower_with};
    use crate::op::BinaryOp;
    use crate::{Builder, DType, NodeId, Number, Program, TensorType};

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
        let reduced: NodeId = program.outputs()[0];
        reductions(program.graph())[reduced.index()]
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
