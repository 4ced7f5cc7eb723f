//! The Iroh transport over loopback, without a relay and without another machine. Burn's client is not built for it: the
//! wire is written by hand. `cargo xtask test --only iroh` has Burn's own client too.
#![cfg(feature = "iroh")]

#[path = "common/device.rs"]
mod device;
#[path = "common/wire.rs"]
mod wire;

use burn_remote::{BURN_REMOTE_ALPN, EndpointAddr, EndpointId};
use burn_tpu_serve::Options;
use clap::Parser;
use device::{bytes_of, device, eventually_free};
use iroh::endpoint::{Connection, PortmapperConfig, RecvStream, SendStream, presets};
use iroh::{Endpoint, RelayMode, SecretKey};
use serde::Serialize;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;
use tokio::runtime::Runtime;
use wire::{RemoteMessage, SessionRefusal, TOKEN, TaskResponse, TaskResponseContent, doubled, frame, init};

/// A server that hangs fails its test after this time. QUIC takes half a minute to miss a peer that says nothing.
const PATIENCE: Duration = Duration::from_secs(60);
static SESSIONS: AtomicU64 = AtomicU64::new(1);
const OPTIONS: [&str; 4] = ["--transport", "iroh", "--port", "0"];

/// The first frame of a stream says that it is a session.
#[derive(Serialize)]
struct StreamHeader {
    version: u16,
    kind: StreamKind,
}

#[derive(Serialize)]
enum StreamKind {
    Session,
}

/// Where a server is, and who it is.
#[derive(Clone, Copy)]
struct Place {
    id: EndpointId,
    address: SocketAddr,
}

impl Place {
    /// Takes apart `iroh:ID@ADDRESS:PORT`.
    fn parse(text: &str) -> Self {
        let (id, address) = text.strip_prefix("iroh:").unwrap().split_once('@').unwrap();
        Self { id: id.parse().unwrap(), address: address.parse().unwrap() }
    }

    fn as_address(self) -> EndpointAddr {
        EndpointAddr::new(self.id).with_ip_addr(self.address)
    }
}

/// The command. It is killed when it is dropped.
struct Server {
    child: Child,
    output: BufReader<ChildStdout>,
    place: Place,
}

