//! Writing: a batch of prompts, a cache of keys and values, and text as it comes.
//!
//! A token's number is on the device from its choice to the end: the host reads it to print it, after the next step was
//! dispatched. Prefill and decode are pure functions of tensors, compiled in the warm-up, after which the device is frozen.

use crate::jax::{self, JaxDecoder};
use crate::model::{Cache, Gpt, GptConfig};
use crate::sample::Sampler;
use crate::saved::Files;
use crate::stream::Streams;
use crate::timing::Timing;
use anyhow::{Context, Result, ensure};
use burn::prelude::*;
use burn_tpu::{Buckets, Tpu, TpuDevice, TpuFloat};
use std::path::PathBuf;
use std::time::Instant;

/// The options of a run.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// The folder that `gpt train` wrote
    #[arg(long, value_name = "DIR", default_value = "gpt-model")]
    pub model: PathBuf,
    /// How a text begins; give it several times for several texts at once
    #[arg(long = "prompt", value_name = "TEXT", default_value = "The kernel ")]
    pub prompts: Vec<String>,
    /// Tokens to write, if the model's sequence is long enough [default: up to its end]
    #[arg(long)]
    pub tokens: Option<usize>,
    /// Seed of the choices
    #[arg(long, default_value_t = 42)]
    pub seed: u64,
    /// How tokens are chosen
    #[command(flatten)]
    pub sampler: Sampler,
    /// Alternate with JAX's decode step in this folder, which `benches/jax/gpt_decode.py` wrote, and compare the times
    #[arg(long, value_name = "DIR")]
    pub against: Option<PathBuf>,
    /// Write the times to this file as JSON
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
}

/// The smallest bucket of a prompt.
const LEAST_BUCKET: usize = 16;
/// Decode steps of the warm-up: the first of them compile.
const WARM_UP: usize = 4;

/// What a decode step passes to the next: the cache, the last tokens `[batch, 1]` and their positions `[batch]`.
pub type State<B> = (Cache<B>, Tensor<B, 2, Int>, Tensor<B, 1, Int>);

/// Writes texts and prints them.
pub fn run<F: TpuFloat>(options: &Options, device: &TpuDevice) -> Result<()> {
    options.sampler.check()?;
    let (config, tokenizer) = Files::in_folder(&options.model).load()?;
    let prompts: Vec<Vec<u32>> = options.prompts.iter().map(|text| tokenizer.encode(text)).collect::<Result<_>>()?;
    let writer = Writer::<Tpu<F>> {
        model: Files::in_folder(&options.model).load_model(&config, device)?,
        sampler: options.sampler.clone(),
        buckets: Buckets::doubling(LEAST_BUCKET.min(config.sequence), config.sequence)?,
        device: *device,
    };
    let room = writer.room(&config, &prompts)?;
    let steps = options.tokens.unwrap_or(room).min(room);
    ensure!(steps > 0, "--tokens must be at least 1");
    writer.warm_up(prompts.len())?;
    device.freeze();
    Tpu::<F>::seed(device, options.seed);
    let mut streams = Streams::new(&tokenizer, &options.prompts, std::io::stdout().lock())?;
    let timing = writer.write(&prompts, steps, |tokens| streams.push(tokens))?;
    streams.finish()?;
    println!("{timing}");
    if let Some(folder) = &options.against {
        let jax = JaxDecoder::load(folder, prompts.len())?;
        println!("{}", jax::compare(&writer, &prompts, steps, jax)?);
    }
    options.report.as_ref().map_or(Ok(()), |path| timing.write(path))
}

/// A model that writes.
pub struct Writer<B: Backend> {
    /// The model.
    pub model: Gpt<B>,
    /// How tokens are chosen.
    pub sampler: Sampler,
    /// The lengths that prompts are padded to: there is a program for each.
    pub buckets: Buckets,
    /// Where the model is.
    pub device: TpuDevice,
}

