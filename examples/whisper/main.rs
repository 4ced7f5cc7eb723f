//! Speech to text with Whisper: `cargo run --release --example whisper -- FILE.wav`.
//!
//! The model is plain Burn (`model`), generic over the backend: `--backend flex` runs the same code on burn-flex. `mel`
//! makes spectrograms, `ct2` reads CTranslate2's file of weights, `weights` makes the model of it, `transcribe` chooses tokens.
//! `docs/models.md` has the commands.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example prints its results")]

use anyhow::{Context, Result, ensure};
use burn::prelude::Backend;
use burn_flex::{Flex, FlexDevice};
use burn_tpu::{Platform, Tpu, TpuDevice, TpuOptions};
use clap::{Parser, ValueEnum};
use mel::RATE;
use reference::Reference;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use tracing_subscriber::EnvFilter;
use transcribe::{Transcriber, Transcript};

mod audio;
mod ct2;
mod mel;
mod model;
mod reference;
#[cfg(test)]
mod tests;
mod transcribe;
mod weights;

/// Writes what is said in WAV files.
#[derive(Parser)]
struct Args {
    /// WAV files of at most 30 seconds, 16,000 samples a second
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The backend
    #[arg(long, value_enum, default_value_t = Kind::Tpu)]
    backend: Kind,
    /// Where `--backend tpu` runs [default: BURN_TPU_PLATFORM, or the best platform present]
    #[arg(long, value_name = "tpu|cuda|cpu|ndarray")]
    platform: Option<Platform>,
    /// Folder with model.bin, config.json and tokenizer.json [default: where `cargo xtask data whisper` puts them]
    #[arg(long, value_name = "DIR")]
    model: Option<PathBuf>,
    /// Compare with what CTranslate2 computes, from the folder that `reference.py` wrote
    #[arg(long, value_name = "DIR")]
    reference: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Kind {
    /// `Tpu<f32>`
    Tpu,
    /// burn-flex
    Flex,
}

fn main() -> ExitCode {
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
    match args.backend {
        Kind::Flex => transcribe_all::<Flex>(args, &FlexDevice, || 0),
        Kind::Tpu => {
            let device = args.platform.map_or_else(TpuDevice::default, |platform| TpuDevice::new(platform, 0));
            // Every program is one that comes again.
            TpuOptions::inference().install(&device)?;
            Tpu::<f32>::sync(&device).with_context(|| format!("the device {device} cannot be used"))?;
            let programs = || {
                let metrics = device.metrics();
                metrics.compiles + metrics.disk_hits
            };
            transcribe_all::<Tpu<f32>>(args, &device, programs)
        }
    }
}

/// Transcribes the files, one after another. `programs` returns how many the backend has compiled or loaded so far.
fn transcribe_all<B: Backend>(args: &Args, device: &B::Device, programs: impl Fn() -> u64) -> Result<()> {
    let transcriber = Transcriber::<B>::load(&model_folder(args.model.as_deref())?, device)?;
    let reference = args.reference.as_deref().map(Reference::open).transpose()?;
    for path in &args.files {
        let sound = audio::read(path)?;
        let (known, processor) = (programs(), processor_seconds());
        let transcript = transcriber.transcribe(&sound)?;
        println!("{}", transcript.text);
        let processor = processor_seconds() - processor;
        let new = programs() - known;
        eprintln!("  {}; processor {processor:.2} s, {new} new programs", times(&sound, &transcript));
        if let Some(reference) = &reference {
            eprintln!("  {}", reference.compare(path, &transcriber, &sound, &transcript.ids)?);
        }
    }
    Ok(())
}

/// Describes how long a transcription took.
fn times(sound: &[f32], transcript: &Transcript) -> String {
    let Transcript { ids, encoding, decoding, .. } = transcript;
    let sound = Duration::from_secs_f64(sound.len() as f64 / RATE as f64);
    let all = *encoding + *decoding;
    let milliseconds = |time: Duration| 1e3 * time.as_secs_f64();
    format!(
        "{:.2} s of sound in {:.2} s, {:.3} of real time: encoder {:.0} ms, {} tokens, {:.1} ms each",
        sound.as_secs_f64(),
        all.as_secs_f64(),
        all.as_secs_f64() / sound.as_secs_f64(),
        milliseconds(*encoding),
        // The last one is the end of the text.
        ids.len() + 1,
        milliseconds(*decoding) / (ids.len() + 1) as f64
    )
}

/// Returns the processor time of this process so far; 0 where `/proc` is not there.
fn processor_seconds() -> f64 {
    const TICKS: f64 = 100.0;
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(") ").next().unwrap_or_default().split(' ');
    fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / TICKS
}

/// Returns the folder of the model.
fn model_folder(given: Option<&Path>) -> Result<PathBuf> {
    if let Some(folder) = given {
        return Ok(folder.to_owned());
    }
    let cached = burn_tpu_pjrt::discovery::cache_dir().map(|cache| cache.join("whisper"));
    let folder = cached.context("no folder for the model: pass one with `--model DIR`, or set BURN_TPU_CACHE_DIR")?;
    ensure!(
        folder.is_dir(),
        "the model's folder `{}` is missing; `cargo xtask data whisper` downloads it, `--model DIR` selects another one",
        folder.display()
    );
    Ok(folder)
}
