//! Probes in child processes: this program with a hidden subcommand, and a time limit.
//!
//! A child prints each result as a line at once, so that its results are not lost when a plugin aborts or hangs it.

use super::probe::Line;
use super::report::{Failure, Reason, Stage};
use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// The number of output bytes of a child that are kept.
const MOST_OUTPUT_BYTES: usize = 1 << 20;

/// The number of lines of its stderr that a report shows.
const SHOWN_STDERR_LINES: usize = 6;

/// The outcome of a probe.
pub struct Outcome {
    /// The lines that it printed, in order.
    pub lines: Vec<Line>,
    /// Set if it failed, died or hung.
    pub failure: Option<Failure>,
}

/// Runs `burn-tpu probe ARGUMENTS` for at most `limit`. `first` is the stage that a failure before the first line belongs
/// to.
pub fn run<A: AsRef<OsStr>>(arguments: &[A], first: Stage, limit: Duration) -> Outcome {
    let failed = |error: io::Error| {
        let message = format!("the probe could not be started: {error}");
        Outcome { lines: Vec::new(), failure: Some(Failure { stage: first, reason: Reason::Other, message }) }
    };
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => return failed(error),
    };
    let mut command = Command::new(program);
    command.arg("probe").args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    match command.spawn() {
        Ok(child) => listen(child, first, limit),
        Err(error) => failed(error),
    }
}

fn listen(mut child: Child, first: Stage, limit: Duration) -> Outcome {
    let deadline = Instant::now() + limit;
    let (stdout, stderr) = (child.stdout.take().map(pump), child.stderr.take().map(pump));
    let output = drain(stdout, deadline);
    // Both pipes close when the child ends, so the end of its output is the end of the child.
    let errors = drain(stderr, deadline);
    let status = reap(&mut child);
    let mut lines: Vec<Line> = output.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let stage = lines.iter().rev().find_map(Line::stage).unwrap_or(first);
    let failure = lines.iter().find_map(Line::failure).or_else(|| abnormal_end(status, stage, &errors, limit));
    lines.retain(|line| line.failure().is_none());
    Outcome { lines, failure }
}

/// Sends everything that is read from a pipe, in pieces, until it closes.
fn pump(mut pipe: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (send, receive) = channel();
    std::thread::spawn(move || {
        let mut piece = [0; 4096];
        while let Ok(length @ 1..) = pipe.read(&mut piece) {
            if send.send(piece[..length].to_vec()).is_err() {
                return;
            }
        }
    });
    receive
}

fn drain(pipe: Option<Receiver<Vec<u8>>>, deadline: Instant) -> String {
    let mut bytes = Vec::new();
    let Some(pipe) = pipe else { return String::new() };
    while let Ok(piece) = pipe.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
        if bytes.len() < MOST_OUTPUT_BYTES {
            bytes.extend(piece);
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns the child's status; `None` if it had to be killed. A child that does not end even then, because it hangs in a
/// driver, is left alone.
fn reap(child: &mut Child) -> Option<ExitStatus> {
    // A child that has closed its output needs a moment to end.
    if let Some(status) = wait_shortly(child) {
        return Some(status);
    }
    // Fails only if the child has ended meanwhile.
    child.kill().ok();
    wait_shortly(child);
    None
}

fn wait_shortly(child: &mut Child) -> Option<ExitStatus> {
    for _ in 0..50 {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    None
}

/// Returns the failure of a probe that was killed or that ended with an error; `None` if it succeeded.
fn abnormal_end(status: Option<ExitStatus>, stage: Stage, errors: &str, limit: Duration) -> Option<Failure> {
    let doing = match stage {
        Stage::Load => "loading the plugin",
        Stage::Client => "starting a client",
        Stage::Proof => "running a matmul",
    };
    let (reason, mut message) = match status {
        None => (Reason::Hung, format!("{doing} did not end within {} s", limit.as_secs())),
        Some(status) if status.success() => return None,
        Some(status) => (Reason::Died, format!("{doing} ended the process: {}", describe(status))),
    };
    let lines: Vec<&str> = errors.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = &lines[lines.len().saturating_sub(SHOWN_STDERR_LINES)..];
    last.iter().for_each(|line| message.push_str(&format!("\n{line}")));
    Some(Failure { stage, reason, message })
}

fn describe(status: ExitStatus) -> String {
    let name = match status.signal() {
        None => return status.to_string(),
        Some(4) => "illegal instruction",
        Some(6) => "abort",
        Some(7) => "bus error: the file may be truncated",
        Some(9) => "killed, perhaps for lack of memory",
        Some(11) => "segmentation fault",
        Some(_) => "signal",
    };
    format!("{name} ({status})")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, limit: Duration) -> Outcome {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        listen(command.spawn().unwrap(), Stage::Load, limit)
    }

    #[test]
    fn a_child_that_hangs_is_killed_and_its_lines_are_kept() {
        let client = serde_json::to_string(&Line::Begins { stage: Stage::Client }).unwrap();
        let outcome = shell(&format!("echo '{client}'; exec sleep 600"), Duration::from_millis(300));
        let failure = outcome.failure.unwrap();
        assert_eq!((failure.stage, failure.reason), (Stage::Client, Reason::Hung));
        assert!(failure.message.contains("starting a client did not end"), "{}", failure.message);
    }

    #[test]
    fn a_child_that_dies_is_reported_with_its_signal_and_stderr() {
        let outcome = shell("echo noise; echo 'F0000 Unknown flag' >&2; kill -ABRT $$", Duration::from_secs(60));
        let failure = outcome.failure.unwrap();
        assert_eq!((failure.stage, failure.reason), (Stage::Load, Reason::Died));
        assert!(failure.message.contains("abort") && failure.message.contains("Unknown flag"), "{}", failure.message);
        assert!(outcome.lines.is_empty());
    }

    #[test]
    fn a_child_that_succeeds_has_no_failure() {
        assert!(shell("exit 0", Duration::from_secs(60)).failure.is_none());
    }
}
