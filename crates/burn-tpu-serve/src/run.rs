//! The life of the server's process: device, listener, sessions, signal, report.

use crate::access::{self, Token};
use crate::error::ServeError;
use crate::options::{BurnVersion, Options, TransportKind};
use burn_tpu_runtime::{Device, Metrics};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// How long sessions may take to end after a signal.
pub(crate) const GRACE: Duration = Duration::from_secs(10);

/// What ends a server.
#[derive(Debug)]
pub(crate) enum Event {
    /// SIGINT or SIGTERM.
    Signal,
    /// The transport failed.
    #[cfg_attr(
        not(feature = "burn-0-22"),
        expect(dead_code, reason = "only the transports of Burn 0.22 fail by themselves")
    )]
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
    if options.burn == BurnVersion::V0_21 && options.transport == TransportKind::Iroh {
        return Err(ServeError::Options("Burn 0.21 has no Iroh transport: leave --transport out"));
    }
    // All of this comes before the device is opened, which takes seconds: the first signal is heard, and what cannot be had
    // is refused at once.
    access::allow(&access::resolve(&options.host, options.port)?, &options.host, token.as_ref())?;
    let events = channel();
    forward_signals(events.0.clone()).map_err(|source| ServeError::System { what: "handle signals", source })?;
    let device = options.served_device();
    let ended = match options.burn {
        BurnVersion::V0_21 => serve_0_21(options, device, token, ready, events)?,
        BurnVersion::V0_22 => serve_0_22(options, device, token, ready, events)?,
    };
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

type Events = (Sender<Event>, Receiver<Event>);

#[cfg(feature = "burn-0-21")]
fn serve_0_21(
    options: &Options,
    device: Device,
    token: Option<Token>,
    ready: impl FnOnce(&Ready),
    (_, received): Events,
) -> Result<bool, ServeError> {
    use burn_tpu::{Tpu, TpuDevice};
    let listener = access::listen(&options.host, options.port, token.as_ref())?;
    device.sync()?;
    let needs_token = token.is_some();
    // Burn 0.21's client computes in f32 and i32, whatever the server.
    let server = crate::burn_0_21::Server::<Tpu<f32, i32>>::start(listener, TpuDevice::from(device), token)?;
    ready(&Ready { address: format!("ws://{}", server.address()), device, needs_token });
    // An error would mean that the thread of the signals is gone.
    let _event = received.recv();
    Ok(server.stop(GRACE))
}

#[cfg(not(feature = "burn-0-21"))]
fn serve_0_21(_: &Options, _: Device, _: Option<Token>, _: impl FnOnce(&Ready), _: Events) -> Result<bool, ServeError> {
    Err(ServeError::NotBuilt { what: "Burn 0.21", fix: "cargo install --path burn-tpu-serve --features burn-0-21" })
}

#[cfg(not(feature = "burn-0-22"))]
fn serve_0_22(_: &Options, _: Device, _: Option<Token>, _: impl FnOnce(&Ready), _: Events) -> Result<bool, ServeError> {
    Err(ServeError::NotBuilt { what: "Burn 0.22", fix: "cargo install --path burn-tpu-serve --features burn-0-22" })
}

#[cfg(feature = "burn-0-22")]
fn serve_0_22(
    options: &Options,
    device: Device,
    token: Option<Token>,
    ready: impl FnOnce(&Ready),
    (events, received): Events,
) -> Result<bool, ServeError> {
    crate::burn_0_22::serve(options, device, token, ready, (events, &received))
}
