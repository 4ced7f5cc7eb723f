//! Executables: compiled programs, loaded or not, and their properties (header: "Executables").

use std::collections::HashMap;
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

/// A compiled program. It cannot run by itself: [`LoadedExecutable`](crate::LoadedExecutable) can.
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

/// The client or topology that compiled it; kept alive.
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

// SAFETY: a compiled program is immutable after its creation; the plugin's caches that the queries here fill are part
// of PJRT's thread-safe C++ objects.
unsafe impl Send for Handle {}
// SAFETY: as for `Send`.
unsafe impl Sync for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        let mut args = PJRT_Executable_Destroy_Args::new();
        args.executable = self.raw.as_ptr();
        // SAFETY: the executable is live, owned here, and not used after this.
        log_failed_drop(unsafe { self.parent.plugin().api().call(&mut args) });
    }
}

/// The compiler's estimate of a program's memory use, in bytes (XLA: `CompiledMemoryStats`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompiledMemoryStats {
    /// Machine code on the device; 0 on the CPU plugin.
    pub code_bytes: i64,
    /// Arguments.
    pub argument_bytes: i64,
    /// Outputs, including those that reuse an argument's memory.
    pub output_bytes: i64,
    /// Outputs that reuse a donated argument's memory.
    pub alias_bytes: i64,
    /// Scratch memory.
    pub temporary_bytes: i64,
    /// The most in use at once; without scratch memory on the CPU plugin.
    pub peak_bytes: i64,
    /// Arguments in host memory.
    pub host_argument_bytes: i64,
    /// Outputs in host memory.
    pub host_output_bytes: i64,
    /// Outputs in host memory that reuse a donated argument's.
    pub host_alias_bytes: i64,
    /// Scratch memory on the host.
    pub host_temporary_bytes: i64,
}

/// A program after the compiler's passes ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptimizedProgram {
    /// The format of `code`; every plugin so far reports `hlo_with_config`.
    pub format: String,
    /// The program, as a protobuf message in that format.
    pub code: Vec<u8>,
}

impl Executable {
    /// # Safety
    /// `raw` is an executable of `parent`'s plugin, and the caller passes its ownership.
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

    /// Returns the module's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the number of replicas that run in one launch.
    pub fn replicas(&self) -> usize {
        self.replicas
    }

    /// Returns the number of devices that each replica is split over.
    pub fn partitions(&self) -> usize {
        self.partitions
    }

    /// Returns whether each call names the device to run on.
    pub fn is_portable(&self) -> bool {
        self.portable
    }

    /// Returns the specs of one device's arguments.
    pub fn parameters(&self) -> &[Arc<TensorSpec>] {
        &self.parameters
    }

    /// Returns the specs of one device's outputs.
    pub fn outputs(&self) -> &[Arc<TensorSpec>] {
        &self.outputs
    }

    /// Returns a fingerprint of the compilation's inputs: bytes of any value and length.
    ///
    /// # Errors
    /// [`PjrtError::Call`] if the plugin has no fingerprint.
    pub fn fingerprint(&self) -> Result<Vec<u8>> {
        let mut args = PJRT_Executable_Fingerprint_Args::new();
        args.executable = self.raw();
        // SAFETY: the executable is live.
        unsafe { self.api().call(&mut args) }?;
        let (data, size) = (args.executable_fingerprint.cast::<u8>(), args.executable_fingerprint_size);
        // SAFETY: the bytes live as long as the executable and are copied here.
        Ok(unsafe { slice(data, size) }.to_vec())
    }

    /// Returns the compiler's cost estimates: `flops`, `bytes accessed`, on TPUs `optimal_seconds` (which libtpu lowers
    /// by 1 for some custom calls, so that it can be negative).
    ///
    /// # Errors
    /// [`PjrtError::Call`] if the plugin has no cost estimate.
    pub fn cost_analysis(&self) -> Result<Attributes> {
        let mut args = PJRT_Executable_GetCostAnalysis_Args::new();
        args.executable = self.raw();
        // SAFETY: the executable is live.
        unsafe { self.api().call(&mut args) }?;
        // SAFETY: the properties live as long as the executable and are copied here.
        Ok(unsafe { Attributes::copy(args.properties, args.num_properties) })
    }

