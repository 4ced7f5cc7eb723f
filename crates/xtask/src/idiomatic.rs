//! `cargo xtask idiomatic`: runs the programs of `examples/burn-0.21` on burn-tpu and on burn-flex, and compares them.
//!
//! Each run is a process of its own, so that its peak memory and its compiles are its own. The two backends take turns.

mod cases;
mod process;

use crate::stage::{TestCounts, cargo, succeed};
use anyhow::{Context, Result, bail};
use cases::{CASES, Case};
use process::{Outcome, Report};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Losses are compared over this many steps: later ones differ because small differences grow.
const COMPARED_STEPS: usize = 50;

/// The time limit of a run in CI.
const SHORT_LIMIT: Duration = Duration::from_secs(300);

/// The programs to run, and how.
#[derive(clap::Args)]
pub struct Args {
    /// Steps of each run [default: those of the program]
    #[arg(long, value_name = "N")]
    steps: Option<usize>,
    /// Run only these programs
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    programs: Vec<String>,
    /// Kill a run that takes longer than this many seconds
    #[arg(long, value_name = "S", default_value_t = 600)]
    time_limit: u64,
    /// Runs of each program on each backend; the table shows the median times
    #[arg(long, value_name = "R", default_value_t = 1)]
    rounds: usize,
    /// Compile every program at once: none is interpreted first
    #[arg(long)]
    no_tiers: bool,
    /// Run only a few steps of each program and compare the counts with their limits, as CI does
    #[arg(long, conflicts_with_all = ["steps", "rounds", "no_tiers"])]
    check: bool,
}

/// The outcomes of the rounds of one program.
struct Row {
    tpu: Vec<Outcome>,
    flex: Vec<Outcome>,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<()> {
    let chosen = choose(&args.programs)?;
    succeed(&mut cargo(&["build", "--release", "--workspace", "--example", "idiomatic"])?)?;
    let example = built_in("release")?;
    if args.check {
        let counts = check(&chosen, &example);
        println!("\n{} passed, {} failed", counts.passed, counts.failed);
        return if counts.failed == 0 { Ok(()) } else { bail!("a program exceeded its limits") };
    }
    println!("{}", heading());
    for case in chosen {
        let row = case.take_turns(&example, args)?;
        println!("{}", row.line(case.name));
        row.explain();
    }
    Ok(())
}

/// Runs every program for a few steps and compares the counts with [`cases`]. `cargo` has built the example before, in
/// the folder of this program.
pub fn check_all() -> Result<TestCounts> {
    Ok(check(&choose(&[])?, &built_in("debug")?))
}

fn check(chosen: &[&Case], example: &Path) -> TestCounts {
    let mut counts = TestCounts::default();
    for case in chosen {
        // One line, so that another program's lines are not between.
        let name = format!("\n--- idiomatic {} {}", case.name, case.short.join(" "));
        match case.check(example) {
            Ok(summary) => {
                println!("{name}\n{summary}");
                counts.passed += 1;
            }
            Err(error) => {
                println!("{name}\nprogram `{}` failed: {error:#}", case.name);
                counts.failed += 1;
            }
        }
    }
    counts
}

fn choose(names: &[String]) -> Result<Vec<&'static Case>> {
    if let Some(name) = names.iter().find(|name| CASES.iter().all(|case| case.name != **name)) {
        let known: Vec<_> = CASES.iter().map(|case| case.name).collect();
        bail!("there is no program `{name}`; the programs are {}", known.join(", "));
    }
    Ok(CASES.iter().filter(|case| names.is_empty() || names.iter().any(|name| name == case.name)).collect())
}

/// Returns the path of the example: the folders of the profiles are next to each other.
fn built_in(profile: &str) -> Result<PathBuf> {
    let xtask = std::env::current_exe().context("the path of this program is unknown")?;
    let target = xtask.parent().and_then(Path::parent).context("this program's path has no folder")?;
    Ok(target.join(profile).join("examples").join("idiomatic"))
}

impl Case {
    fn take_turns(&self, example: &Path, args: &Args) -> Result<Row> {
        let limit = Duration::from_secs(args.time_limit);
        let mut options: Vec<String> = self.options.iter().map(ToString::to_string).collect();
        options.extend(args.steps.iter().flat_map(|steps| ["--steps".to_owned(), steps.to_string()]));
        options.extend(args.no_tiers.then(|| "--no-tiers".to_owned()));
        let mut row = Row { tpu: Vec::new(), flex: Vec::new() };
        for _ in 0..args.rounds {
            row.tpu.push(process::run(example, "tpu", &options, limit)?);
            row.flex.push(process::run(example, "flex", &options, limit)?);
        }
        Ok(row)
    }

