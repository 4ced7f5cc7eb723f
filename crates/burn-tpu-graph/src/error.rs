//! The error type of this crate: an operation that breaks its inference rule.

use crate::TensorType;

/// A node that the op's rule does not allow: the op, its operands, and the rule that they break.
///
/// Who made the mistake depends on the caller: the user, if the op is one of the user's; this project, if it is
/// inside a composition.
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

/// The result of a checked builder.
pub type Result<T, E = GraphError> = std::result::Result<T, E>;
