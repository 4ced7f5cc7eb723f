//! From sound to text: the prompt, the tokens that are never chosen, and the choice of the likeliest one.

use crate::ct2::Ct2File;
use crate::mel::LogMel;
use crate::model::Whisper;
use crate::weights;
use anyhow::{Context, Result, anyhow};
use burn::prelude::*;
use serde::Deserialize;
use std::path::Path;
use std::time::{Duration, Instant};
use tokenizers::Tokenizer;

/// Vocabularies of at least this size have more than one language. Source: OpenAI's `whisper/model.py`, `is_multilingual`.
const MULTILINGUAL: usize = 51_865;

/// The fields of `config.json` that this program reads.
#[derive(Deserialize)]
struct Config {
    /// Tokens that are never chosen.
    suppress_ids: Vec<u32>,
    /// Tokens that are not chosen first, besides.
    suppress_ids_begin: Vec<u32>,
}

/// A model and its vocabulary.
pub struct Transcriber<B: Backend> {
    mel: LogMel<B>,
    model: Whisper<B>,
    tokenizer: Tokenizer,
    /// What stands before every text.
    prompt: Vec<u32>,
    /// What ends every text.
    end: u32,
    /// What is added to logits, `[1, vocabulary]`: of the first token, and of the others.
    barred: [Tensor<B, 2>; 2],
    device: B::Device,
}

/// What was said.
pub struct Transcript {
    pub text: String,
    pub ids: Vec<u32>,
    /// The time of the spectrogram and of the encoder.
    pub encoding: Duration,
    /// The time of all tokens.
    pub decoding: Duration,
}

impl<B: Backend> Transcriber<B> {
    /// Reads a folder with `model.bin`, `config.json` and `tokenizer.json`.
    pub fn load(folder: &Path, device: &B::Device) -> Result<Self> {
        let file = Ct2File::open(&folder.join("model.bin"))?;
        let model = weights::load(&file, device).with_context(|| format!("the model in `{}`", folder.display()))?;
        let path = folder.join("config.json");
        let read = || format!("cannot read `{}`", path.display());
        let config: Config = serde_json::from_slice(&std::fs::read(&path).with_context(read)?).with_context(read)?;
        let path = folder.join("tokenizer.json");
        let read = || format!("cannot read the tokenizer `{}`", path.display());
        let tokenizer = Tokenizer::from_file(&path).map_err(|error| anyhow!("{error}")).with_context(read)?;

        let [vocabulary, _] = model.decoder.tokens.weight.dims();
        let id = |name: &str| {
            tokenizer.token_to_id(name).with_context(|| format!("there is no `{name}`")).with_context(read)
        };
        let prompt = match vocabulary {
            MULTILINGUAL.. => ["<|startoftranscript|>", "<|en|>", "<|transcribe|>", "<|notimestamps|>"].as_slice(),
            _ => &["<|startoftranscript|>", "<|notimestamps|>"],
        };
        let mel = LogMel::new(model.encoder.conv1.weight.dims()[1], device);
        // What is made of the files is made now.
        B::sync(device)?;
        let first = [config.suppress_ids.as_slice(), &config.suppress_ids_begin].concat();
        Ok(Self {
            mel,
            prompt: prompt.iter().map(|name| id(name)).collect::<Result<_>>()?,
            end: id("<|endoftext|>")?,
            barred: [first, config.suppress_ids].map(|ids| barred(&ids, vocabulary, device)),
            model,
            tokenizer,
            device: device.clone(),
        })
    }

    /// Returns the spectrogram of at most 30 seconds, `[1, mels, frames]`.
    pub fn mel(&self, sound: &[f32]) -> Result<Tensor<B, 3>> {
        self.mel.forward(sound)
    }

    /// Returns what the encoder finds in a spectrogram, `[1, frames / 2, width]`.
    pub fn encode(&self, mel: Tensor<B, 3>) -> Tensor<B, 3> {
        self.model.encoder.forward(mel)
    }

    /// Returns what is said in at most 30 seconds.
    pub fn transcribe(&self, sound: &[f32]) -> Result<Transcript> {
        let begun = Instant::now();
        let encoded = self.encode(self.mel(sound)?);
        B::sync(&self.device)?;
        let encoding = begun.elapsed();
        let ids = self.decode(&encoded)?;
        let decoding = begun.elapsed() - encoding;
        let text = self.tokenizer.decode(&ids, true).map_err(|error| anyhow!("{error}"))?;
        Ok(Transcript { text: text.trim().to_owned(), ids, encoding, decoding })
    }

    /// Returns the likeliest tokens, one after another.
    fn decode(&self, encoded: &Tensor<B, 3>) -> Result<Vec<u32>> {
        let decoder = &self.model.decoder;
        let (mut tokens, mut cache) = (self.prompt.clone(), decoder.begin(encoded));
        for position in 0..decoder.length() {
            let token = Tensor::from_data([[tokens[position] as i32]], &self.device);
            let logits;
            (logits, cache) = decoder.forward(token, position, cache);
            let written = (position + 1).checked_sub(self.prompt.len());
            // The prompt's next token is known.
            let Some(written) = written else { continue };
            let barred = self.barred[written.min(1)].clone();
            let likeliest = (logits + barred).argmax(1).try_into_scalar()?.elem::<u32>();
            if likeliest == self.end {
                break;
            }
            tokens.push(likeliest);
        }
        Ok(tokens.split_off(self.prompt.len()))
    }
}

/// Returns negative infinity for the ids, and 0 for the others.
fn barred<B: Backend>(ids: &[u32], vocabulary: usize, device: &B::Device) -> Tensor<B, 2> {
    let mut barred = vec![0.0_f32; vocabulary];
    for id in ids {
        if let Some(value) = barred.get_mut(*id as usize) {
            *value = f32::NEG_INFINITY;
        }
    }
    Tensor::from_data(TensorData::new(barred, [1, vocabulary]), device)
}
