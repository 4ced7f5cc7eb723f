//! Weights in files: GGUF and safetensors, and their way into and out of a decoder.
//!
//! Owns: names and layouts of tensors. A tensor is read alone, when its place in the model is reached, so that the host
//! never holds a second copy of the model. Files are read at positions and not mapped, since Rust has no safe map of a
//! file that another process may cut.

mod adapter;
mod few_bits;
mod fused;
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

/// The names of the modules around a parameter, each with the type that has it.
type ModulePath = [(String, String)];

impl Part {
    /// Returns the name in the file of the matrix whose parts in few bits are at a path of modules; `None` for any
    /// other parameter.
    fn matrix_in_file(self, path: &ModulePath, family: Family) -> Option<String> {
        let mut path = path.to_vec();
        path.pop().filter(|(_, container)| container == "Struct:FewBits")?;
        // Those of experts are a list.
        let expert = path.pop_if(|(_, container)| container == "Vec").map(|(number, _)| number);
        path.last_mut()?.0 = "weight".to_owned();
        let path = expert.map_or_else(|| path.clone(), |expert| of_expert(&path, &expert));
        Some(self.in_file(&path, family)?.name)
    }

    /// Returns where the parameter at a path of modules, with their types, is in this part's file for a family; `None`
    /// if it is in the other's. Those of experts are at the path of one, as [`of_expert`] says.
    fn in_file(self, path: &ModulePath, family: Family) -> Option<InFile> {
        // The variants of an enum are no modules of Hugging Face's.
        let path: Vec<_> = path.iter().filter(|(_, container)| !container.starts_with("Enum:")).collect();
        let names: Vec<_> = path.iter().map(|(name, _)| name.as_str()).collect();
        if names.contains(&"few_bits") {
            return None;
        }
        let prefix = if names.first() == Some(&"lm_head") { "" } else { "model." };
        // The field that has the type `Lora` is no part of PEFT's names.
        let is_adapter = |container: &str| matches!(container, "Struct:Lora" | "Struct:StackLora");
        let matrix = path.iter().position(|(_, container)| is_adapter(container));
        let name = match (self, matrix) {
            (Self::Model, None) => format!("{prefix}{}", family.named(names)),
            (Self::Adapter, Some(at)) => {
                let matrix = names[at].to_uppercase();
                let projection = family.named(names.into_iter().take(at - 1));
                format!("base_model.model.{prefix}{projection}.lora_{matrix}.weight")
            }
            _ => return None,
        };
        let is_transposed = path.last().is_some_and(|(name, container)| match container.as_str() {
            "Struct:Projection" | "Struct:Linear" | "Struct:Stack" => name == "weight",
            container => container == "Struct:StackLora",
        });
        Some(InFile { name, is_transposed })
    }
}

/// Returns whether the parameter at a path has a part for each expert, dim 0. Files have each part for itself.
fn is_of_experts(path: &ModulePath) -> bool {
    path.last().is_some_and(|(_, container)| matches!(container.as_str(), "Struct:Stack" | "Struct:StackLora"))
}

/// Returns the path that a parameter of experts would have if they were a list, for one of them.
fn of_expert(path: &ModulePath, expert: &str) -> Vec<(String, String)> {
    let mut path = path.to_vec();
    let list = path.iter().position(|(name, _)| name == "experts").map_or(0, |at| at + 1);
    path.insert(list, (expert.to_owned(), "Vec".to_owned()));
    path
}

/// Writes a file of text.
pub(crate) fn write_text(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).map_err(LlmError::file("write", path))
}
