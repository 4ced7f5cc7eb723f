//! The mesh engine: one program on many devices of a client.
//!
//! XLA's partitioner splits a program by the shardings of its arguments and results, which the program's placement has. A
//! buffer is one buffer on each device. One call launches the program on all of them; launches of one client follow each
//! other, since two that interleave would wait for each other for ever.

use super::{Compiler, InFlight, Loaded, MOST_IN_FLIGHT, Running, pack, spec, upload};
use crate::engine::{
    Arguments, DeviceBuffer, Engine, Executable, Execution, HostBytes, MeshAxes, SharedBuffer, argument, clients,
    downcast, take_argument,
};
use crate::error::{Result, TpuError};
use crate::metrics::Counters;
use crate::runtime::default_chip;
use crate::{Platform, TpuOptions};
use burn_tpu_graph::{Argument, Mesh, Op, Placement, Program, Sharding, TensorType};
use burn_tpu_pjrt::{Buffer, CompileOptions, Device, ExecuteOptions, TensorSpec};
use parking_lot::Mutex;
use std::sync::Arc;

/// The maximum number of dispatched programs that may be unfinished on the CPU plugin, which has one pool of threads for the
/// rendezvous of all of them: with a hundred, none can proceed.
const MOST_IN_FLIGHT_ON_CPU: usize = 8;

/// All devices of a mesh.
struct MeshEngine {
    axes: MeshAxes,
    devices: Arc<[Device]>,
    is_cpu: bool,
    compiler: Compiler,
    in_flight: Arc<InFlight>,
    launches: Arc<Mutex<()>>,
}

/// A tensor's parts, one on each device of a mesh.
struct MeshBuffer {
    ty: TensorType,
    sharding: Sharding,
    mesh: Mesh,
    parts: Vec<Buffer>,
}

impl DeviceBuffer for MeshBuffer {
    fn is_donated(&self) -> bool {
        self.parts.iter().any(DeviceBuffer::is_donated)
    }

    fn sharding(&self) -> Option<&Sharding> {
        Some(&self.sharding)
    }

    #[cfg(feature = "testing")]
    fn is_computed(&self) -> bool {
        self.parts.iter().all(DeviceBuffer::is_computed)
    }
}

/// Opens a mesh.
///
/// # Errors
/// [`TpuError::Mesh`] for a mesh that cannot be on this machine; those of [`clients::client`].
pub(crate) fn open_mesh(
    device: crate::Device,
    options: &TpuOptions,
    counters: &Arc<Counters>,
) -> Result<Arc<dyn Engine>> {
    let unknown =
        || TpuError::Mesh { mesh: device.to_string(), rule: "was never described: use TpuDevice::mesh".into() };
    let description = device.as_mesh().ok_or_else(unknown)?;
    let platform = description.platform().unwrap_or_else(|| default_chip().platform());
    if !matches!(platform, Platform::Tpu | Platform::Cuda | Platform::Cpu) {
        let rule = format!("needs the chips of a plugin, and {platform} has none\n  fix: cargo xtask setup cpu");
        return Err(description.error(rule));
    }
    let size = description.size();
    let (client, launches) = clients::client_of_mesh(platform, size, options)?;
    let count = client.device_count();
    let mesh = description.resolve(count)?;
    let indices = description.indices(&mesh, count)?;
    let devices = indices.iter().map(|&index| client.device(usize::from(index))).collect::<Result<Arc<[_]>, _>>();
    let devices = devices.map_err(TpuError::pjrt(format!("opening {device}")))?;
    let ids = devices.iter().map(Device::id).collect();
    let start = CompileOptions::default().partitions(devices.len()).shardy(true).device_assignment(vec![ids]);
    let is_cpu = platform == Platform::Cpu;
    let most = if is_cpu { MOST_IN_FLIGHT_ON_CPU } else { MOST_IN_FLIGHT };
    Ok(Arc::new(MeshEngine {
        axes: MeshAxes { batch: description.batch()?, mesh },
        compiler: Compiler::new(&client, platform, start, options, counters),
        devices,
        is_cpu,
        in_flight: Arc::new(InFlight::new(most)),
        launches,
    }))
}

impl Engine for MeshEngine {
    fn describe(&self) -> String {
        let (client, count) = (self.devices[0].client(), self.devices.len());
        let plugin = client.plugin().path().display().to_string();
        format!("{count} {} devices as {} ({plugin})", client.platform_name(), self.axes.mesh)
    }

