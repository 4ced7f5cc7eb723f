//! The PJRT engine: lowers programs to StableHLO, compiles them with a plugin and runs them on one of its devices.

mod compile_environment;
mod compiler;
mod in_flight;
mod mesh;
mod scalars;
mod value;

pub(super) use compile_environment::notes;
#[cfg(feature = "testing")]
pub use compiler::CPU_COMPILER_FLAGS;
pub(super) use compiler::compiler_flags;
pub(crate) use compiler::dump_program;
pub(crate) use mesh::open_mesh;
#[cfg(feature = "testing")]
pub(crate) use mesh::replicas_agree;

use super::deferred::DeferredEngine;
use super::{
    Arguments, Engine, Executable, Execution, HostBytes, SharedBuffer, argument, clients, downcast, downcast_arc,
    take_argument,
};
use crate::TpuOptions;
use crate::activity::RunningProgram;
use crate::error::{Result, TpuError};
use crate::memory::PluginMemory;
use crate::metrics::Counters;
use crate::profile;
use burn_tpu_graph::op::MemorySpace;
use burn_tpu_graph::{Argument, DType, Op, Program, Sharding, TensorType};
use burn_tpu_pjrt::{
    Buffer, Client, CompileOptions, Device, ElementType, Event, ExecuteOptions, HostUse, MemoryStats, Plugin,
    TensorSpec,
};
use compiler::{Compiler, Loaded, ResultSite};
use in_flight::{InFlight, Running};
use std::sync::Arc;
use std::time::Instant;
use value::DeviceValue;

/// The maximum number of dispatched programs that may be unfinished. The CPU plugin blocks at the same number.
const MOST_IN_FLIGHT: usize = 32;

/// Smaller tensors are copied during the call, which is faster than tracking when the plugin no longer needs them.
const OWNED_UPLOAD_BYTES: usize = 16 << 10;

/// One device of a plugin's client.
struct PjrtEngine {
    device: Device,
    is_tpu: bool,
    compiler: Compiler,
    in_flight: Arc<InFlight>,
}

/// Returns the engine of a device of its platform's client. On the CPU plugin it is opened when it is needed, if programs
/// may run in the interpreter.
///
/// # Errors
/// The same as [`clients::client`], and [`TpuError::Unavailable`] for an index that the client does not have.
pub(crate) fn open(device: crate::Device, options: &TpuOptions, counters: &Arc<Counters>) -> Result<Arc<dyn Engine>> {
    let client = clients::reserve(device, options)?;
    let interprets = options.interpreted_nodes().is_some();
    if !(interprets && client.may_wait() && device.index() == 0) {
        return open_now(device, options, counters);
    }
    let description = format!("{}, not loaded yet", client.plugin().display());
    let (options, counters) = (options.clone(), Arc::clone(counters));
    let open = move || Ok(Arc::new(PjrtEngine::new(device, client.client()?, &options, &counters)?) as Arc<dyn Engine>);
    Ok(Arc::new(DeferredEngine::new(device, description, open)))
}

fn open_now(device: crate::Device, options: &TpuOptions, counters: &Arc<Counters>) -> Result<Arc<dyn Engine>> {
    Ok(Arc::new(PjrtEngine::new(device, &clients::client(device, options)?, options, counters)?))
}

impl PjrtEngine {
    /// Returns the engine of a device of a client.
    fn new(device: crate::Device, client: &Client, options: &TpuOptions, counters: &Arc<Counters>) -> Result<Self> {
        let index = usize::from(device.index());
        let unavailable = |reason: String| TpuError::Unavailable {
            device: device.to_string(),
            reason,
            fix: "use a smaller index; on the CPU plugin raise TpuOptions::cpu_devices or BURN_TPU_CPU_DEVICES",
        };
        if index >= client.device_count() {
            return Err(unavailable(format!("{} has {} devices", client.platform_name(), client.device_count())));
        }
        let handle = client.device(index).map_err(|error| unavailable(error.to_string()))?;
        let on_device = CompileOptions::default().device_assignment(vec![vec![handle.id()]]);
        let is_tpu = device.platform() == crate::Platform::Tpu;
        let compiler = Compiler::new(client, device.platform(), on_device, options, counters);
        let compiler = if is_tpu { compiler.tuned(options) } else { compiler };
        Ok(Self { is_tpu, compiler, device: handle, in_flight: InFlight::new(MOST_IN_FLIGHT) })
    }
}

impl Engine for PjrtEngine {
    fn describe(&self) -> String {
        let client = self.device.client();
        format!("{} device {} ({})", client.platform_name(), self.device.id(), client.plugin().path().display())
    }

