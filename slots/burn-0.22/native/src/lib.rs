//! burn-tpu for programs of Burn 0.22 in one process, where the slot is (`docs/from-burn-0.22.md`): the device, an
//! optimizer that ends each step and keeps f32 master weights, and `autocast`.
//!
//! A manifest may give it the name that it has for Burn 0.21, so that the program's imports stay what they were:
//!
//! ```toml
//! burn-tpu = { package = "burn-tpu-native-0-22", path = "…/burn-tpu/slots/burn-0.22/native" }
//! ```
//!
//! It owns what needs Burn's own crates above a backend: modules, optimizers, records. It may not know how programs are
//! recorded, cached, compiled or run. The backend is `burn-tpu-0-22`, which cannot be this crate: burn-optim depends on
//! the backend. All but `version.rs` is compiled against Burn 0.23 too.
#![forbid(unsafe_code)]

mod autocast;
mod master_weights;
mod optimizer;
mod version;

pub use autocast::{autocast, autocast_to};
pub use backend::{Mesh, Metrics, Platform, TpuDevice, TpuError, TpuOptions};
pub use master_weights::{MasterState, MasterWeights};
pub use optimizer::{TpuOptimizer, end_step};
