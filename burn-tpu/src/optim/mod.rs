//! Wrappers for Burn's optimizers: a step that is one program, and bf16 weights that learn.

mod mark_step;
mod master_weights;

pub use mark_step::MarkStep;
pub use master_weights::{MasterState, MasterWeights};
