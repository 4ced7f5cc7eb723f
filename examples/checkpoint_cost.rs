//! Measures what a checkpoint costs: `cargo run --release --example checkpoint_cost -- --help`.
//!
//! `--python PYTHON` alternates with the Python package `safetensors` and with Orbax on the same tensors and the same disk.
#![allow(clippy::print_stdout, reason = "an example prints its results")]

use anyhow::{Context, Result, ensure};
use burn::backend::Autodiff;
use burn::optim::AdamW;
use burn::prelude::*;
use burn_tpu::{Platform, Tpu, TpuDevice, TpuOptimizer};
use burn_tpu_train::{Checkpoint, Checkpointer};
use burn_tpu_workspace::models::{Gpt, GptConfig, Tokens, adamw, train_step};
use clap::{Parser, ValueEnum};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// Measure the pause of a save, the memory, the bytes on the disk, and the seconds of a save and a load.
#[derive(Parser)]
struct Args {
    /// The model
    #[arg(long, value_enum, default_value_t = Size::Small)]
    size: Size,
    /// Checkpoints whose pause is measured
    #[arg(long, default_value_t = 50)]
    saves: usize,
    /// Whole saves and loads that are timed
    #[arg(long, default_value_t = 3)]
    turns: usize,
    /// Where to save [default: a new folder in the current one]
    #[arg(long)]
    folder: Option<PathBuf>,
    /// A Python with `numpy safetensors jax orbax-checkpoint`, to take turns with
    #[arg(long)]
    python: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Size {
    /// 1 layer of width 64, for many saves
    Tiny,
    /// 4 layers of width 256: 3.3 million parameters
    Small,
    /// 12 layers of width 768: 124 million parameters
    #[value(name = "124m")]
    Large,
}

type B = Autodiff<Tpu<f32>>;

/// Steps that compile.
const WARM_UP: usize = 3;

impl Size {
    fn config(self) -> GptConfig {
        match self {
            Size::Tiny => {
                let config = GptConfig::new().with_layers(1).with_width(64).with_heads(2).with_feed_forward(128);
                config.with_sequence(16).with_batch(2)
            }
            Size::Small => GptConfig::new(),
            // The head is a matrix of its own here, so half the vocabulary of GPT-2 gives its number of parameters.
            Size::Large => GptConfig::new()
                .with_layers(12)
                .with_width(768)
                .with_heads(12)
                .with_feed_forward(3072)
                .with_vocabulary(25_128)
                .with_batch(1),
        }
    }
}

/// A training run.
struct Run {
    device: TpuDevice,
    config: GptConfig,
    model: Gpt<B>,
    optimizer: TpuOptimizer<AdamW, Gpt<B>, B>,
    step: u64,
}

impl Run {
    fn new(config: GptConfig, device: TpuDevice) -> Self {
        let (model, optimizer) = (config.init(&device), TpuOptimizer::new(adamw()));
        Self { device, config, model, optimizer, step: 0 }
    }

    /// Takes a step and waits for it. Returns its milliseconds.
    fn step(&mut self) -> Result<f64> {
        let batch = Tokens::synthetic(&self.config, self.step as usize, &self.device);
        let begun = Instant::now();
        let (model, _) = train_step(self.model.clone(), &mut self.optimizer, 1e-3, batch);
        self.model = model;
        self.step += 1;
        self.device.sync()?;
        Ok(milliseconds(begun))
    }

