//! The way of tensors into a decoder.

use super::{InFile, Part, Tensors};
use crate::config::Family;
use crate::error::{LlmError, Result};
use crate::model::Decoder;
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
    problems: Vec<String>,
    failed: Option<LlmError>,
}

impl Load<'_> {
    /// Returns the data of the parameter that is being visited, in its own layout.
    fn data(&mut self, mut shape: Vec<usize>) -> Option<TensorData> {
        let InFile { name, is_transposed } = self.part.in_file(&self.path, self.family)?;
        if is_transposed {
            shape.reverse();
        }
        match self.unused.remove(&name) {
            None => self.problems.push(format!("`{name}` {shape:?} is missing")),
            Some(found) if found != shape => {
                self.problems.push(format!("`{name}` has shape {found:?} instead of {shape:?}"));
            }
            Some(_) if self.failed.is_none() && self.problems.is_empty() => match self.tensors.read(&name) {
                Ok(data) => return Some(if is_transposed { transpose(data) } else { data }),
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
        let Some(data) = self.data(param.lazy_shape().to_vec()) else { return param };
        let norm = is_norm(&self.path);
        // Norms are computed in f32, and are small.
        let dtype = if norm { DType::F32 } else { B::FloatElem::dtype() };
        let (device, id) = (param.lazy_device(), param.id);
        let tensor = Tensor::from_data(data, (&device, dtype));
        let tensor = if norm && self.less_one { tensor + 1.0 } else { tensor };
        param.transform_for_load(tensor, id)
    }
}

/// Returns whether the parameter at a path is the weight of a norm.
pub(super) fn is_norm(path: &[(String, String)]) -> bool {
    path.last().is_some_and(|(_, container)| container == "Struct:RmsNorm")
}

/// Returns `[columns, rows]` for `[rows, columns]`.
fn transpose(data: TensorData) -> TensorData {
    match data.dtype {
        DType::BF16 => transpose_of::<bf16>(data),
        DType::F16 => transpose_of::<f16>(data),
        _ => transpose_of::<f32>(data),
    }
}

fn transpose_of<E: Element>(data: TensorData) -> TensorData {
    /// Rows and columns of a block, whose lines stay in the processor's cache.
    const BLOCK: usize = 32;
    let (rows, columns) = (data.shape[0], data.shape[1]);
    let Ok(values) = data.as_slice::<E>() else { return data };
    let mut turned = values.to_vec();
    for row_block in (0..rows).step_by(BLOCK) {
        for column in 0..columns {
            for row in row_block..rows.min(row_block + BLOCK) {
                turned[column * rows + row] = values[row * columns + column];
            }
        }
    }
    TensorData::new(turned, [columns, rows])
}
