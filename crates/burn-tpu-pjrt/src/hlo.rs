//! The structure of a compiled program, read from the protobuf message that [`Executable::optimized_program`] or an XLA
//! dump returns (`HloModuleProtoWithConfig` and `HloProto`; both hold the module in field 1).
//!
//! Only the fields that describe buffers are read: the instructions that run one after another on the device (a fusion is
//! one instruction; the bodies of loops and calls are included), their shapes with layouts, and which results alias an
//! argument. Unknown fields are skipped, as protobuf requires. Field numbers are those of XLA's `hlo.proto` and
//! `xla_data.proto`.

mod groups;
mod loops;
mod parts;
mod traffic;

use crate::error::{PjrtError, Result};
use loops::runs;
use parts::Parts;
use std::collections::{HashMap, HashSet};

/// The instructions of a compiled program.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HloModule {
    /// The instructions that run on the device, those of the entry computation first.
    pub instructions: Vec<HloInstruction>,
    /// Results (position in the root tuple) that alias a parameter.
    pub aliases: Vec<(usize, usize)>,
    /// The id of the instruction that returns the program's results.
    pub root: u64,
    /// The communication between devices.
    pub collectives: Vec<HloCollective>,
}

/// One exchange between devices, with the sizes of one device's part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HloCollective {
    /// The operation: `all-reduce`, `all-gather`, `reduce-scatter`, `all-to-all` or `collective-permute`.
    pub kind: &'static str,
    /// Whether it connects slices, over the data center's network. libtpu writes it as a send to its runtime.
    pub across_slices: bool,
    /// The bytes that a device gives each time.
    pub operand_bytes: u64,
    /// How often it runs: as often as the loops that it is in.
    pub runs: u64,
    /// The first group of devices (by partition) that communicate with each other, of a permutation the first pair; empty if
    /// all do, or if the plugin writes groups in a form that is not known here.
    pub group: Vec<u64>,
}

/// The operations that exchange values between devices.
const COLLECTIVES: [&str; 5] = ["all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute"];

/// How libtpu names what it fuses of an all-reduce and the slice of its result that a device keeps. It runs as a
/// reduce-scatter.
const ALL_REDUCE_SCATTER: &str = "all-reduce-scatter";

/// The attribute of a send between slices. Its value is the operation, such as `ALL_REDUCE`.
const BETWEEN_SLICES: &str = "_xla_megascale_transfer_type";

/// One instruction.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HloInstruction {
    /// The id, unique in the module.
    pub id: u64,
    /// The name, such as `fusion.7`.
    pub name: String,
    /// The operation, such as `fusion`, `copy-start`, `parameter`.
    pub opcode: String,
    /// The location that the program's text gave for it; empty if none.
    pub op_name: String,
    /// The resulting arrays: one, or those of a tuple, with inner tuples flattened.
    pub results: Vec<HloArray>,
    /// The ids of the instructions that it reads.
    pub operands: Vec<u64>,
    /// For a `parameter`, its number.
    pub parameter: usize,
    /// For a `get-tuple-element`, the position in the tuple.
    pub tuple_index: usize,
    /// Whether it belongs to the entry computation.
    pub in_entry: bool,
    /// The clock cycles that the TPU compiler estimates for a run of it. `None` for what it does not estimate: custom calls,
    /// asynchronous copies, sorts, some gathers and scatters, and everything on other platforms.
    pub cycles: Option<u64>,
    /// How often the program runs it: the product of the trip counts of the loops around it. A loop whose trip count is not
    /// known counts as one trip.
    pub runs: u64,
    /// The share of each operand that a run reads, in the order of `operands`: less than 1 where only slices of it are read.
    pub read: Vec<f64>,
    /// The share of each result that a run writes, in the order of `results`: less than 1 for an update in place. Results
    /// that are missing here are written as a whole.
    pub written: Vec<f64>,
    /// The largest scalar constant of an integer type in it: the bound of a counted loop's condition. libtpu's own loops
    /// count in unsigned integers.
    constant: Option<u64>,
    called: Vec<u64>,
    channel: u64,
    group: Vec<u64>,
    between_slices: Option<String>,
}

