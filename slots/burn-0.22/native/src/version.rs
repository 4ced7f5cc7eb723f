//! What this crate must know of Burn's version, here 0.22. The file of 0.23 is `slots/burn-0.23/native/src/version.rs`.

/// Whether a norm of 16-bit values may have f32 parameters.
pub(crate) const NORMS_MAY_BE_WIDER: bool = true;
