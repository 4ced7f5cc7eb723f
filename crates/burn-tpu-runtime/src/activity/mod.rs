//! What a device does at this moment: the programs in flight, and what the threads of this process wait for.
//!
//! Owns: the list of waits, into which every call that may block enters itself. May not know: who asks, and which wait is
//! too long. The list is short and an entry is two locks of it, so that waits are always noted.

mod program;

pub(crate) use program::describe;

use crate::Device;
use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::{Thread, ThreadId};
use std::time::{Duration, Instant};

/// What a thread waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitFor {
    /// The device's start: its plugin, and on some platforms the other processes.
    Start,
    /// A program that is being compiled.
    Compile {
        /// A description of the program.
        program: Arc<str>,
    },
    /// The dispatch of a program, which waits if too many are in flight.
    Dispatch,
    /// A value that is copied to the device.
    Upload,
    /// A value that is copied to the host, once the programs that compute it have run.
    Read,
    /// The end of all programs of the device.
    Programs,
    /// Another process of the group.
    Process {
        /// Its number.
        process: usize,
        /// What it has to put into the store.
        key: String,
    },
    /// The threads of the other devices that train together.
    Threads,
}

/// A thread of this process that waits.
#[derive(Clone, Debug)]
pub struct Wait {
    /// The thread's id.
    pub thread: ThreadId,
    /// The thread's name, if it has one.
    pub name: Option<String>,
    /// The device that it waits for; `None` for another process.
    pub device: Option<Device>,
    /// What it waits for.
    pub what: WaitFor,
    /// How long it has been waiting.
    pub time: Duration,
}

/// A dispatched program that has not finished.
#[derive(Clone, Debug)]
pub struct RunningProgram {
    /// A description: the start of its hash, its size and its largest work.
    pub program: Arc<str>,
    /// The time since its dispatch. Before it runs, the programs that were dispatched earlier have to end.
    pub time: Duration,
}

/// What a device does at this moment. Its text has a line for each program and wait.
#[derive(Clone, Debug)]
pub struct Activity {
    /// The device.
    pub device: Device,
    /// The programs in flight, oldest first. The first one runs, or waits for another device or process.
    pub programs: Vec<RunningProgram>,
    /// The threads that wait for the device or for another process, in the order in which they began.
    pub waits: Vec<Wait>,
}

/// A wait in the list.
struct Entry {
    number: u64,
    thread: Thread,
    device: Option<Device>,
    what: WaitFor,
    begun: Instant,
}

static WAITS: Mutex<Vec<Entry>> = Mutex::new(Vec::new());

/// The calling thread's wait, which ends with this value.
pub(crate) struct Waiting(u64);

impl Waiting {
    /// Notes that the calling thread waits from now on.
    pub(crate) fn new(device: Option<Device>, what: WaitFor) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Relaxed);
        let entry = Entry { number, thread: std::thread::current(), device, what, begun: Instant::now() };
        WAITS.lock().push(entry);
        Self(number)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        WAITS.lock().retain(|entry| entry.number != self.0);
    }
}

/// Returns the waits for a device and for other processes.
pub(crate) fn waits(device: Device) -> Vec<Wait> {
    let of = |entry: &Entry| Wait {
        thread: entry.thread.id(),
        name: entry.thread.name().map(str::to_owned),
        device: entry.device,
        what: entry.what.clone(),
        time: entry.begun.elapsed(),
    };
    WAITS.lock().iter().filter(|entry| entry.device.is_none_or(|of| of == device)).map(of).collect()
}

impl fmt::Display for WaitFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WaitFor::Start => f.write_str("the device's start"),
            WaitFor::Compile { program } => write!(f, "the compiler: {program}"),
            WaitFor::Dispatch => f.write_str("the dispatch of a program"),
            WaitFor::Upload => f.write_str("a value that is copied to the device"),
            WaitFor::Read => f.write_str("a value that is read"),
            WaitFor::Programs => f.write_str("the end of all programs"),
            WaitFor::Process { process, key } => write!(f, "process {process} ({key})"),
            WaitFor::Threads => f.write_str("the threads of the other devices"),
        }
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "thread {name}")?,
            None => write!(f, "{:?}", self.thread)?,
        }
        write!(f, " has waited {:.1?} for {}", self.time, self.what)
    }
}

impl fmt::Display for RunningProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, dispatched {:.1?} ago", self.program, self.time)
    }
}

impl fmt::Display for Activity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, programs, waits } = self;
        match programs.split_first() {
            None => write!(f, "{device}: no program in flight")?,
            Some((oldest, later)) => {
                write!(f, "{device}: {} in flight", programs.len())?;
                write!(f, "\n  oldest: {oldest}")?;
                later.last().map_or(Ok(()), |newest| write!(f, "\n  newest: {newest}"))?;
            }
        }
        waits.iter().try_for_each(|wait| write!(f, "\n  {wait}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_listed_for_its_device_until_it_ends() {
        let [ours, theirs] = [Device::cpu(60), Device::cpu(61)];
        let kinds = |device| waits(device).into_iter().map(|wait| wait.what).collect::<Vec<_>>();
        let read = Waiting::new(Some(ours), WaitFor::Read);
        let other = Waiting::new(Some(theirs), WaitFor::Upload);
        assert_eq!((kinds(ours), kinds(theirs)), (vec![WaitFor::Read], vec![WaitFor::Upload]));
        drop(read);
        assert_eq!((kinds(ours), kinds(theirs)), (vec![], vec![WaitFor::Upload]));
        drop(other);
        assert!(kinds(theirs).is_empty());
    }

    #[test]
    fn the_text_has_a_line_for_the_oldest_and_the_newest_program_and_for_each_wait() {
        let program = |name: &str, seconds| RunningProgram { program: name.into(), time: Duration::from_secs(seconds) };
        let what = WaitFor::Process { process: 3, key: "program/mesh/0/hash/3".into() };
        let (thread, name, time) = (std::thread::current().id(), Some("main".into()), Duration::from_millis(1500));
        let wait = Wait { thread, name, device: None, what, time };
        let programs = vec![program("first", 9), program("second", 8), program("third", 7)];
        let text = Activity { device: Device::cpu(0), programs, waits: vec![wait] }.to_string();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "cpu:0: 3 in flight",
                "  oldest: first, dispatched 9.0s ago",
                "  newest: third, dispatched 7.0s ago",
                "  thread main has waited 1.5s for process 3 (program/mesh/0/hash/3)",
            ]
        );
    }
}