/// An array's element type, shape and memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HloArray {
    /// The element type, as HLO text names it: `bf16`.
    pub element: &'static str,
    /// The sizes, outermost first.
    pub dims: Vec<u64>,
    /// The size of the elements, in bytes.
    pub bytes: u64,
    /// The size with the padding of its tiles, in bytes.
    pub padded_bytes: u64,
    /// 0 for the device's main memory; on TPUs 1 is the vector memory on the chip.
    pub memory_space: u64,
}

impl HloModule {
    /// Parses a message.
    ///
    /// # Errors
    /// [`PjrtError::Usage`] if the bytes are not such a message.
    pub fn parse(message: &[u8]) -> Result<HloModule> {
        read_module(message).ok_or_else(|| PjrtError::Usage {
            call: "HloModule::parse",
            reason: "the bytes are not a protobuf message with an HLO module".into(),
        })
    }

    /// Returns the clock cycles that the TPU compiler estimates for a run of the program, one instruction after the other;
    /// `None` if it estimates none.
    pub fn cycles(&self) -> Option<u64> {
        let cycles = self.instructions.iter().filter_map(|instruction| Some(instruction.cycles? * instruction.runs));
        cycles.reduce(|sum, cycles| sum.saturating_add(cycles))
    }

    /// Returns the number of fusions that the program runs. A program's speed depends mostly on this number and on the
    /// bytes that the fusions move.
    pub fn fusions(&self) -> usize {
        self.instructions.iter().filter(|instruction| instruction.opcode == "fusion").count()
    }
}

/// Iterates over a protobuf message's fields: number and value.
struct Fields<'a>(&'a [u8]);

enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl<'a> Fields<'a> {
    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    /// Returns the next field; `None` for invalid protobuf.
    fn field(&mut self) -> Option<(u64, Field<'a>)> {
        let key = self.varint()?;
        let value = match key & 7 {
            0 => Field::Number(self.varint()?),
            1 => Field::Bytes(self.take(8)?),
            2 => {
                let length = usize::try_from(self.varint()?).ok()?;
                Field::Bytes(self.take(length)?)
            }
            5 => Field::Bytes(self.take(4)?),
            _ => return None,
        };
        Some((key >> 3, value))
    }
}

/// Calls `visit` for each field of a message; returns `None` as soon as a field or `visit` fails.
fn walk<'a>(message: &'a [u8], mut visit: impl FnMut(u64, Field<'a>) -> Option<()>) -> Option<()> {
    let mut fields = Fields(message);
    while !fields.0.is_empty() {
        let (number, value) = fields.field()?;
        visit(number, value)?;
    }
    Some(())
}

/// Appends the numbers of a repeated field, packed or not.
fn numbers(field: Field, into: &mut Vec<u64>) -> Option<()> {
    match field {
        Field::Number(number) => into.push(number),
        Field::Bytes(packed) => {
            let mut packed = Fields(packed);
            while !packed.0.is_empty() {
                into.push(packed.varint()?);
            }
        }
    }
    Some(())
}

fn text(field: Field) -> Option<String> {
    let Field::Bytes(bytes) = field else { return None };
    Some(String::from_utf8_lossy(bytes).into_owned())
}

fn number(field: Field) -> Option<u64> {
    let Field::Number(number) = field else { return None };
    Some(number)
}

fn bytes(field: Field<'_>) -> Option<&[u8]> {
    let Field::Bytes(bytes) = field else { return None };
    Some(bytes)
}

#[derive(Default)]
struct Computation {
    name: String,
    id: u64,
    root: u64,
    instructions: Vec<HloInstruction>,
}

fn read_module(message: &[u8]) -> Option<HloModule> {
    let mut module = None;
    walk(message, |number, field| {
        if number == 1 {
            module = Some(bytes(field)?);
        }
        Some(())
    })?;
    let (mut computations, mut entry, mut aliases) = (Vec::new(), 0, Vec::new());
    walk(module?, |field_number, field| {
        match field_number {
            3 => computations.push(read_computation(bytes(field)?)?),
            6 => entry = number(field)?,
            8 => read_aliases(bytes(field)?, &mut aliases)?,
            _ => {}
        }
        Some(())
    })?;
    let root = computations.iter().find(|computation| computation.id == entry)?.root;
    let runs = runs(&computations, entry);
    let collectives = collectives(&computations, &runs);
    Some(HloModule { instructions: running(computations, entry, &runs), aliases, root, collectives })
}

