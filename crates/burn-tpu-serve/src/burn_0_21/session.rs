//! The sessions of a server: which client has which, and their table of socket ends.
//!
//! A session has two sockets, which a client opens in either order, and one worker (`worker.rs`). It ends with its sockets.

use super::wire::{ComputeTask, ConnectionId, SessionId};
use super::worker::{self, Ending};
use crate::error::SessionError;
use burn_backend::tensor::Device;
use burn_ir::BackendIr;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Tasks that may wait for a worker: a client that is ahead of it stops at its socket.
const TASKS: usize = 256;
/// Answers that may wait for a socket.
const ANSWERS: usize = 64;

/// A task with the request that it answers.
pub type Job = (ComputeTask, ConnectionId);

/// The sessions of one device.
pub struct Sessions<B: BackendIr> {
    device: Device<B>,
    table: Mutex<HashMap<SessionId, Entry>>,
    /// Clones of this are held by the workers: how many sessions there are.
    workers: Arc<()>,
}

/// What is left for a session's sockets to take.
struct Entry {
    tasks: Option<SyncSender<Job>>,
    answers: Option<Receiver<Vec<u8>>>,
    ending: Arc<Ending>,
}

impl<B: BackendIr> Sessions<B> {
    /// No sessions yet.
    pub fn new(device: Device<B>) -> Self {
        Self { device, table: Mutex::default(), workers: Arc::new(()) }
    }

    /// Returns the end of a session that takes its client's tasks, and opens the session if it is new.
    ///
    /// # Errors
    /// [`SessionError::OutOfTurn`] if another socket has it; [`SessionError::Operation`] if the system gives no thread.
    pub fn tasks(&self, id: SessionId) -> Result<SyncSender<Job>, SessionError> {
        self.with(id, |entry| entry.tasks.take())?.ok_or(SessionError::OutOfTurn("the session has its client already"))
    }

    /// Returns the end of a session that gives its answers, and opens the session if it is new.
    ///
    /// # Errors
    /// As of [`Sessions::tasks`].
    pub fn answers(&self, id: SessionId) -> Result<Receiver<Vec<u8>>, SessionError> {
        self.with(id, |entry| entry.answers.take())?
            .ok_or(SessionError::OutOfTurn("the session has its reader already"))
    }

    /// Whether a socket has taken the session's answers. Without one, they would pile up.
    pub fn has_reader(&self, id: SessionId) -> bool {
        self.table.lock().get(&id).is_some_and(|entry| entry.answers.is_none())
    }

    /// Ends a session whose client said that it has no more tasks: those that wait are done.
    pub fn finish(&self, id: SessionId) {
        drop(self.table.lock().remove(&id));
    }

    /// Ends a session whose client has gone: what it left is not done, and its tensors are freed.
    pub fn close(&self, id: SessionId) {
        if let Some(entry) = self.table.lock().remove(&id) {
            entry.ending.client_left();
        }
    }

    /// Ends all sessions: clients that wait get an error.
    pub fn stop(&self) {
        self.table.lock().drain().for_each(|(_, entry)| entry.ending.server_stops());
    }

    /// Returns how many sessions hold tensors.
    pub fn count(&self) -> usize {
        Arc::strong_count(&self.workers) - 1
    }

    fn with<T>(&self, id: SessionId, take: impl FnOnce(&mut Entry) -> T) -> Result<T, SessionError> {
        let mut table = self.table.lock();
        if let Some(entry) = table.get_mut(&id) {
            return Ok(take(entry));
        }
        let (tasks, received) = sync_channel(TASKS);
        let (answered, answers) = sync_channel(ANSWERS);
        let ending = Arc::new(Ending::default());
        worker::start::<B>(id, self.device.clone(), received, answered, ending.clone(), self.workers.clone())
            .map_err(|error| SessionError::Operation { reason: format!("no thread for the session: {error}") })?;
        let mut entry = Entry { tasks: Some(tasks), answers: Some(answers), ending };
        let taken = take(&mut entry);
        table.insert(id, entry);
        Ok(taken)
    }
}
