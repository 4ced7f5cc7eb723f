//! Stages of a check: each has a name, runs once, and returns test counts; a summary ends the run.

use anyhow::{Context, Result, bail, ensure};
use std::io::{BufRead, BufReader};
use std::ops::AddAssign;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The numbers of passed and failed tests. A stage without tests (formatting, lints) returns zeros on success.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TestCounts {
    /// The number of tests that passed.
    pub passed: usize,
    /// The number of tests that failed and of stages that could not run.
    pub failed: usize,
}

impl AddAssign for TestCounts {
    fn add_assign(&mut self, other: TestCounts) {
        self.passed += other.passed;
        self.failed += other.failed;
    }
}

/// One stage of a check.
pub struct Stage {
    /// The name that `--only` takes.
    pub name: &'static str,
    /// A short description for the heading.
    pub about: &'static str,
    /// Runs the stage.
    pub run: fn() -> Result<TestCounts>,
}

struct Finished {
    name: &'static str,
    time: Duration,
    counts: TestCounts,
}

/// Runs all stages, also after one has failed, and ends with a summary: what was left out, if anything, and a last line that
/// reads `N passed, N failed`. Returns `false` if anything failed.
pub fn run(stages: &[Stage], command: &str, left_out: &str) -> bool {
    let finished: Vec<Finished> =
        stages.iter().enumerate().map(|(at, stage)| step(stage, at + 1, stages.len())).collect();
    println!("\n=== summary");
    let mut total = TestCounts::default();
    for Finished { name, time, counts } in &finished {
        total += *counts;
        let verdict =
            if counts.failed == 0 { "ok".to_owned() } else { format!("FAILED; rerun: {command} --only {name}") };
        println!("{name:<10} {:>7.1} s  {verdict}", time.as_secs_f64());
    }
    if !left_out.is_empty() {
        println!("{left_out}");
    }
    println!("{} passed, {} failed", total.passed, total.failed);
    total.failed == 0
}

fn step(stage: &Stage, number: usize, of: usize) -> Finished {
    println!("\n=== {number}/{of} {}: {}", stage.name, stage.about);
    let start = Instant::now();
    let counts = (stage.run)().unwrap_or_else(|error| {
        println!("stage `{}` failed: {error:#}", stage.name);
        TestCounts { passed: 0, failed: 1 }
    });
    let time = start.elapsed();
    println!("=== {} took {:.1} s", stage.name, time.as_secs_f64());
    Finished { name: stage.name, time, counts }
}

/// Returns a command for the cargo that runs this program, in the workspace's folder.
///
/// It does not hand on what Cargo told this program about its package. Build scripts that watch these variables (that of
/// ring does) would run again, and what depends on them would be built again, each time that the caller changes.
pub fn cargo(arguments: &[&str]) -> Result<Command> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(arguments).current_dir(crate::layers::root()?).stdin(Stdio::null());
    forget_package(&mut cargo);
    Ok(cargo)
}

