//! One process: its output, its end.

use super::Event;
use super::plan::Process;
use rustix::process::{Pid, Signal, kill_process_group};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::ChildStdin;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// How long output is awaited after the end of a process, whose own children may keep the pipe open.
const LAST_OUTPUT: Duration = Duration::from_secs(1);

pub struct Worker {
    pub is_running: bool,
    /// The process's number, which is also its group's.
    pid: Option<Pid>,
    /// Open as long as a process on another host is to run.
    stdin: Option<ChildStdin>,
    pub is_remote: bool,
    /// Disconnects when all output has been passed on.
    output: Receiver<()>,
}

impl Worker {
    /// Starts a process in a group of its own, so that a signal from the terminal comes from the launcher alone.
    pub fn start(process: &Process, events: Sender<Event>) -> io::Result<Self> {
        let mut child = process.command().process_group(0).spawn()?;
        let (sender, output) = channel();
        pass_on(process.index, child.stdout.take(), io::stdout, sender.clone());
        pass_on(process.index, child.stderr.take(), io::stderr, sender);
        let (pid, stdin, index) = (Some(Pid::from_child(&child)), child.stdin.take(), process.index);
        std::thread::spawn(move || events.send(Event::Ended(index, child.wait())));
        Ok(Self { is_running: true, pid, stdin, is_remote: process.is_remote, output })
    }

    /// Asks the process to end.
    pub fn end(&mut self, signal: i32) {
        if self.is_remote {
            self.stdin = None;
        } else {
            self.signal(if signal == signal_hook::consts::SIGINT { Signal::INT } else { Signal::TERM });
        }
    }

    /// Ends the process by force; one on another host ends with its connection.
    pub fn kill(&mut self) {
        self.signal(Signal::KILL);
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = self.pid {
            // Fails only if the process has ended meanwhile.
            kill_process_group(pid, signal).ok();
        }
    }

    /// Waits for the output that the process left.
    pub fn finish_output(self) {
        self.output.recv_timeout(LAST_OUTPUT).ok();
    }
}

/// Passes on each line with the number of its process. Lines of several processes do not mix.
fn pass_on<W: Write>(
    index: usize,
    pipe: Option<impl Read + Send + 'static>,
    to: impl Fn() -> W + Send + 'static,
    open: Sender<()>,
) {
    let Some(pipe) = pipe else { return };
    std::thread::spawn(move || {
        let _open = open;
        let (mut pipe, mut line) = (BufReader::new(pipe), Vec::new());
        while let Ok(1..) = pipe.read_until(b'\n', &mut line) {
            let end: &[u8] = if line.ends_with(b"\n") { b"" } else { b"\n" };
            let text = [format!("[{index}] ").as_bytes(), &line, end].concat();
            let mut to = to();
            // Without a reader of its output, the launcher goes on.
            to.write_all(&text).and_then(|()| to.flush()).ok();
            line.clear();
        }
    });
}
