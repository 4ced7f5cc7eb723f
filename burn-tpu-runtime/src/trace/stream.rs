//! Streams: who records. A thread is a stream unless it says otherwise.

use super::StreamTrace;
use super::function::FunctionNotes;
use crate::Device;
use crate::error::Result;
use crate::metrics::CutReason;
use crate::runtime::runtime;
use parking_lot::Mutex;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

/// A sequence of recorded ops. Each stream has one trace per device; a cut runs what its own stream recorded.
///
/// Every thread has a stream of its own, which is all that most programs need. Make one
/// - for an async task that moves between threads, with [`Stream::wrap`], so that all of it is one trace;
/// - for each of several models that one thread steps in turn, with [`Stream::run`], so that a mark step of one does not
///   run half a step of the other.
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

struct StreamState {
    id: u64,
    function: Option<Arc<FunctionNotes>>,
    traces: Mutex<Vec<(Device, Arc<StreamTrace>)>>,
}

impl StreamState {
    fn new(function: Option<Arc<FunctionNotes>>) -> Arc<Self> {
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
}

thread_local! {
    static CURRENT: RefCell<Option<Current>> = const { RefCell::new(None) };
    /// The id of the current stream; 0 before the thread's first op. Drops read it, also while thread-locals are destroyed.
    static ID: Cell<u64> = const { Cell::new(0) };
}

/// Returns the id of the calling thread's current stream: 0 if it has none yet.
pub(super) fn current_id() -> u64 {
    follow();
    ID.get()
}

fn with_current<T>(f: impl FnOnce(&mut Current) -> T) -> T {
    follow();
    CURRENT.with_borrow_mut(|current| {
        f(current.get_or_insert_with(|| {
            let state = StreamState::new(None);
            ID.set(state.id);
            Current { state, last: None }
        }))
    })
}

/// What [`Stream::follow`] set.
static SOURCE: OnceLock<fn() -> u64> = OnceLock::new();

/// The streams that a thread keeps for the values of [`SOURCE`].
const FOLLOWED: usize = 64;

thread_local! {
    /// The value whose stream is current.
    static KEY: Cell<Option<u64>> = const { Cell::new(None) };
    /// How many [`Stream::run`] and polls of [`InStream`] the thread is in: they say which stream is current.
    static SCOPES: Cell<u32> = const { Cell::new(0) };
    /// The thread's streams by value, least recently used first.
    static STREAMS: RefCell<Vec<(u64, Arc<StreamState>)>> = const { RefCell::new(Vec::new()) };
}

/// Makes the stream of [`SOURCE`]'s value the current one.
fn follow() {
    let Some(source) = SOURCE.get().filter(|_| SCOPES.get() == 0) else { return };
    let key = source();
    if KEY.replace(Some(key)) == Some(key) {
        return;
    }
    // No stream is left while the thread's values are destroyed. What is dropped then counts as another thread's.
    let state = STREAMS.try_with(|streams| {
        let mut streams = streams.borrow_mut();
        let place = streams.iter().position(|(of, _)| *of == key);
        let entry = place.map_or_else(|| (key, StreamState::new(None)), |place| streams.remove(place));
        let oldest = (streams.len() >= FOLLOWED).then(|| streams.remove(0));
        let state = Arc::clone(&entry.1);
        streams.push(entry);
        (state, oldest)
    });
    let Ok((state, _oldest)) = state else { return };
    ID.set(state.id);
    drop(CURRENT.replace(Some(Current { state, last: None })));
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

    /// From now on, every thread of the process has a stream for each value that `source` returns on it, and records in that of
    /// the present value, except in [`Stream::run`] and [`Stream::wrap`]. A thread keeps 64 such streams.
    ///
    /// It is for a server that does on one thread what the threads of its client ask for, and that cannot wrap each op: the
    /// source is the number of the client's thread. Only the first call in a process has an effect; it returns whether it was.
    pub fn follow(source: fn() -> u64) -> bool {
        SOURCE.set(source).is_ok()
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

    fn enter(&self) -> Entered {
        let current = Current { state: Arc::clone(&self.state), last: None };
        SCOPES.set(SCOPES.get() + 1);
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
        SCOPES.set(SCOPES.get() - 1);
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

#[cfg(test)]
mod tests {
    use super::*;

    thread_local! {
        static CLIENT: Cell<u64> = const { Cell::new(0) };
    }

    /// The source is the process's: for the threads of other tests it is the same all the time, and changes nothing.
    #[test]
    fn a_thread_follows_its_source_outside_of_scopes() {
        assert!(Stream::follow(|| CLIENT.get()) && !Stream::follow(|| 7));
        let id_of = |client| {
            CLIENT.set(client);
            (Stream::current().state.id, current_id())
        };
        let [(first, of_first), (second, of_second)] = [id_of(1), id_of(2)];
        assert_eq!((of_first, of_second), (first, second));
        assert_ne!(first, second);
        assert_eq!(id_of(1).0, first);
        let scope = Stream::new();
        assert_eq!(scope.run(|| id_of(2)), (scope.state.id, scope.state.id));
        assert_eq!(current_id(), second);
        (100..100 + FOLLOWED as u64).for_each(|client| drop(id_of(client)));
        assert_ne!(id_of(1).0, first, "the stream of the client's first thread was given up");
    }
}
