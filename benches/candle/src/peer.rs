//! The same sentence encoder in candle.

use crate::text::Tokens;
use anyhow::{Context, Result};
use candle_core::{DType, Device, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::bert::{BertModel, Config};
use std::path::Path;

/// candle's BERT on the CPU, in f32.
pub struct Peer {
    model: BertModel,
    device: Device,
}

impl Peer {
    pub fn load(folder: &Path) -> Result<Self> {
        let device = Device::Cpu;
        let config: Config = serde_json::from_slice(&std::fs::read(folder.join("config.json"))?)?;
        let weights = std::fs::read(folder.join("model.safetensors")).context("no weights")?;
        let weights = VarBuilder::from_buffered_safetensors(weights, DType::F32, &device)?;
        Ok(Self { model: BertModel::load(weights, &config)?, device })
    }

    /// Returns the unit vector of each sentence. Batches are of sentences of similar lengths, padded to the longest.
    pub fn embed(&self, tokens: &[Tokens], batch: usize) -> Result<Vec<Vec<f32>>> {
        let mut places: Vec<_> = (0..tokens.len()).collect();
        places.sort_by_key(|&place| tokens[place].ids.len());
        let mut vectors = vec![Vec::new(); tokens.len()];
        for batch in places.chunks(batch) {
            let ids: Vec<_> = batch.iter().map(|&place| tokens[place].ids.as_slice()).collect();
            for (&place, vector) in batch.iter().zip(self.batch(&ids)?) {
                vectors[place] = vector;
            }
        }
        Ok(vectors)
    }

    fn batch(&self, sentences: &[&[i32]]) -> Result<Vec<Vec<f32>>> {
        let (rows, length) = (sentences.len(), sentences.iter().map(|ids| ids.len()).max().unwrap_or(0));
        let (mut ids, mut mask) = (vec![0u32; rows * length], vec![0u32; rows * length]);
        for (row, sentence) in sentences.iter().enumerate() {
            for (column, &id) in sentence.iter().enumerate() {
                ids[row * length + column] = id as u32;
                mask[row * length + column] = 1;
            }
        }
        let ids = Tensor::from_vec(ids, (rows, length), &self.device)?;
        let mask = Tensor::from_vec(mask, (rows, length), &self.device)?;
        let tokens = self.model.forward(&ids, &ids.zeros_like()?, Some(&mask))?;
        let mask = mask.to_dtype(DType::F32)?.unsqueeze(2)?;
        let sum = tokens.broadcast_mul(&mask)?.sum(1)?;
        let mean = sum.broadcast_div(&mask.sum(1)?)?;
        let unit = mean.broadcast_div(&mean.sqr()?.sum_keepdim(1)?.sqrt()?)?;
        Ok(unit.to_vec2::<f32>()?)
    }
}
