//! `cargo xtask judge MODEL`: what a level of rewrites, or one rewrite, is worth on the TPU compiler. Compiles a model's
//! training step ahead of time, once before and once after, with the example `fit`, and prints the compiler's figures
//! side by side. They are estimates: docs/fit.md says of what.

use crate::setup;
use crate::stage::{cargo, succeed};
use anyhow::{Context, Result, bail, ensure};
use burn_tpu_pjrt::discovery::PluginKind;
use clap::ValueEnum;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

/// What is compared.
#[derive(clap::Args)]
pub struct Args {
    /// The training step
    model: Model,
    /// Leave out this rewrite before, such as query_blocks; without it, a level is compared
    #[arg(long, value_name = "REWRITE", conflicts_with = "before")]
    rewrite: Option<String>,
    /// The level before
    #[arg(long, value_name = "LEVEL", default_value = "off")]
    before: String,
    /// The level after
    #[arg(long, value_name = "LEVEL", default_value = "balanced")]
    after: String,
    /// Generations or slices, comma-separated
    #[arg(long, default_value = "v5e,v6e")]
    generations: String,
    /// Further options of the example fit, which come last: `-- --sequence 4096 --layers 2`
    #[arg(last = true, value_name = "OPTIONS")]
    options: Vec<String>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Model {
    /// The models of examples/step_time, in bf16
    Mlp,
    Cnn,
    Gpt,
    /// 12 layers of width 768, 1,024 tokens, a vocabulary of 50,304, 8 samples; bf16 with f32 master weights
    #[value(name = "gpt-124m")]
    Gpt124m,
}

impl Model {
    fn options(self) -> &'static str {
        match self {
            Self::Mlp => "--model mlp",
            Self::Cnn => "--model cnn",
            Self::Gpt => "--model gpt",
            Self::Gpt124m => {
                "--model gpt --master-weights --layers 12 --width 768 --heads 12 --ff 3072 --sequence 1024 \
                 --vocab 50304 --batch 8"
            }
        }
    }
}

/// The part of a report of `fit` that is compared.
#[derive(Deserialize)]
struct Report {
    step: Step,
    slices: Vec<Slice>,
}

#[derive(Deserialize)]
struct Step {
    rewrites: BTreeMap<String, u64>,
}

#[derive(Deserialize)]
struct Slice {
    topology: String,
    message: Option<String>,
    memory: Memory,
    speed: Option<Speed>,
    compile_seconds: f64,
}

#[derive(Deserialize)]
struct Memory {
    argument_bytes: u64,
    temporary_bytes: u64,
}

#[derive(Deserialize)]
struct Speed {
    estimated_cycles: Option<u64>,
    hbm_bytes: u64,
    fusions: u64,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<()> {
    setup::ensure(PluginKind::Tpu, None)?;
    let folder = tempfile::tempdir().context("cannot create a folder for the reports")?;
    let (skipped, before) = match &args.rewrite {
        Some(rewrite) => (rewrite.as_str(), (args.after.as_str(), format!("without {rewrite}"))),
        None => ("", (args.before.as_str(), args.before.clone())),
    };
    let before = (report(args, before.0, skipped, &folder.path().join("before.json"))?, before.1);
    let after = (report(args, &args.after, "", &folder.path().join("after.json"))?, args.after.clone());
    print!("{}", table((&before.0, &before.1), (&after.0, &after.1))?);
    Ok(())
}

/// Compiles the step with these rewrites, and returns the report.
fn report(args: &Args, level: &str, skipped: &str, path: &Path) -> Result<Report> {
    let mut command = cargo(&["run", "--release", "--quiet", "--example", "fit", "--"])?;
    command.args(args.model.options().split_whitespace()).args(["--generations", &args.generations]);
    command.args(&args.options).arg("--json").arg(path);
    // The whole report of `fit` is more than the comparison needs.
    command.stdout(std::process::Stdio::null());
    succeed(command.env("BURN_TPU_OPTIMIZATION", level).env("BURN_TPU_SKIP_REWRITES", skipped))?;
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_str(&text).context("the report of `fit` has another form")
}

/// Returns the comparison as a Markdown table for each slice.
fn table((before, before_name): (&Report, &str), (after, after_name): (&Report, &str)) -> Result<String> {
    ensure!(before.slices.len() == after.slices.len(), "the two reports are of different slices");
    let rewrites = after.step.rewrites.iter().map(|(pass, count)| format!("{pass} {count}"));
    let mut text = format!("rewrites after: {}\n", rewrites.collect::<Vec<_>>().join(", "));
    for (before, after) in before.slices.iter().zip(&after.slices) {
        text += &format!("\n| {} | {before_name} | {after_name} | ratio |\n|---|---|---|---|\n", after.topology);
        for ((name, before), (_, after)) in figures(before)?.into_iter().zip(figures(after)?) {
            text += &format!("| {name} | {before:.2} | {after:.2} | {:.3} |\n", after / before);
        }
    }
    Ok(text)
}

/// Returns the figures of a slice in the order of the table.
fn figures(slice: &Slice) -> Result<[(&'static str, f64); 6]> {
    let Some(speed) = &slice.speed else {
        bail!("the step does not compile for {}: {}", slice.topology, slice.message.as_deref().unwrap_or("no reason"));
    };
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    Ok([
        ("estimated cycles, millions", speed.estimated_cycles.unwrap_or(0) as f64 / 1e6),
        ("main memory read and written, MiB", mib(speed.hbm_bytes)),
        ("arguments, MiB", mib(slice.memory.argument_bytes)),
        ("temporaries, MiB", mib(slice.memory.temporary_bytes)),
        ("fusions", speed.fusions as f64),
        ("compile, seconds", slice.compile_seconds),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report_of(cycles: u64, message: Option<&str>) -> Report {
        let speed =
            message.is_none().then_some(Speed { estimated_cycles: Some(cycles), hbm_bytes: 1 << 20, fusions: 3 });
        let memory = Memory { argument_bytes: 1 << 21, temporary_bytes: 1 << 22 };
        let message = message.map(str::to_owned);
        let slice = Slice { topology: "v5e".to_owned(), message, memory, speed, compile_seconds: 1.5 };
        Report { step: Step { rewrites: BTreeMap::from([("roll".to_owned(), 2)]) }, slices: vec![slice] }
    }

    #[test]
    fn the_table_has_both_figures_and_their_ratio() {
        let text = table((&report_of(4_000_000, None), "off"), (&report_of(3_000_000, None), "balanced")).unwrap();
        assert!(text.starts_with("rewrites after: roll 2\n\n| v5e | off | balanced | ratio |"), "{text}");
        assert!(text.contains("| estimated cycles, millions | 4.00 | 3.00 | 0.750 |"), "{text}");
    }

    #[test]
    fn a_step_that_does_not_compile_is_an_error_with_the_reason() {
        let error = table((&report_of(1, None), "off"), (&report_of(1, Some("too large")), "balanced")).unwrap_err();
        assert_eq!(error.to_string(), "the step does not compile for v5e: too large");
    }
}
