//! The parts of a tensor that several processes, or several chips, have: reading them and putting a tensor together from
//! them, as checkpoints do. Every adapter of a version of Burn compiles this source.

use crate::dtype::from_burn;
use crate::{TpuError, TpuTensor};
use burn_std::DType as BurnDType;
use burn_tpu_runtime::graph::{DType, TensorType};
use burn_tpu_runtime::ops::data;
use burn_tpu_runtime::{Part, Region, Result};

impl TpuTensor {
    /// Returns the regions into which the tensor is split over the processes, each once, with the processes that have
    /// it: one region of all processes where each has the whole value. Runs what was recorded.
    ///
    /// # Errors
    /// That of any program or upload that the value depends on.
    pub fn parts(&self) -> Result<Vec<Part>> {
        data::parts(&self.0)
    }

    /// Returns the elements of regions that this process has, of those of [`TpuTensor::parts`], row-major,
    /// little-endian and in the tensor's dtype. Waits for the value; it is no launch, so that other processes need not
    /// read too.
    ///
    /// # Errors
    /// [`TpuError::Sharding`] for a region of another process; that of any program or upload that the value depends on.
    pub fn parts_to_bytes(&self, regions: &[Region]) -> Result<Vec<Vec<u8>>> {
        data::parts_into_bytes(&self.0, regions)
    }

    /// Returns the regions that this process needs of a tensor of a type and shape to put it on the device of this one:
    /// on a mesh, those of its devices, if it has the same shape; the whole tensor otherwise.
    ///
    /// # Errors
    /// [`TpuError::DType`] for a type that the device does not have; those of a device that cannot be opened.
    pub fn regions_for(&self, dtype: BurnDType, shape: &[usize]) -> Result<Vec<Region>> {
        data::regions_like(&self.0, &TensorType::new(self.element(dtype)?, shape))
    }

    /// Returns a tensor on the device of this one, of which the elements of [`TpuTensor::regions_for`] are given,
    /// row-major and little-endian. They are transferred at once; on a mesh, the tensor is split as this one is if it
    /// has the same shape, else whole on every chip.
    ///
    /// # Errors
    /// [`TpuError::DType`] for a type that the device does not have; [`TpuError::Operation`] for bytes whose number is
    /// not that of their region; those of the transfer.
    pub fn with_regions(&self, dtype: BurnDType, shape: &[usize], regions: Vec<(Region, Vec<u8>)>) -> Result<Self> {
        let ty = TensorType::new(self.element(dtype)?, shape);
        data::upload_regions_like(&self.0, "from_data", ty, regions).map(Self::from)
    }

    fn element(&self, dtype: BurnDType) -> Result<DType> {
        let device = || self.0.device().to_string();
        let refused = || TpuError::DType { op: "from_data", dtype: format!("{dtype:?}"), device: device() };
        from_burn(dtype).ok_or_else(refused)
    }
}
