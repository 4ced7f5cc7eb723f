//! A server for clients of Burn 0.21: burn-remote 0.21's protocol on plain threads.
//!
//! Owns: the listener, and the life of each connection. `socket.rs` says who may connect, `session.rs` which session a socket
//! belongs to, `worker.rs` does the tasks. burn-remote 0.21 has a server too, whose only entry listens on all interfaces, keeps
//! the tensors of all clients in one table until the process ends, and panics on what it does not understand.

mod session;
mod socket;
pub mod wire;
mod worker;

use crate::access::Token;
use crate::error::{ServeError, SessionError};
use burn_backend::tensor::Device;
use burn_ir::BackendIr;
use parking_lot::Mutex;
use session::Sessions;
use socket::{Admitted, Route};
use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::RecvTimeoutError;
use std::thread;
use std::time::{Duration, Instant};
use tungstenite::{Message, WebSocket};
use wire::{SessionId, Task};

/// The connections that may be open at a time: two for each client.
const CONNECTIONS: usize = 256;
/// How long a client may take to open its second socket.
const SECOND_SOCKET: Duration = Duration::from_secs(10);
/// How often a socket for answers looks whether its client is there.
const PRESENCE: Duration = Duration::from_millis(500);

/// A running server. Dropping it leaves it running: call [`Server::stop`].
pub struct Server<B: BackendIr> {
    shared: Arc<Shared<B>>,
    address: SocketAddr,
    acceptor: thread::JoinHandle<()>,
}

struct Shared<B: BackendIr> {
    sessions: Sessions<B>,
    token: Option<Token>,
    /// The open connections, by number.
    open: Mutex<HashMap<u64, TcpStream>>,
    next: AtomicU64,
    stops: AtomicBool,
}

impl<B: BackendIr> Server<B> {
    /// Serves a device on a listener, to clients that name the token in their URL.
    ///
    /// # Errors
    /// [`ServeError::System`] if the listener has no address, or the system gives no thread.
    pub fn start(listener: TcpListener, device: Device<B>, token: Option<Token>) -> Result<Self, ServeError> {
        let address =
            listener.local_addr().map_err(|source| ServeError::System { what: "ask for the address", source })?;
        let shared = Arc::new(Shared {
            sessions: Sessions::new(device),
            token,
            open: Mutex::default(),
            next: AtomicU64::new(0),
            stops: AtomicBool::new(false),
        });
        let accepting = Arc::clone(&shared);
        let acceptor = thread::Builder::new().name("accept".into()).spawn(move || accepting.accept(&listener));
        let acceptor = acceptor.map_err(|source| ServeError::System { what: "start a thread", source })?;
        Ok(Self { shared, address, acceptor })
    }

    /// The address that clients connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns how many clients have tensors here, those included whose session is just ending.
    pub fn sessions(&self) -> usize {
        self.shared.sessions.count()
    }

    /// Ends all sessions, gives their clients an error, and waits for them for at most `grace`. Returns whether all have ended.
    pub fn stop(self, grace: Duration) -> bool {
        let until = Instant::now() + grace;
        self.shared.stops.store(true, Relaxed);
        self.shared.sessions.stop();
        // The accepting thread waits for a connection: it gets one. If that fails, it is left behind.
        if TcpStream::connect_timeout(&reachable(self.address), Duration::from_secs(1)).is_ok() {
            let _panicked = self.acceptor.join();
        }
        for stream in self.shared.open.lock().values() {
            let _gone = stream.shutdown(Shutdown::Read);
        }
        let ended = || self.shared.sessions.count() == 0 && self.shared.open.lock().is_empty();
        while !ended() && Instant::now() < until {
            thread::sleep(Duration::from_millis(10));
        }
        ended()
    }
}

/// Returns an address of this machine for one that stands for all of its addresses.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V4(v4) if v4.ip().is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        SocketAddr::V6(v6) if v6.ip().is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        SocketAddr::V4(_) | SocketAddr::V6(_) => {}
    }
    address
}

impl<B: BackendIr> Shared<B> {
    fn accept(self: Arc<Self>, listener: &TcpListener) {
        for stream in listener.incoming() {
            if self.stops.load(Relaxed) {
                return;
            }
            match stream {
                Ok(stream) => self.admit(stream),
                Err(error) => {
                    tracing::warn!(%error, "a connection was lost before it was accepted");
                    // The usual reason is that the process has no more file descriptors: some will be closed.
                    thread::sleep(Duration::from_millis(50));
                }
            }
        }
    }

