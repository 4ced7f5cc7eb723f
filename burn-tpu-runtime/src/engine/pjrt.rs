//! The PJRT engine: lowers programs to StableHLO, compiles them with a plugin and runs them on one of its devices.

mod compile_environment;

use super::{
    Arguments, DeviceBuffer, Engine, Executable, Execution, Footprint, HostBytes, SharedBuffer, argument, clients,
    downcast, take_argument,
};
use crate::cache::DiskCache;
use crate::error::{Result, TpuError};
use crate::metrics::Counters;
use crate::{Platform, TpuOptions};
use burn_tpu_graph::{
    Argument, DType, Lowered, Op, Program, TensorType,
    lower::{lower, pack_slots},
};
use burn_tpu_pjrt::{
    Buffer, CompileOptions, Device, ElementType, Event, ExecuteOptions, HostUse, LoadedExecutable, TensorSpec,
};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

/// The maximum number of dispatched programs that may be unfinished. A further dispatch waits for the oldest one, so
/// that the host does not record steps whose results do not fit the device's memory. The CPU plugin blocks at the same
/// number.
const MOST_IN_FLIGHT: usize = 32;

/// Smaller tensors are copied during the call, which is faster than tracking when the plugin no longer needs them.
const OWNED_UPLOAD_BYTES: usize = 16 << 10;

/// The XLA options for the CPU compiler that apply unless the user sets them. If a result is aliased to an argument
/// that another instruction also reads, the compiler copies the argument, except if data dependencies alone order the
/// reader first. With this analysis the compiler schedules the reader first itself. An example is a weight that is also
/// read for its layer's input gradient (decision 8).
pub const CPU_COMPILER_FLAGS: [(&str, bool); 1] = [("xla_cpu_copy_insertion_use_region_analysis", true)];

/// The smallest loss of donated memory in bytes that is reported.
const LARGE_BYTES: usize = 1 << 20;

/// One device of a plugin's client.
struct PjrtEngine {
    device: Device,
    options: CompileOptions,
    dump: Option<std::path::PathBuf>,
    disk: Option<DiskCache>,
    /// Whether a result that is not aliased to its donated argument is an error.
    strict: bool,
    counters: Arc<Counters>,
    in_flight: Arc<InFlight>,
}

impl DeviceBuffer for Buffer {
    fn is_donated(&self) -> bool {
        self.is_deleted().unwrap_or(true)
    }

    #[cfg(feature = "testing")]
    fn is_computed(&self) -> bool {
        self.ready().and_then(|ready| ready.is_ready()).unwrap_or(true)
    }
}

/// A dispatched program.
struct Running {
    done: Event,
    /// The donated arguments. In PJRT's CPU client the drop of such a buffer waits for the program, which would keep
    /// the host from recording the next step.
    _donated: Vec<SharedBuffer>,
}

/// The dispatched programs that may be unfinished, oldest first.
#[derive(Default)]
struct InFlight {
    programs: Mutex<VecDeque<Arc<Running>>>,
}

impl InFlight {
    /// Adds a dispatched program, and waits for the oldest one if too many are unfinished. The results of that program
    /// report its error, if any; here it is only logged.
    fn push(&self, running: Running) {
        let mut programs = self.programs.lock();
        programs.push_back(Arc::new(running));
        let oldest = if programs.len() > MOST_IN_FLIGHT { programs.pop_front() } else { None };
        drop(programs);
        if let Some(Err(error)) = oldest.map(|program| program.done.wait()) {
            tracing::warn!(%error, "a program failed while running");
        }
    }

    /// Frees the arguments of finished programs, except for the newest. That takes time, so it is done where the host
    /// waits for the device anyway; the newest program's are left to the next wait, during which a program runs.
    fn free_finished(&self) {
        let finished = |program: &Arc<Running>| program.done.is_ready().unwrap_or(true);
        let mut programs = self.programs.lock();
        let older = programs.len().saturating_sub(1);
        let count = programs.iter().take(older).take_while(|program| finished(program)).count();
        let freed: Vec<_> = programs.drain(..count).collect();
        drop(programs);
        drop(freed);
    }