/// Returns the variables with which Cargo lints the workspace's crates while it builds them, as `cargo clippy` does while it
/// checks them, and fails at a warning. What is built is the same.
///
/// A build with these variables shares the dependencies with one without them, and no crate of the workspace.
pub fn lints() -> Result<[(&'static str, String); 2]> {
    let output = Command::new("rustc").args(["--print", "sysroot"]).output().context("cannot start rustc")?;
    let sysroot = String::from_utf8(output.stdout).context("rustc did not print UTF-8")?;
    let driver = Path::new(sysroot.trim()).join("bin/clippy-driver");
    ensure!(driver.is_file(), "there is no {}: run `rustup component add clippy`", driver.display());
    let driver = driver.to_str().context("the toolchain's path is no UTF-8")?.to_owned();
    Ok([("RUSTC_WORKSPACE_WRAPPER", driver), ("CLIPPY_ARGS", "-Dwarnings__CLIPPY_HACKERY__".to_owned())])
}

/// Removes what Cargo told this program about its package from the environment of a command.
pub fn forget_package(command: &mut Command) {
    for name in package_variables() {
        command.env_remove(name);
    }
}

/// Returns the variables of this process by which Cargo describes a package.
fn package_variables() -> impl Iterator<Item = String> {
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    names.filter(|name| describes_package(name))
}

fn describes_package(name: &str) -> bool {
    name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
}

/// Runs a command to its end and shows its output.
pub fn succeed(command: &mut Command) -> Result<TestCounts> {
    let status = command.status().with_context(|| format!("cannot start {command:?}"))?;
    if !status.success() {
        bail!("{command:?} ended with {status}");
    }
    Ok(TestCounts::default())
}

/// Runs `cargo test`, shows its output, and adds up the counts that the test binaries print.
pub fn test(command: &mut Command) -> Result<TestCounts> {
    let mut child = command.stdout(Stdio::piped()).spawn().with_context(|| format!("cannot start {command:?}"))?;
    let stdout = child.stdout.take().context("cargo test has no output")?;
    let mut counts = TestCounts::default();
    for line in BufReader::new(stdout).lines() {
        let line = line.context("cannot read what cargo test prints")?;
        println!("{line}");
        counts += result_line(&line).unwrap_or_default();
    }
    let status = child.wait().context("cannot wait for cargo test")?;
    if !status.success() && counts.failed == 0 {
        // A build error, or a test binary that crashed before it printed its counts.
        println!("{command:?} ended with {status} although no test reported a failure");
        counts.failed = 1;
    }
    Ok(counts)
}

/// Parses `test result: ok. 3 passed; 0 failed; …`.
pub fn result_line(line: &str) -> Option<TestCounts> {
    let fields = line.trim_start().strip_prefix("test result: ")?.split_once(". ")?.1;
    let count = |name: &str| fields.split(';').find_map(|part| part.trim().strip_suffix(name)?.trim().parse().ok());
    Some(TestCounts { passed: count("passed")?, failed: count("failed")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_lines_are_read_and_others_are_not() {
        let line = "test result: FAILED. 12 passed; 3 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s";
        assert_eq!(result_line(line), Some(TestCounts { passed: 12, failed: 3 }));
        assert_eq!(result_line("test ops::add ... ok"), None);
        assert_eq!(result_line("test result: ok"), None);
    }

    /// `cargo xtask test` runs this program without the variables that `cargo test` sets, except for CARGO_MANIFEST_DIR.
    #[test]
    fn a_cargo_of_ours_is_not_told_about_our_package() {
        let command = cargo(&["build"]).unwrap();
        assert!(command.get_envs().any(|(name, value)| name == "CARGO_MANIFEST_DIR" && value.is_none()));
        let of_package = ["CARGO_PKG_NAME", "CARGO_PKG_VERSION_MAJOR", "CARGO_MANIFEST_PATH"];
        assert!(of_package.into_iter().all(describes_package));
        assert!(!["CARGO_HOME", "CARGO_INCREMENTAL", "CARGO"].into_iter().any(describes_package));
    }

    #[test]
    fn a_command_that_crashes_before_it_prints_counts_is_one_failure() {
        assert_eq!(test(&mut Command::new("false")).unwrap(), TestCounts { passed: 0, failed: 1 });
        assert_eq!(test(&mut Command::new("true")).unwrap(), TestCounts::default());
        assert!(succeed(&mut Command::new("false")).is_err());
    }

    #[test]
    fn a_stage_that_fails_does_not_stop_the_others() {
        fn fails() -> Result<TestCounts> {
            bail!("no")
        }
        fn passes() -> Result<TestCounts> {
            Ok(TestCounts { passed: 2, failed: 0 })
        }
        let stage = |name, run| Stage { name, about: "", run };
        assert!(!run(&[stage("a", fails), stage("b", passes)], "x", ""));
        assert!(run(&[stage("b", passes)], "x", ""));
    }
}
