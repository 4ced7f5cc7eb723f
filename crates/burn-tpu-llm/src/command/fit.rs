//! `fit`: whether a step of a model fits TPUs, how fast it can be there and what it costs, without a TPU and without
//! the model's weights.

mod search;

use super::mesh::{ContextArgs, MeshArgs};
use super::{Dtype, Kept, Outcome};
use burn::backend::Autodiff;
use burn::module::AutodiffModule;
use burn::optim::adaptor::OptimizerAdaptor;
use burn::optim::{AdamW, AdamWConfig, GradientsParams, Optimizer};
use burn::prelude::*;
use burn_tpu::fit::search::end_with_parent;
use burn_tpu::fit::{Fit, FitReport};
use burn_tpu::{DeviceOptimizer, Keep, Topology, Tpu, TpuDevice, TpuFloat, TpuOptimizer, compile_step};
use burn_tpu_llm::model::{Context, LanguageModel};
use burn_tpu_llm::{Cache, Config, Decoder, Dispatch, LlmError, LoraConfig, Result};
use search::SearchArgs;
use std::cell::RefCell;
use std::path::{Path, PathBuf};

/// What `fit` takes.
#[derive(clap::Args)]
pub struct Args {
    /// The name of a public model, such as llama-3.1-8b; or a config.json, a folder with one, or a GGUF file. Weights
    /// are not read
    #[arg(long, value_name = "NAME|FILE|DIR")]
    model: String,
    /// The slices to compile for, as v5e:2x4 or v5p:8x8x8
    #[arg(long, value_delimiter = ',', required = true)]
    slices: Vec<Topology>,
    /// A step that writes one token of each text, in place of a training step
    #[arg(long)]
    decode: bool,
    /// Samples of a step, or texts that are written at once
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..))]
    batch: u64,
    /// Tokens of a sample; with --decode, the positions of the cache
    #[arg(long, default_value_t = 2048, value_parser = clap::value_parser!(u64).range(2..))]
    sequence: u64,
    /// Type of weights and activations. A training step in bf16 has weights and moments in f32 beside them
    #[arg(long, value_enum, default_value_t = Dtype::Bf16)]
    pub(super) dtype: Dtype,
    /// Keep the weights of products and tables in few bits: a decode step, or with --lora a training step
    #[arg(long, value_enum, value_name = "q8|q4")]
    weights: Option<super::FewBits>,
    /// Train an adapter of this rank alone
    #[arg(long, value_name = "RANK")]
    lora: Option<usize>,
    /// How mixtures compute their experts: auto, every, sorted=ROWS of a block, or capacity=FACTOR with groups of 1,024
    /// tokens
    #[arg(long, value_name = "HOW", value_parser = dispatch, default_value = "auto")]
    experts: Dispatch,
    #[command(flatten)]
    mesh: MeshArgs,
    #[command(flatten)]
    context: ContextArgs,
    /// What the loop over the layers keeps of each for the backward pass, beside its input [default: ring; with --search,
    /// each of ring, products and everything is tried]
    #[arg(long, value_name = "KEPT")]
    keep: Option<Kept>,
    /// Keep the optimizer's state, and the f32 copies of weights in bf16, in the host's memory between steps
    #[arg(long, conflicts_with = "decode")]
    state_on_host: bool,
    /// Record the layers of a training step one by one, not as a loop
    #[arg(long, conflicts_with_all = ["keep", "decode"])]
    unrolled: bool,
    /// Record the layers of a decode step as a loop, not one by one
    #[arg(long, requires = "decode", conflicts_with = "search")]
    looped: bool,
    /// Compile the same step from this file too, StableHLO text as JAX exports it, and print the ratios of the two
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,
    /// Write the whole report to this file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    #[command(flatten)]
    search: SearchArgs,
}

/// The tokens of a group of `capacity`.
const GROUP: usize = 1024;

fn dispatch(text: &str) -> Result<Dispatch, String> {
    let (name, number) = text.split_once('=').unwrap_or((text, ""));
    match (name, number.parse::<f64>()) {
        ("auto", Err(_)) if number.is_empty() => Ok(Dispatch::Auto),
        ("every", Err(_)) if number.is_empty() => Ok(Dispatch::Every),
        ("sorted", Ok(block)) if block >= 1.0 => Ok(Dispatch::Sorted { block: block as usize }),
        ("capacity", Ok(factor)) if factor > 0.0 => Ok(Dispatch::Capacity { factor, group: GROUP }),
        _ => Err("auto, every, sorted=512 or capacity=1.25".to_owned()),
    }
}

