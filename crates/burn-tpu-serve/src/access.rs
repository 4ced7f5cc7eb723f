//! Who may reach the server: the address that it listens on, and the token that clients need.

use crate::error::ServeError;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};

/// The shortest token: 16 characters of 64 are as many as a key of 96 bits has.
const SHORTEST: usize = 16;

/// A secret that a client must name. It is not printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// Takes a text as the token.
    ///
    /// # Errors
    /// [`ServeError::Token`] for a text that is too short.
    pub fn new(text: impl Into<String>) -> Result<Self, ServeError> {
        let text = text.into();
        if text.len() < SHORTEST {
            return Err(ServeError::Token {
                rule: "needs at least 16 characters, such as `openssl rand -hex 16` prints",
            });
        }
        Ok(Self(text))
    }

    /// The secret itself.
    pub fn text(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(..)")
    }
}

/// Listens on an address of this machine. Port 0 stands for any free port.
///
/// # Errors
/// [`ServeError::NoToken`] if other machines reach the address and there is no token; [`ServeError::Bind`].
pub fn listen(host: &str, port: u16, token: Option<&Token>) -> Result<TcpListener, ServeError> {
    let addresses = resolve(host, port)?;
    allow(&addresses, host, token)?;
    TcpListener::bind(addresses.as_slice())
        .map_err(|source| ServeError::Bind { address: format!("{host}:{port}"), source })
}

/// Returns the addresses of a host of this machine: at least one.
///
/// # Errors
/// [`ServeError::Bind`] if the name is unknown.
pub fn resolve(host: &str, port: u16) -> Result<Vec<SocketAddr>, ServeError> {
    let found = (host, port).to_socket_addrs().map(Iterator::collect::<Vec<_>>);
    let unknown = || std::io::Error::new(std::io::ErrorKind::NotFound, "the name has no address");
    let found = found.and_then(|found| if found.is_empty() { Err(unknown()) } else { Ok(found) });
    found.map_err(|source| ServeError::Bind { address: format!("{host}:{port}"), source })
}

/// Checks that addresses are this machine's alone, or that there is a token.
///
/// # Errors
/// [`ServeError::NoToken`].
pub fn allow(addresses: &[SocketAddr], host: &str, token: Option<&Token>) -> Result<(), ServeError> {
    if token.is_none() && addresses.iter().any(|address| !address.ip().is_loopback()) {
        return Err(ServeError::NoToken { address: host.to_string() });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_machines_need_a_token() {
        for host in ["0.0.0.0", "192.0.2.1", "::"] {
            let error = listen(host, 0, None).unwrap_err().to_string();
            assert!(error.contains("a token is needed") && error.contains("fix:"), "{error}");
        }
        let token = Token::new("0123456789abcdef").unwrap();
        assert!(listen("0.0.0.0", 0, Some(&token)).is_ok());
        for host in ["127.0.0.1", "localhost"] {
            let listener = listen(host, 0, None).unwrap();
            assert!(listener.local_addr().unwrap().ip().is_loopback());
        }
    }

    #[test]
    fn a_token_is_long_and_not_printed() {
        assert!(Token::new("short").unwrap_err().to_string().contains("at least 16"));
        let token = Token::new("0123456789abcdef").unwrap();
        assert_eq!(format!("{token:?}"), "Token(..)");
    }

    #[test]
    fn a_port_that_is_taken_is_named() {
        let taken = listen("127.0.0.1", 0, None).unwrap();
        let port = taken.local_addr().unwrap().port();
        let error = listen("127.0.0.1", port, None).unwrap_err().to_string();
        assert!(error.contains(&format!("127.0.0.1:{port}")) && error.contains("fix:"), "{error}");
    }
}
