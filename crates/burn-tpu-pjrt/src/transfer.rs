//! Transfers between host and device. Every read states a row-major host layout: without one the plugin writes the
//! layout of its own choice, which on TPUs is not row-major, and the CPU plugin would never show the mistake.

use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::abi::Struct;
use crate::bindings::*;
use crate::buffer::Buffer;
use crate::client::Client;
use crate::device::Device;
use crate::error::{PjrtError, Result};
use crate::event::Event;
use crate::live::{Alive, Noun};
use crate::tensor_spec::TensorSpec;

/// How long a plugin may use a host allocation that it was given to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostUse {
    /// Until the bytes are on the device.
    UntilTransferred,
    /// As long as the buffer lives: the CPU plugin then uses memory aligned to 64 bytes in place, without a copy.
    ZeroCopy,
}

impl Buffer {
    /// Copies host bytes to a device; they are free again when the call returns.
    ///
    /// `bytes` is the dense row-major array in the host's byte order, truth values as one byte each.
    ///
    /// # Errors
    /// [`PjrtError::ByteLength`] if `bytes` does not fill `spec`, [`PjrtError::Usage`] for a device of another host,
    /// [`PjrtError::Call`], for example when the device is full.
    pub fn from_host(device: &Device, spec: impl Into<Arc<TensorSpec>>, bytes: &[u8]) -> Result<Buffer> {
        let spec = spec.into();
        // SAFETY: with these semantics the bytes are used during the call only, and they are borrowed for it.
        let (buffer, done) =
            unsafe { upload(device, &spec, bytes, PJRT_HostBufferSemantics_kImmutableOnlyDuringCall) }?;
        drop(done);
        Ok(buffer)
    }

    /// Hands a host allocation over: it is kept alive, unchanged, until the plugin is done with it, then dropped on
    /// one of the plugin's threads. Returns before the bytes have moved.
    ///
    /// # Errors
    /// As [`Buffer::from_host`].
    pub fn from_host_owned<D>(
        device: &Device,
        spec: impl Into<Arc<TensorSpec>>,
        data: D,
        keep: HostUse,
    ) -> Result<Buffer>
    where
        D: AsRef<[u8]> + Send + 'static,
    {
        let spec = spec.into();
        let kept = Kept { data: Box::new(data), _alive: Alive::new(Noun::HostAllocation) };
        let semantics = match keep {
            HostUse::UntilTransferred => PJRT_HostBufferSemantics_kImmutableUntilTransferCompletes,
            HostUse::ZeroCopy => PJRT_HostBufferSemantics_kImmutableZeroCopy,
        };
        // SAFETY: `kept` is dropped by the callback of an event that ends after the plugin's last use, and not before; it
        // is leaked where there is no such event. Until then its box neither moves nor is borrowed mutably, so the slice
        // that `as_ref` gave stays valid and unchanged. A plugin that fails does not use the bytes.
        let (buffer, done) = unsafe { upload(device, &spec, (*kept.data).as_ref(), semantics) }?;
        let done = match (done, keep) {
            (Some(done), _) => Ok(done),
            // The buffer is ready when its bytes are on the device, which is all that was promised.
            (None, HostUse::UntilTransferred) => buffer.ready(),
            // The plugin may use the bytes for as long as the buffer lives or its memory serves another one.
            (None, HostUse::ZeroCopy) => Err(device.client().api().broken(UPLOAD, "it returned no event and no error")),
        };
        let kept = ManuallyDrop::new(kept);
        if let Err(error) = done.and_then(|done| drop_when(done, kept)) {
            tracing::error!(%error, "the end of a host transfer cannot be learned: its memory is leaked");
        }
        Ok(buffer)
    }

    /// Reads the array into `bytes`, row-major, and blocks until it is there.
    ///
    /// # Errors
    /// [`PjrtError::ByteLength`] if `bytes` has another length than the array, else the error of the transfer or of
    /// the work that was to make the array.
    pub fn read_into(&self, bytes: &mut [u8]) -> Result<()> {
        let expected = self.spec().byte_len();
        if bytes.len() != expected {
            let spec = (**self.spec()).clone();
            return Err(PjrtError::ByteLength { spec, expected, given: bytes.len() });
        }
        // SAFETY: `bytes` is borrowed until the event has ended, which the next line waits for.
        let event = unsafe { download(self, bytes.as_mut_ptr()) }?;
        event.wait()
    }

