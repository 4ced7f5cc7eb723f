//! Runs every example for a few steps and checks the reports that they write. A run counts as one test.

use crate::stage::{TestCounts, cargo, lints, succeed};
use crate::{idiomatic, layers};
use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::process::Command;

/// An example, its options, and the least accuracy that its report must show.
struct Run {
    example: &'static str,
    options: &'static [&'static str],
    /// The least test accuracy in percent: easily reached in a few steps, but not by guessing.
    accuracy: Option<f64>,
}

const RUNS: [Run; 15] = [
    plain("custom_loop", &[]),
    plain("custom_op", &[]),
    plain("checkpoint_cost", &["--size", "tiny", "--saves", "5", "--turns", "1", "--folder", "target/tmp"]),
    plain("fit", &["--model", "mlp", "--generations", "v5e,v6e:2x2"]),
    plain("fit", &["--search", "--generations", "v5e:2x2", "--layers", "1", "--candidates", "2"]),
    // A small model of this repository's own documentation, which needs no other text; then it writes.
    plain("gpt", &GPT_TRAIN),
    plain("gpt", &GPT_GENERATE),
    plain("step_time", &["--model", "mlp", "--platform", "cpu", "--steps", "3"]),
    mnist(&["--model", "mlp", "--dtype", "bf16", "--platform", "cpu", "--steps", "100"], 80.0),
    mnist(&["--model", "mlp", "--dtype", "f32", "--platform", "cpu", "--steps", "100"], 80.0),
    mnist(&["--model", "cnn", "--dtype", "bf16", "--platform", "cpu", "--steps", "15", "--batch-size", "64"], 40.0),
    // Batch norm needs some steps until its running means are those of the images.
    mnist(&["--model", "resnet", "--dtype", "f32", "--platform", "cpu", "--steps", "40", "--batch-size", "32"], 40.0),
    plain("embed", &["embed", "docs/tpu-programs.md", "--platform", "cpu", "--dtype", "bf16", "--output", "/dev/null"]),
    plain("embed", &["search", "a machine without accelerators", "docs/tpu-programs.md", "--platform", "cpu"]),
    mnist(&["--model", "mlp", "--dtype", "bf16", "--platform", "ndarray", "--steps", "20"], 40.0),
];

const GPT_TRAIN: [&str; 13] = [
    "train",
    "--platform=cpu",
    "--data=docs",
    "--out=target/tmp/gpt-model",
    "--layers=2",
    "--width=32",
    "--heads=2",
    "--sequence=32",
    "--vocab=512",
    "--steps=20",
    "--eval-every=10",
    "--eval-sequences=8",
    "--accumulate=2",
];
const GPT_GENERATE: [&str; 5] =
    ["generate", "--platform=cpu", "--model=target/tmp/gpt-model", "--prompt=The device", "--prompt=A"];

/// The example that is a package of its own.
const MNIST: &str = "mnist";

/// The largest number of programs that any of these runs may compile.
const MAX_COMPILES: u64 = 8;

/// A run that only has to end without an error.
const fn plain(example: &'static str, options: &'static [&'static str]) -> Run {
    Run { example, options, accuracy: None }
}

const fn mnist(options: &'static [&'static str], accuracy: f64) -> Run {
    Run { example: MNIST, options, accuracy: Some(accuracy) }
}

/// The fields of `examples/mnist/src/report.rs` that this file reads.
#[derive(Deserialize)]
struct Report {
    test_accuracy: f64,
    train_loss: f64,
    steps: usize,
    compiles: u64,
    host_fallbacks: u64,
}

/// Runs every example. The programs of [`idiomatic`] run beside the others: most use one core.
pub fn run() -> Result<TestCounts> {
    // Build as the tests are built, with the features of the whole workspace, so that nothing is compiled twice. The benches
    // are built to be linted.
    succeed(cargo(&["build", "--workspace", "--examples", "--bin", "mnist", "--bench", "*"])?.envs(lints()?))?;
    std::thread::scope(|scope| {
        let idiomatic = scope.spawn(idiomatic::check_all);
        let mut counts = run_all()?;
        counts += idiomatic.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok(counts)
    })
}

fn run_all() -> Result<TestCounts> {
    let folder = tempfile::tempdir().context("cannot create a temporary folder")?;
    let mut counts = TestCounts::default();
    for run in &RUNS {
        let name = format!("{} {}", run.example, run.options.join(" "));
        println!("\n--- {name}");
        match run.check(&folder.path().join("report.json")) {
            Ok(()) => counts.passed += 1,
            Err(error) => {
                println!("example `{name}` failed: {error:#}");
                counts.failed += 1;
            }
        }
    }
    Ok(counts)
}

/// Builds and runs the crate that stands outside of the workspace. Burn is built a second time, with the features that it
/// asks for.
pub fn outside() -> Result<TestCounts> {
    let root = layers::root()?;
    let mut command = cargo(&["run", "--manifest-path"])?;
    command.arg(root.join("examples/custom-op/Cargo.toml")).arg("--target-dir").arg(root.join("target/outside"));
    if !burn_tpu_pjrt::presence::tpu_present() {
        command.env("BURN_TPU_REQUIRE_LIBTPU", "1");
    }
    succeed(command.env("BURN_TPU_FALLBACK", "deny").env("BURN_TPU_PLATFORM", "cpu"))?;
    Ok(TestCounts { passed: 1, failed: 0 })
}

impl Run {
    fn check(&self, report: &Path) -> Result<()> {
        let mut command = Command::new(built(self.example)?);
        command.args(self.options).env("BURN_TPU_FALLBACK", "deny").current_dir(layers::root()?);
        if self.accuracy.is_some() {
            command.arg("--report").arg(report);
        }
        let status = command.status().with_context(|| format!("cannot start {command:?}"))?;
        if !status.success() {
            bail!("it ended with {status}");
        }
        let Some(least) = self.accuracy else { return Ok(()) };
        let json = std::fs::read_to_string(report).context("it wrote no report")?;
        let report: Report = serde_json::from_str(&json).context("cannot parse its report")?;
        report.check(least)
    }
}

/// Returns the path of the example's program: next to this program for a package, else in the folder of examples there.
fn built(example: &str) -> Result<PathBuf> {
    let xtask = std::env::current_exe().context("the path of this program is unknown")?;
    let folder = xtask.parent().context("this program's path has no folder")?;
    Ok(if example == MNIST { folder.join(example) } else { folder.join("examples").join(example) })
}

impl Report {
    fn check(&self, least_accuracy: f64) -> Result<()> {
        if self.test_accuracy < least_accuracy || !self.train_loss.is_finite() {
            bail!(
                "accuracy {} % after {} steps (loss {}), expected {least_accuracy} %",
                self.test_accuracy,
                self.steps,
                self.train_loss
            );
        }
        if self.host_fallbacks > 0 {
            bail!("{} nodes ran on the host", self.host_fallbacks);
        }
        if self.compiles > MAX_COMPILES {
            bail!("{} programs were compiled, at most {MAX_COMPILES} are expected", self.compiles);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_judged_by_accuracy_fallbacks_and_compiles() {
        let good = || Report { test_accuracy: 90.0, train_loss: 0.4, steps: 100, compiles: 5, host_fallbacks: 0 };
        assert!(good().check(80.0).is_ok());
        assert!(good().check(95.0).is_err());
        assert!(Report { train_loss: f64::NAN, ..good() }.check(80.0).is_err());
        assert!(Report { host_fallbacks: 1, ..good() }.check(80.0).is_err());
        assert!(Report { compiles: 9, ..good() }.check(80.0).is_err());
    }
}
