//! The wrapper for Burn's optimizers: a step that is one program, and 16-bit weights that learn.
//!
//! | type | wraps | does |
//! |---|---|---|
//! | [`TpuOptimizer`] | what a Burn configuration's `build()` returns | updates all weights, then ends the step |
//! | [`LossScaler`] | nothing: a `TpuOptimizer` is its argument | scales the loss, and skips steps that are not finite |
//! | [`MasterWeights`] | the part of it that updates one weight | updates an f32 master copy of a 16-bit weight |

mod first_state;
mod loss_scaler;
mod master_weights;
mod tpu_optimizer;

pub use burn_tpu_runtime::step::LossScaling;
pub use loss_scaler::{LossScaler, LossScalerState};
pub use master_weights::{MasterState, MasterWeights};
pub use tpu_optimizer::{TpuOptimizer, end_step};
