//! The tensor primitive: a counted handle to a node of a trace or to a buffer of a device.

use crate::TpuDevice;
use crate::dtype::to_burn;
use crate::engine::SharedBuffer;
use crate::error::TpuError;
use crate::trace::Pending;
use burn_backend::TensorMetadata;
use burn_std::{DType as BurnDType, Shape};
use burn_tpu_graph::{DType, TensorType};
use parking_lot::Mutex;
use std::sync::Arc;

/// Where a tensor's value is.
#[derive(Clone)]
pub(crate) enum Value {
    /// Recorded, not yet run.
    Pending(Pending),
    /// In a buffer, perhaps still being computed.
    Ready(SharedBuffer),
    /// Its program failed; a read says why.
    Failed(TpuError),
}

/// A float, int or bool tensor of the [`Tpu`](crate::Tpu) backend. Cloning shares the value.
#[derive(Clone)]
pub struct TpuTensor {
    inner: Arc<TensorInner>,
}

pub(crate) struct TensorInner {
    device: TpuDevice,
    ty: TensorType,
    value: Mutex<Value>,
}

impl TpuTensor {
    pub(crate) fn new(device: TpuDevice, ty: TensorType, value: Value) -> Self {
        Self { inner: Arc::new(TensorInner { device: device.canonical(), ty, value: Mutex::new(value) }) }
    }

    pub(crate) fn from_inner(inner: Arc<TensorInner>) -> Self {
        Self { inner }
    }

    pub(crate) fn inner(&self) -> &Arc<TensorInner> {
        &self.inner
    }

    /// The device that holds the tensor.
    pub fn device(&self) -> TpuDevice {
        self.inner.device
    }

    pub(crate) fn ty(&self) -> &TensorType {
        &self.inner.ty
    }

    pub(crate) fn dims(&self) -> &[usize] {
        &self.inner.ty.dims
    }

    pub(crate) fn element(&self) -> DType {
        self.inner.ty.dtype
    }

    pub(crate) fn value(&self) -> Value {
        self.inner.value.lock().clone()
    }

    /// Looks at the value without cloning it.
    pub(crate) fn with_value<T>(&self, look: impl FnOnce(&Value) -> T) -> T {
        look(&self.inner.value.lock())
    }

    pub(crate) fn set_value(&self, value: Value) {
        let old = std::mem::replace(&mut *self.inner.value.lock(), value);
        drop(old);
    }
}

impl Drop for TensorInner {
    fn drop(&mut self) {
        if let Value::Pending(pending) = self.value.get_mut() {
            pending.dropped();
        }
    }
}

impl std::fmt::Debug for TpuTensor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.with_value(|value| match value {
            Value::Pending(_) => "pending",
            Value::Ready(_) => "ready",
            Value::Failed(_) => "failed",
        });
        write!(f, "TpuTensor({} on {}, {state})", self.inner.ty, self.inner.device)
    }
}

impl TensorMetadata for TpuTensor {
    fn dtype(&self) -> BurnDType {
        to_burn(self.inner.ty.dtype)
    }

    fn shape(&self) -> Shape {
        self.dims().iter().copied().collect()
    }

    fn rank(&self) -> usize {
        self.inner.ty.rank()
    }
}
