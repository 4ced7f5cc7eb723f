//! The tensor primitive: the runtime's tensor with Burn's trait.

use crate::dtype::{from_burn, to_burn};
use crate::ops::host;
use crate::version::HostCopy;
use crate::{TpuDevice, TpuError};
use burn_backend::{TensorData, TensorMetadata};
use burn_std::{DType as BurnDType, Shape};
use burn_tpu_runtime::graph::TensorType;
use burn_tpu_runtime::ops::data;
use burn_tpu_runtime::{Tensor, leaves};

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

    /// Returns a tensor of other data on the device of this one, where it is transferred at once; on a mesh, split as
    /// this one is if it has the same dims, else whole on every chip.
    ///
    /// # Errors
    /// [`TpuError::DType`] for a type that the device does not have; those of the transfer.
    pub fn with_data(&self, data: TensorData) -> Result<Self, TpuError> {
        let dtype = from_burn(data.dtype()).ok_or_else(|| TpuError::DType {
            op: "from_data",
            dtype: format!("{:?}", data.dtype()),
            device: self.0.device().to_string(),
        })?;
        let ty = TensorType::new(dtype, data.shape().as_slice());
        data::upload_like(&self.0, "from_data", ty, host::bytes(data)).map(Self::from)
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
        self.0.dims().iter().copied().collect()
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
