//! Every op of the corpus on a mesh of two CPU devices, with operands split on each dim that divides, against one device.

use crate::common;

use burn_tpu_graph::corpus::{self, Case};
use burn_tpu_graph::lower::{Argument, lower, pack_slots};
use burn_tpu_graph::{Axis, DimAxes, Mesh, Number, Placement, Program, Sharding, TensorType, verify};
use burn_tpu_pjrt::{Buffer, Client, ClientOptions, Device, ExecuteOptions};
use common::programs;

const AXIS: Axis = 0;
const PARTS: usize = 2;

fn mesh() -> Mesh {
    Mesh::new(&[("x".to_owned(), PARTS)]).unwrap()
}

/// Returns the sharding that splits one dim, if it divides.
fn split(ty: &TensorType, dim: usize) -> Option<Sharding> {
    let divides = ty.dims.get(dim).is_some_and(|&size| size > 0 && size % PARTS == 0);
    let axes = |d: usize| if d == dim { DimAxes::from_slice(&[AXIS]) } else { DimAxes::new() };
    divides.then(|| Sharding::new((0..ty.rank()).map(axes)))
}

/// Returns the program with the parameters that `is_split` picks (by index) split on a dim, and the results too where they
/// can be; `None` if nothing is.
fn placed(program: &Program, dim: usize, is_split: impl Fn(u32) -> bool) -> Option<Program> {
    let mut parameters = Vec::new();
    for (index, ty) in program.parameters() {
        let index = index as usize;
        parameters.resize(parameters.len().max(index + 1), Sharding::replicated(0));
        let found = split(ty, dim).filter(|_| is_split(index as u32));
        parameters[index] = found.unwrap_or_else(|| Sharding::replicated(ty.rank()));
    }
    if parameters.iter().all(Sharding::is_replicated) {
        return None;
    }
    let results = program.output_types().enumerate();
    let results =
        results.map(|(i, ty)| split(ty, dim).filter(|_| i % 2 == 0).unwrap_or_else(|| Sharding::replicated(ty.rank())));
    let placement = Placement { mesh: mesh(), batch: vec![0], results: results.collect(), parameters };
    let program = program.clone().placed(placement);
    verify(&program).unwrap();
    Some(program)
}

