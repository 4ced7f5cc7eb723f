//! Programs: StableHLO text together with the types of its parameters.

use std::sync::Arc;

use crate::error::Result;
use crate::program_check;
use crate::tensor_spec::TensorSpec;

/// A program's text and the specs of its parameters.
///
/// The caller states the parameters because plugins check neither dtype nor shape of an argument whose size in bytes fits:
/// they would read an `i32` buffer as `f32` without an error. Every execute call checks its arguments against them, so they
/// must be correct: for a partitioned program they are the shapes of one device's shard.
#[derive(Clone, Debug)]
pub struct Program {
    text: String,
    parameters: Arc<[Arc<TensorSpec>]>,
}

impl Program {
    /// Creates a program from StableHLO text whose `@main` has these parameters.
    ///
    /// # Errors
    /// [`PjrtError::Program`](crate::PjrtError::Program) for text that is known to crash a plugin's process: dynamic or
    /// unranked types, sizes that overflow, recursive functions, very deep nesting, empty text. The check only scans the
    /// text for these; the plugin reports other mistakes when it compiles.
    pub fn stablehlo(
        text: impl Into<String>,
        parameters: impl IntoIterator<Item = impl Into<Arc<TensorSpec>>>,
    ) -> Result<Program> {
        let text = text.into();
        program_check::check(&text)?;
        Ok(Program { text, parameters: parameters.into_iter().map(Into::into).collect() })
    }

    /// Returns the text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the parameters of `@main`, per device.
    pub fn parameters(&self) -> &Arc<[Arc<TensorSpec>]> {
        &self.parameters
    }
}
