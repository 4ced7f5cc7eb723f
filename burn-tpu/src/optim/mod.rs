//! Wrappers of Burn's optimizers: `MarkStep` makes a step one program, `MasterWeights` lets bf16 weights learn.

mod mark_step;
mod master_weights;

pub use mark_step::MarkStep;
pub use master_weights::{MasterState, MasterWeights};
