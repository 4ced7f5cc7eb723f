//! Reports, without a TPU, whether a training step fits each TPU generation, how fast it can be and what it costs:
//! `cargo run --release --example fit -- --help`.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example prints its results")]

use anyhow::{Context, Result, bail, ensure};
use burn::backend::Autodiff;
use burn::module::AutodiffModule;
use burn::optim::adaptor::OptimizerAdaptor;
use burn::optim::{GradientsParams, Optimizer, SimpleOptimizer};
use burn::tensor::Tensor;
use burn_tpu::fit::{Fit, FitReport};
use burn_tpu::{Checkpoints, Generation, Keep, Topology, Tpu, TpuDevice, TpuFloat, TpuOptimizer, autocast};
use burn_tpu_workspace::models::{
    Block, Cnn, ConvNext, ConvNextConfig, Gpt, GptConfig, Images, Mlp, Photos, ResNet50, ResNet50Config, Supervised,
    Tokens, Vit, VitConfig, adam, adamw,
};
use clap::{Parser, ValueEnum};
use half::bf16;
use layout::Layout;
use looped::LoopedGpt;
use search::SearchArgs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

mod layout;
mod looped;
mod plot;
mod search;

/// Samples of a gpt's step, unless told otherwise.
const GPT_BATCH: u64 = 16;

