//! Reference implementations for the tests of this workspace. They need the feature `testing` and are not part of the
//! public interface.

pub use crate::engine::{CPU_COMPILER_FLAGS, interpret_program};
