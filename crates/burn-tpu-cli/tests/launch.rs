//! The launcher with real processes: shells that print what they were told, fail, or wait.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output, Stdio};

fn launch(options: &[&str], script: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_burn-tpu"));
    command.arg("launch").args(options).args(["--", "sh", "-c", script]);
    command
}

fn run(options: &[&str], script: &str) -> Output {
    launch(options, script).output().unwrap()
}

fn lines(bytes: &[u8]) -> Vec<String> {
    let mut lines: Vec<String> = String::from_utf8_lossy(bytes).lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn each_process_knows_its_number_and_its_lines_have_it() {
    let output = run(&["--processes", "3"], "echo I am $BURN_TPU_PROCESS; echo wrong >&2; printf last");
    assert!(output.status.success(), "{output:?}");
    let expected = ["[0] I am 0/3", "[0] last", "[1] I am 1/3", "[1] last", "[2] I am 2/3", "[2] last"];
    assert_eq!(lines(&output.stdout), expected);
    assert_eq!(lines(&output.stderr), ["[0] wrong", "[1] wrong", "[2] wrong"]);
}

#[test]
fn when_one_fails_the_others_end_and_its_code_is_returned() {
    let script = "case $BURN_TPU_PROCESS in 1/3) exit 7;; *) exec sleep 100000;; esac";
    let output = run(&["--hosts", "localhost:3"], script);
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("process 1 failed: exit status: 7; the others are ended"), "{text}");
    assert_eq!(text.matches("failed").count(), 1, "{text}");
}

#[test]
fn a_process_that_does_not_end_is_killed() {
    let script = "case $BURN_TPU_PROCESS in 1/2) exit 3;; *) trap '' TERM; while :; do sleep 1; done;; esac";
    let output = run(&["--processes", "2", "--grace", "1"], script);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
}

