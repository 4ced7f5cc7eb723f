//! Executables: compiled programs, loaded or not, and what can be learned of them (header: "Executables").

use std::ptr::NonNull;
use std::sync::Arc;

use crate::abi::Struct;
use crate::api::{Api, log_failed_drop, slice, string};
use crate::bindings::*;
use crate::client::Client;
use crate::element_type::ElementType;
use crate::error::{PjrtError, Result};
use crate::live::{Alive, Noun};
use crate::named_value::Attributes;
use crate::plugin::Plugin;
use crate::serialized::{self, Contents};
use crate::tensor_spec::TensorSpec;
use crate::topology::TopologyDescription;

/// A compiled program. On its own it cannot run: [`LoadedExecutable`](crate::LoadedExecutable) can.
#[derive(Debug)]
pub struct Executable {
    handle: Handle,
    name: String,
    replicas: usize,
    partitions: usize,
    portable: bool,
    parameters: Arc<[Arc<TensorSpec>]>,
    outputs: Vec<Arc<TensorSpec>>,
}

/// Whose compiler made it; kept alive.
#[derive(Debug)]
pub(crate) enum Parent {
    Client(Client),
    Topology(TopologyDescription),
}

impl Parent {
    fn plugin(&self) -> Plugin {
        match self {
            Parent::Client(client) => client.plugin(),
            Parent::Topology(topology) => topology.plugin(),
        }
    }

    fn platform_name(&self) -> &str {
        match self {
            Parent::Client(client) => client.platform_name(),
            Parent::Topology(topology) => topology.platform_name(),
        }
    }
}

#[derive(Debug)]
struct Handle {
    raw: NonNull<PJRT_Executable>,
    parent: Parent,
    _alive: Alive,
}

// SAFETY: a compiled program is immutable after its creation; the plugin's caches behind the questions asked here are
// part of PJRT's thread-safe C++ objects.
unsafe impl Send for Handle {}
// SAFETY: as for `Send`.
unsafe impl Sync for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        let mut args = PJRT_Executable_Destroy_Args::new();
        args.executable = self.raw.as_ptr();
        // SAFETY: the executable is live, owned by us, and not used after this.
        log_failed_drop(unsafe { self.parent.plugin().api().call(&mut args) });
    }
}

/// What the compiler estimates of a program's memory, in bytes (XLA: `CompiledMemoryStats`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompiledMemoryStats {
    /// Machine code on the device; the CPU plugin says 0.
    pub code_bytes: i64,
    /// Arguments.
    pub argument_bytes: i64,
    /// Outputs, those that reuse an argument's memory included.
    pub output_bytes: i64,
    /// Outputs that reuse a donated argument's memory.
    pub alias_bytes: i64,
    /// Scratch memory.
    pub temporary_bytes: i64,
    /// The most in use at once; the CPU plugin leaves scratch memory out.
    pub peak_bytes: i64,
    /// Arguments in host memory.
    pub host_argument_bytes: i64,
    /// Outputs in host memory.
    pub host_output_bytes: i64,
    /// Scratch memory on the host.
    pub host_temporary_bytes: i64,
}

/// A program after the compiler's passes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptimizedProgram {
    /// What the bytes are; every plugin so far says `hlo_with_config`.
    pub format: String,
    /// A protobuf message of that format.
    pub code: Vec<u8>,
}

impl Executable {
    /// # Safety
    /// `raw` is an executable of `parent`'s plugin that the caller owns and gives away.
    pub(crate) unsafe fn new(
        raw: NonNull<PJRT_Executable>,
        parent: Parent,
        parameters: Arc<[Arc<TensorSpec>]>,
        portable: bool,
    ) -> Result<Executable> {
        let handle = Handle { raw, parent, _alive: Alive::new(Noun::Executable) };
        let mut executable = Executable {
            handle,
            name: String::new(),
            replicas: 0,
            partitions: 0,
            portable,
            parameters,
            outputs: Vec::new(),
        };
        executable.describe()?;
        Ok(executable)
    }

    /// The module's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How often it runs side by side in one launch.
    pub fn replicas(&self) -> usize {
        self.replicas
    }

    /// Over how many devices each replica is split.
    pub fn partitions(&self) -> usize {
        self.partitions
    }

    /// Whether each call names the device to run on.
    pub fn is_portable(&self) -> bool {
        self.portable
    }

