//! Runs the programs of families: values go into buffers as large as their bucket, and results stay in theirs.
//!
//! Owns: passing values in larger buffers. May not know: how a bucket was chosen.

use super::arguments::{Argument, TraceArguments};
use super::families::Member;
use super::{DeviceRuntime, RunError};
use crate::Platform;
use crate::engine::{HostValue, Input, SharedBuffer};
use crate::error::{Result, TpuError};
use crate::metrics::Counters;
use crate::program::CompiledProgram;
use crate::recompile::RecordedRun;
use burn_tpu_graph::family::in_buffer;
use burn_tpu_graph::{Program, TensorType};
use std::sync::Arc;

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
        let (larger, slots) = (&member.bucket.program, member.slots(run.slots));
        let compiled = self.compiled_bucket(member, run, &slots).map_err(RunError::Refused)?;
        let types: Vec<&TensorType> = program.parameters().map(|(_, ty)| ty).collect();
        let (mut padded, mut lent) = (Vec::new(), Vec::new());
        for (place, (index, ty)) in member.parameters().enumerate() {
            let (own, source) = (types[index as usize], &sources[index as usize]);
            if own == ty {
                padded.push(source.clone());
                continue;
            }
            let value = match source {
                Argument::Own(value) => Ok(value),
                Argument::OfTrace(of_trace) => buffers[*of_trace as usize].as_ref(),
            };
            let value = value.map_err(|error| RunError::Refused(TpuError::clone(error)))?;
            let copy = self.in_bucket(value, own, ty).map_err(RunError::Refused)?;
            lent.push((place, Arc::clone(value), ty));
            padded.push(Argument::Own(copy));
        }
        drop(sources);
        let mut taken = TraceArguments::new(buffers, padded.into_iter());
        let results = self.open().dispatch(larger, &compiled, &mut taken.arguments, &slots);
        for (place, value, ty) in lent {
            if let (Some(value), Some(buffer)) = (HostValue::of(&value), taken.arguments[place].take()) {
                value.keep_larger(ty, &buffer);
            }
        }
        drop(taken);
        let results = results?;
        let counters = &self.open().counters;
        Counters::add(&counters.bucket_runs, 1);
        let value = |((ty, larger), buffer): ((&TensorType, &TensorType), SharedBuffer)| -> SharedBuffer {
            if ty == larger {
                return buffer;
            }
            Arc::new(HostValue::in_larger(ty.clone(), larger.clone(), buffer, Arc::clone(counters)))
        };
        Ok(program.output_types().zip(larger.output_types()).zip(results).map(value).collect())
    }

    fn compiled_bucket(&self, member: &Member, run: RecordedRun, slots: &[u64]) -> Result<Arc<CompiledProgram>> {
        let program = &member.bucket.program;
        match self.open().cache.get(program) {
            Some(compiled) if compiled.assumptions.hold(slots) => {
                Counters::add(&self.open().counters.cache_hits, 1);
                Ok(compiled)
            }
            older => self.compiler.compile(run, program, &[slots, &member.other_slots(run.slots)], older),
        }
    }

    /// Returns a value in a buffer of a larger type. One that is in such a buffer belongs to the program alone if its value
    /// does; another one is padded on the host.
    fn in_bucket(&self, buffer: &SharedBuffer, ty: &TensorType, larger: &TensorType) -> Result<SharedBuffer> {
        let is_owner = Arc::strong_count(buffer) == 1;
        let value = HostValue::of(buffer);
        if let Some(padded) = value.and_then(|value| value.larger(larger, is_owner)) {
            return Ok(padded);
        }
        // A slice that is not attached has types alone.
        let bytes = match self.open().device.platform() {
            Platform::Topology => vec![0; larger.bytes()],
            _ => in_buffer(self.open().download(buffer)?.as_ref(), ty, larger),
        };
        let padded = self.open().upload(larger, bytes.into(), None)?;
        if let Some(value) = value.filter(|_| !is_owner) {
            value.keep_larger(larger, &padded);
        }
        Ok(padded)
    }
}