/// Runs the command.
pub fn run<F: TpuFloat>(args: &Args) -> Outcome {
    if args.search.search {
        return search::run(args);
    }
    if args.search.until_stdin_ends {
        end_with_parent();
    }
    let report = args.report::<F>()?;
    print!("{report}");
    if let Some(path) = &args.against {
        let text =
            std::fs::read_to_string(path).map_err(|error| format!("cannot read `{}`: {error}", path.display()))?;
        print!("{}", report.against(text)?);
    }
    if let Some(path) = &args.json {
        let text = serde_json::to_string_pretty(&report)?;
        std::fs::write(path, text).map_err(|error| format!("cannot write `{}`: {error}", path.display()))?;
    }
    Ok(())
}

type Trained<F> = Autodiff<Tpu<F>>;

impl Args {
    /// Returns the model's configuration, and prints the number of its weights.
    ///
    /// # Errors
    /// Options that exclude each other, and a model that is not known.
    fn checked(&self) -> Outcome<Config> {
        if self.weights.is_some() && !self.decode && self.lora.is_none() {
            return Err(LlmError::FewBits("are not trained: --weights needs --decode or --lora").into());
        }
        if self.decode && self.mesh.axis("context").is_some() {
            return Err("--mesh: `context` splits the tokens of a training step, and --decode writes one".into());
        }
        let config = config(&self.model)?;
        let weights = config.num_params() as f64;
        let (number, unit) = if weights < 1e9 { (weights / 1e6, "million") } else { (weights / 1e9, "billion") };
        eprintln!("{number:.2} {unit} weights");
        Ok(config)
    }

    fn report<F: TpuFloat>(&self) -> Outcome<FitReport> {
        let config = self.checked()?;
        if self.decode {
            return self.decoding::<F>(&config);
        }
        let decoder = |device: &TpuDevice| -> Result<Decoder<Trained<F>>> {
            let decoder = self.few_bits(config.init(device)?).with_dispatch(self.experts);
            match self.lora {
                Some(rank) => decoder.with_lora(&LoraConfig { rank, ..LoraConfig::default() }),
                None => Ok(decoder),
            }
        };
        if self.unrolled {
            return self.training::<F, _>(&config, decoder);
        }
        let keep = self.keep.clone().unwrap_or(Kept::Ring).into();
        self.training::<F, _>(&config, |device| decoder(device)?.into_loop(keep))
    }

