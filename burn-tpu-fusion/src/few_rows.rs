//! A batch of products of a few rows each is as many products: XLA's CPU compiler has better code for one matrix than for
//! a batch of them.
//!
//! ```text
//! dot(x, y), batch b                 -> concatenate(dot(x[0], y[0]), dot(x[1], y[1]), ..)
//! dot(x, transpose(y)), batch b      -> the same, and y is contracted where it is
//! ```
//!
//! Attention that writes a token has both: a few rows of queries for each head of keys, and of weights for each head of
//! values. As a batch, all keys are copied in another order first, and the product is not in vector instructions.
//!
//! # Why it is exact
//! Each element is the same sum of the same products, in the product's own accumulation type. Its order is the compiler's, as
//! it was.
//!
//! When it is no loss. Products of f32, of few rows ([`MOST_ROWS`]) with matrices that are large enough
//! ([`LEAST_ELEMENTS`]), and few of them ([`MOST_PRODUCTS`]), each of which takes compile time. For CPUs alone: other
//! compilers choose layouts for a batch. A program on a mesh is left alone, since a batch may be split there.
//!
//! Gain: `docs/decisions/0075-products-of-few-rows-on-cpus.md`.

use crate::{Pass, Rewritten};
use burn_tpu_graph::op::DotAttrs;
use burn_tpu_graph::{Builder, DType, Dims, Graph, GraphError, NodeId, Op, Program};

/// The most rows of each product.
const MOST_ROWS: usize = 8;

/// The most products of a batch.
const MOST_PRODUCTS: usize = 16;

/// The least elements of each matrix: with fewer, calling a product costs as much as computing it.
const LEAST_ELEMENTS: usize = 4096;

/// The pass that writes a batch of products of a few rows as products of their own. See the module's documentation.
#[derive(Clone, Copy, Debug, Default)]
pub struct FewRows;

impl Pass for FewRows {
    fn name(&self) -> &'static str {
        "few_rows"
    }

    fn run(&self, program: &Program) -> Result<Rewritten, GraphError> {
        let mut count = 0;
        let rewritten = program.rebuild(|new, id| {
            let Some(found) = find(program, id) else { return new.copy(id) };
            count += 1;
            let (x, y) = (new.renamed.id(found.operands[0])?, new.renamed.id(found.operands[1])?);
            found.add(&mut new.graph, x, y)
        })?;
        Ok(Rewritten { program: if count == 0 { program.clone() } else { rewritten }, count })
    }
}

/// A batch of products `[rows, contracted]` times `[contracted, columns]`, or `[columns, contracted]`.
struct Found<'a> {
    attrs: &'a DotAttrs,
    operands: [NodeId; 2],
    products: usize,
    /// The contracted dim of the second matrix.
    contract: usize,
    result: Dims,
}

/// Returns the batch of products that a node is.
fn find(program: &Program, id: NodeId) -> Option<Found<'_>> {
    let (graph, node) = (program.graph(), program.graph().node(id));
    let (Op::DotGeneral(attrs), &[x, y]) = (&node.op, &node.operands[..]) else { return None };
    let (rank, dims) = (graph.rank(x), graph.dims(x));
    let batch = rank.checked_sub(2).filter(|&batch| batch > 0 && graph.rank(y) == rank)?;
    let is_leading = |dims: &Dims| dims.iter().copied().eq(0..batch);
    let is_batch =
        is_leading(&attrs.lhs_batch) && is_leading(&attrs.rhs_batch) && attrs.lhs_contract[..] == [batch + 1];
    let &[contract] = &attrs.rhs_contract[..] else { return None };
    let products: usize = dims[..batch].iter().product();
    let is_small = (2..=MOST_PRODUCTS).contains(&products) && (1..=MOST_ROWS).contains(&dims[batch]);
    let is_large = graph.ty(y).elements() >= products * LEAST_ELEMENTS;
    let is_f32 = [x, y].into_iter().all(|operand| graph.dtype(operand) == DType::F32);
    if !(is_batch && is_small && is_large && is_f32) || program.mesh().is_some() {
        return None;
    }
    let (y, contract) = match untransposed(graph, y) {
        Some(whole) => (whole, 2 * batch + 1 - contract),
        None => (y, contract),
    };
    let result = node.ty.dims.clone();
    Some(Found { attrs, operands: [x, y], products, contract: contract - batch, result })
}

/// Returns what a node is with its last two dims exchanged, if it is that.
fn untransposed(graph: &Graph, id: NodeId) -> Option<NodeId> {
    let (Op::Transpose { permutation }, &[whole]) = (&graph.node(id).op, &graph.node(id).operands[..]) else {
        return None;
    };
    let batch = permutation.len().checked_sub(2)?;
    permutation.iter().copied().eq((0..batch).chain([batch + 1, batch])).then_some(whole)
}

impl Found<'_> {
    /// Adds the products.
    fn add(&self, graph: &mut Graph, x: NodeId, y: NodeId) -> Result<NodeId, GraphError> {
        let [x, y] = [self.matrices(graph, x)?, self.matrices(graph, y)?];
        let none: &[usize] = &[];
        let new = DotAttrs::new([none, none], [&[1], &[self.contract]], self.attrs.result);
        let attrs = DotAttrs { precision: self.attrs.precision, ..new };
        let [rows, columns] = [self.result[self.result.len() - 2], self.result[self.result.len() - 1]];
        let mut results = Vec::with_capacity(self.products);
        for (x, y) in x.into_iter().zip(y) {
            let product = graph.dot_general(x, y, attrs.clone())?;
            results.push(graph.reshape(product, &[1, rows, columns])?);
        }
        let all = graph.concatenate(&results, 0)?;
        graph.reshape(all, &self.result)
    }

    /// Adds the matrices of an operand.
    fn matrices(&self, graph: &mut Graph, operand: NodeId) -> Result<Vec<NodeId>, GraphError> {
        let dims = graph.dims(operand);
        let sizes = [dims[dims.len() - 2], dims[dims.len() - 1]];
        let all = graph.reshape(operand, &[self.products, sizes[0], sizes[1]])?;
        let matrix = |product| {
            let one = graph.slice_dim(all, 0, product, product + 1)?;
            graph.reshape(one, &sizes)
        };
        (0..self.products).map(matrix).collect()
    }
}

#[cfg(test)]
mod tests;