    /// Without a sharding, dim 0 is split over the batch axes if it divides: the value takes the least memory so.
    fn upload(&self, ty: &TensorType, bytes: HostBytes, sharding: Option<&Sharding>) -> Result<SharedBuffer> {
        let mesh = &self.axes.mesh;
        let default = || Some(Sharding::first_dim(ty.rank(), &self.axes.batch)).filter(|s| s.check(ty, mesh).is_ok());
        let sharding = sharding.cloned().or_else(default).unwrap_or_else(|| Sharding::replicated(ty.rank()));
        let part = spec(&sharding.local(ty, mesh))?;
        let parts = self.devices.iter().enumerate().map(|(position, device)| {
            let bytes = match sharding.is_replicated() {
                true => bytes.clone(),
                false => Region::of(&sharding, ty, mesh, position).take(bytes.as_ref()).into(),
            };
            upload(device, Arc::clone(&part), bytes)
        });
        let parts = parts.collect::<Result<_>>()?;
        Ok(Arc::new(MeshBuffer { ty: ty.clone(), sharding, mesh: mesh.clone(), parts }))
    }

    fn download(&self, buffer: &SharedBuffer) -> Result<Vec<u8>> {
        self.in_flight.free_finished();
        let buffer: &MeshBuffer = downcast(buffer)?;
        buffer.download().map_err(TpuError::pjrt("reading a tensor"))
    }

    /// The CPU plugin transforms only row-major operands, and a dim that was split may arrive in another layout. Complex values
    /// exist only inside a program, so what makes and takes them apart is with the transform.
    fn lowers(&self, op: &Op) -> bool {
        !(self.is_cpu && matches!(op, Op::Fft { .. } | Op::Complex | Op::Real | Op::Imag))
    }

    fn is_remote(&self) -> bool {
        true
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
        Ok(Box::new(MeshProgram {
            results: results.into_iter().zip(placement.results.iter().cloned()).collect(),
            mesh: placement.mesh.clone(),
            loaded,
            devices: Arc::clone(&self.devices),
            in_flight: Arc::clone(&self.in_flight),
            launches: Arc::clone(&self.launches),
        }))
    }

    fn wait(&self) -> Result<()> {
        self.in_flight.wait()
    }
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
    /// Joins the parts. Of equal ones, the first is read; all transfers run at once.
    fn download(&self) -> burn_tpu_pjrt::Result<Vec<u8>> {
        if self.sharding.is_replicated() {
            return self.parts[0].to_host();
        }
        let mut regions: Vec<(Region, &Buffer)> = Vec::new();
        for (position, part) in self.parts.iter().enumerate() {
            let region = Region::of(&self.sharding, &self.ty, &self.mesh, position);
            if !regions.iter().any(|(known, _)| known.start == region.start) {
                regions.push((region, part));
            }
        }
        let reads = regions.into_iter().map(|(region, part)| part.start_read().map(|read| (region, read)));
        let reads = reads.collect::<burn_tpu_pjrt::Result<Vec<_>>>()?;
        let mut whole = vec![0; self.ty.bytes()];
        for (region, read) in reads {
            region.put(&read.wait()?, &mut whole);
        }
        Ok(whole)
    }
}

