//! Meshes in Burn programs: where the parameters of a module live, and hints for activations.
//!
//! Owns: the application of rules to a module, and the differentiable form of a constraint. May not know: the rules
//! (`burn_tpu_runtime::placement`), and how programs are partitioned (`burn-tpu-runtime` and `burn-tpu-graph`).

mod place;
mod shard;

pub use place::place;
pub use shard::{MeshBackend, shard};
