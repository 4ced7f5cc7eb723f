//! What clients of Burn 0.21 may do wrong: each is refused, the server lives on, and memory is as it was.
#![cfg(feature = "burn-0-21")]

#[path = "common/device.rs"]
mod device;

use burn_backend::{DType, Shape, TensorData};
use burn_ir::{BinaryOpIr, NumericOperationIr, OperationIr, TensorId, TensorIr, TensorStatus};
use burn_std::id::StreamId;
use burn_tpu::{Tpu, TpuDevice};
use burn_tpu_serve::access::{Token, listen};
use burn_tpu_serve::burn_0_21::Server;
use burn_tpu_serve::burn_0_21::wire::{ComputeTask, ConnectionId, SessionId, Task, TaskResponse, TaskResponseContent};
use device::{bytes_of, device};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};
use tungstenite::stream::MaybeTlsStream;
use tungstenite::{Message, WebSocket};

const GRACE: Duration = Duration::from_secs(10);

fn serve(token: Option<&str>) -> Option<Server<Tpu<f32, i32>>> {
    let device = TpuDevice::from(device()?);
    let token = token.map(|text| Token::new(text).unwrap());
    Some(Server::start(listen("127.0.0.1", 0, None).unwrap(), device, token).unwrap())
}

/// A client without Burn, which sends what it likes.
struct Client {
    request: WebSocket<MaybeTlsStream<TcpStream>>,
    response: WebSocket<MaybeTlsStream<TcpStream>>,
    position: u64,
}

fn connect(address: SocketAddr, route: &str) -> WebSocket<MaybeTlsStream<TcpStream>> {
    let socket = tungstenite::connect(format!("ws://{address}/{route}")).unwrap().0;
    let MaybeTlsStream::Plain(stream) = socket.get_ref() else { panic!("no TLS was asked for") };
    // No test waits for ever.
    stream.set_read_timeout(Some(GRACE)).unwrap();
    socket
}

fn tensor(id: u64, len: usize) -> TensorIr {
    TensorIr { id: TensorId::new(id), shape: Shape::from([len]), status: TensorStatus::ReadOnly, dtype: DType::F32 }
}

impl Client {
    fn open(address: SocketAddr, id: u64) -> Self {
        let [mut request, mut response] = ["request", "response"].map(|route| connect(address, route));
        let init = || Message::binary(rmp_serde::to_vec(&Task::Init(SessionId { id })).unwrap());
        request.send(init()).unwrap();
        response.send(init()).unwrap();
        Self { request, response, position: 0 }
    }

    fn send(&mut self, task: ComputeTask) {
        self.position += 1;
        let id = ConnectionId { position: self.position, stream_id: StreamId { value: 1 } };
        self.request.send(Message::binary(rmp_serde::to_vec(&Task::Compute(task, id)).unwrap())).unwrap();
    }

    fn upload(&mut self, id: u64, len: usize) {
        let data = TensorData::new((0..len).map(|i| i as f32).collect(), [len]);
        self.send(ComputeTask::RegisterTensor(TensorId::new(id), data));
    }

    fn add(&mut self, lhs: u64, rhs: u64, out: u64, len: usize) {
        let out = TensorIr { status: TensorStatus::NotInit, ..tensor(out, len) };
        let op = NumericOperationIr::Add(BinaryOpIr { lhs: tensor(lhs, len), rhs: tensor(rhs, len), out });
        self.send(ComputeTask::RegisterOperation(Box::new(OperationIr::NumericFloat(DType::F32, op))));
    }

    fn answer(&mut self) -> TaskResponseContent {
        match self.response.read().unwrap() {
            Message::Binary(bytes) => rmp_serde::from_slice::<TaskResponse>(&bytes).unwrap().content,
            other => panic!("{other:?}"),
        }
    }

    fn read(&mut self, id: u64, len: usize) -> Result<Vec<f32>, String> {
        self.send(ComputeTask::ReadTensor(tensor(id, len)));
        match self.answer() {
            TaskResponseContent::ReadTensor(value) => {
                value.map(|data| data.to_vec().unwrap()).map_err(|error| error.to_string())
            }
            other => panic!("{other:?}"),
        }
    }
}

