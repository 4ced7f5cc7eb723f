//! `burn-tpu launch`: runs a program once for each process of a group, on this host or on many.
//!
//! Owns: which processes there are and what they are told (`plan.rs`), how one is started and ended (`worker.rs`), and what
//! happens when one ends. The output of each is passed on with its number in front of each line. When one fails, the others
//! are ended: without it, they would wait for ever. When one was preempted and has saved, the others do the same by
//! themselves. Then all are started again, if that was asked for.

use burn_tpu_runtime::distributed::PREEMPTED;
use plan::{Host, Plan};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use worker::Worker;

mod plan;
mod worker;

pub use plan::{quoted, variable};

/// Options of the launcher.
#[derive(clap::Args)]
pub struct Args {
    /// Hosts, with the number of processes of each if it is not one: `a,b`, or `localhost:4`
    #[arg(long, value_name = "HOST[:PROCESSES],…", value_delimiter = ',', required_unless_present = "processes")]
    hosts: Vec<Host>,
    /// Number of processes on this host: short for `--hosts localhost:N`
    #[arg(long, value_name = "N", conflicts_with = "hosts", value_parser = clap::value_parser!(u16).range(1..))]
    processes: Option<u16>,
    /// Port of the first host where its first process serves the store that all share
    #[arg(long, default_value_t = 8479)]
    port: u16,
    /// A Redis or Valkey server that is there already: `redis://host:port#RUN`, with a name that no other run has
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// Variable that the processes on other hosts get too, with its value here or another
    #[arg(long, value_name = "NAME[=VALUE]")]
    env: Vec<String>,
    /// Set libtpu's TPU_WORKER_ID and TPU_WORKER_HOSTNAMES, where no metadata server tells it its hosts
    #[arg(long)]
    tpu: bool,
    /// Command that reaches another host: it gets the host's name and a line for its shell
    #[arg(long, default_value = "ssh", value_name = "COMMAND")]
    ssh: String,
    /// Seconds between the request to end and the end by force
    #[arg(long, default_value_t = 30, value_name = "SECONDS")]
    grace: u64,
    /// Start all processes again, so many times at most, when one failed or was preempted: a second later, then after
    /// twice as long each time, a minute at most
    #[arg(long, default_value_t = 0, value_name = "N")]
    restarts: u32,
    /// Start again without the hosts that ssh does not reach (its exit code 255), if so many processes are left
    #[arg(long, value_name = "PROCESSES", requires = "restarts")]
    at_least: Option<u16>,
    /// The program with its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    program: Vec<String>,
}

/// The exit code of ssh if it does not reach its host.
const UNREACHED: u8 = 255;

const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// What the launcher waits for.
enum Event {
    Ended(usize, io::Result<ExitStatus>),
    Signal(i32),
}

/// Runs the command. Returns the exit code of the process that failed first, at the last start; that of a preempted run if
/// all have saved; or success.
pub fn run(args: &Args) -> ExitCode {
    match launch(args) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            say(&error);
            ExitCode::FAILURE
        }
    }
}

fn launch(args: &Args) -> Result<u8, String> {
    let (events, received) = channel();
    forward_signals(events.clone()).map_err(|error| format!("no handler of signals: {error}"))?;
    let mut hosts = plan::hosts(args);
    let mut start = 0;
    loop {
        let plan = Plan::new(args, &hosts, start)?;
        let mut group = Group::new(Duration::from_secs(args.grace));
        group.start(&plan, &events);
        group.watch(&received);
        let code = group.code();
        let (was_told, unreached) = (group.was_told, std::mem::take(&mut group.unreached));
        group.workers.into_iter().for_each(Worker::finish_output);
        if code == 0 || was_told || start == args.restarts {
            return Ok(code);
        }
        let left = plan::without(&hosts, &unreached);
        if args.at_least.is_some_and(|least| plan::count(&left) >= usize::from(least).max(1)) {
            hosts = left;
        }
        let pause = Duration::from_secs(1 << start.min(6)).min(LONGEST_PAUSE);
        start += 1;
        let (restarts, processes) = (args.restarts, plan::count(&hosts));
        say(&format!("restart {start} of {restarts} in {} s, processes: {processes}", pause.as_secs()));
        if let Ok(Event::Signal(signal)) = received.recv_timeout(pause) {
            return Ok(128 + signal as u8);
        }
    }
}

