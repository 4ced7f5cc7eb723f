//! Chains of 16-bit floats round once: what one element-wise op alone reads of another stays in f32.
//!
//! Recorded op by op, each op of a formula in bf16 rounds its result, and the next one starts from the rounded value. This
//! pass leaves out the roundings within a chain:
//!
//! ```text
//! multiply(subtract(x, y), z)       -> convert_bf16(multiply(subtract(wide x, wide y), wide z))
//! convert_f32(add(x, y))            -> add(wide x, wide y)
//! add(broadcast(convert_bf16(s)), x) -> convert_bf16(add(broadcast(s), wide x)), where s is a sum in f32
//! ```
//!
//! Legality. The pass removes only roundings to 16 bits of values that one op reads, and no output is. All arithmetic is the
//! same, in the wider type, and happens as often. A value that a comparison, a product, a gather or a second op reads is
//! rounded as before: all its readers see the same numbers, so a gradient is that of the function which was computed.
//!
//! What it leaves alone. A value with one element-wise reader can be in the same fused loop as its reader, and need not be
//! written. Sums of products and convolutions keep their rounding, since their results may be written before they are read;
//! `LinearActivation` knows where they are not. Of what a reduction gives, the wide form is written; it is small. Programs
//! of a mesh: what devices exchange would have twice the bytes.
//!
//! Gain, in accuracy: `docs/decisions/0036-few-bits.md`.

use crate::readers::Readers;
use crate::{Pass, Rewritten};
use burn_tpu_graph::op::OpKind;
use burn_tpu_graph::{Builder, DType, Graph, GraphError, Node, NodeId, Op, Program};
use std::collections::BTreeMap;

/// The pass that rounds a chain of 16-bit floats once. See the module's documentation.
#[derive(Clone, Copy, Debug, Default)]
pub struct RoundOnce;

impl Pass for RoundOnce {
    fn name(&self) -> &'static str {
        "round_once"
    }

    fn run(&self, program: &Program) -> Result<Rewritten, GraphError> {
        if program.mesh().is_some() {
            return Ok(Rewritten { program: program.clone(), count: 0 });
        }
        let mut state = State::new(program);
        let rewritten = program.rewrite(|graph, id, node, operands| state.node(graph, id, node, operands))?;
        Ok(Rewritten { program: if state.count == 0 { program.clone() } else { rewritten }, count: state.count })
    }
}

struct State<'a> {
    program: &'a Program,
    readers: Vec<Readers>,
    /// For each node, whether its one reader takes it in f32.
    unseen: Vec<bool>,
    /// The f32 node of the new program for nodes of the old one that are unseen.
    wide: BTreeMap<NodeId, NodeId>,
    count: usize,
}

impl<'a> State<'a> {
    fn new(program: &'a Program) -> Self {
        let readers = Readers::all(program);
        let mut unseen = vec![false; readers.len()];
        for (id, node) in program.graph().nodes().iter().enumerate().rev() {
            let Readers::One(reader) = readers[id] else { continue };
            unseen[id] = node.ty.dtype.is_half()
                && match program.graph().node(reader).op {
                    Op::Convert { dtype } => dtype == DType::F32,
                    Op::BroadcastInDim { .. } | Op::Reshape { .. } => unseen[reader.index()],
                    _ => is_formula(program.graph().node(reader)),
                };
        }
        Self { program, readers, unseen, wide: BTreeMap::new(), count: 0 }
    }

    /// Adds the new node for an old one. `operands` are the new nodes of its operands.
    fn node(&mut self, graph: &mut Graph, id: NodeId, node: &Node, operands: &[NodeId]) -> Result<NodeId, GraphError> {
        let wide = |state: &Self, at: usize| state.wide.get(node.operands.get(at)?).copied();
        match node.op {
            Op::Convert { dtype: DType::F32 } => {
                if let Some(wide) = wide(self, 0) {
                    return Ok(wide);
                }
            }
            Op::Convert { .. } if self.unseen[id.index()] && self.is_cheap_in_f32(node) => {
                self.count += 1;
                self.wide.extend(operands.first().map(|&sums| (id, sums)));
            }
            Op::BroadcastInDim { .. } | Op::Reshape { .. } => {
                if let Some(wide) = wide(self, 0) {
                    let moved = graph.add(node.op.clone(), &[wide])?;
                    self.wide.insert(id, moved);
                }
            }
            _ if is_formula(node) => {
                let reads_wide = (0..operands.len()).any(|at| wide(self, at).is_some());
                if self.unseen[id.index()] || reads_wide {
                    return self.widened(graph, id, node, operands);
                }
            }
            _ => {}
        }
        graph.add(node.op.clone(), operands)
    }

    /// Computes an op in f32. Its rounded form is dropped with all other dead nodes if nobody sees it.
    fn widened(
        &mut self,
        graph: &mut Graph,
        id: NodeId,
        node: &Node,
        operands: &[NodeId],
    ) -> Result<NodeId, GraphError> {
        let wide = |(old, &new): (&NodeId, &NodeId)| match self.wide.get(old) {
            Some(&wide) => Ok(wide),
            None if graph.dtype(new).is_half() => graph.convert(new, DType::F32),
            None => Ok(new),
        };
        let operands = node.operands.iter().zip(operands).map(wide).collect::<Result<Vec<_>, _>>()?;
        let result = graph.add(node.op.clone(), &operands)?;
        if self.unseen[id.index()] {
            self.count += 1;
            self.wide.insert(id, result);
        }
        graph.convert(result, node.ty.dtype)
    }

    /// Returns whether a conversion rounds an f32 value that no array of main memory becomes wider for: a reduction, or an
    /// element-wise value with no other reader.
    fn is_cheap_in_f32(&self, rounding: &Node) -> bool {
        let Some(&source) = rounding.operands.first() else { return false };
        let node = self.program.graph().node(source);
        let is_alone = self.readers[source.index()] != Readers::Many;
        node.ty.dtype == DType::F32
            && match node.op {
                Op::Reduce { .. } => true,
                _ if node.op.kind() == OpKind::Arithmetic => is_alone,
                _ => false,
            }
    }
}

/// Returns whether an op computes 16-bit floats element by element.
fn is_formula(node: &Node) -> bool {
    node.ty.dtype.is_half() && node.op.kind() == OpKind::Arithmetic
}

#[cfg(test)]
mod tests;
