//! Linear layers round once: bias and activation after a contraction of 16-bit floats stay in f32 until the last op.
//!
//! Recorded op by op, a linear layer in bf16 rounds its f32 sums to bf16 and adds the bias in bf16, which rounds
//! again. An activation computed in f32 starts from that. This pass computes the bias and the activation on the f32 sums:
//!
//! ```text
//! convert_bf16(dot)                 -> unchanged; its f32 operand is recorded as its wide value
//! add(wide, broadcast(bias))        -> convert_bf16(add(wide in f32, broadcast(convert_f32(bias))))
//! maximum(wide, 0)                  -> convert_bf16(maximum(wide in f32, 0))
//! convert_f32(wide)                 -> the wide value
//! ```
//!
//! # Why it is exact
//! The pass removes only roundings to 16 bits of values that nothing else reads: the rounded value has one use (an output
//! counts as a use), and so has the broadcast bias. All other arithmetic is the same, in the wider type that the
//! contraction already has. `maximum` with 0 commutes with rounding, so its result does not change; NaN, infinities and
//! zeros pass through a rounding as they are. A sum that is too large for 16 bits was rounded to infinity; now only its
//! result is. Nothing is computed twice and the shapes do not change. A program without 16-bit contractions has no wide
//! value and is returned unchanged.
//!
//! Gain: `docs/decisions/0003-linear-activation-fusion.md`.

use crate::{Pass, Rewritten};
use burn_tpu_graph::op::{BinaryOp, OpKind};
use burn_tpu_graph::{Builder, DType, Graph, GraphError, LiteralData, Node, NodeId, Op, Program};
use std::collections::BTreeMap;

/// The pass that keeps bias and activation in f32. See the module's documentation.
#[derive(Clone, Copy, Debug, Default)]
pub struct LinearActivation;

impl Pass for LinearActivation {
    fn name(&self) -> &'static str {
        "linear_activation"
    }

    fn run(&self, program: &Program) -> Result<Rewritten, GraphError> {
        let mut state = State { program, uses: program.use_counts(), wide: BTreeMap::new(), count: 0 };
        let rewritten = program.rewrite(|graph, id, node, operands| state.node(graph, id, node, operands))?;
        Ok(Rewritten { program: if state.count == 0 { program.clone() } else { rewritten }, count: state.count })
    }
}

struct State<'a> {
    program: &'a Program,
    uses: Vec<u32>,
    /// Nodes of the old program that round an f32 node of the new one, with that f32 node.
    wide: BTreeMap<NodeId, NodeId>,
    count: usize,
}

impl State<'_> {
    /// Adds the new node for an old one. `operands` are the new nodes of its operands.
    fn node(&mut self, graph: &mut Graph, id: NodeId, node: &Node, operands: &[NodeId]) -> Result<NodeId, GraphError> {
        if let Op::Convert { dtype: DType::F32 } = node.op
            && let Some(wide) = node.operands.first().and_then(|&operand| self.unseen_wide(operand))
        {
            self.count += 1;
            return Ok(wide);
        }
        let biased = if node.op == BinaryOp::Add.into() { self.add_bias(graph, node, operands)? } else { None };
        let relu = if node.op == BinaryOp::Max.into() { self.relu(graph, node)? } else { None };
        if let Some(wide) = biased.or(relu) {
            self.count += 1;
            self.wide.insert(id, wide);
            return graph.convert(wide, node.ty.dtype);
        }
        if self.rounds_contraction(node) {
            self.wide.extend(operands.first().map(|&operand| (id, operand)));
        }
        graph.add(node.op.clone(), operands)
    }

    /// Returns whether the node converts the f32 sums of a 16-bit contraction to 16 bits.
    fn rounds_contraction(&self, node: &Node) -> bool {
        let Op::Convert { dtype } = node.op else { return false };
        let Some(&sums) = node.operands.first() else { return false };
        let contraction = self.program.graph().node(sums);
        let half_operand = |node: &Node| node.operands.first().is_some_and(|&x| self.dtype(x).is_half());
        dtype.is_half()
            && contraction.ty.dtype == DType::F32
            && contraction.op.kind() == OpKind::Contraction
            && half_operand(contraction)
    }

    fn dtype(&self, old: NodeId) -> DType {
        self.program.graph().ty(old).dtype
    }

    /// Returns the f32 value of a node whose rounded value has no other use.
    fn unseen_wide(&self, old: NodeId) -> Option<NodeId> {
        let wide = self.wide.get(&old).copied();
        wide.filter(|_| self.used_once(old))
    }

    fn used_once(&self, old: NodeId) -> bool {
        self.uses.get(old.index()) == Some(&1)
    }

    /// Returns the wide value of one operand of a commutative op, and the position of the other operand.
    fn wide_operand(&self, node: &Node) -> Option<(NodeId, usize)> {
        let wide = |i: usize| node.operands.get(i).and_then(|&old| self.unseen_wide(old));
        wide(0).map(|wide| (wide, 1)).or_else(|| wide(1).map(|wide| (wide, 0)))
    }

    fn add_bias(&self, graph: &mut Graph, node: &Node, operands: &[NodeId]) -> Result<Option<NodeId>, GraphError> {
        let Some((wide, at)) = self.wide_operand(node) else { return Ok(None) };
        let (Some(&old), Some(&new)) = (node.operands.get(at), operands.get(at)) else { return Ok(None) };
        let broadcast = graph.node(new).clone();
        let (Op::BroadcastInDim { dims, mapping }, [bias]) = (&broadcast.op, broadcast.operands.as_slice()) else {
            return Ok(None);
        };
        if !self.used_once(old) {
            return Ok(None);
        }
        let bias = graph.convert(*bias, DType::F32)?;
        let bias = graph.broadcast_in_dim(bias, dims, mapping)?;
        graph.binary(BinaryOp::Add, wide, bias).map(Some)
    }

    fn relu(&self, graph: &mut Graph, node: &Node) -> Result<Option<NodeId>, GraphError> {
        let Some((wide, at)) = self.wide_operand(node) else { return Ok(None) };
        let zero = node.operands.get(at).is_some_and(|&old| is_zero(self.program.graph().node(old)));
        if !zero {
            return Ok(None);
        }
        graph.binary_const(BinaryOp::Max, wide, 0.0).map(Some)
    }
}

/// Returns whether the node is a constant of +0 in every element.
fn is_zero(node: &Node) -> bool {
    matches!(&node.op, Op::Constant(literal) if literal.data == LiteralData::Splat(0))
}

#[cfg(test)]
mod tests;
