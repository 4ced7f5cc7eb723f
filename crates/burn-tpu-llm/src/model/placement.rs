//! Where the weights of a decoder live on a mesh.

use crate::config::Config;
use burn_tpu::{Axes, Fsdp, Parameter, PlacementRule, Result};

/// Smaller weights are on every chip: to gather them costs more than their memory is worth.
const LEAST_BYTES: usize = 64 << 10;

impl Config {
    /// Returns the rule that splits a decoder's weights over axes of a mesh, for [`burn_tpu::place`].
    ///
    /// `tensor` splits the heads and the hidden layers, so that a layer's two pairs of products need one exchange each
    /// ([Shoeybi et al.](https://arxiv.org/abs/1909.08053)); the tokens of the vocabulary too. `fsdp` splits what is left
    /// of each weight, which is gathered where it is used. `expert` splits the experts of mixtures. Several axes are joined
    /// with `+`. Weights in few bits are split as their floats would be, by the axes that divide their blocks; experts in
    /// few bits are not split by `expert`, since each is a matrix of its own.
    pub fn placement<'a>(
        &self,
        tensor: Option<&'a str>,
        fsdp: Option<&'a str>,
        expert: Option<&'a str>,
    ) -> impl PlacementRule + use<'a> {
        Placement { tensor, fsdp, expert }
    }
}

/// The axes that split weights.
struct Placement<'a> {
    tensor: Option<&'a str>,
    fsdp: Option<&'a str>,
    expert: Option<&'a str>,
}

/// A parameter's matrix, by its path.
enum Matrix<'p> {
    /// `weight`
    Floats(&'p str),
    /// A parameter of `few_bits`.
    FewBits(&'p str, &'p str),
}

/// Returns the matrix that a parameter belongs to; `None` if it is no matrix's.
fn matrix_of(path: &str) -> Option<Matrix<'_>> {
    let mut names = path.rsplit('.');
    let (leaf, module) = (names.next()?, names.next()?);
    if leaf == "weight" {
        return Some(Matrix::Floats(module));
    }
    // Of a stack of experts, each has a number: `gate_proj.few_bits.3.quants`.
    let is_number = module.bytes().all(|byte| byte.is_ascii_digit());
    let module = if is_number { names.next()? } else { module };
    if module == "few_bits" { Some(Matrix::FewBits(names.next()?, leaf)) } else { None }
}

impl<'a> Placement<'a> {
    /// Returns what splits the dims of the parameter at a path; `None` for one that no matrix has.
    fn of(&self, path: &str) -> Option<Vec<Option<&'a str>>> {
        match matrix_of(path)? {
            // Split over its vectors, the table would be read with those of the whole batch.
            Matrix::Floats("embed_tokens") => Some(vec![self.tensor, self.fsdp]),
            Matrix::Floats(name) => {
                let [inputs, outputs] = self.of_matrix(name)?;
                let stack = path.contains(".experts.").then_some(self.expert);
                Some(stack.into_iter().chain([inputs, outputs]).collect())
            }
            Matrix::FewBits(name, leaf) => {
                // The inputs of the table are its vectors.
                let [inputs, outputs] = self.of_matrix(if name == "embed_tokens" { "lm_head" } else { name })?;
                Some(if leaf == "quants" { vec![inputs, None, outputs] } else { vec![inputs, outputs] })
            }
        }
    }

    /// Returns what splits the inputs and the outputs of a matrix.
    fn of_matrix(&self, name: &str) -> Option<[Option<&'a str>; 2]> {
        match name {
            "q_proj" | "k_proj" | "v_proj" | "gate_proj" | "up_proj" | "lm_head" => Some([self.fsdp, self.tensor]),
            "o_proj" | "down_proj" => Some([self.tensor, self.fsdp]),
            _ => None,
        }
    }
}

impl PlacementRule for Placement<'_> {
    fn axes(&self, parameter: &Parameter<'_>) -> Result<Axes> {
        match (self.of(parameter.path), self.fsdp) {
            (Some(dims), _) => {
                let mut axes: Axes = dims.into_iter().map(joined).collect();
                if parameter.path.contains(".few_bits.") {
                    keep_dividing(&mut axes, parameter)?;
                }
                Ok(axes)
            }
            (None, Some(axis)) => Fsdp { axis, min_bytes: LEAST_BYTES }.axes(parameter),
            (None, None) => Ok(parameter.replicated()),
        }
    }
}

/// Returns the names of axes that `+` joins.
fn joined(axes: Option<&str>) -> Vec<String> {
    axes.map(|axes| axes.split('+').map(str::to_owned).collect()).unwrap_or_default()
}

/// Leaves those dims of a parameter whole that their axes do not divide.
fn keep_dividing(axes: &mut Axes, parameter: &Parameter<'_>) -> Result<()> {
    for (names, &size) in axes.iter_mut().zip(parameter.dims) {
        let mut parts = 1;
        for name in &*names {
            parts *= parameter.axis_size(name)?;
        }
        if !size.is_multiple_of(parts) {
            names.clear();
        }
    }
    Ok(())
}
