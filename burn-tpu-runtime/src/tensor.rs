//! A tensor: a counted handle to a node of a trace or to a buffer of a device.

use crate::Device;
use crate::collective::Part;
use crate::engine::{Input, SharedBuffer};
use crate::error::Result;
use crate::trace::Origin;
use burn_tpu_graph::{DType, TensorType};
use std::sync::{Arc, OnceLock};

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

struct TensorInner {
    device: Device,
    ty: TensorType,
    source: Source,
    /// The buffer, perhaps still being computed, or why there is none; unset until the tensor is asked for it after a cut.
    value: OnceLock<Input>,
}

/// Where a tensor's value comes from.
enum Source {
    /// From the host, or from a read that failed: it is there from the start.
    Host,
    /// From the trace that recorded the tensor.
    Trace(Origin),
    /// From a reduction over several devices.
    Reduction(Part),
}

impl Tensor {
    /// A tensor that was not recorded: its value is there, or the reason why it is not.
    pub(crate) fn new(device: Device, ty: TensorType, value: Result<SharedBuffer>) -> Self {
        let value = OnceLock::from(value.map_err(Arc::new));
        Self { inner: Arc::new(TensorInner { device, ty, source: Source::Host, value }) }
    }

    /// A tensor that was recorded and waits for a cut.
    pub(crate) fn pending(device: Device, ty: TensorType, origin: Origin) -> Self {
        let source = Source::Trace(origin);
        Self { inner: Arc::new(TensorInner { device, ty, source, value: OnceLock::new() }) }
    }

    /// A tensor that a reduction over several devices will have.
    pub(crate) fn reduced(device: Device, ty: TensorType, part: Part) -> Self {
        let source = Source::Reduction(part);
        Self { inner: Arc::new(TensorInner { device, ty, source, value: OnceLock::new() }) }
    }

    /// The reduction that the tensor is the result of, if it is one.
    pub(crate) fn part(&self) -> Option<&Part> {
        match &self.inner.source {
            Source::Reduction(part) => Some(part),
            Source::Host | Source::Trace(_) => None,
        }
    }

    /// The trace that recorded the tensor, if one did.
    pub(crate) fn origin(&self) -> Option<&Origin> {
        self.inner.origin()
    }

    /// Returns whether two handles are of one tensor.
    #[cfg(test)]
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
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

    /// Returns the value of a tensor that has one. If this is the last handle, the value has one owner less.
    pub(crate) fn into_value(mut self) -> Option<Input> {
        let _collected = self.value();
        let own = Arc::get_mut(&mut self.inner).and_then(|inner| inner.value.take());
        own.or_else(|| self.value().cloned())
    }

    /// The value; `None` while the tensor waits for a cut.
    pub(crate) fn value(&self) -> Option<&Input> {
        let value = &self.inner.value;
        value.get().or_else(|| {
            match &self.inner.source {
                Source::Host => {}
                Source::Trace(origin) => origin.collect(value),
                Source::Reduction(part) => part.collect(value),
            }
            value.get()
        })
    }
}

impl TensorInner {
    fn origin(&self) -> Option<&Origin> {
        match &self.source {
            Source::Trace(origin) => Some(origin),
            Source::Host | Source::Reduction(_) => None,
        }
    }
}

impl Drop for TensorInner {
    fn drop(&mut self) {
        if let (None, Some(origin)) = (self.value.get(), self.origin()) {
            origin.dropped();
        }
    }
}

impl std::fmt::Debug for Tensor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = match self.value() {
            None => "pending",
            Some(Ok(_)) => "ready",
            Some(Err(_)) => "failed",
        };
        write!(f, "Tensor({} on {}, {state})", self.inner.ty, self.inner.device)
    }
}