fn forward_signals(events: Sender<Event>) -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    std::thread::spawn(move || signals.forever().try_for_each(|signal| events.send(Event::Signal(signal))));
    Ok(())
}

/// The processes that were started.
struct Group {
    workers: Vec<Worker>,
    /// The processes on other hosts that ended as ssh does when it does not reach its host.
    unreached: Vec<usize>,
    /// Whether the launcher itself got a signal.
    was_told: bool,
    /// The exit code, once a process failed or a signal came.
    outcome: Option<u8>,
    /// Whether a process was preempted and has saved, and whether one ended in another way than well.
    saved: bool,
    failed: bool,
    /// When those that are left are killed.
    force_at: Option<Instant>,
    grace: Duration,
}

impl Group {
    fn new(grace: Duration) -> Self {
        Self {
            workers: Vec::new(),
            unreached: Vec::new(),
            was_told: false,
            outcome: None,
            saved: false,
            failed: false,
            force_at: None,
            grace,
        }
    }

    fn start(&mut self, plan: &Plan, events: &Sender<Event>) {
        for process in &plan.processes {
            match Worker::start(process, events.clone()) {
                Ok(worker) => self.workers.push(worker),
                Err(error) => {
                    self.fail(1, &format!("process {} does not start: {error}", process.index));
                    break;
                }
            }
        }
    }

    /// Waits until all processes have ended.
    fn watch(&mut self, events: &Receiver<Event>) {
        while self.workers.iter().any(|worker| worker.is_running) {
            let left = self.force_at.map(|at| at.saturating_duration_since(Instant::now()));
            let event = match left {
                None => events.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(left) => events.recv_timeout(left),
            };
            match event {
                Ok(Event::Ended(index, status)) => self.ended(index, &status),
                Ok(Event::Signal(signal)) => self.signal(signal),
                Err(RecvTimeoutError::Timeout) => self.force(),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn ended(&mut self, index: usize, status: &io::Result<ExitStatus>) {
        self.workers[index].is_running = false;
        if self.workers[index].is_remote && status.as_ref().is_ok_and(|status| code_of(*status) == UNREACHED) {
            self.unreached.push(index);
        }
        match status {
            Ok(status) if status.success() => {}
            Ok(status) if code_of(*status) == PREEMPTED => self.preempted(index),
            Ok(status) => self.fail(code_of(*status), &format!("process {index} failed: {status}")),
            Err(error) => self.fail(1, &format!("process {index} is lost: {error}")),
        }
    }

    /// Gives the others time: all stop after the same step, and save.
    fn preempted(&mut self, index: usize) {
        if !self.saved {
            let grace = self.grace.as_secs();
            say(&format!("process {index} was preempted and has saved; the others have {grace} s to do so"));
        }
        self.saved = true;
        self.force_at.get_or_insert(Instant::now() + self.grace);
    }

    fn code(&self) -> u8 {
        let is_saved = self.saved && !self.failed;
        if is_saved { PREEMPTED } else { self.outcome.unwrap_or(0) }
    }

    /// Ends all processes if this is the first failure. Later ones follow from it.
    fn fail(&mut self, code: u8, reason: &str) {
        self.failed = true;
        if self.outcome.is_none() {
            say(&format!("{reason}; the others are ended"));
            self.outcome = Some(code);
            self.end(SIGTERM);
        }
    }

    /// Passes a signal on; the second one ends by force.
    fn signal(&mut self, signal: i32) {
        self.was_told = true;
        if self.force_at.is_some() {
            return self.force();
        }
        self.outcome.get_or_insert(128 + signal as u8);
        self.end(signal);
    }

    fn end(&mut self, signal: i32) {
        self.force_at = Some(Instant::now() + self.grace);
        self.workers.iter_mut().filter(|worker| worker.is_running).for_each(|worker| worker.end(signal));
    }

    fn force(&mut self) {
        self.force_at = Some(Instant::now() + self.grace);
        self.workers.iter_mut().filter(|worker| worker.is_running).for_each(Worker::kill);
    }
}

/// Returns the exit code of a process; for one that a signal ended, as a shell does.
fn code_of(status: ExitStatus) -> u8 {
    let code = status.code().or(status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

#[allow(clippy::print_stderr, reason = "the launcher's own words, beside the output of its processes")]
fn say(text: &str) {
    eprintln!("burn-tpu launch: {text}");
}
