//! The data of a running profile: spans of the host, and the programs of the device.

use super::ProgramOps;
use super::lines::{CutLines, Places};
use crate::Device;
use crate::lines::{OpStack, Stack};
use burn_tpu_graph::Label;
use burn_tpu_pjrt::Event;
use parking_lot::{Condvar, Mutex};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Whether a profile is running. Everything else is behind this flag.
static ACTIVE: AtomicBool = AtomicBool::new(false);

static SESSION: Mutex<Option<Arc<Session>>> = Mutex::new(None);

/// The most spans of a profile; further ones are counted and left out. A span takes about 60 bytes.
const MOST_SPANS: usize = 4_000_000;

/// How long the end of a profile waits for the last programs to be reported.
const LAST_REPORTS: Duration = Duration::from_secs(10);

/// The work of the host in a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It records an op.
    Record,
    /// It finds and starts the program of a cut: other phases are inside.
    Cut,
    Rewrite,
    Lower,
    Compile,
    /// It runs a program in the interpreter.
    Interpret,
    Dispatch,
    Wait,
    Transfer,
    /// It captures a stack for the profile itself.
    Profiler,
}

impl Phase {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Phase::Record => "record",
            Phase::Cut => "cut",
            Phase::Rewrite => "rewrite",
            Phase::Lower => "lower",
            Phase::Compile => "compile",
            Phase::Interpret => "interpret",
            Phase::Dispatch => "dispatch",
            Phase::Wait => burn_tpu_profile::WAIT,
            Phase::Transfer => "transfer",
            Phase::Profiler => burn_tpu_profile::PROFILER,
        }
    }
}

/// Returns whether a profile is running.
pub(crate) fn is_active() -> bool {
    ACTIVE.load(Relaxed)
}

/// Returns the profile that is running.
pub(crate) fn active() -> Option<Arc<Session>> {
    if is_active() { SESSION.lock().clone() } else { None }
}

/// Begins a span of the calling thread, which ends when the result is dropped.
pub(crate) fn span(phase: Phase, name: &'static str) -> Option<SpanGuard> {
    active().map(|session| SpanGuard { begin: session.now(), session, phase, name, end: None, stack: None })
}

/// A span that has not ended.
pub(crate) struct SpanGuard {
    session: Arc<Session>,
    phase: Phase,
    name: &'static str,
    begin: u64,
    /// When it ended, if that is known before its drop.
    end: Option<u64>,
    stack: Option<Stack>,
}

impl SpanGuard {
    /// Ends the span of an op before its stack is captured, which is the profile's own work.
    pub(crate) fn end(&mut self) {
        self.end = Some(self.session.now());
    }

    /// Notes the stack of the op that was recorded in this span.
    pub(crate) fn recorded(mut self, op: &OpStack) {
        self.stack.clone_from(&op.stack);
        if let Some(end) = self.end.filter(|_| op.is_new) {
            let time_ns = end..self.session.now();
            self.session.push(Span { phase: Phase::Profiler, name: "capture", stack: None, time_ns });
        }
    }
}

impl Drop for SpanGuard {
    fn drop(&mut self) {
        let SpanGuard { phase, name, .. } = *self;
        let end = self.end.unwrap_or_else(|| self.session.now());
        self.session.push(Span { phase, name, stack: self.stack.take(), time_ns: self.begin..end });
    }
}

/// A span that has ended. Times are in nanoseconds since the profile began.
pub(super) struct Span {
    pub(super) phase: Phase,
    pub(super) name: &'static str,
    /// The stack of the op that it recorded.
    pub(super) stack: Option<Stack>,
    pub(super) time_ns: Range<u64>,
}

/// The spans of a thread.
#[derive(Default)]
pub(super) struct Thread {
    pub(super) name: String,
    pub(super) spans: Vec<Span>,
}

/// A run of a program on a device.
pub(super) struct Run {
    pub(super) program: Arc<ProgramOps>,
    pub(super) lines: Arc<CutLines>,
    /// The place of the device among the devices that the program runs on.
    pub(super) device: usize,
    /// From its dispatch to its results.
    pub(super) time_ns: Range<u64>,
}

/// The runs of a profile. It is apart from the session, since a plugin's threads share it: they must not own anything that
/// a plugin has to free.
#[derive(Default)]
struct DeviceRuns {
    state: Mutex<RunReports>,
    reported: Condvar,
}

#[derive(Default)]
struct RunReports {
    ended: Vec<Run>,
    pending: usize,
}

