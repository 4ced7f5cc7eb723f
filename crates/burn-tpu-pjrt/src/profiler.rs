//! The profiler of a plugin that has one: what ran on its devices and when, as an XSpace message.
//!
//! Its functions belong to the profiler extension and return errors of their own type, so they are not called by
//! `Api::call`. [`Profiler::check`] does the same for them: it converts an error to [`PjrtError::Call`] and frees it.

use std::ptr::{self, NonNull};

use crate::api::{Api, log_failed_drop, slice, string};
use crate::bindings::PJRT_Extension_Type_Profiler;
use crate::error::{Code, PjrtError, Result};
use crate::plugin::Plugin;
use crate::profiler_abi::*;

/// A profiler of a plugin. Only one in a process collects at a time.
#[derive(Debug)]
pub struct Profiler {
    raw: NonNull<RawProfiler>,
    table: Table,
}

// SAFETY: a profiler is an owned handle without thread affinity (the C API starts and stops it from any thread).
unsafe impl Send for Profiler {}

/// The function table of a plugin's profiler, which lives as long as the plugin: until the process ends.
#[derive(Clone, Copy, Debug)]
struct Table {
    functions: &'static ProfilerApi,
    api: Api,
}

impl Profiler {
    /// Returns whether the plugin has a profiler.
    ///
    /// # Errors
    /// [`PjrtError::Forked`] in a forked child of the process that loaded the plugin.
    pub fn is_in(plugin: Plugin) -> Result<bool> {
        Table::of(plugin).map(|table| table.is_some())
    }

    /// Creates a profiler; `None` if the plugin has none. `options` is a serialized `tensorflow.ProfileOptions`; empty
    /// for the plugin's defaults.
    ///
    /// # Errors
    /// [`PjrtError::Call`] if the plugin refuses, [`PjrtError::Forked`] in a forked child.
    pub fn new(plugin: Plugin, options: &[u8]) -> Result<Option<Profiler>> {
        let Some(table) = Table::of(plugin)? else { return Ok(None) };
        const CALL: &str = "PLUGIN_Profiler_Create";
        let create = table.functions.create.ok_or_else(|| table.missing(CALL))?;
        let mut args = Create {
            struct_size: size_of::<Create>(),
            options: options.as_ptr().cast(),
            options_size: options.len(),
            profiler: ptr::null_mut(),
        };
        // SAFETY: the struct has the header's layout; `options` is valid during the call.
        table.check(CALL, unsafe { create(&mut args) })?;
        let raw = table.api.non_null(CALL, args.profiler)?;
        Ok(Some(Profiler { raw, table }))
    }

    /// Begins to collect.
    ///
    /// # Errors
    /// [`PjrtError::Call`] with the plugin's reason, such as that another profiler collects.
    pub fn start(&mut self) -> Result<()> {
        self.method("PLUGIN_Profiler_Start", self.table.functions.start)
    }

    /// Stops to collect.
    ///
    /// # Errors
    /// [`PjrtError::Call`] with the plugin's reason.
    pub fn stop(&mut self) -> Result<()> {
        self.method("PLUGIN_Profiler_Stop", self.table.functions.stop)
    }

    /// Returns what was collected, as a serialized `tensorflow.profiler.XSpace`. Plugins append a zero byte to it. Call it
    /// once, after [`Profiler::stop`].
    ///
    /// # Errors
    /// [`PjrtError::Call`] with the plugin's reason.
    pub fn collect(&mut self) -> Result<Vec<u8>> {
        let mut args = CollectData {
            struct_size: size_of::<CollectData>(),
            profiler: self.raw.as_ptr(),
            buffer: ptr::null_mut(),
            buffer_size: 0,
        };
        self.collect_into(&mut args)?;
        if !args.buffer.is_null() {
            // SAFETY: without a buffer of the caller's, plugins return one that the profiler owns, of this size.
            return Ok(unsafe { slice(args.buffer, args.buffer_size) }.to_vec());
        }
        // The header's way: the first call gives the size, the second fills the caller's buffer.
        let mut bytes = vec![0; args.buffer_size];
        args.buffer = bytes.as_mut_ptr();
        if !bytes.is_empty() {
            self.collect_into(&mut args)?;
        }
        Ok(bytes)
    }

