//! Serves a device of this machine to programs of Burn 0.22 elsewhere, over Burn's own remote protocol: what `burn-tpu
//! serve` runs.
//!
//! Owns: who may connect ([`access`]), the start and the end of burn-remote's server ([`server`]). May not know: how tensors
//! are recorded or programs run (`burn-tpu-0-22`).
//!
//! It is a crate of its own because the command `burn-tpu` builds without Burn, in seconds (decision 4).
#![forbid(unsafe_code)]

pub mod access;
mod error;
mod options;
mod run;
pub mod server;

pub use error::ServeError;
pub use options::{Options, TransportKind};
pub use run::{Ready, Served, run};
