//! SIGTERM and SIGINT: one thread of the process hears them for the [`Preemption`](crate::Preemption) that there is.
//!
//! A handler stays installed once it is, so the thread stays too. Without a `Preemption` it does what the system would have
//! done: it ends the process.

use super::{Heard, PreemptionError};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::{emulate_default_handler, exit};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

struct Listener {
    has_thread: bool,
    heard: Weak<Heard>,
}

static LISTENER: Mutex<Listener> = Mutex::new(Listener { has_thread: false, heard: Weak::new() });

/// Passes signals to `heard` as long as it is there.
///
/// # Errors
/// [`PreemptionError::AlreadyWatching`]; [`PreemptionError::Signals`] if the system refuses a handler or a thread.
pub(super) fn watch(heard: &Arc<Heard>) -> Result<(), PreemptionError> {
    let mut listener = listener();
    if listener.heard.strong_count() > 0 {
        return Err(PreemptionError::AlreadyWatching);
    }
    if !listener.has_thread {
        let mut signals = Signals::new([SIGTERM, SIGINT])?;
        let listen = move || signals.forever().for_each(received);
        std::thread::Builder::new().name("burn-tpu-signals".into()).spawn(listen)?;
        listener.has_thread = true;
    }
    listener.heard = Arc::downgrade(heard);
    Ok(())
}

fn listener() -> MutexGuard<'static, Listener> {
    LISTENER.lock().unwrap_or_else(PoisonError::into_inner)
}

fn received(signal: i32) {
    let heard = listener().heard.upgrade();
    if !heard.is_some_and(|heard| heard.hear_signal(signal)) {
        end(signal);
    }
}

/// Ends the process as the signal does by default.
fn end(signal: i32) {
    if emulate_default_handler(signal).is_err() {
        exit(128 + signal);
    }
}
