//! A product with a matrix of few bits is a loop over its blocks: XLA's CPU compiler writes all of the matrix as floats
//! first, which takes longer than reading a matrix of floats.
//!
//! ```text
//! reduce_sum(dot(x, float(q), batch 0) * scales, 0)
//!     -> loop over some blocks b: sum += dot(x[b], float(q[b]) * scales[b])
//! ```
//!
//! `q` has integers of 8 bits, `[blocks, block, out]`, and `float` is a chain of conversions and of element-wise ops with
//! scalars, such as the one that takes 4 bits of 8.
//!
//! # Why it is right
//! Both sum the same products of three factors, in f32. A scale is multiplied with each weight, and no longer with the sum
//! of its block; blocks are added in their order (decision 52). Nobody else reads the parts.
//!
//! When it is no loss. For CPUs alone: a TPU reads the integers where it multiplies. A program on a mesh is left alone.
//!
//! Gain: `docs/decisions/0069-weights-in-few-bits-are-integers-of-blocks.md`.

use crate::{Pass, Rewritten};
use burn_tpu_graph::op::{BinaryOp, Combine, DotAttrs, Trips};
use burn_tpu_graph::{Builder, DType, Dims, Graph, GraphError, NodeId, Op, Program, TensorType};
use std::sync::Arc;

/// The most blocks of a trip: more are no faster.
const MOST_BLOCKS: usize = 4;

/// The most floats of a trip, which are to stay in a processor's cache; a trip has one block at least.
const MOST_FLOATS: usize = 1 << 17;

/// The pass that writes products with matrices of few bits as loops. See the module's documentation.
#[derive(Clone, Copy, Debug, Default)]
pub struct FewBits;

impl Pass for FewBits {
    fn name(&self) -> &'static str {
        "few_bits"
    }

    fn run(&self, program: &Program) -> Result<Rewritten, GraphError> {
        let (graph, uses) = (program.graph(), program.use_counts());
        let mut count = 0;
        let rewritten = program.rebuild(|new, id| {
            let found = if program.mesh().is_none() { find(graph, &uses, id) } else { None };
            let Some(found) = found else { return new.copy(id) };
            count += 1;
            let renamed = |id| new.renamed.id(id);
            let [x, integers, scales] = [renamed(found.x)?, renamed(found.integers)?, renamed(found.scales)?];
            let scalars =
                found.chain.iter().filter_map(|step| step.scalar).map(renamed).collect::<Result<Vec<_>, _>>()?;
            found.add(&mut new.graph, [x, integers, scales], scalars)
        })?;
        Ok(Rewritten { program: if count == 0 { program.clone() } else { rewritten }, count })
    }
}

/// An element-wise op that makes floats of integers: of one value, and of a scalar after it, if it has two operands.
struct Step {
    op: Op,
    scalar: Option<NodeId>,
}

struct Found {
    /// `[blocks, rows, block]`
    x: NodeId,
    /// Integers of 8 bits, `[blocks, block, out]`.
    integers: NodeId,
    /// What makes floats of them.
    chain: Vec<Step>,
    /// `[blocks, 1, out]`
    scales: NodeId,
    attrs: DotAttrs,
}

/// Returns the product that a sum over blocks is.
fn find(graph: &Graph, uses: &[u32], id: NodeId) -> Option<Found> {
    let node = graph.node(id);
    let (Op::Reduce { combine: Combine::Sum, dims }, &[summed]) = (&node.op, &node.operands[..]) else { return None };
    let (Op::Binary(BinaryOp::Mul), &[a, b]) = (&graph.node(summed).op, &graph.node(summed).operands[..]) else {
        return None;
    };
    let is_read_once = |id: NodeId| uses[id.index()] == 1;
    if dims[..] != [0] || node.ty.dtype != DType::F32 || !is_read_once(summed) {
        return None;
    }
    let is_product = |id: &NodeId| matches!(graph.node(*id).op, Op::DotGeneral(_));
    let (product, scales) = if is_product(&a) { (a, b) } else { (b, a) };
    let (Op::DotGeneral(attrs), &[x, weights]) = (&graph.node(product).op, &graph.node(product).operands[..]) else {
        return None;
    };
    let is_of_blocks = attrs.lhs_batch[..] == [0]
        && attrs.rhs_batch[..] == [0]
        && attrs.lhs_contract[..] == [2]
        && attrs.rhs_contract[..] == [1]
        && [x, weights].iter().all(|&factor| graph.rank(factor) == 3 && graph.dtype(factor) == DType::F32);
    if !is_of_blocks || !is_read_once(product) {
        return None;
    }
    let scales = of_each_row(graph, scales);
    let ([blocks, _, out], scale_dims) = (sizes(graph, weights)?, graph.dims(scales));
    let (integers, chain) = chain(graph, uses, weights)?;
    let is_found = blocks > 1 && scale_dims[..] == [blocks, 1, out];
    is_found.then(|| Found { x, integers, chain, scales, attrs: attrs.as_ref().clone() })
}

fn sizes(graph: &Graph, id: NodeId) -> Option<[usize; 3]> {
    graph.dims(id)[..].try_into().ok()
}

/// Returns what is repeated for each row, if a value is that.
fn of_each_row(graph: &Graph, id: NodeId) -> NodeId {
    match (&graph.node(id).op, &graph.node(id).operands[..]) {
        (Op::BroadcastInDim { mapping, .. }, &[source]) if mapping.iter().copied().eq(0..3) => source,
        _ => id,
    }
}

