//! One run of the example: a process with a time limit, and the report that it writes.

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The interval at which a run is looked at.
const POLL: Duration = Duration::from_millis(20);

/// The lines of stderr that are shown of a failed run.
const SHOWN_LINES: usize = 5;

/// How a run ended.
pub enum Outcome {
    /// With a report.
    Finished(Report),
    /// It was killed at this time limit.
    Killed(Duration),
    /// With an error.
    Failed {
        /// The status of the process.
        status: ExitStatus,
        /// The last lines that it wrote.
        stderr: String,
    },
}

/// The fields of `examples/burn-0.21/report.rs` that these files read.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Report {
    /// Training steps, or tokens.
    pub steps: usize,
    /// The time of the whole run, with compiling.
    pub wall_seconds: f64,
    /// Programs compiled.
    pub compiles: u64,
    /// Programs run in the interpreter.
    pub interpreted: u64,
    /// Transfers to the device, with those of the weights.
    pub uploads: u64,
    /// Warnings that a program was compiled again.
    pub recompile_warnings: u64,
    /// The peak of the process's resident memory.
    pub peak_resident_bytes: u64,
    /// The loss of each step that read it.
    pub losses: Vec<f64>,
}

/// Runs the example to its end, or until the time limit.
pub fn run(example: &Path, backend: &str, options: &[String], limit: Duration) -> Result<Outcome> {
    let folder = tempfile::tempdir().context("cannot create a temporary folder")?;
    let [report, log] = ["report.json", "stderr.txt"].map(|name| folder.path().join(name));
    let mut command = Command::new(example);
    command.args(options).args(["--backend", backend]).arg("--report").arg(&report);
    command.env("BURN_TPU_FALLBACK", "deny").stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(File::create(&log).context("cannot create a file for the log")?);
    let child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
    match wait(child, limit)? {
        None => Ok(Outcome::Killed(limit)),
        Some(status) if status.success() => Ok(Outcome::Finished(Report::read(&report)?)),
        Some(status) => Ok(Outcome::Failed { status, stderr: end_of(&log) }),
    }
}

/// Waits for the process; returns `None` if it was killed at the limit.
fn wait(mut child: Child, limit: Duration) -> Result<Option<ExitStatus>> {
    let begun = Instant::now();
    while begun.elapsed() < limit {
        if let Some(status) = child.try_wait().context("cannot wait for the example")? {
            return Ok(Some(status));
        }
        std::thread::sleep(POLL);
    }
    child.kill().context("cannot kill the example")?;
    child.wait().context("cannot wait for the example")?;
    Ok(None)
}

fn end_of(log: &Path) -> String {
    let text = std::fs::read(log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(SHOWN_LINES)..].join("\n")
}

impl Outcome {
    /// Returns the report of a finished run.
    pub fn finished(&self) -> Option<&Report> {
        match self {
            Outcome::Finished(report) => Some(report),
            _ => None,
        }
    }

    /// Returns the report, or an error that says how the run ended.
    pub fn report(self) -> Result<Report> {
        match self {
            Outcome::Finished(report) => Ok(report),
            Outcome::Killed(limit) => bail!("it was killed after {} s", limit.as_secs()),
            Outcome::Failed { status, stderr } => bail!("it ended with {status}: {stderr}"),
        }
    }
}

impl Report {
    fn read(path: &Path) -> Result<Self> {
        let json = std::fs::read_to_string(path).context("the example wrote no report")?;
        serde_json::from_str(&json).context("cannot parse the example's report")
    }

    /// Returns the transfers to the device per step.
    pub fn uploads_per_step(&self) -> f64 {
        self.uploads as f64 / self.steps as f64
    }

    /// Returns the largest difference of two losses of the same step, of the first steps. A loss that is not finite makes
    /// it infinite, and so does a missing one.
    pub fn loss_difference(&self, other: &Report, steps: usize) -> f64 {
        if self.losses.len() != other.losses.len() {
            return f64::INFINITY;
        }
        let pairs = self.losses.iter().zip(&other.losses).take(steps);
        let differences = pairs.map(|(a, b)| (a - b).abs());
        differences.fold(0.0, |most, next| if next.is_finite() { next.max(most) } else { f64::INFINITY })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn losses(losses: &[f64]) -> Report {
        Report { losses: losses.to_vec(), ..Report::default() }
    }

    #[test]
    fn losses_are_compared_step_by_step() {
        let difference = |a: &[f64], b: &[f64]| losses(a).loss_difference(&losses(b), 2);
        assert_eq!(difference(&[1.0, 2.0, 9.0], &[1.5, 2.0, 3.0]), 0.5);
        assert_eq!(difference(&[1.0], &[1.0, 2.0]), f64::INFINITY);
        assert_eq!(difference(&[f64::NAN, 1.0], &[1.0, 1.0]), f64::INFINITY);
        assert_eq!(difference(&[], &[]), 0.0);
    }

    #[test]
    fn a_process_is_killed_at_its_limit() {
        let sleep = |seconds: &str| Command::new("sleep").arg(seconds).spawn().unwrap();
        assert!(wait(sleep("60"), Duration::from_millis(50)).unwrap().is_none());
        assert!(wait(sleep("0"), Duration::from_secs(60)).unwrap().unwrap().success());
    }
}
