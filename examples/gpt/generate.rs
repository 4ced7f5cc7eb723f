//! Writing: a batch of prompts, a cache of keys and values, and text as it comes.
//!
//! A token's number is on the device from its choice to the end: the host reads it to print it, after the next step was
//! dispatched. Prefill and decode are pure functions of tensors, compiled in the warm-up, after which the device is frozen.

use crate::Dtype;
use crate::jax::{self, JaxDecoder};
use crate::model::{Cache, Gpt, GptConfig};
use crate::sample::Sampler;
use crate::saved::Files;
use crate::stream::Streams;
use crate::timing::Timing;
use anyhow::{Context, Result, ensure};
use burn::prelude::*;
use burn_tpu::{Buckets, Compiled, Tpu, TpuDevice, TpuFloat, compile};
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
/// Runs of each program in the warm-up: the first of them compile.
const WARM_UP: usize = 3;

/// What a decode step passes to the next: the cache, the last tokens `[batch, 1]` and their positions `[batch]`.
pub type State<F> = (Cache<Tpu<F>>, Tensor<Tpu<F>, 2, Int>, Tensor<Tpu<F>, 1, Int>);

/// Prompts `[batch, bucket]` and how many of their tokens count, `[batch]`.
type Prompts<F> = (Tensor<Tpu<F>, 2, Int>, Tensor<Tpu<F>, 1, Int>);