    /// Compiles forward, backward and update.
    fn training<F: TpuFloat, M: LanguageModel<Trained<F>> + AutodiffModule<Trained<F>> + 'static>(
        &self,
        config: &Config,
        model: impl FnOnce(&TpuDevice) -> Result<M>,
    ) -> Outcome<FitReport> {
        // Zeros that the device makes would be no batch of the program's arguments.
        let shape = [self.batch as usize, self.sequence as usize + 1];
        let tokens = TensorData::new(vec![0i32; shape[0] * shape[1]], shape);
        let loss = |model: &M, tokens: Tensor<Trained<F>, 2, Int>, context: &Option<Context<Trained<F>>>| {
            let nats = match context {
                Some(context) => model.nats_over(tokens, None, context),
                None => model.nats(tokens, None),
            };
            nats.map(Tensor::mean)
        };
        let model = |device: &TpuDevice| -> Result<_> {
            Ok((self.mesh.place(config, model(device)?)?, self.context.context(&self.mesh, device)?))
        };
        if self.state_on_host {
            return self.compile(
                self.sequence,
                |device| {
                    let (model, context) = model(device)?;
                    let step =
                        compile_step(model, DeviceOptimizer::new().with_state_on_host(), move |model, tokens| {
                            // It was recorded before.
                            let loss = loss(model, Tensor::from_inner(tokens), &context);
                            let loss = loss.unwrap_or_else(|error| panic!("{error}"));
                            (loss.clone(), loss.inner())
                        });
                    Ok((step, None))
                },
                |(mut step, _), device| {
                    let loss = step.run(1e-4, Tensor::<Tpu<F>, 2, Int>::from_data(tokens.clone(), device))?;
                    Ok((step, Some(loss)))
                },
            );
        }
        let optimizer: OptimizerAdaptor<AdamW, M, Trained<F>> = AdamWConfig::new().init();
        self.compile(
            self.sequence,
            |device| Ok((model(device)?, TpuOptimizer::new(optimizer), None)),
            |((model, context), mut optimizer, _), device| {
                let loss = loss(&model, Tensor::from_data(tokens.clone(), device), &context)?;
                let gradients = GradientsParams::from_grads(loss.backward(), &model);
                Ok(((optimizer.step(1e-4, model, gradients), context), optimizer, Some(loss)))
            },
        )
    }

    /// Compiles a step that writes one token of each text.
    fn decoding<F: TpuFloat>(&self, config: &Config) -> Outcome<FitReport> {
        let texts = [self.batch as usize, self.sequence as usize];
        let split = [self.mesh.axis("data"), self.mesh.axis("tensor"), None, None];
        let decoder = |device: &TpuDevice| -> Result<Decoder<Tpu<F>>> {
            Ok(self.few_bits(config.init(device)?).with_dispatch(self.experts))
        };
        if self.looped {
            return self.writing(
                |device| {
                    let model = self.mesh.place(config, decoder(device)?.into_loop(Keep::Nothing)?)?;
                    let cache = model.cache(texts[0], texts[1], device).shard(split);
                    Ok((model, cache))
                },
                |model, tokens, cache| Ok(model.logits(model.extend(tokens, cache)?)),
            );
        }
        self.writing(
            |device| {
                let model = self.mesh.place(config, decoder(device)?)?;
                let cache = Cache::new(config, texts[0], texts[1], model.dtype(), device).shard(split);
                Ok((model, cache))
            },
            |model, tokens, cache| Ok(model.logits(model.extend(tokens, cache))),
        )
    }

    /// Compiles a step of what `build` makes, which gives the next token of each text.
    fn writing<F: TpuFloat, M, C>(
        &self,
        build: impl FnOnce(&TpuDevice) -> Result<(M, C)>,
        logits: impl Fn(&M, Tensor<Tpu<F>, 2, Int>, &mut C) -> Result<Tensor<Tpu<F>, 3>>,
    ) -> Outcome<FitReport> {
        self.compile(
            1,
            |device| {
                let (model, cache) = build(device)?;
                Ok((model, cache, Tensor::zeros([self.batch as usize, 1], device)))
            },
            |(model, mut cache, tokens), _| {
                let next = logits(&model, tokens, &mut cache)?.argmax(2).squeeze_dim(2);
                Ok((model, cache, next))
            },
        )
    }

    /// Compiles a step of `tokens` tokens of each sample.
    fn compile<S>(
        &self,
        tokens: u64,
        build: impl FnOnce(&TpuDevice) -> Result<S>,
        step: impl Fn(S, &TpuDevice) -> Result<S>,
    ) -> Outcome<FitReport> {
        let mut fit = Fit::new()?.slices(self.slices.iter().copied()).samples(self.batch).tokens(self.batch * tokens);
        if let Some(mesh) = &self.mesh.mesh {
            fit = fit.mesh(mesh.clone());
        }
        let failed = RefCell::new(None);
        let kept = |state: Result<S>| state.map_err(|error| failed.replace(Some(error))).ok();
        let report = fit.run(|device| kept(build(device)), |state, device| kept(step(state?, device)));
        match failed.take() {
            Some(error) => Err(error.into()),
            None => Ok(report?),
        }
    }

    /// Returns the decoder with its weights as they are to be kept.
    fn few_bits<B: Backend>(&self, decoder: Decoder<B>) -> Decoder<B> {
        match self.weights {
            Some(bits) => decoder.with_few_bits(bits.into()),
            None => decoder,
        }
    }
}

/// Returns what a model computes, from its files or by its name.
fn config(model: &str) -> Result<Config> {
    let path = Path::new(model);
    if path.exists() { Config::open(path) } else { Config::named(model) }
}
