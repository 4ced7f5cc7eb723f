//! Preemption: a run that is told to end finishes its step, saves and ends; started again, it goes on. Several processes
//! stop after the same step.

#![allow(clippy::print_stdout, reason = "a child process tells its parent what it did")]

use crate::common;
use crate::resumable;

use burn_tpu::{TpuDevice, distributed};
use burn_tpu_train::{Cause, Checkpointer, Preemption, PreemptionError};
use common::{child, has_libtpu};
use resumable::Run;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// The step in which a run waits until it is told to end, and the last one.
const TOLD: u64 = 3;
const LAST: u64 = 6;

const SIGINT: i32 = 2;
const SIGTERM: i32 = 15;

/// A process that plays a scenario, and the lines that it prints.
struct Player {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Player {
    fn start(scenario: &str, variables: &[(&str, &str)]) -> Self {
        let mut command = child::command(module_path!(), scenario);
        let mut child = command.envs(variables.iter().copied()).stdout(Stdio::piped()).spawn().expect("it starts");
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        Self { child, output }
    }

    /// Waits for a line, and returns what follows its name.
    fn line(&mut self, name: &str) -> String {
        for line in self.output.by_ref().lines() {
            if let Some(rest) = line.expect("text").strip_prefix(name) {
                return rest.trim().to_owned();
            }
        }
        panic!("it ended without {name:?}: {:?}", self.child.wait());
    }

    fn signal(&self, signal: i32) {
        let sent = Command::new("sh").args(["-c", &format!("kill -{signal} {}", self.child.id())]).status();
        assert!(sent.expect("sh").success());
    }

    /// Returns the rest of the output, and how the process ended.
    fn end(mut self) -> (String, ExitStatus) {
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).expect("text");
        (rest, self.child.wait().expect("it ran"))
    }
}

/// Plays one process.
#[test]
fn child() {
    let Ok(scenario) = std::env::var("SCENARIO") else { return };
    match &*scenario {
        "trains" => trains(),
        "stubborn" => stubborn(),
        "dropped" => dropped(),
        "group" => group(),
        "plugin first" => plugin(true),
        "plugin last" => plugin(false),
        other => panic!("{other}"),
    }
}

fn folder() -> String {
    std::env::var("FOLDER").expect("it is set")
}

/// A run that saves only when it is told to end. If `IS_TOLD` is set, it waits for that in a step.
fn trains() {
    let preemption = Preemption::watch().expect("it listens");
    let mut checkpoints = Checkpointer::open(folder()).expect("a folder");
    let mut run = Run::new(TpuDevice::ndarray(), 1);
    if let Some(saved) = checkpoints.restore().expect("intact") {
        println!("\nresumed: {}", saved.step());
        run = run.restore(&saved);
    }
    while run.step < LAST {
        if run.step + 1 == TOLD && std::env::var_os("IS_TOLD").is_some() {
            println!("\nwaits: in step {TOLD}");
            wait_for_notice(&preemption);
        }
        run.step();
        if let Some(notice) = preemption.stop_after(run.step).expect("it is alone") {
            checkpoints.save(run.checkpoint()).expect("it is saved");
            checkpoints.wait().expect("it is written");
            println!("\nsaved: {} since {notice}", run.step);
            std::process::exit(i32::from(Preemption::EXIT_CODE));
        }
    }
    println!("\nlosses: {:?}", run.losses);
}