/// Compile one training step for TPUs that this machine need not have
#[derive(Parser)]
struct Args {
    #[arg(long, value_enum, default_value_t = Model::Gpt)]
    model: Model,
    /// Generations (v4, v5e, v5p, v6e, tpu7x: one chip each) or slices (v5e:2x2), comma-separated
    #[arg(long, default_value = "all", value_delimiter = ',', value_parser = slices)]
    generations: Vec<Slices>,
    /// Type of the weights, activations and optimizer state; autocast: f32 weights and state, bf16 activations
    #[arg(long, value_enum, default_value_t = Dtype::Bf16)]
    dtype: Dtype,
    /// Compile the forward pass of a model of photographs, not its training step
    #[arg(long)]
    inference: bool,
    /// Keep f32 master weights and optimizer state beside bf16 weights (burn_tpu::TpuOptimizer)
    #[arg(long)]
    master_weights: bool,
    /// Samples per step: of each device, or of the whole mesh [default: 16 for gpt, else 128]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    batch: Option<u64>,
    #[command(flatten)]
    layout: Layout,
    #[command(flatten)]
    search: SearchArgs,
    #[command(flatten)]
    gpt: GptArgs,
    /// Your own prices and data sheets, in the format of crates/burn-tpu-runtime/src/fit/tpu-specs.toml
    #[arg(long, value_name = "FILE")]
    specs: Option<PathBuf>,
    /// Compare with the same step in JAX, exported into this folder by benches/jax/step_time.py
    #[arg(long, value_name = "DIR")]
    against: Option<PathBuf>,
    /// Write the whole report to this file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Draw memory and time by generation into this SVG file
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

/// Sizes of the gpt; the other models have none.
#[derive(clap::Args)]
#[command(next_help_heading = "Sizes of the gpt")]
struct GptArgs {
    /// Transformer blocks
    #[arg(long, default_value_t = 4)]
    layers: usize,
    /// Size of a token's vector, a multiple of the heads
    #[arg(long, default_value_t = 256)]
    width: usize,
    /// Attention heads
    #[arg(long, default_value_t = 4)]
    heads: usize,
    /// Size of the hidden layer after attention
    #[arg(long, default_value_t = 1024)]
    ff: usize,
    /// Tokens in a sample
    #[arg(long, default_value_t = 128)]
    sequence: usize,
    /// Number of distinct tokens
    #[arg(long, default_value_t = 96)]
    vocab: usize,
    /// Share of the scores of attention, and of the hidden values after it, that are dropped
    #[arg(long, default_value_t = 0.0)]
    dropout: f64,
    /// Keep each block's input alone and run the block again in the backward pass; `auto` is off, and both in a search
    #[arg(long, value_enum, default_value_t = Remat::Auto)]
    remat: Remat,
    /// Run the blocks as a loop (burn_tpu::Layers), and keep this of each block for the backward pass beside its input
    #[arg(long, value_enum, value_name = "KEEP")]
    as_loop: Option<LoopKeep>,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum LoopKeep {
    Nothing,
    Products,
    Everything,
}

impl LoopKeep {
    fn keep(self) -> Keep {
        match self {
            Self::Nothing => Keep::Nothing,
            Self::Products => Keep::Products,
            Self::Everything => Keep::Everything,
        }
    }
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Remat {
    Auto,
    On,
    Off,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Model {
    Mlp,
    Cnn,
    Gpt,
    /// ResNet-50 on photographs of 224 pixels
    Resnet50,
    /// ViT-B/16 on photographs of 224 pixels
    VitB16,
    /// ConvNeXt-T on photographs of 224 pixels
    ConvnextT,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Dtype {
    Bf16,
    F32,
    Autocast,
}

/// The slices that one word of `--generations` selects.
#[derive(Clone)]
struct Slices(Vec<Topology>);

fn slices(word: &str) -> burn_tpu::Result<Slices> {
    Ok(Slices(match word {
        "all" => Generation::ALL.map(Generation::chip).to_vec(),
        slice if slice.contains(':') => vec![slice.parse()?],
        generation => vec![generation.parse::<Generation>()?.chip()],
    }))
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<()> {
    if args.search.search {
        return search::run(args);
    }
    if args.search.until_stdin_ends {
        burn_tpu::fit::search::end_with_parent();
    }
    let report = match args.dtype {
        Dtype::Bf16 => fit_report::<bf16>(args),
        Dtype::F32 | Dtype::Autocast => fit_report::<f32>(args),
    }?;
    print!("{report}");
    if let Some(folder) = &args.against {
        let part = if args.inference { "infer" } else { "step" };
        let path = folder.join(format!("{}.{part}.mlir", args.program_name()));
        let text = std::fs::read_to_string(&path);
        let text = text.with_context(|| format!("{}: `benches/jax/step_time.py export` writes it", path.display()))?;
        print!("{}", report.against(text)?);
    }
    if let Some(path) = &args.json {
        let text = serde_json::to_string_pretty(&report)?;
        std::fs::write(path, text).with_context(|| format!("cannot write the report {}", path.display()))?;
    }
    args.plot.as_deref().map_or(Ok(()), |path| plot::draw(&report, path))
}

/// Returns the report of the model in elements of type `F`.
fn fit_report<F: TpuFloat>(args: &Args) -> Result<FitReport> {
    let batch = args.batch.unwrap_or(if args.model == Model::Gpt { GPT_BATCH } else { 128 });
    let images = |device: &TpuDevice| Images::synthetic(batch as usize, 0, device);
    let photos = |device: &TpuDevice| Photos::synthetic(batch as usize, 224, 1000, 0, device);
    let fit = fit(args, batch)?;
    if args.inference {
        return inference::<F>(&fit, args.model, batch as usize);
    }
    let casts = args.dtype == Dtype::Autocast;
    match args.model {
        Model::Mlp => train::<F, _, _>(&fit, args, Mlp::new, adam(), images, keep_all(casts)),
        Model::Cnn => train::<F, _, _>(&fit, args, Cnn::new, adam(), images, keep_all(casts)),
        Model::Resnet50 => {
            train::<F, _, _>(&fit, args, |d| ResNet50Config::new().init(d), adam(), photos, keep_all(casts))
        }
        Model::VitB16 => train::<F, _, _>(&fit, args, |d| VitConfig::new().init(d), adamw(), photos, keep_all(casts)),
        Model::ConvnextT => {
            train::<F, _, _>(&fit, args, |d| ConvNextConfig::new().init(d), adamw(), photos, keep_all(casts))
        }
        Model::Gpt => {
            let config = args.gpt.config(batch as usize)?;
            let (init, tokens) = (|d: &_| config.init(d), |d: &_| Tokens::synthetic(&config, 0, d));
            if let Some(keep) = args.gpt.as_loop {
                ensure!(args.gpt.remat != Remat::On, "--as-loop has no --remat: it says what is kept");
                let init = |d: &_| LoopedGpt::init(&config, keep.keep(), d);
                return train::<F, _, _>(&fit, args, init, adamw(), tokens, keep_all(casts));
            }
            match args.gpt.remat {
                Remat::On if casts => bail!("--remat on has no --dtype autocast here"),
                Remat::On => train::<F, _, _>(&fit, args, init, adamw(), tokens, keep_inputs),
                Remat::Off | Remat::Auto => train::<F, _, _>(&fit, args, init, adamw(), tokens, keep_all(casts)),
            }
        }
    }
}

/// Returns the report of a forward pass on photographs.
fn inference<F: TpuFloat>(fit: &Fit, model: Model, batch: usize) -> Result<FitReport> {
    match model {
        Model::Resnet50 => forward::<F, _>(fit, batch, |d| ResNet50Config::new().init(d), ResNet50::forward),
        Model::VitB16 => forward::<F, _>(fit, batch, |d| VitConfig::new().init(d), Vit::forward),
        Model::ConvnextT => forward::<F, _>(fit, batch, |d| ConvNextConfig::new().init(d), ConvNext::forward),
        Model::Mlp | Model::Cnn | Model::Gpt => bail!("--inference is of resnet50, vit-b16 and convnext-t"),
    }
}

fn forward<F: TpuFloat, M>(
    fit: &Fit,
    batch: usize,
    model: impl FnOnce(&TpuDevice) -> M,
    logits: impl Fn(&M, Tensor<Tpu<F>, 4>) -> Tensor<Tpu<F>, 2>,
) -> Result<FitReport> {
    let photos = |device: &TpuDevice| Photos::<Tpu<F>>::synthetic(batch, 224, 1000, 0, device).photos;
    let step = |(model, _), device: &TpuDevice| {
        let logits = logits(&model, photos(device));
        (model, Some(logits))
    };
    Ok(fit.run(|device| (model(device), None), step)?)
}

/// Returns the compile settings, which do not depend on the model's type.
fn fit(args: &Args, batch: u64) -> Result<Fit> {
    let slices = args.generations.iter().flat_map(|slices| slices.0.iter().copied());
    let mut fit = Fit::new()?.slices(slices).samples(batch);
    if args.model == Model::Gpt {
        fit = fit.tokens(batch * args.gpt.sequence as u64);
    }
    if let Some(mesh) = &args.layout.mesh {
        fit = fit.mesh(mesh.clone());
    }
    if let Some(path) = &args.specs {
        fit = fit.specs(specs(path)?);
    }
    Ok(fit)
}

fn specs(path: &Path) -> Result<burn_tpu::fit::Specs> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    burn_tpu::fit::Specs::parse(&text).with_context(|| path.display().to_string())
}

/// The gradients of a step and its loss.
type Backward<F> = (GradientsParams, Tensor<Autodiff<Tpu<F>>, 1>);

/// Returns the backward pass that keeps all activations which the gradients need, of the model or of its weights in bf16.
fn keep_all<F, M>(casts: bool) -> impl Fn(&M, M::Batch) -> Backward<F>
where
    F: TpuFloat,
    M: Supervised<Autodiff<Tpu<F>>> + AutodiffModule<Autodiff<Tpu<F>>>,
{
    move |model, batch| {
        let loss = if casts { autocast(model).loss(batch) } else { model.loss(batch) };
        (GradientsParams::from_grads(loss.backward(), model), loss)
    }
}

/// The backward pass that keeps the inputs of the blocks and runs each block again.
fn keep_inputs<F: TpuFloat>(model: &Gpt<Autodiff<Tpu<F>>>, batch: Tokens<Autodiff<Tpu<F>>>) -> Backward<F> {
    let mut checkpoints = Checkpoints::new();
    let loss = model.loss_by(batch, |block, x, mask| {
        checkpoints.run(block, x, move |block: &Block<_>, x| block.forward(x, mask.clone()))
    });
    (checkpoints.backward(loss.clone(), model), loss)
}

/// Compiles a training step with the optimizer, or with the optimizer on master weights.
fn train<F, M, O>(
    fit: &Fit,
    args: &Args,
    model: impl FnOnce(&TpuDevice) -> M,
    optimizer: OptimizerAdaptor<O, M, Autodiff<Tpu<F>>>,
    batch: impl Fn(&TpuDevice) -> M::Batch,
    backward: impl Fn(&M, M::Batch) -> Backward<F>,
) -> Result<FitReport>
where
    F: TpuFloat,
    M: Supervised<Autodiff<Tpu<F>>> + AutodiffModule<Autodiff<Tpu<F>>>,
    O: SimpleOptimizer<Tpu<F>> + SimpleOptimizer<Tpu<f32>>,
{
    match args.master_weights {
        true => step(fit, &args.layout, model, TpuOptimizer::new(optimizer), batch, backward),
        false => step(fit, &args.layout, model, optimizer, batch, backward),
    }
}

/// Compiles forward, backward and update.
fn step<F, M, O>(
    fit: &Fit,
    layout: &Layout,
    model: impl FnOnce(&TpuDevice) -> M,
    optimizer: O,
    batch: impl Fn(&TpuDevice) -> M::Batch,
    backward: impl Fn(&M, M::Batch) -> Backward<F>,
) -> Result<FitReport>
where
    F: TpuFloat,
    M: Supervised<Autodiff<Tpu<F>>> + AutodiffModule<Autodiff<Tpu<F>>>,
    O: Optimizer<M, Autodiff<Tpu<F>>>,
{
    let mut placed = Ok(());
    let report = fit.run(
        |device| {
            let model = model(device);
            let model = layout.place(model.clone()).unwrap_or_else(|error| {
                placed = Err(error);
                model
            });
            (model, optimizer, None)
        },
        |(model, mut optimizer, _), device| {
            let (gradients, loss) = backward(&model, batch(device));
            (optimizer.step(1e-3, model, gradients), optimizer, Some(loss))
        },
    )?;
    placed?;
    Ok(report)
}

impl Args {
    /// Returns the name of JAX's files, such as `gpt-bf16` and `gpt-loop-nothing-bf16`.
    fn program_name(&self) -> String {
        let name = |value: Option<clap::builder::PossibleValue>| value.map_or(String::new(), |v| v.get_name().into());
        let kept = self.gpt.as_loop.filter(|_| self.model == Model::Gpt);
        let kept = kept.map_or(String::new(), |kept| format!("loop-{}-", name(kept.to_possible_value())));
        format!("{}-{kept}{}", name(self.model.to_possible_value()), name(self.dtype.to_possible_value()))
    }
}

impl GptArgs {
    fn config(&self, batch: usize) -> Result<GptConfig> {
        let GptArgs { layers, width, heads, ff, sequence, vocab, dropout, remat: _, as_loop: _ } = *self;
        ensure!([width, heads, ff, sequence, vocab].iter().all(|&size| size > 0), "every size must be at least 1");
        ensure!((0.0..1.0).contains(&dropout), "--dropout must be at least 0 and below 1");
        ensure!(width.is_multiple_of(heads), "--width {width} is not a multiple of --heads {heads}");
        let config = GptConfig::new().with_layers(layers).with_width(width).with_heads(heads).with_feed_forward(ff);
        Ok(config.with_sequence(sequence).with_vocabulary(vocab).with_batch(batch).with_dropout(dropout))
    }
}
