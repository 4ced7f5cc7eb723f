//! A tensor: a counted handle to a node of a trace, to a buffer of a device, or to a value that comes from elsewhere.
//!
//! Owns: a tensor's type, and the value once there is one. May not know: how a value that it waits for is computed.

use super::Origin;
use crate::Device;
use crate::engine::{HostValue, Input, SharedBuffer};
use crate::error::Result;
use burn_tpu_graph::{DType, Dims, TensorType};
use std::cell::Cell;
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
        if let Some(origin) = self.origin().filter(|origin| !origin.is_dropped_by_owner()) {
            origin.mark_shared();
        }
    }
}

struct TensorInner {
    device: Device,
    ty: TensorType,
    source: ValueSource,
    /// What the source left; unset until the tensor is asked for it after a cut.
    collected: OnceLock<Input>,
}

/// Where a tensor's value comes from.
enum ValueSource {
    /// The buffer, perhaps still being computed, or why there is none: it is there from the start.
    Ready(Input),
    /// [`Tensor::take_value`] took it.
    Taken,
    /// From the trace that recorded the tensor.
    Trace(Origin),
    /// From what no trace recorded.
    Elsewhere(Box<dyn PendingValue>),
}

/// A value that is not there yet. A stream records it, or it comes from elsewhere, such as from other devices.
pub(crate) trait PendingValue: Send + Sync {
    /// Moves the value into its tensor, if it is there.
    fn collect(&self, into: &OnceLock<Input>);

    /// Computes the value, or has it fail, for a stream that did not record it.
    ///
    /// # Errors
    /// Why there is no value yet: what computes it did not run, or other devices would have to be waited for.
    fn compute(&self, wait: WaitForDevices) -> Result<()>;

    /// Returns whether [`PendingValue::compute`] would wait for other devices.
    fn waits_for_devices(&self) -> bool;
}

/// Whether a computation may wait for other devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitForDevices {
    Yes,
    No,
}

thread_local! {
    static MADE: Cell<u64> = const { Cell::new(0) };
}

impl Tensor {
    fn made(device: Device, ty: TensorType, source: ValueSource) -> Self {
        MADE.set(MADE.get().wrapping_add(1));
        Self { inner: Arc::new(TensorInner { device, ty, source, collected: OnceLock::new() }) }
    }

    /// Returns how many tensors the calling thread has made.
    pub fn made_here() -> u64 {
        MADE.get()
    }

    /// A tensor that was not recorded: its value is there, or the reason why it is not.
    pub(crate) fn new(device: Device, ty: TensorType, value: Result<SharedBuffer>) -> Self {
        Self::made(device, ty, ValueSource::Ready(value.map_err(Arc::new)))
    }

    /// A tensor that was recorded and waits for a cut.
    pub(crate) fn pending(device: Device, ty: TensorType, origin: Origin) -> Self {
        Self::made(device, ty, ValueSource::Trace(origin))
    }

    /// A tensor whose value comes from elsewhere.
    pub(crate) fn from_elsewhere(device: Device, ty: TensorType, value: Box<dyn PendingValue>) -> Self {
        Self::made(device, ty, ValueSource::Elsewhere(value))
    }

    /// What computes the value, unless it was there from the start.
    pub(crate) fn pending_value(&self) -> Option<&dyn PendingValue> {
        match &self.inner.source {
            ValueSource::Ready(_) | ValueSource::Taken => None,
            ValueSource::Trace(origin) => Some(origin),
            ValueSource::Elsewhere(value) => Some(&**value),
        }
    }

    /// The trace that recorded the tensor, if one did.
    pub(crate) fn origin(&self) -> Option<&Origin> {
        self.inner.origin()
    }

    /// Returns whether two handles are of one tensor.
    pub fn is(&self, other: &Self) -> bool {
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

    /// Takes the value out of a handle whose tensor has one. If it is the last handle, the value has one owner less, and the
    /// handle is empty: only [`Tensor::refill`] may use it.
    pub(crate) fn take_value(&mut self) -> Option<Input> {
        let _collected = self.value();
        let own = Arc::get_mut(&mut self.inner).and_then(TensorInner::take_value);
        own.or_else(|| self.value().cloned())
    }

    /// Returns a tensor as [`Tensor::new`] does, in the memory of this one if that is empty and of the same type.
    pub(crate) fn refill(mut self, ty: &TensorType, value: Result<SharedBuffer>) -> Self {
        match Arc::get_mut(&mut self.inner) {
            Some(TensorInner { source: source @ ValueSource::Taken, ty: empty, .. }) if empty == ty => {
                *source = ValueSource::Ready(value.map_err(Arc::new));
                self
            }
            _ => Self::new(self.device(), ty.clone(), value),
        }
    }

    /// Gives a tensor that has no other handle other dims, which have as many elements, if its value is as the user gave it.
    /// Returns whether it is.
    pub(crate) fn reshape_input(&mut self, dims: &[usize]) -> bool {
        let Some(TensorInner { ty, source: ValueSource::Ready(Ok(value)), .. }) = Arc::get_mut(&mut self.inner) else {
            return false;
        };
        let is_reshaped = HostValue::of_sole(value).is_some_and(|value| value.reshape(dims));
        if is_reshaped {
            ty.dims = Dims::from_slice(dims);
            MADE.set(MADE.get().wrapping_add(1));
        }
        is_reshaped
    }

    /// Returns the value on the host of a tensor that has no other handle, if it was there from the start.
    pub(crate) fn sole_value(&self) -> Option<&HostValue> {
        let ValueSource::Ready(Ok(value)) = &self.inner.source else { return None };
        HostValue::of(value).filter(|_| Arc::strong_count(&self.inner) == 1)
    }

    /// The value; `None` while the tensor waits for a cut.
    pub(crate) fn value(&self) -> Option<&Input> {
        let collected = &self.inner.collected;
        match &self.inner.source {
            ValueSource::Ready(value) => Some(value),
            ValueSource::Taken => None,
            ValueSource::Trace(origin) => collected.get().or_else(|| {
                origin.collect(collected);
                collected.get()
            }),
            ValueSource::Elsewhere(pending) => collected.get().or_else(|| {
                pending.collect(collected);
                collected.get()
            }),
        }
    }
}

impl TensorInner {
    fn origin(&self) -> Option<&Origin> {
        if let ValueSource::Trace(origin) = &self.source { Some(origin) } else { None }
    }

    /// Takes a value that is there.
    fn take_value(&mut self) -> Option<Input> {
        if let Some(collected) = self.collected.take() {
            self.source = ValueSource::Taken;
            return Some(collected);
        }
        match std::mem::replace(&mut self.source, ValueSource::Taken) {
            ValueSource::Ready(value) => Some(value),
            other => {
                self.source = other;
                None
            }
        }
    }
}

impl Drop for TensorInner {
    fn drop(&mut self) {
        if let (None, Some(origin)) = (self.collected.get(), self.origin()) {
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
