//! The wrapper for Burn's optimizers: a step that is one program, and 16-bit weights that learn.
//!
//! | type | wraps | does |
//! |---|---|---|
//! | [`TpuOptimizer`] | what a Burn configuration's `init()` builds | updates all weights, then ends the step |
//! | [`LossScaler`] | nothing: a `TpuOptimizer` is its argument | scales the loss, and skips steps that are not finite |
//! | [`WithMasterWeights`] | the part of it that updates one weight | updates an f32 master copy of a 16-bit weight |

mod first_state;
mod loss_scaler;
mod tpu_optimizer;
mod with_master_weights;

pub use loss_scaler::{LossScaler, LossScalerState};
pub use tpu_optimizer::TpuOptimizer;
pub use with_master_weights::{MasterState, WithMasterWeights};