    /// Returns the compiler's estimate of the memory use.
    ///
    /// # Errors
    /// [`PjrtError::Call`] if the plugin has no estimate.
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
            host_alias_bytes: args.host_alias_size_in_bytes,
            host_temporary_bytes: args.host_temp_size_in_bytes,
        })
    }

    /// Returns the size of the machine code in bytes; 0 on the CPU plugin.
    ///
    /// # Errors
    /// [`PjrtError::Call`] if the plugin does not know it.
    pub fn code_size(&self) -> Result<i64> {
        let mut args = PJRT_Executable_SizeOfGeneratedCodeInBytes_Args::new();
        args.executable = self.raw();
        // SAFETY: the executable is live.
        unsafe { self.api().call(&mut args) }?;
        Ok(args.size_in_bytes)
    }

    /// Returns the program after the compiler's passes.
    ///
    /// # Errors
    /// [`PjrtError::Call`] if the plugin does not support it.
    pub fn optimized_program(&self) -> Result<OptimizedProgram> {
        let mut program = PJRT_Program::new();
        let mut args = PJRT_Executable_OptimizedProgram_Args::new();
        args.executable = self.raw();
        args.program = &mut program;
        // SAFETY: the executable is live; with a null `code` the plugin returns only the size.
        unsafe { self.api().call(&mut args) }?;
        let mut code = vec![0u8; program.code_size];
        program.code = code.as_mut_ptr().cast();
        args.program = &mut program;
        // SAFETY: `code` has the size that the first call returned.
        unsafe { self.api().call(&mut args) }?;
        code.truncate(program.code_size);
        // SAFETY: the plugin owns the format's text, which lives at least as long as the executable.
        let format = unsafe { string(program.format, program.format_size) };
        Ok(OptimizedProgram { format, code })
    }

    /// Returns bytes for [`Client::load_serialized`]: the plugin's bytes in a container with a checksum and the
    /// parameters.
    ///
    /// They hold machine code: a cache key must contain the plugin, the platform's version and, on the CPU, the
    /// processor.
    ///
    /// # Errors
    /// [`PjrtError::Call`] if the plugin does not support serialization.
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
            // SAFETY: the header requires exactly one call; the bytes have been copied.
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

    /// Reads all properties that the hot path needs, once.
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
        self.share_equal_specs();
        Ok(())
    }

    /// Makes equal specs one: the results of a training step are its next arguments, and an execution compares addresses
    /// first.
    fn share_equal_specs(&mut self) {
        let mut known = HashMap::new();
        let mut shared = |spec: &Arc<TensorSpec>| Arc::clone(known.entry(Arc::clone(spec)).or_insert(Arc::clone(spec)));
        self.parameters = self.parameters.iter().map(&mut shared).collect();
        self.outputs = self.outputs.iter().map(&mut shared).collect();
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

    /// Returns the length of the list that an execution fills: with a wrong length the plugin would write out of
    /// bounds.
    fn read_output_count(&self) -> Result<usize> {
        let mut args = PJRT_Executable_NumOutputs_Args::new();
        args.executable = self.raw();
        // SAFETY: the executable is live.
        unsafe { self.api().call(&mut args) }?;
        Ok(args.num_outputs)
    }
}

/// Converts the C API's element type and dimensions to a spec.
pub(crate) fn spec_from_raw(call: &'static str, raw: PJRT_Buffer_Type, dims: &[i64]) -> Result<TensorSpec> {
    let element_type = ElementType::from_raw(raw).ok_or(PjrtError::ElementType { call, raw })?;
    TensorSpec::from_raw(element_type, dims)
}
