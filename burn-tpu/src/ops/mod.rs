//! Burn's operation traits as thin methods over the runtime's operations.
//!
//! The files have Burn's names (`tensor`, `int_tensor`, `bool_tensor`, `module`, `activation`, `qtensor`, `transaction`).
//! Two families, activations and quantized tensors, are composed here, since only Burn's traits need them.

mod activation;
mod bool_tensor;
mod host;
mod int_tensor;
mod module;
mod options;
mod qtensor;
mod tensor;
#[cfg(test)]
mod testing;
mod transaction;

pub(crate) use host::{bytes, from_rows};

use crate::TpuTensor;
use burn_tpu_runtime::Recorder;
use burn_tpu_runtime::graph::{NodeId, Result};

/// [`burn_tpu_runtime::record`] for Burn's primitive.
fn record<const N: usize>(
    op: &'static str,
    operands: [&TpuTensor; N],
    build: impl FnOnce(&mut Recorder, [NodeId; N]) -> Result<NodeId>,
) -> TpuTensor {
    burn_tpu_runtime::record(op, operands.map(|operand| &operand.0), build).into()
}

/// [`burn_tpu_runtime::record_many`] for Burn's primitive.
fn record_many<const N: usize, const R: usize>(
    op: &'static str,
    operands: [&TpuTensor; N],
    build: impl FnOnce(&mut Recorder, &[NodeId]) -> Result<[NodeId; R]>,
) -> [TpuTensor; R] {
    burn_tpu_runtime::record_many(op, &operands.map(|operand| &operand.0), build).map(Into::into)
}
