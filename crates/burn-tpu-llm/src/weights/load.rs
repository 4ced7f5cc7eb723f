//! The way of tensors into a decoder.

use super::few_bits::Quantized;
use super::{InFile, ModulePath, Part, Tensors, is_of_experts, of_expert};
use crate::config::Family;
use crate::error::{LlmError, Result};
use crate::model::Decoder;
use crate::model::few_bits::Bits;
use burn::module::{Module, ModuleMapper, Param};
use burn::prelude::*;
use burn::tensor::{DType, Element};
use half::{bf16, f16};
use std::collections::BTreeMap;
use std::path::Path;

/// Returns the decoder with the weights of a file for one of its parts. Its own are not made, if they have not been.
pub(crate) fn load<B: Backend>(
    decoder: Decoder<B>,
    part: Part,
    tensors: &dyn Tensors,
    path: &Path,
) -> Result<Decoder<B>> {
    let tied = decoder.config().tied;
    let mut load = Load {
        part,
        family: decoder.config().family,
        tensors,
        unused: tensors.shapes(),
        less_one: decoder.config().norm_less_one,
        path: Vec::new(),
        few_bits: None,
        problems: Vec::new(),
        failed: None,
    };
    let decoder = decoder.map(&mut load);
    let Load { mut problems, unused, failed, .. } = load;
    if let Some(error) = failed {
        return Err(error);
    }
    // Older files have the frequencies, and some that tie the head to the embedding have it all the same.
    let known = |name: &str| name.ends_with("rotary_emb.inv_freq") || tied && name == "lm_head.weight";
    let unused = unused.into_keys().filter(|name| !known(name));
    problems.extend(unused.map(|name| format!("`{name}` is in the file and not in the model")));
    if problems.is_empty() { Ok(decoder) } else { Err(LlmError::Weights { path: path.to_path_buf(), problems }) }
}

struct Load<'a> {
    part: Part,
    family: Family,
    tensors: &'a dyn Tensors,
    /// The tensors that no parameter has asked for.
    unused: BTreeMap<String, Vec<usize>>,
    less_one: bool,
    /// The names of the modules that are being visited, with their types.
    path: Vec<(String, String)>,
    /// The matrix in few bits whose parts are being visited, the integers first.
    few_bits: Option<Quantized>,
    problems: Vec<String>,
    failed: Option<LlmError>,
}

impl Load<'_> {
    /// Returns the data of the parameter that is being visited, in its own layout.
    fn data(&mut self, shape: Vec<usize>, dtype: DType) -> Option<TensorData> {
        if !is_of_experts(&self.path) {
            return self.data_at(&self.path.clone(), shape);
        }
        let (mut bytes, mut parts) = (Vec::new(), 0);
        for expert in 0..shape[0] {
            let path = of_expert(&self.path, &expert.to_string());
            if let Some(part) = self.data_at(&path, shape[1..].to_vec()) {
                bytes.extend_from_slice(&part.convert_dtype(dtype).bytes);
                parts += 1;
            }
        }
        (parts == shape[0]).then(|| TensorData::from_bytes_vec(bytes, shape, dtype))
    }

    /// Returns the data of the parameter at a path, in its own layout.
    fn data_at(&mut self, path: &ModulePath, mut shape: Vec<usize>) -> Option<TensorData> {
        let InFile { name, is_transposed } = self.part.in_file(path, self.family)?;
        if is_transposed {
            shape.reverse();
        }
        let data = self.read(&name, &shape, |tensors| tensors.read(&name))?;
        Some(if is_transposed { transpose(data) } else { data })
    }

    /// Reads the matrix in few bits whose integers are being visited, of this shape.
    fn quantized(&mut self, shape: &[usize]) -> Option<Quantized> {
        let name = self.part.matrix_in_file(&self.path, self.family)?;
        let &[blocks, block, outputs] = shape else { return None };
        let rows = blocks * block;
        // Two integers of 4 bits are in a byte.
        let found = self.unused.get(&name).and_then(|shape| shape.last());
        let bits = if found == Some(&(2 * rows)) { Bits::Four } else { Bits::Eight };
        let inputs = if bits == Bits::Four { 2 * rows } else { rows };
        self.read(&name, &[outputs, inputs], |tensors| tensors.read_few_bits(&name, bits))
    }

    /// Reads a tensor of a shape, unless something is wrong with this one or an earlier one.
    fn read<T>(&mut self, name: &str, shape: &[usize], read: impl FnOnce(&dyn Tensors) -> Result<T>) -> Option<T> {
        match self.unused.remove(name) {
            None => self.problems.push(format!("`{name}` {shape:?} is missing")),
            Some(found) if found != shape => {
                self.problems.push(format!("`{name}` has shape {found:?} instead of {shape:?}"));
            }
            Some(_) if self.failed.is_none() && self.problems.is_empty() => match read(self.tensors) {
                Ok(read) => return Some(read),
                Err(error) => self.failed = Some(error),
            },
            Some(_) => {}
        }
        None
    }
}

