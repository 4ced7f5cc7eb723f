//! A tensor's value on the host, which is transferred when a compiled program first reads it.
//!
//! A value may also be in a larger buffer, whose first indices along each axis it has: a result of a program for a bucket of
//! sizes. Its elements come to the host when someone else reads it.
//!
//! Owns: the elements, the device's copies once there are some, and the count of the bytes that wait. May not know:
//! programs.

use super::{DeviceBuffer, HostBytes, HostTensor, SharedBuffer};
use crate::error::{Result, TpuError};
use crate::metrics::Counters;
use burn_tpu_graph::family::out_of_buffer;
use burn_tpu_graph::{Dims, Sharding, TensorType};
use parking_lot::Mutex;
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

/// The size in bytes up to which a value stays on the host too after its transfer, so that reading it back costs none.
const KEPT_BYTES: usize = 4 << 10;

/// The most bytes of values that wait on the host of one device. A further value is transferred at once, unless
/// the device is a mesh.
pub(crate) const MOST_WAITING_BYTES: u64 = 256 << 20;

/// The elements of a value, as the user gave them or as the interpreter has them. They are small, since programs make
/// hundreds of values that they only put next to each other.
#[derive(Clone)]
pub(crate) enum HostElements {
    /// Row-major and little-endian.
    Bytes(HostBytes),
    Tensor(Box<HostTensor>),
}

impl From<HostTensor> for HostElements {
    fn from(tensor: HostTensor) -> Self {
        Self::Tensor(Box::new(tensor))
    }
}

impl HostElements {
    /// Returns the elements of a value of this type once more if they stay on the host after its transfer.
    pub(crate) fn kept(&self, ty: &TensorType) -> Option<Self> {
        (ty.bytes() <= KEPT_BYTES).then(|| self.clone())
    }

    /// Returns the row-major little-endian bytes.
    pub(crate) fn bytes(self) -> HostBytes {
        match self {
            HostElements::Bytes(bytes) => bytes,
            HostElements::Tensor(tensor) => tensor.to_bytes().into(),
        }
    }
}

/// What a host value came from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Maker {
    /// The user, perhaps with ops that were computed at once.
    User,
    /// A program that ran in the interpreter. Later runs of it may leave the value on the device.
    Program,
}

/// A value that came from the host: from the user, or from the interpreter.
pub(crate) struct HostValue {
    ty: TensorType,
    maker: Maker,
    /// Whether it came to be in a larger buffer.
    is_from_larger: bool,
    was_read: AtomicBool,
    state: Mutex<Copies>,
    counters: Arc<Counters>,
}

struct Copies {
    /// The elements; none after the transfer of a large value, unless the interpreter has fetched it since.
    elements: Option<HostElements>,
    /// The device's copy; none before the transfer, and after a program took its memory.
    buffer: Option<SharedBuffer>,
    /// The device's copy in a larger buffer, with its type.
    larger: Option<Box<(TensorType, SharedBuffer)>>,
    is_waiting: bool,
}

impl DeviceBuffer for HostValue {
    #[cfg(feature = "testing")]
    fn is_computed(&self) -> bool {
        self.state.lock().buffer.as_ref().is_none_or(|buffer| buffer.is_computed())
    }
}

impl HostValue {
    pub(crate) fn new(ty: TensorType, elements: HostElements, maker: Maker, counters: Arc<Counters>) -> Self {
        Counters::add(&counters.waiting_bytes, ty.bytes());
        Counters::add(&counters.waiting_values, 1);
        let copies = Copies { elements: Some(elements), buffer: None, larger: None, is_waiting: true };
        let state = Mutex::new(copies);
        Self { ty, maker, is_from_larger: false, was_read: AtomicBool::new(false), state, counters }
    }

    /// Creates a value of the user that was transferred at once, since too much waited. As after any transfer, the elements
    /// of a small value are given, and stay on the host: ops that are computed at once read them.
    pub(crate) fn transferred(
        ty: TensorType,
        elements: Option<HostElements>,
        buffer: SharedBuffer,
        counters: Arc<Counters>,
    ) -> Self {
        let copies = Copies { elements, buffer: Some(buffer), larger: None, is_waiting: false };
        let (maker, was_read, state) = (Maker::User, AtomicBool::new(false), Mutex::new(copies));
        Self { ty, maker, is_from_larger: false, was_read, state, counters }
    }

