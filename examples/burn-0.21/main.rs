//! Programs as people write them for eager Burn backends: `cargo run --release --example idiomatic -- --program text`.
//!
//! Each program is generic over `AutodiffBackend` and does not know burn-tpu: nothing ends a step, nothing wraps the
//! optimizer, and batches are built in whichever way is short to write. Only this file names backends and devices.
//! `cargo xtask idiomatic` runs all programs on two backends and compares them.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example prints its results")]

use anyhow::{Context, Result};
use burn::backend::Autodiff;
use burn::prelude::Backend;
use burn::tensor::backend::AutodiffBackend;
use burn_flex::{Flex, FlexDevice};
use burn_tpu::{Platform, Tpu, TpuDevice, TpuOptions};
use clap::{Parser, ValueEnum};
use programs::{Options, Program};
use report::{Report, WarningCounter};
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;
use tracing_subscriber::EnvFilter;

mod cart;
mod decoder;
mod dqn;
mod generate;
mod learner;
mod llama;
mod numbers;
mod programs;
mod recurrent;
mod regression;
mod report;
mod stack;
mod stacked;
mod text;
mod text_generation;
mod varying;
mod weights;

/// Seed of the weights, which burn-flex draws for both backends.
const SEED: u64 = 42;

/// Run a program that was written for an eager backend.
#[derive(Parser)]
struct Args {
    /// The program
    #[arg(long, value_enum)]
    program: Program,
    #[command(flatten)]
    options: Options,
    /// The backend, each inside `Autodiff`
    #[arg(long, value_enum, default_value_t = Kind::Tpu)]
    backend: Kind,
    /// Where `--backend tpu` runs
    #[arg(long, value_name = "tpu|cuda|cpu|ndarray", default_value = "cpu")]
    platform: Platform,
    /// Compile every program at once: none is interpreted first
    #[arg(long)]
    no_tiers: bool,
    /// Run the program this often, one after another, and print a line for each; the losses are those of all runs
    #[arg(long, value_name = "N", default_value_t = 1)]
    runs: usize,
    /// Load programs from the disk cache and store them there; without it, each run compiles all of its programs
    #[arg(long)]
    disk_cache: bool,
    /// Write the result to this file as JSON
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Kind {
    /// `Tpu<f32>`
    Tpu,
    /// burn-flex
    Flex,
}

fn main() -> ExitCode {
    // The backend reports compiles and their causes as warnings through `tracing`.
    let warnings = WarningCounter::default();
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(std::io::stderr().is_terminal());
    log.with_writer(warnings.clone()).init();
    match run(&Args::parse(), &warnings) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            error.chain().skip(1).for_each(|cause| eprintln!("  because: {cause}"));
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args, warnings: &WarningCounter) -> Result<()> {
    let (report, details) = match args.backend {
        Kind::Tpu => on_tpu(args, warnings)?,
        Kind::Flex => (on_flex(args), String::new()),
    };
    println!("{report}\n{details}");
    args.report.as_ref().map_or(Ok(()), |path| report.write(path))
}

fn on_tpu(args: &Args, warnings: &WarningCounter) -> Result<(Report, String)> {
    let count = args.options.devices(args.program) as u16;
    let devices: Vec<TpuDevice> = (0..count).map(|index| TpuDevice::new(args.platform, index)).collect();
    let options = TpuOptions::training().disk_cache(args.disk_cache);
    let options = if args.no_tiers { options.interpret_from(0) } else { options };
    let options = if count > 1 { options.cpu_devices(count) } else { options };
    for device in &devices {
        options.clone().install(device)?;
        Tpu::<f32>::sync(device).with_context(|| format!("the device {device} cannot be used"))?;
    }
    let device = devices[0];
    let begun = Instant::now();
    let compiles = || devices.iter().map(|device| device.metrics().compiles).sum();
    let losses = args.runs::<Autodiff<Tpu<f32>>>(&device, compiles);
    devices.iter().try_for_each(Tpu::<f32>::sync).context("the program's last ops")?;
    let seconds = begun.elapsed().as_secs_f64();
    let metrics: Vec<_> = devices.iter().map(|device| device.metrics()).collect();
    let details = devices.iter().zip(&metrics).map(|(device, metrics)| format!("\nmetrics of {device}\n{metrics}"));
    let details = details.collect();
    let steps = args.options.steps(args.program);
    let report = Report::new(args.program.name(), "tpu", steps, seconds, losses);
    Ok((report.with_metrics(&metrics, warnings.recompiles()), details))
}

impl Args {
    /// Runs the program as often as it is asked for. `compiles` returns the number of compiles so far.
    fn runs<B: AutodiffBackend>(&self, device: &B::Device, compiles: impl Fn() -> u64) -> Vec<f64> {
        let mut losses = Vec::new();
        for run in 0..self.runs {
            Flex::<f32>::seed(&FlexDevice, SEED);
            let (begun, before) = (Instant::now(), compiles());
            losses.extend(self.program.run::<B>(&Options { run, ..self.options }, device));
            if self.runs > 1 {
                let (seconds, compiles) = (begun.elapsed().as_secs_f64(), compiles() - before);
                let step_ms = 1e3 * seconds / self.options.steps(self.program) as f64;
                println!("run {run}: {seconds:.2} s, {step_ms:.2} ms a step, {compiles} compiles");
            }
        }
        losses
    }
}

fn on_flex(args: &Args) -> Report {
    let begun = Instant::now();
    let losses = args.runs::<Autodiff<Flex>>(&FlexDevice, || 0);
    let seconds = begun.elapsed().as_secs_f64();
    Report::new(args.program.name(), "flex", args.options.steps(args.program), seconds, losses)
}
