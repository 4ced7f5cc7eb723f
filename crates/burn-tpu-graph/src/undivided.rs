//! Divisions of inputs by one are left out.
//!
//! Burn's `RunningState`, which has the statistics of a batch norm, divides the sum of its threads' updates by their
//! number: from the second step on, each statistic is divided by 1 before it is used. Without that, the second step is
//! the first one.
//!
//! Owns: which divisions these are, and the program without them. May not know: which programs are in memory.

use crate::op::BinaryOp;
use crate::{Bindings, DType, NodeId, Number, Op, Program, Rebuild, Result};
use std::sync::Arc;

/// A program whose inputs are not divided by run-time scalars that are one.
#[derive(Clone, Debug)]
pub struct Undivided {
    /// The program, and what its inputs are in the whole one.
    pub program: (Arc<Program>, Bindings),
    /// Where each output of the whole program comes from.
    pub outputs: Vec<UndividedOutput>,
    /// The slots that have to be one, by index in the whole program, with the bits of one; ascending.
    pub ones: Vec<(u32, u64)>,
}

/// Where an output comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UndividedOutput {
    /// It is the whole program's parameter of this index.
    Parameter(u32),
    /// It is the program's result of this index.
    Result(usize),
}

impl Undivided {
    /// Returns a program without its divisions of parameters by slots that are one; `None` if it has none. `bits` are
    /// those of the slots, by index.
    ///
    /// # Errors
    /// Only a bug gives one: a node that breaks its op's rule.
    pub fn of(program: &Program, bits: &[u64]) -> Result<Option<Self>> {
        let graph = program.graph();
        let mut new = Rebuild::new(graph);
        // The parameter that a node is, by the whole program's index.
        let mut parameters: Vec<Option<u32>> = vec![None; graph.len()];
        let mut ones = Vec::new();
        for (id, node) in graph.ids().zip(graph.nodes()) {
            if let Op::Parameter { index, .. } = node.op {
                parameters[id.index()] = Some(index);
            }
            match divided_by_one(program, id, bits) {
                Some((x, one)) => {
                    new.renamed.set(id, new.renamed.id(x)?);
                    parameters[id.index()] = parameters[x.index()];
                    ones.push(one);
                }
                None => {
                    new.copy(id)?;
                }
            }
        }
        if ones.is_empty() {
            return Ok(None);
        }
        ones.sort_unstable();
        ones.dedup();
        let (mut results, mut outputs) = (Vec::new(), Vec::with_capacity(program.outputs().len()));
        for &output in program.outputs() {
            outputs.push(match parameters[output.index()] {
                Some(index) => UndividedOutput::Parameter(index),
                None => {
                    results.push(new.renamed.id(output)?);
                    UndividedOutput::Result(results.len() - 1)
                }
            });
        }
        let (program, inputs) = Program::canonical(&new.graph, &results)?;
        Ok(Some(Self { program: (Arc::new(program), inputs), outputs, ones }))
    }
}

/// Returns the parameter that a node divides by a slot that is one, and the slot with its bits.
fn divided_by_one(program: &Program, id: NodeId, bits: &[u64]) -> Option<(NodeId, (u32, u64))> {
    let graph = program.graph();
    let node = graph.node(id);
    if node.op != Op::Binary(BinaryOp::Div) || !matches!(node.ty.dtype, DType::F32 | DType::F64) {
        return None;
    }
    let (x, divisor) = (node.operands[0], graph.node(node.operands[1]));
    let slot = if let Op::BroadcastInDim { .. } = divisor.op { graph.node(divisor.operands[0]) } else { divisor };
    let Op::Slot { index, dtype } = slot.op else { return None };
    let one = Number::Float(1.0).bits(dtype);
    let is_one = bits.get(index as usize) == Some(&one);
    (is_one && matches!(graph.node(x).op, Op::Parameter { .. })).then_some((x, (index, one)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::UnaryOp;
    use crate::{Builder, Graph, TensorType};

    fn parameter(graph: &mut Graph, index: u32) -> NodeId {
        graph.add(Op::Parameter { index, ty: TensorType::new(DType::F32, [4]) }, &[]).unwrap()
    }

    fn divided(graph: &mut Graph, x: NodeId, index: u32) -> NodeId {
        let slot = graph.add(Op::Slot { index, dtype: DType::F32 }, &[]).unwrap();
        let slot = graph.broadcast_to(slot, &[4]).unwrap();
        graph.binary(BinaryOp::Div, x, slot).unwrap()
    }

    fn bits(slots: [f32; 2]) -> [u64; 2] {
        slots.map(|slot| slot.to_bits().into())
    }

    #[test]
    fn an_input_that_is_divided_by_one_is_that_input() {
        let graph = &mut Graph::new();
        let [y, x] = [0, 1].map(|index| parameter(graph, index));
        let statistic = divided(graph, x, 0);
        let sum = graph.binary(BinaryOp::Add, statistic, y).unwrap();
        // Not an input.
        let output = divided(graph, sum, 1);
        let program = Program::canonical(graph, &[statistic, output]).unwrap().0;
        let of = |slots| Undivided::of(&program, &bits(slots)).unwrap();
        let undivided = of([1.0, 1.0]).unwrap();
        let plain = &mut Graph::new();
        let [x, y] = [0, 1].map(|index| parameter(plain, index));
        let sum = plain.binary(BinaryOp::Add, x, y).unwrap();
        let output = divided(plain, sum, 0);
        assert_eq!(*undivided.program.0, Program::canonical(plain, &[output]).unwrap().0);
        let of_whole = program.parameters().map(|(index, _)| index).collect::<Vec<_>>();
        assert_eq!(undivided.program.1.parameters, of_whole);
        assert_eq!((&*undivided.program.1.slots, &*undivided.ones), (&[1][..], &[(0, bits([1.0, 1.0])[0])][..]));
        assert_eq!(undivided.outputs, [UndividedOutput::Parameter(0), UndividedOutput::Result(0)]);
        assert!(of([2.0, 1.0]).is_none(), "a mean of two");
    }

    #[test]
    fn a_program_without_such_a_division_is_left_alone() {
        let graph = &mut Graph::new();
        let x = parameter(graph, 0);
        let tanh = graph.unary(UnaryOp::Tanh, x).unwrap();
        let output = divided(graph, tanh, 0);
        let program = Program::canonical(graph, &[output]).unwrap().0;
        assert!(Undivided::of(&program, &bits([1.0, 1.0])).unwrap().is_none());
    }
}
