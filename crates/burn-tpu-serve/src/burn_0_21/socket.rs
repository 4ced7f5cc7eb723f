//! A client's connection up to its first message: who may connect, and for what.
//!
//! Burn 0.21's client sends nothing but the URL it is given, so the token is the first part of the path:
//! `ws://host:port/TOKEN`, to which the client appends the route.

use super::wire::{SessionId, Task};
use crate::error::SessionError;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tungstenite::http::{StatusCode, header};
use tungstenite::protocol::WebSocketConfig;
use tungstenite::{Message, WebSocket};

/// How long a client may take for its handshake and its first message.
const PATIENCE: Duration = Duration::from_secs(10);
/// The largest message of a client. Burn's client sends frames of up to 512 MiB.
const LARGEST_MESSAGE: usize = 1 << 30;
/// The largest first message, which is a session's number.
const LARGEST_FIRST_MESSAGE: usize = 256;

/// What a connection is for: a client opens one of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// The client's tasks.
    Request,
    /// The server's answers.
    Response,
}

/// A connection whose client may be here, and has said which session it belongs to.
pub struct Admitted {
    pub socket: WebSocket<TcpStream>,
    pub route: Route,
    pub session: SessionId,
}

/// Does the handshake and reads the first message.
///
/// # Errors
/// Why the client is refused. One that knows HTTP has been told the status.
#[allow(clippy::result_large_err, reason = "tungstenite's callback returns a whole response as its error")]
pub fn admit(stream: TcpStream, peer: SocketAddr, token: Option<&str>) -> Result<Admitted, SessionError> {
    let broken = |error: std::io::Error| SessionError::Broken(error.to_string());
    stream.set_read_timeout(Some(PATIENCE)).map_err(broken)?;
    stream.set_nodelay(true).map_err(broken)?;
    watch_for_dead_peers(&stream);
    let mut checked = None;
    let check = |request: &Request, response: Response| {
        let route = route_of(request, peer, token);
        let status = route.as_ref().err().map(status_of);
        checked = Some(route);
        status.map_or(Ok(response), |status| {
            let mut refusal = ErrorResponse::new(None);
            *refusal.status_mut() = status;
            Err(refusal)
        })
    };
    let config = WebSocketConfig::default()
        .max_message_size(Some(LARGEST_FIRST_MESSAGE))
        .max_frame_size(Some(LARGEST_FIRST_MESSAGE))
        .accept_unmasked_frames(true)
        .write_buffer_size(0);
    let accepted = tungstenite::accept_hdr_with_config(stream, check, Some(config));
    let accepted = accepted.map_err(|error| SessionError::Handshake { peer, reason: error.to_string() });
    let (mut socket, route) = match checked {
        Some(Err(refused)) => return Err(refused),
        Some(Ok(route)) => (accepted?, route),
        None => return accepted.and(Err(SessionError::OutOfTurn("the handshake asked for nothing"))),
    };
    let session = first_message(&mut socket)?;
    socket.set_config(|config| {
        config.max_message_size = Some(LARGEST_MESSAGE);
        config.max_frame_size = Some(LARGEST_MESSAGE);
    });
    // A session may be idle for as long as its client lives.
    socket.get_ref().set_read_timeout(None).map_err(broken)?;
    Ok(Admitted { socket, route, session })
}

/// Returns the next message of the client; `None` when it has closed the connection.
///
/// # Errors
/// [`SessionError::Malformed`] for what is no message, [`SessionError::Broken`] when the connection breaks.
pub fn receive(socket: &mut WebSocket<TcpStream>) -> Result<Option<Task>, SessionError> {
    use tungstenite::Error;
    loop {
        match socket.read() {
            Ok(Message::Binary(bytes)) => return decode(&bytes).map(Some),
            Ok(Message::Close(_)) | Err(Error::ConnectionClosed | Error::AlreadyClosed) => return Ok(None),
            Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_)) => {}
            Ok(Message::Text(_)) => return Err(SessionError::Malformed { reason: "it is text".into() }),
            Err(Error::Capacity(error)) => return Err(SessionError::Malformed { reason: error.to_string() }),
            Err(error) => return Err(SessionError::Broken(error.to_string())),
        }
    }
}

