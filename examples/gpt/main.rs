//! A GPT that trains on text and writes: `cargo run --release --example gpt -- train --help`.
//!
//! Only this file, `train` and `generate` name the backend; the model is plain Burn.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example prints its results")]

use anyhow::{Context, Result};
use burn::prelude::Backend;
use burn_tpu::{AutocastBackend, Platform, Tpu, TpuDevice, autocast};
use clap::{Parser, Subcommand, ValueEnum};
use half::bf16;
use model::Gpt;
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;

mod batches;
mod checkpoints;
mod generate;
mod jax;
mod model;
mod optimizer;
mod parity;
mod report;
mod sample;
mod saved;
mod stream;
mod text;
mod timing;
mod tokenizer;
mod train;

/// Train a GPT on text, and let it write.
#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    command: Command,
    /// Type of the weights and activations. bf16 trains with f32 master weights, autocast computes f32 weights in bf16
    #[arg(long, value_enum, default_value_t = Dtype::Bf16, global = true)]
    dtype: Dtype,
    /// Where to run [default: BURN_TPU_PLATFORM, or the best platform present]
    #[arg(long, value_name = "tpu|cuda|cpu|ndarray", global = true)]
    platform: Option<Platform>,
}

#[derive(Subcommand)]
enum Command {
    /// Train a model on text
    Train(Box<train::Options>),
    /// Write texts that begin with prompts
    Generate(generate::Options),
}

#[derive(Clone, Copy, ValueEnum)]
enum Dtype {
    Bf16,
    F32,
    Autocast,
}

impl Dtype {
    /// Returns the model that computes: the model itself, or its weights in bf16.
    fn computed<B: AutocastBackend>(self, model: &Gpt<B>) -> Gpt<B> {
        if matches!(self, Self::Autocast) { autocast(model) } else { model.clone() }
    }

    /// Returns its name on the command line.
    fn name(self) -> &'static str {
        match self {
            Self::Bf16 => "bf16",
            Self::F32 => "f32",
            Self::Autocast => "autocast",
        }
    }
}

fn main() -> ExitCode {
    // The backend logs warnings through `tracing`; RUST_LOG=burn_tpu=debug shows every cut, compile and execution.
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    match run(&Args::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error}");
            error.chain().skip(1).for_each(|cause| eprintln!("  because: {cause}"));
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<ExitCode> {
    let device = args.platform.map_or_else(TpuDevice::default, |platform| TpuDevice::new(platform, 0));
    // Naming a device does not start it. The first sync does, and its error says what is missing.
    Tpu::<f32>::sync(&device).with_context(|| format!("the device {device} cannot be used"))?;
    match (&args.command, args.dtype) {
        (Command::Train(options), Dtype::Bf16) => train::run::<bf16>(options, args.dtype, &device),
        (Command::Train(options), Dtype::F32 | Dtype::Autocast) => train::run::<f32>(options, args.dtype, &device),
        (Command::Generate(options), Dtype::Bf16) => {
            generate::run::<bf16>(options, args.dtype, &device).map(|()| ExitCode::SUCCESS)
        }
        (Command::Generate(options), Dtype::F32 | Dtype::Autocast) => {
            generate::run::<f32>(options, args.dtype, &device).map(|()| ExitCode::SUCCESS)
        }
    }
}
