//! Loaded executables: compiles programs for a client and loads serialized ones. `execute` runs them.

use std::ptr::NonNull;
use std::sync::Arc;

use crate::abi::Struct;
use crate::api::{Api, log_failed_drop, slice};
use crate::bindings::*;
use crate::client::Client;
use crate::compile_options::CompileOptions;
use crate::device::Device;
use crate::error::{PjrtError, Result};
use crate::executable::{Executable, Parent};
use crate::live::{Alive, Noun};
use crate::process::WorkGuard;
use crate::program::Program;
use crate::serialized;
use crate::tensor_spec::TensorSpec;

/// A program that is ready to run on a client's devices.
#[derive(Debug)]
pub struct LoadedExecutable {
    handle: Handle,
    executable: Executable,
    /// Indices among the client's devices, in launch order; empty for a portable program.
    devices: Vec<usize>,
}

#[derive(Debug)]
struct Handle {
    raw: NonNull<PJRT_LoadedExecutable>,
    client: Client,
    _alive: Alive,
}

// SAFETY: PJRT's C++ loaded executables are documented as thread-safe, concurrent executions included.
unsafe impl Send for Handle {}
// SAFETY: as for `Send`.
unsafe impl Sync for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        let mut args = PJRT_LoadedExecutable_Destroy_Args::new();
        args.executable = self.raw.as_ptr();
        // SAFETY: the executable is live, owned here, and not used after this; executions in progress keep what they need.
        log_failed_drop(unsafe { self.client.api().call(&mut args) });
    }
}

impl Client {
    /// Compiles a program for this client's devices.
    ///
    /// # Errors
    /// [`PjrtError::CompileOptions`] for options that no plugin may receive, otherwise [`PjrtError::Call`] with the
    /// compiler's own text (with line and column for text that does not parse).
    pub fn compile(&self, program: &Program, options: &CompileOptions) -> Result<LoadedExecutable> {
        let _span = tracing::info_span!("pjrt.compile", text_bytes = program.text().len()).entered();
        let ids: Vec<i32> = self.all_devices().map(|device| device.id).collect();
        let options_bytes = options.encode_for(&ids)?;
        let _guard = WorkGuard::new()?;
        let raw_program = raw_program(program);
        let mut args = PJRT_Client_Compile_Args::new();
        args.client = self.raw();
        args.program = &raw_program;
        args.compile_options = options_bytes.as_ptr().cast();
        args.compile_options_size = options_bytes.len();
        // SAFETY: client, program and options are borrowed for the call; text and options have been checked for contents
        // that would abort the process.
        unsafe { self.api().call(&mut args) }?;
        let raw = self.api().non_null("PJRT_Client_Compile", args.executable)?;
        // SAFETY: the caller owns the returned executable.
        unsafe { LoadedExecutable::new(raw, self.clone(), program.parameters().clone(), options.is_portable()) }
    }

    /// Loads the bytes that [`Executable::serialize`] returned.
    ///
    /// # Errors
    /// [`PjrtError::Serialized`] for damaged bytes (they never reach a plugin, which usually loads one with a flipped bit
    /// without an error), for bytes of another plugin or processor, or for more devices than the client has; otherwise
    /// [`PjrtError::Call`].
    pub fn load_serialized(&self, bytes: &[u8]) -> Result<LoadedExecutable> {
        let _span = tracing::info_span!("pjrt.load_serialized", bytes = bytes.len()).entered();
        let refuse = |reason| PjrtError::Serialized { reason };
        let contents = serialized::unpack(bytes).map_err(refuse)?;
        serialized::check_producer(&contents, self).map_err(refuse)?;
        let _guard = WorkGuard::new()?;
        let mut args = PJRT_Executable_DeserializeAndLoad_Args::new();
        args.client = self.raw();
        args.serialized_executable = contents.payload.as_ptr().cast();
        args.serialized_executable_size = contents.payload.len();
        // SAFETY: client and bytes are borrowed for the call; the checksum shows that a plugin of this kind wrote them.
        unsafe { self.api().call(&mut args) }?;
        let raw = self.api().non_null("PJRT_Executable_DeserializeAndLoad", args.loaded_executable)?;
        // SAFETY: the caller owns the returned executable.
        unsafe { LoadedExecutable::new(raw, self.clone(), contents.parameters, contents.portable) }
    }
}

impl LoadedExecutable {
    /// # Safety
    /// `raw` is a loaded executable of `client`, and the caller passes its ownership.
    unsafe fn new(
        raw: NonNull<PJRT_LoadedExecutable>,
        client: Client,
        parameters: Arc<[Arc<TensorSpec>]>,
        portable: bool,
    ) -> Result<LoadedExecutable> {
        let handle = Handle { raw, client: client.clone(), _alive: Alive::new(Noun::LoadedExecutable) };
        let api = client.api();
        let mut args = PJRT_LoadedExecutable_GetExecutable_Args::new();
        args.loaded_executable = raw.as_ptr();
        // SAFETY: the loaded executable is live.
        unsafe { api.call(&mut args) }?;
        let executable = api.non_null("PJRT_LoadedExecutable_GetExecutable", args.executable)?;
        let parent = Parent::Client(client.clone());
        // SAFETY: the caller owns the returned executable.
        let executable = unsafe { Executable::new(executable, parent, parameters, portable) }?;
        let mut devices = PJRT_LoadedExecutable_AddressableDevices_Args::new();
        devices.executable = raw.as_ptr();
        // SAFETY: the loaded executable is live.
        unsafe { api.call(&mut devices) }?;
        // SAFETY: the list lives as long as the loaded executable.
        let listed = unsafe { slice(devices.addressable_devices, devices.num_addressable_devices) };
        let found: Option<Vec<usize>> = listed.iter().map(|&device| client.index_of(device)).collect();
        let call = "PJRT_LoadedExecutable_AddressableDevices";
        let devices = found.ok_or_else(|| api.broken(call, "it names a device that the client does not have"))?;
        tracing::debug!(name = executable.name(), outputs = executable.outputs().len(), "executable loaded");
        Ok(LoadedExecutable { handle, executable, devices })
    }

    /// Returns the compiled program: its shapes, cost and memory, and its serialization.
    pub fn executable(&self) -> &Executable {
        &self.executable
    }

    /// Returns the client that runs it.
    pub fn client(&self) -> &Client {
        &self.handle.client
    }

    /// Returns the devices of one launch, in the order of arguments and outputs; empty for a portable program.
    pub fn devices(&self) -> Vec<Device> {
        self.devices.iter().map(|&index| Device::new(self.handle.client.clone(), index)).collect()
    }

    pub(crate) fn device_indices(&self) -> &[usize] {
        &self.devices
    }

    pub(crate) fn raw(&self) -> *mut PJRT_LoadedExecutable {
        self.handle.raw.as_ptr()
    }

    pub(crate) fn api(&self) -> Api {
        self.handle.client.api()
    }
}

/// Returns the C form of a program; it borrows the text. Text and MLIR bytecode share one format name.
pub(crate) fn raw_program(program: &Program) -> PJRT_Program {
    const FORMAT: &str = "mlir";
    let mut raw = PJRT_Program::new();
    // The field is mutable because other functions write through it; compiling only reads it.
    raw.code = program.text().as_ptr().cast_mut().cast();
    raw.code_size = program.text().len();
    raw.format = FORMAT.as_ptr().cast();
    raw.format_size = FORMAT.len();
    raw
}
