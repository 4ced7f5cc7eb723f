//! The backend type and its methods that are not tensor ops. The adapter of Burn 0.23 compiles this file too, as it does
//! those of devices, tensors and handles.

use crate::dtype::from_burn;
use crate::error::failed;
use crate::ops::qtensor::is_supported;
use crate::{TpuDevice, TpuQTensor, TpuTensor, version};
use burn_backend::distributed::DistributedOps;
use burn_backend::{Backend, BackendTypes, DTypeUsage, DTypeUsageSet, ExecutionError, GraphUnsupported};
use burn_std::DType as BurnDType;
use std::fmt::Debug;
use std::marker::PhantomData;

/// The type behind [`crate::Tpu`]. Its parameters are those of the type of Burn 0.21, for which the sources of the
/// operations are written too; nothing of later versions depends on them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tpu<F = (), I = ()> {
    types: PhantomData<(F, I)>,
}

/// The first parameter of [`Tpu`].
pub trait TpuFloat: Clone + Debug + Default + Send + Sync + 'static {}
impl TpuFloat for () {}

/// The second parameter of [`Tpu`].
pub trait TpuInt: Clone + Debug + Default + Send + Sync + 'static {}
impl TpuInt for () {}

impl<F: TpuFloat, I: TpuInt> BackendTypes for Tpu<F, I> {
    type Device = TpuDevice;
    type FloatTensorPrimitive = TpuTensor;
    type IntTensorPrimitive = TpuTensor;
    type BoolTensorPrimitive = TpuTensor;
    type QuantizedTensorPrimitive = TpuQTensor;
    type GraphPrimitive = GraphUnsupported;
}

impl<F: TpuFloat, I: TpuInt> Backend for Tpu<F, I> {
    /// Returns the name of the backend with its device, such as `tpu<cpu:0>`.
    fn name(device: &TpuDevice) -> String {
        format!("tpu<{device}>")
    }

    fn seed(device: &TpuDevice, seed: u64) {
        device.0.seed(seed);
    }

    /// Runs what the calling thread's stream recorded and waits until the device has finished all its programs.
    fn sync(device: &TpuDevice) -> Result<(), ExecutionError> {
        device.0.wait().map_err(failed)
    }

    /// Runs what the calling thread's stream recorded, and does not wait: the end of a step.
    fn flush(device: &TpuDevice) -> Result<(), ExecutionError> {
        device.0.flush().map_err(failed)
    }

    /// Does nothing: memory is freed with its last tensor. A server calls this at the end of each session, so the compiled
    /// programs, which other sessions use, stay.
    fn memory_cleanup(_device: &TpuDevice) {}

    fn dtype_usage(_device: &TpuDevice, dtype: BurnDType) -> DTypeUsageSet {
        match dtype {
            BurnDType::QFloat(scheme) if is_supported(&scheme) => DTypeUsage::Storage.into(),
            _ if from_burn(dtype).is_none() => DTypeUsageSet::empty(),
            BurnDType::Bool(_) => DTypeUsage::Storage | DTypeUsage::Arithmetic,
            _ => DTypeUsage::Storage | DTypeUsage::Arithmetic | DTypeUsage::Accelerated,
        }
    }

    /// Returns the number of devices of a platform. Opens the platform's client if its hardware seems to be present.
    fn device_count(type_id: u16) -> usize {
        crate::device::device_count(type_id)
    }

    version::backend_methods! {}
}

/// Burn's defaults: no collectives. Many chips are one device here, a [`Mesh`](crate::Mesh).
impl<F: TpuFloat, I: TpuInt> DistributedOps<Self> for Tpu<F, I> {}