/// Returns the exchanges of all computations. libtpu repeats one in the computations that start, run and end it: those
/// of one channel are one.
fn collectives(computations: &[Computation], runs: &HashMap<u64, u64>) -> Vec<HloCollective> {
    let all = || computations.iter().flat_map(|of| of.instructions.iter().map(move |instruction| (of, instruction)));
    let bytes: HashMap<u64, u64> =
        all().map(|(_, node)| (node.id, node.results.iter().map(|array| array.bytes).sum())).collect();
    let mut channels = HashSet::new();
    let mut found = Vec::new();
    for (computation, instruction) in all() {
        let Some(kind) = instruction.collective() else { continue };
        let is_scattered = kind == "all-reduce" && computation.name.starts_with(ALL_REDUCE_SCATTER);
        let kind = if is_scattered { "reduce-scatter" } else { kind };
        if instruction.channel == 0 || channels.insert((kind, instruction.channel)) {
            let operand_bytes = instruction.operands.iter().filter_map(|id| bytes.get(id)).sum();
            let across_slices = instruction.between_slices.is_some();
            let (runs, group) = (runs.get(&computation.id).copied().unwrap_or(1), instruction.group.clone());
            found.push(HloCollective { kind, across_slices, operand_bytes, runs, group });
        }
    }
    found
}

impl HloInstruction {
    /// Returns the operation, if this instruction begins an exchange between devices.
    fn collective(&self) -> Option<&'static str> {
        let name = match &self.between_slices {
            Some(operation) if self.opcode == "send" => &operation.to_lowercase().replace('_', "-"),
            Some(_) => return None,
            None => self.opcode.strip_suffix("-start").unwrap_or(&self.opcode),
        };
        COLLECTIVES.into_iter().find(|kind| *kind == name)
    }
}

/// Returns the instructions of the entry computation and of the computations that it calls, except those of fusions and
/// reducers.
fn running(mut computations: Vec<Computation>, entry: u64, runs: &HashMap<u64, u64>) -> Vec<HloInstruction> {
    add_parts(&mut computations);
    let mut instructions: Vec<HloInstruction> = Vec::new();
    let mut waiting = vec![entry];
    while let Some(id) = waiting.pop() {
        // Visit each computation once, although the call graph may reach it twice.
        let Some(place) = computations.iter().position(|computation| computation.id == id) else { continue };
        for mut instruction in computations.swap_remove(place).instructions {
            instruction.in_entry = id == entry;
            instruction.runs = runs.get(&id).copied().unwrap_or(1);
            if matches!(instruction.opcode.as_str(), "while" | "conditional" | "call") {
                waiting.extend(&instruction.called);
            }
            instructions.push(instruction);
        }
    }
    instructions
}

/// Adds which share of its operands and results each instruction reads and writes.
fn add_parts(computations: &mut [Computation]) {
    let parts = Parts::new(computations);
    let of = |computation: &Computation| -> Vec<_> {
        computation.instructions.iter().map(|node| (parts.read(node), parts.written(node))).collect()
    };
    let found: Vec<_> = computations.iter().map(of).collect();
    for (computation, found) in computations.iter_mut().zip(found) {
        for (instruction, (read, written)) in computation.instructions.iter_mut().zip(found) {
            (instruction.read, instruction.written) = (read, written);
        }
    }
}

fn read_computation(message: &[u8]) -> Option<Computation> {
    let mut computation = Computation::default();
    walk(message, |field_number, field| {
        match field_number {
            1 => computation.name = text(field)?,
            2 => computation.instructions.push(read_instruction(bytes(field)?)?),
            5 => computation.id = number(field)?,
            6 => computation.root = number(field)?,
            _ => {}
        }
        Some(())
    })?;
    Some(computation)
}

