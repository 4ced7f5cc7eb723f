//! A session's worker: the thread that does a client's tasks in the order in which they come.
//!
//! Each thread of the client records in a stream of its own, as it would without a server between ([decision 11]), so a program
//! depends neither on the server's threads nor on how the client's interleave. A read cuts in its turn, and waits for its value
//! on another thread: the tasks after it are recorded meanwhile.
//!
//! A task that fails, such as one that names an unknown tensor, fails the session: its tensors are freed, and every later read
//! and sync answers with the reason. (Burn 0.21's own server would end here, and its client wait for ever.)
//!
//! [decision 11]: https://github.com/burn-tpu/burn-tpu/blob/main/docs/decisions/0011-streams.md

use super::session::Job;
use super::wire::{ComputeTask, ConnectionId, SessionId, TaskResponse, TaskResponseContent};
use crate::error::SessionError;
use burn_backend::tensor::Device;
use burn_backend::{DTypeUsageSet, ExecutionError, TensorData, read_sync};
use burn_ir::BackendIr;
use burn_router::{Runner, RunnerClient};
use burn_std::future::DynFut;
use burn_tpu_runtime::Stream;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel};
use std::thread;
use std::time::Duration;

/// The streams of a client's threads that a session keeps: more than threads that are busy at a time.
const STREAMS: usize = 64;

/// How often an idle worker looks whether its client is there.
const PRESENCE: Duration = Duration::from_millis(500);

/// Whether, and why, a session is to end before its tasks do.
#[derive(Debug, Default)]
pub struct Ending {
    left: AtomicBool,
    stops: AtomicBool,
}

impl Ending {
    /// The client is gone: nobody waits for what is left.
    pub fn client_left(&self) {
        self.left.store(true, Relaxed);
    }

    /// The server ends: those who wait get an error.
    pub fn server_stops(&self) {
        self.stops.store(true, Relaxed);
    }
}

/// The value of a read, and whom it answers.
type Read = (DynFut<Result<TensorData, ExecutionError>>, ConnectionId);

/// What the client waits for after a task.
#[derive(Clone, Copy)]
enum Expected {
    Value,
    Sync,
    /// An answer that has no place for an error.
    DTypes,
    Nothing,
}

impl Expected {
    fn of(task: &ComputeTask) -> Self {
        match task {
            ComputeTask::ReadTensor(_) => Expected::Value,
            ComputeTask::SyncBackend => Expected::Sync,
            ComputeTask::DTypeUsage(_) => Expected::DTypes,
            ComputeTask::Seed(_)
            | ComputeTask::RegisterOperation(_)
            | ComputeTask::RegisterTensor(..)
            | ComputeTask::RegisterTensorRemote(..)
            | ComputeTask::ExposeTensorRemote { .. } => Expected::Nothing,
        }
    }
}

struct Worker<B: BackendIr> {
    id: SessionId,
    runner: Runner<B>,
    /// The stream of each thread of the client, least recently used first.
    streams: Vec<(u64, Stream)>,
    reads: Sender<Read>,
    answers: SyncSender<Vec<u8>>,
    /// Why the session failed.
    failure: Option<String>,
}

/// Starts the worker of a session. It ends when the last sender of its tasks is dropped, and drops `alive` after its tensors.
///
/// # Errors
/// The system's, if it gives no thread.
pub fn start<B: BackendIr>(
    id: SessionId,
    device: Device<B>,
    tasks: Receiver<Job>,
    answers: SyncSender<Vec<u8>>,
    ending: Arc<Ending>,
    alive: Arc<()>,
) -> io::Result<()> {
    let (reads, waiting) = channel();
    let reader = answers.clone();
    thread::Builder::new().name("session-reads".into()).spawn(move || answer_reads(&waiting, &reader))?;
    thread::Builder::new().name("session".into()).spawn(move || {
        let mut worker =
            Worker { id, runner: Runner::<B>::new(device), streams: Vec::new(), reads, answers, failure: None };
        let done = worker.work(&tasks, &ending);
        drop(worker);
        tracing::info!(session = id.id, tasks = done, "the session ended, its tensors are freed");
        drop(alive);
    })?;
    Ok(())
}

/// Waits for values one after the other, as a device computes them.
fn answer_reads(reads: &Receiver<Read>, answers: &SyncSender<Vec<u8>>) {
    for (value, id) in reads {
        let value = catch_unwind(AssertUnwindSafe(|| read_sync(value)));
        let value = value.unwrap_or_else(|panic| Err(failed(reason(&*panic))));
        answer(answers, TaskResponseContent::ReadTensor(value), id);
    }
}

