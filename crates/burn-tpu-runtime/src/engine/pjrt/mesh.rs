//! The mesh engine: one program on many devices of a client.
//!
//! XLA's partitioner splits a program by the shardings of its arguments and results, which the program's placement has.
//! A buffer is one buffer on each device. One call launches the program on all of them; launches of one client follow
//! each other, since two that interleave would wait for each other for ever.
//!
//! A mesh may have devices of other processes (`local.rs`). Then each process uploads and launches on its own devices,
//! and a value with parts elsewhere is gathered by a small program before it is read.

mod local;

use super::value::DeviceValue;
use super::{
    Compiler, InFlight, Loaded, MOST_IN_FLIGHT, Running, ends, has_host_memory, plugin_memory, spec, upload, wait_for,
};
use crate::activity::RunningProgram;
use crate::engine::{
    Arguments, DeviceBuffer, Engine, Executable, Execution, HostBytes, MeshAxes, SharedBuffer, argument, clients,
    downcast, downcast_arc, take_argument, wrong_engine,
};
use crate::error::{Result, TpuError};
use crate::memory::{AllocationSite, PluginMemory};
use crate::metrics::Counters;
use crate::profile;
use crate::region::{Part, Region};
use crate::{Platform, TpuOptions};
use burn_tpu_graph::op::MemorySpace;
use burn_tpu_graph::{Argument, Builder, Graph, Mesh, Op, Placement, Program, Sharding, TensorType};
use burn_tpu_pjrt::{Buffer, CompileOptions, Device, ExecuteOptions, Plugin, TensorSpec};
use local::Local;
use lru::LruCache;
use parking_lot::Mutex;
use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Instant;

/// The maximum number of dispatched programs that may be unfinished on the CPU plugin, which has one pool of threads
/// for the rendezvous of all of them: with a hundred, none can proceed.
const MOST_IN_FLIGHT_ON_CPU: usize = 8;

/// The number of programs that are kept to gather values, one for each type and sharding that is read.
const MOST_GATHERS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(63);

/// All devices of a mesh.
struct MeshEngine {
    axes: MeshAxes,
    local: Arc<Local>,
    platform: Platform,
    compiler: Compiler,
    in_flight: Arc<InFlight>,
    launches: Arc<Mutex<i32>>,
    gathers: Mutex<LruCache<(TensorType, Sharding), Arc<dyn Executable>>>,
}

/// A tensor's parts, one on each device of a mesh that this process has.
struct MeshBuffer {
    ty: TensorType,
    sharding: Sharding,
    mesh: Mesh,
    local: Arc<Local>,
    /// Those that a device's tensor shares are never donated.
    parts: Vec<Arc<DeviceValue>>,
}

impl DeviceBuffer for MeshBuffer {
    fn is_donated(&self) -> bool {
        self.parts.iter().any(|part| DeviceBuffer::is_donated(&**part))
    }

    fn sharding(&self) -> Option<&Sharding> {
        Some(&self.sharding)
    }

    fn site(&self) -> Option<&Arc<AllocationSite>> {
        self.parts.first()?.site()
    }

    #[cfg(feature = "testing")]
    fn is_computed(&self) -> bool {
        self.parts.iter().all(|part| DeviceBuffer::is_computed(&**part))
    }
}

/// Opens a mesh, on the platform `default` if it names none.
///
/// # Errors
/// [`TpuError::Mesh`] for a mesh that cannot be on this machine; those of [`clients::client`].
pub(crate) fn open_mesh(
    device: crate::Device,
    default: Platform,
    options: &TpuOptions,
    counters: &Arc<Counters>,
) -> Result<Arc<dyn Engine>> {
    let unknown =
        || TpuError::Mesh { mesh: device.to_string(), rule: "was never described: use TpuDevice::mesh".into() };
    let description = device.as_mesh().ok_or_else(unknown)?;
    let platform = description.platform().unwrap_or(default);
    if !matches!(platform, Platform::Tpu | Platform::Cuda | Platform::Cpu) {
        let rule = format!("needs the chips of a plugin, and {platform} has none\n  fix: cargo xtask setup cpu");
        return Err(description.error(rule));
    }
    let size = description.size();
    let (client, launches) = clients::client_of_mesh(platform, size, options)?;
    let order = by_process(client.all_devices().map(|device| device.process_index));
    let mesh = description.resolve(order.len())?;
    let indices = description.indices(&mesh, order.len())?;
    let devices = indices.iter().map(|&index| client.device_of_any_host(order[usize::from(index)]));
    let devices = devices.collect::<Result<Vec<_>, _>>().map_err(TpuError::pjrt(format!("opening {device}")))?;
    let ids = devices.iter().map(Device::id).collect();
    let start = CompileOptions::default().partitions(devices.len()).shardy(true).device_assignment(vec![ids]);
    let local = Local::of(devices).ok_or_else(|| description.error("has no device of this process"))?;
    let most = if platform == Platform::Cpu { MOST_IN_FLIGHT_ON_CPU } else { MOST_IN_FLIGHT };
    Ok(Arc::new(MeshEngine {
        axes: MeshAxes { batch: description.batch()?, mesh },
        compiler: Compiler::new(&client, platform, start, options, counters),
        local: Arc::new(local),
        platform,
        in_flight: InFlight::new(most),
        launches,
        gathers: Mutex::new(LruCache::new(MOST_GATHERS)),
    }))
}

