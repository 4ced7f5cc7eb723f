//! burn-tpu for programs of Burn 0.23 in one process, where the slot is (`docs/from-burn-0.22.md`): the device, an
//! optimizer that ends each step and keeps f32 master weights, and `autocast`.
//!
//! A manifest may give it the name that it has for Burn 0.21, so that the program's imports stay what they were:
//!
//! ```toml
//! burn-tpu = { package = "burn-tpu-native-0-23", path = "…/burn-tpu/slots/burn-0.23/native" }
//! ```
//!
//! It owns `version.rs`. The other sources are those of `burn-tpu-native-0-22`, compiled against Burn 0.23.
#![forbid(unsafe_code)]

#[path = "../../../burn-0.22/native/src/autocast.rs"]
mod autocast;
#[path = "../../../burn-0.22/native/src/master_weights.rs"]
mod master_weights;
#[path = "../../../burn-0.22/native/src/optimizer.rs"]
mod optimizer;
mod version;

pub use autocast::{autocast, autocast_to};
pub use backend::{Mesh, Metrics, Platform, TpuDevice, TpuError, TpuOptions};
pub use master_weights::{MasterState, MasterWeights};
pub use optimizer::{TpuOptimizer, end_step};
