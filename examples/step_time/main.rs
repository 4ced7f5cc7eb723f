//! Measures the cost of a training step: `cargo run --release --example step_time -- --model gpt --dtype f32 --steps 50`.
//!
//! The models are those of `src/models`; `--backend ndarray` and `--backend flex` run the same code on Burn's own backends.
//! `--against DIR` alternates with the same step written in JAX, exported by `benches/jax/step_time.py`.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example prints its results")]

use anyhow::{Context, Result, ensure};
use burn::module::AutodiffModule;
use burn::optim::Optimizer;
use burn::prelude::Backend;
use burn::tensor::backend::AutodiffBackend;
use burn_flex::Flex;
use burn_ndarray::NdArray;
use burn_tpu::{DeviceAdamW, Mesh, Platform, Tpu, TpuDevice, TpuOptions};
use burn_tpu_workspace::models::{Cnn, Gpt, GptConfig, Images, Mlp, Supervised, Tokens, adam, adamw};
use clap::{Parser, ValueEnum};
use half::bf16;
use jax::JaxStep;
use measure::{LEARNING_RATE, Measured, measure, recorded};
use report::Report;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;
use target::{Compiles, OnBurn, OnTpu, Target};
use tracing_subscriber::EnvFilter;

mod jax;
mod measure;
mod report;
mod target;
mod turns;

/// Samples in a batch of images.
const BATCH: usize = 128;
/// The number of batches that the steps cycle through.
const BATCHES: usize = 4;