/// Returns the order in which devices are counted: those of a process follow each other, so that each has rows of a
/// batch that do. libtpu numbers chips by their place in the slice, where those of a host are a square.
fn by_process(processes: impl Iterator<Item = i32>) -> Vec<usize> {
    let processes: Vec<i32> = processes.collect();
    let mut order: Vec<usize> = (0..processes.len()).collect();
    order.sort_by_key(|&device| processes[device]);
    order
}

impl Engine for MeshEngine {
    fn describe(&self) -> String {
        let (client, mesh) = (self.local.devices[0].client(), &self.axes.mesh);
        let plugin = client.plugin().path().display().to_string();
        let (here, all) = (self.local.devices.len(), mesh.devices());
        let here = if here < all { format!("{here} of ") } else { String::new() };
        format!("{here}{all} {} devices as {mesh} ({plugin})", client.platform_name())
    }

    /// Without a sharding, dim 0 is split over the batch axes if it divides: the value takes the least memory so.
    fn upload(&self, ty: &TensorType, bytes: HostBytes, sharding: Option<&Sharding>) -> Result<SharedBuffer> {
        let mesh = &self.axes.mesh;
        let default = || Some(Sharding::first_dim(ty.rank(), &self.axes.batch)).filter(|s| s.check(ty, mesh).is_ok());
        let sharding = sharding.cloned().or_else(default).unwrap_or_else(|| Sharding::replicated(ty.rank()));
        let (whole, element) = (Region::whole(&ty.dims), ty.dtype.size_bytes());
        self.upload_parts(ty, sharding, |region| match region {
            None => Ok(bytes.clone()),
            Some(region) => Ok(whole.take(bytes.as_ref(), &region, element).into()),
        })
    }

    fn upload_rows(&self, ty: &TensorType, bytes: HostBytes) -> Result<Option<(TensorType, SharedBuffer)>> {
        if self.local.is_whole(&self.axes.mesh) {
            return Ok(None);
        }
        self.upload_own_rows(ty, &bytes).map(Some)
    }

    fn download(&self, buffer: &SharedBuffer) -> Result<Vec<u8>> {
        self.in_flight.free_finished();
        let value: &MeshBuffer = downcast(buffer)?;
        if value.is_here() {
            return value.download().map_err(TpuError::pjrt("reading a tensor"));
        }
        let gathered = self.gather(buffer)?;
        let value: &MeshBuffer = downcast(&gathered)?;
        value.download().map_err(TpuError::pjrt("reading a tensor"))
    }

    fn parts(&self, buffer: &SharedBuffer) -> Result<Option<Vec<Part>>> {
        let value: &MeshBuffer = downcast(buffer)?;
        if self.local.is_whole(&value.mesh) {
            return Ok(None);
        }
        let mut holders: BTreeMap<Region, BTreeSet<usize>> = BTreeMap::new();
        for (position, &process) in self.local.owners.iter().enumerate() {
            holders.entry(value.region(position)).or_default().insert(process);
        }
        let part = |(region, processes): (_, BTreeSet<usize>)| Part { region, processes: Vec::from_iter(processes) };
        Ok(Some(holders.into_iter().map(part).collect()))
    }