fn wait_for_notice(preemption: &Preemption) {
    while preemption.requested().is_none() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn trains_until_told(folder: &Path, variables: &[(&str, &str)]) -> Player {
    let folder = folder.to_str().expect("a name");
    let variables = [&[("FOLDER", folder), ("IS_TOLD", "1")], variables].concat();
    let mut player = Player::start("trains", &variables);
    player.line("waits:");
    player
}

/// Returns the losses of a run that is not told to end.
fn trains_to_the_end(folder: &Path, resumes_from: Option<u64>) -> String {
    let mut player = Player::start("trains", &[("FOLDER", folder.to_str().expect("a name"))]);
    if let Some(step) = resumes_from {
        assert_eq!(player.line("resumed:"), step.to_string());
    }
    let losses = player.line("losses:");
    assert!(player.end().1.success());
    losses
}

#[test]
fn a_run_that_gets_a_signal_ends_its_step_saves_and_goes_on_when_it_is_started_again() {
    let whole = tempfile::tempdir().expect("a folder");
    let losses = trains_to_the_end(whole.path(), None);
    for (signal, name) in [(SIGTERM, "SIGTERM"), (SIGINT, "SIGINT")] {
        let folder = tempfile::tempdir().expect("a folder");
        let mut player = trains_until_told(folder.path(), &[]);
        player.signal(signal);
        // The step in which it was told, and no further one.
        assert_eq!(player.line("saved:"), format!("{TOLD} since {name} was received"));
        assert_eq!(player.end().1.code(), Some(i32::from(Preemption::EXIT_CODE)));
        assert_eq!(trains_to_the_end(folder.path(), Some(TOLD)), losses);
    }
}

/// A metadata server, whose value of one key changes once it is told to.
struct MetadataServer {
    address: String,
    change: Arc<AtomicBool>,
}

impl MetadataServer {
    fn start(changing: &'static str, to: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound").to_string();
        let change = Arc::new(AtomicBool::new(false));
        let changes = Arc::clone(&change);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (mut stream, changes) = (stream.expect("a connection"), Arc::clone(&changes));
                std::thread::spawn(move || answer(&mut stream, changing, to, &changes));
            }
        });
        Self { address, change }
    }
}

/// Answers with the first value at once, and with another one only when it is there.
fn answer(stream: &mut TcpStream, changing: &str, to: &str, change: &AtomicBool) {
    let mut question = String::new();
    BufReader::new(&*stream).read_line(&mut question).expect("a question");
    let first = if question.contains("preempted") { "FALSE" } else { "NONE" };
    let waits = question.contains("wait_for_change=true");
    while waits && !(question.contains(changing) && change.load(Relaxed)) {
        std::thread::sleep(Duration::from_millis(1));
    }
    let value = if waits { to } else { first };
    let head = "HTTP/1.1 200 OK\r\nMetadata-Flavor: Google\r\nETag: 1\r\nConnection: close";
    let length = value.len();
    write!(stream, "{head}\r\nContent-Length: {length}\r\n\r\n{value}").expect("it listens");
}

#[test]
fn notices_of_the_metadata_server_end_a_run() {
    let maintenance = "TERMINATE_ON_HOST_MAINTENANCE";
    let notices = [
        ("preempted", "TRUE", "the machine is preempted".to_owned()),
        ("maintenance-event", maintenance, format!("the machine's host is maintained ({maintenance})")),
    ];
    for (key, value, cause) in notices {
        let server = MetadataServer::start(key, value);
        let folder = tempfile::tempdir().expect("a folder");
        let mut player = trains_until_told(folder.path(), &[("GCE_METADATA_HOST", &server.address)]);
        server.change.store(true, Relaxed);
        assert_eq!(player.line("saved:"), format!("{TOLD} since {cause}"));
        assert_eq!(player.end().1.code(), Some(i32::from(Preemption::EXIT_CODE)));
    }
}

/// Never ends its step.
fn stubborn() -> ! {
    let preemption = Preemption::watch().expect("it listens");
    println!("\nlistens");
    wait_for_notice(&preemption);
    assert!(matches!(preemption.requested().map(|notice| &notice.cause), Some(Cause::Signal { signal: SIGTERM })));
    println!("\nheard");
    loop {
        std::thread::park();
    }
}

#[test]
fn a_second_signal_ends_the_process_at_once() {
    let mut player = Player::start("stubborn", &[]);
    player.line("listens");
    player.signal(SIGTERM);
    player.line("heard");
    // Those that follow at once are the same request.
    let status = loop {
        player.signal(SIGINT);
        std::thread::sleep(Duration::from_millis(100));
        if let Some(status) = player.child.try_wait().expect("it ran") {
            break status;
        }
    };
    assert_eq!(status.signal(), Some(SIGINT));
}

