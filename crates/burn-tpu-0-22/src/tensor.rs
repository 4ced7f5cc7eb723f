//! The tensor primitive: the runtime's tensor with Burn's trait.

use crate::dtype::to_burn;
use crate::version::HostCopy;
use crate::{TpuDevice, TpuError};
use burn_backend::{TensorData, TensorMetadata};
use burn_std::{DType as BurnDType, Shape};
use burn_tpu_runtime::ops::data;
use burn_tpu_runtime::{Tensor, leaves};
use smallvec::SmallVec;

/// A float, int or bool tensor of the [`Tpu`](crate::Tpu) backend. Cloning shares the value.
#[derive(Clone)]
pub struct TpuTensor(pub(crate) Tensor, pub(crate) HostCopy);

impl TpuTensor {
    /// Returns the element type. burn-signal asks without Burn's trait in scope, as the real burn-flex allows.
    pub fn dtype(&self) -> BurnDType {
        to_burn(self.0.element())
    }

    /// Returns the value, row-major and in its own dtype. Runs what was recorded and waits.
    ///
    /// # Errors
    /// That of any program or upload that the value depends on.
    pub fn to_data(&self) -> Result<TensorData, TpuError> {
        let bytes = data::into_bytes(&self.0)?;
        Ok(TensorData::from_bytes_vec(bytes, self.shape(), self.dtype()))
    }
}

impl From<Tensor> for TpuTensor {
    fn from(tensor: Tensor) -> Self {
        Self(tensor, Default::default())
    }
}

impl From<TpuTensor> for Tensor {
    fn from(tensor: TpuTensor) -> Self {
        tensor.0
    }
}

impl std::fmt::Debug for TpuTensor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tpu{:?}", self.0)
    }
}

impl TensorMetadata for TpuTensor {
    type Device = TpuDevice;

    fn dtype(&self) -> BurnDType {
        TpuTensor::dtype(self)
    }

    fn shape(&self) -> Shape {
        // As one slice: front ends ask for it several times an op.
        Shape::new_raw(SmallVec::from_slice(self.0.dims()))
    }

    fn rank(&self) -> usize {
        self.0.ty().rank()
    }

    fn device(&self) -> TpuDevice {
        leaves::visited(&self.0);
        self.0.device().into()
    }

    /// Returns false: a program decides which memory its results take.
    fn can_mut(&self) -> bool {
        false
    }
}
