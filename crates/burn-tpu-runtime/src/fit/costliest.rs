//! The instructions of a compiled program that take the most time by the compiler's estimate.

use super::buffers::shape;
use super::report::Costly;
use crate::lines::op_and_line;
use burn_tpu_pjrt::{HloArray, HloInstruction, HloModule};
use std::collections::BTreeMap;

/// The maximum number of reported entries.
const NAMED: usize = 10;

/// Returns the costliest instructions. Instructions that are alike are one entry.
pub(super) fn of(module: &HloModule) -> Vec<Costly> {
    let estimated = module.instructions.iter().filter_map(|instruction| Some((instruction, instruction.cycles?)));
    let mut alike: BTreeMap<_, Costly> = BTreeMap::new();
    for (instruction, cycles) in estimated {
        let (label, shape) = (label(instruction), shapes(&instruction.results));
        let entry = alike.entry((label, shape.clone(), cycles)).or_insert_with(|| {
            let ((op, line), instruction) = (op_and_line(label), instruction.name.clone());
            Costly { op, line, shape, instruction, runs: 0, cycles: 0 }
        });
        entry.runs += instruction.runs;
        entry.cycles += cycles * instruction.runs;
    }
    joined(alike.into_values())
}

/// Returns the costliest entries of several programs.
pub(super) fn joined(entries: impl Iterator<Item = Costly>) -> Vec<Costly> {
    let mut entries: Vec<Costly> = entries.collect();
    entries.sort_by(|a, b| (b.cycles, &a.instruction).cmp(&(a.cycles, &b.instruction)));
    entries.truncate(NAMED);
    entries
}

fn label(instruction: &HloInstruction) -> &str {
    let recorded = Some(&instruction.op_name).filter(|name| !name.is_empty());
    recorded.unwrap_or(&instruction.opcode)
}

fn shapes(results: &[HloArray]) -> String {
    results.iter().map(shape).collect::<Vec<_>>().join(" + ")
}
