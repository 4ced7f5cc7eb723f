//! Events: asynchronous work that completes later, with or without an error (header: "Events").

use std::ptr::NonNull;

use crate::abi::Struct;
use crate::api::{Api, log_failed_drop};
use crate::bindings::*;
use crate::client::Client;
use crate::error::{PjrtError, Result};
use crate::live::{Alive, Noun};

/// Work in progress. Dropping the event neither cancels the work nor waits for it.
#[derive(Debug)]
pub struct Event {
    raw: NonNull<PJRT_Event>,
    /// Keeps the runtime that does the work alive.
    client: Client,
    _alive: Alive,
}

// SAFETY: an event is an owned reference to a thread-safe future of the runtime; the C API has no thread affinity.
unsafe impl Send for Event {}
// SAFETY: the runtime's futures are made to be waited for and queried from several threads.
unsafe impl Sync for Event {}

impl Event {
    /// # Safety
    /// `raw` is an event of this client's plugin, and the caller passes its ownership.
    pub(crate) unsafe fn new(raw: NonNull<PJRT_Event>, client: Client) -> Event {
        Event { raw, client, _alive: Alive::new(Noun::Event) }
    }

    /// Blocks until the work has completed.
    ///
    /// # Errors
    /// [`PjrtError::Call`] with the error of the work: this is where a failed execution or transfer surfaces.
    pub fn wait(&self) -> Result<()> {
        let mut args = PJRT_Event_Await_Args::new();
        args.event = self.raw.as_ptr();
        // SAFETY: the event is live, since only `drop` frees it.
        unsafe { self.api().call(&mut args) }
    }

    /// Returns whether the work has completed, with or without an error.
    ///
    /// # Errors
    /// [`PjrtError::Call`] if the query fails.
    pub fn is_ready(&self) -> Result<bool> {
        let mut args = PJRT_Event_IsReady_Args::new();
        args.event = self.raw.as_ptr();
        // SAFETY: the event is live.
        unsafe { self.api().call(&mut args) }?;
        Ok(args.is_ready)
    }

    /// Returns the error of completed work, or `None` if it succeeded or is still in progress. (The plugin must not be
    /// asked for the error of work in progress.)
    ///
    /// # Errors
    /// [`PjrtError::Call`] if the plugin fails to report whether the work has completed.
    pub fn error(&self) -> Result<Option<PjrtError>> {
        if !self.is_ready()? {
            return Ok(None);
        }
        let mut args = PJRT_Event_Error_Args::new();
        args.event = self.raw.as_ptr();
        // SAFETY: the event is live and ready, as the header requires.
        Ok(unsafe { self.api().call(&mut args) }.err())
    }

    /// Calls `then` once with the work's result: on one of the plugin's threads, or on this one if the work has already
    /// completed.
    ///
    /// `then` must be short and must not wait for other work, since the plugin has few threads. It must not own handles
    /// either: dropping the last handle of a client on one of that client's threads would make the thread wait for
    /// itself.
    ///
    /// # Errors
    /// [`PjrtError::Call`] if the plugin does not accept the callback; `then` is then dropped without being called.
    pub fn on_ready(self, then: impl FnOnce(Result<()>) + Send + 'static) -> Result<()> {
        let api = self.api();
        let raw = self.raw.as_ptr();
        // The event is moved into the callback, which frees it.
        let boxed = Box::into_raw(Box::new(Callback { event: self, then: Some(Box::new(then)) }));
        let mut args = PJRT_Event_OnReady_Args::new();
        args.event = raw;
        args.callback = Some(run_callback);
        args.user_arg = boxed.cast();
        // SAFETY: the event is live; `user_arg` is what `run_callback` expects and stays valid until it has run.
        let registered = unsafe { api.call(&mut args) };
        if registered.is_err() {
            // SAFETY: a plugin that refuses the callback never calls it, so the box is still owned here alone.
            drop(unsafe { Box::from_raw(boxed) });
        }
        registered
    }

    fn api(&self) -> Api {
        self.client.api()
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let mut args = PJRT_Event_Destroy_Args::new();
        args.event = self.raw.as_ptr();
        // SAFETY: the event is live, owned here, and not used after this.
        log_failed_drop(unsafe { self.api().call(&mut args) });
    }
}

struct Callback {
    event: Event,
    then: Option<Box<dyn FnOnce(Result<()>) + Send>>,
}

unsafe extern "C" fn run_callback(error: *mut PJRT_Error, user_arg: *mut std::ffi::c_void) {
    // SAFETY: `on_ready` passed a leaked `Box<Callback>`, and the C API runs a callback once.
    let mut callback = unsafe { Box::from_raw(user_arg.cast::<Callback>()) };
    let result = match NonNull::new(error) {
        None => Ok(()),
        // SAFETY: the header passes ownership of the error to the callback.
        Some(error) => Err(unsafe { callback.event.api().error("event", error) }),
    };
    let then = callback.then.take();
    let client = callback.event.client.clone();
    // A panic must not cross into C: it would abort the process.
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
        if let Some(then) = then {
            then(result);
        }
        drop(callback);
    }));
    if caught.is_err() {
        tracing::error!("a callback of a PJRT event panicked");
    }
    client.release_from_callback();
}
