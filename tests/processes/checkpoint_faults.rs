//! Checkpoints of processes that are killed, of full disks and of folders that cannot be written: whatever happens, every
//! checkpoint that is there loads.
//!
//! `CHECKPOINT_KILLS` sets the number of kills; `cargo test --workspace --test checkpoint_faults` does ten.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a child process tells its parent how far it is")]

use crate::common;
use crate::resumable;

use burn_tpu::{TpuDevice, TpuOptions};
use burn_tpu_train::{Checkpointer, Restored};
use common::child;
use resumable::Run;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Steps from one checkpoint to the next.
const INTERVAL: u64 = 5;

/// The most steps of a process before it is killed, and the longest time after the last of them.
const MOST_STEPS: u64 = 17;
const LONGEST_MS: u64 = 50;

/// Plays a process.
#[test]
fn child() {
    let Ok(scenario) = std::env::var("SCENARIO") else { return };
    let folder = std::env::var("FOLDER").unwrap();
    match scenario.as_str() {
        "train" => train(Path::new(&folder), std::env::var("STEPS").unwrap().parse().unwrap()),
        "full disk" => full_disk(common::cpu().expect("the plugin"), Path::new(&folder)),
        "read-only" => read_only(Path::new(&folder)),
        other => panic!("{other}"),
    }
}

/// Trains to a step, with checkpoints, and says each step. The options are those of a user, with a cache of programs, which
/// all processes share.
fn train(folder: &Path, steps: u64) {
    let device = TpuDevice::cpu(0);
    let options = TpuOptions::training().disk_cache_dir(std::env::var("PROGRAMS").unwrap());
    options.disk_cache_least_compile(Duration::ZERO).install(&device).unwrap();
    let mut checkpoints = Checkpointer::open(folder.join("run")).unwrap();
    let mut run = Run::new(device, 1);
    if let Some(saved) = checkpoints.restore().unwrap() {
        run = run.restore(&saved);
    }
    while run.step < steps {
        run.step();
        match run.step % INTERVAL {
            0 => checkpoints.save(run.checkpoint()).unwrap(),
            // Writing may take one step, so that one interval is the most that can be lost.
            1 => checkpoints.wait().unwrap(),
            _ => {}
        }
        println!("step {}", run.step);
    }
    checkpoints.wait().unwrap();
    println!(
        "losses {:08x}",
        crc32fast::hash(&run.losses.iter().flat_map(|bits| bits.to_le_bytes()).collect::<Vec<_>>())
    );
}

fn command(folder: &Path, programs: &Path, steps: u64) -> Command {
    let mut command = child::command(module_path!(), "train");
    command.env("FOLDER", folder).env("STEPS", steps.to_string()).env("PROGRAMS", programs);
    command.stdout(Stdio::piped());
    command
}

/// Returns the number after the last `step` that a process printed.
fn last_step(text: &str) -> Option<u64> {
    text.lines().rev().find_map(|line| line.strip_prefix("step ")?.parse().ok())
}

/// Starts a training process, kills it this long after it took some steps, and returns the last step that it said it took.
fn killed_after(folder: &Path, programs: &Path, steps: u64, life: Duration) -> u64 {
    let mut child = command(folder, programs, u64::MAX).spawn().expect("it starts");
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut text = String::new();
    while text.lines().filter(|line| line.starts_with("step ")).count() < steps as usize {
        assert_ne!(output.read_line(&mut text).unwrap(), 0, "it ended: {text}");
    }
    std::thread::sleep(life);
    child.kill().unwrap();
    child.wait().unwrap();
    output.read_to_string(&mut text).unwrap();
    // The last line may be half a line, which is no step that was said.
    last_step(&text[..text.rfind('\n').map_or(0, |end| end + 1)]).unwrap()
}

/// Runs to a step and returns the digest of all losses.
fn losses(folder: &Path, programs: &Path, steps: u64) -> String {
    let output = command(folder, programs, steps).output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let digest = text.lines().find_map(|line| line.strip_prefix("losses "));
    digest.unwrap_or_else(|| panic!("{text}{}", String::from_utf8_lossy(&output.stderr))).to_owned()
}

