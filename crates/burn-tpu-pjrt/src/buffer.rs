//! Buffers: arrays in a device's memory (header: "Buffers"). Transfers to and from the host are in `transfer`.

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::abi::Struct;
use crate::api::log_failed_drop;
use crate::bindings::*;
use crate::client::Client;
use crate::device::Device;
use crate::error::{PjrtError, Result};
use crate::event::Event;
use crate::live::{Alive, Noun};
use crate::tensor_spec::TensorSpec;

/// An array on a device. Dropping it frees the memory once work under way no longer needs it.
///
/// A buffer may not be ready yet, and the work that makes it may still fail: [`Buffer::ready`] and every read tell.
/// After it was donated to an execution or deleted it holds nothing, and using it is an ordinary error.
pub struct Buffer {
    raw: NonNull<PJRT_Buffer>,
    /// Type and shape, remembered so that the hot path never asks the plugin.
    spec: Arc<TensorSpec>,
    client: Client,
    device: u32,
    _alive: Alive,
}

// SAFETY: PJRT's C++ buffers are documented as thread-safe, reading, donating and deleting included; the handle is an
// owned pointer without thread affinity.
unsafe impl Send for Buffer {}
// SAFETY: as for `Send`.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// # Safety
    /// `raw` is a buffer of this client that the caller owns and gives away.
    pub(crate) unsafe fn new(
        raw: NonNull<PJRT_Buffer>,
        spec: Arc<TensorSpec>,
        client: Client,
        device: usize,
    ) -> Buffer {
        Buffer { raw, spec, client, device: device as u32, _alive: Alive::new(Noun::Buffer) }
    }

    /// Element type and dimensions.
    pub fn spec(&self) -> &Arc<TensorSpec> {
        &self.spec
    }

    /// The client it belongs to.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The device that holds it.
    pub fn device(&self) -> Device {
        Device::new(self.client.clone(), self.device as usize)
    }

    /// The position of its device among the client's.
    pub(crate) fn device_index(&self) -> usize {
        self.device as usize
    }

    /// An event that ends when the data is there, or with the error of the work that was to make it.
    ///
    /// # Errors
    /// [`PjrtError::Call`] if the plugin has no event to give.
    pub fn ready(&self) -> Result<Event> {
        let mut args = PJRT_Buffer_ReadyEvent_Args::new();
        args.buffer = self.raw();
        // SAFETY: the buffer is live.
        unsafe { self.client.api().call(&mut args) }?;
        let raw = self.client.api().non_null("PJRT_Buffer_ReadyEvent", args.event)?;
        // SAFETY: the caller owns the returned event.
        Ok(unsafe { Event::new(raw, self.client.clone()) })
    }

    /// Blocks until the data is there.
    ///
    /// # Errors
    /// The error of the work that was to make it.
    pub fn wait(&self) -> Result<()> {
        self.ready()?.wait()
    }

    /// A copy on another device of the same client.
    ///
    /// # Errors
    /// [`PjrtError::Usage`] for a device of another client, [`PjrtError::Call`] from the plugin: the header has it refuse a
    /// buffer that lies there already, the CPU plugin makes a second copy.
    pub fn copy_to_device(&self, device: &Device) -> Result<Buffer> {
        if device.client() != &self.client {
            return Err(PjrtError::usage("Buffer::copy_to_device", "the device belongs to another client"));
        }
        let mut args = PJRT_Buffer_CopyToDevice_Args::new();
        args.buffer = self.raw();
        args.dst_device = device.raw();
        // SAFETY: buffer and device are live and of one client.
        unsafe { self.client.api().call(&mut args) }?;
        let raw = self.client.api().non_null("PJRT_Buffer_CopyToDevice", args.dst_buffer)?;
        // SAFETY: the caller owns the returned buffer.
        Ok(unsafe { Buffer::new(raw, self.spec.clone(), self.client.clone(), device.index()) })
    }

    /// A copy in another memory of the same device, by the plugin's name of its kind: `device`, `pinned_host`.
    ///
    /// # Errors
    /// [`PjrtError::Usage`] if the device has no memory of this kind, [`PjrtError::Call`] from the plugin.
    pub fn copy_to_memory(&self, kind: &str) -> Result<Buffer> {
        let device = self.device();
        let mut args = PJRT_Buffer_CopyToMemory_Args::new();
        args.buffer = self.raw();
        args.dst_memory = device.raw_memory(kind)?;
        // SAFETY: the buffer is live, and the memory is its own device's.
        unsafe { self.client.api().call(&mut args) }?;
        let raw = self.client.api().non_null("PJRT_Buffer_CopyToMemory", args.dst_buffer)?;
        // SAFETY: the caller owns the returned buffer.
        Ok(unsafe { Buffer::new(raw, self.spec.clone(), self.client.clone(), device.index()) })
    }

    /// The plugin's name of the kind of memory that it is in.
    ///
    /// # Errors
    /// [`PjrtError::Call`] if the plugin cannot say.
    pub fn memory_kind(&self) -> Result<String> {
        let mut args = PJRT_Buffer_Memory_Args::new();
        args.buffer = self.raw();
        // SAFETY: the buffer is live.
        unsafe { self.client.api().call(&mut args) }?;
        let memory = self.client.api().non_null("PJRT_Buffer_Memory", args.memory)?;
        // SAFETY: a memory lives as long as its client, which this buffer keeps.
        unsafe { crate::device::memory_kind(self.client.api(), memory.as_ptr()) }
    }

    /// Gives the memory up now, even while clones of the handle's owner live on.
    ///
    /// # Errors
    /// [`PjrtError::Call`] if the plugin refuses.
    pub fn delete(&self) -> Result<()> {
        let mut args = PJRT_Buffer_Delete_Args::new();
        args.buffer = self.raw();
        // SAFETY: the buffer is live; a deleted one may still be asked and freed, and its other uses are errors.
        unsafe { self.client.api().call(&mut args) }
    }

    /// Whether it was deleted or donated.
    ///
    /// # Errors
    /// [`PjrtError::Call`] if the plugin cannot say.
    pub fn is_deleted(&self) -> Result<bool> {
        let mut args = PJRT_Buffer_IsDeleted_Args::new();
        args.buffer = self.raw();
        // SAFETY: the buffer is live, deleted or not.
        unsafe { self.client.api().call(&mut args) }?;
        Ok(args.is_deleted)
    }

    /// Bytes that it takes on the device: on a TPU more than on the host, since rows are padded to tiles.
    ///
    /// # Errors
    /// [`PjrtError::Call`], for one that was deleted too.
    pub fn on_device_size(&self) -> Result<usize> {
        let mut args = PJRT_Buffer_OnDeviceSizeInBytes_Args::new();
        args.buffer = self.raw();
        // SAFETY: the buffer is live.
        unsafe { self.client.api().call(&mut args) }?;
        Ok(args.on_device_size_in_bytes)
    }

    /// The device address, for telling whether two buffers share memory. Never to be read through.
    ///
    /// # Errors
    /// [`PjrtError::Call`], for one that was deleted too.
    pub fn address(&self) -> Result<usize> {
        let mut args = PJRT_Buffer_UnsafePointer_Args::new();
        args.buffer = self.raw();
        // SAFETY: the buffer is live; the result is a number here, never dereferenced.
        unsafe { self.client.api().call(&mut args) }?;
        Ok(args.buffer_pointer)
    }

    /// Element type and dimensions as the plugin states them, against which tests hold [`Buffer::spec`].
    ///
    /// # Errors
    /// [`PjrtError::Call`] or [`PjrtError::ElementType`].
    pub fn query_spec(&self) -> Result<TensorSpec> {
        let api = self.client.api();
        let mut element_type = PJRT_Buffer_ElementType_Args::new();
        element_type.buffer = self.raw();
        // SAFETY: the buffer is live.
        unsafe { api.call(&mut element_type) }?;
        let mut dims = PJRT_Buffer_Dimensions_Args::new();
        dims.buffer = self.raw();
        // SAFETY: the buffer is live.
        unsafe { api.call(&mut dims) }?;
        // SAFETY: the dimensions live as long as the buffer and are copied here.
        let dims = unsafe { crate::api::slice(dims.dims, dims.num_dims) };
        crate::executable::spec_from_raw("PJRT_Buffer_ElementType", element_type.type_, dims)
    }

    pub(crate) fn raw(&self) -> *mut PJRT_Buffer {
        self.raw.as_ptr()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let mut args = PJRT_Buffer_Destroy_Args::new();
        args.buffer = self.raw();
        // SAFETY: the buffer is live, owned by us, and not used after this.
        log_failed_drop(unsafe { self.client.api().call(&mut args) });
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({}, {:?})", self.spec, self.device())
    }
}