/// Time training steps.
#[derive(Clone, Parser)]
struct Args {
    /// What to train
    #[arg(long, value_enum, default_value_t = Model::Mlp)]
    model: Model,
    /// Type of the weights, the activations and the optimizer's state
    #[arg(long, value_enum, default_value_t = Dtype::F32)]
    dtype: Dtype,
    /// Number of steps to time, each finished before the next begins; the same number is timed again without waiting
    #[arg(long, default_value_t = 50)]
    steps: usize,
    /// The backend to measure
    #[arg(long, value_enum, default_value_t = Kind::Tpu)]
    backend: Kind,
    /// Where `--backend tpu` runs [default: BURN_TPU_PLATFORM, or the best platform present]
    #[arg(long, value_name = "tpu|cuda|cpu|ndarray|xla-rs")]
    platform: Option<Platform>,
    /// Many chips as one device for `--backend tpu`, as `data=8` [default: BURN_TPU_MESH, or one chip]
    #[arg(long)]
    mesh: Option<Mesh>,
    /// Record the step once, as a compiled function, and not each time
    #[arg(long)]
    compiled: bool,
    /// An option of XLA's compiler for our programs, as `xla_cpu_multi_thread_eigen=false`; may be given several times
    #[arg(long, value_name = "NAME=VALUE", value_parser = flag)]
    flag: Vec<(String, String)>,
    /// Alternate with JAX's programs in this folder, through the same plugin (cpu, cuda)
    #[arg(long, value_name = "DIR")]
    against: Option<PathBuf>,
    /// Write the result to this file as JSON
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Model {
    /// 784-512-256-10, batch 128, Adam
    Mlp,
    /// Two convolutions, a pool, two linear layers, batch 128, Adam
    Cnn,
    /// 4 layers of width 256, batch 16 of 128 tokens, AdamW
    Gpt,
}

#[derive(Clone, Copy, ValueEnum)]
enum Dtype {
    Bf16,
    F32,
}

#[derive(Clone, Copy, ValueEnum)]
enum Kind {
    /// burn-tpu
    Tpu,
    /// burn-ndarray
    Ndarray,
    /// burn-flex
    Flex,
}

fn main() -> ExitCode {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    match run(&Args::parse(), Instant::now()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            error.chain().skip(1).for_each(|cause| eprintln!("  because: {cause}"));
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args, begun: Instant) -> Result<()> {
    ensure!(args.steps > 0, "--steps must be at least 1");
    let on_tpu = matches!(args.backend, Kind::Tpu);
    ensure!(on_tpu || matches!(args.dtype, Dtype::F32), "burn-ndarray and burn-flex run these models in f32");
    ensure!(
        on_tpu || (args.platform.is_none() && args.against.is_none()),
        "--platform and --against need --backend tpu"
    );
    let report = match (args.backend, args.dtype) {
        (Kind::Tpu, Dtype::F32) => on::<OnTpu<f32>, _>(args, tpu(args)?, begun),
        (Kind::Tpu, Dtype::Bf16) => on::<OnTpu<bf16>, _>(args, tpu(args)?, begun),
        (Kind::Ndarray, _) => on::<OnBurn<NdArray<f32>>, _>(args, Default::default(), begun),
        (Kind::Flex, _) => on::<OnBurn<Flex>, _>(args, Default::default(), begun),
    }?;
    print!("{report}");
    args.report.as_ref().map_or(Ok(()), |path| report.write(path))
}

/// Reads an option of the compiler from the command line.
fn flag(text: &str) -> Result<(String, String)> {
    let (name, value) = text.split_once('=').context("an option is NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

/// Starts the requested device and returns it.
fn tpu(args: &Args) -> Result<TpuDevice> {
    let device = match (args.platform, args.mesh.clone()) {
        (Some(platform), Some(mesh)) => TpuDevice::mesh(mesh.on(platform)),
        (None, Some(mesh)) => TpuDevice::mesh(mesh),
        (Some(platform), None) => TpuDevice::new(platform, 0),
        (None, None) => TpuDevice::default(),
    };
    if !args.flag.is_empty() {
        let options = TpuOptions::default();
        let with = |options: TpuOptions, (name, value): &(String, String)| options.compiler_flag(name, value);
        args.flag.iter().fold(options, with).install(&device)?;
    }
    Tpu::<f32>::sync(&device).with_context(|| format!("the device {device} cannot be used"))?;
    Ok(device)
}

fn on<T, B>(args: &Args, device: B::Device, begun: Instant) -> Result<Report>
where
    B: AutodiffBackend,
    T: Target<Backend = B, Device = B::Device> + Compiles<Mlp<B>> + Compiles<Cnn<B>> + Compiles<Gpt<B>>,
{
    let devices = args.mesh.as_ref().and_then(Mesh::size).unwrap_or(1);
    let load = |folder: &PathBuf| JaxStep::load(folder, &args.program_name(), args.platform(), devices);
    let jax = args.against.as_ref().map(load).transpose()?;
    B::seed(&device, 42);
    let run = Run { args, device: &device, jax, begun };
    let images = || (0..BATCHES).map(|step| Images::synthetic(BATCH, step, &device)).collect();
    let measured = match args.model {
        Model::Mlp => run.measure::<T, _, _>(Mlp::new(&device), adam(), 0.0, images()),
        Model::Cnn => run.measure::<T, _, _>(Cnn::new(&device), adam(), 0.0, images()),
        Model::Gpt => {
            let config = GptConfig::new();
            let batches = (0..BATCHES).map(|step| Tokens::synthetic(&config, step, &device)).collect();
            run.measure::<T, _, _>(config.init(&device), adamw(), 0.01, batches)
        }
    }?;
    Ok(args.report_of(measured, B::name(&device)))
}

/// What the runs of all models need.
struct Run<'r, D> {
    args: &'r Args,
    device: &'r D,
    jax: Option<JaxStep>,
    begun: Instant,
}

impl<D> Run<'_, D> {
    /// Trains a model, by this optimizer or by the compiled form of it.
    fn measure<T, M, O>(self, model: M, optimizer: O, decay: f32, batches: Vec<M::Batch>) -> Result<Measured>
    where
        T: Compiles<M, Device = D>,
        M: Supervised<T::Backend> + AutodiffModule<T::Backend> + 'static,
        O: Optimizer<M, T::Backend> + 'static,
        D: Clone + 'static,
    {
        let step = if self.args.compiled {
            let optimizer = DeviceAdamW::new().with_weight_decay(decay);
            T::compiled(model, optimizer, LEARNING_RATE).context("--compiled needs --backend tpu")?
        } else {
            recorded::<T, _, _>(model, optimizer, self.device)
        };
        measure::<T, _>(step, batches, self.args.steps, self.device, self.jax, self.begun)
    }
}

impl Args {
    fn platform(&self) -> Platform {
        self.platform.unwrap_or_else(|| TpuDevice::default().platform())
    }

    /// Returns the name of JAX's files, such as `gpt-f32`.
    fn program_name(&self) -> String {
        format!("{}-{}", value_name(self.model), value_name(self.dtype))
    }

    fn report_of(&self, measured: Measured, device: String) -> Report {
        Report { model: value_name(self.model), dtype: value_name(self.dtype), device, measured }
    }
}

/// Returns the name of a value on the command line.
fn value_name(value: impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}
