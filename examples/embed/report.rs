//! What a run writes: vectors as JSON lines, and its counts.

use crate::text::{Line, Tokens};
use anyhow::{Context, Result};
use burn_tpu::{Metrics, TpuDevice};
use serde::Serialize;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// One line of the output of `embed`.
#[derive(Serialize)]
struct Row<'a> {
    line: usize,
    text: &'a str,
    embedding: &'a [f32],
}

/// Writes a JSON object for each line, to standard output if no file is named.
pub fn write_vectors(lines: &[Line], vectors: &[Vec<f32>], path: Option<&Path>) -> Result<()> {
    let rows = lines.iter().zip(vectors);
    let rows = rows.map(|(line, vector)| Row { line: line.number, text: &line.text, embedding: vector });
    match path {
        None => write_rows(rows, io::stdout().lock()).context("cannot write to standard output"),
        Some(path) => {
            let written = File::create(path).and_then(|file| write_rows(rows, file));
            written.with_context(|| format!("cannot write the vectors to `{}`", path.display()))
        }
    }
}

fn write_rows<'a>(rows: impl Iterator<Item = Row<'a>>, to: impl Write) -> io::Result<()> {
    let mut to = BufWriter::new(to);
    for row in rows {
        serde_json::to_writer(&mut to, &row)?;
        to.write_all(b"\n")?;
    }
    to.flush()
}

/// The JSON report. Other programs read these names: add names, never rename them.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Lines of the text.
    pub sentences: usize,
    /// Tokens in them.
    pub tokens: usize,
    /// Lines whose end was cut off.
    pub truncated: usize,
    /// Shapes of batches.
    pub shapes: usize,
    /// Programs compiled, or loaded from disk, before the first sentence.
    pub warm_up_compiles: u64,
    /// The same after that: the device is frozen, so it is 0.
    pub later_compiles: u64,
    /// Seconds until the device was warm.
    pub warm_up_seconds: f64,
    /// Sentences a second after that, without reading files and dividing lines into tokens.
    pub sentences_per_second: f64,
    /// The device of the run.
    pub device: String,
}

impl Report {
    /// Creates the report of a run; `warm` are the device's counts after its warm-up.
    pub fn new(
        tokens: &[Tokens],
        shapes: usize,
        warm_up_seconds: f64,
        seconds: f64,
        warm: &Metrics,
        device: &TpuDevice,
    ) -> Self {
        let programs = |metrics: &Metrics| metrics.compiles + metrics.disk_hits;
        Self {
            sentences: tokens.len(),
            tokens: tokens.iter().map(|tokens| tokens.ids.len()).sum(),
            truncated: tokens.iter().filter(|tokens| tokens.truncated).count(),
            shapes,
            warm_up_compiles: programs(warm),
            later_compiles: programs(&device.metrics()) - programs(warm),
            warm_up_seconds,
            sentences_per_second: tokens.len() as f64 / seconds,
            device: device.to_string(),
        }
    }

    /// Prints the report in two lines, beside the results.
    pub fn print(&self) {
        eprintln!(
            "{}: {} shapes of batches, {} programs compiled or loaded in {:.1} s, {} after that",
            self.device, self.shapes, self.warm_up_compiles, self.warm_up_seconds, self.later_compiles
        );
        eprintln!("{} sentences, {} tokens, {:.0} sentences/s", self.sentences, self.tokens, self.sentences_per_second);
    }

    /// Writes the report as JSON.
    pub fn write(&self, path: &Path) -> Result<()> {
        let json = serde_json::to_string_pretty(self)?;
        std::fs::write(path, json + "\n").with_context(|| format!("cannot write the report to `{}`", path.display()))
    }
}