/// A profile that is running, or its collected data.
pub(crate) struct Session {
    device: Device,
    began: Instant,
    /// Nanoseconds since the UNIX epoch.
    began_unix_ns: u64,
    threads: Mutex<BTreeMap<u64, Thread>>,
    spans: AtomicU64,
    runs: Arc<DeviceRuns>,
}

/// The data of a profile that has ended.
pub(super) struct ProfileData {
    pub(super) device: Device,
    pub(super) began_unix_ns: u64,
    pub(super) length_ns: u64,
    pub(super) threads: BTreeMap<u64, Thread>,
    pub(super) places: Places,
    pub(super) runs: Vec<Run>,
    /// The number of spans that were left out.
    pub(super) left_out: u64,
}

thread_local! {
    /// The number of this thread, in the order of the threads' first spans.
    static THREAD: u64 = {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        NEXT.fetch_add(1, Relaxed)
    };
    /// The lines of the cut whose programs this thread starts.
    static CUT: RefCell<Arc<CutLines>> = RefCell::default();
}

impl Session {
    /// Starts the process's profile; `None` if it has one.
    pub(super) fn start(device: Device) -> Option<Arc<Self>> {
        let mut current = SESSION.lock();
        if current.is_some() {
            return None;
        }
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let session = Arc::new(Self {
            device,
            began: Instant::now(),
            began_unix_ns: since_epoch.as_nanos() as u64,
            threads: Mutex::default(),
            spans: AtomicU64::new(0),
            runs: Arc::default(),
        });
        *current = Some(Arc::clone(&session));
        ACTIVE.store(true, Relaxed);
        Some(session)
    }

    /// Ends the profile, if it is the process's, and returns its data.
    pub(super) fn end(self: &Arc<Self>) -> ProfileData {
        let length_ns = self.now();
        let mut current = SESSION.lock();
        if current.as_ref().is_some_and(|session| Arc::ptr_eq(session, self)) {
            ACTIVE.store(false, Relaxed);
            *current = None;
        }
        drop(current);
        ProfileData {
            device: self.device,
            began_unix_ns: self.began_unix_ns,
            length_ns,
            threads: std::mem::take(&mut *self.threads.lock()),
            places: Places::default(),
            runs: self.runs.take(),
            left_out: self.spans.load(Relaxed).saturating_sub(MOST_SPANS as u64),
        }
    }

    /// Returns the time in nanoseconds since the profile began.
    pub(crate) fn now(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    fn push(&self, span: Span) {
        if self.spans.fetch_add(1, Relaxed) >= MOST_SPANS as u64 {
            return;
        }
        let mut threads = self.threads.lock();
        let thread = threads.entry(THREAD.with(|id| *id)).or_default();
        if thread.spans.is_empty() {
            thread.name = std::thread::current().name().unwrap_or("thread").to_owned();
        }
        thread.spans.push(span);
    }

    /// Notes that the calling thread starts the programs of a cut, which runs these ops.
    pub(crate) fn cut(&self, ops: impl Iterator<Item = (Label, Stack)>) {
        CUT.set(Arc::new(ops.collect()));
    }

    /// A program was dispatched at `begin`, and `done` has an event of each device's part. A device that cannot report its
    /// end has no row.
    pub(crate) fn dispatched(&self, program: &Arc<ProgramOps>, begin: u64, done: impl Iterator<Item = Event>) {
        let lines = CUT.with_borrow(Arc::clone);
        for (device, done) in done.enumerate() {
            let (program, lines, runs, began) =
                (Arc::clone(program), Arc::clone(&lines), Arc::clone(&self.runs), self.began);
            runs.state.lock().pending += 1;
            let registered = done.on_ready(move |_| {
                let end = began.elapsed().as_nanos() as u64;
                runs.report(Some(Run { program, lines, device, time_ns: begin..end }));
            });
            if let Err(error) = registered {
                tracing::warn!(%error, "a program is not in the profile");
                self.runs.report(None);
            }
        }
    }
}

impl DeviceRuns {
    fn report(&self, run: Option<Run>) {
        let mut state = self.state.lock();
        state.ended.extend(run);
        state.pending -= 1;
        self.reported.notify_all();
    }

    /// Returns the runs, after a wait for the reports of runs that have ended: a plugin's thread may report a run a little
    /// after it wakes the threads that wait for its results.
    fn take(&self) -> Vec<Run> {
        let mut state = self.state.lock();
        self.reported.wait_while_for(&mut state, |state| state.pending > 0, LAST_REPORTS);
        std::mem::take(&mut state.ended)
    }
}
