//! Places programs on a mesh: finds where their arguments are, and has `burn-tpu-graph` choose the rest.

use super::DeviceRuntime;
use crate::engine::{HostValue, Input, MeshAxes, SharedBuffer};
use crate::error::{Result, TpuError};
use crate::program::{Recorded, Subgraph};
use burn_tpu_graph::{
    Arrival, Beginning, Bindings, Placement, Program, Sharding, Source, TensorType, Undivided, UndividedOutput,
};
use rustc_hash::FxHashMap;
use std::sync::Arc;

impl DeviceRuntime {
    /// Returns a recorded subgraph with its program, which has a placement on a mesh.
    pub(crate) fn recorded(&self, subgraph: &Subgraph, buffers: &[Input]) -> Result<Arc<Recorded>> {
        let bug = |error: burn_tpu_graph::GraphError| TpuError::Bug(error.to_string());
        let Some(axes) = self.open().engine().ok().and_then(|engine| engine.mesh()) else {
            return self.open().cache.recorded(subgraph, &[], |program, _| self.flagged(program)).map_err(bug);
        };
        let arrivals = self.arrivals(buffers.iter().map(|buffer| buffer.as_ref().ok()));
        let place = |program: Program, parameters: &[u32]| {
            let program = self.flagged(program);
            let (placement, _) = placement(&program, axes, &of_parameters(parameters, &arrivals));
            program.placed(placement)
        };
        self.open().cache.recorded(subgraph, &arrivals, place).map_err(bug)
    }

    /// Returns where arguments are on a mesh; nothing on one device.
    pub(crate) fn arrivals<'b>(&self, buffers: impl Iterator<Item = Option<&'b SharedBuffer>>) -> Vec<Arrival> {
        let mesh = self.open().engine().ok().and_then(|engine| engine.mesh());
        mesh.map_or_else(Vec::new, |_| buffers.map(arrival).collect())
    }

    /// Returns a program of this device for arguments that are, or are not yet, on the mesh; on one device, as it is.
    pub(super) fn placed(&self, program: &Arc<Program>, arguments: &[Option<&SharedBuffer>]) -> Result<Arc<Program>> {
        let Some(axes) = self.open().engine()?.mesh() else { return Ok(Arc::clone(program)) };
        Ok(self.placed_for(program, axes, self.arrivals(arguments.iter().copied())))
    }

    /// Returns a program of this mesh for arguments that arrive so.
    pub(super) fn placed_for(&self, program: &Arc<Program>, axes: &MeshAxes, arrivals: Vec<Arrival>) -> Arc<Program> {
        let place = |arrivals: &[Arrival]| {
            let (placement, uneven) = placement(program, axes, arrivals);
            self.warn_of_uneven(axes, &uneven);
            Program::clone(program).placed(placement)
        };
        self.open().cache.placed(program, arrivals, place)
    }

    /// Returns a divided program whose parts have the placements that the whole one gives their inputs and results. An
    /// initial value is where its next value is, so that the rest is the program of the next step.
    pub(super) fn placed_parts(&self, beginning: Beginning, recorded: &Recorded) -> Beginning {
        let axes = self.open().engine().ok().and_then(|engine| engine.mesh());
        let (Some(axes), Some(whole)) = (axes, recorded.program.placement()) else { return beginning };
        let Beginning { mut makers, rest: (rest, inputs), first_value, outputs } = beginning;
        let next = next_values(&rest, &inputs, first_value, &outputs);
        let sharding_of_next = |value| Some(whole.results[*next.get(&value)?].clone());
        let arrivals = inputs.parameters.iter().map(|&index| match index.checked_sub(first_value) {
            None => recorded.arrivals[recorded.bindings.parameters[index as usize] as usize].clone(),
            Some(value) => sharding_of_next(value as usize).map_or(Arrival::Host, Arrival::Mesh),
        });
        let rest = self.placed_for(&rest, axes, arrivals.collect());
        let in_rest = |value: usize| {
            let place = inputs.parameters.iter().position(|&index| index as usize == first_value as usize + value)?;
            sharding_of(&rest, place as u32).cloned()
        };
        for maker in &mut makers {
            let types: Vec<_> = maker.program.output_types().cloned().collect();
            let results = maker.values.iter().zip(&types).map(|(&value, ty)| {
                let known = in_rest(value).or_else(|| sharding_of_next(value));
                known.unwrap_or_else(|| Sharding::replicated(ty.rank()))
            });
            let parameters = maker.inputs.parameters.iter().map(|&index| whole.parameters[index as usize].clone());
            let (parameters, results) = (parameters.collect(), results.collect());
            let placement = Placement { parameters, results, ..Placement::clone(whole) };
            maker.program = Arc::new(Program::clone(&maker.program).placed(placement));
        }
        Beginning { makers, rest: (rest, inputs), first_value, outputs }
    }

    /// Returns a program without divisions by one for the mesh of the recorded one; `None` if it puts anything elsewhere.
    pub(super) fn placed_alike(&self, undivided: Undivided, recorded: &Recorded) -> Option<Undivided> {
        let axes = self.open().engine().ok().and_then(|engine| engine.mesh());
        let (Some(axes), Some(whole)) = (axes, recorded.program.placement()) else { return Some(undivided) };
        let Undivided { program: (program, inputs), outputs, ones } = undivided;
        let arrivals = of_parameters(&recorded.bindings.parameters, &recorded.arrivals);
        let program = self.placed_for(&program, axes, of_parameters(&inputs.parameters, &arrivals));
        let placement = program.placement()?;
        let of_whole = inputs.parameters.iter().map(|&index| &whole.parameters[index as usize]);
        let results = outputs.iter().zip(&whole.results).all(|(output, of_whole)| match *output {
            UndividedOutput::Parameter(_) => true,
            UndividedOutput::Result(result) => placement.results[result] == *of_whole,
        });
        let is_alike = results && of_whole.eq(&placement.parameters);
        is_alike.then_some(Undivided { program: (program, inputs), outputs, ones })
    }

    /// Warns of the batches of a recorded program that do not split over the mesh, if it is about to be compiled.
    pub(super) fn warn_of_uneven_batches(&self, recorded: &Recorded) {
        let Some(axes) = self.open().engine().ok().and_then(|engine| engine.mesh()) else { return };
        let arrivals = of_parameters(&recorded.bindings.parameters, &recorded.arrivals);
        self.warn_of_uneven(axes, &placement(&recorded.program, axes, &arrivals).1);
    }

    fn warn_of_uneven(&self, axes: &MeshAxes, uneven: &[TensorType]) {
        for ty in uneven {
            if self.uneven_batches.lock().insert(ty.to_string()) {
                let parts = axes.mesh.parts(&axes.batch);
                let rows = ty.dims.first().copied().unwrap_or_default();
                let even = rows.next_multiple_of(parts);
                tracing::warn!(
                    device = %self.open().device,
                    "the batch {ty} has {rows} rows, which do not split over {parts} devices: each gets the whole batch. \
                     Use batches of {even} rows"
                );
            }
        }
    }
}

