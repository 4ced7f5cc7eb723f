//! Serves burn-flex in the same way: `cargo run --release --features flex-server --bin flex-server -- 3001`.

use burn::server::{RemoteServer, WebSocketTransport};
use burn::tensor::Device;
use std::net::TcpListener;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let port = std::env::args().nth(1).map_or(Ok(3001), |port| port.parse::<u16>())?;
    let listener = TcpListener::bind(("127.0.0.1", port))?;
    println!("serving flex on ws://{}", listener.local_addr()?);
    RemoteServer::new([Device::flex()]).serve(WebSocketTransport::from_listener(listener))?;
    Ok(())
}
