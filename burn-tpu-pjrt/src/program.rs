//! Programs: StableHLO text together with the types of its parameters.

use std::sync::Arc;

use crate::error::Result;
use crate::program_check;
use crate::tensor_spec::TensorSpec;

/// Text to compile and what each device must be given to run it.
///
/// The parameters are stated by the caller because plugins check neither dtype nor shape of an argument whose size in
/// bytes fits: an `i32` buffer would be read as `f32` without a word. They are checked at every execute call, so they
/// must be true: for a partitioned program they are the shapes of one device's shard.
#[derive(Clone, Debug)]
pub struct Program {
    text: String,
    parameters: Arc<[Arc<TensorSpec>]>,
}

impl Program {
    /// Takes StableHLO text whose `@main` has these parameters.
    ///
    /// # Errors
    /// [`PjrtError::Program`](crate::PjrtError::Program) for text that is known to kill a plugin's process: dynamic or
    /// unranked types, sizes that overflow, recursive functions, very deep nesting, nothing at all. The text is only
    /// skimmed for these; other mistakes are the plugin's to report when compiling.
    pub fn stablehlo(
        text: impl Into<String>,
        parameters: impl IntoIterator<Item = impl Into<Arc<TensorSpec>>>,
    ) -> Result<Program> {
        let text = text.into();
        program_check::check(&text)?;
        Ok(Program { text, parameters: parameters.into_iter().map(Into::into).collect() })
    }

    /// The text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The parameters of `@main`, per device.
    pub fn parameters(&self) -> &Arc<[Arc<TensorSpec>]> {
        &self.parameters
    }
}
