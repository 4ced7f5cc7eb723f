//! Reference implementations for the tests of this workspace. They need the feature `testing` and are not part of the
//! public interface.

pub use crate::engine::{CPU_COMPILER_FLAGS, interpret_program};

/// Returns whether a tensor's value has been computed: false for one that waits for a cut, and for one whose program runs.
pub fn is_computed(tensor: &crate::Tensor) -> bool {
    matches!(tensor.value(), Some(Ok(buffer)) if buffer.is_computed())
}
