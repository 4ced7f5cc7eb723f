//! A plugin's function table, and [`Api::call`], through which every call of a C function goes.

use std::ffi::c_char;
use std::mem::offset_of;
use std::path::Path;
use std::ptr::NonNull;

use crate::abi::{Args, Slot, Struct};
use crate::bindings::*;
use crate::error::{Code, PjrtError, Result};
use crate::plugin::Version;
use crate::process::Process;

/// The function table of a loaded plugin. Plugins are never unloaded, so it is valid until the process ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Api {
    table: NonNull<PJRT_Api>,
    /// Bytes of the table that the plugin filled; a newer plugin's is longer than our header's, an older one's shorter.
    size: usize,
    version: Version,
    path: &'static Path,
    /// The process that loaded the plugin. In a forked child of it the plugin's threads do not exist.
    process: Process,
}

// SAFETY: the table is constant after `GetPjrtApi` returned it, and the runtime behind the C API (PJRT's C++ client)
// is documented as thread-safe; nothing else is reachable through an `Api`.
unsafe impl Send for Api {}
// SAFETY: as for `Send`.
unsafe impl Sync for Api {}

impl Api {
    /// # Safety
    /// `table` is what `GetPjrtApi` of a library that stays loaded returned, and its first `size` bytes are readable.
    pub(crate) unsafe fn new(table: NonNull<PJRT_Api>, size: usize, version: Version, path: &'static Path) -> Api {
        Api { table, size, version, path, process: Process::current() }
    }

    /// A copy with some functions replaced. Its table lives until the process ends.
    #[cfg(test)]
    pub(crate) fn with_table(self, change: impl FnOnce(&mut PJRT_Api)) -> Api {
        assert!(self.size >= size_of::<PJRT_Api>(), "the plugin is older than the header");
        // SAFETY: the plugin filled at least as many bytes; the table holds integers, pointers and functions.
        let mut table = unsafe { self.table.as_ptr().read() };
        change(&mut table);
        Api { table: NonNull::from(Box::leak(Box::new(table))), size: size_of::<PJRT_Api>(), ..self }
    }

    pub(crate) fn version(&self) -> Version {
        self.version
    }