    fn download_parts(&self, buffer: &SharedBuffer, regions: &[Region]) -> Result<Vec<Vec<u8>>> {
        self.in_flight.free_finished();
        let value: &MeshBuffer = downcast(buffer)?;
        let parts = regions.iter().map(|region| value.part_here(region)).collect::<Result<Vec<_>>>()?;
        let failed = || TpuError::pjrt("reading a part");
        let reads = parts.into_iter().map(|part| part.start_read().map_err(failed()));
        let reads = reads.collect::<Result<Vec<_>>>()?;
        reads.into_iter().map(|read| read.wait().map_err(failed())).collect()
    }

    fn regions(&self, ty: &TensorType, sharding: &Sharding) -> Vec<Region> {
        let region = |(_, position)| region_of(sharding, ty, &self.axes.mesh, position);
        let regions: BTreeSet<Region> = self.local.iter().map(region).collect();
        regions.into_iter().collect()
    }

    fn upload_regions(
        &self,
        ty: &TensorType,
        sharding: &Sharding,
        regions: Vec<(Region, HostBytes)>,
    ) -> Result<SharedBuffer> {
        let given: BTreeMap<Region, HostBytes> = regions.into_iter().collect();
        self.upload_parts(ty, sharding.clone(), |region| {
            let region = region.unwrap_or_else(|| Region::whole(&ty.dims));
            let missing = || TpuError::Bug(format!("the part {region} of {ty} was not given"));
            given.get(&region).cloned().ok_or_else(missing)
        })
    }

    /// The CPU plugin transforms only row-major operands, and a dim that was split may arrive in another layout.
    /// Complex values exist only inside a program, so what makes and takes them apart is with the transform.
    fn lowers(&self, op: &Op) -> bool {
        !(self.platform == Platform::Cpu && matches!(op, Op::Fft { .. } | Op::Complex | Op::Real | Op::Imag))
    }

    fn takes_tpu_kernels(&self) -> bool {
        self.platform == Platform::Tpu
    }

    fn transfers_values(&self) -> bool {
        true
    }

    fn has_host_memory(&self) -> bool {
        self.local.devices.iter().all(has_host_memory)
    }

    fn mesh(&self) -> Option<&MeshAxes> {
        Some(&self.axes)
    }

    fn compile(&self, program: &Program) -> Result<Box<dyn Executable>> {
        let Some(placement) = program.placement() else {
            return Err(TpuError::Bug("a program for a mesh has no placement".to_owned()));
        };
        let loaded = self.compiler.compile(program)?;
        let results: Vec<TensorType> = program.output_types().cloned().collect();
        check_results(&loaded, placement, &results)?;
        self.local.check_order(&loaded.executable.devices())?;
        Ok(Box::new(MeshProgram {
            results: results.into_iter().zip(placement.results.iter().cloned()).collect(),
            mesh: placement.mesh.clone(),
            loaded,
            local: Arc::clone(&self.local),
            in_flight: Arc::clone(&self.in_flight),
            launches: Arc::clone(&self.launches),
        }))
    }

    fn join(&self, whole: &TensorType, parts: Vec<SharedBuffer>) -> Result<SharedBuffer> {
        let mesh = self.axes.mesh.clone();
        let sharding = Sharding::first_dim(whole.rank(), &self.axes.batch);
        let own = |part: SharedBuffer| {
            let part: Arc<dyn Any + Send + Sync> = part;
            part.downcast::<DeviceValue>().map_err(|_| wrong_engine())
        };
        let parts = parts.into_iter().map(own).collect::<Result<Vec<_>>>()?;
        let is_whole = parts.len() == self.local.devices.len() && sharding.check(whole, &mesh).is_ok();
        if !is_whole {
            return Err(TpuError::Bug(format!("{} parts do not make {whole} on {mesh}", parts.len())));
        }
        Ok(Arc::new(MeshBuffer { ty: whole.clone(), sharding, mesh, local: Arc::clone(&self.local), parts }))
    }

    fn take_apart(&self, value: &SharedBuffer) -> Result<Vec<SharedBuffer>> {
        let buffer: &MeshBuffer = downcast(value)?;
        if !buffer.sharding.is_replicated() {
            return Err(TpuError::Bug(format!("{} is not whole on every device", buffer.ty)));
        }
        Ok(buffer.parts.iter().map(|part| Arc::clone(part) as SharedBuffer).collect())
    }

    fn wait_for(&self, buffer: &SharedBuffer) -> Result<()> {
        let buffer: &MeshBuffer = downcast(buffer)?;
        buffer.parts.iter().for_each(|part| wait_for(part));
        Ok(())
    }

    fn memory(&self) -> Option<PluginMemory> {
        plugin_memory(&self.local.devices)
    }

