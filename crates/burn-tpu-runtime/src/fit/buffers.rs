//! The largest buffers of a compiled program, from its instructions and their layouts.

use super::report::{Buffer, BufferKind};
use crate::lines::op_and_line;
use burn_tpu_graph::{NodeId, Op, Program};
use burn_tpu_pjrt::{HloArray, HloInstruction, HloModule};
use std::collections::{HashMap, HashSet};

/// The maximum number of reported buffers.
const NAMED: usize = 10;

/// Returns the largest buffers in the device's main memory, largest first. A result that is aliased to a donated
/// argument is reported as that argument.
pub(super) fn largest(module: &HloModule, program: &Program) -> Vec<Buffer> {
    let users = first_users(program);
    let outputs = outputs(module);
    let mut buffers = Vec::new();
    for instruction in &module.instructions {
        for (position, array) in instruction.own_results().filter(|(_, array)| array.is_in_main_memory()) {
            let output = outputs.get(&(instruction.id, position));
            let (kind, label) = match (instruction.opcode.as_str(), output) {
                (_, Some(Output::Aliased)) => continue,
                ("parameter", _) => (BufferKind::Argument, users.get(instruction.parameter).cloned()),
                (_, Some(Output::Own)) => (BufferKind::Output, Some(instruction.op_name.clone())),
                (_, None) => (BufferKind::Temporary, Some(instruction.op_name.clone())),
            };
            let label = label.filter(|name| !name.is_empty()).unwrap_or_else(|| instruction.opcode.clone());
            let (op, line) = op_and_line(&label);
            buffers.push(Buffer {
                kind,
                op,
                line,
                shape: shape(array),
                bytes: array.padded_bytes,
                padding_bytes: array.padded_bytes - array.bytes,
                instruction: instruction.name.clone(),
            });
        }
    }
    buffers.sort_by(|a, b| (b.bytes, &a.instruction).cmp(&(a.bytes, &b.instruction)));
    buffers.truncate(NAMED);
    buffers
}

/// Returns an array's element type and dims: `bf16[32,1024,768]`.
pub(super) fn shape(array: &HloArray) -> String {
    let dims = array.dims.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
    format!("{}[{dims}]", array.element)
}

/// Returns the size of the arguments in bytes, with tile padding.
pub(super) fn argument_bytes(module: &HloModule) -> u64 {
    let arguments = module.instructions.iter().filter(|i| i.opcode == "parameter" && i.in_entry);
    arguments.flat_map(|i| &i.results).filter(|array| array.is_in_main_memory()).map(|array| array.padded_bytes).sum()
}

enum Output {
    /// In its own memory.
    Own,
    /// In the memory of a donated argument.
    Aliased,
}

/// Returns the arrays that are the program's results, by instruction and index in its result.
fn outputs(module: &HloModule) -> HashMap<(u64, usize), Output> {
    let by_id: HashMap<u64, &HloInstruction> = module.instructions.iter().map(|i| (i.id, i)).collect();
    let aliased: HashSet<usize> = module.aliases.iter().map(|(output, _)| *output).collect();
    let Some(root) = by_id.get(&module.root) else { return HashMap::new() };
    let results = if root.opcode == "tuple" { root.operands.clone() } else { vec![root.id] };
    let mut outputs = HashMap::new();
    for (position, id) in results.into_iter().enumerate() {
        let output = if aliased.contains(&position) { Output::Aliased } else { Output::Own };
        outputs.insert(producer(&by_id, id), output);
    }
    outputs
}

/// Returns the instruction that computes an array, and the index of the array in its result. Instructions that only pass an
/// array on are skipped.
fn producer(by_id: &HashMap<u64, &HloInstruction>, mut id: u64) -> (u64, usize) {
    let mut place = 0;
    while let Some(instruction) = by_id.get(&id) {
        match (instruction.opcode.as_str(), instruction.operands.first()) {
            ("get-tuple-element", Some(&operand)) => (id, place) = (operand, instruction.tuple_index),
            ("bitcast" | "copy-done", Some(&operand)) => id = operand,
            _ => break,
        }
    }
    (id, place)
}

/// Returns, for each argument of the program in order, the label of the node that reads it first.
fn first_users(program: &Program) -> Vec<String> {
    let graph = program.graph();
    let mut users = Vec::new();
    for (parameter, node) in (0..).map(NodeId).zip(graph.nodes()) {
        if matches!(node.op, Op::Parameter { .. }) {
            let reader = graph.nodes().iter().position(|node| node.operands.contains(&parameter));
            users.push(reader.map_or("", |reader| graph.label(NodeId(reader as u32))).to_owned());
        }
    }
    users
}
