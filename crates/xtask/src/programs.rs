//! The workspace's test programs: Cargo builds them, and two run at a time.
//!
//! `cargo test` runs one program after another. Most use little more than one core, since a test waits for a compiler that
//! it started, for another process, or for a thread.

use crate::layers;
use crate::stage::{TestCounts, cargo, forget_package, lints, result_line};
use anyhow::{Context, Result, bail, ensure};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// The number of programs that run at the same time. One that compiles for a TPU takes gigabytes of memory, so this does not
/// grow with the number of cores.
const AT_ONCE: usize = 2;

/// The programs that take longest, in this order: they start first, so that none of them runs alone at the end.
const LONGEST: [&str; 7] = [
    "tests/training/main.rs",
    "tests/numbers/main.rs",
    "tests/mesh/main.rs",
    "crates/burn-tpu-llm/tests/llm/main.rs",
    "tests/recording/main.rs",
    "tests/ahead_of_time/main.rs",
    "tests/parity/main.rs",
];

/// A test program that Cargo built.
struct TestProgram {
    /// Its source file, from the workspace's folder.
    source: String,
    executable: PathBuf,
    /// The folder of its package, in which it runs.
    folder: PathBuf,
}

/// Builds the test programs that these arguments of `cargo test` select, and lints what is built; then runs the programs
/// with these variables, and adds up their counts.
pub fn run(arguments: &[&str], variables: &[(&str, &str)]) -> Result<TestCounts> {
    let mut programs = build(arguments)?;
    ensure!(!programs.is_empty(), "Cargo built no test program");
    programs.sort_by_key(|program| LONGEST.iter().position(|long| *long == program.source).unwrap_or(LONGEST.len()));
    Ok(run_all(&programs, variables))
}

fn run_all(programs: &[TestProgram], variables: &[(&str, &str)]) -> TestCounts {
    let next = AtomicUsize::new(0);
    let run_some = || {
        let mut counts = TestCounts::default();
        while let Some(program) = programs.get(next.fetch_add(1, Ordering::Relaxed)) {
            println!("     Running {}", program.source);
            let start = Instant::now();
            let (output, result) = program.run(variables);
            // One write, so that the other program's lines are not between.
            println!("\n--- {}, {:.1} s\n{output}", program.source, start.elapsed().as_secs_f64());
            counts += result;
        }
        counts
    };
    let mut counts = TestCounts::default();
    std::thread::scope(|scope| {
        let threads = [(); AT_ONCE].map(|()| scope.spawn(run_some));
        for thread in threads {
            counts += thread.join().unwrap_or(TestCounts { passed: 0, failed: 1 });
        }
    });
    counts
}

fn build(arguments: &[&str]) -> Result<Vec<TestProgram>> {
    let mut command = cargo(&["test", "--no-run", "--message-format=json-render-diagnostics"])?;
    command.args(arguments).envs(lints()?);
    let output = command.stderr(Stdio::inherit()).output().with_context(|| format!("cannot start {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?} ended with {}", output.status);
    }
    let root = layers::root()?;
    let messages = String::from_utf8(output.stdout).context("Cargo did not print UTF-8")?;
    let programs = messages.lines().map(|line| program_of(line, &root));
    programs.filter_map(Result::transpose).collect()
}

/// Returns the test program that a message of Cargo is about.
fn program_of(message: &str, root: &Path) -> Result<Option<TestProgram>> {
    let message: serde_json::Value = serde_json::from_str(message).context("Cargo did not print JSON")?;
    let text = |value: &serde_json::Value| value.as_str().map(PathBuf::from);
    let (true, Some(executable)) = (message["profile"]["test"] == true, text(&message["executable"])) else {
        return Ok(None);
    };
    let manifest = text(&message["manifest_path"]).context("a test program without a package")?;
    let source = text(&message["target"]["src_path"]).context("a test program without a source file")?;
    let folder = manifest.parent().context("a package without a folder")?.to_path_buf();
    let source = source.strip_prefix(root).unwrap_or(&source).display().to_string();
    Ok(Some(TestProgram { source, executable, folder }))
}

impl TestProgram {
    /// Returns what the program printed, and its counts.
    fn run(&self, variables: &[(&str, &str)]) -> (String, TestCounts) {
        match self.output(variables) {
            Ok((output, is_success)) => {
                let counts = counts_of(&output, is_success);
                (output, counts)
            }
            Err(error) => (format!("{error:#}"), TestCounts { passed: 0, failed: 1 }),
        }
    }

