//! The tensor primitive: the runtime's tensor with Burn's trait.

use crate::dtype::to_burn;
use crate::{Result, TpuDevice};
use burn_backend::{TensorData, TensorMetadata};
use burn_std::{DType as BurnDType, Shape};
use burn_tpu_runtime::Tensor;
use burn_tpu_runtime::leaves;
use burn_tpu_runtime::ops::data;
use smallvec::SmallVec;

/// A float, int or bool tensor of the [`Tpu`](crate::Tpu) backend. Cloning shares the value.
#[derive(Clone)]
pub struct TpuTensor(pub(crate) Tensor);

impl TpuTensor {
    /// Returns the device that holds the tensor.
    pub fn device(&self) -> TpuDevice {
        self.0.device().into()
    }

    /// Returns the value, row-major and in its own dtype. Runs what was recorded and waits.
    ///
    /// # Errors
    /// That of any program or upload that the value depends on.
    pub fn to_data(&self) -> Result<TensorData> {
        let bytes = data::into_bytes(&self.0)?;
        Ok(TensorData::from_bytes_vec(bytes, self.shape(), self.dtype()))
    }
}

impl From<Tensor> for TpuTensor {
    fn from(tensor: Tensor) -> Self {
        Self(tensor)
    }
}

impl From<TpuTensor> for Tensor {
    fn from(tensor: TpuTensor) -> Self {
        tensor.0
    }
}

impl std::fmt::Debug for TpuTensor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if leaves::are_hidden() { Ok(()) } else { write!(f, "Tpu{:?}", self.0) }
    }
}

impl TensorMetadata for TpuTensor {
    fn dtype(&self) -> BurnDType {
        to_burn(self.0.element())
    }

    fn shape(&self) -> Shape {
        // As one slice: front ends ask for it several times an op.
        Shape::new_raw(SmallVec::from_slice(self.0.dims()))
    }

    fn rank(&self) -> usize {
        self.0.ty().rank()
    }
}