impl Server {
    fn start() -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_burn-tpu-serve"));
        command.args(OPTIONS).args(["--platform", "ndarray"]).env("BURN_TPU_SERVE_TOKEN", TOKEN);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let place = line.trim_end().strip_suffix(", with a token").and_then(|line| line.split_once(" on "));
        let (_, place) = place.unwrap_or_else(|| panic!("no address in {line:?}"));
        Self { child, output, place: Place::parse(place) }
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

/// Serves in this process, whose memory the test can see, until the process ends. `None` without the CPU plugin.
fn serve_here() -> Option<Place> {
    device()?;
    let (ready, started) = channel();
    let arguments = [&["serve"][..], &OPTIONS, &["--platform", "cpu", "--token", TOKEN]].concat();
    let options = Options::parse_from(arguments);
    std::thread::spawn(move || burn_tpu_serve::run(&options, |served| ready.send(served.address.clone()).unwrap()));
    Some(Place::parse(&started.recv().unwrap()))
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
    async fn open(endpoint: &Endpoint, server: Place, token: &str) -> Self {
        let connection = endpoint.connect(server.as_address(), BURN_REMOTE_ALPN).await.unwrap();
        let (send, receive) = connection.open_bi().await.unwrap();
        let mut session = Self { _connection: connection, send, receive };
        session.write(&rmp_serde::to_vec(&StreamHeader { version: 1, kind: StreamKind::Session }).unwrap()).await;
        // The server keeps sessions by the ids that clients give them.
        session.send(&init(token, 0, SESSIONS.fetch_add(1, Ordering::Relaxed))).await;
        session
    }

    /// Opens a session whose tensor of `len` elements has been computed and read.
    async fn doubled(endpoint: &Endpoint, server: Place, len: usize) -> Self {
        let mut session = Self::open(endpoint, server, TOKEN).await;
        assert!(matches!(session.answer().await, TaskResponseContent::Init(_)));
        for message in doubled(len) {
            session.send(&message).await;
        }
        let TaskResponseContent::ReadTensor(Ok(data)) = session.answer().await else { panic!("no tensor") };
        let expected: Vec<_> = (0..len).map(|i| 2.0 * i as f32).collect();
        assert_eq!(data.iter::<f32>().collect::<Vec<_>>(), expected);
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

    /// Waits for the end of the session, which the server brings about.
    async fn ended(&mut self) {
        while self.receive.read_exact(&mut [0; 1]).await.is_ok() {}
    }
}

fn threads() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

fn run(test: impl Future<Output = ()>) {
    threads().block_on(async { tokio::time::timeout(PATIENCE, test).await.expect("the server hangs") });
}

#[test]
fn a_client_with_the_token_computes_and_leaves_nothing() {
    let server = Server::start();
    assert!(server.place.address.ip().is_loopback());
    run(async {
        let endpoint = endpoint().await;
        Session::doubled(&endpoint, server.place, 5).await;
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
            let answer = Session::open(&endpoint, server.place, token).await.answer().await;
            assert!(matches!(answer, TaskResponseContent::InitRefused(SessionRefusal::Unauthorized)), "{answer:?}");
        }
        endpoint.close().await;
    });
}

#[test]
fn a_server_with_another_key_is_not_talked_to() {
    let server = Server::start();
    run(async {
        let endpoint = endpoint().await;
        let other = Place { id: SecretKey::generate().public(), ..server.place };
        assert!(endpoint.connect(other.as_address(), BURN_REMOTE_ALPN).await.is_err());
        endpoint.connect(server.place.as_address(), BURN_REMOTE_ALPN).await.unwrap();
        endpoint.close().await;
    });
}

#[test]
fn garbage_ends_its_session_alone() {
    let Some(server) = serve_here() else { return };
    run(async {
        let endpoint = endpoint().await;
        let mut other = Session::doubled(&endpoint, server, 5).await;
        let mut client = Session::doubled(&endpoint, server, 100_151).await;
        assert!(bytes_of(100_151) > 0);
        client.write(&[0xc1; 9]).await;
        client.ended().await;
        eventually_free(100_151, PATIENCE);
        // A length of 2^62 is no reason to set memory aside.
        let mut client = Session::doubled(&endpoint, server, 100_153).await;
        client.send.write_all(&(1_u64 << 62).to_le_bytes()).await.unwrap();
        client.ended().await;
        eventually_free(100_153, PATIENCE);
        other.send(&wire::read(1, 5)).await;
        assert!(matches!(other.answer().await, TaskResponseContent::ReadTensor(Ok(_))));
        endpoint.close().await;
    });
}

#[test]
fn a_client_that_leaves_frees_its_tensors() {
    let Some(server) = serve_here() else { return };
    run(async {
        let endpoint = endpoint().await;
        let _session = Session::doubled(&endpoint, server, 100_169).await;
        assert!(bytes_of(100_169) >= 4 * 100_169);
        endpoint.close().await;
        eventually_free(100_169, PATIENCE);
    });
}

/// As when its machine loses power: nothing of the client runs any more, and nothing says so.
#[test]
fn a_client_that_falls_silent_frees_its_tensors() {
    let Some(server) = serve_here() else { return };
    let client = threads();
    let session = client.block_on(async {
        let endpoint = endpoint().await;
        let session = Session::doubled(&endpoint, server, 100_183).await;
        (endpoint, session)
    });
    assert!(bytes_of(100_183) > 0);
    client.shutdown_background();
    eventually_free(100_183, PATIENCE);
    drop(session);
}

#[test]
fn a_client_that_stays_ends_with_the_server() {
    let server = Server::start();
    run(async {
        let endpoint = endpoint().await;
        let mut session = Session::doubled(&endpoint, server.place, 5).await;
        let printed = tokio::task::spawn_blocking(move || server.stop()).await.unwrap();
        assert!(printed.contains("bytes_left=0"), "{printed}");
        // The server says goodbye: QUIC would take half a minute to miss it.
        tokio::time::timeout(PATIENCE / 6, session.ended()).await.expect("the client was not told");
        endpoint.close().await;
    });
}
