//! A tensor: a counted handle to a node of a trace or to a buffer of a device.

use crate::Device;
use crate::engine::SharedBuffer;
use crate::error::TpuError;
use crate::trace::Pending;
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

/// A float, int or bool tensor of a device. Cloning shares the value.
#[derive(Clone)]
pub struct Tensor {
    inner: Arc<TensorInner>,
}

pub(crate) struct TensorInner {
    device: Device,
    ty: TensorType,
    value: Mutex<Value>,
}

impl Tensor {
    pub(crate) fn new(device: Device, ty: TensorType, value: Value) -> Self {
        Self { inner: Arc::new(TensorInner { device, ty, value: Mutex::new(value) }) }
    }

    pub(crate) fn from_inner(inner: Arc<TensorInner>) -> Self {
        Self { inner }
    }

    pub(crate) fn inner(&self) -> &Arc<TensorInner> {
        &self.inner
    }

    /// The device that holds the tensor.
    pub fn device(&self) -> Device {
        self.inner.device
    }

    /// Its element type and dims.
    pub fn ty(&self) -> &TensorType {
        &self.inner.ty
    }

    /// Its dims.
    pub fn dims(&self) -> &[usize] {
        &self.inner.ty.dims
    }

    /// Its element type.
    pub fn element(&self) -> DType {
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

impl std::fmt::Debug for Tensor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.with_value(|value| match value {
            Value::Pending(_) => "pending",
            Value::Ready(_) => "ready",
            Value::Failed(_) => "failed",
        });
        write!(f, "Tensor({} on {}, {state})", self.inner.ty, self.inner.device)
    }
}