/// Returns the integers of 8 bits that floats are made of, and how.
fn chain(graph: &Graph, uses: &[u32], floats: NodeId) -> Option<(NodeId, Vec<Step>)> {
    let (mut at, mut chain) = (floats, Vec::new());
    loop {
        let node = graph.node(at);
        let next = match (&node.op, &node.operands[..]) {
            (Op::Convert { .. }, &[source]) => Some((source, None)),
            (Op::Binary(_), &[source, other]) => scalar(graph, other).map(|scalar| (source, Some(scalar))),
            _ => None,
        };
        match next.filter(|_| uses[at.index()] == 1) {
            Some((source, scalar)) => {
                chain.push(Step { op: node.op.clone(), scalar });
                at = source;
            }
            None => break,
        }
    }
    chain.reverse();
    let is_found = matches!(graph.dtype(at), DType::I8 | DType::U8) && !chain.is_empty();
    is_found.then_some((at, chain))
}

/// Returns the scalar that a value repeats.
fn scalar(graph: &Graph, id: NodeId) -> Option<NodeId> {
    match (&graph.node(id).op, &graph.node(id).operands[..]) {
        (Op::BroadcastInDim { .. }, &[source]) if graph.rank(source) == 0 => Some(source),
        _ => None,
    }
}

/// Returns how many blocks of so many floats a trip has.
fn blocks_of_trip(blocks: usize, floats: usize) -> usize {
    let fits = |&count: &usize| blocks.is_multiple_of(count) && count * floats <= MOST_FLOATS;
    (2..=MOST_BLOCKS).rev().find(fits).unwrap_or(1)
}

impl Found {
    /// Adds the loop, `[rows, out]`.
    fn add(
        &self,
        graph: &mut Graph,
        [x, integers, scales]: [NodeId; 3],
        scalars: Vec<NodeId>,
    ) -> Result<NodeId, GraphError> {
        let (xs, all) = (graph.dims(x), graph.dims(integers));
        let (blocks, rows, block, out) = (xs[0], xs[1], xs[2], all[2]);
        let step = blocks_of_trip(blocks, block * out);
        let (trips, inputs) = (blocks / step, step * block);
        let x = graph.reshape(x, &[trips, step, rows, block])?;
        let x = graph.transpose(x, &[0, 2, 1, 3])?;
        let x = graph.reshape(x, &[trips, rows, inputs])?;
        let integers = graph.reshape(integers, &[trips, inputs, out])?;
        let scales = graph.reshape(scales, &[trips, step, out])?;
        let sum = graph.splat(DType::F32, &[rows, out], 0.0)?;
        let carries: Vec<NodeId> = [sum, x, integers, scales].into_iter().chain(scalars).collect();
        let body = self.body(graph, &carries, block)?;
        let results = graph.loop_of(Trips::Exactly(trips), Arc::new(body), &carries)?;
        Ok(results[0])
    }

    /// Returns a trip of the loop.
    fn body(&self, outer: &Graph, carries: &[NodeId], block: usize) -> Result<Program, GraphError> {
        let mut graph = Graph::new();
        graph.set_label(outer.current_label());
        let mut parameter = |index: usize, ty| graph.add(Op::Parameter { index: index as u32, ty }, &[]);
        let types = carries.iter().map(|&carry| outer.ty(carry).clone());
        let mut given = types.enumerate().map(|(index, ty)| parameter(index, ty)).collect::<Result<Vec<_>, _>>()?;
        let number = parameter(carries.len(), TensorType::scalar(DType::I32))?;
        let zero = graph.scalar(DType::I32, 0i64)?;
        let mut of_trip = |stack: NodeId| {
            let dims = graph.dims(stack);
            let one = graph.dynamic_slice(stack, &[number, zero, zero], &[1, dims[1], dims[2]])?;
            graph.reshape(one, &dims[1..])
        };
        let (x, mut weights, scales) = (of_trip(given[1])?, of_trip(given[2])?, of_trip(given[3])?);
        let mut scalars = given[4..].iter().copied();
        for step in &self.chain {
            weights = match step.scalar.and_then(|_| scalars.next()) {
                Some(scalar) => {
                    let dims = graph.dims(weights);
                    let scalar = graph.broadcast_in_dim(scalar, &dims, &[])?;
                    graph.add(step.op.clone(), &[weights, scalar])?
                }
                None => graph.add(step.op.clone(), &[weights])?,
            };
        }
        let ([blocks, out], [inputs, _]) = (two(&graph, scales), two(&graph, weights));
        let scales = graph.broadcast_in_dim(scales, &[blocks, block, out], &[0, 2])?;
        let scales = graph.reshape(scales, &[inputs, out])?;
        let weights = graph.binary(BinaryOp::Mul, weights, scales)?;
        let none: &[usize] = &[];
        let attrs = DotAttrs::new([none, none], [&[1], &[0]], DType::F32);
        let attrs = DotAttrs { precision: self.attrs.precision, ..attrs };
        let product = graph.dot_general(x, weights, attrs)?;
        given[0] = graph.binary(BinaryOp::Add, given[0], product)?;
        Program::extract(&graph, &given)
    }
}

/// Returns the sizes of a matrix.
fn two(graph: &Graph, matrix: NodeId) -> [usize; 2] {
    let dims: Dims = graph.dims(matrix);
    [dims[0], dims[1]]
}

#[cfg(test)]
mod tests;
