//! The backend type and its methods that are not tensor ops.

use crate::dtype::from_burn;
use crate::error::failed;
use crate::ops::qtensor::is_supported;
use crate::{TpuDevice, TpuQTensor, TpuTensor};
use burn_backend::{Backend, BackendTypes, DTypeUsage, DTypeUsageSet, Element, ExecutionError};
use burn_std::DType as BurnDType;
use half::{bf16, f16};
use std::marker::PhantomData;

/// The TPU backend. `F` is the default float type, `I` the default integer type; a tensor may have any other.
///
/// bf16 is the default: weights, activations and matmul operands take half the memory of f32 and run at a TPU's full
/// speed, and every matmul, convolution, reduction, norm and softmax accumulates in f32. Train with
/// [`TpuOptimizer`](crate::TpuOptimizer), since an update below 1/256 of a bf16 weight is lost in rounding.
///
/// Burn keeps one default float type per device and process: use `Tpu<bf16>` or `Tpu<f32>` on one device, not both, and
/// `cast` where a single tensor differs.
///
/// ```
/// use burn_backend::{TensorMetadata, ops::FloatTensorOps};
/// use burn_tpu::{Tpu, TpuDevice};
/// let x = Tpu::<f32>::float_zeros([2, 3].into(), &TpuDevice::ndarray(), burn_std::FloatDType::F32);
/// assert_eq!(x.shape().as_slice(), &[2, 3]);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Tpu<F = bf16, I = i32> {
    types: PhantomData<(F, I)>,
}

mod sealed {
    pub trait Sealed {}
}

/// A default float type of [`Tpu`]: bf16, f16, f32 or f64.
pub trait TpuFloat: Element + sealed::Sealed {}

/// A default integer type of [`Tpu`]: i8 to i64, u8 to u64.
pub trait TpuInt: Element + sealed::Sealed {}

macro_rules! elements {
    ($kind:ident: $($element:ty),*) => {
        $(impl sealed::Sealed for $element {} impl $kind for $element {})*
    };
}

elements!(TpuFloat: bf16, f16, f32, f64);
elements!(TpuInt: i8, i16, i32, i64, u8, u16, u32, u64);

impl<F: TpuFloat, I: TpuInt> BackendTypes for Tpu<F, I> {
    type Device = TpuDevice;
    type FloatTensorPrimitive = TpuTensor;
    type FloatElem = F;
    type IntTensorPrimitive = TpuTensor;
    type IntElem = I;
    type BoolTensorPrimitive = TpuTensor;
    type BoolElem = bool;
    type QuantizedTensorPrimitive = TpuQTensor;
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

    /// Evicts the compiled programs from memory.
    fn memory_cleanup(device: &TpuDevice) {
        device.0.clear_programs();
    }

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
}
