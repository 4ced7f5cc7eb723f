//! The server: burn-remote's own, with this project's backend, addresses, tokens and end.
//!
//! burn-remote runs the ops of a session on one thread, with the number of the client's thread set for each. The runtime
//! follows that number ([`follow_client_threads`]), so each thread of a client records in a stream of its own, as it would
//! without a server between: a program depends neither on the server's threads nor on how the client's interleave.
//!
//! The protocol has reads and syncs, which cut. It has no end of a step: a client that reads nothing in its loop can send
//! the custom op [`MARK_STEP`].

#[cfg(feature = "iroh")]
mod iroh;

use crate::access::{self, Token};
use crate::error::ServeError;
use crate::options::{Options, TransportKind};
use crate::run::{Event, GRACE, Ready};
use burn_remote::server::{BackendServer, TokenAuthorizer, WebSocketTransport};
use burn_tpu_0_22::{MARK_STEP, Tpu, TpuDevice, follow_client_threads, mark_step};
use burn_tpu_runtime::Device;
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

/// A server of one device, to which sessions can be opened once it is given a transport.
///
/// # Errors
/// [`ServeError::Token`] for an empty token.
pub fn backend(device: TpuDevice, token: Option<&Token>) -> Result<BackendServer<Tpu>, ServeError> {
    follow_client_threads();
    let server = BackendServer::<Tpu>::new([device]).with_custom_op(MARK_STEP, mark_step);
    let Some(token) = token else { return Ok(server) };
    let authorizer = TokenAuthorizer::new(token.text()).map_err(|_| ServeError::Token { rule: "is empty" })?;
    Ok(server.with_authorizer(authorizer))
}

/// Serves until an event says to stop. Returns whether all sessions ended in time.
///
/// # Errors
/// Why the transport did not start, or failed.
pub(crate) fn serve(
    options: &Options,
    device: Device,
    token: Option<Token>,
    ready: impl FnOnce(&Ready),
    (events, received): (Sender<Event>, &Receiver<Event>),
) -> Result<bool, ServeError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|source| ServeError::System { what: "start the threads of the server", source })?;
    let server = backend(TpuDevice::from(device).with_default_float(options.float.into()), token.as_ref())?;
    let (stop, address) = match options.transport {
        TransportKind::Websocket => websocket(&runtime, &server, options, token.as_ref(), events)?,
        TransportKind::Iroh => iroh_transport(&runtime, server, options, events)?,
    };
    // The first session may wait for it, but nobody is told of a server without a device.
    device.sync()?;
    ready(&Ready { address, device, needs_token: token.is_some() });
    let outcome = match received.recv() {
        Ok(Event::Failed(reason)) => Err(ServeError::Transport(reason)),
        Ok(Event::Signal) | Err(_) => Ok(()),
    };
    // The end of the transport ends the sessions. Their threads free what they hold, and nothing else waits for them.
    stop(&runtime);
    let ended = is_idle_within(device, GRACE);
    runtime.shutdown_timeout(Duration::from_secs(1));
    outcome.map(|()| ended)
}

/// Ends a transport and its sessions.
type Stop = Box<dyn FnOnce(&Runtime)>;

/// What ends a transport that serves, and its address.
type Serving = (Stop, String);

fn websocket(
    runtime: &Runtime,
    server: &BackendServer<Tpu>,
    options: &Options,
    token: Option<&Token>,
    events: Sender<Event>,
) -> Result<Serving, ServeError> {
    let listener = access::listen(&options.host, options.port, token)?;
    let address = listener.local_addr().map_err(|source| ServeError::System { what: "ask for the address", source })?;
    let serving = server.serve_async(WebSocketTransport::from_listener(listener));
    let task = runtime.spawn(async move {
        let reason = serving.await.err().map_or_else(|| "it ended by itself".to_string(), |error| error.to_string());
        let _stopped = events.send(Event::Failed(reason));
    });
    Ok((Box::new(move |_| task.abort()), format!("ws://{address}")))
}

#[cfg(feature = "iroh")]
use iroh::serve as iroh_transport;

#[cfg(not(feature = "iroh"))]
fn iroh_transport(_: &Runtime, _: BackendServer<Tpu>, _: &Options, _: Sender<Event>) -> Result<Serving, ServeError> {
    let fix = "cargo install --path crates/burn-tpu-serve --features iroh";
    Err(ServeError::NotBuilt { what: "the Iroh transport", fix })
}

/// Waits until the device holds no tensors and nothing runs or waits.
fn is_idle_within(device: Device, patience: Duration) -> bool {
    let until = Instant::now() + patience;
    loop {
        let activity = device.activity();
        if device.memory().live.tensors() == 0 && activity.programs.is_empty() && activity.waits.is_empty() {
            return true;
        }
        if Instant::now() > until {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
