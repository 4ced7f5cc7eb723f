//! `examples/embed` beside candle's BERT: the same checkpoint, the same sentences, one process, in turns.
//!
//!     cargo xtask setup cpu && cargo xtask data minilm
//!     cd benches/candle && cargo run --release -- TEXT
//!
//! The code that runs on burn-tpu is the example's own. Reading files and dividing text into tokens is not measured; making
//! tensors, the model, mean pooling, normalising and reading the vectors are. Each side batches in its best way: both
//! sort sentences by length; candle pads a batch to its longest sentence, burn-tpu to a bucket.

use anyhow::{Context, Result, ensure};
use burn_tpu::{Tpu, TpuDevice, TpuFloat};
use clap::{Parser, ValueEnum};
use encoder::Encoder;
use peer::Peer;
use std::path::{Path, PathBuf};
use std::time::Instant;
use text::{Text, Tokens};

#[path = "../../../examples/embed/encoder.rs"]
mod encoder;
mod peer;
#[allow(dead_code, reason = "notes are for people")]
#[path = "../../../examples/embed/text.rs"]
mod text;
#[path = "../../../examples/embed/weights.rs"]
mod weights;

/// Compares burn-tpu with candle (f32) on the lines of a text.
#[derive(Parser)]
struct Args {
    /// The text; every line that is not empty is a sentence
    text: PathBuf,
    /// Type of burn-tpu's weights and activations; with bf16, speeds are not compared
    #[arg(long, value_enum, default_value_t = Dtype::F32)]
    dtype: Dtype,
    /// Sizes of batches
    #[arg(long, value_delimiter = ',', default_value = "1,8,64")]
    batches: Vec<usize>,
    /// The most sentences of a turn
    #[arg(long, default_value_t = 256)]
    sentences: usize,
    /// Turns of each side
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Folder of the checkpoint [default: where `cargo xtask data minilm` puts it]
    #[arg(long)]
    model: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Dtype {
    Bf16,
    F32,
}

/// What both sides embed.
struct Sentences {
    folder: PathBuf,
    context: usize,
    tokens: Vec<Tokens>,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let cached = || burn_tpu_pjrt::discovery::cache_dir().map(|cache| cache.join("minilm"));
    let folder = args.model.clone().or_else(cached).context("no folder for the model: pass `--model DIR`")?;
    let sentences = Sentences::read(&folder, &args.text, args.sentences)?;
    let peer = Peer::load(&folder)?;
    match args.dtype {
        Dtype::F32 => {
            compare::<f32>(&args, &sentences, &peer)?;
            args.batches.iter().try_for_each(|&batch| race(batch, args.rounds, &sentences, &peer))
        }
        Dtype::Bf16 => compare::<half::bf16>(&args, &sentences, &peer),
    }
}

impl Sentences {
    fn read(folder: &Path, text: &Path, most: usize) -> Result<Self> {
        let config = weights::config(folder)?;
        let context = weights::context(folder, &config)?;
        let mut lines = text::lines(text)?;
        lines.truncate(most);
        let tokens = Text::load(folder, context)?.tokens(lines.iter().map(|line| line.text.as_str()))?;
        let count: usize = tokens.iter().map(|tokens| tokens.ids.len()).sum();
        println!("{} sentences, {:.1} tokens each", tokens.len(), count as f64 / tokens.len() as f64);
        Ok(Self { folder: folder.to_owned(), context, tokens })
    }

    fn encoder<F: TpuFloat>(&self, batch: usize) -> Result<Encoder<F>> {
        let (config, device) = (weights::config(&self.folder)?, TpuDevice::cpu(0));
        Encoder::new(weights::load::<Tpu<F>>(&self.folder, &config, &device)?, self.context, batch, device)
    }
}

/// Prints the largest difference of a component and the least cosine of a sentence.
fn compare<F: TpuFloat>(args: &Args, sentences: &Sentences, peer: &Peer) -> Result<()> {
    let batch = args.batches.iter().copied().max().context("no size of batches")?;
    let encoder = sentences.encoder::<F>(batch)?;
    let ours = encoder.embed(&sentences.tokens, &encoder.plan(&sentences.tokens)?)?;
    let theirs = peer.embed(&sentences.tokens, batch)?;
    let pairs = || ours.iter().zip(&theirs);
    let differences = pairs().flat_map(|(a, b)| a.iter().zip(b).map(|(a, b)| (a - b).abs()));
    let cosines = pairs().map(|(a, b)| cosine(a, b));
    println!(
        "largest difference of a component {:.2e}, least cosine {:.6}",
        differences.fold(0.0, f32::max),
        cosines.fold(1.0, f64::min)
    );
    Ok(())
}

fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let product = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    product(a, b) / (product(a, a) * product(b, b)).sqrt()
}

/// Embeds all sentences in turns, and prints sentences a second.
fn race(batch: usize, rounds: usize, sentences: &Sentences, peer: &Peer) -> Result<()> {
    let tokens = &sentences.tokens;
    let encoder = sentences.encoder::<f32>(batch)?;
    let plan = encoder.plan(tokens)?;
    encoder.warm_up(&plan)?;
    ensure!(!encoder.embed(tokens, &plan)?.is_empty() && !peer.embed(tokens, batch)?.is_empty(), "no sentences");
    let device = TpuDevice::cpu(0);
    let warm = device.metrics();
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        ours.push(speed(tokens.len(), || encoder.embed(tokens, &plan))?);
        theirs.push(speed(tokens.len(), || peer.embed(tokens, batch))?);
    }
    let mut ratios: Vec<_> = ours.iter().zip(&theirs).map(|(ours, theirs)| ours / theirs).collect();
    let (ours, theirs, ratio) = (spread(&mut ours), spread(&mut theirs), spread(&mut ratios));
    let compiles = device.metrics().compiles - warm.compiles;
    println!(
        "batch {batch:>3}: burn-tpu {} sentences/s, candle {}, ratio {}; {compiles} compiles",
        shown(ours, 0),
        shown(theirs, 0),
        shown(ratio, 2)
    );
    Ok(())
}

fn speed<T>(sentences: usize, work: impl FnOnce() -> Result<T>) -> Result<f64> {
    let begun = Instant::now();
    work()?;
    Ok(sentences as f64 / begun.elapsed().as_secs_f64())
}

/// Returns the median, the least and the largest.
fn spread(values: &mut [f64]) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [values[values.len() / 2], values[0], values[values.len() - 1]]
}

fn shown([median, least, most]: [f64; 3], digits: usize) -> String {
    format!("{median:.digits$} ({least:.digits$} to {most:.digits$})")
}
