//! The Iroh transport: encrypted, and the server proves by its id who it is. No relay and no look-up of other machines'
//! servers: a client is given the id and the address.

use super::{Serving, Stop};
use crate::access;
use crate::error::ServeError;
use crate::options::Options;
use crate::run::{Event, GRACE};
use burn_remote::{BURN_REMOTE_ALPN, server::BackendServer};
use burn_tpu_0_22::Tpu;
use iroh::endpoint::{PortmapperConfig, presets};
use iroh::protocol::Router;
use iroh::{Endpoint, RelayMode};
use std::sync::mpsc::Sender;
use tokio::runtime::Runtime;

/// Serves on the address that the options name. Each start has another id.
///
/// # Errors
/// [`ServeError::Bind`] for an address that cannot be had; [`ServeError::Transport`].
pub(super) fn serve(
    runtime: &Runtime,
    server: BackendServer<Tpu>,
    options: &Options,
    events: Sender<Event>,
) -> Result<Serving, ServeError> {
    let address = format!("{}:{}", options.host, options.port);
    let bind = |reason: String| ServeError::Bind { address: address.clone(), source: std::io::Error::other(reason) };
    let first = access::resolve(&options.host, options.port)?[0];
    runtime.block_on(async {
        // By default Iroh asks the router to let the internet in, whatever address it listens on.
        let builder = Endpoint::builder(presets::Minimal)
            .relay_mode(RelayMode::Disabled)
            .portmapper_config(PortmapperConfig::Disabled)
            .clear_ip_transports();
        let builder = builder.bind_addr(first).map_err(|error| bind(error.to_string()))?;
        let endpoint = builder.bind().await.map_err(|error| bind(error.to_string()))?;
        let protocol = server.into_protocol(&endpoint).map_err(|error| ServeError::Transport(error.to_string()))?;
        let bound = endpoint.bound_sockets().into_iter().next().unwrap_or(first);
        let address = format!("iroh:{}@{bound}", endpoint.id());
        let router = Router::builder(endpoint.clone()).accept(BURN_REMOTE_ALPN, protocol).spawn();
        tokio::spawn(async move {
            endpoint.closed().await;
            let _stopped = events.send(Event::Failed("the Iroh endpoint closed".into()));
        });
        // The router serves for as long as it lives.
        let stop: Stop = Box::new(move |runtime| shut_down(runtime, &router));
        Ok((stop, address))
    })
}

/// Tells the clients that the server ends. They would wait half a minute for one that says nothing.
fn shut_down(runtime: &Runtime, router: &Router) {
    match runtime.block_on(async { tokio::time::timeout(GRACE, router.shutdown()).await }) {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(%error, "the Iroh transport did not end as it should"),
        Err(_elapsed) => tracing::warn!("the Iroh transport did not end within {GRACE:?}"),
    }
}