fn decode(bytes: &[u8]) -> Result<Task, SessionError> {
    rmp_serde::from_slice(bytes).map_err(|error| SessionError::Malformed { reason: error.to_string() })
}

fn first_message(socket: &mut WebSocket<TcpStream>) -> Result<SessionId, SessionError> {
    match receive(socket)? {
        Some(Task::Init(session)) => Ok(session),
        Some(_) => Err(SessionError::OutOfTurn("the first message must open the session")),
        None => Err(SessionError::OutOfTurn("the client left before it opened a session")),
    }
}

fn route_of(request: &Request, peer: SocketAddr, token: Option<&str>) -> Result<Route, SessionError> {
    // Browsers name the page in this header, and let any page connect to a server on the same machine.
    if let Some(origin) = request.headers().get(header::ORIGIN) {
        return Err(SessionError::Browser { peer, origin: String::from_utf8_lossy(origin.as_bytes()).into_owned() });
    }
    // A URL that ends with a slash makes two of it.
    let mut parts = request.uri().path().split('/').filter(|part| !part.is_empty());
    if let Some(token) = token {
        let given = parts.next().unwrap_or_default();
        if !same(given.as_bytes(), token.as_bytes()) {
            return Err(SessionError::WrongToken { peer });
        }
    }
    match (parts.next(), parts.next()) {
        (Some("request"), None) => Ok(Route::Request),
        (Some("response"), None) => Ok(Route::Response),
        (path, _) => Err(SessionError::NoSuchPath { peer, path: path.unwrap_or("/").into() }),
    }
}

fn status_of(error: &SessionError) -> StatusCode {
    match error {
        SessionError::WrongToken { .. } => StatusCode::UNAUTHORIZED,
        SessionError::NoSuchPath { .. } => StatusCode::NOT_FOUND,
        _ => StatusCode::FORBIDDEN,
    }
}

/// Compares without stopping at the first difference, so that the time of an answer tells only the length.
fn same(given: &[u8], token: &[u8]) -> bool {
    given.len() == token.len() && given.iter().zip(token).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}

/// Asks the system to drop a connection whose client vanished without closing it, half a minute after the last byte.
fn watch_for_dead_peers(stream: &TcpStream) {
    use rustix::net::sockopt;
    let set = sockopt::set_socket_keepalive(stream, true)
        .and_then(|()| sockopt::set_tcp_keepidle(stream, Duration::from_secs(10)))
        .and_then(|()| sockopt::set_tcp_keepintvl(stream, Duration::from_secs(5)))
        .and_then(|()| sockopt::set_tcp_keepcnt(stream, 4));
    if let Err(error) = set {
        tracing::warn!(%error, "no TCP keep-alive: a client whose machine vanishes will not be noticed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(path: &str, token: Option<&str>) -> Result<Route, SessionError> {
        let request = Request::builder().uri(path).body(()).unwrap();
        route_of(&request, ([127, 0, 0, 1], 1).into(), token)
    }

    #[test]
    fn the_token_is_the_first_part_of_the_path() {
        assert_eq!(route("/request", None).unwrap(), Route::Request);
        assert_eq!(route("/secret/response", Some("secret")).unwrap(), Route::Response);
        // Burn's client appends `/request` to the URL, which may end with a slash.
        assert_eq!(route("/secret//request", Some("secret")).unwrap(), Route::Request);
        for path in ["/request", "/secre/request", "/secrets/request", "/", "//request"] {
            assert!(matches!(route(path, Some("secret")), Err(SessionError::WrongToken { .. })), "{path}");
        }
        for path in ["/", "/data", "/request/more", "/secret/request"] {
            assert!(matches!(route(path, None), Err(SessionError::NoSuchPath { .. })), "{path}");
        }
    }

    #[test]
    fn web_pages_may_not_connect() {
        let request = Request::builder().uri("/request").header("Origin", "https://example.org").body(()).unwrap();
        let refused = route_of(&request, ([127, 0, 0, 1], 1).into(), None).unwrap_err();
        assert!(refused.to_string().contains("https://example.org"), "{refused}");
    }
}