    /// What each device must be given.
    pub fn parameters(&self) -> &[Arc<TensorSpec>] {
        &self.parameters
    }

    /// What each device returns.
    pub fn outputs(&self) -> &[Arc<TensorSpec>] {
        &self.outputs
    }

    /// A fingerprint of the compilation's inputs: any bytes, of any length.
    ///
    /// # Errors
    /// [`PjrtError::Call`] if the plugin has none.
    pub fn fingerprint(&self) -> Result<Vec<u8>> {
        let mut args = PJRT_Executable_Fingerprint_Args::new();
        args.executable = self.raw();
        // SAFETY: the executable is live.
        unsafe { self.api().call(&mut args) }?;
        let (data, size) = (args.executable_fingerprint.cast::<u8>(), args.executable_fingerprint_size);
        // SAFETY: the bytes live as long as the executable and are copied here.
        Ok(unsafe { slice(data, size) }.to_vec())
    }

    /// What the compiler estimates it costs: `flops`, `bytes accessed`, on TPUs `optimal_seconds` (which libtpu lowers
    /// by 1 for some custom calls, so that it can be negative).
    ///
    /// # Errors
    /// [`PjrtError::Call`] if the plugin has none.
    pub fn cost_analysis(&self) -> Result<Attributes> {
        let mut args = PJRT_Executable_GetCostAnalysis_Args::new();
        args.executable = self.raw();
        // SAFETY: the executable is live.
        unsafe { self.api().call(&mut args) }?;
        // SAFETY: the properties live as long as the executable and are copied here.
        Ok(unsafe { Attributes::copy(args.properties, args.num_properties) })
    }

    /// What the compiler estimates of its memory.
    ///
    /// # Errors
    /// [`PjrtError::Call`] if the plugin has none.
    pub fn memory_stats(&self) -> Result<CompiledMemoryStats> {
        let mut args = PJRT_Executable_GetCompiledMemoryStats_Args::new();
        args.executable = self.raw();
        // SAFETY: the executable is live; the struct has the size of our header, which the plugin respects.
        unsafe { self.api().call(&mut args) }?;
        Ok(CompiledMemoryStats {
            code_bytes: args.generated_code_size_in_bytes,
            argument_bytes: args.argument_size_in_bytes,
            output_bytes: args.output_size_in_bytes,
            alias_bytes: args.alias_size_in_bytes,
            temporary_bytes: args.temp_size_in_bytes,
            peak_bytes: args.peak_memory_in_bytes,
            host_argument_bytes: args.host_argument_size_in_bytes,
            host_output_bytes: args.host_output_size_in_bytes,
            host_temporary_bytes: args.host_temp_size_in_bytes,
        })
    }

    /// The size of its machine code in bytes; the CPU plugin says 0.
    ///
    /// # Errors
    /// [`PjrtError::Call`] if the plugin cannot say.
    pub fn code_size(&self) -> Result<i64> {
        let mut args = PJRT_Executable_SizeOfGeneratedCodeInBytes_Args::new();
        args.executable = self.raw();
        // SAFETY: the executable is live.
        unsafe { self.api().call(&mut args) }?;
        Ok(args.size_in_bytes)
    }

    /// The program after the compiler's passes.
    ///
    /// # Errors
    /// [`PjrtError::Call`] if the plugin does not tell.
    pub fn optimized_program(&self) -> Result<OptimizedProgram> {
        let mut program = PJRT_Program::new();
        let mut args = PJRT_Executable_OptimizedProgram_Args::new();
        args.executable = self.raw();
        args.program = &mut program;
        // SAFETY: the executable is live; a null `code` asks for the size only.
        unsafe { self.api().call(&mut args) }?;
        let mut code = vec![0u8; program.code_size];
        program.code = code.as_mut_ptr().cast();
        args.program = &mut program;
        // SAFETY: `code` has the size that the first call asked for.
        unsafe { self.api().call(&mut args) }?;
        code.truncate(program.code_size);
        // SAFETY: the plugin owns the format's text, which lives at least as long as the executable.
        let format = unsafe { string(program.format, program.format_size) };
        Ok(OptimizedProgram { format, code })
    }

