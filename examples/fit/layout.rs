//! How a step is split over the devices of a slice.

use burn::module::Module;
use burn_tpu::{Fsdp, Mesh, MeshBackend, Parameter, Patterns, PlacementRule, Replicate, Result, place};

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
            Some(axis) => place(model, &tensor_parallel(axis, self.fsdp.as_deref()).otherwise(Rest(fsdp))),
            None => place(model, &Rest(fsdp)),
        }
    }
}

/// The parameters that the other rules leave.
struct Rest<'a>(Option<Fsdp<'a>>);

impl PlacementRule for Rest<'_> {
    fn axes(&self, parameter: &Parameter<'_>) -> Result<burn_tpu::Axes> {
        self.0.as_ref().map_or_else(|| Replicate.axes(parameter), |fsdp| fsdp.axes(parameter))
    }
}

/// Splits each pair of layers first by columns and then by rows, so that a block communicates twice in each direction
/// (Megatron-LM, Shoeybi et al. 2019, section 3). The other dim of a weight is split over `fsdp`.
fn tensor_parallel(tensor: &str, fsdp: Option<&str>) -> Patterns {
    let rule = Patterns::new();
    let rule = patterns(tensor, fsdp).into_iter().fold(rule, |rule, (path, dims)| rule.add(path, dims));
    BIASES.iter().fold(rule, |rule, path| rule.add(*path, [Some(tensor)]))
}

/// The biases of layers that are split by columns.
const BIASES: [&str; 5] = [
    "blocks.*.attention.query.bias",
    "blocks.*.attention.key.bias",
    "blocks.*.attention.value.bias",
    "blocks.*.feed_forward.linear_inner.bias",
    "head.bias",
];

/// Returns the weights that tensor parallelism splits, with the axis of each dim.
fn patterns<'a>(tensor: &'a str, fsdp: Option<&'a str>) -> Vec<(String, [Option<&'a str>; 2])> {
    let columns = ["attention.query", "attention.key", "attention.value", "feed_forward.linear_inner"];
    let rows = ["attention.output", "feed_forward.linear_outer"];
    let path = |layer: &str| format!("blocks.*.{layer}.weight");
    let columns = columns.iter().map(|layer| (path(layer), [fsdp, Some(tensor)]));
    let rows = rows.iter().map(|layer| (path(layer), [Some(tensor), fsdp]));
    columns.chain(rows).chain([("head.weight".to_owned(), [fsdp, Some(tensor)])]).collect()
}

/// Returns the code that places a model as [`Layout::place`] does.
pub fn code(fsdp: Option<&str>, tensor: Option<&str>) -> String {
    let rest = fsdp.map(|axis| format!("Fsdp {{ axis: {axis:?}, min_bytes: {LEAST_BYTES} }}"));
    let Some(tensor) = tensor else {
        return format!("let model = place(model, &{})?;\n", rest.as_deref().unwrap_or("Replicate"));
    };
    let mut code = "let rule = Patterns::new()".to_owned();
    for (path, dims) in patterns(tensor, fsdp) {
        code += &format!("\n    .add({path:?}, {dims:?})");
    }
    for path in BIASES {
        code += &format!("\n    .add({path:?}, [Some({tensor:?})])");
    }
    code += &rest.map_or(String::new(), |rest| format!("\n    .otherwise({rest})"));
    code + ";\nlet model = place(model, &rule)?;\n"
}
