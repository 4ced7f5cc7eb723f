//! The quantized tensor primitive: integer values and the scales that dequantize them.

use crate::{TpuDevice, TpuTensor};
use burn_backend::TensorMetadata;
use burn_std::quantization::QuantScheme;
use burn_std::{DType as BurnDType, Shape};

/// A quantized tensor of the [`Tpu`](crate::Tpu) backend. Cloning shares the values.
#[derive(Clone, Debug)]
pub struct TpuQTensor {
    /// i8 values with the tensor's dims, whatever the scheme's number of bits.
    pub(crate) values: TpuTensor,
    /// f32 `[blocks]`, or `[1]` for the whole tensor.
    pub(crate) scales: TpuTensor,
    pub(crate) scheme: QuantScheme,
}

impl TensorMetadata for TpuQTensor {
    type Device = TpuDevice;

    fn dtype(&self) -> BurnDType {
        BurnDType::QFloat(self.scheme)
    }

    fn shape(&self) -> Shape {
        self.values.shape()
    }

    fn rank(&self) -> usize {
        self.values.rank()
    }

    fn device(&self) -> TpuDevice {
        // A traversal reaches both tensors.
        let _ = self.scales.device();
        self.values.device()
    }

    fn can_mut(&self) -> bool {
        false
    }
}
