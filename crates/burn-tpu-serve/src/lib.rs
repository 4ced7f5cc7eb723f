//! Serves a device of this machine to Burn programs elsewhere, over Burn's own remote protocol: what `burn-tpu serve` runs.
//!
//! Owns: who may connect ([`access`]), the server for clients of Burn 0.21 ([`burn_0_21`]), the start and the end of the one for
//! Burn 0.22, which is burn-remote's. May not know: how tensors are recorded or programs run (`burn-tpu`, `burn-tpu-remote`).
//!
//! It is a crate of its own because the command `burn-tpu` builds without Burn, in seconds (decision 4).
#![forbid(unsafe_code)]

pub mod access;
#[cfg(feature = "burn-0-21")]
pub mod burn_0_21;
#[cfg(feature = "burn-0-22")]
pub mod burn_0_22;
mod error;
mod options;
mod run;

pub use error::{ServeError, SessionError};
pub use options::{BurnVersion, Options, TransportKind};
pub use run::{Ready, Served, run};
