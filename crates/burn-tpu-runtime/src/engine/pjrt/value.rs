//! A value on one device: a plugin's buffer that is counted in the device's memory.

use crate::engine::DeviceBuffer;
use crate::error::{Result, TpuError};
use crate::memory::{AllocationSite, LiveValue};
use burn_tpu_graph::op::MemorySpace;
use burn_tpu_pjrt::Buffer;
use std::ops::Deref;
use std::sync::Arc;

/// A buffer, which is counted until it is dropped or donated.
pub(super) struct DeviceValue {
    buffer: Buffer,
    memory: MemorySpace,
    live: LiveValue,
}

impl DeviceValue {
    /// Takes a buffer in this memory.
    pub(super) fn new(buffer: Buffer, memory: MemorySpace, site: &Arc<AllocationSite>) -> Self {
        let live = site.hold(|| size(&buffer, memory));
        Self { buffer, memory, live }
    }

    pub(super) fn memory(&self) -> MemorySpace {
        self.memory
    }

    /// Returns a copy in a memory.
    ///
    /// # Errors
    /// The plugin's.
    pub(super) fn copied_to(&self, memory: MemorySpace) -> Result<Buffer> {
        self.buffer.copy_to_memory(memory.name()).map_err(TpuError::pjrt("moving a value to another memory"))
    }

    /// Replaces a buffer that was donated by the result that took its memory, and returns it. A result of the same site,
    /// as of a step that comes again, leaves the count as it is.
    pub(super) fn replace(&mut self, result: Buffer, memory: MemorySpace, site: &Arc<AllocationSite>) -> Buffer {
        if !Arc::ptr_eq(self.live.site(), site) {
            self.live = site.hold(|| size(&result, memory));
        }
        self.memory = memory;
        std::mem::replace(&mut self.buffer, result)
    }

    /// Returns the buffer, which is not counted any more.
    pub(super) fn into_buffer(self) -> Buffer {
        self.buffer
    }
}

impl Deref for DeviceValue {
    type Target = Buffer;

    fn deref(&self) -> &Buffer {
        &self.buffer
    }
}

impl DeviceBuffer for DeviceValue {
    fn is_donated(&self) -> bool {
        self.buffer.is_deleted().unwrap_or(true)
    }

    fn site(&self) -> Option<&Arc<AllocationSite>> {
        Some(self.live.site())
    }

    #[cfg(feature = "testing")]
    fn is_computed(&self) -> bool {
        self.buffer.ready().and_then(|ready| ready.is_ready()).unwrap_or(true)
    }
}

/// Returns the bytes that a buffer takes on the device: on a TPU more than its elements need; in the host's memory none.
fn size(buffer: &Buffer, memory: MemorySpace) -> u64 {
    if memory == MemorySpace::PinnedHost {
        return 0;
    }
    buffer.on_device_size().unwrap_or_else(|_| buffer.spec().byte_len()) as u64
}
