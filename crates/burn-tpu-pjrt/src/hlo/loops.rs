//! The trip counts of loops, and how often what is in them runs.

use super::{Computation, HloInstruction};
use std::collections::HashMap;

/// Returns how often each computation runs that the entry computation reaches.
pub(super) fn runs(computations: &[Computation], entry: u64) -> HashMap<u64, u64> {
    let bounds = bounds(computations);
    let by_id: HashMap<u64, &Computation> = computations.iter().map(|found| (found.id, found)).collect();
    let mut found = HashMap::new();
    let mut waiting = vec![(entry, 1u64)];
    while let Some((id, runs)) = waiting.pop() {
        // The call graph may reach a computation twice.
        if found.contains_key(&id) {
            continue;
        }
        found.insert(id, runs);
        for instruction in by_id.get(&id).map_or(&[][..], |computation| &computation.instructions) {
            let trips = match instruction.opcode.as_str() {
                "while" => trips(&instruction.called, &by_id, &bounds),
                _ => 1,
            };
            waiting.extend(instruction.called.iter().map(|&called| (called, runs.saturating_mul(trips))));
        }
    }
    found
}

/// Returns the trip count of a loop that calls these, a body and a condition; 1 if it is not known.
fn trips(called: &[u64], by_id: &HashMap<u64, &Computation>, bounds: &HashMap<u64, u64>) -> u64 {
    let Some((condition, bound)) = called.iter().find_map(|id| Some((id, *bounds.get(id)?))) else { return 1 };
    let body = called.iter().find(|id| *id != condition).and_then(|id| by_id.get(id));
    let step = by_id.get(condition).zip(body).and_then(|(condition, body)| body.step(condition.counter()?));
    bound.div_ceil(step.unwrap_or(1).max(1))
}

impl Computation {
    fn instruction(&self, id: u64) -> Option<&HloInstruction> {
        self.instructions.iter().find(|node| node.id == id)
    }

    /// Returns the place of the counter among the values of a loop with this condition.
    fn counter(&self) -> Option<usize> {
        let operands = self.instruction(self.root)?.operands.iter().filter_map(|&id| self.instruction(id));
        let mut places = operands.filter(|node| node.opcode == "get-tuple-element").map(|node| node.tuple_index);
        places.next().filter(|_| places.next().is_none())
    }

    /// Returns what a trip of a loop with this body adds to its counter. libtpu unrolls some of its own loops by two, such as
    /// a product that is computed as the parts of a factor arrive (windowed einsum), and counts by two there.
    fn step(&self, counter: usize) -> Option<u64> {
        let mut next = self.instruction(*self.instruction(self.root)?.operands.get(counter)?)?;
        while matches!(next.opcode.as_str(), "copy" | "bitcast") {
            next = self.instruction(*next.operands.first()?)?;
        }
        let mut addends = next.operands.iter().filter_map(|&id| self.instruction(id));
        addends.find_map(|node| node.constant).filter(|_| next.opcode == "add")
    }
}

/// Returns the bound of the counter for the computations that are conditions of counted loops: those that return a bool.
fn bounds(computations: &[Computation]) -> HashMap<u64, u64> {
    let largest = |computation: &Computation| computation.instructions.iter().filter_map(|node| node.constant).max();
    let by_id: HashMap<u64, Option<u64>> = computations.iter().map(|found| (found.id, largest(found))).collect();
    let bound = |condition: &Computation| {
        let root = condition.instructions.iter().find(|node| node.id == condition.root)?;
        let is_bool = matches!(&root.results[..], [array] if array.element == "pred" && array.dims.is_empty());
        // The comparison may be a fusion.
        let fused =
            condition.instructions.iter().flat_map(|node| &node.called).filter_map(|called| *by_id.get(called)?);
        let bound = fused.chain(largest(condition)).max()?;
        is_bool.then_some((condition.id, bound))
    };
    computations.iter().filter_map(bound).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hlo::HloArray;

    fn instruction(id: u64, opcode: &str, operands: &[u64]) -> HloInstruction {
        HloInstruction { id, opcode: opcode.into(), operands: operands.to_vec(), ..HloInstruction::default() }
    }

    fn constant(id: u64, value: u64) -> HloInstruction {
        HloInstruction { constant: Some(value), ..instruction(id, "constant", &[]) }
    }

    /// A loop over `(x, counter)` up to a bound.
    fn counted(bound: u64, step: u64) -> [Computation; 3] {
        let computation = |id, root, instructions| Computation { name: String::new(), id, root, instructions };
        let counter = || HloInstruction { tuple_index: 1, ..instruction(2, "get-tuple-element", &[1]) };
        let bool = HloArray { element: "pred", ..HloArray::default() };
        let compare = HloInstruction { results: vec![bool], ..instruction(4, "compare", &[2, 3]) };
        let condition = vec![instruction(1, "parameter", &[]), counter(), constant(3, bound), compare];
        let body = vec![
            instruction(1, "parameter", &[]),
            counter(),
            constant(3, step),
            instruction(4, "add", &[2, 3]),
            instruction(5, "copy", &[4]),
            instruction(6, "get-tuple-element", &[1]),
            instruction(7, "tuple", &[6, 5]),
        ];
        let call = HloInstruction { called: vec![11, 12], ..instruction(1, "while", &[]) };
        [computation(10, 1, vec![call]), computation(11, 7, body), computation(12, 4, condition)]
    }

    #[test]
    fn a_body_runs_once_for_each_step_of_the_counter() {
        for (bound, step, trips) in [(8, 1, 8), (8, 2, 4), (7, 2, 4), (0, 1, 0)] {
            assert_eq!(runs(&counted(bound, step), 10)[&11], trips, "to {bound} by {step}");
        }
    }
}
