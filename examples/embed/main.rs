//! Sentence embeddings with the weights of MiniLM-L6: `cargo run --release --example embed -- --help`.
//!
//! The model is plain Burn (`src/models/bert.rs`); `weights` reads a PyTorch checkpoint into it, `text` divides lines into
//! tokens, `encoder` runs batches, and `search` ranks.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example prints its results")]

use anyhow::{Context, Result, ensure};
use burn::prelude::Backend;
use burn_tpu::{Platform, Tpu, TpuDevice, TpuFloat};
use clap::{Parser, Subcommand, ValueEnum};
use encoder::Encoder;
use half::bf16;
use report::{Report, write_vectors};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;
use text::{Line, Text};
use tracing_subscriber::EnvFilter;

mod encoder;
mod report;
mod search;
mod text;
mod weights;

/// Maps sentences to vectors whose products measure how alike the sentences are.
#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    command: Command,
    /// Type of the weights and activations
    #[arg(long, global = true, value_enum, default_value_t = Dtype::F32)]
    dtype: Dtype,
    /// Where to run [default: BURN_TPU_PLATFORM, or the best platform present]
    #[arg(long, global = true, value_name = "tpu|cuda|cpu|ndarray")]
    platform: Option<Platform>,
    /// The most sentences of a batch
    #[arg(long, global = true, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=4096))]
    batch: u16,
    /// Folder with config.json, model.safetensors and tokenizer.json [default: where `cargo xtask data minilm` puts them]
    #[arg(long, global = true, value_name = "DIR")]
    model: Option<PathBuf>,
    /// Write the counts of the run to this file as JSON
    #[arg(long, global = true, value_name = "FILE")]
    report: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Command {
    /// Write a JSON object for each line of a text: its number, text and vector
    Embed {
        /// The text; every line that is not empty is a sentence
        file: PathBuf,
        /// Where to write [default: standard output]
        #[arg(long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Print the lines of a text that are most like a query, with their scores
    Search {
        /// What to search for
        query: String,
        /// The text; every line that is not empty is a sentence
        file: PathBuf,
        /// The number of lines to print
        #[arg(long, default_value_t = 5)]
        top: usize,
    },
}

#[derive(Clone, Copy, ValueEnum)]
enum Dtype {
    Bf16,
    F32,
}

fn main() -> ExitCode {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let args = Args::parse();
    let result = match args.dtype {
        Dtype::Bf16 => run::<bf16>(&args),
        Dtype::F32 => run::<f32>(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            error.chain().skip(1).for_each(|cause| eprintln!("  because: {cause}"));
            ExitCode::FAILURE
        }
    }
}

fn run<F: TpuFloat>(args: &Args) -> Result<()> {
    let (query, file) = match &args.command {
        Command::Embed { file, .. } => (None, file),
        Command::Search { query, file, .. } => (Some(query.as_str()), file),
    };
    if let Some(query) = query {
        ensure!(!query.trim().is_empty(), "the query is empty");
    }
    let lines = text::lines(file)?;
    let vectors = vectors::<F>(args, &lines, query)?;
    match &args.command {
        Command::Embed { output, .. } => write_vectors(&lines, &vectors, output.as_deref()),
        Command::Search { top, .. } => {
            let (query, rest) = vectors.split_last().context("the query has a vector")?;
            search::print(&lines, &search::ranked(query, rest, *top));
            Ok(())
        }
    }
}

/// Returns the vectors of the lines; that of the query, if there is one, is the last.
fn vectors<F: TpuFloat>(args: &Args, lines: &[Line], query: Option<&str>) -> Result<Vec<Vec<f32>>> {
    let folder = model_folder(args.model.as_deref())?;
    let config = weights::config(&folder)?;
    let context = weights::context(&folder, &config)?;
    let text = Text::load(&folder, context)?;
    let tokens = text.tokens(lines.iter().map(|line| line.text.as_str()))?;
    let query = text.tokens(query.into_iter())?;
    let device = args.platform.map_or_else(TpuDevice::default, |platform| TpuDevice::new(platform, 0));
    Tpu::<F>::sync(&device).with_context(|| format!("the device {device} cannot be used"))?;

    let model = weights::load::<Tpu<F>>(&folder, &config, &device)?;
    let encoder = Encoder::new(model, context, args.batch.into(), device)?;
    let (batches, alone) = (encoder.plan(&tokens)?, encoder.plan(&query)?);
    let begun = Instant::now();
    let shapes = encoder.warm_up(&[batches.as_slice(), &alone].concat())?;
    let (warm, warm_seconds) = (device.metrics(), begun.elapsed().as_secs_f64());
    // From here on a compile is an error, not a slow request.
    device.freeze();

    let begun = Instant::now();
    let mut vectors = encoder.embed(&tokens, &batches)?;
    let seconds = begun.elapsed().as_secs_f64();
    vectors.extend(encoder.embed(&query, &alone)?);
    if let Some(note) = text.note(&[tokens.as_slice(), &query].concat()) {
        eprintln!("note: {note}");
    }
    let report = Report::new(&tokens, shapes, warm_seconds, seconds, &warm, &device);
    report.print();
    args.report.as_ref().map_or(Ok(()), |path| report.write(path))?;
    Ok(vectors)
}

/// Returns the folder of the checkpoint.
fn model_folder(given: Option<&Path>) -> Result<PathBuf> {
    if let Some(folder) = given {
        return Ok(folder.to_owned());
    }
    let cached = burn_tpu_pjrt::discovery::cache_dir().map(|cache| cache.join("minilm"));
    let folder = cached.context("no folder for the model: pass one with `--model DIR`, or set BURN_TPU_CACHE_DIR")?;
    ensure!(
        folder.is_dir(),
        "the model's folder `{}` is missing; `cargo xtask data minilm` downloads it, `--model DIR` selects another one",
        folder.display()
    );
    Ok(folder)
}
