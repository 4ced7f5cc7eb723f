//! Streams: who records. A thread is a stream unless it says otherwise, or works for several callers.

use super::StreamTrace;
use super::callers::{self, Callers};
use super::function::FunctionNotes;
use crate::Device;
use crate::error::Result;
use crate::metrics::CutReason;
use crate::runtime::runtime;
use parking_lot::Mutex;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};

/// A sequence of recorded ops. Each stream has one trace per device; a cut runs what its own stream recorded.
///
/// Every thread has a stream of its own, which is all that most programs need. Make one
/// - for an async task that moves between threads, with [`Stream::wrap`], so that all of it is one trace;
/// - for each of several models that one thread steps in turn, with [`Stream::run`], so that a mark step of one does not
///   run half a step of the other;
/// - for each caller of a thread that works for several, with [`Stream::per_caller`].
///
/// One thread at a time should record in a stream. Tensors may be used in any stream: a use in another stream than its
/// own runs what the tensor needs.
///
/// ```
/// use burn_tpu_runtime::Stream;
/// let validation = Stream::new();
/// let answer = validation.run(|| 42); // what is recorded in the closure belongs to `validation`
/// assert_eq!(answer, 42);
/// ```
#[derive(Clone)]
pub struct Stream {
    state: Arc<StreamState>,
}

pub(super) struct StreamState {
    id: u64,
    function: Option<Arc<FunctionNotes>>,
    traces: Mutex<Vec<(Device, Arc<StreamTrace>)>>,
}

impl StreamState {
    pub(super) fn new(function: Option<Arc<FunctionNotes>>) -> Arc<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Arc::new(Self { id: NEXT.fetch_add(1, Relaxed), function, traces: Mutex::default() })
    }

    fn trace(&self, device: Device) -> Arc<StreamTrace> {
        let mut traces = self.traces.lock();
        if let Some((_, trace)) = traces.iter().find(|(of, _)| *of == device) {
            return Arc::clone(trace);
        }
        let trace = Arc::new(StreamTrace::new(self.id, self.function.clone(), runtime(device)));
        traces.push((device, Arc::clone(&trace)));
        trace
    }
}

/// The calling thread's current stream.
struct Current {
    state: Arc<StreamState>,
    /// The trace that was asked for last: nearly every op is on the same device as the one before.
    last: Option<(Device, Arc<StreamTrace>)>,
    whose: Whose,
}

/// Whose stream the current one is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Whose {
    /// The thread's own, while it works for this caller, if callers are told apart.
    Thread(Option<u64>),
    /// One that was entered.
    Entered,
}

thread_local! {
    static CURRENT: RefCell<Option<Current>> = const { RefCell::new(None) };
    /// The thread's own streams.
    static OWN: RefCell<Callers> = const { RefCell::new(Callers::new()) };
    /// The streams in which the current one is entered to record a part of what they record, outermost first.
    static AROUND: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
    /// The id of the current stream; 0 before the thread's first op. Drops read it, also while thread-locals are destroyed.
    static ID: Cell<u64> = const { Cell::new(0) };
}

/// Returns the id of the calling thread's current stream: 0 if it has none yet.
pub(super) fn current_id() -> u64 {
    if callers::current().is_some() {
        // A tensor may be dropped while the stream is asked for, or while thread-locals are destroyed: then it did not
        // change.
        let _unchanged =
            CURRENT.try_with(|current| current.try_borrow_mut().map(|mut current| followed(&mut current).whose));
    }
    ID.get()
}

/// Returns whether the calling thread is in a stream, or records a part of what that records: what it drops, the stream
/// drops.
pub(super) fn drops_for(id: u64) -> bool {
    current_id() == id || AROUND.try_with(|around| around.borrow().contains(&id)).unwrap_or(false)
}

/// Runs a function that records a part of what the current stream records, in another one.
pub(super) fn around_part<T>(f: impl FnOnce() -> T) -> T {
    struct Ends;
    impl Drop for Ends {
        fn drop(&mut self) {
            AROUND.with_borrow_mut(Vec::pop);
        }
    }
    let current = with_current(|current| current.state.id);
    AROUND.with_borrow_mut(|around| around.push(current));
    let _ends = Ends;
    f()
}

fn with_current<T>(f: impl FnOnce(&mut Current) -> T) -> T {
    CURRENT.with_borrow_mut(|current| f(followed(current)))
}

/// Returns the current stream: the one that was entered, else the thread's own for the caller it works for now.
fn followed(current: &mut Option<Current>) -> &mut Current {
    let whose = Whose::Thread(callers::current());
    if let Some(current) = current
        && current.whose != whose
        && current.whose != Whose::Entered
    {
        *current = Current::own(whose);
    }
    current.get_or_insert_with(|| Current::own(whose))
}

