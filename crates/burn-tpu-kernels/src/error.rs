//! The error type of this crate: what a kernel asks for and may not have.

use crate::ArrayType;

/// A mistake in a kernel, or in what it is called with.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KernelError {
    /// An op whose operands break its rule: a mistake of the kernel's author.
    #[error("{op}({operands}): {rule}")]
    Op {
        /// The op's name in the builder.
        op: &'static str,
        /// The operand types, comma-separated.
        operands: String,
        /// The broken rule, with the offending values.
        rule: String,
    },
    /// A grid, block or index map that does not fit its array: a mistake of the kernel's author.
    #[error("kernel `{kernel}`: {rule}")]
    Layout {
        /// The kernel's name.
        kernel: String,
        /// The broken rule, with the offending values.
        rule: String,
    },
    /// Sizes or types that a ready-made kernel does not take. The caller uses another way to compute the same.
    #[error("{kernel} takes no {what}: {rule}")]
    Unsupported {
        /// The kernel's name.
        kernel: &'static str,
        /// What it was given.
        what: String,
        /// What it takes.
        rule: &'static str,
    },
    /// Arrays that the interpreter cannot run a kernel on.
    #[error("interpreting `{kernel}`: {rule}")]
    Arguments {
        /// The kernel's name.
        kernel: String,
        /// The broken rule, with the offending values.
        rule: String,
    },
}

impl KernelError {
    pub(crate) fn op(op: &'static str, operands: &[&ArrayType], rule: impl Into<String>) -> Self {
        let operands = operands.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        Self::Op { op, operands, rule: rule.into() }
    }

    pub(crate) fn layout(kernel: &str, rule: impl Into<String>) -> Self {
        Self::Layout { kernel: kernel.into(), rule: rule.into() }
    }
}

/// The result of a checked builder.
pub type Result<T, E = KernelError> = std::result::Result<T, E>;
