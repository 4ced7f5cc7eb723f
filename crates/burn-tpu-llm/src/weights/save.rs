//! The way of a decoder's weights into a safetensors file, under Hugging Face's names and in its layouts.
//!
//! One tensor is on the host at a time. The file appears under its name when it is whole.

use super::load::{is_norm, transpose};
use super::{InFile, ModulePath, Part, is_of_experts, of_expert};
use crate::config::Family;
use crate::error::{LlmError, Result};
use crate::model::Decoder;
use burn::module::{Module, ModuleVisitor, Param};
use burn::prelude::*;
use burn::tensor::DType;
use serde_json::{Map, Value, json};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

/// Writes the weights of a decoder as a safetensors file, in their own type.
///
/// # Errors
/// [`LlmError::Adapter`] for a decoder with an adapter that is not merged, and [`LlmError::FewBits`] for one with
/// weights in few bits, since the file has no place for them; [`LlmError::File`] and [`LlmError::Device`].
pub fn save_weights<B: Backend>(decoder: &Decoder<B>, path: &Path) -> Result<()> {
    if decoder.has_unmerged_lora() {
        return Err(LlmError::Adapter("is not in the weights: merge or remove it, or save it apart".to_owned()));
    }
    if decoder.has_few_bits() {
        return Err(LlmError::FewBits(
            "are not what a file of safetensors has here: load the weights without --weights",
        ));
    }
    save(decoder, Part::Model, path)
}

/// Writes the weights of one part of a decoder.
pub(super) fn save<B: Backend>(decoder: &Decoder<B>, part: Part, path: &Path) -> Result<()> {
    let unfinished = path.with_extension("part");
    let file = File::create(&unfinished).map_err(LlmError::file("write", &unfinished))?;
    let family = decoder.config().family;
    let mut list = List { part, family, path: Vec::new(), header: Map::new(), bytes: 0 };
    // Which library wrote it: readers of Hugging Face's files ask, and this is how PyTorch's are laid out.
    list.header.insert("__metadata__".to_owned(), json!({"format": "pt"}));
    decoder.visit(&mut list);
    let mut header = Value::Object(list.header).to_string().into_bytes();
    header.resize(header.len().next_multiple_of(8), b' ');
    let mut write = Elements {
        part,
        family,
        path: Vec::new(),
        file: BufWriter::new(file),
        less_one: decoder.config().norm_less_one,
        result: Ok(()),
    };
    let begun = write.file.write_all(&(header.len() as u64).to_le_bytes()).and_then(|()| write.file.write_all(&header));
    begun.map_err(LlmError::file("write", &unfinished))?;
    decoder.visit(&mut write);
    write.result.map_err(|failure| match failure {
        Failure::File(error) => LlmError::file("write", &unfinished)(error),
        Failure::Device(error) => LlmError::Device(error),
    })?;
    write.file.flush().map_err(LlmError::file("write", &unfinished))?;
    std::fs::rename(&unfinished, path).map_err(LlmError::file("write", path))
}

/// Lists the tensors.
struct List {
    part: Part,
    family: Family,
    path: Vec<(String, String)>,
    header: Map<String, Value>,
    bytes: usize,
}

impl<B: Backend> ModuleVisitor<B> for List {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.path.push((name.to_owned(), container.to_owned()));
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        let (dtype, shape) = (param.val().dtype(), param.lazy_shape().to_vec());
        if !is_of_experts(&self.path) {
            return self.add(&self.path.clone(), shape, dtype);
        }
        for expert in 0..shape[0] {
            self.add(&of_expert(&self.path, &expert.to_string()), shape[1..].to_vec(), dtype);
        }
    }
}

impl List {
    /// Adds the tensor of a path and a shape.
    fn add(&mut self, path: &ModulePath, mut shape: Vec<usize>, dtype: DType) {
        let Some(InFile { name, is_transposed }) = self.part.in_file(path, self.family) else { return };
        if is_transposed {
            shape.reverse();
        }
        let (begin, end) = (self.bytes, self.bytes + shape.iter().product::<usize>() * dtype.size());
        self.bytes = end;
        let dtype = match dtype {
            DType::BF16 => "BF16",
            DType::F16 => "F16",
            _ => "F32",
        };
        self.header.insert(name, json!({"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}));
    }
}

/// Writes the elements of the tensors, in the order of [`List`].
struct Elements {
    part: Part,
    family: Family,
    path: Vec<(String, String)>,
    file: BufWriter<File>,
    less_one: bool,
    result: Result<(), Failure>,
}

enum Failure {
    File(std::io::Error),
    Device(burn::tensor::backend::ExecutionError),
}

impl<B: Backend> ModuleVisitor<B> for Elements {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.path.push((name.to_owned(), container.to_owned()));
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        let place = self.part.in_file(&self.path, self.family);
        let Some(InFile { is_transposed, .. }) = place.filter(|_| self.result.is_ok()) else { return };
        let tensor = param.val();
        let tensor = if self.less_one && is_norm(&self.path) { tensor - 1.0 } else { tensor };
        self.result = match tensor.try_into_data() {
            Ok(data) if is_transposed => self.write_transposed(&data),
            Ok(data) => self.file.write_all(&data.bytes).map_err(Failure::File),
            Err(error) => Err(Failure::Device(error)),
        };
    }
}

impl Elements {
    /// Writes the transpose of a matrix, or of those of a stack, one after another. On the host: a device would compile a
    /// program for each shape.
    fn write_transposed(&mut self, data: &TensorData) -> Result<(), Failure> {
        let &[.., rows, columns] = &data.shape[..] else { return Ok(()) };
        for matrix in data.bytes.chunks_exact((rows * columns * data.dtype.size()).max(1)) {
            let matrix = TensorData::from_bytes_vec(matrix.to_vec(), [rows, columns], data.dtype);
            self.file.write_all(&transpose(matrix).bytes).map_err(Failure::File)?;
        }
        Ok(())
    }
}
