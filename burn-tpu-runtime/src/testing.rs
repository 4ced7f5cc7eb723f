//! What tests of this workspace compare with. Behind the feature `testing`, and no part of the crate's interface.

pub use crate::engine::{CPU_COMPILER_FLAGS, interpret_program};

/// Returns whether a tensor's value has been computed: false for one that waits for a cut, and for one whose program runs.
pub fn is_computed(tensor: &crate::Tensor) -> bool {
    tensor.with_value(|value| match value {
        crate::tensor::Value::Ready(buffer) => buffer.is_computed(),
        crate::tensor::Value::Pending | crate::tensor::Value::Failed(_) => false,
    })
}
