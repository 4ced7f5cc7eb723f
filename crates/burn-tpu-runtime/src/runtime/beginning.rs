//! Runs a first program as what makes its initial values, and the rest: the program of the next step or call.
//!
//! Each maker runs in the interpreter if that is quicker than its compile; equal makers are compiled once. On a mesh, the
//! parts have placements of their own, by which the rest is the program of the next step there too.

use super::arguments::{Argument, TraceArguments};
use super::tier::{COMPILE_WORK, COMPILE_WORK_PER_NODE, WORK_PER_NODE};
use super::{DeviceRuntime, RunError};
use crate::engine::{Input, OfUndivided, SharedBuffer, picked};
use crate::error::{Result, TpuError};
use crate::metrics::Counters;
use crate::program::{CompiledProgram, Recorded, SlotAssumptions};
use crate::recompile::RecordedRun;
use burn_tpu_graph::{Beginning, Maker, NodeId, Program, Source, Starts, Undivided};
use std::sync::Arc;

impl DeviceRuntime {
    /// Returns a new program divided at its initial values, if it has any. `given` are its parameters that are data which no
    /// program has read.
    pub(super) fn beginning(
        &self,
        recorded: &Recorded,
        given: &[u32],
        starts: impl FnOnce() -> Starts,
    ) -> Result<Option<Arc<Beginning>>> {
        if !self.open().engine()?.transfers_values() {
            return Ok(None);
        }
        let program = &recorded.program;
        let of = || {
            let beginning = Beginning::of(program, |index| given.contains(&index), &in_program(recorded, starts()))?;
            Ok(beginning.map(|beginning| self.placed_parts(beginning, recorded)))
        };
        let beginning = self.open().cache.beginning(program, given, of);
        let beginning = beginning.map_err(|error| TpuError::Bug(error.to_string()))?;
        Ok(beginning.filter(|beginning| !self.compiler.is_frozen() || self.is_ready(beginning)))
    }

    /// Returns a program as it was divided at its initial values before, if nothing of it would be compiled: a loop whose
    /// batch was made of new data in its first step has the same makers in each.
    pub(super) fn begun_before(&self, recorded: &Recorded, given: &[u32]) -> Option<Arc<Beginning>> {
        let known = self.open().cache.known_beginning(&recorded.program, given).flatten();
        known.filter(|beginning| self.is_ready(beginning))
    }

    /// Returns the compiled form of a program that is one in memory if inputs are not divided by one, and keeps it.
    pub(super) fn undivided(&self, recorded: &Recorded, slots: &[u64]) -> Result<Option<Arc<CompiledProgram>>> {
        let undivided = Undivided::of(&recorded.program, slots).map_err(|error| TpuError::Bug(error.to_string()))?;
        let undivided = undivided.and_then(|undivided| self.placed_alike(undivided, recorded));
        let Some(undivided) = undivided else { return Ok(None) };
        let (program, inputs) = &undivided.program;
        let known = self.open().cache.get(program);
        let known = known.filter(|known| known.assumptions.hold(&picked(&inputs.slots, slots)));
        let Some(known) = known else { return Ok(None) };
        let assumptions = SlotAssumptions::of_pieces(std::iter::once((&*known.assumptions, &*inputs.slots)));
        let assumptions = Arc::new(assumptions.with_constants(&undivided.ones));
        self.recompiles().join(&recorded.program, program);
        let executable = Arc::new(OfUndivided::new(undivided, Arc::clone(&known.executable)));
        let compiled = Arc::new(CompiledProgram { executable, assumptions });
        self.open().cache.insert(Arc::clone(&recorded.program), Arc::clone(&compiled), &self.open().counters);
        Ok(Some(compiled))
    }

    /// Returns whether nothing would be compiled.
    fn is_ready(&self, beginning: &Beginning) -> bool {
        let is_ready = |program: &Arc<Program>| self.open().cache.get(program).is_some();
        let maker_is_ready = |maker: &Maker| self.is_interpreted_maker(&maker.program) || is_ready(&maker.program);
        is_ready(&beginning.rest.0) && beginning.makers.iter().all(maker_is_ready)
    }