    pub(crate) fn path(&self) -> &'static Path {
        self.path
    }

    /// The plugin's extension of this type, if it has one of at least `size` bytes.
    ///
    /// # Errors
    /// [`PjrtError::Forked`] in a forked child.
    pub(crate) fn extension(
        &self,
        ty: PJRT_Extension_Type,
        size: usize,
    ) -> Result<Option<NonNull<PJRT_Extension_Base>>> {
        self.check_process("the list of extensions")?;
        // SAFETY: the field `extension_start` has this type; it is within every table that `header_of` accepts.
        let first = unsafe { self.slot::<*mut PJRT_Extension_Base>(offset_of!(PJRT_Api, extension_start)) };
        let mut next = first.and_then(NonNull::new);
        while let Some(extension) = next {
            // SAFETY: the header's list of extensions is constant and lives as long as the table: until the process ends.
            let base = unsafe { extension.as_ref() };
            if base.type_ == ty && base.struct_size >= size {
                return Ok(Some(extension));
            }
            next = NonNull::new(base.next);
        }
        Ok(None)
    }

    /// An error in a forked child of the process that loaded the plugin.
    pub(crate) fn check_process(&self, call: &'static str) -> Result<()> {
        if self.process.is_current() {
            return Ok(());
        }
        Err(PjrtError::Forked { path: self.path, call, loaded_by: self.process.id })
    }

    /// Calls the C function that `A` belongs to and turns the error it may return into a [`PjrtError::Call`]. In a forked
    /// child it calls nothing: [`PjrtError::Forked`].
    ///
    /// # Safety
    /// `args` was made by [`Struct::new`] and its in-fields satisfy what the header says of this function: pointers
    /// are valid for as long as it says, handles are live and belong to this plugin.
    pub(crate) unsafe fn call<A: Args>(&self, args: &mut A) -> Result<()> {
        self.check_process(A::CALL)?;
        // SAFETY: `Args` promises that the entry at `OFFSET` has this type.
        let function = unsafe { self.slot::<Slot<A>>(A::OFFSET) }.flatten().ok_or_else(|| self.missing(A::CALL))?;
        // SAFETY: the table's entry is the function that takes `A`; the caller vouches for the fields.
        let error = unsafe { function(args) };
        match NonNull::new(error) {
            None => Ok(()),
            // SAFETY: a non-null result is an error that we own (header: "the caller is always responsible for freeing").
            Some(error) => Err(unsafe { self.error(A::CALL, error) }),
        }
    }

    /// Frees `error` and returns what it said.
    ///
    /// # Safety
    /// `error` was returned or passed by this plugin to be owned by the caller, and is not used afterwards.
    pub(crate) unsafe fn error(&self, call: &'static str, error: NonNull<PJRT_Error>) -> PjrtError {
        // SAFETY: `error` is live until `destroy_error` below.
        let code = unsafe { self.error_code(error) };
        // SAFETY: as above.
        let message = unsafe { self.error_message(error) };
        // SAFETY: `error` is owned by us and not used after this.
        unsafe { self.destroy_error(error) };
        PjrtError::Call { path: self.path, call, code, message }
    }

    /// A plugin that breaks the C API's own rules.
    pub(crate) fn broken(&self, call: &'static str, what: &'static str) -> PjrtError {
        PjrtError::PluginBroken { path: self.path, call, what }
    }

    /// An out-pointer that must not be null.
    pub(crate) fn non_null<T>(&self, call: &'static str, pointer: *mut T) -> Result<NonNull<T>> {
        NonNull::new(pointer).ok_or_else(|| self.broken(call, "it returned null and no error"))
    }

    fn missing(&self, call: &'static str) -> PjrtError {
        PjrtError::CallMissing { path: self.path, version: self.version, call }
    }

    /// The table entry at `offset`; `None` past the plugin's end.
    ///
    /// # Safety
    /// The entry at `offset` has type `T`.
    unsafe fn slot<T: Copy>(&self, offset: usize) -> Option<T> {
        if offset + size_of::<T>() > self.size {
            return None;
        }
        // SAFETY: the entry ends within the `size` bytes that `new` was promised.
        let entry = unsafe { self.table.as_ptr().byte_add(offset) }.cast::<T>();
        // SAFETY: in bounds, aligned as a field of the table, of type `T` by the caller's promise, never written.
        Some(unsafe { entry.read() })
    }

    /// # Safety
    /// `error` is live.
    unsafe fn error_code(&self, error: NonNull<PJRT_Error>) -> Code {
        let mut args = PJRT_Error_GetCode_Args::new();
        args.error = error.as_ptr();
        // SAFETY: the field `PJRT_Error_GetCode` has this type.
        let slot = unsafe { self.slot::<Slot<PJRT_Error_GetCode_Args>>(PJRT_Error_GetCode_Args::OFFSET) };
        let Some(function) = slot.flatten() else { return Code::Unknown };
        // SAFETY: `error` is live. An error about reading an error (plugins return none) is dropped, not followed.
        unsafe { function(&mut args) };
        Code::from_raw(args.code)
    }

    /// # Safety
    /// `error` is live.
    unsafe fn error_message(&self, error: NonNull<PJRT_Error>) -> String {
        let mut args = PJRT_Error_Message_Args::new();
        args.error = error.as_ptr();
        // SAFETY: the field `PJRT_Error_Message` has this type.
        let slot = unsafe { self.slot::<PJRT_Error_Message>(offset_of!(PJRT_Api, PJRT_Error_Message)) };
        let Some(function) = slot.flatten() else { return "no message".into() };
        // SAFETY: `error` is live.
        unsafe { function(&mut args) };
        // SAFETY: the message lives as long as `error` and is copied here.
        unsafe { string(args.message, args.message_size) }
    }

    /// # Safety
    /// `error` is owned by the caller and not used afterwards.
    unsafe fn destroy_error(&self, error: NonNull<PJRT_Error>) {
        let mut args = PJRT_Error_Destroy_Args::new();
        args.error = error.as_ptr();
        // SAFETY: the field `PJRT_Error_Destroy` has this type.
        let slot = unsafe { self.slot::<PJRT_Error_Destroy>(offset_of!(PJRT_Api, PJRT_Error_Destroy)) };
        if let Some(function) = slot.flatten() {
            // SAFETY: `error` is owned by the caller.
            unsafe { function(&mut args) };
        }
    }
}

