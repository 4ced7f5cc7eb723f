//! The flag of a program: whether all of its float results are finite, as one more result.

use super::{Class, LABEL, infinity, magnitude};
use burn_tpu_graph::op::{BinaryOp, Combine, Direction};
use burn_tpu_graph::{Builder, DType, Graph, NodeId, Number, Op, Program, Result};

/// Returns a program that also computes the class of its float results, as its last result `u32[]`. A program that computes
/// no float result is returned as it is. The other nodes keep their ids.
pub(crate) fn flagged(program: Program) -> Result<Program> {
    let checked = checked(&program);
    if checked.is_empty() {
        return Ok(program);
    }
    let mut graph = program.graph().clone();
    graph.set_label(LABEL);
    let mut flag = None;
    for dtype in DTYPES {
        let Some(class) = class_of(&mut graph, dtype, &checked)? else { continue };
        flag = Some(match flag {
            Some(worst) => graph.binary(BinaryOp::Max, worst, class)?,
            None => class,
        });
    }
    let outputs: Vec<NodeId> = program.outputs().iter().copied().chain(flag).collect();
    Program::extract(&graph, &outputs)
}

/// Returns the class that a flag's bytes encode; bytes of no class mean finite results.
pub(crate) fn flag_of(bytes: &[u8]) -> Class {
    match bytes {
        [1, 0, 0, 0] => Class::Infinite,
        [2, 0, 0, 0] => Class::Nan,
        _ => Class::Finite,
    }
}

/// The types of floats.
pub(super) const DTYPES: [DType; 4] = [DType::F32, DType::BF16, DType::F16, DType::F64];

/// Adds the worst class of the checked values of a type, `u32[]`; `None` if no value has the type.
fn class_of(graph: &mut Graph, dtype: DType, checked: &[NodeId]) -> Result<Option<NodeId>> {
    let mut magnitudes = Vec::new();
    for &id in checked {
        if graph.dtype(id) == dtype {
            magnitudes.push(magnitude(graph, id)?);
        }
    }
    if magnitudes.is_empty() {
        return Ok(None);
    }
    let all = graph.concatenate(&magnitudes, 0)?;
    let largest = graph.reduce(Combine::Max, all, &[0])?;
    let infinity = Number::UInt(infinity(dtype));
    let at_least = graph.compare_const(Direction::Ge, largest, infinity)?;
    let above = graph.compare_const(Direction::Gt, largest, infinity)?;
    let (infinite, nan) = (graph.convert(at_least, DType::U32)?, graph.convert(above, DType::U32)?);
    graph.binary(BinaryOp::Add, infinite, nan).map(Some)
}

/// Returns the float results to check: computed ones, each once, and none that has the elements of another one.
fn checked(program: &Program) -> Vec<NodeId> {
    let graph = program.graph();
    let mut checked: Vec<NodeId> = program.outputs().iter().map(|&id| same_elements(graph, id)).collect();
    checked.sort_unstable();
    checked.dedup();
    let is_computed = |op: &Op| !matches!(op, Op::Parameter { .. } | Op::Slot { .. } | Op::Constant(_));
    checked.retain(|&id| graph.dtype(id).is_float() && is_computed(&graph.node(id).op));
    checked
}

/// Returns the first value with the same elements, but for their order or sign.
fn same_elements(graph: &Graph, id: NodeId) -> NodeId {
    let node = graph.node(id);
    match node.operands.first() {
        Some(&operand) if node.op.moves_all() && graph.ty(operand).elements() == node.ty.elements() => {
            same_elements(graph, operand)
        }
        _ => id,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn_tpu_graph::{Sharding, TensorType, verify};

    #[test]
    fn a_program_has_one_more_result_if_it_computes_floats() {
        let mut graph = Graph::new();
        let parameter = |graph: &mut Graph, index, dtype| {
            graph.add(Op::Parameter { index, ty: TensorType::new(dtype, [2, 3]) }, &[]).unwrap()
        };
        let x = parameter(&mut graph, 0, DType::F32);
        let i = parameter(&mut graph, 1, DType::I32);
        let sum = graph.binary_const(BinaryOp::Add, x, 1.0).unwrap();
        let small = graph.convert(sum, DType::BF16).unwrap();
        let reshaped = graph.reshape(sum, &[6]).unwrap();
        let placed = graph.add(Op::ShardingConstraint(Sharding::replicated(2)), &[sum]).unwrap();
        let counted = graph.binary_const(BinaryOp::Add, i, 1).unwrap();
        let with = |outputs: &[NodeId]| flagged(Program::extract(&graph, outputs).unwrap()).unwrap();
        assert_eq!(with(&[x, counted]).outputs().len(), 2, "nothing computed is a float");
        let program = with(&[sum, small, reshaped, placed, counted]);
        verify(&program).unwrap();
        assert_eq!(program.outputs().len(), 6);
        assert_eq!(program.output_types().last(), Some(&TensorType::scalar(DType::U32)));
        assert_eq!(checked(&program).len(), 2, "a value is checked once, whatever its dims and its placement");
    }
}
