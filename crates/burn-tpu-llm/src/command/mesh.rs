//! `--mesh`: how a model and its work are split over chips.

use burn::prelude::*;
use burn_tpu::{Mesh, MeshBackend, Platform, TpuDevice, place};
use burn_tpu_llm::model::{Context, ContextForm, RingBackend};
use burn_tpu_llm::{Config, Result};
use clap::ValueEnum;

/// The axes of a mesh that split something: batches, weights, sequences, or experts.
const AXES: [&str; 6] = ["slice", "data", "fsdp", "context", "tensor", "expert"];

/// A mesh.
#[derive(clap::Args, Clone)]
pub struct MeshArgs {
    /// Split the model over many chips, as `data=4,fsdp=8,context=2,tensor=4`. Weights are split over the axes `fsdp`,
    /// `context` and `tensor`, those of experts over `expert` too; texts over `data` and `fsdp`; keys and values over
    /// `tensor`; in training, the tokens of a sample over `context`
    #[arg(long, value_name = "AXES", value_parser = mesh)]
    pub(super) mesh: Option<Mesh>,
}

/// How attention is computed in training if a mesh has an axis `context`.
#[derive(clap::Args)]
pub struct ContextArgs {
    /// How attention sees the keys of other chips, if the mesh has an axis `context`
    #[arg(long, value_enum, default_value_t = Form::Ring)]
    pub(super) context_form: Form,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
pub(super) enum Form {
    /// Each chip gathers the keys and values of a layer
    Gathered,
    /// Keys and values go round the chips
    Ring,
}

fn mesh(text: &str) -> Result<Mesh, String> {
    let mesh: Mesh = text.parse().map_err(|error: burn_tpu::TpuError| error.to_string())?;
    match mesh.names().iter().find(|name| !AXES.contains(name)) {
        Some(unknown) => Err(format!("the axis `{unknown}` splits nothing here; known are {}", AXES.join(", "))),
        None => Ok(mesh),
    }
}

impl MeshArgs {
    /// Returns the chips as one device, or the first chip if there is no mesh.
    pub fn device(&self, platform: Option<Platform>) -> TpuDevice {
        match (platform, self.mesh.clone()) {
            (Some(platform), Some(mesh)) => TpuDevice::mesh(mesh.on(platform)),
            (None, Some(mesh)) => TpuDevice::mesh(mesh),
            (Some(platform), None) => TpuDevice::new(platform, 0),
            (None, None) => TpuDevice::default(),
        }
    }

    /// Returns the name of an axis, if the mesh has it.
    pub fn axis(&self, name: &'static str) -> Option<&'static str> {
        self.mesh.as_ref().filter(|mesh| mesh.names().contains(&name)).map(|_| name)
    }

    /// Returns these axes joined with `+`, as far as the mesh has them.
    pub fn joined<const N: usize>(&self, names: [&'static str; N]) -> Option<String> {
        let names: Vec<_> = names.into_iter().filter_map(|name| self.axis(name)).collect();
        Some(names.join("+")).filter(|names| !names.is_empty())
    }

    /// Splits the weights over the axes that the mesh has.
    pub fn place<B: MeshBackend, M: Module<B>>(&self, config: &Config, model: M) -> Result<M> {
        if self.mesh.is_none() {
            return Ok(model);
        }
        // Chips that differ in their tokens alone have no use for the same weights.
        let fsdp = self.joined(["fsdp", "context"]);
        Ok(place(model, &config.placement(self.axis("tensor"), fsdp.as_deref(), self.axis("expert")))?)
    }
}

impl ContextArgs {
    /// Returns the context that a mesh splits, if it has such an axis.
    pub fn context<B: RingBackend>(&self, mesh: &MeshArgs, device: &TpuDevice) -> Result<Option<Context<B>>> {
        let Some(axis) = mesh.axis("context") else { return Ok(None) };
        let form = match self.context_form {
            Form::Gathered => ContextForm::Gathered,
            Form::Ring => ContextForm::Ring,
        };
        Ok(Some(Context::new(device, axis, form)?.with_heads(mesh.axis("tensor"))))
    }
}
