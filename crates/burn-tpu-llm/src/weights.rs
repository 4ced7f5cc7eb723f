//! Weights in files: GGUF and safetensors, and their way into and out of a decoder.
//!
//! Owns: names and layouts of tensors. A tensor is read alone, when its place in the model is reached, so that the host
//! never holds a second copy of the model. Files are read at positions and not mapped, since Rust has no safe map of a file
//! that another process may cut.

pub(crate) mod gguf;
mod load;
mod quants;
pub(crate) mod safetensors;
mod save;

pub(crate) use load::load;
pub use save::save_weights;

use crate::error::Result;
use burn::tensor::TensorData;
use std::collections::BTreeMap;

/// The tensors of a model's file or files, under Hugging Face's names and in its layouts.
pub(crate) trait Tensors {
    /// Returns the shapes of all tensors that a decoder may have.
    fn shapes(&self) -> BTreeMap<String, Vec<usize>>;

    /// Reads a tensor, in a type of floats.
    fn read(&self, name: &str) -> Result<TensorData>;
}