    fn plugin(&self) -> Option<Plugin> {
        self.local.devices.first().map(|device| device.client().plugin())
    }

    fn wait(&self) -> Result<()> {
        self.in_flight.wait()
    }

    fn in_flight(&self) -> Vec<RunningProgram> {
        self.in_flight.running()
    }
}

impl MeshEngine {
    /// Puts a part on each device of this process: `bytes` has those of a region, or of the whole value.
    fn upload_parts(
        &self,
        ty: &TensorType,
        sharding: Sharding,
        bytes: impl Fn(Option<Region>) -> Result<HostBytes>,
    ) -> Result<SharedBuffer> {
        let mesh = &self.axes.mesh;
        let part = spec(&sharding.local(ty, mesh))?;
        let region = |position| (!sharding.is_replicated()).then(|| region_of(&sharding, ty, mesh, position));
        let memory = self.compiler.memory();
        memory
            .check(&"a value from the host", (part.byte_len() * self.local.devices.len()) as u64)
            .map_err(TpuError::OutOfMemory)?;
        let site = memory.upload(ty.clone());
        let upload = |(device, position)| {
            let buffer = upload(device, Arc::clone(&part), bytes(region(position))?)?;
            Ok(Arc::new(DeviceValue::new(buffer, MemorySpace::Device, &site)))
        };
        let parts = self.local.iter().map(upload).collect::<Result<_>>()?;
        let local = Arc::clone(&self.local);
        Ok(Arc::new(MeshBuffer { ty: ty.clone(), sharding, mesh: mesh.clone(), local, parts }))
    }

    /// Puts this process's rows of a batch on its devices, and returns the type of the batch.
    fn upload_own_rows(&self, ty: &TensorType, bytes: &HostBytes) -> Result<(TensorType, SharedBuffer)> {
        let MeshAxes { mesh, batch } = &self.axes;
        let refused = |rule| TpuError::Sharding { what: format!("the rows {ty} of this process"), rule };
        let rows = self.local.rows(mesh, batch, ty).map_err(refused)?;
        let sharding = Sharding::first_dim(ty.rank(), batch);
        let (own, element) = (Region::whole(&ty.dims), ty.dtype.size_bytes());
        let value = self.upload_parts(&rows.whole, sharding, |region| match region {
            None => Ok(bytes.clone()),
            Some(mut region) => {
                region.start[0] -= rows.first;
                Ok(own.take(bytes.as_ref(), &region, element).into())
            }
        });
        Ok((rows.whole.clone(), value?))
    }

    /// Returns a copy of a value that every device has whole. All processes have to read it: the copy is a launch on
    /// all of them.
    fn gather(&self, buffer: &SharedBuffer) -> Result<SharedBuffer> {
        let MeshBuffer { ty, sharding, mesh, .. } = downcast(buffer)?;
        let key = (ty.clone(), sharding.clone());
        let known = self.gathers.lock().get(&key).map(Arc::clone);
        let program = match known {
            Some(program) => program,
            None => {
                let program: Arc<dyn Executable> = self.compile(&gather_program(ty, sharding, mesh)?)?.into();
                self.gathers.lock().put(key, Arc::clone(&program));
                program
            }
        };
        // The value belongs to others too, so that it is not donated.
        let mut done = program.execute(&mut vec![Some(Arc::clone(buffer))], &[])?;
        done.outputs.pop().ok_or_else(|| TpuError::Bug("a program that gathers has no result".to_owned()))
    }
}

/// Returns the program whose result is its argument, whole on every device.
fn gather_program(ty: &TensorType, sharding: &Sharding, mesh: &Mesh) -> Result<Program> {
    let mut graph = Graph::new();
    let value = graph.add(Op::Parameter { index: 0, ty: ty.clone() }, &[]);
    let program = value.and_then(|value| Program::extract(&graph, &[value]));
    let program = program.map_err(|error| TpuError::Bug(error.to_string()))?;
    let (parameters, results) = (vec![sharding.clone()], vec![Sharding::replicated(ty.rank())]);
    Ok(program.placed(Placement { mesh: mesh.clone(), batch: Vec::new(), parameters, results }))
}

/// Checks that the parts of the results have the sizes that the placement gives them.
fn check_results(loaded: &Loaded, placement: &Placement, results: &[TensorType]) -> Result<()> {
    let found = loaded.executable.executable().outputs();
    let expected =
        results.iter().zip(&placement.results).map(|(ty, sharding)| spec(&sharding.local(ty, &placement.mesh)));
    let expected: Vec<Arc<TensorSpec>> = expected.collect::<Result<_>>()?;
    if found == expected {
        return Ok(());
    }
    Err(TpuError::Bug(format!("the partitioner returns {found:?} instead of {expected:?}")))
}

