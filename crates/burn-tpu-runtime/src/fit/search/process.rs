//! Compiles in other processes. An abort in libtpu ends one of them, and its memory is free when it ends.

use serde::Deserialize;
use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The part of a [`FitReport`](crate::fit::FitReport) that a search needs.
#[derive(Clone, Debug, Deserialize)]
struct Report {
    slices: Vec<ProcessFit>,
}

/// What a process said of its only slice.
#[derive(Clone, Debug, Deserialize)]
pub struct ProcessFit {
    pub(super) verdict: String,
    pub(super) message: Option<String>,
    pub(super) memory: Memory,
    pub(super) speed: Option<Speed>,
    pub(super) price: Option<Price>,
    pub(super) compile_seconds: f64,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Memory {
    pub(super) limit_bytes: u64,
    pub(super) peak_bytes: u64,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Speed {
    pub(super) hbm_bytes: u64,
    pub(super) roofline_seconds: f64,
    pub(super) communication_seconds: f64,
    pub(super) mfu: f64,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Price {
    pub(super) usd_per_hour: f64,
}

/// How often a process is asked whether it has ended.
const PAUSE: Duration = Duration::from_millis(50);

/// Runs a program that writes the report of a [`Fit`](crate::fit::Fit) of one slice, and returns the slice's entry. An abort
/// of libtpu is then an error of one layout. The options are followed by `--until-stdin-ends`, with which the program calls
/// [`end_with_parent`], and by `--json FILE`, the file for the report.
///
/// # Errors
/// The reason, for a process that fails, is killed, or takes longer than `limit`.
pub fn fit_in_process(program: &Path, options: &[String], limit: Duration) -> Result<ProcessFit, String> {
    let folder = tempfile::tempdir().map_err(|error| format!("no temporary folder: {error}"))?;
    let (report, log) = (folder.path().join("report.json"), folder.path().join("log"));
    let mut command = Command::new(program);
    command.args(options).arg("--until-stdin-ends").arg("--json").arg(&report);
    run(command, &log, limit)?;
    let text = std::fs::read_to_string(&report).map_err(|error| format!("no report: {error}"))?;
    let report: Report = serde_json::from_str(&text).map_err(|error| format!("unreadable report: {error}"))?;
    report.slices.into_iter().next().ok_or_else(|| "an empty report".into())
}

/// Ends this process when its parent closes the pipe to it, in whichever way the parent ends.
pub fn end_with_parent() {
    std::thread::spawn(|| {
        std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).ok();
        std::process::exit(1);
    });
}

/// Runs a command whose messages go to the file `log`.
fn run(mut command: Command, log: &Path, limit: Duration) -> Result<(), String> {
    let file = File::create(log).map_err(|error| format!("no log file: {error}"))?;
    // The pipe ends when this process does, in whichever way.
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(file);
    let mut child = command.spawn().map_err(|error| format!("cannot start a process: {error}"))?;
    let status = wait(&mut child, limit)?;
    if status.success() {
        return Ok(());
    }
    let log = std::fs::read(log).unwrap_or_default();
    Err(format!("the process ended with {status}: {}", last_words(&String::from_utf8_lossy(&log))))
}

/// Waits for a process and kills it after `limit`.
fn wait(child: &mut Child, limit: Duration) -> Result<ExitStatus, String> {
    let end = Instant::now() + limit;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status),
            Ok(None) if Instant::now() < end => std::thread::sleep(PAUSE),
            Ok(None) => {
                child.kill().and_then(|()| child.wait()).ok();
                return Err(format!("stopped after {} s, its limit", limit.as_secs()));
            }
            Err(error) => return Err(format!("cannot wait for a process: {error}")),
        }
    }
}

/// Returns the last line that says something.
fn last_words(log: &str) -> &str {
    let line = log.lines().rev().map(str::trim).find(|line| !line.is_empty());
    line.unwrap_or("no message")
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn shell(script: &str, limit: Duration) -> Result<(), String> {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        run(command, &folder.path().join("log"), limit)
    }

    const LONG: Duration = Duration::from_secs(600);

    #[test]
    fn a_program_that_is_not_there_is_an_error() {
        let error = fit_in_process(Path::new("/no/such/program"), &[], LONG).unwrap_err();
        assert!(error.contains("cannot start a process"), "{error}");
    }

    #[test]
    fn a_process_that_fails_gives_its_last_line() {
        let error = shell("echo first >&2; echo the reason >&2; echo >&2; exit 3", LONG).unwrap_err();
        assert!(error.ends_with("exit status: 3: the reason"), "{error}");
        assert_eq!(shell("exit 0", LONG), Ok(()));
    }

    #[test]
    fn a_process_that_is_killed_gives_the_signal() {
        let error = shell("kill -9 $$", LONG).unwrap_err();
        assert!(error.contains("signal: 9"), "{error}");
    }

    #[test]
    fn a_process_that_takes_too_long_is_killed() {
        assert_eq!(shell("exec sleep 600", Duration::ZERO).unwrap_err(), "stopped after 0 s, its limit");
    }

    #[test]
    fn the_input_of_a_process_ends_with_its_parent_only() {
        assert_eq!(shell("exec cat", Duration::ZERO).unwrap_err(), "stopped after 0 s, its limit");
    }
}
