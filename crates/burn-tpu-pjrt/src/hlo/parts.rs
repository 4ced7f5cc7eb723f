//! Which share of its operands a run of an instruction reads, and which share of its results it writes: a slice of an array
//! is less than all of it, and an update in place writes no more than its values.
//!
//! Knows a fusion by what the instructions in it do with its parameters.

use super::{Computation, HloInstruction};
use std::collections::HashMap;

/// The operations that read each element of their first operand at most once, and nothing else of it.
const PASSED_ON: [&str; 6] = ["bitcast", "convert", "copy", "negate", "reshape", "transpose"];

/// Fusions in fusions; deeper ones count as reading all.
const DEPTH: usize = 4;

/// A module by ids.
pub(super) struct Parts<'a> {
    computations: HashMap<u64, &'a Computation>,
    instructions: HashMap<u64, &'a HloInstruction>,
}

impl<'a> Parts<'a> {
    pub(super) fn new(computations: &'a [Computation]) -> Self {
        let instructions = computations.iter().flat_map(|computation| &computation.instructions);
        Self {
            computations: computations.iter().map(|computation| (computation.id, computation)).collect(),
            instructions: instructions.map(|instruction| (instruction.id, instruction)).collect(),
        }
    }

    /// Returns the share of each operand that a run of the instruction reads.
    pub(super) fn read(&self, instruction: &HloInstruction) -> Vec<f64> {
        let size = |id: &u64| self.instructions.get(id).map_or(0, |operand| elements(operand));
        let share = |(place, id)| self.read_by(instruction, place, size(id), DEPTH);
        instruction.operands.iter().enumerate().map(share).collect()
    }

    /// Returns the share of each result that a run of the instruction writes.
    pub(super) fn written(&self, instruction: &'a HloInstruction) -> Vec<f64> {
        let Some(fused) = self.fused(instruction) else { return vec![self.updated(instruction)] };
        let of = |id: &u64| self.instructions.get(id).copied();
        match of(&fused.root) {
            Some(root) if root.opcode == "tuple" => {
                root.operands.iter().map(|id| of(id).map_or(1.0, |result| self.updated(result))).collect()
            }
            root => vec![root.map_or(1.0, |root| self.updated(root))],
        }
    }

    fn fused(&self, instruction: &HloInstruction) -> Option<&'a Computation> {
        if instruction.opcode == "fusion" { self.computations.get(instruction.called.first()?).copied() } else { None }
    }

    /// Returns the share of an operand of so many elements that an instruction reads.
    fn read_by(&self, reader: &HloInstruction, place: usize, size: u64, depth: usize) -> f64 {
        let of_result = |reader: &HloInstruction| (elements(reader) as f64 / size.max(1) as f64).min(1.0);
        match (reader.opcode.as_str(), place) {
            ("slice" | "dynamic-slice" | "gather", 0) => of_result(reader),
            ("dynamic-update-slice", 0) => 0.0,
            _ => match self.fused(reader) {
                Some(fused) if depth > 0 => {
                    let is_own = |inner: &&HloInstruction| inner.opcode == "parameter" && inner.parameter == place;
                    let own = fused.instructions.iter().find(is_own);
                    own.map_or(1.0, |own| self.read_within(own, fused, size, depth - 1))
                }
                _ => 1.0,
            },
        }
    }

    /// Returns the share of a value that those read together that use it within a fusion.
    fn read_within(&self, value: &HloInstruction, fused: &Computation, size: u64, depth: usize) -> f64 {
        if value.id == fused.root {
            return 1.0;
        }
        let mut share = 0.0;
        for user in fused.instructions.iter().filter(|user| user.operands.contains(&value.id)) {
            let places = (0..user.operands.len()).filter(|&place| user.operands[place] == value.id);
            for place in places {
                share += match user.opcode.as_str() {
                    passed if PASSED_ON.contains(&passed) => self.read_within(user, fused, size, depth),
                    _ => self.read_by(user, place, size, depth),
                };
            }
        }
        share.min(1.0)
    }

    /// Returns the share of its result that an instruction writes: less than all if it updates an argument in place.
    fn updated(&self, mut instruction: &'a HloInstruction) -> f64 {
        let operand = |instruction: &HloInstruction, place: usize| {
            instruction.operands.get(place).and_then(|id| self.instructions.get(id)).copied()
        };
        while let ("bitcast", Some(of)) = (instruction.opcode.as_str(), operand(instruction, 0)) {
            instruction = of;
        }
        match (instruction.opcode.as_str(), operand(instruction, 1)) {
            ("dynamic-update-slice", Some(update)) => elements(update) as f64 / elements(instruction).max(1) as f64,
            _ => 1.0,
        }
    }
}

