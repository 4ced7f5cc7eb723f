//! Messages of burn-remote 0.22.1, written by hand, so that the tests build no client of Burn 0.22.
#![allow(dead_code, reason = "each test file that includes this one uses a part")]

use burn_backend::{DType, TensorData};
use burn_ir::{BinaryOpIr, NumericOperationIr, OperationIr, TensorId, TensorIr, TensorStatus};
use serde::{Deserialize, Serialize};

/// The token of the servers under test.
pub const TOKEN: &str = "0123456789abcdef";

/// The parts of burn-remote 0.22.1's messages that the tests send.
#[derive(Serialize)]
#[allow(clippy::large_enum_variant, reason = "the protocol's types")]
pub enum RemoteMessage {
    Task(Task),
    Init(SessionInit),
}

#[derive(Serialize)]
pub struct SessionInit {
    version: u16,
    session_id: [u64; 1],
    device_index: u32,
    #[serde(with = "serde_bytes")]
    authorization: Vec<u8>,
}

#[derive(Serialize)]
#[allow(clippy::large_enum_variant, reason = "the protocol's types")]
pub enum Task {
    RegisterOperation([u64; 1], OperationIr),
    RegisterTensor([u64; 1], TensorId, TensorData),
    ReadTensor(u64, [u64; 1], TensorIr),
    SyncBackend(u64, [u64; 1]),
}

#[derive(Debug, Deserialize)]
pub struct TaskResponse {
    pub content: TaskResponseContent,
    pub id: u64,
}

#[derive(Debug, Deserialize)]
pub enum TaskResponseContent {
    Init(serde::de::IgnoredAny),
    ReadTensor(Result<TensorData, serde::de::IgnoredAny>),
    SyncBackend(Result<(), serde::de::IgnoredAny>),
    InitRefused(SessionRefusal),
}

#[derive(Debug, PartialEq, Deserialize)]
pub enum SessionRefusal {
    Unauthorized,
    NoSuchDevice { device_count: u32 },
    IncompatibleProtocol { server_version: u16 },
}

/// Returns a frame with one message.
pub fn frame(message: &RemoteMessage) -> Vec<u8> {
    rmp_serde::to_vec(&[message]).unwrap()
}

/// Returns the first message of a session.
pub fn init(token: &str, device_index: u32, session: u64) -> RemoteMessage {
    RemoteMessage::Init(SessionInit {
        version: 2,
        session_id: [session],
        device_index,
        authorization: token.as_bytes().to_vec(),
    })
}

/// Returns the messages that upload `len` numbers, 0, 1, 2 and so on, as tensor 1, add it to itself as tensor 2, and read
/// that.
pub fn doubled(len: usize) -> [RemoteMessage; 3] {
    let data = TensorData::new((0..len).map(|i| i as f32).collect::<Vec<_>>(), [len]);
    let out = TensorIr { status: TensorStatus::NotInit, ..tensor(2, len) };
    let add = NumericOperationIr::Add(BinaryOpIr { lhs: tensor(1, len), rhs: tensor(1, len), out });
    [
        RemoteMessage::Task(Task::RegisterTensor([1], TensorId::new(1), data)),
        RemoteMessage::Task(Task::RegisterOperation([1], OperationIr::NumericFloat(DType::F32, add))),
        read(2, len),
    ]
}

/// Returns the request for a tensor of shape `[len]`. Its number is 9.
pub fn read(id: u64, len: usize) -> RemoteMessage {
    RemoteMessage::Task(Task::ReadTensor(9, [1], tensor(id, len)))
}

fn tensor(id: u64, len: usize) -> TensorIr {
    TensorIr { id: TensorId::new(id), shape: [len].into(), status: TensorStatus::ReadOnly, dtype: DType::F32 }
}
