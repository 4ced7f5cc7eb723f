//! What keeps a server from serving, and what ends one session of it.

use std::io;
use std::net::SocketAddr;

/// Why the server did not start, or stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// An address that other machines reach needs a token.
    #[error(
        "{address} can be reached from other machines, so a token is needed: anyone who connects can run programs on this \
         machine's device\n  fix: pass --token or set BURN_TPU_SERVE_TOKEN, or serve on 127.0.0.1 and reach it through \
         `ssh -L`"
    )]
    NoToken {
        /// The address that was asked for.
        address: String,
    },
    /// The token cannot be used.
    #[error("the token {rule}")]
    Token {
        /// What a token must be.
        rule: &'static str,
    },
    /// The host has no address, or the port is taken.
    #[error("cannot listen on {address}: {source}{}", fix_of(source))]
    Bind {
        /// The address that was asked for.
        address: String,
        /// The system's reason.
        source: io::Error,
    },
    /// The device does not run.
    #[error(transparent)]
    Device(#[from] burn_tpu_runtime::TpuError),
    /// The binary was built without what was asked for.
    #[error("this binary was built without {what}\n  fix: {fix}")]
    NotBuilt {
        /// What is missing.
        what: &'static str,
        /// The command that builds it.
        fix: &'static str,
    },
    /// Two options that do not go together.
    #[error("{0}")]
    Options(&'static str),
    /// The handlers of SIGINT and SIGTERM, or a thread, could not be installed.
    #[error("cannot {what}: {source}")]
    System {
        /// What was to be done.
        what: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// The transport failed after it had started.
    #[error("the transport failed: {0}")]
    Transport(String),
}

/// Returns what to do about an address that cannot be had, where that is known.
fn fix_of(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::AddrInUse => {
            "\n  fix: another server runs there: end it, or pass --port with another one, or 0 for any"
        }
        io::ErrorKind::AddrNotAvailable => {
            "\n  fix: --host is an address of this machine, such as 127.0.0.1 or 0.0.0.0"
        }
        _ => "",
    }
}

/// Why a connection or a session ended. It is logged, and no other session notices.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// No WebSocket handshake, or none in time.
    #[error("{peer}: no WebSocket handshake: {reason}")]
    Handshake {
        /// The client's address.
        peer: SocketAddr,
        /// What was wrong with it.
        reason: String,
    },
    /// A handshake without the server's token.
    #[error("{peer}: the wrong token, or none")]
    WrongToken {
        /// The client's address.
        peer: SocketAddr,
    },
    /// A handshake from a web page.
    #[error("{peer}: a web page ({origin}) tried to connect")]
    Browser {
        /// The client's address.
        peer: SocketAddr,
        /// The page's origin.
        origin: String,
    },
    /// A path that the protocol does not have.
    #[error("{peer}: there is no {path}")]
    NoSuchPath {
        /// The client's address.
        peer: SocketAddr,
        /// The path, without the token.
        path: String,
    },
    /// More connections than the server takes.
    #[error("{peer}: {limit} connections are open already")]
    TooManyConnections {
        /// The client's address.
        peer: SocketAddr,
        /// The most connections at a time.
        limit: usize,
    },
    /// Bytes that are no message of the protocol.
    #[error("a message that is none of the protocol's: {reason}")]
    Malformed {
        /// Where it differs.
        reason: String,
    },
    /// A message where another is due, or a second socket of a kind.
    #[error("{0}")]
    OutOfTurn(&'static str),
    /// The connection broke.
    #[error("the connection broke: {0}")]
    Broken(String),
    /// An operation could not be done: an unknown tensor, shapes that do not fit.
    #[error("an operation failed: {reason}")]
    Operation {
        /// What the operation reported.
        reason: String,
    },
    /// Something that this server does not offer.
    #[error("{0}")]
    NotOffered(&'static str),
}
