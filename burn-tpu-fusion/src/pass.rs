//! What a pass is.

use burn_tpu_graph::{GraphError, Program};

/// A rewrite of one pattern.
///
/// A pass is a function of the program alone: no clocks, no environment, no order of hash maps, since the result is
/// lowered, compiled and cached. It keeps the outputs' number, order and types, and every parameter and slot that is
/// still read under its index. Applied to its own result it finds nothing.
pub trait Pass {
    /// The name in logs and reports.
    fn name(&self) -> &'static str;

    /// The rewritten program, or the same one where the pattern does not occur.
    ///
    /// # Errors
    /// If a replacement breaks an op's rule: a bug of the pass.
    fn run(&self, program: &Program) -> Result<Rewritten, GraphError>;
}

/// What a pass did.
#[derive(Clone, Debug)]
pub struct Rewritten {
    /// The program from here on.
    pub program: Program,
    /// How often the pattern was found.
    pub count: usize,
}
