//! What clients of Burn 0.22 may do wrong, and how the server ends. The server is burn-remote's: these tests hold it to what
//! this project promises, with this project's backend behind it. The wire is written by hand, so that no client of Burn 0.22
//! is built for them.

#[path = "common/device.rs"]
mod device;
#[path = "common/wire.rs"]
mod wire;

use burn_tpu_0_22::TpuDevice;
use burn_tpu_serve::access::{Token, listen};
use burn_tpu_serve::server::backend;
use device::{bytes_of, device, eventually_free};
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};
use tungstenite::stream::MaybeTlsStream;
use tungstenite::{Message, WebSocket};
use wire::{RemoteMessage, SessionRefusal, TOKEN, Task, TaskResponse, TaskResponseContent, doubled, frame, init};

const GRACE: Duration = Duration::from_secs(10);

type Socket = WebSocket<MaybeTlsStream<TcpStream>>;

struct Server {
    runtime: tokio::runtime::Runtime,
    address: SocketAddr,
}

fn serve() -> Option<Server> {
    let device = device()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let token = Token::new(TOKEN).unwrap();
    let server = backend(TpuDevice::from(device), Some(&token)).unwrap();
    let listener = listen("127.0.0.1", 0, Some(&token)).unwrap();
    let address = listener.local_addr().unwrap();
    let serving = server.serve_async(burn_remote::server::WebSocketTransport::from_listener(listener));
    runtime.spawn(async move { drop(serving.await) });
    Some(Server { runtime, address })
}

fn connect(server: &Server) -> Socket {
    let socket = tungstenite::connect(format!("ws://{}/session", server.address)).unwrap().0;
    let MaybeTlsStream::Plain(stream) = socket.get_ref() else { panic!("no TLS was asked for") };
    stream.set_read_timeout(Some(GRACE)).unwrap();
    socket
}

fn send(socket: &mut Socket, message: RemoteMessage) {
    socket.send(Message::binary(frame(&message))).unwrap();
}

fn answer(socket: &mut Socket) -> Option<TaskResponse> {
    match socket.read() {
        Ok(Message::Binary(bytes)) => Some(rmp_serde::from_slice(&bytes).unwrap()),
        Ok(_) | Err(tungstenite::Error::ConnectionClosed | tungstenite::Error::Protocol(_)) => None,
        Err(tungstenite::Error::Io(error)) if error.kind() != std::io::ErrorKind::WouldBlock => None,
        Err(error) => panic!("the server hangs: {error}"),
    }
}

/// A session with two tensors of `len` elements, of which one has been computed and read: it is in memory.
fn session(server: &Server, id: u64, len: usize) -> Socket {
    let mut socket = connect(server);
    send(&mut socket, init(TOKEN, 0, id));
    assert!(matches!(answer(&mut socket).unwrap().content, TaskResponseContent::Init(_)));
    for message in doubled(len) {
        send(&mut socket, message);
    }
    let response = answer(&mut socket).unwrap();
    let TaskResponseContent::ReadTensor(Ok(data)) = response.content else { panic!("{response:?}") };
    assert_eq!((response.id, data.shape().as_slice()), (9, &[len][..]));
    socket
}

fn read(socket: &mut Socket, id: u64, len: usize) {
    send(socket, wire::read(id, len));
}

#[test]
fn a_client_that_vanishes_frees_its_tensors() {
    let Some(server) = serve() else { return };
    let socket = session(&server, 1, 100_069);
    assert!(bytes_of(100_069) >= 4 * 100_069);
    drop(socket);
    eventually_free(100_069, GRACE);
    drop(session(&server, 2, 3));
}

#[test]
fn an_unknown_tensor_ends_its_session_alone() {
    let Some(server) = serve() else { return };
    let mut other = session(&server, 1, 5);
    let mut client = session(&server, 2, 100_103);
    assert!(bytes_of(100_103) > 0);
    read(&mut client, 99, 7);
    while answer(&mut client).is_some() {}
    eventually_free(100_103, GRACE);
    read(&mut other, 1, 5);
    assert!(matches!(answer(&mut other).unwrap().content, TaskResponseContent::ReadTensor(Ok(_))));
    send(&mut other, RemoteMessage::Task(Task::SyncBackend(4, [1])));
    assert!(matches!(answer(&mut other).unwrap().content, TaskResponseContent::SyncBackend(Ok(()))));
}

#[test]
fn tokens_devices_and_garbage_are_refused() {
    let Some(server) = serve() else { return };
    let refused = |message| {
        let mut socket = connect(&server);
        send(&mut socket, message);
        match answer(&mut socket).unwrap().content {
            TaskResponseContent::InitRefused(refusal) => refusal,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(refused(init("", 0, 1)), SessionRefusal::Unauthorized);
    assert_eq!(refused(init("0123456789abcdeX", 0, 1)), SessionRefusal::Unauthorized);
    assert_eq!(refused(init(TOKEN, 9, 1)), SessionRefusal::NoSuchDevice { device_count: 1 });
    assert_eq!(
        refused(RemoteMessage::Task(Task::SyncBackend(1, [1]))),
        SessionRefusal::IncompatibleProtocol { server_version: 2 }
    );
    // No WebSocket at all, half a handshake, and the head of a frame that claims 2^62 bytes.
    TcpStream::connect(server.address).unwrap().write_all(b"\xff\x00\x13\r\n\r\n").unwrap();
    TcpStream::connect(server.address).unwrap().write_all(b"GET /session HT").unwrap();
    let mut socket = connect(&server);
    socket.get_mut().write_all(&[0x82, 0xff, 0x40, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4]).unwrap();
    assert!(answer(&mut socket).is_none_or(|response| matches!(response.content, TaskResponseContent::InitRefused(_))));
    // Garbage in a session ends it and frees its tensors.
    let mut client = session(&server, 3, 100_109);
    assert!(bytes_of(100_109) > 0);
    client.send(Message::binary(vec![0xc1; 9])).unwrap();
    while answer(&mut client).is_some() {}
    eventually_free(100_109, GRACE);
    drop(session(&server, 4, 3));
}

#[test]
fn a_server_that_stops_ends_its_sessions() {
    let Some(server) = serve() else { return };
    let mut client = session(&server, 1, 100_129);
    server.runtime.shutdown_timeout(Duration::from_secs(1));
    let started = Instant::now();
    while answer(&mut client).is_some() {}
    assert!(started.elapsed() < GRACE);
    eventually_free(100_129, GRACE);
}
