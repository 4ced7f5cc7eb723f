//! The life of the server's process: device, listener, sessions, signal, report.

use crate::access;
use crate::error::ServeError;
use crate::options::Options;
use crate::server;
use burn_tpu_runtime::{Device, Metrics};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

/// How long sessions may take to end after a signal.
pub(crate) const GRACE: Duration = Duration::from_secs(10);

/// What ends a server.
#[derive(Debug)]
pub(crate) enum Event {
    /// SIGINT or SIGTERM.
    Signal,
    /// The transport failed.
    Failed(String),
}

/// What clients need to know of a server that is ready.
#[derive(Clone, Debug)]
pub struct Ready {
    /// What a client connects to: a URL, or Iroh's id and address.
    pub address: String,
    /// The device that runs their operations.
    pub device: Device,
    /// Whether they need a token.
    pub needs_token: bool,
}

/// What a server did.
#[derive(Clone, Debug)]
pub struct Served {
    /// What its device did.
    pub metrics: Metrics,
    /// The bytes of the tensors that were left in its memory.
    pub bytes_left: u64,
    /// Whether all sessions ended in time.
    pub ended: bool,
}

/// Serves until SIGINT or SIGTERM. `ready` is called once clients can connect.
///
/// # Errors
/// Why it could not be started, or how it failed: see [`ServeError`].
pub fn run(options: &Options, ready: impl FnOnce(&Ready)) -> Result<Served, ServeError> {
    let token = options.checked_token()?;
    // All of this comes before the device is opened, which takes seconds: the first signal is heard, and what cannot be had
    // is refused at once.
    access::allow(&access::resolve(&options.host, options.port)?, &options.host, token.as_ref())?;
    let (events, received) = channel();
    forward_signals(events.clone()).map_err(|source| ServeError::System { what: "handle signals", source })?;
    let device = options.served_device();
    let ended = server::serve(options, device, token, ready, (events, &received))?;
    // What vanished clients left in flight.
    if let Err(error) = device.sync() {
        tracing::warn!(%error, "the last work failed");
    }
    Ok(Served { metrics: device.metrics(), bytes_left: device.memory().live.tensors(), ended })
}

fn forward_signals(events: Sender<Event>) -> std::io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        for signal in &mut signals {
            tracing::info!(signal, "the server stops");
            if events.send(Event::Signal).is_err() {
                return;
            }
        }
    })?;
    Ok(())
}
