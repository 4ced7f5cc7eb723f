//! What keeps a server from serving.

use std::io;

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
