//! An open device: its engine, and what goes to it and comes from it. Transfers, dispatches and waits are counted here.
//!
//! May not know: how a program is found or compiled, which program is interpreted.

use super::RunError;
use super::arguments::OnDevice;
use super::placement::sharding_of;
use crate::activity::{Activity, WaitFor, Waiting, describe, waits};
use crate::engine::{
    Arguments, Engine, Execution, HostBytes, HostElements, HostTensor, HostValue, MOST_WAITING_BYTES, Maker,
    SharedBuffer,
};
use crate::error::{Result, TpuError};
use crate::lines::Lines;
use crate::metrics::Counters;
use crate::options::TpuOptions;
use crate::profile::{self, Phase};
use crate::program::{CompiledProgram, ProgramCache};
use crate::region::{Part, Region};
use crate::{Device, Platform};
use burn_tpu_graph::{Label, Program, Sharding, TensorType};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

/// A device with its engine, the programs and values in its memory, and the counts of what it did.
pub(crate) struct OpenDevice {
    pub(super) device: Device,
    pub(super) options: TpuOptions,
    /// A device that is missing keeps the reason; every upload, run and read answers with it.
    pub(super) engine: Result<Arc<dyn Engine>>,
    pub(super) cache: ProgramCache,
    pub(super) counters: Arc<Counters>,
    pub(super) lines: Lines,
}

impl OpenDevice {
    pub(crate) fn device(&self) -> Device {
        self.device
    }

