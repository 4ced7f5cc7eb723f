//! Programs of which operands are split over several CPU devices.

use crate::common::programs;
use burn_tpu_graph::lower::{Argument, Lowered, lower, pack_slots};
use burn_tpu_graph::{Axis, DimAxes, Mesh, Placement, Program, Sharding, TensorType, verify};
use burn_tpu_pjrt::{Buffer, Client, Device, ExecuteOptions, LoadedExecutable, TensorSpec};

const AXIS: Axis = 0;

/// A program with split operands.
pub struct Split {
    program: Program,
    mesh: Mesh,
}

/// A compiled program with split operands.
pub struct CompiledSplit<'s> {
    split: &'s Split,
    lowered: Lowered,
    executable: LoadedExecutable,
    devices: Vec<Device>,
    /// The types of a device's parts of the arguments.
    specs: Vec<TensorSpec>,
}

/// Returns the sharding that splits one dim, if it divides.
fn split(ty: &TensorType, parts: usize, dim: usize) -> Option<Sharding> {
    let divides = ty.dims.get(dim).is_some_and(|&size| size > 0 && size % parts == 0);
    let axes = |d: usize| if d == dim { DimAxes::from_slice(&[AXIS]) } else { DimAxes::new() };
    divides.then(|| Sharding::new((0..ty.rank()).map(axes)))
}

impl Split {
    /// Returns the program with each parameter split over so many devices on the dim that `parameter` gives its index, and
    /// each result on the dim that `result` gives its position, where the dim divides; `None` if no parameter is split.
    pub fn of(
        program: &Program,
        parts: usize,
        parameter: impl Fn(u32) -> Option<usize>,
        result: impl Fn(usize) -> Option<usize>,
    ) -> Option<Self> {
        let mesh = Mesh::new(&[("x".to_owned(), parts)]).unwrap();
        let on = |dim: Option<usize>, ty: &TensorType| {
            dim.and_then(|dim| split(ty, parts, dim)).unwrap_or_else(|| Sharding::replicated(ty.rank()))
        };
        let mut parameters = Vec::new();
        for (index, ty) in program.parameters() {
            let at = index as usize;
            parameters.resize(parameters.len().max(at + 1), Sharding::replicated(0));
            parameters[at] = on(parameter(index), ty);
        }
        if parameters.iter().all(Sharding::is_replicated) {
            return None;
        }
        let results = program.output_types().enumerate().map(|(at, ty)| on(result(at), ty)).collect();
        let placement = Placement { mesh: mesh.clone(), batch: vec![0], results, parameters };
        let program = program.clone().placed(placement);
        verify(&program).unwrap();
        Some(Self { program, mesh })
    }

    fn placement(&self) -> &Placement {
        self.program.placement().unwrap()
    }

    /// Returns the number of operands that are split.
    pub fn operands(&self) -> usize {
        self.placement().parameters.iter().filter(|sharding| !sharding.is_replicated()).count()
    }

    /// Calls `at` with the byte of each element of a device's part, and with the byte of the same element of the whole.
    fn elements(&self, sharding: &Sharding, ty: &TensorType, device: usize, mut at: impl FnMut(usize, usize)) {
        let (local, start) = (sharding.local(ty, &self.mesh), sharding.start(ty, &self.mesh, device));
        let size = ty.dtype.size_bytes();
        for part in 0..local.elements() {
            let (mut rest, mut whole, mut stride) = (part, 0, 1);
            for dim in (0..ty.rank()).rev() {
                whole += (start[dim] + rest % local.dims[dim]) * stride;
                rest /= local.dims[dim];
                stride *= ty.dims[dim];
            }
            at(part * size, whole * size);
        }
    }

    fn take(&self, sharding: &Sharding, ty: &TensorType, device: usize, whole: &[u8]) -> Vec<u8> {
        let size = ty.dtype.size_bytes();
        let mut part = vec![0; sharding.local(ty, &self.mesh).bytes()];
        self.elements(sharding, ty, device, |to, from| part[to..to + size].copy_from_slice(&whole[from..from + size]));
        part
    }

    /// Compiles the program for the first devices of a client.
    pub fn compile(&self, client: &Client) -> Result<CompiledSplit<'_>, String> {
        let parts = self.mesh.devices();
        let devices: Vec<Device> = (0..parts).map(|i| client.device(i).unwrap()).collect();
        let lowered = lower(&self.program).unwrap();
        let local = |argument: &Argument| match argument {
            Argument::Parameter { index, ty, .. } => self.placement().parameters[*index as usize].local(ty, &self.mesh),
            Argument::Slots { ty, .. } => ty.clone(),
        };
        let specs: Vec<_> = lowered.arguments.iter().map(|argument| programs::spec(&local(argument))).collect();
        let text = burn_tpu_pjrt::Program::stablehlo(lowered.text.as_str(), specs.clone()).unwrap();
        let ids = devices.iter().map(Device::id).collect();
        // The code within a device is the same as without a mesh: the least effort will do.
        let options = programs::cpu_options()
            .set("xla_backend_optimization_level", 0)
            .partitions(parts)
            .shardy(true)
            .device_assignment(vec![ids]);
        let executable = client.compile(&text, &options).map_err(|error| error.to_string())?;
        Ok(CompiledSplit { split: self, lowered, executable, devices, specs })
    }
}

impl CompiledSplit<'_> {
    /// Runs the program, and returns its joined results.
    pub fn run(&self, parameters: &[Vec<u8>], slots: &[u64]) -> Result<Vec<Vec<u8>>, String> {
        let placement = self.split.placement();
        let upload = |device: usize, argument: &Argument, spec| {
            let bytes = match argument {
                Argument::Parameter { index, ty, .. } => {
                    let index = *index as usize;
                    self.split.take(&placement.parameters[index], ty, device, &parameters[index])
                }
                Argument::Slots { ty, slots: packed } => pack_slots(ty.dtype, packed, slots).unwrap(),
            };
            Buffer::from_host(&self.devices[device], spec, &bytes).unwrap()
        };
        let on = |device: usize| {
            let arguments = self.lowered.arguments.iter().zip(&self.specs);
            arguments.map(|(argument, spec)| upload(device, argument, spec.clone())).collect()
        };
        let arguments: Vec<Vec<Buffer>> = (0..self.devices.len()).map(on).collect();
        let lists: Vec<Vec<&Buffer>> = arguments.iter().map(|list| list.iter().collect()).collect();
        let lists: Vec<&[&Buffer]> = lists.iter().map(Vec::as_slice).collect();
        let execution = self.executable.execute(&lists, &ExecuteOptions::default());
        let execution = execution.map_err(|error| error.to_string())?;
        let mut results = Vec::new();
        for (i, ty) in self.split.program.output_types().enumerate() {
            let mut whole = vec![0; ty.bytes()];
            let size = ty.dtype.size_bytes();
            for (device, outputs) in execution.outputs.iter().enumerate() {
                let part = outputs[i].to_host().map_err(|error| error.to_string())?;
                self.split.elements(&placement.results[i], ty, device, |from, to| {
                    whole[to..to + size].copy_from_slice(&part[from..from + size]);
                });
            }
            results.push(whole);
        }
        Ok(results)
    }
}
