//! `save`: a model as a folder that Hugging Face's programs read.

use super::{Loaded, ModelArgs, Outcome};
use burn_tpu::TpuFloat;
use std::path::PathBuf;

/// What `save` takes.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub(super) model: ModelArgs,
    /// The folder to write
    #[arg(long, value_name = "DIR")]
    output: PathBuf,
}

/// Runs the command.
pub fn run<F: TpuFloat>(args: &Args, loaded: &Loaded<F>) -> Outcome {
    Ok(loaded.source.save(&loaded.model, &args.output)?)
}
