//! Weights in files: GGUF and safetensors, and their way into and out of a decoder.
//!
//! Owns: names and layouts of tensors. A tensor is read alone, when its place in the model is reached, so that the host
//! never holds a second copy of the model. Files are read at positions and not mapped, since Rust has no safe map of a
//! file that another process may cut.

mod adapter;
mod few_bits;
pub(crate) mod gguf;
mod load;
mod quants;
pub(crate) mod safetensors;
mod save;

pub(crate) use load::load;
pub use save::save_weights;

use crate::config::Family;
use crate::error::{LlmError, Result};
use crate::model::few_bits::Bits;
use burn::tensor::TensorData;
use few_bits::Quantized;
use std::collections::BTreeMap;
use std::path::Path;

/// The tensors of a model's file or files, under Hugging Face's names and in its layouts.
pub(crate) trait Tensors {
    /// Returns the shapes of all tensors that a decoder may have.
    fn shapes(&self) -> BTreeMap<String, Vec<usize>>;

    /// Reads a tensor, in a type of floats.
    fn read(&self, name: &str) -> Result<TensorData>;

    /// Reads a matrix, `[outputs, inputs]`, in few bits.
    fn read_few_bits(&self, name: &str, bits: Bits) -> Result<Quantized> {
        let data = self.read(name)?;
        let inputs = data.shape[1];
        let values: Vec<f32> = data.iter::<f32>().collect();
        Ok(Quantized::of(&values, inputs, bits))
    }
}

/// The parameters of a decoder that share a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The decoder without its adapter.
    Model,
    /// The adapter.
    Adapter,
}

/// Where a parameter is in a file.
struct InFile {
    /// Hugging Face's name, or PEFT's.
    name: String,
    /// Whether the file has it transposed.
    is_transposed: bool,
}

impl Part {
    /// Returns the name in the file of the matrix whose parts in few bits are at a path of modules; `None` for any
    /// other parameter.
    fn matrix_in_file(self, path: &[(String, String)], family: Family) -> Option<String> {
        let mut path = path.to_vec();
        path.pop().filter(|(_, container)| container == "Struct:FewBits")?;
        path.last_mut()?.0 = "weight".to_owned();
        Some(self.in_file(&path, family)?.name)
    }

    /// Returns where the parameter at a path of modules, with their types, is in this part's file for a family; `None`
    /// if it is in the other's.
    fn in_file(self, path: &[(String, String)], family: Family) -> Option<InFile> {
        // The variants of an enum are no modules of Hugging Face's.
        let path: Vec<_> = path.iter().filter(|(_, container)| !container.starts_with("Enum:")).collect();
        let names: Vec<_> = path.iter().map(|(name, _)| name.as_str()).collect();
        if names.contains(&"few_bits") {
            return None;
        }
        let prefix = if names.first() == Some(&"lm_head") { "" } else { "model." };
        // The field that has the type `Lora` is no part of PEFT's names.
        let matrix = path.iter().position(|(_, container)| container == "Struct:Lora");
        let name = match (self, matrix) {
            (Self::Model, None) => format!("{prefix}{}", family.named(names)),
            (Self::Adapter, Some(at)) => {
                let matrix = names[at].to_uppercase();
                let projection = family.named(names.into_iter().take(at - 1));
                format!("base_model.model.{prefix}{projection}.lora_{matrix}.weight")
            }
            _ => return None,
        };
        let is_product = |container: &str| matches!(container, "Struct:Projection" | "Struct:Linear");
        let is_transposed = path.last().is_some_and(|(name, container)| name == "weight" && is_product(container));
        Some(InFile { name, is_transposed })
    }
}

/// Writes a file of text.
pub(crate) fn write_text(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).map_err(LlmError::file("write", path))
}