/// Writes texts and prints them.
pub fn run<F: TpuFloat>(options: &Options, dtype: Dtype, device: &TpuDevice) -> Result<()> {
    options.sampler.check()?;
    let (config, tokenizer) = Files::in_folder(&options.model).load()?;
    let prompts: Vec<Vec<u32>> = options.prompts.iter().map(|text| tokenizer.encode(text)).collect::<Result<_>>()?;
    let model = Files::in_folder(&options.model).load_model(&config, device)?;
    let model = dtype.computed(&model);
    let writer = Writer::<F>::new(model, &options.sampler, &config, device)?;
    let room = writer.room(&config, &prompts)?;
    let steps = options.tokens.unwrap_or(room).min(room);
    ensure!(steps > 0, "--tokens must be at least 1");
    Tpu::<F>::seed(device, options.seed);
    writer.warm_up(prompts.len())?;
    device.freeze();
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

/// A model that writes. Prefill and decode are recorded once; from then on a call is a dispatch.
pub struct Writer<F: TpuFloat> {
    prefill: Compiled<Prompts<F>, State<F>>,
    decode: Compiled<State<F>, State<F>>,
    /// The lengths that prompts are padded to: there is a program for each.
    buckets: Buckets,
    device: TpuDevice,
}

impl<F: TpuFloat> Writer<F> {
    /// Creates a writer; nothing is compiled yet.
    pub fn new(model: Gpt<Tpu<F>>, sampler: &Sampler, config: &GptConfig, device: &TpuDevice) -> Result<Self> {
        let ours = (model.clone(), sampler.clone());
        let prefill = compile(move |(prompts, lengths): Prompts<F>| {
            let (logits, cache) = ours.0.prefill(prompts, lengths.clone());
            (cache, ours.1.sample(logits), lengths)
        });
        let sampler = sampler.clone();
        let decode = compile(move |(cache, tokens, positions): State<F>| {
            let (logits, cache) = model.decode(cache, tokens, positions.clone());
            (cache, sampler.sample(logits), positions + 1)
        });
        let buckets = Buckets::doubling(LEAST_BUCKET.min(config.sequence), config.sequence)?;
        Ok(Self { prefill, decode, buckets, device: *device })
    }

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
            let prompts = vec![vec![0; (*bucket).min(self.longest())]; batch];
            // More than once: a program that compiled may have assumed that numbers are equal which were so by chance.
            for _ in 0..WARM_UP {
                let state = self.decode(self.prefill(&prompts)?)?;
                state.1.try_into_data()?;
            }
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
                state = self.decode(state)?;
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
    pub fn prefill(&self, prompts: &[Vec<u32>]) -> Result<State<F>> {
        let longest = prompts.iter().map(Vec::len).max().context("there is no prompt")?;
        let (batch, bucket) = (prompts.len(), self.buckets.size(longest)?);
        let padded = prompts.iter().flat_map(|prompt| {
            let tokens = prompt.iter().map(|token| *token as i32);
            tokens.chain(std::iter::repeat_n(0, bucket - prompt.len()))
        });
        let tokens = TensorData::new(padded.collect::<Vec<i32>>(), [batch, bucket]);
        let lengths: Vec<i32> = prompts.iter().map(|prompt| prompt.len() as i32).collect();
        let lengths = Tensor::from_data(TensorData::new(lengths, [batch]), &self.device);
        Ok(self.prefill.call((Tensor::from_data(tokens, &self.device), lengths))?)
    }

    /// Dispatches a decode step: adds the last tokens to the cache and chooses the next ones.
    pub fn decode(&self, state: State<F>) -> Result<State<F>> {
        Ok(self.decode.call(state)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::DType;

    /// Returns a small model in f32, or `None` if there is no CPU plugin and none is required.
    fn model() -> Option<(Gpt<Tpu<f32>>, TpuDevice)> {
        burn_tpu_pjrt::testing::plugin(burn_tpu_pjrt::PluginKind::Cpu)?;
        let device = TpuDevice::cpu(0);
        Tpu::<f32>::seed(&device, 7);
        // Larger weights than a model starts with, so that tokens differ.
        Some((config().init(&device).map(&mut Spread), device))
    }

    fn writer(model: &Gpt<Tpu<f32>>, sampler: Sampler, device: &TpuDevice) -> Writer<f32> {
        Writer::new(model.clone(), &sampler, &config(), device).unwrap()
    }

    fn config() -> GptConfig {
        GptConfig::new(37).with_layers(2).with_width(16).with_heads(2).with_sequence(16)
    }

    struct Spread;

    impl<B: Backend> burn::module::ModuleMapper<B> for Spread {
        fn map_float<const D: usize>(
            &mut self,
            param: burn::module::Param<Tensor<B, D>>,
        ) -> burn::module::Param<Tensor<B, D>> {
            param.map(|weight| weight * 8.0)
        }
    }

    fn greedy() -> Sampler {
        Sampler { temperature: 0.0, top_k: 0, top_p: 1.0 }
    }

    fn rows(tokens: &[Vec<u32>]) -> Tensor<Tpu<f32>, 2, Int> {
        let [rows, length] = [tokens.len(), tokens[0].len()];
        let tokens: Vec<i32> = tokens.concat().iter().map(|token| *token as i32).collect();
        Tensor::from_data(TensorData::new(tokens, [rows, length]), &TpuDevice::cpu(0))
    }

    fn numbers(logits: Tensor<Tpu<f32>, 2>) -> Vec<f32> {
        assert_eq!(logits.dtype(), DType::F32);
        logits.into_data().to_vec().unwrap()
    }

    /// One test for all that counts, since tests of a binary share the device.
    #[test]
    fn decoding_with_a_cache_is_a_full_pass_and_compiles_nothing_after_the_warm_up() {
        let Some((model, device)) = model() else { return };
        let writer = writer(&model, greedy(), &device);
        let prompts = vec![vec![5, 11, 2, 30, 9], vec![1, 8]];
        writer.warm_up(prompts.len()).unwrap();
        writer.device.freeze();
        let mut written = vec![Vec::new(); prompts.len()];
        let mut keep = |tokens: &[u32]| {
            written.iter_mut().zip(tokens).for_each(|(row, token)| row.push(*token));
            Ok(true)
        };
        let timing = writer.write(&prompts, 8, &mut keep).unwrap();
        // Prompts of another bucket, and drawn tokens, are also programs of the warm-up.
        writer.write(&[vec![3; 9], vec![4]], 2, &mut |_: &[u32]| Ok(true)).unwrap();
        writer.device.unfreeze();
        assert_eq!((timing.compiles, timing.tokens.len()), (0, 8));

        // The same tokens, from a pass over the whole sequence for each.
        for (prompt, written) in prompts.iter().zip(&written) {
            let mut sequence = prompt.clone();
            for token in &written[..8] {
                let logits = model.forward(rows(std::slice::from_ref(&sequence)));
                let last: Tensor<_, 2> = logits.narrow(1, sequence.len() - 1, 1).squeeze_dim(1);
                let best = last.argmax(1).into_data().iter::<u32>().next().unwrap();
                assert_eq!(best, *token, "after {sequence:?}");
                sequence.push(best);
            }
        }
    }

    #[test]
    fn logits_of_the_cache_are_those_of_a_full_pass() {
        let Some((model, device)) = model() else { return };
        let texts = [vec![7, 7, 20, 36, 0, 1], vec![4, 9, 9, 1, 30, 2]];
        let lengths = Tensor::from_data([3, 2], &device);
        let (first, mut cache) = model.prefill(rows(&texts.clone().map(|text| text[..4].to_vec())), lengths);
        let full = model.forward(rows(&texts));
        let at =
            |row: usize, position: usize| numbers(full.clone().narrow(0, row, 1).narrow(1, position, 1).squeeze_dim(1));
        let close = |found: Vec<f32>, wanted: Vec<f32>| {
            let most = found.iter().zip(&wanted).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(found.len() == wanted.len() && most < 1e-4, "differs by {most}");
        };
        close(numbers(first), [at(0, 2), at(1, 1)].concat());
        for step in 0..3 {
            let tokens = rows(&[vec![texts[0][3 + step]], vec![texts[1][2 + step]]]);
            let positions = Tensor::from_data([3 + step as i32, 2 + step as i32], &device);
            let (logits, next) = model.decode(cache, tokens, positions);
            cache = next;
            close(numbers(logits), [at(0, 3 + step), at(1, 2 + step)].concat());
        }
    }

    #[test]
    fn prompts_that_leave_no_room_are_errors() {
        let Some((model, device)) = model() else { return };
        let writer = writer(&model, greedy(), &device);
        assert_eq!(writer.room(&config(), &[vec![0; 15], vec![0]]).unwrap(), 1);
        let error = writer.room(&config(), &[vec![0], vec![0; 16]]).unwrap_err().to_string();
        assert!(error.contains("prompt 2 has 16 tokens") && error.contains("at most 15"), "{error}");
        assert!(writer.room(&config(), &[vec![]]).unwrap_err().to_string().contains("prompt 1 is empty"));
    }
}