fn elements(instruction: &HloInstruction) -> u64 {
    instruction.results.first().map_or(0, |array| array.dims.iter().product())
}

#[cfg(test)]
mod tests {
    use super::super::HloArray;
    use super::*;

    fn instruction(id: u64, opcode: &str, dims: &[u64], operands: &[u64]) -> HloInstruction {
        let results = vec![HloArray { dims: dims.to_vec(), ..HloArray::default() }];
        HloInstruction { id, opcode: opcode.into(), results, operands: operands.to_vec(), ..HloInstruction::default() }
    }

    fn computation(id: u64, instructions: Vec<HloInstruction>) -> Computation {
        let root = instructions.last().unwrap().id;
        Computation { name: String::new(), id, root, instructions }
    }

    #[test]
    fn a_slice_reads_a_part_and_an_update_in_place_writes_one() {
        let alone = computation(
            1,
            vec![
                instruction(1, "parameter", &[100, 8], &[]),
                instruction(2, "parameter", &[5, 8], &[]),
                instruction(3, "dynamic-slice", &[25, 8], &[1]),
                instruction(4, "dynamic-update-slice", &[100, 8], &[1, 2]),
                instruction(5, "add", &[100, 8], &[1, 1]),
            ],
        );
        let computations = [alone];
        let parts = Parts::new(&computations);
        let of = |place: usize| &computations[0].instructions[place];
        assert_eq!(parts.read(of(2)), [0.25]);
        assert_eq!(parts.read(of(3)), [0.0, 1.0]);
        assert_eq!(parts.written(of(3)), [0.05]);
        assert_eq!(parts.read(of(4)), [1.0, 1.0]);
        assert_eq!(parts.written(of(4)), [1.0]);
    }

    #[test]
    fn a_fusion_reads_what_its_instructions_read() {
        let parameter = |id: u64, number: usize, dims: &[u64]| HloInstruction {
            parameter: number,
            ..instruction(id, "parameter", dims, &[])
        };
        let fused = computation(
            2,
            vec![
                parameter(11, 0, &[100, 8]),
                parameter(12, 1, &[100, 8]),
                instruction(13, "convert", &[100, 8], &[11]),
                instruction(14, "dynamic-slice", &[10, 8], &[13]),
                instruction(15, "dynamic-slice", &[10, 8], &[11]),
                instruction(16, "multiply", &[10, 8], &[14, 15]),
                instruction(17, "dynamic-update-slice", &[100, 8], &[12, 16]),
                instruction(18, "add", &[10, 8], &[16, 16]),
                instruction(19, "tuple", &[], &[17, 18]),
            ],
        );
        let fusion = HloInstruction { called: vec![2], ..instruction(3, "fusion", &[100, 8], &[1, 2]) };
        let entry = computation(
            1,
            vec![instruction(1, "parameter", &[100, 8], &[]), instruction(2, "parameter", &[100, 8], &[]), fusion],
        );
        let computations = [entry, fused];
        let parts = Parts::new(&computations);
        let fusion = &computations[0].instructions[2];
        assert_eq!(parts.read(fusion), [0.2, 0.0]);
        assert_eq!(parts.written(fusion), [0.1, 1.0]);
    }
}