/// Calls `at` with the byte of each element of a device's part, and with the byte of the same element of the whole.
fn elements(sharding: &Sharding, ty: &TensorType, device: usize, mut at: impl FnMut(usize, usize)) {
    let (local, start, size) =
        (sharding.local(ty, &mesh()), sharding.start(ty, &mesh(), device), ty.dtype.size_bytes());
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

fn take(sharding: &Sharding, ty: &TensorType, device: usize, whole: &[u8]) -> Vec<u8> {
    let size = ty.dtype.size_bytes();
    let mut part = vec![0; sharding.local(ty, &mesh()).bytes()];
    elements(sharding, ty, device, |to, from| part[to..to + size].copy_from_slice(&whole[from..from + size]));
    part
}

/// Runs a placed program, and returns its joined results.
fn run(client: &Client, program: &Program, parameters: &[Vec<u8>], slots: &[u64]) -> Result<Vec<Vec<u8>>, String> {
    let placement = program.placement().unwrap();
    let devices: Vec<Device> = (0..PARTS).map(|i| client.device(i).unwrap()).collect();
    let lowered = lower(program).unwrap();
    let local = |argument: &Argument| match argument {
        Argument::Parameter { index, ty, .. } => placement.parameters[*index as usize].local(ty, &mesh()),
        Argument::Slots { ty, .. } => ty.clone(),
    };
    let specs: Vec<_> = lowered.arguments.iter().map(|argument| programs::spec(&local(argument))).collect();
    let text = burn_tpu_pjrt::Program::stablehlo(lowered.text.as_str(), specs.clone()).unwrap();
    let ids = devices.iter().map(Device::id).collect();
    // The code within a device is the same as without a mesh: the least effort will do.
    let options = programs::cpu_options()
        .set("xla_backend_optimization_level", 0)
        .partitions(PARTS)
        .shardy(true)
        .device_assignment(vec![ids]);
    let executable = client.compile(&text, &options).map_err(|error| error.to_string())?;
    let upload = |device: usize, argument: &Argument, spec| {
        let bytes = match argument {
            Argument::Parameter { index, ty, .. } => {
                take(&placement.parameters[*index as usize], ty, device, &parameters[*index as usize])
            }
            Argument::Slots { ty, slots: packed } => pack_slots(ty.dtype, packed, slots).unwrap(),
        };
        Buffer::from_host(&devices[device], spec, &bytes).unwrap()
    };
    let arguments: Vec<Vec<Buffer>> = (0..PARTS)
        .map(|device| lowered.arguments.iter().zip(&specs).map(|(a, s)| upload(device, a, s.clone())).collect())
        .collect();
    let lists: Vec<Vec<&Buffer>> = arguments.iter().map(|list| list.iter().collect()).collect();
    let lists: Vec<&[&Buffer]> = lists.iter().map(Vec::as_slice).collect();
    let execution = executable.execute(&lists, &ExecuteOptions::default()).map_err(|error| error.to_string())?;
    let mut results = Vec::new();
    for (i, ty) in program.output_types().enumerate() {
        let mut whole = vec![0; ty.bytes()];
        let size = ty.dtype.size_bytes();
        for (device, outputs) in execution.outputs.iter().enumerate() {
            let part = outputs[i].to_host().map_err(|error| error.to_string())?;
            elements(&placement.results[i], ty, device, |from, to| {
                whole[to..to + size].copy_from_slice(&part[from..from + size]);
            });
        }
        results.push(whole);
    }
    Ok(results)
}

/// Returns elements of both signs, and zeros.
fn numbers(ty: &TensorType, first: usize) -> Vec<u8> {
    let floats = [0.5, -2.0, 1.0, -0.75, 0.0, 3.0, -1.0, 2.5, -0.25, -3.5, 1.5];
    let bits = |i: usize| match ty.dtype {
        dtype if dtype.is_float() => Number::Float(floats[i % floats.len()]).bits(dtype),
        burn_tpu_graph::DType::Bool => (i / 2 % 2) as u64,
        dtype => Number::Int([1, 2, 0, 3, 5, 4, 7][i % 7]).bits(dtype),
    };
    (0..ty.elements()).flat_map(|i| bits(first + 5 * i).to_le_bytes()[..ty.dtype.size_bytes()].to_vec()).collect()
}

/// The cases of one family as a program, with its arguments and its results on one device.
struct Family {
    cases: Vec<Case>,
    program: Program,
    parameters: Vec<Vec<u8>>,
    slots: Vec<u64>,
    expected: Vec<Vec<u8>>,
}

impl Family {
    fn new(client: &Client, cases: Vec<Case>) -> Self {
        let program = corpus::merge(&cases).unwrap();
        let mut parameters = vec![Vec::new(); program.parameters().map(|(i, _)| i as usize + 1).max().unwrap_or(0)];
        program.parameters().for_each(|(i, ty)| parameters[i as usize] = numbers(ty, i as usize));
        let mut slots = vec![0; program.slots().map(|(_, index, _)| index as usize + 1).max().unwrap_or(0)];
        program.slots().for_each(|(_, i, dtype)| slots[i as usize] = Number::Int(i64::from(i) % 2).bits(dtype));
        let quick = programs::cpu_options().set("xla_backend_optimization_level", 0);
        let one = programs::compile(client, &program, &quick).unwrap();
        let expected = one.run(&parameters, &slots).unwrap();
        Self { cases, program, parameters, slots, expected }
    }

    /// Returns the number of parameters that can be split, of those that `is_split` picks, on a dim, and what differs from
    /// one device when they are.
    fn differences(&self, client: &Client, dim: usize, is_split: impl Fn(u32) -> bool) -> (usize, String) {
        let Some(placed) = placed(&self.program, dim, is_split) else { return (0, String::new()) };
        let split = placed.placement().unwrap().parameters.iter().filter(|sharding| !sharding.is_replicated()).count();
        let found = match run(client, &placed, &self.parameters, &self.slots) {
            Ok(found) => found,
            Err(error) => return (split, format!("{}, …, dim {dim}: {error}\n", self.cases[0].name)),
        };
        let names = self.cases.iter().flat_map(|case| case.program.outputs().iter().map(|_| &case.name));
        let mut report = String::new();
        let results = self.program.output_types().zip(&found).zip(&self.expected);
        for (name, ((ty, found), expected)) in names.zip(results) {
            if !programs::agree(ty.dtype, found, expected) {
                report += &format!("{name}, dim {dim}: {ty}: mesh {found:?}, one device {expected:?}\n");
            }
        }
        (split, report)
    }
}

#[test]
fn the_corpus_agrees_with_one_device() {
    let Some(plugin) = programs::cpu_plugin() else { return };
    let client = Client::new(plugin, &ClientOptions::cpu(PARTS).unwrap()).unwrap();
    let (mut split, mut report) = (0, String::new());
    for (name, members) in corpus::by_family(corpus::cases().unwrap()) {
        // The CPU plugin does not transform a dim that is split: on a mesh of it, the host does (`tests/mesh/training.rs`).
        if name == "fft" {
            continue;
        }
        let family = Family::new(&client, members);
        for dim in 0..4 {
            let picks = [("all", 0..2), ("even", 0..1), ("odd", 1..2)];
            for (pick, is_split) in picks.into_iter().take(if common::is_long() { 3 } else { 1 }) {
                let (count, found) = family.differences(&client, dim, |index| is_split.contains(&(index % 2)));
                split += count;
                if !found.is_empty() {
                    report += &format!("{name}, {pick} parameters: {found}");
                }
            }
        }
    }
    assert!(report.is_empty(), "{report}");
    assert!(split > 500, "only {split} operands were split");
}