    /// Gives a connection its thread.
    fn admit(self: &Arc<Self>, stream: TcpStream) {
        let (Ok(peer), Ok(kept)) = (stream.peer_addr(), stream.try_clone()) else { return };
        let number = self.next.fetch_add(1, Relaxed);
        {
            let mut open = self.open.lock();
            if open.len() >= CONNECTIONS {
                let error = SessionError::TooManyConnections { peer, limit: CONNECTIONS };
                return tracing::warn!(%error, "a connection was refused");
            }
            open.insert(number, kept);
        }
        let shared = Arc::clone(self);
        let started = thread::Builder::new().name("connection".into()).spawn(move || {
            match shared.converse(stream, peer) {
                Ok(()) => {}
                // Burn's client closes nothing when its process ends.
                Err(error @ SessionError::Broken(_)) => tracing::info!(%peer, %error, "a client left"),
                Err(error) => tracing::warn!(%peer, %error, "a connection was refused"),
            }
            shared.open.lock().remove(&number);
        });
        if let Err(error) = started {
            tracing::error!(%error, "no thread for a connection");
            self.open.lock().remove(&number);
        }
    }

    /// Serves one connection until it ends.
    fn converse(&self, stream: TcpStream, peer: SocketAddr) -> Result<(), SessionError> {
        let Admitted { mut socket, route, session } =
            socket::admit(stream, peer, self.token.as_ref().map(Token::text))?;
        let outcome = match route {
            Route::Request => self.take_tasks(&mut socket, session),
            Route::Response => self.give_answers(&mut socket, session),
        };
        let _gone = socket.close(None).and_then(|()| socket.flush());
        outcome
    }

    /// Passes a client's tasks to its session, which ends with the connection.
    fn take_tasks(&self, socket: &mut WebSocket<TcpStream>, id: SessionId) -> Result<(), SessionError> {
        let tasks = self.sessions.tasks(id)?;
        tracing::info!(session = id.id, "a session was opened");
        let outcome = self.await_reader(id).and_then(|()| {
            loop {
                match socket::receive(socket)? {
                    Some(Task::Compute(task, request)) => {
                        if tasks.send((task, request)).is_err() {
                            return Err(SessionError::OutOfTurn("the session has ended"));
                        }
                    }
                    Some(Task::Close(closed)) if closed == id => return Ok(()),
                    Some(Task::Close(_)) => {
                        return Err(SessionError::OutOfTurn("a client may close its own session alone"));
                    }
                    Some(Task::Init(_)) => return Err(SessionError::OutOfTurn("a session is opened once")),
                    None => return Ok(()),
                }
            }
        });
        // What is queued is done if the client said good-bye, and not if it vanished.
        if outcome.is_err() {
            self.sessions.close(id);
        } else {
            self.sessions.finish(id);
        }
        outcome
    }

    /// Waits until the client has opened its socket for answers.
    fn await_reader(&self, id: SessionId) -> Result<(), SessionError> {
        let until = Instant::now() + SECOND_SOCKET;
        while !self.sessions.has_reader(id) {
            if Instant::now() > until || self.stops.load(Relaxed) {
                return Err(SessionError::OutOfTurn("the client did not open its socket for answers"));
            }
            thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// Sends a session's answers until it has no more. A client whose socket for answers breaks is gone.
    fn give_answers(&self, socket: &mut WebSocket<TcpStream>, id: SessionId) -> Result<(), SessionError> {
        let answers = self.sessions.answers(id)?;
        let outcome = loop {
            let sent = match answers.recv_timeout(PRESENCE) {
                Ok(bytes) => {
                    socket.send(Message::binary(bytes)).map_err(|error| SessionError::Broken(error.to_string()))
                }
                Err(RecvTimeoutError::Timeout) if !self.stops.load(Relaxed) => present(socket.get_ref()),
                Err(RecvTimeoutError::Timeout) => Ok(()),
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            };
            if sent.is_err() {
                break sent;
            }
        };
        self.sessions.close(id);
        outcome
    }
}

/// Looks whether a client that has nothing to say is there.
fn present(stream: &TcpStream) -> Result<(), SessionError> {
    let broken = |error: std::io::Error| SessionError::Broken(error.to_string());
    stream.set_nonblocking(true).map_err(broken)?;
    let peeked = stream.peek(&mut [0]);
    stream.set_nonblocking(false).map_err(broken)?;
    match peeked {
        Ok(0) => Err(SessionError::Broken("the client is gone".into())),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(()),
        Err(error) => Err(broken(error)),
    }
}