    pub(crate) fn options(&self) -> &TpuOptions {
        &self.options
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    pub(crate) fn cache(&self) -> &ProgramCache {
        &self.cache
    }

    pub(crate) fn engine(&self) -> Result<&Arc<dyn Engine>> {
        self.engine.as_ref().map_err(Clone::clone)
    }

    /// Returns the label of the nodes that an op is about to record: its name, or with the line of source.
    pub(crate) fn label(&self, op: Label) -> Label {
        self.lines.labels.as_ref().map_or(op, |labels| labels.label(op))
    }

    /// Returns the stacks that the device keeps.
    pub(crate) fn lines(&self) -> &Lines {
        &self.lines
    }

    /// Puts a value on the device; on a mesh, split as `sharding` says.
    pub(crate) fn upload(
        &self,
        ty: &TensorType,
        bytes: HostBytes,
        sharding: Option<&Sharding>,
    ) -> Result<SharedBuffer> {
        Counters::add(&self.counters.uploads, 1);
        Counters::add(&self.counters.upload_bytes, ty.bytes());
        let _span = tracing::trace_span!("transfer", direction = "upload", bytes = ty.bytes()).entered();
        let _wait = self.waiting(WaitFor::Upload);
        let _profiled = profile::span(Phase::Transfer, "upload");
        let uploaded = self.engine()?.upload(ty, bytes, sharding);
        uploaded.map_err(|error| self.explain_memory(error, || format!("a value {ty} from the host")))
    }

    /// Puts this process's rows of a batch on a mesh of several processes, and returns the type of the batch; `None` on
    /// any other device.
    pub(crate) fn upload_rows(&self, ty: &TensorType, bytes: HostBytes) -> Result<Option<(TensorType, SharedBuffer)>> {
        let _wait = self.waiting(WaitFor::Upload);
        let uploaded = self.engine()?.upload_rows(ty, bytes)?;
        if uploaded.is_some() {
            Counters::add(&self.counters.uploads, 1);
            Counters::add(&self.counters.upload_bytes, ty.bytes());
        }
        Ok(uploaded)
    }

    /// Returns the device's copy of a value, which stays the value's; on a mesh, a new one is split as `sharding` says.
    pub(crate) fn on_device(&self, buffer: &SharedBuffer, sharding: Option<&Sharding>) -> Result<SharedBuffer> {
        let Some(value) = HostValue::of(buffer) else { return Ok(Arc::clone(buffer)) };
        self.take_out(value)?;
        value.on_device(false, |ty, bytes| self.upload(ty, bytes, sharding))
    }

    /// Copies the elements of a value to the host that is in a larger buffer alone.
    pub(super) fn take_out(&self, value: &HostValue) -> Result<()> {
        if let Some((ty, buffer)) = value.only_larger() {
            value.keep_part(&ty, self.download(&buffer)?.as_ref());
        }
        Ok(())
    }

    /// Returns the bytes of a value. One that is on the device is waited for and copied to the host.
    pub(crate) fn download(&self, buffer: &SharedBuffer) -> Result<HostBytes> {
        let value = HostValue::of(buffer);
        value.map_or(Ok(()), |value| self.take_out(value))?;
        if let Some(bytes) = value.and_then(HostValue::bytes) {
            return Ok(bytes);
        }
        let transferred = value.and_then(HostValue::buffer);
        let buffer = transferred.as_ref().unwrap_or(buffer);
        let start = Instant::now();
        let _span = tracing::trace_span!("transfer", direction = "download").entered();
        let _wait = self.waiting(WaitFor::Read);
        if profile::is_active() {
            let _waits = profile::span(Phase::Wait, "value");
            self.engine()?.wait_for(buffer)?;
        }
        let _profiled = profile::span(Phase::Transfer, "download");
        let bytes = self.engine()?.download(buffer);
        let bytes =
            bytes.map_err(|error| self.explain_memory(error, || "the program that computes a value".to_owned()))?;
        let bytes = HostBytes::from(bytes);
        Counters::add_time(&self.counters.read_ns, start.elapsed());
        Counters::add(&self.counters.downloads, 1);
        Counters::add(&self.counters.download_bytes, bytes.as_ref().len());
        Ok(bytes)
    }

    /// Returns the parts of a value on a mesh of several processes; `None` if this process has the whole value.
    pub(crate) fn parts(&self, buffer: &SharedBuffer) -> Result<Option<Vec<Part>>> {
        match self.transferred(buffer)? {
            Some(buffer) => self.engine()?.parts(&buffer),
            None => Ok(None),
        }
    }

    /// Copies parts of a value to the host that this process has, of those that [`OpenDevice::parts`] returned. On
    /// several processes, unlike a download, it is no launch.
    pub(crate) fn download_parts(&self, buffer: &SharedBuffer, regions: &[Region]) -> Result<Vec<Vec<u8>>> {
        let buffer =
            self.transferred(buffer)?.ok_or_else(|| TpuError::Bug("a value of the host has no parts".into()))?;
        let start = Instant::now();
        let _wait = self.waiting(WaitFor::Read);
        let parts = self.engine()?.download_parts(&buffer, regions)?;
        Counters::add_time(&self.counters.read_ns, start.elapsed());
        Counters::add(&self.counters.downloads, 1);
        Counters::add(&self.counters.download_bytes, parts.iter().map(Vec::len).sum());
        Ok(parts)
    }

    /// Returns the device's copy of a value whose elements are not on the host.
    fn transferred(&self, buffer: &SharedBuffer) -> Result<Option<SharedBuffer>> {
        let Some(value) = HostValue::of(buffer) else { return Ok(Some(Arc::clone(buffer))) };
        self.take_out(value)?;
        Ok(value.buffer().filter(|_| value.bytes().is_none()))
    }

    /// Puts a value on the device of which the regions are given that this process needs.
    pub(crate) fn upload_regions(
        &self,
        ty: &TensorType,
        sharding: &Sharding,
        regions: Vec<(Region, HostBytes)>,
    ) -> Result<SharedBuffer> {
        Counters::add(&self.counters.uploads, 1);
        Counters::add(&self.counters.upload_bytes, regions.iter().map(|(_, bytes)| bytes.as_ref().len()).sum());
        let _wait = self.waiting(WaitFor::Upload);
        let uploaded = self.engine()?.upload_regions(ty, sharding, regions);
        uploaded.map_err(|error| self.explain_memory(error, || format!("a value {ty} from the host")))
    }

    /// Waits until everything dispatched has finished.
    pub(crate) fn wait(&self) -> Result<()> {
        let start = Instant::now();
        let _wait = self.waiting(WaitFor::Programs);
        let _profiled = profile::span(Phase::Wait, "device");
        let waited = self.engine()?.wait();
        let waited = waited.map_err(|error| self.explain_memory(error, || "a program".to_owned()));
        Counters::add_time(&self.counters.wait_ns, start.elapsed());
        waited
    }

    /// Notes that the calling thread waits until the returned value is dropped.
    pub(super) fn waiting(&self, what: WaitFor) -> Waiting {
        Waiting::new(Some(self.device), what)
    }

    /// Returns what the device does at this moment.
    pub(super) fn activity(&self) -> Activity {
        let programs = self.engine.as_ref().map(|engine| engine.in_flight()).unwrap_or_default();
        Activity { device: self.device, programs, waits: waits(self.device) }
    }

    /// Returns a value as the interpreter has it. One that is on the device is waited for and copied to the host. It
    /// stays there too if it came from there and the device's memory is the host's: a weight is copied once.
    pub(super) fn fetch(&self, ty: &TensorType, buffer: &SharedBuffer) -> Result<HostTensor> {
        let value = HostValue::of(buffer);
        value.map_or(Ok(()), |value| self.take_out(value))?;
        if let Some(tensor) = value.and_then(HostValue::tensor) {
            return Ok(tensor);
        }
        let tensor = HostTensor::from_bytes(ty.clone(), self.download(buffer)?);
        if let Some(value) = value.filter(|_| self.device.platform() == Platform::Cpu) {
            value.keep(&tensor);
        }
        Ok(tensor)
    }

    /// Returns a buffer of a value that is on the host. It is transferred when a compiled program reads it; at once if
    /// too much waits already. On a mesh it always waits, since that program says how it is split: weights that are larger
    /// than a chip's memory are given first and placed then.
    pub(crate) fn hold(&self, ty: &TensorType, elements: HostElements) -> Result<SharedBuffer> {
        self.hold_of(Maker::Program, ty, elements)
    }

    /// [`OpenDevice::hold`] of a value that the user gave.
    pub(crate) fn hold_input(&self, ty: &TensorType, elements: HostElements) -> Result<SharedBuffer> {
        self.hold_of(Maker::User, ty, elements)
    }

    fn hold_of(&self, maker: Maker, ty: &TensorType, elements: HostElements) -> Result<SharedBuffer> {
        let waiting = self.counters.waiting_bytes.load(std::sync::atomic::Ordering::Relaxed) + ty.bytes() as u64;
        let engine = self.engine()?;
        let (waits, is_mesh) = (engine.transfers_values(), engine.mesh().is_some());
        if !is_mesh && (!waits || waiting > MOST_WAITING_BYTES) {
            let kept = elements.kept(ty);
            let buffer = self.upload(ty, elements.bytes(), None)?;
            // Who asks whether a program has read it finds out.
            if !waits || maker != Maker::User {
                return Ok(buffer);
            }
            return Ok(Arc::new(HostValue::transferred(ty.clone(), kept, buffer, Arc::clone(&self.counters))));
        }
        Ok(Arc::new(HostValue::new(ty.clone(), elements, maker, Arc::clone(&self.counters))))
    }

    /// Runs a compiled program on its arguments. Those that it does not take stay.
    pub(super) fn dispatch(
        &self,
        program: &Program,
        compiled: &CompiledProgram,
        arguments: &mut Arguments,
        slots: &[u64],
    ) -> Result<Vec<SharedBuffer>, RunError> {
        let _span = tracing::debug_span!("execute").entered();
        let _profiled = profile::span(Phase::Dispatch, "dispatch");
        let upload = |place: usize, ty: &TensorType, bytes| self.upload(ty, bytes, sharding_of(program, place as u32));
        let on_device = OnDevice::new(arguments, |value| self.take_out(value), upload).map_err(RunError::Refused)?;
        let start = Instant::now();
        let _wait = self.waiting(WaitFor::Dispatch);
        let run = || compiled.executable.execute(on_device.arguments, slots);
        let panicked = |_| Err(TpuError::Bug(format!("the engine of {} panicked", self.device)));
        let execution = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(panicked);
        let what = || describe(program).to_string();
        let execution = execution.map_err(|error| match on_device.is_complete() {
            true => RunError::Refused(self.explain_memory(error, what)),
            false => RunError::Failed(self.explain_memory(error, what)),
        })?;
        Counters::add_time(&self.counters.dispatch_ns, start.elapsed());
        self.count(&execution);
        Ok(execution.outputs)
    }

    fn count(&self, execution: &Execution) {
        let counters = &self.counters;
        Counters::add(&counters.executions, 1);
        Counters::add(&counters.donated_buffers, execution.donated_buffers);
        Counters::add(&counters.donated_bytes, execution.donated_bytes);
        Counters::add(&counters.argument_bytes, execution.footprint.arguments);
        Counters::add(&counters.output_bytes, execution.footprint.outputs);
        Counters::add(&counters.alias_bytes, execution.footprint.aliases);
        Counters::add(&counters.temporary_bytes, execution.footprint.temporaries);
        Counters::add(&counters.pieces, execution.pieces);
        execution.host_ops.iter().for_each(|op| counters.fallback(op));
    }
}
