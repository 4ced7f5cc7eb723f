//! What tests of this workspace compare with. Behind the feature `testing`, and no part of the crate's interface.

pub use crate::engine::{CPU_COMPILER_FLAGS, interpret_program};
