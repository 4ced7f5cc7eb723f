//! Chains of 16-bit floats round once: what element-wise ops alone read stays in f32.
//!
//! Recorded op by op, each op of a formula in bf16 rounds its result, and the next one starts from the rounded value. This
//! pass leaves out the roundings within a chain:
//!
//! ```text
//! multiply(subtract(x, y), z)        -> convert_bf16(multiply(subtract(wide x, wide y), wide z))
//! convert_f32(add(x, y))             -> add(wide x, wide y)
//! add(broadcast(convert_bf16(s)), x) -> convert_bf16(add(broadcast(s), wide x)), where s is a sum in f32
//! divide(convert_bf16(dot(q, k)), n) -> convert_bf16(multiply(dot(q, k), 1 / n)), where n is one number
//! ```
//!
//! # Why it is exact
//! The pass removes only roundings to 16 bits of values that element-wise ops alone read, and no output is. All arithmetic is
//! the same, in the wider type, and happens as often; a reciprocal has one f32 rounding more than the division, and two
//! factors where it would leave the range of f32. NaN, infinities and zeros pass through a rounding as they are; what
//! is too large for 16 bits is no infinity until the end. All readers of a value see the same numbers, so a gradient is
//! that of the function which was computed: a value that a comparison, a product or a gather reads too is rounded for all.
//!
//! # When it is no loss
//! The f32 form of a value must not be written where its 16-bit form would be, or be small.
//! - A value with one element-wise reader can be in the same fused loop as its reader, and need not be written.
//! - A batch of products, as the scores of attention are, is fused with the op that alone reads it, and then with the maximum
//!   of a softmax: XLA writes what the op gives. It is not fused with a division on all TPUs. By one number it is a
//!   multiplication, as XLA makes of it on most of them.
//! - The exponentials of a softmax are computed again where they are read, but where a gradient reads them too.
//! - A value of which sums are the only large operands (see [`Reduced`]) is as small as they are, whoever reads it. So are
//!   broadcasts of one, which nothing writes. That matters most: the gradient of a softmax subtracts what its sum was
//!   divided by, and a rounded sum is an error in all elements of a row.
//!
//! Everything else is rounded as before. Other products and convolutions may be written before they are read: a residual's
//! gradient adds three, of which one can be fused with the sum (`LinearActivation` knows where a product is alone). Programs of
//! a mesh are left alone: what devices exchange would have twice the bytes.
//!
//! Gain: `docs/decisions/0057-what-a-chain-of-16-bit-ops-rounds.md`.

mod reduced;

use crate::number::number;
use crate::readers::Readers;
use crate::{Pass, Rewritten};
use burn_tpu_graph::op::{BinaryOp, Direction, OpKind, UnaryOp};
use burn_tpu_graph::{Builder, DType, Graph, GraphError, Node, NodeId, Op, Program};
use reduced::Reduced;
use std::collections::BTreeMap;

/// The pass that rounds a chain of 16-bit floats once. See the module's documentation.
#[derive(Clone, Copy, Debug, Default)]
pub struct RoundOnce;