/// Returns the placement of a program, and the types of the batches that do not split.
fn placement(program: &Program, axes: &MeshAxes, arrivals: &[Arrival]) -> (Placement, Vec<TensorType>) {
    Placement::of(program, &axes.mesh, &axes.batch, arrivals)
}

/// Returns the output of a whole program that is each initial value, or that the rest makes of it, where there is one.
fn next_values(rest: &Program, inputs: &Bindings, first_value: u32, outputs: &[Source]) -> FxHashMap<usize, usize> {
    let mut next = FxHashMap::default();
    let mut of_rest = Vec::new();
    for (output, source) in outputs.iter().enumerate() {
        match *source {
            Source::Host(value) => _ = next.insert(value, output),
            Source::Device(_) => of_rest.push(output),
        }
    }
    let updated = inputs.parameters.iter().zip(rest.results_in_place());
    for (index, result) in updated {
        if let (Some(value), Some(result)) = (index.checked_sub(first_value), result) {
            next.entry(value as usize).or_insert(of_rest[result]);
        }
    }
    next
}

/// Returns the arrivals of a program's parameters, of which these are the recorded indices.
fn of_parameters(parameters: &[u32], recorded: &[Arrival]) -> Vec<Arrival> {
    parameters.iter().map(|&index| recorded[index as usize].clone()).collect()
}

/// Returns where an argument is.
fn arrival(buffer: Option<&SharedBuffer>) -> Arrival {
    buffer.and_then(sharding_of_value).map_or(Arrival::Host, Arrival::Mesh)
}

/// Returns how a value is split over a mesh. A host value that was transferred is where its copy is.
pub(crate) fn sharding_of_value(buffer: &SharedBuffer) -> Option<Sharding> {
    let copy = HostValue::of(buffer).and_then(HostValue::buffer);
    copy.as_ref().and_then(|copy| copy.sharding().cloned()).or_else(|| buffer.sharding().cloned())
}

/// Returns the sharding of a program's parameter.
pub(super) fn sharding_of(program: &Program, index: u32) -> Option<&Sharding> {
    program.placement().and_then(|placement| placement.parameter(index))
}