fn read_instruction(message: &[u8]) -> Option<HloInstruction> {
    let mut instruction = HloInstruction::default();
    walk(message, |field_number, field| {
        match field_number {
            1 => instruction.name = text(field)?,
            2 => instruction.opcode = text(field)?,
            3 => read_shape(bytes(field)?, &mut instruction.results)?,
            7 => walk(bytes(field)?, |field_number, field| {
                if field_number == 2 {
                    instruction.op_name = text(field)?;
                }
                Some(())
            })?,
            8 => read_integer(bytes(field)?, &mut instruction.constant)?,
            9 => instruction.parameter = number(field)? as usize,
            13 => instruction.tuple_index = number(field)? as usize,
            26 => instruction.channel = number(field)?,
            35 => instruction.id = number(field)?,
            36 => numbers(field, &mut instruction.operands)?,
            38 => numbers(field, &mut instruction.called)?,
            68 => walk(bytes(field)?, |_, entry| read_attribute(bytes(entry)?, &mut instruction.between_slices))?,
            43 => instruction.cycles = read_cycles(bytes(field)?),
            49 if instruction.group.is_empty() => groups::read_group(bytes(field)?, &mut instruction.group)?,
            52 if instruction.group.is_empty() => groups::read_pair(bytes(field)?, &mut instruction.group)?,
            87 => groups::read_device_list(bytes(field)?, &mut instruction.group)?,
            92 => instruction.group = groups::read_range(bytes(field)?)?,
            93 => instruction.group = groups::read_mesh_group(bytes(field)?)?,
            _ => {}
        }
        Some(())
    })?;
    Some(instruction)
}

/// Reads the largest non-negative number of a `LiteralProto` of `s32`, `s64`, `u32` or `u64`.
fn read_integer(message: &[u8], into: &mut Option<u64>) -> Option<()> {
    let mut found = Vec::new();
    walk(message, |number, field| if matches!(number, 4..=7) { numbers(field, &mut found) } else { Some(()) })?;
    *into = found.into_iter().filter(|&number| i64::try_from(number).is_ok()).max();
    Some(())
}

/// Reads `window_config.estimated_cycles` of a TPU instruction's backend configuration, which is JSON. The largest `i64`
/// says that there is no estimate.
fn read_cycles(config: &[u8]) -> Option<u64> {
    let (_, rest) = std::str::from_utf8(config).ok()?.split_once("\"estimated_cycles\":")?;
    let digits = rest.trim_start_matches(['"', ' ']);
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    digits[..end].parse().ok().filter(|&cycles| cycles < i64::MAX as u64)
}

/// Reads an entry of `FrontendAttributes`.
fn read_attribute(message: &[u8], between_slices: &mut Option<String>) -> Option<()> {
    let (mut key, mut value) = (String::new(), String::new());
    walk(message, |field_number, field| {
        match field_number {
            1 => key = text(field)?,
            2 => value = text(field)?,
            _ => {}
        }
        Some(())
    })?;
    if key == BETWEEN_SLICES {
        *between_slices = Some(value.trim_matches('"').to_owned());
    }
    Some(())
}

/// Reads aliases. An entry without a tuple position (a single result) or with several levels is read by its first number.
fn read_aliases(message: &[u8], aliases: &mut Vec<(usize, usize)>) -> Option<()> {
    walk(message, |field_number, field| {
        if field_number == 1 {
            let (mut output, mut parameter) = (Vec::new(), 0);
            walk(bytes(field)?, |field_number, field| {
                match field_number {
                    1 => numbers(field, &mut output)?,
                    2 => parameter = number(field)?,
                    _ => {}
                }
                Some(())
            })?;
            aliases.push((output.first().copied().unwrap_or(0) as usize, parameter as usize));
        }
        Some(())
    })
}

/// XLA's `PrimitiveType`: number, name, bits. Types without bytes (tokens) are left out.
const ELEMENTS: [(u64, &str, u64); 24] = [
    (1, "pred", 8),
    (2, "s8", 8),
    (3, "s16", 16),
    (4, "s32", 32),
    (5, "s64", 64),
    (6, "u8", 8),
    (7, "u16", 16),
    (8, "u32", 32),
    (9, "u64", 64),
    (10, "f16", 16),
    (11, "f32", 32),
    (12, "f64", 64),
    (15, "c64", 64),
    (16, "bf16", 16),
    (18, "c128", 128),
    (19, "f8e5m2", 8),
    (20, "f8e4m3fn", 8),
    (21, "s4", 4),
    (22, "u4", 4),
    (23, "f8e4m3b11fnuz", 8),
    (24, "f8e5m2fnuz", 8),
    (25, "f8e4m3fnuz", 8),
    (26, "s2", 2),
    (27, "u2", 2),
];

