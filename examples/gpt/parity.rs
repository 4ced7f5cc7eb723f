//! What `benches/jax/gpt_train.py` needs to train the same model on the same batches, and the losses to compare with.

use crate::batches::Packed;
use crate::model::{Gpt, GptConfig};
use crate::optimizer::{EPSILON, Settings};
use crate::saved::save_weights;
use crate::train::Options;
use anyhow::{Context, Result};
use burn::prelude::Backend;
use serde::Serialize;
use std::path::Path;

/// The numbers of a run.
#[derive(Serialize)]
struct Start<'a> {
    model: &'a GptConfig,
    optimizer: &'a Settings,
    epsilon: f32,
    steps: usize,
    batch: usize,
    accumulate: usize,
}

/// Writes the first weights (`start.safetensors`), the windows of all batches (`batches.i32`: steps, batches of a step,
/// sequences, tokens with the one after the sequence) and the numbers of the run (`start.json`).
pub fn export_start<B: Backend>(
    folder: &Path,
    options: &Options,
    config: &GptConfig,
    train: &Packed,
    model: &Gpt<B>,
) -> Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot create the folder `{}`", folder.display()))?;
    save_weights(model, &folder.join("start.safetensors"))?;
    let batches = 0..options.steps * options.accumulate;
    let rows = batches.flat_map(|number| train.shuffled(number, options.batch, options.seed));
    let tokens = rows.flat_map(|row| train.window(row).iter().flat_map(|token| (*token as i32).to_le_bytes()));
    write(&folder.join("batches.i32"), &tokens.collect::<Vec<u8>>())?;
    let Options { optimizer, steps, batch, accumulate, .. } = options;
    let start =
        Start { model: config, optimizer, epsilon: EPSILON, steps: *steps, batch: *batch, accumulate: *accumulate };
    write(&folder.join("start.json"), serde_json::to_string_pretty(&start)?.as_bytes())
}

/// Writes the losses of a run's steps (`losses.json`).
pub fn export_losses(folder: &Path, losses: &[f64]) -> Result<()> {
    write(&folder.join("losses.json"), serde_json::to_string(losses)?.as_bytes())
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    std::fs::write(path, bytes).with_context(|| format!("cannot write `{}`", path.display()))
}
