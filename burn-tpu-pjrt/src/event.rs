//! Events: work that ends later, with or without an error (header: "Events").

use std::ptr::NonNull;

use crate::abi::Struct;
use crate::api::{Api, log_failed_drop};
use crate::bindings::*;
use crate::client::Client;
use crate::error::{PjrtError, Result};
use crate::live::{Alive, Noun};

/// Work under way. Dropping it does not cancel or wait.
#[derive(Debug)]
pub struct Event {
    raw: NonNull<PJRT_Event>,
    /// Keeps the work's runtime alive.
    client: Client,
    _alive: Alive,
}

// SAFETY: an event is an owned reference to a thread-safe future of the runtime; the C API has no thread affinity.
unsafe impl Send for Event {}
// SAFETY: waiting for and asking one event from several threads is what the runtime's futures are for.
unsafe impl Sync for Event {}

impl Event {
    /// # Safety
    /// `raw` is an event of this client's plugin that the caller owns and gives away.
    pub(crate) unsafe fn new(raw: NonNull<PJRT_Event>, client: Client) -> Event {
        Event { raw, client, _alive: Alive::new(Noun::Event) }
    }

    /// Blocks until the work has ended.
    ///
    /// # Errors
    /// [`PjrtError::Call`] with the work's own error: this is where a failed execution or transfer surfaces.
    pub fn wait(&self) -> Result<()> {
        let mut args = PJRT_Event_Await_Args::new();
        args.event = self.raw.as_ptr();
        // SAFETY: the event is live, since only `drop` frees it.
        unsafe { self.api().call(&mut args) }
    }

    /// Whether the work has ended, with or without an error.
    ///
    /// # Errors
    /// [`PjrtError::Call`] if the plugin cannot say.
    pub fn is_ready(&self) -> Result<bool> {
        let mut args = PJRT_Event_IsReady_Args::new();
        args.event = self.raw.as_ptr();
        // SAFETY: the event is live.
        unsafe { self.api().call(&mut args) }?;
        Ok(args.is_ready)
    }

    /// The error of work that has ended; an error saying "not ready" would be the caller's mistake, so `None` comes
    /// back while it is still under way.
    ///
    /// # Errors
    /// [`PjrtError::Call`] if the plugin cannot say whether the work has ended.
    pub fn error(&self) -> Result<Option<PjrtError>> {
        if !self.is_ready()? {
            return Ok(None);
        }
        let mut args = PJRT_Event_Error_Args::new();
        args.event = self.raw.as_ptr();
        // SAFETY: the event is live and ready, as the header asks.
        Ok(unsafe { self.api().call(&mut args) }.err())
    }

    /// Calls `then` once with the work's result, on a thread of the plugin's or on this one if it has ended already.
    ///
    /// `then` must be short and must not wait for other work: the plugin's threads are few. It must not own handles
    /// either: dropping a client's last handle on one of that client's threads would make the thread wait for itself.
    ///
    /// # Errors
    /// [`PjrtError::Call`] if the plugin does not take the callback; `then` is then dropped without being called.
    pub fn on_ready(self, then: impl FnOnce(Result<()>) + Send + 'static) -> Result<()> {
        let api = self.api();
        let raw = self.raw.as_ptr();
        // The event is moved into the callback, so it is freed there and not before.
        let boxed = Box::into_raw(Box::new(Callback { event: self, then: Some(Box::new(then)) }));
        let mut args = PJRT_Event_OnReady_Args::new();
        args.event = raw;
        args.callback = Some(run_callback);
        args.user_arg = boxed.cast();
        // SAFETY: the event is live; `user_arg` is what `run_callback` expects and stays valid until it ran.
        let registered = unsafe { api.call(&mut args) };
        if registered.is_err() {
            // SAFETY: a plugin that refuses the callback never calls it, so the box is still ours alone.
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
        // SAFETY: the event is live, owned by us, and not used after this.
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
    // A panic may not cross into C: it would abort the process.
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
