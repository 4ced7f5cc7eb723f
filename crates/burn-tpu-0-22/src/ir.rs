//! Tensors as the handles of Burn's intermediate representation, which a server keeps for its clients.

use crate::{Tpu, TpuQTensor, TpuTensor};
use burn_ir::{BackendIr, HandleKind, TensorHandle};

/// A handle is the tensor.
///
/// # Panics
/// If a client names a tensor of one kind where an op takes another. The server ends the session of that client.
impl BackendIr for Tpu {
    type Handle = HandleKind<Self>;

    fn float_tensor(handle: TensorHandle<Self::Handle>) -> TpuTensor {
        match handle.handle {
            HandleKind::Float(tensor) => tensor,
            other => wrong_kind("float", other.name()),
        }
    }

    fn int_tensor(handle: TensorHandle<Self::Handle>) -> TpuTensor {
        match handle.handle {
            HandleKind::Int(tensor) => tensor,
            other => wrong_kind("int", other.name()),
        }
    }

    fn bool_tensor(handle: TensorHandle<Self::Handle>) -> TpuTensor {
        match handle.handle {
            HandleKind::Bool(tensor) => tensor,
            other => wrong_kind("bool", other.name()),
        }
    }

    fn quantized_tensor(handle: TensorHandle<Self::Handle>) -> TpuQTensor {
        match handle.handle {
            HandleKind::Quantized(tensor) => tensor,
            other => wrong_kind("quantized", other.name()),
        }
    }

    fn float_tensor_handle(tensor: TpuTensor) -> Self::Handle {
        HandleKind::Float(tensor)
    }

    fn int_tensor_handle(tensor: TpuTensor) -> Self::Handle {
        HandleKind::Int(tensor)
    }

    fn bool_tensor_handle(tensor: TpuTensor) -> Self::Handle {
        HandleKind::Bool(tensor)
    }

    fn quantized_tensor_handle(tensor: TpuQTensor) -> Self::Handle {
        HandleKind::Quantized(tensor)
    }
}

/// Burn's conversions return tensors and no errors.
fn wrong_kind(wanted: &str, found: &str) -> ! {
    panic!("burn-tpu: an op takes a tensor of kind {wanted}, and its operand's id names one of kind {found}")
}