    /// Runs this program for a few steps on both backends, and returns a summary.
    fn check(&self, example: &Path) -> Result<String> {
        let options: Vec<String> = self.options.iter().chain(self.short).map(ToString::to_string).collect();
        let run = |backend| process::run(example, backend, &options, SHORT_LIMIT);
        // At once: counts and losses are compared, not times.
        let (tpu, flex) = std::thread::scope(|scope| {
            let flex = scope.spawn(|| run("flex"));
            (run("tpu"), flex.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        });
        let (tpu, flex) = (tpu?.report()?, flex?.report()?);
        let (uploads, difference) = (tpu.uploads_per_step(), tpu.loss_difference(&flex, COMPARED_STEPS));
        let Report { compiles, interpreted, wall_seconds, .. } = &tpu;
        let summary = format!(
            "{wall_seconds:.1} s, compiles {compiles}, interpreted {interpreted}, transfers/step {uploads:.1}, loss \
             difference {difference:.1e}"
        );
        self.judge(&tpu, &flex).with_context(|| summary.clone())?;
        Ok(summary)
    }
}

fn heading() -> String {
    format!(
        "{:<16} {:>6} {:>8} {:>11} {:>14} {:>9} {:>9} {:>7} {:>7} {:>10} {:>11}",
        "program",
        "steps",
        "compiles",
        "interpreted",
        "transfers/step",
        "Tpu s",
        "flex s",
        "ratio",
        "memory",
        "warnings",
        "loss diff."
    )
}

impl Row {
    /// Returns the row of the table; a run without a report leaves its cells empty.
    fn line(&self, name: &str) -> String {
        let (tpu, flex) = (median(&self.tpu), median(&self.flex));
        let of_tpu = |cell: fn(&Report) -> String| tpu.map(cell).unwrap_or_default();
        let both = |cell: fn(&Report, &Report) -> String| tpu.zip(flex).map(|(tpu, flex)| cell(tpu, flex));
        format!(
            "{name:<16} {:>6} {:>8} {:>11} {:>14} {:>9} {:>9} {:>7} {:>7} {:>10} {:>11}",
            tpu.or(flex).map(|report| report.steps.to_string()).unwrap_or_default(),
            of_tpu(|tpu| tpu.compiles.to_string()),
            of_tpu(|tpu| tpu.interpreted.to_string()),
            of_tpu(|tpu| format!("{:.1}", tpu.uploads_per_step())),
            seconds(&self.tpu),
            seconds(&self.flex),
            both(|tpu, flex| format!("{:.2}", tpu.wall_seconds / flex.wall_seconds)).unwrap_or_default(),
            both(|tpu, flex| format!("{:.2}", tpu.peak_resident_bytes as f64 / flex.peak_resident_bytes as f64))
                .unwrap_or_default(),
            of_tpu(|tpu| tpu.recompile_warnings.to_string()),
            both(|tpu, flex| format!("{:.1e}", tpu.loss_difference(flex, COMPARED_STEPS))).unwrap_or_default(),
        )
    }

    /// Prints the end of what the failed runs wrote to stderr.
    fn explain(&self) {
        for outcome in self.tpu.iter().chain(&self.flex) {
            if let Outcome::Failed { status, stderr } = outcome {
                println!("  it ended with {status}: {stderr}");
            }
        }
    }
}

/// Returns the median time, or what happened instead: a run that was killed makes its row one of a killed program.
fn seconds(outcomes: &[Outcome]) -> String {
    let without_report = outcomes.iter().find_map(|outcome| match outcome {
        Outcome::Finished(_) => None,
        Outcome::Killed(limit) => Some(format!("> {}", limit.as_secs())),
        Outcome::Failed { .. } => Some("failed".to_owned()),
    });
    let median = || median(outcomes).map(|report| format!("{:.2}", report.wall_seconds));
    without_report.or_else(median).unwrap_or_default()
}

/// Returns the finished run whose time is the median.
fn median(outcomes: &[Outcome]) -> Option<&Report> {
    let mut finished: Vec<&Report> = outcomes.iter().filter_map(Outcome::finished).collect();
    finished.sort_by(|a, b| a.wall_seconds.total_cmp(&b.wall_seconds));
    finished.get(finished.len().saturating_sub(1) / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finished(wall_seconds: f64) -> Outcome {
        Outcome::Finished(Report { wall_seconds, ..Report::default() })
    }

    #[test]
    fn an_unknown_program_lists_the_known_ones() {
        let error = choose(&["x".to_owned()]).err().unwrap().to_string();
        assert!(error.contains("`x`") && error.contains("text-worker"), "{error}");
        assert_eq!(choose(&[]).unwrap().len(), CASES.len());
        assert_eq!(choose(&["dqn".to_owned()]).unwrap()[0].name, "dqn");
    }

    #[test]
    fn the_time_is_the_median_unless_a_run_was_killed() {
        assert_eq!(seconds(&[finished(3.0), finished(1.0), finished(2.0)]), "2.00");
        assert_eq!(seconds(&[finished(3.0), Outcome::Killed(Duration::from_secs(60))]), "> 60");
        assert_eq!(seconds(&[]), "");
    }
}