fn dropped() -> ! {
    let preemption = Preemption::watch().expect("it listens");
    assert!(matches!(Preemption::watch(), Err(PreemptionError::AlreadyWatching)));
    drop(preemption);
    drop(Preemption::watch().expect("there is no other one any more"));
    println!("\ndropped");
    loop {
        std::thread::park();
    }
}

/// Hears a signal although libtpu, which was loaded before or after, may have a handler too.
fn plugin(is_first: bool) {
    let load = || {
        let device = TpuDevice::topology("v5e:2x2").expect("a slice");
        device.sync().expect("libtpu is here");
    };
    if is_first {
        load();
    }
    let preemption = Preemption::watch().expect("it listens");
    if !is_first {
        load();
    }
    println!("\nloaded");
    wait_for_notice(&preemption);
    println!("\nheard");
}

#[test]
fn signals_are_heard_with_libtpu() {
    if !has_libtpu() {
        return;
    }
    for scenario in ["plugin first", "plugin last"] {
        for signal in [SIGTERM, SIGINT] {
            let mut player = Player::start(scenario, &[]);
            player.line("loaded");
            player.signal(signal);
            player.line("heard");
            assert!(player.end().1.success());
        }
    }
}

#[test]
fn nothing_is_heard_after_the_last_step() {
    let mut player = Player::start("dropped", &[]);
    player.line("dropped");
    player.signal(SIGTERM);
    assert_eq!(player.end().1.signal(), Some(SIGTERM));
}

/// One of several processes. Their steps take different times, and each waits for no other.
fn group() {
    let index = distributed::process_index().expect("valid variables");
    let preemption = Preemption::watch().expect("it listens");
    for step in 1.. {
        if step == 5 {
            println!("\nin step 5");
            if std::env::var("ENDS").is_ok_and(|ends| ends == index.to_string()) {
                std::process::abort();
            }
        }
        std::thread::sleep(Duration::from_millis(3 + 4 * index as u64));
        match preemption.stop_after(step) {
            Ok(None) => {}
            Ok(Some(notice)) => {
                println!("\nsaved: {step} since {notice}");
                std::process::exit(i32::from(Preemption::EXIT_CODE));
            }
            Err(error) => {
                println!("\nerror: {error}");
                std::process::exit(1);
            }
        }
    }
}

fn start_group(ends: &str, timeout: &str) -> Vec<Player> {
    let store = format!("redis://{}", distributed::serve("127.0.0.1:0").expect("a free port"));
    let start = |index: usize| {
        let process = format!("{index}/3");
        let of_group =
            [("BURN_TPU_PROCESS", &*process), ("BURN_TPU_STORE", &store), ("BURN_TPU_STORE_TIMEOUT_S", timeout)];
        Player::start("group", &[&of_group[..], &[("ENDS", ends)]].concat())
    };
    let mut players: Vec<_> = (0..3).map(start).collect();
    players.iter_mut().for_each(|player| drop(player.line("in step 5")));
    players
}

#[test]
fn processes_stop_after_the_same_step_when_one_is_told() {
    for told in 0..3 {
        let mut players = start_group("none", "300");
        players[told].signal(SIGTERM);
        let saved: Vec<_> = players.iter_mut().map(|player| player.line("saved:")).collect();
        let parts: Vec<_> = saved.iter().filter_map(|line| line.split_once(" since ")).collect();
        assert!(parts.len() == 3 && parts.iter().all(|(step, _)| *step == parts[0].0), "{saved:?}");
        for (process, (_, reason)) in parts.iter().enumerate() {
            let teller = if process == told { String::new() } else { format!("process {told}: ") };
            assert_eq!(*reason, format!("{teller}SIGTERM was received"));
        }
        for player in players {
            assert_eq!(player.end().1.code(), Some(i32::from(Preemption::EXIT_CODE)));
        }
    }
}

#[test]
fn processes_do_not_save_when_one_of_them_is_lost() {
    let mut players = start_group("2", "2");
    players[0].signal(SIGTERM);
    let lost = players.pop().expect("three");
    assert!(!lost.end().1.success());
    for player in players {
        let (output, status) = player.end();
        assert!(output.contains("error: process 2 of 3 did not come") && !output.contains("saved:"), "{output}");
        assert_eq!(status.code(), Some(1));
    }
}