/// Returns whether devices with the same part have the same bits; `None` for a buffer of one device.
///
/// # Errors
/// Those of the transfers.
#[cfg(feature = "testing")]
pub(crate) fn replicas_agree(buffer: &SharedBuffer) -> Result<Option<bool>> {
    let Ok(buffer) = downcast::<MeshBuffer>(buffer) else { return Ok(None) };
    let mut known: Vec<(Vec<usize>, Vec<u8>)> = Vec::new();
    for (position, part) in buffer.parts.iter().enumerate() {
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

/// A device's part of a row-major array: a box.
struct Region {
    start: Vec<usize>,
    sizes: Vec<usize>,
    whole: Vec<usize>,
    element: usize,
}

impl Region {
    fn of(sharding: &Sharding, ty: &TensorType, mesh: &Mesh, device: usize) -> Self {
        Self {
            start: sharding.start(ty, mesh, device).to_vec(),
            sizes: sharding.local(ty, mesh).dims.to_vec(),
            whole: ty.dims.to_vec(),
            element: ty.dtype.size_bytes(),
        }
    }

    /// Calls `run` with each contiguous run of bytes: its place in the part, its place in the whole, its length.
    fn runs(&self, mut run: impl FnMut(usize, usize, usize)) {
        let split = (0..self.whole.len()).rev().find(|&dim| self.sizes[dim] != self.whole[dim]);
        let Some(last) = split else { return run(0, 0, self.whole.iter().product::<usize>() * self.element) };
        // The dims after `last` are whole, so that a run spans them all.
        let inner: usize = self.whole[last + 1..].iter().product::<usize>() * self.element;
        let length = self.sizes[last] * inner;
        for i in 0..self.sizes[..last].iter().product() {
            let (mut rest, mut at, mut stride) = (i, self.start[last], self.whole[last]);
            for dim in (0..last).rev() {
                at += (self.start[dim] + rest % self.sizes[dim]) * stride;
                rest /= self.sizes[dim];
                stride *= self.whole[dim];
            }
            run(i * length, at * inner, length);
        }
    }

    /// Returns the part's bytes.
    fn take(&self, whole: &[u8]) -> Vec<u8> {
        let mut part = Vec::with_capacity(self.sizes.iter().product::<usize>() * self.element);
        self.runs(|_, at, length| part.extend_from_slice(&whole[at..at + length]));
        part
    }

    /// Writes the part's bytes into the whole.
    fn put(&self, part: &[u8], whole: &mut [u8]) {
        self.runs(|from, at, length| whole[at..at + length].copy_from_slice(&part[from..from + length]));
    }
}

/// A program that is compiled for a mesh.
struct MeshProgram {
    loaded: Loaded,
    results: Vec<(TensorType, Sharding)>,
    mesh: Mesh,
    devices: Arc<[Device]>,
    in_flight: Arc<InFlight>,
    launches: Arc<Mutex<()>>,
}

impl Executable for MeshProgram {
    fn execute(&self, arguments: &mut Arguments, slots: &[u64]) -> Result<Execution> {
        let packed = self.devices.iter().map(|device| pack(&self.loaded, device, slots)).collect::<Result<Vec<_>>>()?;
        let (mut kept, mut donated) = (Vec::new(), Vec::new());
        let mut execution = Execution { footprint: self.loaded.footprint, ..Execution::default() };
        let mut inputs: Vec<Vec<&Buffer>> = vec![Vec::with_capacity(self.loaded.arguments.len()); self.devices.len()];
        let mut scalars: Vec<_> = packed.iter().map(|packed| packed.iter()).collect();
        for (position, (recipe, spec)) in self.loaded.arguments.iter().enumerate() {
            let Argument::Parameter { index, result, .. } = recipe else {
                inputs.iter_mut().zip(&mut scalars).for_each(|(inputs, scalars)| inputs.extend(scalars.next()));
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
            let buffer: &MeshBuffer = downcast(shared)?;
            inputs.iter_mut().zip(&buffer.parts).for_each(|(inputs, part)| inputs.push(part));
        }
        let lists: Vec<&[&Buffer]> = inputs.iter().map(Vec::as_slice).collect();
        let options = ExecuteOptions { non_donatable: &kept, events: true, ..ExecuteOptions::default() };
        let launch = self.launches.lock();
        let done = self.loaded.executable.execute(&lists, &options).map_err(TpuError::pjrt("running a program"))?;
        drop(launch);
        let donated = donated.into_iter().map(|index| take_argument(arguments, index)).collect::<Result<_>>()?;
        self.in_flight.push(Running { done: done.events, _donated: donated });
        execution.outputs = self.join(done.outputs);
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
        let results = self.results.iter().map(|(ty, sharding)| {
            let parts = devices.iter_mut().filter_map(Iterator::next).collect();
            let (ty, sharding, mesh) = (ty.clone(), sharding.clone(), self.mesh.clone());
            Arc::new(MeshBuffer { ty, sharding, mesh, parts }) as SharedBuffer
        });
        results.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn_tpu_graph::DType;
    use smallvec::smallvec;

    #[test]
    fn parts_join_to_the_whole() {
        let mesh = Mesh::new(&[("data".to_owned(), 2), ("model".to_owned(), 3)]).unwrap();
        let ty = TensorType::new(DType::I16, [4, 5, 6, 2]);
        let whole: Vec<u8> = (0..ty.bytes()).map(|byte| byte as u8).collect();
        let shardings = [
            Sharding::replicated(4),
            Sharding::first_dim(4, &[0]),
            Sharding::new([smallvec![], smallvec![], smallvec![1], smallvec![0]]),
            Sharding::new([smallvec![0], smallvec![], smallvec![1], smallvec![]]),
            Sharding::new([smallvec![], smallvec![], smallvec![1, 0], smallvec![]]),
        ];
        for sharding in shardings {
            let mut joined = vec![0; whole.len()];
            for device in 0..mesh.devices() {
                let region = Region::of(&sharding, &ty, &mesh, device);
                let part = region.take(&whole);
                assert_eq!(part.len(), sharding.local(&ty, &mesh).bytes(), "{sharding}");
                region.put(&part, &mut joined);
            }
            assert_eq!(joined, whole, "{sharding}");
        }
        // Row 1 of each column pair.
        let ty = TensorType::new(DType::U8, [2, 6]);
        let sharding = Sharding::new([smallvec![0], smallvec![1]]);
        let region = Region::of(&sharding, &ty, &mesh, 4);
        assert_eq!(region.take(&(0..12).collect::<Vec<u8>>()), [8, 9]);
    }
}