impl Current {
    /// The thread's own stream for a caller.
    fn own(whose: Whose) -> Self {
        let state = match whose {
            Whose::Thread(Some(caller)) => OWN.with_borrow_mut(|own| own.stream_of(caller)),
            Whose::Thread(None) | Whose::Entered => StreamState::new(None),
        };
        ID.set(state.id);
        Self { state, last: None, whose }
    }
}

/// Returns the function that the current stream records, if it records one.
pub(crate) fn current_function() -> Option<Arc<FunctionNotes>> {
    with_current(|current| current.state.function.clone())
}

/// Returns the current stream's trace of a device.
pub(super) fn trace_of(device: Device) -> Arc<StreamTrace> {
    with_current(|current| {
        if let Some((_, trace)) = current.last.as_ref().filter(|(of, _)| *of == device) {
            return Arc::clone(trace);
        }
        let trace = current.state.trace(device);
        current.last = Some((device, Arc::clone(&trace)));
        trace
    })
}

/// Cuts the current stream's trace of a device.
///
/// # Errors
/// Why the program did not run; what was recorded stays pending.
pub(crate) fn cut(device: Device, reason: CutReason) -> Result<()> {
    trace_of(device).cut_everything(reason)
}

/// Marks a step: cuts the current stream's trace of a device.
pub(crate) fn mark_step(device: Device) {
    runtime(device).note_deferred_errors();
    log_refusal(device, cut(device, CutReason::MarkStep));
}

/// Ends a training step: cuts the current stream's traces of all devices, each at its seams too.
pub(crate) fn end_step() {
    let traces = with_current(|current| current.state.traces.lock().clone());
    for (device, trace) in traces {
        trace.runtime().note_deferred_errors();
        log_refusal(device, trace.cut_step());
    }
}

/// A mark step returns no result: what was refused is logged, and the next read or sync returns it.
fn log_refusal(device: Device, cut: Result<()>) {
    if let Err(error) = cut {
        tracing::error!(%device, %error, "a step did not run; it stays pending, and a read reports the error");
    }
}

/// Forgets the current stream's trace of a device.
pub(crate) fn forget(device: Device) {
    let forgotten = with_current(|current| {
        current.last = None;
        let mut traces = current.state.traces.lock();
        let place = traces.iter().position(|(of, _)| *of == device);
        place.map(|place| traces.swap_remove(place))
    });
    drop(forgotten);
}

impl Stream {
    /// A new stream, with nothing recorded.
    #[allow(clippy::new_without_default, reason = "a default stream would be taken for the thread's own")]
    pub fn new() -> Self {
        Self { state: StreamState::new(None) }
    }

    /// A stream that records a function.
    pub(super) fn of_function(function: Arc<FunctionNotes>) -> Self {
        Self { state: StreamState::new(Some(function)) }
    }

    /// Returns the calling thread's current stream.
    pub fn current() -> Self {
        Self { state: with_current(|current| Arc::clone(&current.state)) }
    }

    /// Runs a function in this stream: what it records, and the cuts that it asks for, are the stream's.
    pub fn run<T>(&self, f: impl FnOnce() -> T) -> T {
        let _entered = self.enter();
        f()
    }

    /// Wraps a future so that it runs in this stream, whichever threads poll it.
    pub fn wrap<F: Future>(&self, future: F) -> InStream<F> {
        InStream { stream: self.clone(), future: Box::pin(future) }
    }

    /// Tells apart the callers that the threads of this process work for: from now on, a thread without an entered stream
    /// has one stream for each number that `caller` returns on it. A server whose thread runs the ops of a client's threads
    /// calls it once, so that what a client records depends on the client's threads alone.
    ///
    /// Later calls change nothing. `caller` is asked at every op, and must not record.
    pub fn per_caller(caller: fn() -> u64) {
        callers::tell_apart(caller);
    }

    fn enter(&self) -> Entered {
        let current = Current { state: Arc::clone(&self.state), last: None, whose: Whose::Entered };
        ID.set(self.state.id);
        Entered { before: CURRENT.replace(Some(current)) }
    }
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Stream({})", self.state.id)
    }
}

/// Gives the thread its earlier stream back when it is dropped, also by a panic.
struct Entered {
    before: Option<Current>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        let before = self.before.take();
        ID.set(before.as_ref().map_or(0, |current| current.state.id));
        drop(CURRENT.replace(before));
    }
}

/// A future that runs in a stream. See [`Stream::wrap`].
pub struct InStream<F> {
    stream: Stream,
    future: Pin<Box<F>>,
}

impl<F: Future> Future for InStream<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let _entered = self.stream.enter();
        self.future.as_mut().poll(context)
    }
}