    /// Waits for everything that was dispatched before the call.
    fn wait(&self) -> Result<()> {
        self.free_finished();
        let running: Vec<Arc<Running>> = self.programs.lock().iter().cloned().collect();
        // Wait for all programs even if the first one failed, since none may still run afterwards.
        let ended: Vec<_> = running
            .iter()
            .map(|program| program.done.wait().map_err(TpuError::pjrt("waiting for a program")))
            .collect();
        // The error of a program is reported once.
        let failed = |program: &Arc<Running>| {
            running.iter().zip(&ended).any(|(waited, ended)| ended.is_err() && Arc::ptr_eq(waited, program))
        };
        self.programs.lock().retain(|program| !failed(program));
        drop(running);
        self.free_finished();
        ended.into_iter().collect()
    }
}

/// Opens a device of its platform's client.
///
/// # Errors
/// The same as [`clients::client`], and [`TpuError::Unavailable`] for an index that the client does not have.
pub(crate) fn open(device: crate::Device, options: &TpuOptions, counters: &Arc<Counters>) -> Result<Arc<dyn Engine>> {
    let client = clients::client(device, options)?;
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
    let compile_options = compile_options(&handle, device.platform(), options);
    let engine = PjrtEngine {
        disk: compile_environment::disk_cache(&client, &compile_options, options, counters),
        options: compile_options,
        device: handle,
        dump: options.dump.clone(),
        strict: options.strict,
        counters: Arc::clone(counters),
        in_flight: Arc::default(),
    };
    Ok(Arc::new(engine))
}

/// Returns the options for one replica on this device.
fn compile_options(device: &Device, platform: Platform, options: &TpuOptions) -> CompileOptions {
    let start = CompileOptions::default().device_assignment(vec![vec![device.id()]]);
    let flags: &[(&str, bool)] = if platform == Platform::Cpu { &CPU_COMPILER_FLAGS } else { &[] };
    compiler_flags(flags.iter().fold(start, |start, &(name, value)| start.set(name, value)), options)
}

/// Returns the options with the user's XLA options added.
pub(super) fn compiler_flags(start: CompileOptions, options: &TpuOptions) -> CompileOptions {
    options.compiler_flags.iter().fold(start, |o, (name, value)| match (value.as_str(), value.parse::<i64>()) {
        ("true" | "false", _) => o.set(name, value == "true"),
        (_, Ok(number)) => o.set(name, number),
        _ => o.set(name, value.as_str()),
    })
}

impl Engine for PjrtEngine {
    fn describe(&self) -> String {
        let client = self.device.client();
        format!("{} device {} ({})", client.platform_name(), self.device.id(), client.plugin().path().display())
    }

    fn upload(&self, ty: &TensorType, bytes: HostBytes) -> Result<SharedBuffer> {
        let spec = spec(ty)?;
        let buffer = if ty.bytes() < OWNED_UPLOAD_BYTES {
            Buffer::from_host(&self.device, spec, bytes.as_ref())
        } else {
            Buffer::from_host_owned(&self.device, spec, bytes, HostUse::UntilTransferred)
        };
        let buffer = buffer.map_err(TpuError::pjrt(format!("uploading {ty}")))?;
        Ok(Arc::new(buffer))
    }

    fn download(&self, buffer: &SharedBuffer) -> Result<Vec<u8>> {
        self.in_flight.free_finished();
        let buffer: &Buffer = downcast(buffer)?;
        buffer.to_host().map_err(TpuError::pjrt("reading a tensor"))
    }