impl Pass for RoundOnce {
    fn name(&self) -> &'static str {
        "round_once"
    }

    fn run(&self, program: &Program) -> Result<Rewritten, GraphError> {
        let is_half = |node: &Node| node.ty.dtype.is_half();
        if program.mesh().is_some() || !program.graph().nodes().iter().any(is_half) {
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
    /// For each node, whether all of its readers take it in f32.
    unseen: Vec<bool>,
    /// The f32 node of the new program for nodes of the old one that are unseen.
    wide: BTreeMap<NodeId, NodeId>,
    count: usize,
}

impl<'a> State<'a> {
    fn new(program: &'a Program) -> Self {
        let readers = Readers::all(program);
        let unseen = unseen(program, &readers);
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
            Op::Convert { .. } if self.unseen[id.index()] => {
                if let Some(unrounded) = self.unrounded(node, operands) {
                    self.count += 1;
                    self.wide.insert(id, unrounded);
                }
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
        let result = match &operands[..] {
            &[product, divisor] if self.divides_products(node) => divided(graph, product, divisor)?,
            _ => graph.add(node.op.clone(), &operands)?,
        };
        if self.unseen[id.index()] {
            self.count += 1;
            self.wide.insert(id, result);
        }
        graph.convert(result, node.ty.dtype)
    }

    /// Returns whether a node divides a batch of products whose rounding was left out.
    fn divides_products(&self, node: &Node) -> bool {
        let graph = self.program.graph();
        let is_product = |id: NodeId| matches!(graph.node(id).op, Op::DotGeneral(_));
        let dividend = node.operands[0];
        node.op == BinaryOp::Div.into()
            && self.wide.contains_key(&dividend)
            && graph.node(dividend).operands.first().is_some_and(|&source| is_product(source))
    }

    /// Returns the f32 value that a conversion rounds, if no array of main memory becomes wider for it: a reduction, or an
    /// element-wise value or a batch of products with no other reader.
    fn unrounded(&self, rounding: &Node, operands: &[NodeId]) -> Option<NodeId> {
        let &source = rounding.operands.first()?;
        let node = self.program.graph().node(source);
        let is_alone = matches!(self.readers[source.index()], Readers::Nobody | Readers::One(_));
        let is_cheap = match (&node.op, node.op.kind()) {
            (_, OpKind::Reduction) => true,
            (_, OpKind::Arithmetic) => is_alone,
            (Op::DotGeneral(attrs), _) => is_alone && !attrs.lhs_batch.is_empty(),
            _ => false,
        };
        operands.first().copied().filter(|_| is_cheap && node.ty.dtype == DType::F32)
    }
}

/// Divides an f32 value. By one number, it multiplies with the reciprocal.
fn divided(graph: &mut Graph, x: NodeId, divisor: NodeId) -> Result<NodeId, GraphError> {
    let narrow = match graph.node(divisor).op {
        Op::Convert { .. } => graph.node(divisor).operands[0],
        _ => divisor,
    };
    let Some(number) = number(graph, narrow) else { return graph.binary(BinaryOp::Div, x, divisor) };
    let number = graph.reshape(number, &[])?;
    let number = graph.convert(number, DType::F32)?;
    // The reciprocal of a number next to an end of f32 is past the other one: it has two factors.
    let (small, large) = (2f64.powi(-64), 2f64.powi(64));
    let size = graph.unary(UnaryOp::Abs, number)?;
    let (is_small, is_large) =
        (graph.compare_const(Direction::Lt, size, small)?, graph.compare_const(Direction::Gt, size, large)?);
    let one = graph.splat_like(number, 1.0)?;
    let (small, large) = (graph.splat_like(number, small)?, graph.splat_like(number, large)?);
    let factor = graph.select(is_small, large, one)?;
    let factor = graph.select(is_large, small, factor)?;
    let number = graph.binary(BinaryOp::Mul, number, factor)?;
    let reciprocal = graph.binary(BinaryOp::Div, one, number)?;
    [reciprocal, factor].into_iter().try_fold(x, |x, factor| {
        let factor = graph.broadcast_like(factor, x)?;
        graph.binary(BinaryOp::Mul, x, factor)
    })
}

/// Returns for each node whether it is a 16-bit float that all of its readers take in f32.
fn unseen(program: &Program, readers: &[Readers]) -> Vec<bool> {
    let graph = program.graph();
    let sizes = Reduced::of(graph);
    let reads = program.use_counts();
    // The reads in f32 of each node. Readers come after what they read.
    let mut wide_reads = vec![0; graph.len()];
    let mut unseen = vec![false; graph.len()];
    for id in graph.ids().rev() {
        let (node, at) = (graph.node(id), id.index());
        let is_read_wide = reads[at] > 0 && wide_reads[at] == reads[at];
        let is_free = match readers[at] {
            Readers::One(_) => true,
            Readers::Two(readers) => sizes.is_free(id) || is_exponential_of_softmax(graph, id, readers),
            _ => sizes.is_free(id),
        };
        unseen[at] = node.ty.dtype.is_half() && is_read_wide && is_free;
        let takes_wide = match node.op {
            Op::Convert { dtype } => dtype == DType::F32,
            Op::BroadcastInDim { .. } | Op::Reshape { .. } => unseen[at],
            _ => is_formula(node),
        };
        if takes_wide {
            node.operands.iter().for_each(|operand| wide_reads[operand.index()] += 1);
        }
    }
    unseen
}

/// Returns whether a value with these readers is `e` of a softmax that is written op by op, `e / sum(e)`. The sum is of f32, and
/// comes before what divides by it.
fn is_exponential_of_softmax(graph: &Graph, id: NodeId, readers: [NodeId; 2]) -> bool {
    let [sum, quotient] = readers.map(|reader| graph.node(reader));
    let is_quotient = quotient.op == BinaryOp::Div.into() && quotient.operands[0] == id && quotient.operands[1] != id;
    graph.node(id).op == UnaryOp::Exp.into() && sum.op == Op::Convert { dtype: DType::F32 } && is_quotient
}

/// Returns whether an op computes 16-bit floats element by element.
fn is_formula(node: &Node) -> bool {
    node.ty.dtype.is_half() && node.op.kind() == OpKind::Arithmetic
}

#[cfg(test)]
mod tests;