/// Appends the arrays of a shape.
fn read_shape(message: &[u8], arrays: &mut Vec<HloArray>) -> Option<()> {
    let (mut element, mut dims, mut inner, mut layout) = (0, Vec::new(), Vec::new(), Layout::default());
    walk(message, |field_number, field| {
        match field_number {
            2 => element = number(field)?,
            3 => numbers(field, &mut dims)?,
            4 => read_shape(bytes(field)?, &mut inner)?,
            5 => layout = read_layout(bytes(field)?)?,
            _ => {}
        }
        Some(())
    })?;
    match ELEMENTS.iter().find(|(raw, ..)| *raw == element) {
        Some(&(_, name, bits)) => arrays.push(layout.array(name, bits, dims)),
        None => arrays.append(&mut inner),
    }
    Some(())
}

#[derive(Default)]
struct Layout {
    minor_to_major: Vec<u64>,
    tile: Vec<u64>,
    memory_space: u64,
}

fn read_layout(message: &[u8]) -> Option<Layout> {
    let (mut layout, mut tiles) = (Layout::default(), 0);
    walk(message, |field_number, field| {
        match field_number {
            1 => numbers(field, &mut layout.minor_to_major)?,
            6 => {
                // Further tiles subdivide the first one, which alone decides the padding.
                let tile = bytes(field)?;
                tiles += 1;
                walk(
                    tile,
                    |field_number, field| {
                        if field_number == 1 && tiles == 1 { numbers(field, &mut layout.tile) } else { Some(()) }
                    },
                )?;
            }
            8 => layout.memory_space = number(field)?,
            _ => {}
        }
        Some(())
    })?;
    Some(layout)
}