impl MeshBuffer {
    /// Returns the plugin's buffers of a value that was donated, which is not counted any more.
    fn into_parts(value: SharedBuffer) -> Vec<Buffer> {
        let value = downcast_arc::<Self>(value).ok().and_then(Arc::into_inner);
        let parts = value.into_iter().flat_map(|value| value.parts);
        parts.filter_map(Arc::into_inner).map(DeviceValue::into_buffer).collect()
    }

    /// Returns whether this process has all of the value.
    fn is_here(&self) -> bool {
        self.sharding.is_replicated() || self.local.has_all(&self.sharding, &self.ty, &self.mesh)
    }

    /// Returns the region of the device at a position of the mesh.
    fn region(&self, position: usize) -> Region {
        region_of(&self.sharding, &self.ty, &self.mesh, position)
    }

    /// Returns the part with a region, on a device of this process.
    fn part_here(&self, region: &Region) -> Result<&Arc<DeviceValue>> {
        let mut parts = self.local.positions.iter().zip(&self.parts);
        let found = parts.find(|&(&position, _)| self.region(position) == *region);
        found.map(|(_, part)| part).ok_or_else(|| {
            let rule =
                "is not on a device of this process: the plugin and BURN_TPU_PROCESS have to number processes alike";
            TpuError::Sharding { what: format!("the part {region} of {}", self.ty), rule: rule.to_owned() }
        })
    }

    /// Returns whether a tensor of one device has a part too.
    fn is_shared(&self) -> bool {
        self.parts.iter().any(|part| Arc::strong_count(part) > 1)
    }

    /// Joins the parts. Of equal ones, the first is read; all transfers run at once.
    fn download(&self) -> burn_tpu_pjrt::Result<Vec<u8>> {
        if self.sharding.is_replicated() {
            return self.parts[0].to_host();
        }
        let mut regions: Vec<(Region, &Arc<DeviceValue>)> = Vec::new();
        for (&position, part) in self.local.positions.iter().zip(&self.parts) {
            let region = self.region(position);
            if !regions.iter().any(|(known, _)| *known == region) {
                regions.push((region, part));
            }
        }
        let reads = regions.into_iter().map(|(region, part)| part.start_read().map(|read| (region, read)));
        let reads = reads.collect::<burn_tpu_pjrt::Result<Vec<_>>>()?;
        let (all, element) = (Region::whole(&self.ty.dims), self.ty.dtype.size_bytes());
        let mut whole = vec![0; self.ty.bytes()];
        for (region, read) in reads {
            region.copy(&read.wait()?, &all, &mut whole, element);
        }
        Ok(whole)
    }
}

/// Returns the region that the device at a position of the mesh has.
fn region_of(sharding: &Sharding, ty: &TensorType, mesh: &Mesh, position: usize) -> Region {
    Region { start: sharding.start(ty, mesh, position).to_vec(), sizes: sharding.local(ty, mesh).dims.to_vec() }
}

/// Returns whether devices with the same part have the same bits; `None` for a buffer of one device.
///
/// # Errors
/// Those of the transfers.
#[cfg(feature = "testing")]
pub(crate) fn replicas_agree(buffer: &SharedBuffer) -> Result<Option<bool>> {
    let Ok(buffer) = downcast::<MeshBuffer>(buffer) else { return Ok(None) };
    let mut known: Vec<(Vec<usize>, Vec<u8>)> = Vec::new();
    for (&position, part) in buffer.local.positions.iter().zip(&buffer.parts) {
        let start = buffer.sharding.start(&buffer.ty, &buffer.mesh, position).to_vec();
        let bytes = part.to_host().map_err(TpuError::pjrt("reading a part"))?;
        match known.iter().find(|(other, _)| *other == start) {
            Some((_, other)) if *other != bytes => return Ok(Some(false)),
            Some(_) => {}
            None => known.push((start, bytes)),
        }
    }
    Ok(Some(true))
}

/// A program that is compiled for a mesh.
struct MeshProgram {
    loaded: Loaded,
    results: Vec<(TensorType, Sharding)>,
    mesh: Mesh,
    local: Arc<Local>,
    in_flight: Arc<InFlight>,
    launches: Arc<Mutex<i32>>,
}

