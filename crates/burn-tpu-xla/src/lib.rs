//! An engine of burn-tpu on the crate `xla` (xla-rs): programs become graphs of its `XlaBuilder`, and its client compiles
//! and runs them.
//!
//! Owns: what of the op table that crate can say ([`support`]), the graph for each op, and the calls into its client. May
//! not know: Burn, StableHLO text, PJRT's C API, recording, caches. It is an [`ExternalEngine`] of `burn-tpu-runtime`.
//!
//! The engine needs the feature `extension`, a C++ compiler and XLA's C++ library: `cargo xtask setup xla-rs` makes them
//! ready and says which variables to set (`docs/xla-rs.md`). Without the feature, this crate is [`support`] alone.
//!
//! A program that uses `burn-tpu` asks for its feature `xla-rs` and names the device, `TpuDevice::xla_rs(0)` or
//! `BURN_TPU_PLATFORM=xla-rs`. One that uses `burn-tpu-runtime` alone calls `provide` first.
//!
//! [`ExternalEngine`]: https://docs.rs/burn-tpu-runtime
#![forbid(unsafe_code)]

pub mod support;

#[cfg(feature = "extension")]
mod client;
#[cfg(feature = "extension")]
mod engine;
#[cfg(feature = "extension")]
mod lower;
#[cfg(feature = "extension")]
mod types;

#[cfg(feature = "extension")]
pub use engine::{XlaRsEngine, XlaRsProgram, XlaRsValue};

/// Makes [`XlaRsEngine`] the engine of the platform `xla-rs`. Later calls change nothing.
#[cfg(feature = "extension")]
pub fn provide() {
    burn_tpu_runtime::provide_xla_rs(XlaRsEngine::open);
}
