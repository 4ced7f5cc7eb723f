//! The error type of the interpreter.

use burn_tpu_graph::{Op, TensorType};

/// A node that could not be computed on the host: the op, its operands, and the reason.
///
/// The graph has checked every node before, so this is a bug of this project or of the caller that passed the values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{op}({operands}) on the host: {reason}")]
pub struct HostError {
    /// The op's mnemonic.
    pub op: &'static str,
    /// The operand types, comma-separated.
    pub operands: String,
    /// The reason.
    pub reason: String,
}

impl HostError {
    pub(super) fn new<'a>(op: &Op, types: impl IntoIterator<Item = &'a TensorType>, reason: Reason) -> Self {
        let operands = types.into_iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        Self { op: op.mnemonic(), operands, reason: reason.0 }
    }
}

/// The reason why a kernel cannot compute; [`HostError`] adds the op and the types.
#[derive(Debug)]
pub(super) struct Reason(pub(super) String);

impl<T: Into<String>> From<T> for Reason {
    fn from(text: T) -> Self {
        Self(text.into())
    }
}

/// The result of a kernel.
pub(super) type Result<T> = std::result::Result<T, Reason>;
