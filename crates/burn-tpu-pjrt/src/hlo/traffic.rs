//! The bytes that a compiled program moves to and from the device's main memory, from its instructions and their layouts.

use super::{HloArray, HloInstruction, HloModule};
use std::collections::HashMap;

/// The device's main memory.
const MAIN_MEMORY: u64 = 0;

impl HloModule {
    /// Returns the bytes that a run moves to and from main memory, with tile padding. `bytes_accessed` is what the compiler
    /// reports. Both that figure, which counts transfers to on-chip memory, and the sum over the instructions, which may
    /// count more of an operand than is read, can only be too high, so the smaller one is returned. In a program with loops
    /// it is the sum: the compiler counts the body of a loop once.
    pub fn main_memory_bytes(&self, bytes_accessed: Option<u64>) -> u64 {
        let by_id: HashMap<u64, &HloInstruction> = self.instructions.iter().map(|i| (i.id, i)).collect();
        let moving = self.instructions.iter().filter(|i| i.opcode != "parameter" && i.opcode != "constant");
        let moved = moving.map(|instruction| instruction.bytes_moved(&by_id).saturating_mul(instruction.runs)).sum();
        let has_loops = self.instructions.iter().any(|instruction| instruction.runs > 1);
        bytes_accessed.filter(|_| !has_loops).map_or(moved, |accessed| accessed.min(moved))
    }
}

impl HloInstruction {
    /// Returns the bytes that one run reads from and writes to main memory. An instruction that reads a part of an operand,
    /// other than a slice or a gather, counts as reading all of it.
    fn bytes_moved(&self, by_id: &HashMap<u64, &HloInstruction>) -> u64 {
        if self.own_results().next().is_none() {
            return 0;
        }
        let in_main = |array: &HloArray| if array.is_in_main_memory() { array.padded_bytes } else { 0 };
        let share = |bytes: u64, share: Option<&f64>| (bytes as f64 * share.copied().unwrap_or(1.0)) as u64;
        let written = self.own_results().map(|(place, array)| share(in_main(array), self.written.get(place)));
        let read = self.operands.iter().enumerate().filter_map(|(place, id)| {
            let bytes = by_id.get(id)?.results.iter().map(in_main).sum();
            Some(share(bytes, self.read.get(place)))
        });
        let (written, read): (u64, u64) = (written.sum(), read.sum());
        if !self.opcode.ends_with("-start") {
            return written + read;
        }
        // A copy reads as many bytes as it writes, which may be a slice of its operand.
        let brought: u64 = self.own_results().map(|(_, array)| array.padded_bytes).sum();
        written + brought.min(read)
    }

    /// Returns the arrays that the instruction creates, with their index in its result. Views and the ends of asynchronous
    /// pairs create none.
    pub fn own_results(&self) -> impl Iterator<Item = (usize, &HloArray)> {
        let all = self.results.len();
        let (first, end) = match self.opcode.as_str() {
            "tuple" | "get-tuple-element" | "bitcast" | "while" | "conditional" | "call" | "after-all" => (0, 0),
            "opt-barrier" | "add-dependency" | "domain" => (0, 0),
            "parameter" if !self.in_entry => (0, 0),
            // Destination, source, context.
            "copy-start" => (0, all.min(1)),
            // Operands, results, context.
            "async-start" => (self.operands.len().min(all), all.saturating_sub(1).max(self.operands.len()).min(all)),
            opcode if opcode.ends_with("-done") || opcode.ends_with("-update") && opcode.starts_with("async") => (0, 0),
            _ => (0, all),
        };
        self.results.iter().enumerate().take(end).skip(first)
    }
}

impl HloArray {
    /// Returns whether the array is in the device's main memory.
    pub fn is_in_main_memory(&self) -> bool {
        self.memory_space == MAIN_MEMORY
    }
}
