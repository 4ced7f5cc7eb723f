//! What this crate must know of Burn's version, here 0.23. The file of 0.22 is `slots/burn-0.22/native/src/version.rs`.

/// Whether a norm of 16-bit values may have f32 parameters. Burn's layers check that all operands have one type.
pub(crate) const NORMS_MAY_BE_WIDER: bool = false;
