//! The quantized tensor primitive: integer values and the scales that dequantize them.

use crate::TpuTensor;
use burn_backend::{QTensorPrimitive, TensorMetadata};
use burn_std::quantization::{QuantScheme, QuantStore};
use burn_std::{DType as BurnDType, Shape};

/// A quantized tensor of the [`Tpu`](crate::Tpu) backend. Cloning shares the values.
#[derive(Clone, Debug)]
pub struct TpuQTensor {
    /// i8 values with the tensor's dims, whatever the scheme's number of bits.
    pub(crate) values: TpuTensor,
    /// f32 `[blocks]`, or `[1]` for the whole tensor. A block is a range of consecutive row-major values.
    pub(crate) scales: TpuTensor,
    pub(crate) scheme: QuantScheme,
}

impl QTensorPrimitive for TpuQTensor {
    fn scheme(&self) -> &QuantScheme {
        &self.scheme
    }

    /// Returns a scheme of one byte per value: XLA cannot pack smaller values into words.
    fn default_scheme() -> QuantScheme {
        QuantScheme::default().with_store(QuantStore::Native)
    }
}

impl TensorMetadata for TpuQTensor {
    fn dtype(&self) -> BurnDType {
        BurnDType::QFloat(self.scheme)
    }

    fn shape(&self) -> Shape {
        self.values.shape()
    }

    fn rank(&self) -> usize {
        self.values.rank()
    }
}
