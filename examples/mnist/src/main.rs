//! MNIST through Burn's own Learner: `cargo run --release -p mnist -- --help`.
//!
//! Only this file names the backend; model, data and training are plain Burn.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example prints its results")]

use anyhow::{Context, Result};
use burn::backend::Autodiff;
use burn::optim::AdamConfig;
use burn::prelude::Backend;
use burn_tpu::{Mesh, Platform, Tpu, TpuDevice, TpuFloat, TpuOptimizer};
use clap::{Parser, ValueEnum};
use half::bf16;
use report::Report;
use std::path::PathBuf;
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;
use train::Outcome;

mod batch;
mod curve;
mod data;
mod model;
mod progress;
mod report;
mod resume;
mod step_timer;
mod train;

/// Train and test a digit classifier on the 60,000 / 10,000 images of MNIST.
#[derive(Parser)]
struct Args {
    #[command(flatten)]
    run: train::Options,
    /// Type of the weights and activations
    #[arg(long, value_enum, default_value_t = Dtype::Bf16)]
    dtype: Dtype,
    /// Where to run [default: BURN_TPU_PLATFORM, or the best platform present]
    #[arg(long, value_name = "tpu|cuda|cpu|ndarray|xla-rs")]
    platform: Option<Platform>,
    /// Many chips as one device, as `data=8` [default: BURN_TPU_MESH, or one chip]
    #[arg(long)]
    mesh: Option<Mesh>,
    /// Write the result to this file as JSON
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Draw the learning curve into this file as SVG
    #[arg(long, value_name = "FILE", default_value = "target/mnist.svg")]
    curve: PathBuf,
}

#[derive(Clone, Copy, ValueEnum)]
enum Dtype {
    Bf16,
    F32,
}

impl Dtype {
    fn name(self) -> &'static str {
        match self {
            Dtype::Bf16 => "bf16",
            Dtype::F32 => "f32",
        }
    }
}

fn main() -> ExitCode {
    // The backend logs warnings through `tracing`; RUST_LOG=burn_tpu=debug shows every cut, compile and execution.
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            error.chain().skip(1).for_each(|cause| eprintln!("  because: {cause}"));
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<()> {
    let device = match (args.platform, args.mesh.clone()) {
        (Some(platform), Some(mesh)) => TpuDevice::mesh(mesh.on(platform)),
        (None, Some(mesh)) => TpuDevice::mesh(mesh),
        (Some(platform), None) => TpuDevice::new(platform, 0),
        (None, None) => TpuDevice::default(),
    };
    // Naming a device does not start it. The first sync does, and its error says what is missing.
    Tpu::<f32>::sync(&device).with_context(|| format!("the device {device} cannot be used"))?;
    println!("{} in {} on {device}, {} epochs", args.run.model_name(), args.dtype.name(), args.run.epochs);
    let outcome = match args.dtype {
        Dtype::Bf16 => train::<bf16>(args, &device),
        Dtype::F32 => train::<f32>(args, &device),
    }?;
    outcome.print();
    outcome.curve.draw(&args.curve)?;
    println!("learning curve {}", args.curve.display());
    let metrics = burn_tpu::metrics(&device);
    println!("\nmetrics of {device}\n{metrics}");
    let report = Report {
        test_accuracy: outcome.accuracy(),
        train_loss: outcome.train_loss,
        steps: outcome.steps,
        images_per_second: outcome.images_per_second,
        compiles: metrics.compiles,
        cache_hits: metrics.cache_hits,
        host_fallbacks: metrics.host_fallbacks,
        platform: device.platform().name().to_owned(),
        dtype: args.dtype.name().to_owned(),
    };
    args.report.as_ref().map_or(Ok(()), |path| report.write(path))
}

/// Trains with Adam on f32 master weights, one program per training step.
fn train<F: TpuFloat>(args: &Args, device: &TpuDevice) -> Result<Outcome> {
    let optimizer = TpuOptimizer::new(AdamConfig::new().init());
    train::run::<Autodiff<Tpu<F>>, _>(&args.run, device, optimizer)
}
