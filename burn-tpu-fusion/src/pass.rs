//! The interface of a pass.

use burn_tpu_graph::{GraphError, Program};

/// A rewrite of one pattern.
///
/// A pass depends on the program alone: no clocks, no environment, no order of hash maps, since the result is
/// lowered, compiled and cached. It keeps the number, order and types of the outputs, and the index of every
/// parameter and slot that is still read. Applied to its own result it finds nothing.
pub trait Pass {
    /// Returns the name in logs and reports.
    fn name(&self) -> &'static str;

    /// Returns the rewritten program, or the same program if the pattern does not occur.
    ///
    /// # Errors
    /// Fails if a replacement breaks an op's rule, which is a bug of the pass.
    fn run(&self, program: &Program) -> Result<Rewritten, GraphError>;
}

/// The result of a pass.
#[derive(Clone, Debug)]
pub struct Rewritten {
    /// The program after the pass.
    pub program: Program,
    /// The number of places where the pattern was found.
    pub count: usize,
}