/// A destructor failed: nobody is there to return the error to, so it is logged. A forked child drops copies of handles
/// that its parent still owns: nothing is to be freed, and nothing is wrong.
pub(crate) fn log_failed_drop(result: Result<()>) {
    match result {
        Ok(()) | Err(PjrtError::Forked { .. }) => {}
        Err(error) => tracing::error!(%error, "a PJRT handle could not be freed"),
    }
}

/// The elements of a C array that may be null when empty.
///
/// # Safety
/// If `len` is not 0, `data` points to `len` initialised values that outlive `'a` and are not written meanwhile.
pub(crate) unsafe fn slice<'a, T>(data: *const T, len: usize) -> &'a [T] {
    if len == 0 || data.is_null() {
        return &[];
    }
    // SAFETY: non-null, and the caller promises the rest.
    unsafe { std::slice::from_raw_parts(data, len) }
}

/// A copy of C characters with a length; not UTF-8 turns into replacement characters.
///
/// # Safety
/// As for [`slice`], during this call.
pub(crate) unsafe fn string(data: *const c_char, len: usize) -> String {
    // SAFETY: `c_char` and `u8` have the same layout; the caller promises the rest.
    String::from_utf8_lossy(unsafe { slice(data.cast::<u8>(), len) }).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table as an old plugin would hand out: `size` bytes of zeroes after the version.
    fn api_of_size(table: &mut Box<PJRT_Api>, size: usize) -> Api {
        table.struct_size = size;
        let version = Version { major: 0, minor: 78 };
        // SAFETY: the boxed table is whole and outlives the `Api` in these tests.
        unsafe { Api::new(NonNull::from(&mut **table), size, version, Path::new("/old.so")) }
    }

    fn empty_table() -> Box<PJRT_Api> {
        // SAFETY: the table holds sizes, a pointer, integers and `Option<fn>`: zero is valid.
        Box::new(unsafe { std::mem::zeroed() })
    }

    unsafe extern "C" fn say_yes(args: *mut PJRT_Event_IsReady_Args) -> *mut PJRT_Error {
        // SAFETY: the test passes a live struct.
        let args = unsafe { &mut *args };
        assert_eq!(args.struct_size, PJRT_Event_IsReady_Args::SIZE);
        args.is_ready = true;
        std::ptr::null_mut()
    }

    #[test]
    fn a_slot_past_the_plugins_table_is_a_named_error() {
        let mut table = empty_table();
        table.PJRT_Event_IsReady = Some(say_yes);
        let mut args = PJRT_Event_IsReady_Args::new();
        let short = api_of_size(&mut table, PJRT_Event_IsReady_Args::OFFSET);
        // SAFETY: the function is not reached: its entry lies past the table's end.
        let error = unsafe { short.call(&mut args) }.unwrap_err();
        assert!(matches!(error, PjrtError::CallMissing { call: "PJRT_Event_IsReady", .. }), "{error}");
        assert!(error.to_string().contains("/old.so") && error.to_string().contains("0.78"), "{error}");
        let enough = api_of_size(&mut table, PJRT_Event_IsReady_Args::OFFSET + size_of::<usize>());
        // SAFETY: `say_yes` reads and writes the struct's own fields only.
        unsafe { enough.call(&mut args) }.unwrap();
        assert!(args.is_ready);
    }

    #[test]
    fn an_empty_slot_is_the_same_error() {
        let mut table = empty_table();
        let api = api_of_size(&mut table, PJRT_Api_STRUCT_SIZE as usize);
        // SAFETY: no function is reached: the entry is empty.
        let error = unsafe { api.call(&mut PJRT_Client_Create_Args::new()) }.unwrap_err();
        assert!(matches!(error, PjrtError::CallMissing { call: "PJRT_Client_Create", .. }), "{error}");
    }

    #[test]
    fn null_and_empty_slices_are_empty() {
        // SAFETY: the length is 0 or the pointer null, so nothing is read.
        assert!(unsafe { slice::<u8>(std::ptr::null(), 5) }.is_empty());
        // SAFETY: as above.
        assert_eq!(unsafe { string(std::ptr::null(), 0) }, "");
    }
}