    /// Every op of the op table has a lowering. The compositions in `ops` avoid what a plugin rejects, such as a 64-bit
    /// integer dot on TPUs.
    fn lowers(&self, _op: &Op) -> bool {
        true
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn compile(&self, program: &Program) -> Result<Box<dyn Executable>> {
        let lowered = {
            let _span = tracing::debug_span!("lower").entered();
            let start = Instant::now();
            let lowered = lower(program).map_err(|error| TpuError::Bug(error.to_string()))?;
            Counters::add_time(&self.counters.lower_ns, start.elapsed());
            lowered
        };
        dump_program(self.dump.as_deref(), program, &lowered)?;
        let specs = lowered.arguments.iter().map(|argument| spec(argument.ty())).collect::<Result<Vec<_>>>()?;
        let (executable, from_disk) = self.load_or_compile(program, &lowered, &specs)?;
        let footprint = Footprint::of(&executable);
        let granted = footprint.filter(|_| !from_disk).map(|footprint| footprint.aliases);
        match granted.and_then(|granted| lost_donation(&lowered.arguments, granted)) {
            Some(lost) if self.strict => return Err(lost),
            Some(lost) => tracing::warn!("{lost}"),
            None => {}
        }
        let reported = executable.executable().code_size().unwrap_or(0).max(0) as u64;
        Ok(Box::new(PjrtProgram {
            size_bytes: reported.max(lowered.text.len() as u64),
            from_disk,
            footprint: footprint.unwrap_or_default(),
            arguments: lowered.arguments.into_iter().zip(specs).collect(),
            executable,
            device: self.device.clone(),
            in_flight: Arc::clone(&self.in_flight),
        }))
    }

    fn wait(&self) -> Result<()> {
        self.in_flight.wait()
    }
}

impl PjrtEngine {
    /// Returns the executable, and whether it came from disk.
    fn load_or_compile(
        &self,
        program: &Program,
        lowered: &Lowered,
        specs: &[Arc<TensorSpec>],
    ) -> Result<(LoadedExecutable, bool)> {
        let client = self.device.client();
        let disk = self.disk.as_ref().map(|disk| (disk, disk.key(program.stable_hash(), lowered.stable_hash())));
        if let Some((disk, key)) = &disk
            && let Some(executable) = disk.load(key, |bytes| client.load_serialized(bytes))
        {
            return Ok((executable, true));
        }
        let context = || format!("compiling a program of {} nodes", program.graph().len());
        let text = burn_tpu_pjrt::Program::stablehlo(lowered.text.as_str(), specs.to_vec());
        let text = text.map_err(TpuError::pjrt(context()))?;
        let start = Instant::now();
        let executable = client.compile(&text, &self.options).map_err(TpuError::pjrt(context()))?;
        let time = start.elapsed();
        Counters::add_time(&self.counters.compile_ns, time);
        if let Some((disk, key)) = &disk {
            disk.insert(key, time, || executable.executable().serialize());
        }
        Ok((executable, false))
    }
}

/// Returns an error if the compiler aliased at least [`LARGE_BYTES`] less argument memory to results than requested.
fn lost_donation(arguments: &[Argument], granted: usize) -> Option<TpuError> {
    let updated = |argument: &&Argument| matches!(argument, Argument::Parameter { result: Some(_), .. });
    let asked = arguments.iter().filter(updated).map(|argument| argument.ty().bytes()).sum();
    (granted + LARGE_BYTES <= asked).then_some(TpuError::LostDonation { asked, granted })
}

/// Writes the program's text into `folder`, if there is one.
pub(crate) fn dump_program(folder: Option<&std::path::Path>, program: &Program, lowered: &Lowered) -> Result<()> {
    let Some(folder) = folder else { return Ok(()) };
    let name: String = program.stable_hash()[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    let path = folder.join(name + ".mlir");
    let written = std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&path, &lowered.text));
    written.map_err(|error| TpuError::File { what: "the dump of a program", path, reason: error.to_string() })
}

