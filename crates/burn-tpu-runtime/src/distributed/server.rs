//! The store's server: the commands `SET` and `GET` of Redis's protocol, over TCP.
//!
//! Process 0 serves it, so that several hosts need no server of their own. The protocol is Redis's: a Redis or Valkey server
//! takes its place without a change. There is no password: the port belongs in a private network.

use super::resp::{self, Reply};
use crate::error::{Result, TpuError};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::io::{BufReader, ErrorKind};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

/// The values by key.
type Values = Arc<Mutex<FxHashMap<Vec<u8>, Vec<u8>>>>;

/// Serves a store until the process ends, and returns its address; the port 0 chooses a free one. A host that is no address
/// of this machine, such as one behind a gateway, stands for all addresses of it.
///
/// # Errors
/// [`TpuError::Store`] if the port is in use, or the address has another form than `host:port`.
pub fn serve(address: &str) -> Result<SocketAddr> {
    let failed = |error: std::io::Error| TpuError::Store { address: address.into(), reason: error.to_string() };
    let listener = TcpListener::bind(address).or_else(|error| match (error.kind(), address.rsplit_once(':')) {
        (ErrorKind::AddrNotAvailable, Some((_, port))) => TcpListener::bind(format!("0.0.0.0:{port}")),
        _ => Err(error),
    });
    let listener = listener.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    let values = Values::default();
    let accept = move || {
        for stream in listener.incoming() {
            match stream {
                Ok(stream) => answer_on_a_thread(stream, &values),
                Err(error) => tracing::warn!(%error, "the store refused a connection"),
            }
        }
    };
    std::thread::Builder::new().name("burn-tpu-store".into()).spawn(accept).map_err(failed)?;
    tracing::info!(%bound, "the store is served");
    Ok(bound)
}

fn answer_on_a_thread(stream: TcpStream, values: &Values) {
    let values = Arc::clone(values);
    let answer = move || answer(&stream, &values);
    if let Err(error) = std::thread::Builder::new().name("burn-tpu-store".into()).spawn(answer) {
        tracing::warn!(%error, "the store has no thread for a connection");
    }
}

/// Answers commands until the connection closes.
fn answer(mut stream: &TcpStream, values: &Values) {
    // Without effect on what is answered: only later.
    stream.set_nodelay(true).ok();
    let mut commands = BufReader::new(stream);
    while let Ok(command) = resp::command(&mut commands) {
        if resp::answer(&mut stream, &reply(&command, values)).is_err() {
            return;
        }
    }
}

fn reply(command: &[Vec<u8>], values: &Values) -> Reply {
    match command {
        [name, key, value, ..] if name.eq_ignore_ascii_case(b"SET") => {
            values.lock().insert(key.clone(), value.clone());
            Reply::Done
        }
        [name, key] if name.eq_ignore_ascii_case(b"GET") => match values.lock().get(key) {
            Some(value) => Reply::Value(value.clone()),
            None => Reply::NoValue,
        },
        _ => Reply::Refused("this store has SET and GET".into()),
    }
}
