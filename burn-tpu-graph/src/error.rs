//! The one error of this crate: an operation that its rule does not allow.

use crate::TensorType;

/// A node that cannot exist: which op, what operands it was given, and the rule they break.
///
/// Whose fault it is depends on the caller: at a framework's surface it is the user's, inside a composition it is ours.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{op}({operands}): {rule}")]
pub struct GraphError {
    /// The op's mnemonic.
    pub op: &'static str,
    /// The operand types, comma-separated.
    pub operands: String,
    /// The broken rule, with the offending values.
    pub rule: String,
}

impl GraphError {
    pub(crate) fn new(op: &'static str, operands: &[&TensorType], rule: impl Into<String>) -> Self {
        let operands = operands.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        Self { op, operands, rule: rule.into() }
    }
}

/// What a checked builder returns.
pub type Result<T, E = GraphError> = std::result::Result<T, E>;
