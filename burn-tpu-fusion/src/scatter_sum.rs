//! The sum of scattered values is the sum of the values: a reduction along the dim that a scatter filled reads its
//! updates.
//!
//! The gradient of cross-entropy scatters one number into each row of zeros, and log-softmax's gradient sums each row to
//! get that number back, over all classes. This pass takes the number:
//!
//! ```text
//! reduce_sum(negate(scatter_add(0, i, u)), dim)   -> reduce_sum(negate(select(0 <= i < n, u, 0)), dim)
//! ```
//!
//! # Why it is exact
//! Each row of the result has one update, so it is the sum of that update and of zeros: the update itself, also if it is
//! NaN or infinite, or +0 for -0. A scatter drops an update whose index is out of range, hence the `select`; an index of
//! another value is compared in a type that has the number of elements. Between scatter and sum there may be negations and
//! conversions of floats, which take zeros to zeros, and the update to what they took it to before.
//!
//! Gain: `docs/decisions/0027-the-loss-reads-its-logits-once.md`.

use crate::{Pass, Rewritten};
use burn_tpu_graph::op::{BinaryOp, Combine, Direction, ScatterAttrs, ScatterMode, UnaryOp};
use burn_tpu_graph::{Builder, DType, Graph, GraphError, LiteralData, Node, NodeId, Number, Op, Program, Renaming};

/// The pass that sums updates instead of what they were scattered into. See the module's documentation.
#[derive(Clone, Copy, Debug, Default)]
pub struct ScatterSum;

impl Pass for ScatterSum {
    fn name(&self) -> &'static str {
        "scatter_sum"
    }

    fn run(&self, program: &Program) -> Result<Rewritten, GraphError> {
        let mut count = 0;
        let rewritten = program.rebuild(|new, id| match find(program.graph(), program.graph().node(id)) {
            Some(sum) => {
                count += 1;
                sum.add(&mut new.graph, &new.renamed)
            }
            None => new.copy(id),
        })?;
        Ok(Rewritten { program: if count == 0 { program.clone() } else { rewritten }, count })
    }
}

/// A sum over the dim of a scatter into zeros.
struct ScatteredSum<'a> {
    sum: &'a Op,
    indices: NodeId,
    updates: NodeId,
    /// The number of elements along the dim.
    size: usize,
    /// The negations and conversions between them, last op first.
    between: Vec<&'a Op>,
}

/// Returns the sum that a node is, if it is one of scattered values.
fn find<'a>(graph: &'a Graph, node: &'a Node) -> Option<ScatteredSum<'a>> {
    let (Op::Reduce { combine: Combine::Sum, dims }, &[mut value]) = (&node.op, &node.operands[..]) else {
        return None;
    };
    let &[dim] = dims.as_slice() else { return None };
    let mut between = Vec::new();
    loop {
        let scatter = graph.node(value);
        match (&scatter.op, &scatter.operands[..]) {
            (Op::Unary(UnaryOp::Neg) | Op::Convert { .. }, &[operand]) if is_float(graph, scatter, operand) => {
                between.push(&scatter.op);
                value = operand;
            }
            (Op::Scatter(attrs), &[zeros, indices, updates]) => {
                let size = *scatter.ty.dims.get(dim)?;
                let is_one_a_row =
                    fills(attrs, dim, graph.rank(indices)) && graph.ty(updates).dims.get(dim) == Some(&1);
                let is_found = is_one_a_row
                    && is_float(graph, scatter, updates)
                    && is_zero(graph, zeros)
                    && has_number(graph.dtype(indices), size);
                return is_found.then_some(ScatteredSum { sum: &node.op, indices, updates, size, between });
            }
            _ => return None,
        }
    }
}

impl ScatteredSum<'_> {
    /// Adds the sum of the updates.
    fn add(&self, graph: &mut Graph, renamed: &Renaming) -> Result<NodeId, GraphError> {
        let (indices, updates) = (renamed.id(self.indices)?, renamed.id(self.updates)?);
        let dims = graph.dims(updates);
        let indices = graph.reshape(indices, &dims)?;
        let at_least = graph.compare_const(Direction::Ge, indices, Number::Int(0))?;
        let below = graph.compare_const(Direction::Lt, indices, Number::UInt(self.size as u64))?;
        let in_range = graph.binary(BinaryOp::And, at_least, below)?;
        let zeros = graph.splat_like(updates, Number::Float(0.0))?;
        let kept = graph.select(in_range, updates, zeros)?;
        let value = self.between.iter().rev().try_fold(kept, |x, &op| graph.add(op.clone(), &[x]))?;
        graph.add(self.sum.clone(), &[value])
    }
}

/// Returns whether a scatter adds elements along one dim, at indices of one component in their last dim.
fn fills(attrs: &ScatterAttrs, dim: usize, rank: usize) -> bool {
    attrs.mode == ScatterMode::Combine(Combine::Sum)
        && attrs.update_window_dims.is_empty()
        && attrs.inserted_window_dims.as_slice() == [dim]
        && attrs.scatter_dims_to_operand_dims.as_slice() == [dim]
        && attrs.index_vector_dim + 1 == rank
        && attrs.input_batching_dims == attrs.scatter_indices_batching_dims
}

/// Returns whether an integer type has a number.
fn has_number(dtype: DType, number: usize) -> bool {
    let bits = 8 * dtype.size_bytes() - usize::from(dtype.is_signed_int());
    bits >= 64 || number < 1 << bits
}

fn is_float(graph: &Graph, node: &Node, operand: NodeId) -> bool {
    node.ty.dtype.is_float() && graph.dtype(operand).is_float()
}

/// Returns whether a value is +0 in every element.
fn is_zero(graph: &Graph, id: NodeId) -> bool {
    let node = graph.node(id);
    match (&node.op, &node.operands[..]) {
        (Op::Constant(literal), _) => literal.data == LiteralData::Splat(0),
        (Op::Convert { .. } | Op::BroadcastInDim { .. } | Op::Reshape { .. }, &[operand]) => is_zero(graph, operand),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
