//! Module operations against Burn's CPU backends, over random attributes: convolutions, pools, interpolation, attention,
//! linear layers, norms, Fourier transforms, and the gradients of all of them, called as autodiff calls them.
//!
//! The oracle is burn-ndarray, or burn-flex where burn-ndarray lacks the op. Values are eighths between -2 and 2: exact in
//! bf16, with ties for the pools.
//!
//! `crates/burn-tpu-remote/tests/module_parity` compiles the rows against Burn 0.22.

mod common;

#[path = "module_parity/rows.rs"]
#[macro_use]
mod rows;
#[path = "module_parity/fourier.rs"]
mod fourier;
#[path = "module_parity/version.rs"]
mod version;