    /// Bytes for [`Client::load_serialized`]: the plugin's own, in a container with a checksum and the parameters.
    ///
    /// They hold machine code: a cache must be keyed by plugin, platform version and, on the CPU, by processor.
    ///
    /// # Errors
    /// [`PjrtError::Call`] if the plugin cannot serialize.
    pub fn serialize(&self) -> Result<Vec<u8>> {
        let mut args = PJRT_Executable_Serialize_Args::new();
        args.executable = self.raw();
        // SAFETY: the executable is live.
        unsafe { self.api().call(&mut args) }?;
        // SAFETY: the bytes live until the deleter below runs.
        let payload = unsafe { slice(args.serialized_bytes.cast::<u8>(), args.serialized_bytes_size) };
        let bytes = serialized::pack(&Contents {
            producer: serialized::producer(self.handle.parent.plugin(), self.handle.parent.platform_name()),
            portable: self.portable,
            launch_size: self.replicas * self.partitions,
            parameters: self.parameters.clone(),
            payload,
        });
        if let Some(delete) = args.serialized_executable_deleter {
            // SAFETY: the header asks for exactly one call; the bytes have been copied.
            unsafe { delete(args.serialized_executable) };
        }
        Ok(bytes)
    }

    fn raw(&self) -> *mut PJRT_Executable {
        self.handle.raw.as_ptr()
    }

    fn api(&self) -> Api {
        self.handle.parent.plugin().api()
    }

    /// Reads everything once that the hot path needs.
    fn describe(&mut self) -> Result<()> {
        let (api, raw) = (self.api(), self.raw());
        let mut name = PJRT_Executable_Name_Args::new();
        name.executable = raw;
        // SAFETY: the executable is live.
        unsafe { api.call(&mut name) }?;
        // SAFETY: the text lives as long as the executable and is copied here.
        self.name = unsafe { string(name.executable_name, name.executable_name_size) };
        let mut replicas = PJRT_Executable_NumReplicas_Args::new();
        replicas.executable = raw;
        // SAFETY: the executable is live.
        unsafe { api.call(&mut replicas) }?;
        let mut partitions = PJRT_Executable_NumPartitions_Args::new();
        partitions.executable = raw;
        // SAFETY: the executable is live.
        unsafe { api.call(&mut partitions) }?;
        (self.replicas, self.partitions) = (replicas.num_replicas, partitions.num_partitions);
        self.outputs = self.read_outputs()?;
        Ok(())
    }

    fn read_outputs(&self) -> Result<Vec<Arc<TensorSpec>>> {
        let (api, raw) = (self.api(), self.raw());
        let mut types = PJRT_Executable_OutputElementTypes_Args::new();
        types.executable = raw;
        // SAFETY: the executable is live.
        unsafe { api.call(&mut types) }?;
        let mut shapes = PJRT_Executable_OutputDimensions_Args::new();
        shapes.executable = raw;
        // SAFETY: the executable is live.
        unsafe { api.call(&mut shapes) }?;
        // SAFETY: the list lives as long as the executable, here and below.
        let types = unsafe { slice(types.output_types, types.num_output_types) };
        // SAFETY: as above; one rank per output.
        let ranks = unsafe { slice(shapes.dim_sizes, shapes.num_outputs) };
        // SAFETY: as above; all outputs' dimensions one after another.
        let mut dims = unsafe { slice(shapes.dims, ranks.iter().sum()) };
        if types.len() != ranks.len() || types.len() != self.read_output_count()? {
            return Err(api.broken("PJRT_Executable_OutputDimensions", "it disagrees with the number of outputs"));
        }
        let mut outputs = Vec::with_capacity(types.len());
        for (&raw_type, &rank) in types.iter().zip(ranks) {
            let (own, rest) = dims.split_at(rank);
            outputs.push(Arc::new(spec_from_raw("PJRT_Executable_OutputElementTypes", raw_type, own)?));
            dims = rest;
        }
        Ok(outputs)
    }

    /// The length of the list that an execution fills: a wrong one would overrun memory.
    fn read_output_count(&self) -> Result<usize> {
        let mut args = PJRT_Executable_NumOutputs_Args::new();
        args.executable = self.raw();
        // SAFETY: the executable is live.
        unsafe { self.api().call(&mut args) }?;
        Ok(args.num_outputs)
    }
}

/// A spec from the C API's own terms.
pub(crate) fn spec_from_raw(call: &'static str, raw: PJRT_Buffer_Type, dims: &[i64]) -> Result<TensorSpec> {
    let element_type = ElementType::from_raw(raw).ok_or(PjrtError::ElementType { call, raw })?;
    TensorSpec::from_raw(element_type, dims)
}
