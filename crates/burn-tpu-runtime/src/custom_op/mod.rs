//! Custom ops: computations that a program of the user gives in a form of its own, beside the plain form.
//!
//! Owns: how the plain form becomes a program, the checks of both forms, what is known of an op for each set of operand
//! types, and what its backward pass finds. May not know: what an op's operands and results are to the user, and the graph
//! of autodiff, which are the front end's.

mod differentiable;
mod form;
mod partition;
mod untyped;

pub use differentiable::{DifferentiableCall, Gradient, InNode};
pub use form::CustomForm;
pub use partition::{CustomPartition, PartitionOf};
pub use untyped::{Record, UntypedOp, error};

/// What the elements of a tensor are to Burn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Floats, through which gradients flow.
    Float,
    /// Integers.
    Int,
    /// Truth values.
    Bool,
}