    /// Creates a value that is in a larger buffer on the device.
    pub(crate) fn in_larger(ty: TensorType, larger: TensorType, buffer: SharedBuffer, counters: Arc<Counters>) -> Self {
        let copies =
            Copies { elements: None, buffer: None, larger: Some(Box::new((larger, buffer))), is_waiting: false };
        let (maker, state) = (Maker::Program, Mutex::new(copies));
        Self { ty, maker, is_from_larger: true, was_read: AtomicBool::new(true), state, counters }
    }

    /// Returns the device's copy in a larger buffer, if there is no other.
    pub(crate) fn only_larger(&self) -> Option<(TensorType, SharedBuffer)> {
        if !self.is_from_larger {
            return None;
        }
        let state = self.state.lock();
        let larger = state.larger.as_deref().filter(|_| state.elements.is_none() && state.buffer.is_none());
        larger.cloned()
    }

    /// Keeps the elements that were copied out of a larger buffer of this type.
    pub(crate) fn keep_part(&self, larger: &TensorType, bytes: &[u8]) {
        let part = out_of_buffer(bytes, &self.ty, larger);
        self.state.lock().elements = Some(HostElements::Bytes(part.into()));
    }

    /// Returns how the value is split over a mesh in a larger buffer of this type, if it has a copy in one.
    pub(crate) fn sharding_in(&self, ty: &TensorType) -> Option<Sharding> {
        let state = self.state.lock();
        state.larger.as_deref().filter(|(larger, _)| larger == ty)?.1.sharding().cloned()
    }

    /// Returns the device's copy in a larger buffer of this type, which is split so on a mesh. One that is `taken` belongs
    /// to the caller alone, so that a program may reuse its memory.
    pub(crate) fn larger(&self, ty: &TensorType, sharding: Option<&Sharding>, taken: bool) -> Option<SharedBuffer> {
        let mut state = self.state.lock();
        let is_it = |(larger, buffer): &(TensorType, SharedBuffer)| larger == ty && buffer.sharding() == sharding;
        if !state.larger.as_deref().is_some_and(is_it) {
            return None;
        }
        let copy = if taken { state.larger.take() } else { state.larger.clone() };
        copy.map(|copy| copy.1)
    }

    /// Frees the copy in a larger buffer, if there is another.
    pub(crate) fn free_larger(&self) {
        let mut state = self.state.lock();
        if state.elements.is_some() || state.buffer.is_some() {
            state.larger = None;
        }
    }

    /// Keeps a copy in a larger buffer of this type.
    pub(crate) fn keep_larger(&self, ty: &TensorType, buffer: &SharedBuffer) {
        self.state.lock().larger = Some(Box::new((ty.clone(), Arc::clone(buffer))));
    }

    /// Returns a buffer as a host value that nothing else has, if it is one.
    pub(crate) fn of_sole(buffer: &mut SharedBuffer) -> Option<&mut Self> {
        let any: &mut dyn Any = Arc::get_mut(buffer)?;
        any.downcast_mut()
    }

    /// Returns a buffer as a host value, if it is one.
    pub(crate) fn of(buffer: &SharedBuffer) -> Option<&Self> {
        let any: &dyn Any = &**buffer;
        any.downcast_ref()
    }

    /// Returns the row-major little-endian bytes, if they are on the host.
    pub(crate) fn bytes(&self) -> Option<HostBytes> {
        let elements = self.state.lock().elements.clone();
        elements.map(HostElements::bytes)
    }

    /// Appends the bytes as the user gave them, and returns `true`, unless the interpreter or a device has had them since.
    pub(crate) fn append_user_bytes(&self, to: &mut Vec<u8>) -> bool {
        match &self.state.lock().elements {
            Some(HostElements::Bytes(bytes)) => {
                to.extend_from_slice(bytes.as_ref());
                true
            }
            _ => false,
        }
    }