    fn collect_into(&self, args: &mut CollectData) -> Result<()> {
        const CALL: &str = "PLUGIN_Profiler_CollectData";
        let collect = self.table.functions.collect_data.ok_or_else(|| self.table.missing(CALL))?;
        self.table.api.check_process(CALL)?;
        // SAFETY: the profiler is live; `buffer` is null or has `buffer_size` bytes.
        self.table.check(CALL, unsafe { collect(args) })
    }

    fn method(&self, call: &'static str, method: Method) -> Result<()> {
        let method = method.ok_or_else(|| self.table.missing(call))?;
        self.table.api.check_process(call)?;
        let mut args = OfProfiler { struct_size: size_of::<OfProfiler>(), profiler: self.raw.as_ptr() };
        // SAFETY: the profiler is live, since only `drop` frees it.
        self.table.check(call, unsafe { method(&mut args) })
    }
}

impl Drop for Profiler {
    fn drop(&mut self) {
        log_failed_drop(self.method("PLUGIN_Profiler_Destroy", self.table.functions.destroy));
    }
}

impl Table {
    /// Returns the plugin's table, if it has a whole one.
    fn of(plugin: Plugin) -> Result<Option<Table>> {
        let api = plugin.api();
        let Some(extension) = api.extension(PJRT_Extension_Type_Profiler, size_of::<ProfilerExtension>())? else {
            return Ok(None);
        };
        // SAFETY: the extension's type says that it has this layout, and its size was checked.
        let extension = unsafe { extension.cast::<ProfilerExtension>().as_ref() };
        // SAFETY: the header lets the pointer be null; else it is a table that lives as long as the plugin.
        let functions: Option<&'static ProfilerApi> = unsafe { extension.profiler_api.as_ref() };
        // A table that ends earlier would be read past its end.
        let whole = functions.filter(|functions| functions.struct_size >= size_of::<ProfilerApi>());
        Ok(whole.map(|functions| Table { functions, api }))
    }

    fn missing(&self, call: &'static str) -> PjrtError {
        PjrtError::CallMissing { path: self.api.path(), version: self.api.version(), call }
    }

    /// Converts and frees the error that a function returned, if it is one.
    fn check(&self, call: &'static str, error: *mut RawError) -> Result<()> {
        if error.is_null() {
            return Ok(());
        }
        let (code, message) = (self.code(error), self.message(error));
        if let Some(destroy) = self.functions.error_destroy {
            let mut args = ErrorDestroy { struct_size: size_of::<ErrorDestroy>(), private: ptr::null_mut(), error };
            // SAFETY: the error is owned here and not used afterwards.
            unsafe { destroy(&mut args) };
        }
        Err(PjrtError::Call { path: self.api.path(), call, code, message })
    }

    fn code(&self, error: *mut RawError) -> Code {
        let Some(get_code) = self.functions.error_get_code else { return Code::Unknown };
        let mut args = ErrorGetCode { struct_size: ErrorGetCode::SIZE, private: ptr::null_mut(), error, code: 2 };
        // SAFETY: the error is live. An error about reading an error (plugins return none) is dropped, not followed.
        unsafe { get_code(&mut args) };
        Code::from_raw(args.code.cast_unsigned())
    }

    fn message(&self, error: *mut RawError) -> String {
        let Some(get_message) = self.functions.error_message else { return "no message".into() };
        let mut args = ErrorMessage {
            struct_size: size_of::<ErrorMessage>(),
            private: ptr::null_mut(),
            error,
            message: ptr::null(),
            message_size: 0,
        };
        // SAFETY: the error is live.
        unsafe { get_message(&mut args) };
        // SAFETY: the message lives as long as the error and is copied here.
        unsafe { string(args.message, args.message_size) }
    }
}
