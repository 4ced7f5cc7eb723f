//! How a step is split over the devices of a slice.

use burn::module::Module;
use burn_tpu::fit::search::{Candidate, Kept};
use burn_tpu::{Fsdp, Mesh, MeshBackend, Patterns, Result, place};
use burn_tpu_workspace::models::{TENSOR_PARALLEL_BIASES, tensor_parallel_weights};

/// Smaller parameters are on every device.
const LEAST_BYTES: usize = 64 << 10;

#[derive(clap::Args)]
#[command(next_help_heading = "Split over a slice")]
pub struct Layout {
    /// Split the step over all devices of each slice, as `data=4,model=4`; else each device runs a copy
    #[arg(long)]
    pub mesh: Option<Mesh>,
    /// Split parameters and their state over this axis
    #[arg(long, value_name = "AXIS", requires = "mesh")]
    fsdp: Option<String>,
    /// Split the heads and the hidden layers of the gpt over this axis
    #[arg(long, value_name = "AXIS", requires = "mesh")]
    tensor: Option<String>,
}

impl Layout {
    /// Places the parameters of a model.
    pub fn place<B: MeshBackend, M: Module<B>>(&self, model: M) -> Result<M> {
        let fsdp = self.fsdp.as_deref().map(|axis| Fsdp { axis, min_bytes: LEAST_BYTES });
        match self.tensor.as_deref() {
            Some(axis) => place(model, &tensor_parallel(axis, self.fsdp.as_deref()).otherwise(fsdp)),
            None => place(model, &fsdp),
        }
    }
}

/// Splits the layers of a gpt over `tensor`, and the other dim of their weights over `fsdp`.
fn tensor_parallel(tensor: &str, fsdp: Option<&str>) -> Patterns {
    let rule = Patterns::new();
    let rule = tensor_parallel_weights(tensor, fsdp).into_iter().fold(rule, |rule, (path, dims)| rule.add(path, dims));
    TENSOR_PARALLEL_BIASES.iter().fold(rule, |rule, path| rule.add(*path, [Some(tensor)]))
}

/// Returns the code that sets a layout up.
pub fn code(candidate: Candidate) -> String {
    let axes: String = candidate.axes().iter().map(|(name, size)| format!(".axis({name:?}, {size})")).collect();
    if axes.is_empty() {
        return "one device needs no mesh\n".into();
    }
    let fsdp = (candidate.fsdp > 1).then_some("fsdp");
    let tensor = (candidate.tensor > 1).then_some("tensor");
    let mut code = format!("let device = TpuDevice::mesh(Mesh::new(){axes});\n");
    code += &placement(fsdp, tensor);
    if candidate.kept == Kept::Input {
        code += "// Each block: checkpoints.run(block, x, |block, x| block.forward(x)), then checkpoints.backward(loss, &model).\n";
    }
    code
}

/// Returns the code that places a model as [`Layout::place`] does.
fn placement(fsdp: Option<&str>, tensor: Option<&str>) -> String {
    let rest = fsdp.map(|axis| format!("Fsdp {{ axis: {axis:?}, min_bytes: {LEAST_BYTES} }}"));
    let Some(tensor) = tensor else {
        return format!("let model = place(model, &{})?;\n", rest.as_deref().unwrap_or("Replicate"));
    };
    let mut code = "let rule = Patterns::new()".to_owned();
    for (path, dims) in tensor_parallel_weights(tensor, fsdp) {
        code += &format!("\n    .add({path:?}, {dims:?})");
    }
    for path in TENSOR_PARALLEL_BIASES {
        code += &format!("\n    .add({path:?}, [Some({tensor:?})])");
    }
    code += &rest.map_or(String::new(), |rest| format!("\n    .otherwise({rest})"));
    code + ";\nlet model = place(model, &rule)?;\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_names_the_axes_and_the_rules() {
        let code = code(Candidate { data: 2, fsdp: 16, kept: Kept::Input, ..Candidate::ONE });
        let expected = "let device = TpuDevice::mesh(Mesh::new().axis(\"data\", 2).axis(\"fsdp\", 16));\n\
                        let model = place(model, &Fsdp { axis: \"fsdp\", min_bytes: 65536 })?;\n";
        assert!(code.starts_with(expected) && code.contains("checkpoints.run"), "{code}");
    }
}
