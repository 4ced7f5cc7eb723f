//! Runs programs, and the host's parts of split programs, in the interpreter. Which these are, `tier` decides.

use super::arguments::{Argument, TraceArguments};
use super::families::Member;
use super::{DeviceRuntime, RunError, sharding_of};
use crate::engine::{self, HostTensor, Input, SharedBuffer, picked};
use crate::error::{Result, TpuError};
use crate::metrics::Counters;
use crate::profile::{self, Phase};
use crate::program::{CompiledProgram, Recorded};
use crate::recompile::RecordedRun;
use burn_tpu_graph::{Bindings, Program, Sharding, Source, Split, Transfer};
use std::sync::Arc;

impl DeviceRuntime {
    /// Runs a program in the interpreter; the results stay on the host. What is on the device is fetched, which may take
    /// until it is computed.
    ///
    /// # Errors
    /// [`RunError::Failed`]: an argument has no value, because the program that makes it failed.
    pub(super) fn interpret(
        &self,
        recorded: &Recorded,
        buffers: &[Input],
        slots: &[u64],
    ) -> Result<Vec<SharedBuffer>, RunError> {
        let program = self.compiler.rounded(&recorded.program).map_err(RunError::Refused)?;
        let nodes = program.graph().len();
        let _span = tracing::debug_span!("interpret", nodes).entered();
        let _profiled = profile::span(Phase::Interpret, "interpret");
        tracing::debug!(device = %self.open().device, nodes, "a program with little work runs in the interpreter");
        Counters::add(&self.open().counters.interpreted, 1);
        let results = self.interpreted(&program, recorded.bindings.parameters.iter().copied(), buffers, slots);
        let results = results.map_err(RunError::Failed)?;
        let held = program.output_types().zip(results);
        let held = held.map(|(ty, result)| self.open().hold(ty, result.into()));
        held.collect::<Result<_>>().map_err(RunError::Refused)
    }

    /// Returns the results of a program on the values of the given buffers.
    pub(super) fn interpreted(
        &self,
        program: &Program,
        parameters: impl Iterator<Item = u32>,
        buffers: &[Input],
        slots: &[u64],
    ) -> Result<Vec<HostTensor>> {
        let buffers: Vec<&Input> = parameters.map(|place| &buffers[place as usize]).collect();
        let mut arguments = vec![None; buffers.len()];
        for (index, ty) in program.parameters() {
            let buffer = buffers[index as usize].as_ref().map_err(|error| TpuError::clone(error))?;
            arguments[index as usize] = Some(self.open().fetch(ty, buffer)?);
        }
        engine::interpret_values(program, arguments, slots)
    }

    /// Runs a program in two parts: the host's in the interpreter, then the device's, which is compiled if it is new: as
    /// its family's program for a bucket, or as it is.
    ///
    /// # Errors
    /// [`RunError::Refused`] if the device's part did not begin.
    pub(super) fn run_split(
        &self,
        split: &Split,
        member: Option<&Member>,
        run: RecordedRun,
        buffers: &mut [Input],
    ) -> Result<Vec<SharedBuffer>, RunError> {
        let RecordedRun { recorded, slots, .. } = run;
        let (host, inputs) = &split.host;
        Counters::add(&self.open().counters.host_parts, 1);
        let parameters = inputs.parameters.iter().map(|&index| recorded.bindings.parameters[index as usize]);
        let results = self.interpreted(host, parameters, buffers, &picked(&inputs.slots, slots));
        let results = results.map_err(RunError::Refused)?;
        let on_device = match member {
            Some(member) => self.run_part_in_bucket(split, member, run, &results, buffers)?,
            None => self.run_part(split, run, &results, buffers)?,
        };
        let held = Vec::from_iter(host.output_types().zip(results));
        let mut outputs = Vec::with_capacity(split.outputs.len());
        for source in &split.outputs {
            outputs.push(match *source {
                Source::Device(result) => Arc::clone(&on_device[result]),
                Source::Host(result) => {
                    let (ty, value) = &held[result];
                    self.open().hold(ty, value.clone().into()).map_err(RunError::Failed)?
                }
            });
        }
        Ok(outputs)
    }

