//! Runs the programs of families: values go into buffers as large as their bucket, and results stay in theirs.
//!
//! Owns: passing values in larger buffers; on a mesh, how these are split. May not know: how a bucket was chosen.

use super::arguments::{Argument, TraceArguments};
use super::families::{Bucket, FamilyDevice, Member};
use super::forms::Form;
use super::{DeviceRuntime, RunError, sharding_of, sharding_of_value};
use crate::Platform;
use crate::engine::{Arguments, HostValue, Input, MeshAxes, SharedBuffer};
use crate::error::{Result, TpuError};
use crate::metrics::Counters;
use crate::program::{CompiledProgram, Recorded};
use crate::recompile::RecordedRun;
use burn_tpu_graph::family::{Family, in_buffer};
use burn_tpu_graph::{Arrival, Program, Sharding, TensorType};
use std::sync::Arc;

/// A program that may be of a family.
pub(super) struct Candidate<'a> {
    pub(super) runtime: &'a DeviceRuntime,
    /// On a mesh, what the program's arguments are.
    pub(super) on_mesh: Option<MeshCandidate<'a>>,
}

/// A recording on a mesh, with the values that it reads.
pub(super) struct MeshCandidate<'a> {
    pub(super) axes: &'a MeshAxes,
    pub(super) recorded: &'a Recorded,
    pub(super) buffers: &'a [Input],
}

impl MeshCandidate<'_> {
    /// Returns the value of a parameter of the recorded program.
    fn value(&self, index: u32) -> Option<&SharedBuffer> {
        self.buffers[self.recorded.bindings.parameters[index as usize] as usize].as_ref().ok()
    }
}

impl FamilyDevice for Candidate<'_> {
    fn multiples(&self, family: &Family, form: &Form) -> Vec<i64> {
        let Some(mesh) = &self.on_mesh else { return vec![1; family.varying()] };
        let in_larger = |value: &SharedBuffer| HostValue::of(value)?.only_larger()?.1.sharding().cloned();
        let sharding = |value: &SharedBuffer| sharding_of_value(value).or_else(|| in_larger(value));
        let arrival = |index| mesh.value(form.parameter(index)).and_then(sharding).map_or(Arrival::Host, Arrival::Mesh);
        let parameters = 0..form.program().parameters().count() as u32;
        family.multiples(&mesh.axes.mesh, &mesh.axes.batch, &parameters.map(arrival).collect::<Vec<_>>())
    }

    fn placed(&self, bucket: &Bucket, form: &Form) -> Arc<Program> {
        let Some(mesh) = &self.on_mesh else { return Arc::clone(&bucket.program) };
        let types: Vec<&TensorType> = mesh.recorded.program.parameters().map(|(_, ty)| ty).collect();
        let arrival = |(index, larger): (u32, &TensorType)| {
            let index = form.parameter(index);
            let sharding = mesh.value(index).and_then(|value| match types[index as usize] == larger {
                true => sharding_of_value(value),
                false => sharding_in_larger(value, larger, mesh.axes),
            });
            sharding.map_or(Arrival::Host, Arrival::Mesh)
        };
        self.runtime.placed_for(&bucket.program, mesh.axes, bucket.parameters().map(arrival).collect())
    }

    fn is_in_memory(&self, program: &Arc<Program>) -> bool {
        self.runtime.open().cache.get(program).is_some()
    }
}

/// Returns how a value is split in a larger buffer: in the one that it is in, or else as in its own, if that has equal
/// parts. One that is whole on every device, perhaps for want of equal parts, goes there by way of the host, and may be
/// split.
fn sharding_in_larger(value: &SharedBuffer, ty: &TensorType, axes: &MeshAxes) -> Option<Sharding> {
    let known = HostValue::of(value).and_then(|value| value.sharding_in(ty));
    let is_kept = |sharding: &Sharding| !sharding.is_replicated() && sharding.check(ty, &axes.mesh).is_ok();
    known.or_else(|| sharding_of_value(value).filter(is_kept))
}