    fn upload(&self, ty: &TensorType, bytes: HostBytes, _: Option<&Sharding>) -> Result<SharedBuffer> {
        let memory = self.compiler.memory();
        memory.check(&"a value from the host", ty.bytes() as u64).map_err(TpuError::OutOfMemory)?;
        let buffer = upload(&self.device, spec(ty)?, bytes)?;
        Ok(Arc::new(DeviceValue::new(buffer, MemorySpace::Device, &memory.upload(ty.clone()))))
    }

    fn download(&self, buffer: &SharedBuffer) -> Result<Vec<u8>> {
        self.in_flight.free_finished();
        let buffer: &DeviceValue = downcast(buffer)?;
        buffer.to_host().map_err(TpuError::pjrt("reading a tensor"))
    }

    /// Every op of the op table has a lowering. The compositions in `ops` avoid what a plugin rejects, such as a 64-bit
    /// integer dot on TPUs.
    fn lowers(&self, _op: &Op) -> bool {
        true
    }

    fn takes_tpu_kernels(&self) -> bool {
        self.is_tpu
    }

    fn transfers_values(&self) -> bool {
        true
    }

    fn has_host_memory(&self) -> bool {
        has_host_memory(&self.device)
    }

    fn compile(&self, program: &Program) -> Result<Box<dyn Executable>> {
        let loaded = self.compiler.compile(program)?;
        let (device, in_flight) = (self.device.clone(), Arc::clone(&self.in_flight));
        Ok(Box::new(PjrtProgram { loaded, device, in_flight }))
    }

    fn wait_for(&self, buffer: &SharedBuffer) -> Result<()> {
        let buffer: &DeviceValue = downcast(buffer)?;
        wait_for(buffer);
        Ok(())
    }

    fn memory(&self) -> Option<PluginMemory> {
        plugin_memory(std::slice::from_ref(&self.device))
    }

    fn plugin(&self) -> Option<Plugin> {
        Some(self.device.client().plugin())
    }

    fn wait(&self) -> Result<()> {
        self.in_flight.wait()
    }

    fn in_flight(&self) -> Vec<RunningProgram> {
        self.in_flight.running()
    }
}

/// Returns what a plugin says of the memory of devices; `None` if it says nothing.
fn plugin_memory(devices: &[Device]) -> Option<PluginMemory> {
    let stats: Vec<_> = devices.iter().map(|device| device.memory_stats().ok()).collect::<Option<_>>()?;
    let sum = |of: fn(&MemoryStats) -> Option<i64>| -> Option<u64> {
        stats.iter().map(|stats| of(stats).and_then(|bytes| u64::try_from(bytes).ok())).sum()
    };
    Some(PluginMemory {
        in_use: sum(|stats| Some(stats.in_use_bytes))?,
        peak: sum(|stats| stats.peak_in_use_bytes),
        limit: sum(|stats| stats.limit_bytes),
    })
}

/// Waits until a value has been computed or has failed.
fn wait_for(buffer: &Buffer) {
    let waited = buffer.ready().and_then(|ready| ready.wait());
    waited.unwrap_or_else(|error| tracing::debug!(%error, "a value failed; its reader reports it"));
}

/// Returns an event of each device for the end of a program: that of its first result.
fn ends(outputs: &[Vec<Buffer>]) -> impl Iterator<Item = Event> {
    outputs.iter().filter_map(|results| results.first()?.ready().ok())
}

/// Returns whether a device's programs can have values in the host's memory.
fn has_host_memory(device: &Device) -> bool {
    device.memories().iter().any(|memory| memory.kind == MemorySpace::PinnedHost.name())
}

/// Copies a value to a device.
fn upload(device: &Device, spec: Arc<TensorSpec>, bytes: HostBytes) -> Result<Buffer> {
    let context = TpuError::pjrt(format!("uploading {spec}"));
    let buffer = if spec.byte_len() < OWNED_UPLOAD_BYTES {
        Buffer::from_host(device, spec, bytes.as_ref())
    } else {
        Buffer::from_host_owned(device, spec, bytes, HostUse::UntilTransferred)
    };
    buffer.map_err(context)
}

/// A compiled program.
struct PjrtProgram {
    loaded: Loaded,
    device: Device,
    in_flight: Arc<InFlight>,
}