    fn checkpoint(&self) -> Checkpoint {
        let checkpoint = Checkpoint::new(self.step).model("model", &self.model).random(&self.device);
        checkpoint.optimizer("optimizer", &self.optimizer, &self.model)
    }
}

fn main() -> Result<()> {
    let args = Args::parse();
    ensure!(args.saves > 0 && args.turns > 0, "--saves and --turns must be at least 1");
    let device = TpuDevice::new(Platform::Cpu, 0);
    let mut run = Run::new(args.size.config(), device);
    (0..WARM_UP).try_for_each(|_| run.step().map(drop))?;
    let parent = args.folder.clone().map_or_else(std::env::current_dir, Ok)?;
    std::fs::create_dir_all(&parent)?;
    let folder = tempfile::tempdir_in(parent)?;
    let mut checkpoints = Checkpointer::open(folder.path())?.keep_last(1);
    println!("model      {} parameters in f32 on {device}", run.model.num_params());
    pauses(&mut run, &mut checkpoints, args.saves)?;
    turns(&mut run, &mut checkpoints, &args)?;
    Ok(())
}

/// Measures saves while steps run: the call, the step after it, and the memory.
fn pauses(run: &mut Run, checkpoints: &mut Checkpointer, saves: usize) -> Result<()> {
    let (mut alone, mut calls, mut after, mut memory) = (vec![], vec![], vec![], vec![]);
    let programs = run.device.metrics().compiles;
    for _ in 0..saves {
        alone.push(run.step()?);
        let begun = Instant::now();
        checkpoints.save(run.checkpoint())?;
        calls.push(milliseconds(begun));
        after.push(run.step()?);
        checkpoints.wait()?;
        memory.push(resident_mb()?);
    }
    ensure!(run.device.metrics().compiles == programs, "a save compiled a program");
    let (early, late) = memory.split_at(memory.len() / 2);
    println!("step       {} without a save", spread(&mut alone));
    println!("save       {} until the call returns", spread(&mut calls));
    println!("step       {} while the checkpoint is written", spread(&mut after));
    println!(
        "memory     {:.0} MB at most in the first half of {saves} saves, {:.0} MB in the second",
        most(early),
        most(late)
    );
    Ok(())
}

/// Times whole saves and loads, in turns with Python.
fn turns(run: &mut Run, checkpoints: &mut Checkpointer, args: &Args) -> Result<()> {
    for turn in 1..=args.turns {
        run.step()?;
        let begun = Instant::now();
        checkpoints.save(run.checkpoint())?;
        let blocked = begun.elapsed().as_secs_f64();
        checkpoints.wait()?;
        let saved = begun.elapsed().as_secs_f64();
        let path = checkpoints.folder().join(format!("step-{:08}", run.step));
        if turn == 1 {
            sizes(&path)?;
        }
        println!(
            "turn {turn}     burn-tpu-train: save {saved:.2} s (blocked {blocked:.3} s), load {:.2} s",
            load(run, checkpoints)?
        );
        for library in args.python.iter().flat_map(|_| ["safetensors", "orbax"]) {
            let Measured { save_s, blocked_s, load_s } = python(args, library, &path, checkpoints.folder())?;
            println!("           {library}: save {save_s:.2} s (blocked {blocked_s:.3} s), load {load_s:.2} s");
        }
    }
    Ok(())
}

/// Returns the seconds in which the newest checkpoint is loaded into a new model and optimizer.
fn load(run: &Run, checkpoints: &Checkpointer) -> Result<f64> {
    let fresh = Run::new(run.config.clone(), run.device);
    fresh.model.num_params();
    run.device.sync()?;
    let begun = Instant::now();
    let saved = checkpoints.restore()?.context("a checkpoint was saved")?;
    let model = saved.model("model", fresh.model)?;
    let _optimizer = saved.optimizer("optimizer", fresh.optimizer, &model)?;
    saved.random(&run.device)?;
    drop(saved);
    run.device.sync()?;
    Ok(begun.elapsed().as_secs_f64())
}

/// Prints the bytes of a checkpoint and of its tensors.
fn sizes(path: &Path) -> Result<()> {
    let (mut files, mut tensors) = (0, 0);
    for entry in std::fs::read_dir(path)? {
        let bytes = std::fs::read(entry?.path())?;
        files += bytes.len();
        tensors += safetensors::SafeTensors::read_metadata(&bytes).map_or(0, |(_, metadata)| metadata.data_len());
    }
    let share = 100.0 * (files as f64 / tensors as f64 - 1.0);
    println!("disk       {files} bytes, {share:.3} % more than the tensors' {tensors}");
    Ok(())
}

/// What `benches/jax/checkpoint.py` prints.
#[derive(Deserialize)]
struct Measured {
    save_s: f64,
    blocked_s: f64,
    load_s: f64,
}

fn python(args: &Args, library: &str, checkpoint: &Path, folder: &Path) -> Result<Measured> {
    let python = args.python.as_ref().context("no Python was named")?;
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/jax/checkpoint.py");
    let scratch = folder.with_extension("python");
    let output = Command::new(python).args([script, library]).arg(checkpoint).arg(scratch).output()?;
    ensure!(output.status.success(), "{library}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn milliseconds(begun: Instant) -> f64 {
    1e3 * begun.elapsed().as_secs_f64()
}

/// Returns the median, and the range of the middle half, in milliseconds.
fn spread(times: &mut [f64]) -> String {
    times.sort_by(f64::total_cmp);
    let at = |share: f64| times[((times.len() - 1) as f64 * share).round() as usize];
    format!("{:.2} ms (median of {}; {:.2} to {:.2})", at(0.5), times.len(), at(0.25), at(0.75))
}

fn most(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, f64::max)
}

/// Returns the memory of the process now.
fn resident_mb() -> Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("/proc has no VmRSS")?;
    let kib: f64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kib / 1024.0)
}