/// The arguments of a bucket's program. When this is dropped, the recorded program gets back those that were not taken.
struct BucketArguments<'a> {
    recorded: &'a mut Arguments,
    /// By place: the index among the recorded arguments, and the value of one that is in a larger buffer here.
    places: Vec<(usize, Option<(SharedBuffer, &'a TensorType)>)>,
    arguments: Arguments,
}

impl DeviceRuntime {
    /// Runs a recording as its family's program for a bucket, which is compiled if it is new.
    ///
    /// # Errors
    /// [`RunError::Refused`] if the program did not begin.
    pub(super) fn run_member(
        &self,
        member: &Member,
        run: RecordedRun,
        buffers: &mut [Input],
    ) -> Result<Vec<SharedBuffer>, RunError> {
        let recorded = run.recorded;
        let sources = recorded.bindings.parameters.iter().copied().map(Argument::OfTrace).collect();
        self.run_in_bucket(member, &recorded.program, sources, run, buffers)
    }

    /// Runs a recorded program, or the device's part of one, as its family's program for a bucket. `sources` are its
    /// arguments, by index, and `run` has its slots.
    ///
    /// # Errors
    /// [`RunError::Refused`] if the program did not begin.
    pub(super) fn run_in_bucket(
        &self,
        member: &Member,
        program: &Program,
        sources: Vec<Argument>,
        run: RecordedRun,
        buffers: &mut [Input],
    ) -> Result<Vec<SharedBuffer>, RunError> {
        let compiled = self.compiled_bucket(member, run).map_err(RunError::Refused)?;
        let mut taken = TraceArguments::new(buffers, sources.into_iter());
        self.dispatch_member(member, &compiled, (program, run.slots), &mut taken.arguments)
    }

    /// Runs a bucket's program on the arguments of a recorded program. Those that it does not take stay.
    ///
    /// # Errors
    /// [`RunError::Refused`] if the program did not begin.
    pub(super) fn dispatch_member(
        &self,
        member: &Member,
        compiled: &CompiledProgram,
        (program, slots): (&Program, &[u64]),
        arguments: &mut Arguments,
    ) -> Result<Vec<SharedBuffer>, RunError> {
        let larger = &member.program;
        let results = self
            .in_buckets(member, program, arguments)
            .map_err(RunError::Refused)
            .and_then(|mut own| self.open().dispatch(larger, compiled, &mut own.arguments, &member.slots(slots)));
        if matches!(&results, Err(RunError::Refused(error)) if error.is_out_of_memory()) {
            arguments.iter().flatten().filter_map(HostValue::of).for_each(HostValue::free_larger);
        }
        let results = results?;
        let counters = &self.open().counters;
        let (elements, padding) = member.elements();
        Counters::add(&counters.bucket_runs, 1);
        Counters::add(&counters.bucket_elements, elements as usize);
        Counters::add(&counters.bucket_padding, padding as usize);
        let value = |((ty, larger), buffer): ((&TensorType, &TensorType), SharedBuffer)| -> SharedBuffer {
            if ty == larger {
                return buffer;
            }
            Arc::new(HostValue::in_larger(ty.clone(), larger.clone(), buffer, Arc::clone(counters)))
        };
        Ok(program.output_types().zip(larger.output_types()).zip(results).map(value).collect())
    }

    /// Returns the compiled program of a member's bucket, which is compiled now if it does not serve the run.
    pub(super) fn compiled_bucket(&self, member: &Member, run: RecordedRun) -> Result<Arc<CompiledProgram>> {
        let program = &member.program;
        match self.open().cache.get(program) {
            Some(compiled) if compiled.assumptions.hold(&member.slots(run.slots)) => {
                Counters::add(&self.open().counters.cache_hits, 1);
                Ok(compiled)
            }
            older => {
                let compiled = self.compiler.compile_bucket(run, member, older)?;
                let is_new = !compiled.executable.is_from_disk();
                Counters::add(&self.open().counters.bucket_compiles, usize::from(is_new));
                Ok(compiled)
            }
        }
    }

    /// Returns the program of the exact sizes for a run that was refused as a member of a bucket with this error: the bucket
    /// does not fit into the device's memory, and is left out from now on.
    ///
    /// # Errors
    /// The error itself, if that is not why the run was refused, or if nothing may be compiled. Those of the compile.
    pub(super) fn exact_instead(
        &self,
        member: &Member,
        run: RecordedRun,
        error: TpuError,
    ) -> Result<Arc<CompiledProgram>> {
        if self.compiler.is_frozen() || !self.families.leaves_out(member, &error) {
            return Err(error);
        }
        let RecordedRun { recorded, slots, .. } = run;
        match self.open().cache.get(&recorded.program) {
            Some(compiled) if compiled.assumptions.hold(slots) => Ok(compiled),
            older => {
                self.warn_of_uneven_batches(recorded);
                self.compiler.compile(run, &recorded.program, &[slots], older)
            }
        }
    }

    /// Takes the arguments of a recorded program as those of a bucket's.
    fn in_buckets<'a>(
        &self,
        member: &'a Member,
        program: &Program,
        arguments: &'a mut Arguments,
    ) -> Result<BucketArguments<'a>> {
        let types: Vec<&TensorType> = program.parameters().map(|(_, ty)| ty).collect();
        let mut own = BucketArguments { recorded: arguments, places: Vec::new(), arguments: Vec::new() };
        for (place, (index, larger)) in member.parameters().enumerate() {
            let (index, ty) = (index as usize, types[index as usize]);
            let Some(buffer) = own.recorded[index].take() else {
                return Err(TpuError::Bug(format!("parameter {index} has no buffer")));
            };
            if ty == larger {
                own.places.push((index, None));
                own.arguments.push(Some(buffer));
                continue;
            }
            match self.in_bucket(&buffer, ty, larger, sharding_of(&member.program, place as u32)) {
                Ok(padded) => own.arguments.push(Some(padded)),
                Err(error) => {
                    own.recorded[index] = Some(buffer);
                    return Err(error);
                }
            }
            own.places.push((index, Some((buffer, larger))));
        }
        Ok(own)
    }

    /// Returns a value in a buffer of a larger type. One that is in such a buffer belongs to the program alone if its value
    /// does; another one is padded on the host. On a mesh, it is split as `sharding` says.
    fn in_bucket(
        &self,
        buffer: &SharedBuffer,
        ty: &TensorType,
        larger: &TensorType,
        sharding: Option<&Sharding>,
    ) -> Result<SharedBuffer> {
        let is_owner = Arc::strong_count(buffer) == 1;
        let value = HostValue::of(buffer);
        if let Some(padded) = value.and_then(|value| value.larger(larger, sharding, is_owner)) {
            return Ok(padded);
        }
        // A slice that is not attached has types alone.
        let bytes = match self.open().device.platform() {
            Platform::Topology => vec![0; larger.bytes()],
            _ => in_buffer(self.open().download(buffer)?.as_ref(), ty, larger),
        };
        let padded = self.open().upload(larger, bytes.into(), sharding)?;
        self.open().lines.uploads.note_larger(ty, larger);
        if let Some(value) = value.filter(|_| !is_owner) {
            value.keep_larger(larger, &padded);
        }
        Ok(padded)
    }

    /// Returns a value that every call of a function reads in a larger buffer, if a member's bucket has it so.
    pub(super) fn captured_in_bucket(
        &self,
        member: &Member,
        recorded: &Recorded,
        index: usize,
        value: &SharedBuffer,
    ) -> Result<Option<SharedBuffer>> {
        let ty = recorded.program.parameters().nth(index).map(|(_, ty)| ty);
        let larger = member.parameters().find(|&(parameter, _)| parameter as usize == index).map(|(_, ty)| ty);
        let Some((ty, larger)) = ty.zip(larger).filter(|(ty, larger)| ty != larger) else { return Ok(None) };
        let padded = self.in_bucket(value, ty, larger, None)?;
        let counters = Arc::clone(&self.open().counters);
        Ok(Some(Arc::new(HostValue::in_larger(ty.clone(), larger.clone(), padded, counters))))
    }
}

impl Drop for BucketArguments<'_> {
    fn drop(&mut self) {
        for ((index, value), argument) in self.places.drain(..).zip(self.arguments.drain(..)) {
            let Some((value, larger)) = value else {
                self.recorded[index] = argument;
                continue;
            };
            if let Some((host, padded)) = HostValue::of(&value).zip(argument.as_ref()) {
                host.keep_larger(larger, padded);
            }
            self.recorded[index] = argument.map(|_| value);
        }
    }
}