impl Layout {
    /// Returns the array with its sizes. A size that overflows cannot come from a real program; it saturates.
    fn array(&self, element: &'static str, bits: u64, dims: Vec<u64>) -> HloArray {
        let size =
            |dims: &mut dyn Iterator<Item = u64>| dims.fold(1u64, u64::saturating_mul).saturating_mul(bits).div_ceil(8);
        let bytes = size(&mut dims.iter().copied());
        // From major to minor; a tile covers the minor-most dims and may have more dims than a small array.
        let mut physical: Vec<u64> =
            self.minor_to_major.iter().rev().filter_map(|&dim| dims.get(dim as usize).copied()).collect();
        while physical.len() < self.tile.len() {
            physical.insert(0, 1);
        }
        let tiled = physical.len() - self.tile.len();
        for (dim, tile) in physical[tiled..].iter_mut().zip(&self.tile) {
            *dim = dim.checked_next_multiple_of((*tile).max(1)).unwrap_or(u64::MAX);
        }
        let padded_bytes = if bytes == 0 { 0 } else { size(&mut physical.into_iter()).max(bytes) };
        HloArray { element, dims, bytes, padded_bytes, memory_space: self.memory_space }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn field(number: u64, bytes: &[u8]) -> Vec<u8> {
        let mut message = vec![(number << 3 | 2) as u8, bytes.len() as u8];
        message.extend(bytes);
        message
    }

    /// Encodes varints of up to two bytes.
    pub(super) fn packed(numbers: &[u64]) -> Vec<u8> {
        let bytes = |&n: &u64| if n < 128 { vec![n as u8] } else { vec![(n & 0x7f) as u8 | 0x80, (n >> 7) as u8] };
        numbers.iter().flat_map(bytes).collect()
    }

    /// Encodes `bf16[dims]` with the minor-most dim last and one tile.
    fn shape(dims: &[u64], tile: &[u64], memory_space: u8) -> Vec<u8> {
        let order: Vec<u64> = (0..dims.len() as u64).rev().collect();
        let mut layout = field(1, &packed(&order));
        layout.extend(field(6, &field(1, &packed(tile))));
        layout.extend(field(6, &field(1, &[2, 1])));
        layout.extend([8 << 3, memory_space]);
        [vec![2 << 3, 16], field(3, &packed(dims)), field(5, &layout)].concat()
    }

    #[test]
    fn arrays_are_padded_to_their_first_tile() {
        for (dims, tile, bytes, padded) in [
            (&[100u64, 100][..], &[8u64, 128][..], 20_000, 104 * 128 * 2),
            (&[3, 100, 100], &[8, 128], 60_000, 3 * 104 * 128 * 2),
            (&[5], &[8, 100], 10, 8 * 100 * 2),
            (&[64, 128], &[], 16_384, 16_384),
            (&[0, 100], &[8, 100], 0, 0),
        ] {
            let mut arrays = Vec::new();
            read_shape(&shape(dims, tile, 1), &mut arrays).unwrap();
            let [array] = &arrays[..] else { panic!("{arrays:?}") };
            assert_eq!((array.element, array.bytes, array.padded_bytes), ("bf16", bytes, padded), "{dims:?}");
            assert_eq!((array.memory_space, array.dims.len()), (1, dims.len()));
        }
    }

    #[test]
    fn a_module_has_its_entrys_instructions_and_the_bodies_of_its_loops() {
        let add = [field(1, b"add.1"), field(2, b"add"), vec![35 << 3 & 0x7f | 0x80, 2, 7]].concat();
        let metadata = field(7, &field(2, b"float_add"));
        let call = [field(1, b"w"), field(2, b"while"), field(3, &shape(&[8], &[8, 128], 0)), metadata].concat();
        // Fields above 15 have keys of two bytes: 38 (called computations) holds 2.
        let call = [call, vec![0xb2, 2, 1, 2]].concat();
        let entry = [field(2, &call), vec![5 << 3, 1, 6 << 3, 7]].concat();
        let body = [field(2, &add), vec![5 << 3, 2]].concat();
        let unused = [field(2, &add), vec![5 << 3, 3]].concat();
        let alias = field(1, &[field(1, &[4]), vec![2 << 3, 9]].concat());
        let parts = [field(3, &unused), field(3, &body), field(3, &entry), vec![6 << 3, 1], field(8, &alias)].concat();
        let mut message = vec![1 << 3 | 2];
        assert!(parts.len() < 16_384);
        message.extend([(parts.len() & 0x7f) as u8 | 0x80, (parts.len() >> 7) as u8]);
        message.extend(parts);
        let module = HloModule::parse(&message).unwrap();
        let names: Vec<_> = module.instructions.iter().map(|i| (i.name.as_str(), i.in_entry)).collect();
        assert_eq!(names, [("w", true), ("add.1", false)]);
        assert_eq!(module.instructions[0].op_name, "float_add");
        assert_eq!((module.aliases, module.root), (vec![(4, 9)], 7));
    }

    #[test]
    fn an_all_reduce_of_which_a_device_keeps_a_part_is_a_reduce_scatter() {
        let instruction = |id, opcode: &str, operands: &[u64]| HloInstruction {
            id,
            opcode: opcode.into(),
            operands: operands.to_vec(),
            results: vec![HloArray { bytes: 64, ..HloArray::default() }],
            ..HloInstruction::default()
        };
        let kinds = ["all-reduce-scatter.3", "fused_computation"].map(|name| {
            let instructions = vec![instruction(1, "parameter", &[]), instruction(2, "all-reduce", &[1])];
            let found = Computation { name: name.into(), id: 7, root: 2, instructions };
            let [found] = &collectives(&[found], &HashMap::from([(7, 5)]))[..] else { panic!() };
            (found.kind, found.operand_bytes, found.runs)
        });
        assert_eq!(kinds, [("reduce-scatter", 64, 5), ("all-reduce", 64, 5)]);
    }

    #[test]
    fn bytes_that_are_no_message_are_an_error() {
        for bytes in [&b""[..], b"no protobuf at all", &[0x0a, 0xff], &[0x0a, 2, 0x1a, 9]] {
            assert!(matches!(HloModule::parse(bytes), Err(PjrtError::Usage { .. })), "{bytes:?}");
        }
    }
}
