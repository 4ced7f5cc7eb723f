//! Tensor operations on plain types, each composed of graph nodes.
//!
//! One file per family. Each function supports every element type and records one op. `name` is the name of the op in
//! labels and in the panic for a user's error: a front end passes its own name of the op. Layers below this folder use
//! the names of StableHLO.
//!
//! May not know: the traits or types of any front end.

pub mod activation;
pub mod arithmetic;
pub mod data;
pub mod grid_sample;
pub mod index;
mod index_checks;
pub mod matmul;
mod mixed;
pub mod module;
pub mod movement;
pub mod pad;
pub mod places;
pub mod quantized;
pub mod random;
pub mod reduce;
pub mod sharding;
pub mod sort;
#[cfg(test)]
pub(crate) mod testing;

use burn_tpu_graph::{Builder, GraphError, NodeId, Result};

/// Returns the error for a rule that an op adds to those of its nodes. `node` is the first node that could not be
/// built.
fn broken_rule(graph: &impl Builder, node: &'static str, operands: &[NodeId], rule: impl Into<String>) -> GraphError {
    let operands = operands.iter().map(|&id| graph.ty(id).to_string()).collect::<Vec<_>>().join(", ");
    GraphError { op: node, operands, rule: rule.into() }
}

/// Rejects a dim that `x` does not have, for compositions that use the dim before a node checks it.
fn expect_dim(graph: &impl Builder, node: &'static str, x: NodeId, dim: usize) -> Result<()> {
    let rank = graph.rank(x);
    if dim < rank {
        return Ok(());
    }
    Err(broken_rule(graph, node, &[x], format!("dim {dim} is out of range for rank {rank}")))
}