    /// Returns what the program printed, and whether it ended well.
    fn output(&self, variables: &[(&str, &str)]) -> Result<(String, bool)> {
        let (mut reader, writer) = std::io::pipe().context("cannot make a pipe")?;
        let mut child = {
            let mut command = Command::new(&self.executable);
            forget_package(&mut command);
            command.current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder).envs(variables.iter().copied());
            command.stdin(Stdio::null()).stdout(writer.try_clone().context("cannot share a pipe")?).stderr(writer);
            // The command has the writing ends, and the output ends when all of them are closed.
            command.spawn().with_context(|| format!("cannot start {}", self.executable.display()))?
        };
        let mut output = Vec::new();
        reader.read_to_end(&mut output).context("cannot read what a test program prints")?;
        let status = child.wait().context("cannot wait for a test program")?;
        let mut output = String::from_utf8_lossy(&output).into_owned();
        if !status.success() {
            output.push_str(&format!("{} ended with {status}\n", self.source));
        }
        Ok((output, status.success()))
    }
}

/// Returns the counts in a program's output. One that crashed before it printed them is a failure.
fn counts_of(output: &str, is_success: bool) -> TestCounts {
    let mut counts = TestCounts::default();
    output.lines().filter_map(result_line).for_each(|line| counts += line);
    if !is_success && counts.failed == 0 {
        counts.failed = 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Another process writes the script: a process that another test starts could inherit the open file, and Linux runs
    /// no file that is open for writing.
    fn shell(folder: &Path, script: &str) -> TestProgram {
        let executable = folder.join("program");
        let mut writer = Command::new("sh");
        writer
            .args(["-c", r#"printf '#!/bin/sh\n%s\n' "$2" > "$1" && chmod +x "$1""#, "sh"])
            .arg(&executable)
            .arg(script);
        assert!(writer.status().unwrap().success());
        TestProgram { source: "tests/a.rs".into(), executable, folder: folder.to_path_buf() }
    }

    #[test]
    fn a_program_runs_in_its_package_with_its_variables_and_its_counts_are_added_up() {
        let folder = tempfile::tempdir().unwrap();
        let program = shell(
            folder.path(),
            "test \"$PWD\" = \"$CARGO_MANIFEST_DIR\" && echo $COLOR >&2\n\
             echo 'test result: ok. 3 passed; 0 failed; 0 ignored'\necho 'test result: ok. 4 passed; 0 failed; 0 ignored'",
        );
        let (output, counts) = program.run(&[("COLOR", "green")]);
        assert!(output.starts_with("green\n"), "{output}");
        assert_eq!(counts, TestCounts { passed: 7, failed: 0 });
    }

    #[test]
    fn two_programs_run_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let waits_for = |own: &str, other: &str| {
            let below = folder.path().join(format!("{own}-files"));
            std::fs::create_dir(&below).unwrap();
            let wait = "for i in $(seq 100); do test -e ../OTHER && break; sleep 0.1; done; test -e ../OTHER"
                .replace("OTHER", other);
            shell(&below, &format!("touch ../{own}; {wait} && echo 'test result: ok. 1 passed; 0 failed; 0 ignored'"))
        };
        let programs = [waits_for("a", "b"), waits_for("b", "a")];
        assert_eq!(run_all(&programs, &[]), TestCounts { passed: 2, failed: 0 });
    }

    #[test]
    fn a_program_that_crashes_or_is_missing_is_one_failure() {
        let folder = tempfile::tempdir().unwrap();
        let (output, counts) = shell(folder.path(), "kill -9 $$").run(&[]);
        assert!(output.contains("tests/a.rs ended with signal: 9"), "{output}");
        assert_eq!(counts, TestCounts { passed: 0, failed: 1 });
        let failing = "echo 'test result: FAILED. 1 passed; 2 failed; 0 ignored'; exit 101";
        assert_eq!(shell(folder.path(), failing).run(&[]).1, TestCounts { passed: 1, failed: 2 });
        let missing = TestProgram { executable: folder.path().join("b"), ..shell(folder.path(), "") };
        assert_eq!(missing.run(&[]).1, TestCounts { passed: 0, failed: 1 });
    }

    #[test]
    fn test_programs_are_found_among_the_messages_of_cargo() {
        let message = |test: bool, executable: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"/w/a/Cargo.toml","profile":{{"test":{test}}},
                "target":{{"src_path":"/w/a/tests/b.rs"}},"executable":{executable}}}"#
            )
        };
        let program_of = |message: &str| program_of(message, Path::new("/w")).unwrap();
        let found = program_of(&message(true, r#""/t/b-1""#)).unwrap();
        assert_eq!((found.source.as_str(), found.folder.as_path()), ("a/tests/b.rs", Path::new("/w/a")));
        assert!(program_of(&message(false, r#""/t/b-1""#)).is_none());
        assert!(program_of(&message(true, "null")).is_none());
        assert!(program_of(r#"{"reason":"build-finished","success":true}"#).is_none());
    }
}