impl Executable for MeshProgram {
    fn execute(&self, arguments: &mut Arguments, slots: &[u64]) -> Result<Execution> {
        let devices = &self.local.devices;
        let packed = self.loaded.scalars.on(devices, &self.loaded.arguments, slots)?;
        let moved = self.loaded.moved(arguments, |shared, memory| {
            let buffer: &MeshBuffer = downcast(shared)?;
            let parts = buffer.parts.iter().filter(|part| part.memory() != memory);
            parts.map(|part| part.copied_to(memory)).collect()
        })?;
        let (mut kept, mut donated) = (Vec::new(), Vec::new());
        let mut execution = Execution { footprint: self.loaded.footprint, ..Execution::default() };
        let mut inputs: Vec<Vec<&Buffer>> = vec![Vec::with_capacity(self.loaded.arguments.len()); devices.len()];
        let mut scalars: Vec<_> = packed.iter().map(|packed| packed.iter()).collect();
        for (position, (recipe, spec)) in self.loaded.arguments.iter().enumerate() {
            let Argument::Parameter { index, result, .. } = recipe else {
                inputs.iter_mut().zip(&mut scalars).for_each(|(inputs, scalars)| inputs.extend(scalars.next()));
                continue;
            };
            let shared = argument(arguments, *index)?;
            let buffer: &MeshBuffer = downcast(shared)?;
            if Arc::strong_count(shared) > 1 || buffer.is_shared() {
                kept.push(position as i64);
            } else if result.is_some() {
                execution.donated_buffers += 1;
                execution.donated_bytes += spec.byte_len();
                donated.push(*index);
            }
            match moved.get(&position) {
                Some(copies) => inputs.iter_mut().zip(copies).for_each(|(inputs, copy)| inputs.push(copy)),
                None => inputs.iter_mut().zip(&buffer.parts).for_each(|(inputs, part)| inputs.push(part)),
            }
        }
        self.loaded.check_room(execution.donated_bytes, devices.len())?;
        let lists: Vec<&[&Buffer]> = inputs.iter().map(Vec::as_slice).collect();
        let mut launch = self.launches.lock();
        *launch = launch.wrapping_add(1);
        // Processes that launch the same programs in the same order give a launch the same number.
        let launch_id = if self.local.is_whole(&self.mesh) { 0 } else { *launch };
        let options = ExecuteOptions { non_donatable: &kept, events: true, launch_id, ..ExecuteOptions::default() };
        let profile = profile::active().map(|profile| (profile.now(), profile));
        let done = self.loaded.executable.execute(&lists, &options).map_err(TpuError::pjrt("running a program"))?;
        drop(launch);
        if let Some((begin, profile)) = profile {
            profile.dispatched(&self.loaded.ops, begin, ends(&done.outputs));
        }
        let donated: Result<Vec<_>> =
            donated.into_iter().map(|index| Ok(MeshBuffer::into_parts(take_argument(arguments, index)?))).collect();
        let program = Arc::clone(&self.loaded.description);
        self.in_flight.push(Running {
            program,
            begun: Instant::now(),
            done: done.events,
            _donated: Box::new(donated?),
        });
        execution.outputs = self.join(done.outputs);
        self.loaded.memory.ran((self.loaded.footprint.temporaries * self.local.devices.len()) as u64);
        Ok(execution)
    }

    fn size_bytes(&self) -> u64 {
        self.loaded.size_bytes
    }

    fn is_from_disk(&self) -> bool {
        self.loaded.from_disk
    }
}

impl MeshProgram {
    /// Makes one buffer of the parts of each result.
    fn join(&self, outputs: Vec<Vec<Buffer>>) -> Vec<SharedBuffer> {
        let mut devices: Vec<_> = outputs.into_iter().map(Vec::into_iter).collect();
        let results = self.results.iter().zip(&self.loaded.results).map(|((ty, sharding), at)| {
            let parts = devices.iter_mut().filter_map(Iterator::next);
            let parts = parts.map(|part| Arc::new(DeviceValue::new(part, at.memory, &at.site))).collect();
            let (ty, sharding, mesh) = (ty.clone(), sharding.clone(), self.mesh.clone());
            Arc::new(MeshBuffer { ty, sharding, mesh, local: Arc::clone(&self.local), parts }) as SharedBuffer
        });
        results.collect()
    }
}

#[cfg(test)]
mod tests;
