//! What Burn 0.22 has that other versions lack, for the sources in `burn-tpu/src/ops`, which the adapters of all versions
//! compile: what it has in common with 0.21 (`until_0_22.rs`) and what it has in common with 0.23 (`since_0_22.rs`).
//!
//! Owns: which methods of those files the impls in `ops/` get, a macro for each trait. The file of 0.21 is
//! `burn-tpu/src/version.rs`, that of 0.23 `slots/burn-0.23/adapter/src/version.rs`.

pub(crate) use crate::since_0_22::*;
pub(crate) use crate::until_0_22::{attention_options, interpolate_options};

/// What a tensor has beside its value: nothing.
#[derive(Clone, Default)]
pub(crate) struct HostCopy;

/// The methods of `Backend`: none.
macro_rules! backend_methods {
    () => {};
}
pub(crate) use backend_methods;

/// The methods of `BoolTensorOps`.
macro_rules! bool_methods {
    () => {
        $crate::until_0_22::bool_methods! {}
        $crate::since_0_22::bool_methods! {}
    };
}
pub(crate) use bool_methods;

/// The methods of `ModuleOps`.
macro_rules! module_methods {
    () => {
        $crate::until_0_22::module_methods! {}
        $crate::since_0_22::module_methods! {}
    };
}
pub(crate) use module_methods;
