//! The sum of a batch of products is one product: a sum over batch dims of a `dot_general` becomes a contraction of them.
//!
//! The gradient of a weight that several matrices were multiplied with is recorded as one product a matrix, and their sum:
//! `[batch, rows, width]` and `[batch, rows, out]` to `[batch, width, out]`, and that to `[width, out]`. So does
//! `x.matmul(w.unsqueeze())` in any version of Burn, and each `Linear` from 0.22 on. This pass multiplies once:
//!
//! ```text
//! reduce_sum(dot(transpose(x), y, batch 0, contract rows), 0)   -> dot(x, y, contract batch and rows)
//! ```
//!
//! # Why it is right
//! Both sum the same products of factors, in another order (decision 52). The products of 16-bit factors are f32 numbers,
//! and where they were rounded to 16 bits before they were summed, they no longer are. Nothing is taken for granted of the
//! values: a NaN or an infinity among the products makes the sum one before and after. Nobody else may read the products.
//!
//! Gain: `docs/decisions/0066-a-sum-of-products-is-one-product.md`.

use crate::{Pass, Rewritten};
use burn_tpu_graph::op::{Combine, DotAttrs};
use burn_tpu_graph::{Builder, Dims, Graph, GraphError, NodeId, Op, Program};

/// The pass that contracts the batch dims which a sum reduces. See the module's documentation.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProductSum;

impl Pass for ProductSum {
    fn name(&self) -> &'static str {
        "product_sum"
    }

    fn run(&self, program: &Program) -> Result<Rewritten, GraphError> {
        let (graph, uses) = (program.graph(), program.use_counts());
        let mut count = 0;
        let rewritten = program.rebuild(|new, id| match find(graph, &uses, id) {
            Some(Product { factors: [x, y], attrs }) => {
                count += 1;
                let (x, y) = (new.renamed.id(x)?, new.renamed.id(y)?);
                new.graph.dot_general(x, y, attrs)
            }
            None => new.copy(id),
        })?;
        Ok(Rewritten { program: if count == 0 { program.clone() } else { rewritten }, count })
    }
}

/// A product that a sum of products is.
struct Product {
    factors: [NodeId; 2],
    attrs: DotAttrs,
}

/// Returns the product that a node is the same as, if the node sums over batch dims of another one.
fn find(graph: &Graph, uses: &[u32], id: NodeId) -> Option<Product> {
    let node = graph.node(id);
    let (Op::Reduce { combine: Combine::Sum, dims }, &[summed]) = (&node.op, &node.operands[..]) else { return None };
    let products = unrounded(graph, uses, summed);
    let (Op::DotGeneral(attrs), &[x, y]) = (&graph.node(products).op, &graph.node(products).operands[..]) else {
        return None;
    };
    // The first dims of a product are its batch dims.
    let sums_batches = dims.iter().all(|&dim| dim < attrs.lhs_batch.len());
    if !sums_batches || dims.is_empty() || uses[products.index()] != 1 || attrs.result != graph.dtype(summed) {
        return None;
    }
    let (x, lhs_batch, lhs_contract) = side(graph, x, &attrs.lhs_batch, &attrs.lhs_contract, dims);
    let (y, rhs_batch, rhs_contract) = side(graph, y, &attrs.rhs_batch, &attrs.rhs_contract, dims);
    Some(Product {
        factors: [x, y],
        attrs: DotAttrs { lhs_batch, rhs_batch, lhs_contract, rhs_contract, ..attrs.as_ref().clone() },
    })
}

/// Returns what was rounded to 16 bits and widened again, if nobody else reads that; else the value itself.
fn unrounded(graph: &Graph, uses: &[u32], id: NodeId) -> NodeId {
    let operand = |id: NodeId| match (&graph.node(id).op, &graph.node(id).operands[..]) {
        (Op::Convert { .. }, &[operand]) if uses[id.index()] == 1 && graph.dtype(operand).is_float() => Some(operand),
        _ => None,
    };
    let exact = operand(id).and_then(operand).filter(|&exact| graph.dtype(exact) == graph.dtype(id));
    exact.unwrap_or(id)
}

/// Returns a factor with its batch dims and its contracted dims, once the summed ones of the batch dims are contracted. A
/// transposed factor is taken as it was before, if its other dims have the same order there.
fn side(graph: &Graph, factor: NodeId, batch: &Dims, contract: &Dims, summed: &Dims) -> (NodeId, Dims, Dims) {
    let kept: Dims = (0..batch.len()).filter(|place| !summed.contains(place)).map(|place| batch[place]).collect();
    let contracted: Dims = summed.iter().map(|&place| batch[place]).chain(contract.iter().copied()).collect();
    let node = graph.node(factor);
    let (Op::Transpose { permutation }, &[source]) = (&node.op, &node.operands[..]) else {
        return (factor, kept, contracted);
    };
    let free = (0..permutation.len()).filter(|dim| !kept.contains(dim) && !contracted.contains(dim));
    if !free.map(|dim| permutation[dim]).is_sorted() {
        return (factor, kept, contracted);
    }
    let before = |dims: Dims| dims.into_iter().map(|dim| permutation[dim]).collect();
    (source, before(kept), before(contracted))
}

#[cfg(test)]
mod tests;
