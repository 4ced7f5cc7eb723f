//! Tensor operations, each composed from graph nodes, in terms of plain types.
//!
//! One file per family; each function serves every element type and records one op. `name` is what the op is called in
//! labels and in the panic on a user's mistake: a front end passes its own name of the op. Below this folder everything
//! is called as in StableHLO.
//!
//! May not know: any front end's traits or types.

pub mod arithmetic;
pub mod data;
pub mod grid_sample;
pub mod index;
pub mod matmul;
pub mod module;
pub mod movement;
pub mod random;
pub mod reduce;
pub mod sort;
#[cfg(test)]
mod testing;

use burn_tpu_graph::{Builder, GraphError, NodeId, Result};

/// A rule that an op adds to those of the nodes it is composed of; `node` is the first node that could not be built.
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
