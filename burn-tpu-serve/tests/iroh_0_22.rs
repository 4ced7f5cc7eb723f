//! The Iroh transport, from the command's start to its end: over loopback, without a relay and without another machine.
#![cfg(feature = "iroh")]

#[path = "wire_0_22/mod.rs"]
mod wire;

use burn_remote::{BURN_REMOTE_ALPN, EndpointAddr, EndpointId};
use iroh::endpoint::{Connection, PortmapperConfig, RecvStream, SendStream, presets};
use iroh::{Endpoint, RelayMode, SecretKey};
use serde::Serialize;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;
use wire::{RemoteMessage, SessionRefusal, TOKEN, TaskResponse, TaskResponseContent, doubled, frame, init};

/// A server that hangs fails its test after this time.
const PATIENCE: Duration = Duration::from_secs(20);

/// What the first frame of a stream says: that it is a session.
#[derive(Serialize)]
struct StreamHeader {
    version: u16,
    kind: StreamKind,
}

#[derive(Serialize)]
enum StreamKind {
    Session,
}

/// The command. It is killed when it is dropped.
struct Server {
    child: Child,
    output: BufReader<ChildStdout>,
    id: EndpointId,
    address: SocketAddr,
}

impl Server {
    fn start() -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_burn-tpu-serve"));
        command
            .args(["--transport", "iroh", "--port", "0", "--platform", "ndarray"])
            .env("BURN_TPU_SERVE_TOKEN", TOKEN);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let (_, place) = line.trim_end().split_once("iroh:").unwrap_or_else(|| panic!("no address in {line:?}"));
        let (id, address) = place.strip_suffix(", with a token").unwrap().split_once('@').unwrap();
        Self { child, output, id: id.parse().unwrap(), address: address.parse().unwrap() }
    }

    /// Ends the server as a supervisor does. Returns what it printed.
    fn stop(mut self) -> String {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        let mut printed = String::new();
        self.output.read_to_string(&mut printed).unwrap();
        assert!(self.child.wait().unwrap().success(), "{printed}");
        printed
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// A client's endpoint. Whoever it dials has to be at the address and prove the id.
async fn endpoint() -> Endpoint {
    let builder = Endpoint::builder(presets::Minimal).relay_mode(RelayMode::Disabled);
    builder.portmapper_config(PortmapperConfig::Disabled).bind().await.unwrap()
}

/// A session: one stream of a connection.
struct Session {
    _connection: Connection,
    send: SendStream,
    receive: RecvStream,
}

impl Session {
    async fn open(endpoint: &Endpoint, server: &Server, token: &str) -> Self {
        let address = EndpointAddr::new(server.id).with_ip_addr(server.address);
        let connection = endpoint.connect(address, BURN_REMOTE_ALPN).await.unwrap();
        let (send, receive) = connection.open_bi().await.unwrap();
        let mut session = Self { _connection: connection, send, receive };
        session.write(&rmp_serde::to_vec(&StreamHeader { version: 1, kind: StreamKind::Session }).unwrap()).await;
        session.send(&init(token, 0, 1)).await;
        session
    }

    async fn write(&mut self, bytes: &[u8]) {
        self.send.write_all(&(bytes.len() as u64).to_le_bytes()).await.unwrap();
        self.send.write_all(bytes).await.unwrap();
    }

    async fn send(&mut self, message: &RemoteMessage) {
        self.write(&frame(message)).await;
    }

    async fn answer(&mut self) -> TaskResponseContent {
        let mut len = [0; 8];
        self.receive.read_exact(&mut len).await.unwrap();
        let mut bytes = vec![0; u64::from_le_bytes(len) as usize];
        self.receive.read_exact(&mut bytes).await.unwrap();
        rmp_serde::from_slice::<TaskResponse>(&bytes).unwrap().content
    }
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(PATIENCE, test).await.expect("the server hangs") });
}

#[test]
fn a_client_with_the_token_computes_and_leaves_nothing() {
    let server = Server::start();
    assert!(server.address.ip().is_loopback());
    run(async {
        let endpoint = endpoint().await;
        let mut session = Session::open(&endpoint, &server, TOKEN).await;
        assert!(matches!(session.answer().await, TaskResponseContent::Init(_)));
        for message in doubled(5) {
            session.send(&message).await;
        }
        let TaskResponseContent::ReadTensor(Ok(data)) = session.answer().await else { panic!("no tensor") };
        assert_eq!(data.iter::<f32>().collect::<Vec<_>>(), [0.0, 2.0, 4.0, 6.0, 8.0]);
        endpoint.close().await;
    });
    let printed = server.stop();
    assert!(printed.contains("host_fallbacks=0 bytes_left=0"), "{printed}");
}

#[test]
fn a_wrong_token_is_refused() {
    let server = Server::start();
    run(async {
        let endpoint = endpoint().await;
        for token in ["", "0123456789abcdeX"] {
            let answer = Session::open(&endpoint, &server, token).await.answer().await;
            assert!(matches!(answer, TaskResponseContent::InitRefused(SessionRefusal::Unauthorized)), "{answer:?}");
        }
        endpoint.close().await;
    });
}

#[test]
fn a_server_with_another_id_is_not_talked_to() {
    let server = Server::start();
    run(async {
        let endpoint = endpoint().await;
        let other = EndpointAddr::new(SecretKey::generate().public()).with_ip_addr(server.address);
        assert!(endpoint.connect(other, BURN_REMOTE_ALPN).await.is_err());
        endpoint.close().await;
    });
}

#[test]
fn a_client_that_stays_ends_with_the_server() {
    let server = Server::start();
    run(async {
        let endpoint = endpoint().await;
        let mut session = Session::open(&endpoint, &server, TOKEN).await;
        assert!(matches!(session.answer().await, TaskResponseContent::Init(_)));
        for message in doubled(5) {
            session.send(&message).await;
        }
        assert!(matches!(session.answer().await, TaskResponseContent::ReadTensor(Ok(_))));
        let printed = tokio::task::spawn_blocking(move || server.stop()).await.unwrap();
        assert!(printed.contains("bytes_left=0"), "{printed}");
        assert!(session.receive.read_exact(&mut [0; 8]).await.is_err());
        endpoint.close().await;
    });
}