impl Executable for PjrtProgram {
    fn execute(&self, arguments: &mut Arguments, slots: &[u64]) -> Result<Execution> {
        let scalars = self.loaded.scalars.on(std::slice::from_ref(&self.device), &self.loaded.arguments, slots)?;
        let mut scalars = scalars.iter().flatten();
        let moved = self.loaded.moved(arguments, |shared, memory| {
            let value: &DeviceValue = downcast(shared)?;
            if value.memory() == memory { Ok(Vec::new()) } else { Ok(vec![value.copied_to(memory)?]) }
        })?;
        let (mut kept, mut donated) = (Vec::new(), Vec::with_capacity(self.loaded.arguments.len()));
        let mut execution = Execution { footprint: self.loaded.footprint, ..Execution::default() };
        let mut inputs: Vec<&Buffer> = Vec::with_capacity(self.loaded.arguments.len());
        for (position, (recipe, spec)) in self.loaded.arguments.iter().enumerate() {
            let Argument::Parameter { index, result, .. } = recipe else {
                inputs.extend(scalars.next());
                continue;
            };
            let shared = argument(arguments, *index)?;
            if Arc::strong_count(shared) > 1 {
                kept.push(position as i64);
            } else if let Some(result) = result {
                execution.donated_buffers += 1;
                execution.donated_bytes += spec.byte_len();
                donated.push((*index, *result));
            }
            let value: &DeviceValue = downcast(shared)?;
            inputs.push(moved.get(&position).map_or(value, |copies| &copies[0]));
        }
        self.loaded.check_room(execution.donated_bytes, 1)?;
        let options = ExecuteOptions { non_donatable: &kept, events: true, ..ExecuteOptions::default() };
        let profile = profile::active().map(|profile| (profile.now(), profile));
        let done = self.loaded.executable.execute(&[&inputs], &options);
        let mut done = done.map_err(TpuError::pjrt("running a program"))?;
        if let Some((begin, profile)) = profile {
            profile.dispatched(&self.loaded.ops, begin, ends(&done.outputs));
        }
        let mut empty: Vec<Option<Arc<DeviceValue>>> = vec![None; self.loaded.results.len()];
        for (index, result) in donated {
            empty[result] = Some(downcast_arc(take_argument(arguments, index)?)?);
        }
        let (outputs, emptied) = share(done.outputs.pop().unwrap_or_default(), &self.loaded.results, empty);
        self.loaded.memory.ran(self.loaded.footprint.temporaries as u64);
        let program = Arc::clone(&self.loaded.description);
        self.in_flight.push(Running { program, begun: Instant::now(), done: done.events, _donated: Box::new(emptied) });
        execution.outputs = outputs;
        Ok(execution)
    }

    fn size_bytes(&self) -> u64 {
        self.loaded.size_bytes
    }

    fn is_from_disk(&self) -> bool {
        self.loaded.from_disk
    }
}

/// Returns results as shared buffers, each in the allocation of the donated argument whose memory it took, and the donated
/// buffers. A step has hundreds of each, and an allocation costs as much as the plugin needs for a buffer.
fn share(
    results: Vec<Buffer>,
    sites: &[ResultSite],
    empty: Vec<Option<Arc<DeviceValue>>>,
) -> (Vec<SharedBuffer>, Vec<Buffer>) {
    let mut emptied = Vec::with_capacity(empty.len());
    let share = |((result, at), empty): ((Buffer, &ResultSite), Option<Arc<DeviceValue>>)| -> SharedBuffer {
        let ResultSite { memory, site } = at;
        let Some(mut shared) = empty else { return Arc::new(DeviceValue::new(result, *memory, site)) };
        match Arc::get_mut(&mut shared) {
            Some(value) => emptied.push(value.replace(result, *memory, site)),
            None => return Arc::new(DeviceValue::new(result, *memory, site)),
        }
        shared
    };
    let shared = results.into_iter().zip(sites).zip(empty).map(share).collect();
    (shared, emptied)
}

pub(super) fn spec(ty: &TensorType) -> Result<Arc<TensorSpec>> {
    let spec = TensorSpec::new(element_type(ty.dtype)?, &ty.dims);
    spec.map(Arc::new).map_err(TpuError::pjrt(format!("describing {ty}")))
}

fn element_type(dtype: DType) -> Result<ElementType> {
    Ok(match dtype {
        DType::Bool => ElementType::Pred,
        DType::I8 => ElementType::S8,
        DType::I16 => ElementType::S16,
        DType::I32 => ElementType::S32,
        DType::I64 => ElementType::S64,
        DType::U8 => ElementType::U8,
        DType::U16 => ElementType::U16,
        DType::U32 => ElementType::U32,
        DType::U64 => ElementType::U64,
        DType::BF16 => ElementType::BF16,
        DType::F16 => ElementType::F16,
        DType::F32 => ElementType::F32,
        DType::F64 => ElementType::F64,
        DType::C64 => return Err(TpuError::Bug("a complex value cannot be an argument or result of a program".into())),
    })
}