impl<B: Backend> ModuleMapper<B> for Load<'_> {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.path.push((name.to_owned(), container.to_owned()));
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.pop();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let (device, id) = (param.lazy_device(), param.id);
        if is_few_bits(&self.path) {
            let field = self.path.last().map(|(name, _)| name.as_str());
            let data = self.few_bits.as_ref().map(|matrix| match field {
                Some("least") => matrix.least(),
                _ => matrix.scales(),
            });
            let Some(data) = data else { return param };
            let tensor = Tensor::from_data(data, (&device, DType::F16)).set_require_grad(false);
            return Param::initialized(id, tensor);
        }
        let norm = is_norm(&self.path);
        // Norms are computed in f32, and are small.
        let dtype = if norm { DType::F32 } else { B::FloatElem::dtype() };
        let Some(data) = self.data(param.lazy_shape().to_vec(), dtype) else { return param };
        let tensor = Tensor::from_data(data, (&device, dtype));
        let tensor = if norm && self.less_one { tensor + 1.0 } else { tensor };
        param.transform_for_load(tensor, id)
    }

    fn map_int<const D: usize>(&mut self, param: Param<Tensor<B, D, Int>>) -> Param<Tensor<B, D, Int>> {
        self.few_bits = self.quantized(&param.lazy_shape());
        let Some(matrix) = &self.few_bits else { return param };
        let data = matrix.quants();
        let (device, id, dtype) = (param.lazy_device(), param.id, data.dtype);
        param.transform_for_load(Tensor::from_data(data, (&device, dtype)), id)
    }
}

/// Returns whether the parameter at a path is a part of a matrix in few bits.
fn is_few_bits(path: &ModulePath) -> bool {
    path.last().is_some_and(|(_, container)| container == "Struct:FewBits")
}

/// Returns whether the parameter at a path is the weight of a norm.
pub(super) fn is_norm(path: &ModulePath) -> bool {
    path.last().is_some_and(|(_, container)| container == "Struct:RmsNorm")
}

/// Returns `[columns, rows]` for `[rows, columns]`.
pub(super) fn transpose(data: TensorData) -> TensorData {
    match data.dtype {
        DType::BF16 => transpose_of::<bf16>(data),
        DType::F16 => transpose_of::<f16>(data),
        _ => transpose_of::<f32>(data),
    }
}

fn transpose_of<E: Element>(data: TensorData) -> TensorData {
    let (rows, columns) = (data.shape[0], data.shape[1]);
    let Ok(values) = data.as_slice::<E>() else { return data };
    TensorData::new(turned(values, columns), [columns, rows])
}

/// Returns `[columns, rows]` for `[rows, columns]`.
pub(super) fn turned<E: Copy>(values: &[E], columns: usize) -> Vec<E> {
    /// Rows and columns of a block, whose lines stay in the processor's cache.
    const BLOCK: usize = 32;
    let rows = values.len() / columns;
    let mut turned = values.to_vec();
    for row_block in (0..rows).step_by(BLOCK) {
        for column in 0..columns {
            for row in row_block..rows.min(row_block + BLOCK) {
                turned[column * rows + row] = values[row * columns + column];
            }
        }
    }
    turned
}