    /// Runs the device's part of a program on these results of the host's.
    fn run_part(
        &self,
        split: &Split,
        run: RecordedRun,
        results: &[HostTensor],
        buffers: &mut [Input],
    ) -> Result<Vec<SharedBuffer>, RunError> {
        let RecordedRun { recorded, slots, .. } = run;
        let (program, inputs) = &split.device;
        let bound = |index: &u32| recorded.bindings.parameters[*index as usize];
        let mut arguments = Vec::with_capacity(inputs.parameters.len());
        for index in &inputs.parameters {
            let is_transferred = *index >= split.first_transfer;
            arguments.push(if is_transferred { None } else { buffers[bound(index) as usize].as_ref().ok() });
        }
        let program = &self.placed(program, &arguments).map_err(RunError::Refused)?;
        let compiled = self.compiled_part(run, program, inputs).map_err(RunError::Refused)?;
        let sharding = |transfer: usize| {
            let index = split.first_transfer + transfer as u32;
            let place = inputs.parameters.iter().position(|&parameter| parameter == index);
            place.and_then(|place| sharding_of(program, place as u32))
        };
        let mut transfers = Vec::with_capacity(split.transfers.len());
        for (i, transfer) in split.transfers.iter().enumerate() {
            transfers.push(self.transfer(transfer, results, sharding(i)).map_err(RunError::Refused)?);
        }
        let sources = inputs.parameters.iter().map(|index| match index.checked_sub(split.first_transfer) {
            Some(transfer) => Argument::Own(Arc::clone(&transfers[transfer as usize])),
            None => Argument::OfTrace(bound(index)),
        });
        let mut taken = TraceArguments::new(buffers, sources);
        self.open().dispatch(program, &compiled, &mut taken.arguments, &picked(&inputs.slots, slots))
    }

    /// Runs the device's part of a program, whose transfers have one value each, as its family's program for a bucket.
    /// Values are padded before they are transferred.
    fn run_part_in_bucket(
        &self,
        split: &Split,
        member: &Member,
        run: RecordedRun,
        results: &[HostTensor],
        buffers: &mut [Input],
    ) -> Result<Vec<SharedBuffer>, RunError> {
        let (program, inputs) = &split.device;
        let mut sources = Vec::with_capacity(inputs.parameters.len());
        for &index in &inputs.parameters {
            sources.push(match index.checked_sub(split.first_transfer) {
                None => Argument::OfTrace(run.recorded.bindings.parameters[index as usize]),
                Some(transfer) => {
                    let transfer = &split.transfers[transfer as usize];
                    let value = results[transfer.results[0]].clone().into();
                    Argument::Own(self.open().hold(&transfer.ty, value).map_err(RunError::Refused)?)
                }
            });
        }
        let slots = picked(&inputs.slots, run.slots);
        self.run_in_bucket(member, program, sources, RecordedRun { slots: &slots, ..run }, buffers)
    }

    /// Returns the compiled form of the device's part of a program.
    pub(super) fn compiled_part(
        &self,
        run: RecordedRun,
        program: &Arc<Program>,
        inputs: &Bindings,
    ) -> Result<Arc<CompiledProgram>> {
        let own = picked(&inputs.slots, run.slots);
        match self.open().cache.get(program) {
            Some(compiled) if compiled.assumptions.hold(&own) => {
                Counters::add(&self.open().counters.cache_hits, 1);
                Ok(compiled)
            }
            older => self.compiler.compile(run, program, &[&own], older),
        }
    }

    /// Puts results of the host's part on the device, together.
    fn transfer(
        &self,
        transfer: &Transfer,
        results: &[HostTensor],
        sharding: Option<&Sharding>,
    ) -> Result<SharedBuffer> {
        let parts = transfer.results.iter().map(|&result| results[result].to_bytes());
        self.open().upload(&transfer.ty, parts.collect::<Vec<_>>().concat().into(), sharding)
    }
}