impl<B: Backend<Device = TpuDevice>> Writer<B> {
    /// Returns the number of tokens that every prompt can be continued by.
    pub fn room(&self, config: &GptConfig, prompts: &[Vec<u32>]) -> Result<usize> {
        for (index, prompt) in prompts.iter().enumerate() {
            ensure!(!prompt.is_empty(), "prompt {} is empty", index + 1);
            ensure!(
                prompt.len() < config.sequence,
                "prompt {} has {} tokens, and the model's sequence has {}: at most {} leave room for an answer",
                index + 1,
                prompt.len(),
                config.sequence,
                config.sequence - 1
            );
        }
        let longest = prompts.iter().map(Vec::len).max().context("there is no prompt")?;
        Ok(config.sequence - longest)
    }

    /// Compiles what a batch of this size needs: a prefill for each bucket, and the decode step.
    pub fn warm_up(&self, batch: usize) -> Result<()> {
        for bucket in self.buckets.sizes() {
            let mut state = self.prefill(&vec![vec![0; (*bucket).min(self.longest())]; batch])?;
            for _ in 0..WARM_UP {
                state = self.decode(state);
            }
            // Reading is part of the warm-up: the host's copy is a path of its own.
            state.1.try_into_data()?;
        }
        self.device.sync()?;
        Ok(())
    }

    /// Returns the length of the longest prompt.
    fn longest(&self) -> usize {
        self.buckets.sizes().last().map_or(1, |longest| longest - 1)
    }

    /// Writes `steps` tokens after each prompt, and passes those of each step to `read`; returns the times.
    pub fn write(
        &self,
        prompts: &[Vec<u32>],
        steps: usize,
        mut read: impl FnMut(&[u32]) -> Result<bool>,
    ) -> Result<Timing> {
        let (before, begun) = (self.device.metrics(), Instant::now());
        let mut state = self.prefill(prompts)?;
        let mut unread = state.1.clone();
        let mut timing = Timing::new(prompts.len());
        for step in 0..steps {
            if step + 1 < steps {
                let dispatched = Instant::now();
                state = self.decode(state);
                timing.host.push(dispatched.elapsed());
            }
            let tokens: Vec<u32> = unread.try_into_data()?.iter::<u32>().collect();
            timing.tokens.push(begun.elapsed());
            unread = state.1.clone();
            if !read(&tokens)? {
                break;
            }
        }
        timing.compiles = self.device.metrics().compiles - before.compiles;
        Ok(timing)
    }

    /// Reads the prompts, and returns the state after the first token of each text.
    pub fn prefill(&self, prompts: &[Vec<u32>]) -> Result<State<B>> {
        let longest = prompts.iter().map(Vec::len).max().context("there is no prompt")?;
        let (batch, bucket) = (prompts.len(), self.buckets.size(longest)?);
        let padded = prompts.iter().flat_map(|prompt| {
            let tokens = prompt.iter().map(|token| *token as i32);
            tokens.chain(std::iter::repeat_n(0, bucket - prompt.len()))
        });
        let tokens = TensorData::new(padded.collect::<Vec<i32>>(), [batch, bucket]);
        let lengths: Vec<i32> = prompts.iter().map(|prompt| prompt.len() as i32).collect();
        let tokens = Tensor::from_data(tokens, &self.device);
        let lengths = Tensor::<B, 1, Int>::from_data(TensorData::new(lengths, [batch]), &self.device);
        let (logits, cache) = self.model.prefill(tokens, lengths.clone());
        let state = (cache, self.sampler.sample(logits), lengths);
        self.device.mark_step();
        Ok(state)
    }

    /// Dispatches a decode step.
    pub fn decode(&self, state: State<B>) -> State<B> {
        let state = step(&self.model, &self.sampler, state);
        self.device.mark_step();
        state
    }
}

/// Adds the last tokens to the cache and chooses the next ones: a pure function, the same program at every step.
fn step<B: Backend>(model: &Gpt<B>, sampler: &Sampler, (cache, tokens, positions): State<B>) -> State<B> {
    let (logits, cache) = model.decode(cache, tokens, positions.clone());
    (cache, sampler.sample(logits), positions + 1)
}
