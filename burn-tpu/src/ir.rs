//! Handles that stand for a tensor of any kind (feature `ir`): what servers and routers of Burn keep tensors by.
//!
//! Owns: Burn's `BackendIr` for [`Tpu`]. `burn-tpu-serve` keeps the tensors of a client in a table of these handles.

use crate::{Tpu, TpuFloat, TpuInt, TpuQTensor, TpuTensor};
use burn_backend::TensorMetadata;
use burn_ir::{BackendIr, TensorHandle};

/// A tensor of any kind of the [`Tpu`] backend. Cloning shares the value.
#[derive(Clone, Debug)]
pub struct TpuHandle(Kind);

#[derive(Clone, Debug)]
enum Kind {
    /// Floats, integers or booleans: one primitive holds all three.
    Plain(TpuTensor),
    Quantized(TpuQTensor),
}

/// Burn's trait has no errors: a handle of the other kind is a mistake of the caller, and panics as a wrong shape does.
fn plain(handle: TensorHandle<TpuHandle>, wanted: &str) -> TpuTensor {
    match handle.handle.0 {
        Kind::Plain(tensor) => tensor,
        Kind::Quantized(tensor) => panic!("burn-tpu: a tensor of {:?} was used as one of {wanted}", tensor.dtype()),
    }
}

impl<F: TpuFloat, I: TpuInt> BackendIr for Tpu<F, I> {
    type Handle = TpuHandle;

    fn float_tensor(handle: TensorHandle<TpuHandle>) -> TpuTensor {
        plain(handle, "floats")
    }

    fn int_tensor(handle: TensorHandle<TpuHandle>) -> TpuTensor {
        plain(handle, "integers")
    }

    fn bool_tensor(handle: TensorHandle<TpuHandle>) -> TpuTensor {
        plain(handle, "booleans")
    }

    fn quantized_tensor(handle: TensorHandle<TpuHandle>) -> TpuQTensor {
        match handle.handle.0 {
            Kind::Quantized(tensor) => tensor,
            Kind::Plain(tensor) => panic!("burn-tpu: a tensor of {:?} was used as a quantized one", tensor.dtype()),
        }
    }

    fn float_tensor_handle(tensor: TpuTensor) -> TpuHandle {
        TpuHandle(Kind::Plain(tensor))
    }

    fn int_tensor_handle(tensor: TpuTensor) -> TpuHandle {
        TpuHandle(Kind::Plain(tensor))
    }

    fn bool_tensor_handle(tensor: TpuTensor) -> TpuHandle {
        TpuHandle(Kind::Plain(tensor))
    }

    fn quantized_tensor_handle(tensor: TpuQTensor) -> TpuHandle {
        TpuHandle(Kind::Quantized(tensor))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TpuDevice;
    use burn_backend::ops::{FloatTensorOps, QTensorOps};
    use burn_backend::{QTensorPrimitive, TensorData, try_read_sync};

    type B = Tpu<f32>;

    fn handle(handle: TpuHandle, dims: &[usize]) -> TensorHandle<TpuHandle> {
        TensorHandle { handle, shape: dims.iter().copied().collect() }
    }

    #[test]
    fn a_handle_gives_its_tensor_back() {
        let x = B::float_from_data(TensorData::from([1.5f32, -2.0]), &TpuDevice::ndarray());
        let again = B::float_tensor(handle(B::float_tensor_handle(x.clone()), &[2]));
        assert_eq!(again.to_data().unwrap(), x.to_data().unwrap());
        // An op's operand may be of another kind than the op that made it: the primitive is one.
        let bits = B::int_tensor(handle(B::bool_tensor_handle(x.clone()), &[2]));
        assert_eq!(bits.dtype(), x.dtype());

        let quantized = B::quantize_dynamic(x, &TpuQTensor::default_scheme());
        let again = B::quantized_tensor(handle(B::quantized_tensor_handle(quantized.clone()), &[2]));
        let data = |x| try_read_sync(B::q_into_data(x)).unwrap().unwrap();
        assert_eq!(data(again), data(quantized));
    }

    #[test]
    #[should_panic(expected = "was used as a quantized one")]
    fn a_handle_of_the_other_kind_is_refused() {
        let x = B::float_from_data(TensorData::from([1.0f32]), &TpuDevice::ndarray());
        B::quantized_tensor(handle(B::float_tensor_handle(x), &[1]));
    }
}
