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
            Some(axis) => place(model, &tensor_parallel(axis).otherwise(Rest(fsdp))),
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
/// (Megatron-LM, Shoeybi et al. 2019, section 3).
fn tensor_parallel(axis: &str) -> Patterns {
    let mut rule = Patterns::new();
    for layer in ["attention.query", "attention.key", "attention.value", "feed_forward.linear_inner"] {
        rule = rule.add(format!("blocks.*.{layer}.weight"), [None, Some(axis)]);
        rule = rule.add(format!("blocks.*.{layer}.bias"), [Some(axis)]);
    }
    for layer in ["attention.output", "feed_forward.linear_outer"] {
        rule = rule.add(format!("blocks.*.{layer}.weight"), [Some(axis), None]);
    }
    rule.add("head.weight", [None, Some(axis)]).add("head.bias", [Some(axis)])
}
