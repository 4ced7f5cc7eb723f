//! PEFT's folders: an adapter's description and its matrices.

use super::load::load;
use super::safetensors::Shards;
use super::save::save;
use super::{Part, write_text};
use crate::config::LoraConfig;
use crate::error::{LlmError, Result};
use crate::model::Decoder;
use burn::prelude::*;
use std::path::Path;

const CONFIG: &str = "adapter_config.json";
const WEIGHTS: &str = "adapter_model.safetensors";

impl<B: Backend> Decoder<B> {
    /// Returns the decoder with the adapter of a folder, as [`Decoder::with_lora`] adds one.
    ///
    /// # Errors
    /// [`LlmError::Adapter`] for an adapter that this crate does not compute or a decoder that has one;
    /// [`LlmError::Weights`] for matrices that are missing, misshapen or too many; [`LlmError::File`] and
    /// [`LlmError::Format`].
    pub fn load_lora(self, folder: &Path) -> Result<Self> {
        let (config, weights) = (folder.join(CONFIG), folder.join(WEIGHTS));
        let text = std::fs::read_to_string(&config).map_err(LlmError::file("read", &config))?;
        let decoder = self.with_lora(&LoraConfig::from_peft(&text)?)?;
        load(decoder, Part::Adapter, &Shards::of_files([weights.clone()])?, &weights)
    }

    /// Writes the adapter as a folder that PEFT reads: `adapter_config.json` and `adapter_model.safetensors`, with
    /// tensors such as `base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight`, `[rank, inputs]`, and
    /// `lora_B`, `[outputs, rank]`.
    ///
    /// # Errors
    /// [`LlmError::Adapter`] if there is none; [`LlmError::File`] and [`LlmError::Device`].
    pub fn save_lora(&self, folder: &Path) -> Result<()> {
        let config = self.lora().ok_or_else(|| LlmError::Adapter("is missing: the decoder has none".to_owned()))?;
        std::fs::create_dir_all(folder).map_err(LlmError::file("make", folder))?;
        write_text(&folder.join(CONFIG), &config.to_peft())?;
        save(self, Part::Adapter, &folder.join(WEIGHTS))
    }
}
