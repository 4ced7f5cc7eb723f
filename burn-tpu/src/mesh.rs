//! Meshes in Burn programs: where the parameters of a module live, and hints for activations.
//!
//! Owns: the rules that place parameters, their application to a module, and the differentiable form of a constraint. May
//! not know: how programs are partitioned (`burn-tpu-runtime` and `burn-tpu-graph`).

mod place;
mod rules;
mod shard;

pub use place::place;
pub use rules::{Axes, Fsdp, Parameter, Patterns, PlacementRule, Replicate};
pub use shard::{MeshBackend, shard};