    /// Reads the array, row-major, and blocks until it is there.
    ///
    /// # Errors
    /// The error of the transfer or of the work that was to make the array.
    pub fn to_host(&self) -> Result<Vec<u8>> {
        self.start_read()?.wait()
    }

    /// Starts reading the array and returns at once.
    ///
    /// # Errors
    /// [`PjrtError::Call`] if the plugin does not start; later errors come from [`HostRead::wait`].
    pub fn start_read(&self) -> Result<HostRead> {
        let mut bytes: Vec<u8> = Vec::with_capacity(self.spec().byte_len());
        // SAFETY: the vector has room for the array; `HostRead` frees it only after the event has ended.
        let event = unsafe { download(self, bytes.as_mut_ptr()) }?;
        Ok(HostRead { event, bytes, len: self.spec().byte_len() })
    }
}

/// An array on its way to the host. Dropping it waits for the end, since the plugin writes into its memory.
#[derive(Debug)]
pub struct HostRead {
    event: Event,
    /// Uninitialised until the event has ended without an error.
    bytes: Vec<u8>,
    len: usize,
}

impl HostRead {
    /// Whether [`HostRead::wait`] would return at once.
    ///
    /// # Errors
    /// [`PjrtError::Call`] if the plugin cannot say.
    pub fn is_ready(&self) -> Result<bool> {
        self.event.is_ready()
    }

    /// Blocks until the bytes are there.
    ///
    /// # Errors
    /// The error of the transfer or of the work that was to make the array.
    pub fn wait(mut self) -> Result<Vec<u8>> {
        self.event.wait()?;
        let mut bytes = std::mem::take(&mut self.bytes);
        // SAFETY: the capacity is at least `len`, and a transfer that ended without an error wrote all `len` bytes.
        unsafe { bytes.set_len(self.len) };
        Ok(bytes)
    }
}

impl Drop for HostRead {
    fn drop(&mut self) {
        // After `wait` this returns at once. The error has been returned there, or nobody asked for it.
        let _ = self.event.wait();
    }
}

/// A host allocation that a plugin uses.
struct Kept<D> {
    data: Box<D>,
    _alive: Alive,
}

/// Drops `kept` when `done` has ended; leaks it if that cannot be learned, since dropping too early would be worse.
fn drop_when<D: Send + 'static>(done: Event, kept: ManuallyDrop<Kept<D>>) -> Result<()> {
    done.on_ready(move |_| drop(ManuallyDrop::into_inner(kept)))
}

/// The C function that uploads.
const UPLOAD: &str = "PJRT_Client_BufferFromHostBuffer";

/// Starts an upload and returns the buffer with the event that ends when the plugin is done with `bytes`. The header has
/// every plugin give that event; one that gives none has still taken the bytes.
///
/// # Safety
/// `bytes` stays valid and unchanged for as long as `semantics` says.
unsafe fn upload(
    device: &Device,
    spec: &Arc<TensorSpec>,
    bytes: &[u8],
    semantics: PJRT_HostBufferSemantics,
) -> Result<(Buffer, Option<Event>)> {
    if bytes.len() != spec.byte_len() {
        let (expected, given) = (spec.byte_len(), bytes.len());
        return Err(PjrtError::ByteLength { spec: (**spec).clone(), expected, given });
    }
    if !device.is_addressable() {
        return Err(PjrtError::usage("Buffer::from_host", format!("{device:?} belongs to another process")));
    }
    let client: &Client = device.client();
    let mut args = PJRT_Client_BufferFromHostBuffer_Args::new();
    args.client = client.raw();
    args.data = bytes.as_ptr().cast::<c_void>();
    args.type_ = spec.element_type().to_raw();
    args.dims = spec.dims().as_ptr();
    args.num_dims = spec.dims().len();
    // No strides and no device layout: dense row-major bytes, placed as the plugin likes.
    args.host_buffer_semantics = semantics;
    args.device = device.raw();
    // SAFETY: client and device are live; the dimensions are borrowed for the call; their product with the element
    // size is the length of `bytes`, whose lifetime the caller vouches for.
    unsafe { client.api().call(&mut args) }?;
    let buffer = client.api().non_null(UPLOAD, args.buffer)?;
    // SAFETY: the caller owns the returned buffer.
    let buffer = unsafe { Buffer::new(buffer, spec.clone(), client.clone(), device.index()) };
    // SAFETY: the caller owns the returned event.
    let done = NonNull::new(args.done_with_host_buffer).map(|done| unsafe { Event::new(done, client.clone()) });
    Ok((buffer, done))
}