/// A compiled program and the description of its arguments.
struct PjrtProgram {
    executable: LoadedExecutable,
    arguments: Vec<(Argument, Arc<TensorSpec>)>,
    device: Device,
    in_flight: Arc<InFlight>,
    size_bytes: u64,
    from_disk: bool,
    footprint: Footprint,
}

impl Footprint {
    /// Returns the memory statistics of an executable, or `None` if the plugin reports none.
    fn of(executable: &LoadedExecutable) -> Option<Self> {
        let bytes = |n: i64| usize::try_from(n).unwrap_or(0);
        let stats = executable.executable().memory_stats().ok()?;
        Some(Self {
            arguments: bytes(stats.argument_bytes),
            outputs: bytes(stats.output_bytes),
            aliases: bytes(stats.alias_bytes),
            temporaries: bytes(stats.temporary_bytes),
        })
    }
}

impl Executable for PjrtProgram {
    fn execute(&self, arguments: &mut Arguments, slots: &[u64]) -> Result<Execution> {
        let packed = self.pack(slots)?;
        let mut packed = packed.iter();
        let (mut kept, mut donated) = (Vec::new(), Vec::new());
        let mut execution = Execution { footprint: self.footprint, ..Execution::default() };
        let mut inputs: Vec<&Buffer> = Vec::with_capacity(self.arguments.len());
        for (position, (recipe, spec)) in self.arguments.iter().enumerate() {
            let Argument::Parameter { index, result, .. } = recipe else {
                inputs.extend(packed.next());
                continue;
            };
            let shared = argument(arguments, *index)?;
            if Arc::strong_count(shared) > 1 {
                kept.push(position as i64);
            } else if result.is_some() {
                execution.donated_buffers += 1;
                execution.donated_bytes += spec.byte_len();
                donated.push(*index);
            }
            inputs.push(downcast(shared)?);
        }
        let options = ExecuteOptions { non_donatable: &kept, events: true, ..ExecuteOptions::default() };
        let mut done = self.executable.execute(&[&inputs], &options).map_err(TpuError::pjrt("running a program"))?;
        let donated = donated.into_iter().map(|index| take_argument(arguments, index)).collect::<Result<_>>()?;
        if let Some(done) = done.events.pop() {
            self.in_flight.push(Running { done, _donated: donated });
        }
        let outputs = done.outputs.pop().unwrap_or_default().into_iter();
        execution.outputs = outputs.map(|buffer| Arc::new(buffer) as SharedBuffer).collect();
        Ok(execution)
    }

    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn is_from_disk(&self) -> bool {
        self.from_disk
    }
}

impl PjrtProgram {
    /// Uploads the run-time scalars. All scalars of at most 32 bits share one packed buffer.
    fn pack(&self, slots: &[u64]) -> Result<Vec<Buffer>> {
        let mut packed = Vec::new();
        for (recipe, spec) in &self.arguments {
            if let Argument::Slots { ty, slots: places } = recipe {
                let bytes = pack_slots(ty.dtype, places, slots).map_err(|error| TpuError::Bug(error.to_string()))?;
                let buffer = Buffer::from_host(&self.device, Arc::clone(spec), &bytes);
                packed.push(buffer.map_err(TpuError::pjrt("uploading scalars"))?);
            }
        }
        Ok(packed)
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_loss_of_donated_memory_is_reported() {
        let ty = TensorType::new(DType::F32, [2 << 20]);
        let argument = |index, result| Argument::Parameter { index, ty: ty.clone(), result };
        let (updated, read) = ([argument(0, Some(1)), argument(1, Some(0))], [argument(0, None)]);
        assert!(matches!(
            lost_donation(&updated, 8 << 20),
            Some(TpuError::LostDonation { asked: 0x0100_0000, granted: 0x0080_0000 })
        ));
        // No loss, a small loss, and no request.
        assert!(lost_donation(&updated, 16 << 20).is_none() && lost_donation(&updated, (16 << 20) - 4096).is_none());
        assert!(lost_donation(&read, 0).is_none());
    }
}