#[test]
fn a_run_that_is_killed_at_random_moments_loses_at_most_one_interval_and_no_bit() {
    if !common::has_cpu_plugin() {
        return;
    }
    let kills = std::env::var("CHECKPOINT_KILLS").ok().map_or(10, |kills| kills.parse::<u64>().unwrap());
    let [folder, straight, programs] = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let (mut newest, mut lost, mut left_overs) = (0, 0, 0);
    for kill in 0..kills {
        let random = (kill + 1) * 7919;
        let life = Duration::from_millis(random * 31 % LONGEST_MS);
        let last = killed_after(folder.path(), programs.path(), 1 + random % MOST_STEPS, life);
        let run = folder.path().join("run");
        let names = std::fs::read_dir(&run).unwrap().map(|entry| entry.unwrap().file_name());
        left_overs += names.filter(|name| name.to_string_lossy().starts_with('.')).count();
        let checkpoints = Checkpointer::open(&run).unwrap();
        let steps = checkpoints.steps().unwrap();
        for step in &steps {
            Restored::read(run.join(format!("step-{step:08}"))).unwrap();
        }
        let saved = steps.last().copied().unwrap_or(0);
        assert!(saved + INTERVAL >= last && saved >= newest, "kill {kill}: of {last} steps, {saved} are saved");
        (newest, lost) = (saved, lost.max(last.saturating_sub(saved)));
    }
    eprintln!("{kills} kills: {newest} steps saved, at most {lost} lost, {left_overs} times amid writing or removing");
    assert!(newest > 0, "no process lived long enough");
    let steps = newest + 7;
    let [resumed, straight] = [&folder, &straight].map(|folder| losses(folder.path(), programs.path(), steps));
    assert_eq!(resumed, straight, "after {kills} kills");
}

/// Runs a scenario in a process whose view of the disk is its own: `mount` sets it up, with the folder as `$FOLDER`. Returns
/// `false` where that is not permitted.
fn on_a_disk_of_its_own(scenario: &str, folder: &Path, mount: &str) -> bool {
    let may_mount = Command::new("unshare").args(["-m", "true"]).status().is_ok_and(|status| status.success());
    if !may_mount {
        eprintln!("skipped: `{scenario}` needs `unshare -m`, which this user may not run");
        return false;
    }
    let script = format!("{mount} && exec \"$0\" \"$@\"");
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", &script]).arg(std::env::current_exe().expect("this test"));
    command.args(child::arguments(module_path!()));
    let output = command.env("SCENARIO", scenario).env("FOLDER", folder).output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{scenario}: {text}");
    true
}

/// A disk that has space for two checkpoints.
fn full_disk(device: TpuDevice, folder: &Path) {
    let mut checkpoints = Checkpointer::open(folder).unwrap().keep_last(9);
    let mut run = Run::new(device, 1);
    let (mut saved, mut said) = (Vec::new(), String::new());
    while said.is_empty() {
        run.step();
        checkpoints.save(run.checkpoint()).unwrap();
        match checkpoints.wait() {
            Ok(()) => saved.push(run.step),
            Err(error) => said = error.to_string(),
        }
    }
    assert!(said.contains("cannot write") && said.contains("free some space"), "{said}");
    assert!(said.contains(".safetensors") || said.contains("state.cbor") || said.contains("manifest.json"), "{said}");
    assert!(!saved.is_empty(), "the disk is too small for the test");
    assert_eq!(checkpoints.steps().unwrap(), saved, "nothing is lost");
    let found = checkpoints.restore().unwrap().unwrap();
    assert_eq!(found.step(), *saved.last().unwrap());
    assert!(!std::fs::read_dir(folder).unwrap().any(|e| e.unwrap().file_name().to_string_lossy().starts_with('.')));
    // The run goes on, and with some space it saves again.
    run.step();
    std::fs::remove_dir_all(folder.join(format!("step-{:08}", saved[0]))).unwrap();
    checkpoints.save(run.checkpoint()).unwrap();
    checkpoints.wait().unwrap();
    assert_eq!(checkpoints.restore().unwrap().unwrap().step(), run.step);
}

#[test]
fn a_full_disk_is_a_clear_error_and_loses_nothing() {
    if !common::has_cpu_plugin() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    on_a_disk_of_its_own("full disk", folder.path(), "mount -t tmpfs -o size=1m tmpfs \"$FOLDER\"");
}

/// A folder with a checkpoint, which cannot be written.
fn read_only(folder: &Path) {
    let said = Checkpointer::open(folder).unwrap_err().to_string();
    assert!(said.contains("cannot open the lock") && said.contains("that it may write to"), "{said}");
    let saved = Restored::read(folder.join("step-00000003")).unwrap();
    assert_eq!(saved.value::<u64>("position").unwrap(), 7, "reading one needs no lock");
}

#[test]
fn a_read_only_folder_is_a_clear_error_and_can_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let mut checkpoints = Checkpointer::open(folder.path()).unwrap();
    checkpoints.save(burn_tpu_train::Checkpoint::new(3).value("position", &7u64)).unwrap();
    drop(checkpoints);
    let mount = "mount --bind \"$FOLDER\" \"$FOLDER\" && mount -o remount,ro,bind \"$FOLDER\"";
    on_a_disk_of_its_own("read-only", folder.path(), mount);
}