/// Starts a download into `dst`.
///
/// # Safety
/// `dst` has room for the whole array and is touched by nobody else until the returned event has ended.
unsafe fn download(buffer: &Buffer, dst: *mut u8) -> Result<Event> {
    let (client, spec) = (buffer.client(), buffer.spec());
    let mut layout = row_major(spec);
    let mut args = PJRT_Buffer_ToHostBuffer_Args::new();
    args.src = buffer.raw();
    args.host_layout = &mut layout;
    args.dst = dst.cast::<c_void>();
    args.dst_size = spec.byte_len();
    // SAFETY: the buffer is live, the layout is borrowed for the call; the caller vouches for `dst`.
    unsafe { client.api().call(&mut args) }?;
    let event: NonNull<PJRT_Event> = client.api().non_null("PJRT_Buffer_ToHostBuffer", args.event)?;
    // SAFETY: the caller owns the returned event.
    Ok(unsafe { Event::new(event, client.clone()) })
}

/// Minor to major `[n-1, .., 0]` without tiles. The CPU plugin refuses the strides form.
fn row_major(spec: &TensorSpec) -> PJRT_Buffer_MemoryLayout {
    let order = spec.minor_to_major();
    let mut tiled = PJRT_Buffer_MemoryLayout_Tiled::new();
    tiled.minor_to_major = order.as_ptr();
    tiled.minor_to_major_size = order.len();
    let mut layout = PJRT_Buffer_MemoryLayout::new();
    layout.type_ = PJRT_Buffer_MemoryLayout_Type_Tiled;
    layout.__bindgen_anon_1 = PJRT_Buffer_MemoryLayout__bindgen_ty_1 { tiled };
    layout
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client_options::ClientOptions;
    use crate::element_type::ElementType;
    use crate::plugin::Plugin;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

    static REAL: OnceLock<unsafe extern "C" fn(*mut PJRT_Client_BufferFromHostBuffer_Args) -> *mut PJRT_Error> =
        OnceLock::new();

    /// The CPU plugin's upload, without its event.
    unsafe extern "C" fn without_event(args: *mut PJRT_Client_BufferFromHostBuffer_Args) -> *mut PJRT_Error {
        let real = REAL.get().expect("set before the table is used");
        // SAFETY: the caller's own arguments.
        let error = unsafe { real(args) };
        // SAFETY: live, and the call is over. The event that was there is leaked.
        unsafe { (*args).done_with_host_buffer = std::ptr::null_mut() };
        error
    }

    /// Host bytes that tell when they are dropped.
    struct Bytes(Vec<u8>, Arc<AtomicBool>);

    impl AsRef<[u8]> for Bytes {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }

    impl Drop for Bytes {
        fn drop(&mut self) {
            self.1.store(true, SeqCst);
        }
    }

    #[test]
    fn bytes_of_an_upload_without_an_event_outlive_its_transfer() {
        let Some(plugin) = crate::testing::plugin(crate::PluginKind::Cpu) else { return };
        let plugin = Plugin::load(plugin).unwrap().with_table(|table| {
            REAL.get_or_init(|| table.PJRT_Client_BufferFromHostBuffer.expect("every plugin uploads"));
            table.PJRT_Client_BufferFromHostBuffer = Some(without_event);
        });
        let client = Client::new(plugin, &ClientOptions::cpu(1).unwrap()).unwrap();
        let device = client.device(0).unwrap();
        let spec = Arc::new(TensorSpec::new(ElementType::U8, [4096]).unwrap());
        let given: Vec<u8> = (0..4096).map(|i| i as u8).collect();
        for (keep, dropped_in_the_end) in [(HostUse::UntilTransferred, true), (HostUse::ZeroCopy, false)] {
            let dropped = Arc::new(AtomicBool::new(false));
            let bytes = Bytes(given.clone(), Arc::clone(&dropped));
            let buffer = Buffer::from_host_owned(&device, Arc::clone(&spec), bytes, keep).unwrap();
            assert_eq!(buffer.to_host().unwrap(), given, "{keep:?}");
            drop(buffer);
            let patience = std::time::Instant::now();
            while dropped_in_the_end && !dropped.load(SeqCst) {
                assert!(patience.elapsed().as_secs() < 20, "the bytes are never freed");
                std::thread::yield_now();
            }
            assert_eq!(dropped.load(SeqCst), dropped_in_the_end, "{keep:?}");
        }
        assert_eq!(Buffer::from_host(&device, spec, &given).unwrap().to_host().unwrap(), given);
    }
}
