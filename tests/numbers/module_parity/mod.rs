//! Module operations against Burn's CPU backends, over random attributes: convolutions, pools, interpolation, attention,
//! linear layers, norms, Fourier transforms, and the gradients of all of them, called as autodiff calls them.
//!
//! The oracle is burn-ndarray, or burn-flex where burn-ndarray lacks the op. Values are eighths between -2 and 2: exact in
//! bf16, with ties for the pools.
//!
//! `crates/burn-tpu-0-22/tests/backend/module_parity` compiles the rows against Burn 0.22, and
//! `slots/burn-0.23/unpatched/tests/backend` against Burn 0.23.

#[macro_use]
#[path = "rows.rs"]
mod rows;
mod fourier;
mod until_0_22;
mod version;