    /// Returns whether the interpreter makes a value sooner than its program is compiled.
    fn is_interpreted_maker(&self, maker: &Program) -> bool {
        let nodes = maker.graph().len() as u64;
        let compile = COMPILE_WORK + nodes * COMPILE_WORK_PER_NODE;
        self.tiers_from().is_some() && maker.summary().work + WORK_PER_NODE * nodes <= compile
    }

    /// Makes the initial values of a program, and runs the rest of it.
    ///
    /// # Errors
    /// [`RunError::Refused`] if the rest did not begin.
    pub(super) fn run_begun(
        &self,
        beginning: &Beginning,
        run: RecordedRun,
        buffers: &mut [Input],
    ) -> Result<Vec<SharedBuffer>, RunError> {
        let RecordedRun { recorded, slots, .. } = run;
        let (program, inputs) = &beginning.rest;
        let compiled = self.compiled_part(run, program, inputs).map_err(RunError::Refused)?;
        self.recompiles().join(program, &recorded.program);
        let mut values: Vec<Option<SharedBuffer>> = Vec::new();
        for maker in &beginning.makers {
            let made = self.make(maker, run, buffers).map_err(RunError::Refused)?;
            for (&value, made) in maker.values.iter().zip(made) {
                values.resize(values.len().max(value + 1), None);
                values[value] = Some(made);
            }
        }
        let value = |index: usize| {
            let value = values.get(index).cloned().flatten();
            value.ok_or_else(|| RunError::Refused(TpuError::Bug("an initial value was not made".to_owned())))
        };
        // What a later program takes stays; the rest may reuse the memory of the others.
        let mut kept = Vec::with_capacity(beginning.outputs.len());
        for source in &beginning.outputs {
            kept.push(if let Source::Host(index) = *source { Some(value(index)?) } else { None });
        }
        let mut sources = Vec::with_capacity(inputs.parameters.len());
        for &index in &inputs.parameters {
            sources.push(match index.checked_sub(beginning.first_value) {
                Some(index) => Argument::Own(value(index as usize)?),
                None => Argument::OfTrace(recorded.bindings.parameters[index as usize]),
            });
        }
        drop(values);
        let mut taken = TraceArguments::new(buffers, sources.into_iter());
        let results = self.open().dispatch(program, &compiled, &mut taken.arguments, &picked(&inputs.slots, slots))?;
        let outputs = beginning.outputs.iter().zip(kept).filter_map(|(source, kept)| match *source {
            Source::Device(result) => results.get(result).cloned(),
            Source::Host(_) => kept,
        });
        Ok(outputs.collect())
    }

    /// Returns the values that a maker makes. The trace keeps its buffers.
    fn make(&self, maker: &Maker, run: RecordedRun, buffers: &[Input]) -> Result<Vec<SharedBuffer>> {
        let RecordedRun { recorded, slots, .. } = run;
        let parameters = || maker.inputs.parameters.iter().map(|&index| recorded.bindings.parameters[index as usize]);
        let slots = picked(&maker.inputs.slots, slots);
        if self.is_interpreted_maker(&maker.program) {
            Counters::add(&self.open().counters.host_parts, 1);
            let program = self.compiler.rounded(&maker.program)?;
            let results = self.interpreted(&program, parameters(), buffers, &slots)?;
            let held = program.output_types().zip(results);
            return held.map(|(ty, result)| self.open().hold(ty, result.into())).collect();
        }
        let compiled = self.compiler.compile_unrecorded(&maker.program, std::slice::from_ref(&slots))?;
        let mut arguments = parameters().map(|place| buffers[place as usize].clone().ok()).collect();
        let results = self.open().dispatch(&maker.program, &compiled, &mut arguments, &slots);
        results.map_err(|error| match error {
            RunError::Refused(error) | RunError::Failed(error) => error,
        })
    }
}

/// Returns what the nodes of a recording are in its program. Those that were recorded after it are not in it.
fn in_program(recorded: &Recorded, starts: Starts) -> Starts {
    let mut places = vec![None; recorded.graph.len()];
    for (place, node) in recorded.program.graph().ids().zip(&recorded.bindings.nodes) {
        places[node.index()] = Some(place);
    }
    let place = |node: NodeId| places.get(node.index()).copied().flatten();
    let of = |nodes: Vec<NodeId>| nodes.into_iter().filter_map(place).collect();
    Starts { initial: of(starts.initial), created: of(starts.created), ..starts }
}