    /// Returns the value as the interpreter has it, and keeps it so, if it is on the host.
    pub(crate) fn tensor(&self) -> Option<HostTensor> {
        self.was_read.store(true, Relaxed);
        let mut state = self.state.lock();
        let tensor = match state.elements.as_ref()? {
            HostElements::Tensor(tensor) => return Some(HostTensor::clone(tensor)),
            HostElements::Bytes(bytes) => HostTensor::from_bytes(self.ty.clone(), bytes),
        };
        state.elements = Some(tensor.clone().into());
        Some(tensor)
    }

    /// Keeps the elements of a value that was copied from the device, until a program takes its memory there.
    pub(crate) fn keep(&self, tensor: &HostTensor) {
        let mut state = self.state.lock();
        if state.buffer.is_some() {
            state.elements = Some(tensor.clone().into());
        }
    }

    /// Gives the value other dims, which have as many elements, if it waits with the bytes that the user gave. Returns
    /// whether it does.
    pub(crate) fn reshape(&mut self, dims: &[usize]) -> bool {
        let state = self.state.get_mut();
        let is_given = state.is_waiting && matches!(state.elements, Some(HostElements::Bytes(_)));
        if is_given {
            self.ty.dims = Dims::from_slice(dims);
        }
        is_given
    }

    /// Returns whether the user gave the value, and its elements stay on the host.
    pub(crate) fn is_small_input(&self) -> bool {
        self.maker == Maker::User && self.ty.bytes() <= KEPT_BYTES
    }

    /// Returns whether the user gave the value and no program has read it: a batch, not a weight.
    pub(crate) fn is_new_input(&self) -> bool {
        self.maker == Maker::User && !self.was_read.load(Relaxed)
    }

    /// Returns whether the user gave the value.
    pub(crate) fn is_of_user(&self) -> bool {
        self.maker == Maker::User
    }

    /// Returns whether the elements are on the host.
    pub(crate) fn is_on_host(&self) -> bool {
        self.state.lock().elements.is_some()
    }

    /// Returns whether the value was not transferred yet.
    pub(crate) fn is_waiting(&self) -> bool {
        self.state.lock().is_waiting
    }

    /// Returns the device's copy, if there is one.
    pub(crate) fn buffer(&self) -> Option<SharedBuffer> {
        self.state.lock().buffer.clone()
    }

    /// Returns the device's copy, which `upload` makes if there is none. One that is `taken` belongs to the caller alone, so
    /// that a program may reuse its memory; [`HostValue::put_back`] returns it.
    ///
    /// # Errors
    /// Those of `upload`; the value then stays on the host.
    pub(crate) fn on_device(
        &self,
        taken: bool,
        upload: impl FnOnce(&TensorType, HostBytes) -> Result<SharedBuffer>,
    ) -> Result<SharedBuffer> {
        let mut state = self.state.lock();
        let is_transferred = state.buffer.is_none();
        let was_read = self.was_read.swap(true, Relaxed);
        let buffer = match (&state.buffer, &state.elements) {
            (Some(buffer), _) => {
                buffer.site().into_iter().filter(|_| was_read).for_each(|site| site.read_again());
                Arc::clone(buffer)
            }
            (None, Some(elements)) => upload(&self.ty, elements.clone().bytes())?,
            (None, None) => return Err(TpuError::Bug("a value is neither on the host nor on the device".to_owned())),
        };
        if std::mem::take(&mut state.is_waiting) {
            self.forget_waiting();
        }
        if self.ty.bytes() > KEPT_BYTES && (is_transferred || taken) {
            state.elements = None;
        }
        state.buffer = if taken { None } else { Some(Arc::clone(&buffer)) };
        Ok(buffer)
    }

    /// Returns the device's copy that was taken and not used.
    pub(crate) fn put_back(&self, buffer: SharedBuffer) {
        self.state.lock().buffer = Some(buffer);
    }

    fn forget_waiting(&self) {
        self.counters.waiting_bytes.fetch_sub(self.ty.bytes() as u64, Relaxed);
        self.counters.waiting_values.fetch_sub(1, Relaxed);
    }
}

impl Drop for HostValue {
    fn drop(&mut self) {
        if self.state.get_mut().is_waiting {
            self.forget_waiting();
        }
    }
}