/// Sends an answer. A client that has left does not get it.
fn answer(answers: &SyncSender<Vec<u8>>, content: TaskResponseContent, id: ConnectionId) {
    match rmp_serde::to_vec(&TaskResponse { content, id }) {
        Ok(bytes) => drop(answers.send(bytes)),
        Err(error) => tracing::error!(%error, "an answer cannot be written"),
    }
}

fn failed(reason: String) -> ExecutionError {
    ExecutionError::WithContext { reason }
}

/// Returns the message of a panic.
fn reason(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_string());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "it panicked".into())
}

impl<B: BackendIr> Worker<B> {
    /// Does tasks until there are no more, and returns how many.
    fn work(&mut self, tasks: &Receiver<Job>, ending: &Ending) -> u64 {
        let mut done = 0;
        loop {
            let next = tasks.recv_timeout(PRESENCE);
            if ending.left.load(Relaxed) {
                break;
            }
            if ending.stops.load(Relaxed) && self.failure.is_none() {
                self.fail(SessionError::OutOfTurn("the server stops"));
            }
            match next {
                Ok((task, id)) => self.step(task, id),
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => break,
            }
            done += 1;
        }
        done
    }

    fn step(&mut self, task: ComputeTask, id: ConnectionId) {
        if let Some(reason) = self.failure.clone() {
            return self.refuse(Expected::of(&task), id, reason);
        }
        let expected = Expected::of(&task);
        let outcome = catch_unwind(AssertUnwindSafe(|| self.run(task, id)));
        let outcome = outcome.unwrap_or_else(|panic| Err(SessionError::Operation { reason: reason(&*panic) }));
        if let Err(error) = outcome {
            self.fail(error);
            self.refuse(expected, id, self.failure.clone().unwrap_or_default());
        }
    }

    /// Does one task.
    fn run(&mut self, task: ComputeTask, id: ConnectionId) -> Result<(), SessionError> {
        let stream = self.stream(id.stream_id.value);
        let content = match task {
            ComputeTask::RegisterOperation(op) => {
                stream.run(|| self.runner.register_op(*op));
                return Ok(());
            }
            ComputeTask::RegisterTensor(tensor, data) => {
                stream.run(|| self.runner.register_tensor_data_id(tensor, data));
                return Ok(());
            }
            ComputeTask::ReadTensor(tensor) => {
                let value = stream.run(|| self.runner.read_tensor_async(tensor));
                let _ended = self.reads.send((value, id));
                return Ok(());
            }
            ComputeTask::Seed(seed) => {
                self.runner.seed(seed);
                return Ok(());
            }
            ComputeTask::SyncBackend => TaskResponseContent::SyncBackend(stream.run(|| self.runner.sync())),
            ComputeTask::DTypeUsage(dtype) => TaskResponseContent::DTypeUsage(self.runner.dtype_usage(dtype)),
            ComputeTask::RegisterTensorRemote(..) | ComputeTask::ExposeTensorRemote { .. } => {
                return Err(SessionError::NotOffered(
                    "tensors do not go from one server of Burn 0.21 to another here: read the value and make a tensor of it",
                ));
            }
        };
        answer(&self.answers, content, id);
        Ok(())
    }

    /// Returns the stream of a thread of the client.
    fn stream(&mut self, client: u64) -> Stream {
        let known = self.streams.iter().rposition(|(of, _)| *of == client);
        let entry = match known {
            Some(place) => self.streams.remove(place),
            None => (client, Stream::new()),
        };
        if self.streams.len() >= STREAMS {
            self.streams.remove(0);
        }
        let stream = entry.1.clone();
        self.streams.push(entry);
        stream
    }

    /// Frees the session's tensors, and forgets what it recorded.
    fn fail(&mut self, error: SessionError) {
        tracing::error!(session = self.id.id, %error, "the session failed, its tensors are freed");
        self.failure = Some(error.to_string());
        self.runner = Runner::new(self.runner.device());
        self.streams.clear();
    }

    /// Answers a task of a session that failed.
    fn refuse(&self, expected: Expected, id: ConnectionId, reason: String) {
        let content = match expected {
            Expected::Value => TaskResponseContent::ReadTensor(Err(failed(reason))),
            Expected::Sync => TaskResponseContent::SyncBackend(Err(failed(reason))),
            Expected::DTypes => TaskResponseContent::DTypeUsage(DTypeUsageSet::empty()),
            Expected::Nothing => return,
        };
        answer(&self.answers, content, id);
    }
}
