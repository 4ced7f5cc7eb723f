//! Measures the cost of a training step: `cargo run --release --example step_time -- --model gpt --dtype f32 --steps 50`.
//!
//! The models are those of `src/models`; `--backend ndarray` and `--backend flex` run the same code on Burn's own backends.
//! `--against DIR` alternates with the same step written in JAX, exported by `benches/jax/step_time.py`.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example prints its results")]

use anyhow::{Context, Result, ensure};
use burn::prelude::Backend;
use burn_flex::Flex;
use burn_ndarray::NdArray;
use burn_tpu::{Mesh, Platform, Tpu, TpuDevice};
use burn_tpu_workspace::models::{Cnn, GptConfig, Images, Mlp, Tokens, adam, adamw};
use clap::{Parser, ValueEnum};
use half::bf16;
use jax::JaxStep;
use measure::{Measured, measure};
use report::Report;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;
use target::{OnBurn, OnTpu, Target};
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
    #[arg(long, value_name = "tpu|cuda|cpu|ndarray")]
    platform: Option<Platform>,
    /// Many chips as one device for `--backend tpu`, as `data=8` [default: BURN_TPU_MESH, or one chip]
    #[arg(long)]
    mesh: Option<Mesh>,
    /// Alternate with JAX's programs in this folder, on the CPU plugin
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
        (Kind::Tpu, Dtype::F32) => on::<OnTpu<f32>>(args, tpu(args)?, begun),
        (Kind::Tpu, Dtype::Bf16) => on::<OnTpu<bf16>>(args, tpu(args)?, begun),
        (Kind::Ndarray, _) => on::<OnBurn<NdArray<f32>>>(args, Default::default(), begun),
        (Kind::Flex, _) => on::<OnBurn<Flex>>(args, Default::default(), begun),
    }?;
    print!("{report}");
    args.report.as_ref().map_or(Ok(()), |path| report.write(path))
}

/// Starts the requested device and returns it.
fn tpu(args: &Args) -> Result<TpuDevice> {
    let device = match (args.platform, args.mesh.clone()) {
        (Some(platform), Some(mesh)) => TpuDevice::mesh(mesh.on(platform)),
        (None, Some(mesh)) => TpuDevice::mesh(mesh),
        (Some(platform), None) => TpuDevice::new(platform, 0),
        (None, None) => TpuDevice::default(),
    };
    Tpu::<f32>::sync(&device).with_context(|| format!("the device {device} cannot be used"))?;
    Ok(device)
}

fn on<T: Target>(args: &Args, device: T::Device, begun: Instant) -> Result<Report> {
    let devices = args.mesh.as_ref().and_then(Mesh::size).unwrap_or(1);
    let jax = args.against.as_ref().map(|folder| JaxStep::load(folder, &args.program_name(), devices)).transpose()?;
    <T::Backend as Backend>::seed(&device, 42);
    let images = || (0..BATCHES).map(|step| Images::synthetic(BATCH, step, &device)).collect();
    let measured = match args.model {
        Model::Mlp => measure::<T, _, _>(Mlp::new(&device), adam(), images(), args.steps, &device, jax, begun),
        Model::Cnn => measure::<T, _, _>(Cnn::new(&device), adam(), images(), args.steps, &device, jax, begun),
        Model::Gpt => {
            let config = GptConfig::new();
            let batches = (0..BATCHES).map(|step| Tokens::synthetic(&config, step, &device)).collect();
            measure::<T, _, _>(config.init(&device), adamw(), batches, args.steps, &device, jax, begun)
        }
    }?;
    Ok(args.report_of(measured, <T::Backend as Backend>::name(&device)))
}

impl Args {
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
