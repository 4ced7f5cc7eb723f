//! The messages of burn-remote 0.21, in MessagePack: a copy of the types that it keeps to itself.
//!
//! The names and the order of fields and variants are the protocol. `tests/burn_0_21.rs` checks them against burn-remote's
//! own client.
#![allow(missing_docs, reason = "the names of fields and variants are burn-remote's, and say what they are")]

use burn_backend::{DTypeUsageSet, ExecutionError, TensorData};
use burn_ir::{OperationIr, TensorId, TensorIr};
use burn_std::DType;
use burn_std::id::StreamId;
use serde::{Deserialize, Serialize};

/// Which request of a client a message is, and the thread that made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionId {
    pub position: u64,
    pub stream_id: StreamId,
}

/// A client's session, a random number that the client chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SessionId {
    pub id: u64,
}

/// What a client sends. On the socket for responses it sends `Init` alone.
#[derive(Debug, Serialize, Deserialize)]
pub enum Task {
    Compute(ComputeTask, ConnectionId),
    Init(SessionId),
    Close(SessionId),
}

/// The address of another server that holds a tensor.
#[derive(Debug, Serialize, Deserialize)]
pub struct Address {
    pub inner: String,
}

/// A tensor's number in a transfer between two servers.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct TransferId(pub u64);

/// A tensor that another server offers.
#[derive(Debug, Serialize, Deserialize)]
pub struct TensorRemote {
    pub transfer_id: TransferId,
    pub address: Address,
}

/// Something to do in a session.
#[derive(Debug, Serialize, Deserialize)]
pub enum ComputeTask {
    Seed(u64),
    RegisterOperation(Box<OperationIr>),
    RegisterTensor(TensorId, TensorData),
    RegisterTensorRemote(TensorRemote, TensorId),
    ExposeTensorRemote { tensor: TensorIr, count: u32, transfer_id: TransferId },
    ReadTensor(TensorIr),
    SyncBackend,
    DTypeUsage(DType),
}

/// An answer to the request of the same id.
#[derive(Debug, Serialize, Deserialize)]
pub struct TaskResponse {
    pub content: TaskResponseContent,
    pub id: ConnectionId,
}

/// The answers. The last has no place for an error.
#[derive(Debug, Serialize, Deserialize)]
pub enum TaskResponseContent {
    ReadTensor(Result<TensorData, ExecutionError>),
    SyncBackend(Result<(), ExecutionError>),
    DTypeUsage(DTypeUsageSet),
}
