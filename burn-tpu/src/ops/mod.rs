//! Burn's tensor operations, each composed from graph nodes.
//!
//! The trait impls keep Burn's file names (`tensor`, `int_tensor`, `bool_tensor`, `module`, `activation`, `qtensor`,
//! `transaction`) and are thin; the compositions stand below in one file per family and serve every element type. Here
//! Burn's names end: below this folder everything is called as in StableHLO.

mod activation;
mod arithmetic;
mod bool_tensor;
mod data;
mod grid_sample;
mod index;
mod int_tensor;
mod matmul;
mod module;
mod movement;
mod qtensor;
mod random;
mod reduce;
mod sort;
mod tensor;
#[cfg(test)]
mod testing;
mod transaction;

use burn_tpu_graph::{Builder, GraphError, NodeId, Result};

/// A rule that a Burn op adds to those of the nodes it is composed of; `node` is the first node that could not be built.
fn broken_rule(graph: &impl Builder, node: &'static str, operands: &[NodeId], rule: impl Into<String>) -> GraphError {
    let operands = operands.iter().map(|&id| graph.ty(id).to_string()).collect::<Vec<_>>().join(", ");
    GraphError { op: node, operands, rule: rule.into() }
}

/// Refuses a dim that `x` has not, for compositions that look at it before a node does.
fn expect_dim(graph: &impl Builder, node: &'static str, x: NodeId, dim: usize) -> Result<()> {
    let rank = graph.rank(x);
    if dim < rank {
        return Ok(());
    }
    Err(broken_rule(graph, node, &[x], format!("dim {dim} is out of range for rank {rank}")))
}
