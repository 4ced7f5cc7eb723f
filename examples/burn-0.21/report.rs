//! What a run did: numbers for people, a JSON file for `cargo xtask idiomatic`.

use anyhow::{Context, Result};
use burn_tpu::Metrics;
use serde::Serialize;
use std::fmt;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tracing_subscriber::fmt::MakeWriter;

/// The JSON report. Other programs read these names: add names, never rename them.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    program: String,
    backend: String,
    steps: usize,
    /// From before the model is made to the end of the last step; includes compiling.
    wall_seconds: f64,
    /// The following counters are zero for other backends than burn-tpu.
    compiles: u64,
    compile_seconds: f64,
    interpreted: u64,
    executions: u64,
    /// Transfers to the device, with those of the weights at the start.
    uploads: u64,
    upload_bytes: u64,
    downloads: u64,
    host_fallbacks: u64,
    recompile_warnings: u64,
    peak_resident_bytes: u64,
    losses: Vec<f64>,
}

impl Report {
    /// Creates a report without the counters of burn-tpu.
    pub fn new(program: String, backend: &str, steps: usize, wall_seconds: f64, losses: Vec<f64>) -> Self {
        let peak_resident_bytes = peak_resident_bytes().unwrap_or_default();
        Self { program, backend: backend.into(), steps, wall_seconds, peak_resident_bytes, losses, ..Self::default() }
    }

    /// Adds the counters of burn-tpu, summed over the devices.
    pub fn with_metrics(self, metrics: &[Metrics], recompile_warnings: u64) -> Self {
        let sum = |counter: fn(&Metrics) -> u64| metrics.iter().map(counter).sum();
        Self {
            compiles: sum(|metrics| metrics.compiles),
            compile_seconds: metrics.iter().map(|metrics| metrics.compile_time().as_secs_f64()).sum(),
            interpreted: sum(|metrics| metrics.interpreted),
            executions: sum(|metrics| metrics.executions),
            uploads: sum(|metrics| metrics.uploads),
            upload_bytes: sum(|metrics| metrics.upload_bytes),
            downloads: sum(|metrics| metrics.downloads),
            host_fallbacks: sum(|metrics| metrics.host_fallbacks),
            recompile_warnings,
            ..self
        }
    }

    /// Writes the report as JSON.
    pub fn write(&self, path: &Path) -> Result<()> {
        let json = serde_json::to_string_pretty(self)?;
        std::fs::write(path, json + "\n").with_context(|| format!("cannot write the report to `{}`", path.display()))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { program, backend, steps, wall_seconds, .. } = self;
        let [first, last] = [self.losses.first(), self.losses.last()].map(|loss| loss.copied().unwrap_or(f64::NAN));
        writeln!(f, "{program} on {backend}: {steps} steps in {wall_seconds:.2} s, loss {first:.4} to {last:.4}")?;
        write!(f, "compiles {}, interpreted {}, ", self.compiles, self.interpreted)?;
        write!(f, "uploads a step {:.1}, ", self.uploads as f64 / *steps as f64)?;
        write!(f, "recompile warnings {}, ", self.recompile_warnings)?;
        write!(f, "peak memory {} MiB", self.peak_resident_bytes >> 20)
    }
}

/// Returns the process's peak resident memory, `None` where the kernel does not tell.
fn peak_resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib << 10)
}

/// Writes the log to stderr and counts the warnings that a program was compiled again.
#[derive(Clone, Default)]
pub struct WarningCounter(Arc<AtomicU64>);

impl WarningCounter {
    /// Returns the number of these warnings so far.
    pub fn recompiles(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

impl Write for WarningCounter {
    /// Each call gets a whole line.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if String::from_utf8_lossy(line).contains("a program was compiled again") {
            self.0.fetch_add(1, Relaxed);
        }
        io::stderr().write_all(line).map(|()| line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

impl<'a> MakeWriter<'a> for WarningCounter {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}