fn eventually(what: &str, holds: impl Fn() -> bool) {
    let until = Instant::now() + GRACE;
    while !holds() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn works(server: &Server<Tpu<f32, i32>>) {
    let mut client = Client::open(server.address(), 4711);
    client.upload(1, 3);
    client.add(1, 1, 2, 3);
    assert_eq!(client.read(2, 3).unwrap(), [0.0, 2.0, 4.0]);
}

#[test]
fn a_client_that_vanishes_in_a_step_frees_its_tensors() {
    let Some(server) = serve(None) else { return };
    const LEN: usize = 100_003;
    let mut client = Client::open(server.address(), 1);
    client.upload(1, LEN);
    client.add(1, 1, 2, LEN);
    assert_eq!(client.read(2, LEN).unwrap()[..3], [0.0, 2.0, 4.0]);
    assert!(bytes_of(LEN) >= 4 * LEN as u64, "{}", TpuDevice::cpu(0).memory());
    // In the middle of a step: recorded, not run. Dropped sockets send no good-bye.
    client.add(2, 1, 3, LEN);
    drop(client);
    eventually("the session outlived its client", || server.sessions() == 0);
    assert_eq!(bytes_of(LEN), 0, "{}", TpuDevice::cpu(0).memory());
    works(&server);
    assert!(server.stop(GRACE));
}

#[test]
fn an_unknown_tensor_fails_its_session_alone() {
    let Some(server) = serve(None) else { return };
    const LEN: usize = 100_019;
    let mut other = Client::open(server.address(), 2);
    other.upload(1, 2);
    let mut client = Client::open(server.address(), 1);
    client.upload(1, LEN);
    client.add(1, 1, 2, LEN);
    assert_eq!(client.read(2, LEN).unwrap().len(), LEN);
    assert!(bytes_of(LEN) > 0);
    let error = client.read(99, LEN).unwrap_err();
    assert!(error.contains("99"), "{error}");
    // Its tensors are freed at once, and later reads and syncs say why.
    eventually("a failed session kept its tensors", || bytes_of(LEN) == 0);
    let later = client.read(1, LEN).unwrap_err();
    assert!(later.contains("99"), "{later}");
    client.send(ComputeTask::SyncBackend);
    assert!(matches!(client.answer(), TaskResponseContent::SyncBackend(Err(_))));
    // A tensor of another session is unknown too: each has a table of its own.
    assert_eq!(other.read(1, 2).unwrap(), [0.0, 1.0]);
    drop((client, other));
    works(&server);
    assert!(server.stop(GRACE));
}

#[test]
fn operations_and_data_that_do_not_fit_are_errors_of_the_read() {
    let Some(server) = serve(None) else { return };
    let mut client = Client::open(server.address(), 1);
    client.upload(1, 2);
    client.upload(2, 3);
    client.add(1, 2, 3, 2);
    let error = client.read(3, 2).unwrap_err();
    assert!(error.contains("float_add"), "{error}");

    let mut client = Client::open(server.address(), 2);
    let mut data = TensorData::new(vec![1.0f32], [1]);
    data.shape = Shape::from([1usize << 31, 1usize << 31]);
    client.send(ComputeTask::RegisterTensor(TensorId::new(1), data));
    let error = client.read(1, 1).unwrap_err();
    assert!(error.contains("more bytes than there are addresses"), "{error}");
    works(&server);
    assert!(server.stop(GRACE));
}

#[test]
fn garbage_is_refused() {
    let Some(server) = serve(None) else { return };
    let until_closed = |mut stream: TcpStream| {
        stream.set_read_timeout(Some(GRACE)).unwrap();
        let mut answer = Vec::new();
        // A reset is an end too.
        let _ended = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    };
    for garbage in [&b"\xff\x00\x13\r\n\r\n"[..], b"GET / HTTP/1.1\r\n\r\n", b"POST /request HTTP/1.1\r\n\r\n"] {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.write_all(garbage).unwrap();
        let answer = until_closed(stream);
        assert!(!answer.contains("101"), "{answer}");
    }
    // Half a handshake, and the head of a frame that claims 2^62 bytes.
    TcpStream::connect(server.address()).unwrap().write_all(b"GET /request HT").unwrap();
    let mut socket = connect(server.address(), "request");
    socket.get_mut().write_all(&[0x82, 0xff, 0x40, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4]).unwrap();
    assert!(matches!(socket.read(), Ok(Message::Close(_)) | Err(_)));
    // Messages that are none, and messages out of turn.
    let close = rmp_serde::to_vec(&Task::Close(SessionId { id: 5 })).unwrap();
    for bytes in [vec![], vec![0xff; 40], vec![0xdd, 0xff, 0xff, 0xff, 0xff], close] {
        let mut socket = connect(server.address(), "request");
        socket.send(Message::binary(bytes)).unwrap();
        assert!(matches!(socket.read(), Ok(Message::Close(_)) | Err(_)));
    }
    // In a session: what came before is freed.
    const LEN: usize = 100_043;
    let mut client = Client::open(server.address(), 6);
    client.upload(1, LEN);
    client.add(1, 1, 2, LEN);
    assert_eq!(client.read(2, LEN).unwrap().len(), LEN);
    assert!(bytes_of(LEN) > 0);
    client.request.send(Message::binary(vec![0xc1; 9])).unwrap();
    eventually("a session survived garbage", || server.sessions() == 0 && bytes_of(LEN) == 0);
    works(&server);
    assert!(server.stop(GRACE));
}

#[test]
fn a_wrong_token_is_refused_before_a_session() {
    let Some(server) = serve(Some("0123456789abcdef")) else { return };
    for path in ["request", "0123456789abcdeX/request", "0123456789abcdef0/request"] {
        match tungstenite::connect(format!("ws://{}/{path}", server.address())) {
            Err(tungstenite::Error::Http(response)) => assert_eq!(response.status(), 401),
            other => panic!("{path}: {other:?}"),
        }
    }
    assert_eq!(server.sessions(), 0);
    drop(connect(server.address(), "0123456789abcdef/request"));
    assert!(server.stop(GRACE));
}

#[test]
fn a_session_has_one_client() {
    let Some(server) = serve(None) else { return };
    let mut first = Client::open(server.address(), 1);
    first.upload(1, 2);
    assert_eq!(first.read(1, 2).unwrap(), [0.0, 1.0]);
    let mut second = Client::open(server.address(), 1);
    assert!(matches!(second.request.read(), Ok(Message::Close(_)) | Err(_)));
    assert!(matches!(second.response.read(), Ok(Message::Close(_)) | Err(_)));
    assert_eq!(first.read(1, 2).unwrap(), [0.0, 1.0]);
    assert!(server.stop(GRACE));
}

#[test]
fn a_server_that_stops_answers_those_who_wait() {
    let Some(server) = serve(None) else { return };
    let mut client = Client::open(server.address(), 1);
    client.upload(1, 100_057);
    assert_eq!(client.read(1, 100_057).unwrap().len(), 100_057);
    let stopping = std::thread::spawn(move || server.stop(GRACE));
    // Until the connection ends, reads answer, with values or errors.
    let started = Instant::now();
    loop {
        client.position += 1;
        let id = ConnectionId { position: client.position, stream_id: StreamId { value: 1 } };
        let task = Task::Compute(ComputeTask::ReadTensor(tensor(1, 100_057)), id);
        if client.request.send(Message::binary(rmp_serde::to_vec(&task).unwrap())).is_err() {
            break;
        }
        match client.response.read() {
            Ok(Message::Binary(_)) => {}
            Ok(_) | Err(_) => break,
        }
        assert!(started.elapsed() < GRACE, "the server did not stop");
    }
    assert!(started.elapsed() < GRACE, "a client waited for a server that had stopped");
    assert!(stopping.join().unwrap(), "a session did not end");
    assert_eq!(bytes_of(100_057), 0);
}
