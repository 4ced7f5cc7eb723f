//! A tensor: a counted handle to a node of a trace or to a buffer of a device.

use crate::Device;
use crate::engine::SharedBuffer;
use crate::error::TpuError;
use crate::trace::Origin;
use burn_tpu_graph::{DType, TensorType};
use parking_lot::Mutex;
use std::sync::Arc;

/// Where a tensor's value is.
#[derive(Clone)]
pub(crate) enum Value {
    /// Recorded, not yet run.
    Pending,
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

/// A handle that another stream drops marks the tensor: from then on its owner's drops do not count, since which handle is
/// dropped last is chance.
impl Drop for Tensor {
    fn drop(&mut self) {
        if let Some(origin) = self.origin().filter(|origin| !origin.is_owned_here()) {
            origin.mark_shared();
        }
    }
}

pub(crate) struct TensorInner {
    device: Device,
    ty: TensorType,
    /// The trace that recorded the tensor; none for what came from the host.
    origin: Option<Origin>,
    value: Mutex<Value>,
}

impl Tensor {
    /// A tensor that was not recorded: its value is there, or the reason why it is not.
    pub(crate) fn new(device: Device, ty: TensorType, value: Value) -> Self {
        let value = Mutex::new(value);
        Self { inner: Arc::new(TensorInner { device, ty, origin: None, value }) }
    }

    /// A tensor that was recorded and waits for a cut.
    pub(crate) fn pending(device: Device, ty: TensorType, origin: Origin) -> Self {
        let value = Mutex::new(Value::Pending);
        Self { inner: Arc::new(TensorInner { device, ty, origin: Some(origin), value }) }
    }

    /// The trace that recorded the tensor, if one did.
    pub(crate) fn origin(&self) -> Option<&Origin> {
        self.inner.origin.as_ref()
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
        if let (Value::Pending, Some(origin)) = (self.value.get_mut(), &self.origin) {
            origin.dropped();
        }
    }
}

impl std::fmt::Debug for Tensor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.with_value(|value| match value {
            Value::Pending => "pending",
            Value::Ready(_) => "ready",
            Value::Failed(_) => "failed",
        });
        write!(f, "Tensor({} on {}, {state})", self.inner.ty, self.inner.device)
    }
}