#[test]
fn a_signal_reaches_all_processes() {
    let script = "trap 'echo ends; exit 0' TERM; echo runs; while :; do sleep 1; done";
    let mut launcher = launch(&["--processes", "2"], script).stdout(Stdio::piped()).spawn().unwrap();
    let mut output = BufReader::new(launcher.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut started: Vec<String> = output.by_ref().take(2).collect();
    started.sort();
    assert_eq!(started, ["[0] runs", "[1] runs"]);
    let killed = Command::new("sh").args(["-c", &format!("kill -TERM {}", launcher.id())]).status().unwrap();
    assert!(killed.success());
    let mut rest: Vec<String> = output.collect();
    rest.sort();
    assert_eq!(rest, ["[0] ends", "[1] ends"]);
    assert_eq!(launcher.wait().unwrap().code(), Some(128 + 15));
}

#[test]
fn preempted_processes_end_by_themselves() {
    // The second takes longer to save. A SIGTERM from the launcher would end it.
    let script = "case $BURN_TPU_PROCESS in 0/2) exit 75;; *) sleep 1; echo saved; exit 75;; esac";
    let output = run(&["--processes", "2"], script);
    assert_eq!(output.status.code(), Some(75), "{output:?}");
    assert_eq!(lines(&output.stdout), ["[1] saved"]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("process 0 was preempted and has saved; the others have 30 s"), "{text}");
}

#[test]
fn a_preempted_run_that_is_not_saved_by_all_has_failed() {
    let script = "case $BURN_TPU_PROCESS in 0/2) exit 75;; *) sleep 1; exit 4;; esac";
    assert_eq!(run(&["--processes", "2"], script).status.code(), Some(4));
    let waits = "case $BURN_TPU_PROCESS in 0/2) exit 75;; *) exec sleep 100000;; esac";
    assert_eq!(run(&["--processes", "2", "--grace", "1"], waits).status.code(), Some(128 + 9));
}

#[test]
fn a_run_that_saves_at_a_signal_has_the_code_of_a_preempted_one() {
    let script = "trap 'exit 75' TERM; echo runs; while :; do sleep 1; done";
    let mut launcher = launch(&["--processes", "2"], script).stdout(Stdio::piped()).spawn().unwrap();
    let output = BufReader::new(launcher.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(output.take(2).count(), 2);
    let killed = Command::new("sh").args(["-c", &format!("kill -TERM {}", launcher.id())]).status().unwrap();
    assert!(killed.success());
    assert_eq!(launcher.wait().unwrap().code(), Some(75));
}

#[test]
fn a_program_that_does_not_exist_is_an_error() {
    let output = Command::new(env!("CARGO_BIN_EXE_burn-tpu"))
        .args(["launch", "--processes", "2", "--", "/no/such/program"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("process 0 does not start"), "{output:?}");
}

#[test]
fn a_run_that_fails_is_started_again() {
    let folder = tempfile::tempdir().unwrap();
    let starts = folder.path().join("starts");
    // Fails twice, in another process each time.
    let script = format!(
        "case $BURN_TPU_PROCESS in 0/2) echo >> {0}; n=$(wc -l < {0}); [ $n = 1 ] && exit 9; \
         until [ -e {0}.$n ]; do sleep 0.1; done;; *) sleep 0.5; n=$(wc -l < {0}); touch {0}.$n; \
         [ $n = 2 ] && kill -KILL $$;; esac; exit 0",
        starts.display()
    );
    let output = run(&["--processes", "2", "--restarts", "2"], &script);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{output:?}");
    for part in
        ["process 0 failed: exit status: 9", "restart 1 of 2 in 1 s, processes: 2", "process 1 failed: signal: 9"]
    {
        assert!(text.contains(part), "no {part}: {text}");
    }
    let output = run(&["--processes", "1", "--restarts", "1"], "exit 5");
    assert_eq!(output.status.code(), Some(5), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stderr).matches("failed").count(), 2, "{output:?}");
}

#[test]
fn a_run_that_was_told_to_end_is_not_started_again() {
    let script = "trap 'exit 75' TERM; echo runs; while :; do sleep 0.1; done";
    let mut launcher = launch(&["--processes", "1", "--restarts", "9"], script).stdout(Stdio::piped()).spawn().unwrap();
    let mut output = BufReader::new(launcher.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(output.next().as_deref(), Some("[0] runs"));
    Command::new("sh").args(["-c", &format!("kill -TERM {}", launcher.id())]).status().unwrap();
    assert_eq!((output.next(), launcher.wait().unwrap().code()), (None, Some(75)));
}

#[test]
fn hosts_that_are_not_reached_are_left_out() {
    let output =
        run_on_hosts("gone,b:2", &["--restarts", "1", "--at-least", "2"], "echo $BURN_TPU_PROCESS $BURN_TPU_STORE");
    assert!(output.status.success(), "{output:?}");
    let lines = lines(&output.stdout);
    for line in ["[0] 0/2 b:8479", "[1] 1/2 b:8479"] {
        assert!(lines.contains(&line.into()), "{output:?}");
    }
    // Too few would be left.
    let output = run_on_hosts("gone,b", &["--restarts", "1", "--at-least", "2"], "sleep 5");
    assert_eq!(output.status.code(), Some(255), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("restart 1 of 1 in 1 s, processes: 2"), "{output:?}");
}

/// Runs a launch on hosts that are this one, through a command that takes ssh's place. It does not reach the host `gone`.
fn run_on_hosts(hosts: &str, options: &[&str], script: &str) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let ssh = folder.path().join("ssh");
    // As ssh does: the host's name, and one line for the shell there.
    let line = "[ \"$1\" = gone ] && exit 255\nexec env -i PATH=\"$PATH\" sh -c \"$2\"\n";
    fs::write(&ssh, format!("#!/bin/sh\necho \"to $1\" >&2\n{line}")).unwrap();
    fs::set_permissions(&ssh, fs::Permissions::from_mode(0o755)).unwrap();
    run(&[&["--hosts", hosts, "--ssh", ssh.to_str().unwrap()], options].concat(), script)
}

#[test]
fn other_hosts_run_the_program_in_the_same_folder_with_the_variables() {
    let script = "pwd; echo \"$BURN_TPU_PROCESS $BURN_TPU_STORE $GREETING $TPU_WORKER_ID\"";
    let output = run_on_hosts("a,me@b", &["--tpu", "--env", "GREETING=it's here", "--port", "99"], script);
    assert!(output.status.success(), "{output:?}");
    let folder = std::env::current_dir().unwrap();
    let expected = [
        format!("[0] {}", folder.display()),
        "[0] 0/2 a:99 it's here 0".into(),
        format!("[1] {}", folder.display()),
        "[1] 1/2 a:99 it's here 1".into(),
    ];
    let mut expected = expected.to_vec();
    expected.sort();
    assert_eq!(lines(&output.stdout), expected);
    assert_eq!(lines(&output.stderr), ["[0] to a", "[1] to me@b"]);
}

#[test]
fn when_a_process_of_one_host_fails_those_of_the_others_end() {
    // The second fails when the first has set its trap.
    let folder = tempfile::tempdir().unwrap();
    let ready = folder.path().join("ready").display().to_string();
    let script = format!(
        "case $BURN_TPU_PROCESS in \
         0/2) trap 'echo ended; exit 0' TERM; touch {ready}; while :; do sleep 1; done;; \
         *) until [ -e {ready} ]; do sleep 0.1; done; exit 9;; esac"
    );
    let output = run_on_hosts("a,b", &[], &script);
    assert_eq!(output.status.code(), Some(9), "{output:?}");
    assert_eq!(lines(&output.stdout), ["[0] ended"], "{output:?}");
}
