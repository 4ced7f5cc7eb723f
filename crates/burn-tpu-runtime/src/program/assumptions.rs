//! What a compiled program assumes of its run-time scalars.

use burn_tpu_graph::Program;

/// What a program takes for granted about its slots (by index in the program), and every run checks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SlotAssumptions {
    /// Scalars that are constants, with their bits, ascending. The others are inputs.
    constants: Vec<(u32, u64)>,
    /// Scalars that share another one's input, ascending: the two are equal.
    shared: Vec<(u32, u32)>,
    /// What [`SlotAssumptions::shared`] says, of runs of scalars. An optimizer's numbers come once for each parameter, in
    /// one order, so that a step with hundreds of them compares few runs.
    equal_runs: Vec<EqualRun>,
}

/// Consecutive scalars that are equal to as many others, in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
struct EqualRun {
    first: usize,
    other: usize,
    len: usize,
}

impl EqualRun {
    /// Returns the runs of pairs of equal scalars.
    fn of(shared: &[(u32, u32)]) -> Vec<Self> {
        let mut runs: Vec<Self> = Vec::new();
        for (scalar, other) in shared.iter().map(|&(scalar, other)| (scalar as usize, other as usize)) {
            match runs.last_mut() {
                Some(run) if (run.first + run.len, run.other + run.len) == (scalar, other) => run.len += 1,
                _ => runs.push(Self { first: scalar, other, len: 1 }),
            }
        }
        runs
    }

    fn holds(&self, slots: &[u64]) -> bool {
        slots.get(self.first..self.first + self.len) == slots.get(self.other..self.other + self.len)
    }
}

/// Fewer scalars than this are not worth an assumption.
const MANY_SCALARS: usize = 32;

impl SlotAssumptions {
    /// Creates the assumptions of these constants and pairs, in any order.
    fn new(mut constants: Vec<(u32, u64)>, mut shared: Vec<(u32, u32)>) -> Self {
        constants.sort_unstable();
        constants.dedup();
        shared.sort_unstable();
        shared.dedup();
        let equal_runs = EqualRun::of(&shared);
        Self { constants, shared, equal_runs }
    }

    /// Returns all that can be assumed of a program that is compiled for the first time.
    pub(crate) fn all(program: &Program, slots: &[u64]) -> Self {
        let bits = |index: u32| slots.get(index as usize).copied();
        let baked = program.bakeable().into_iter();
        let constants: Vec<_> = baked.filter_map(|index| Some((index, bits(index)?))).collect();
        let many = program.slots().count() >= MANY_SCALARS;
        let is_input = |index: u32| constants.iter().all(|&(constant, _)| constant != index);
        let shared = if many { program.twins(|index| bits(index).filter(|_| is_input(index))) } else { Vec::new() };
        Self::new(constants, shared)
    }

    /// Returns what can be assumed of a program in all of these runs, given by their slots: what still holds of `older`, or
    /// all that is possible if there is no older program.
    pub(crate) fn of_runs<'s>(
        program: &Program,
        older: Option<&Self>,
        mut runs: impl Iterator<Item = &'s [u64]>,
    ) -> Self {
        let first = runs.next().unwrap_or_default();
        let start = older.map_or_else(|| Self::all(program, first), |older| older.still_true(first));
        runs.fold(start, |assumptions, slots| assumptions.still_true(slots))
    }

    /// Returns what a program assumes that consists of pieces, each with its assumptions and the indices of its slots in the
    /// whole.
    pub(crate) fn of_pieces<'p>(pieces: impl Iterator<Item = (&'p Self, &'p [u32])>) -> Self {
        let (mut constants, mut shared) = (Vec::new(), Vec::new());
        for (piece, slots) in pieces {
            let index = |index: u32| slots[index as usize];
            constants.extend(piece.constants.iter().map(|&(scalar, bits)| (index(scalar), bits)));
            shared.extend(piece.shared.iter().map(|&(scalar, other)| (index(scalar), index(other))));
        }
        Self::new(constants, shared)
    }

    /// Returns what is assumed if these scalars are constants too.
    pub(crate) fn with_constants(mut self, constants: &[(u32, u64)]) -> Self {
        self.constants.extend(constants);
        Self::new(self.constants, self.shared)
    }

    /// Returns the program in which they are taken for granted.
    ///
    /// # Errors
    /// None, for a program that the verifier accepts.
    pub(crate) fn applied_to(&self, program: &Program) -> burn_tpu_graph::Result<Program> {
        program.bake(|index| self.constant(index))?.share(|index| self.input_of(index))
    }

    /// Returns whether they hold.
    pub(crate) fn hold(&self, slots: &[u64]) -> bool {
        self.constants.iter().all(|scalar| unchanged(scalar, slots))
            && self.equal_runs.iter().all(|run| run.holds(slots))
    }

    /// Returns those that still hold.
    pub(crate) fn still_true(&self, slots: &[u64]) -> Self {
        let constants = self.constants.iter().copied().filter(|scalar| unchanged(scalar, slots)).collect();
        let shared = self.shared.iter().copied().filter(|pair| equal(pair, slots)).collect();
        Self::new(constants, shared)
    }

    /// Returns the bits of a scalar that is a constant.
    pub(crate) fn constant(&self, index: u32) -> Option<u64> {
        let found = self.constants.binary_search_by_key(&index, |&(index, _)| index);
        found.ok().map(|place| self.constants[place].1)
    }

    /// Returns the scalar whose input a scalar uses: another one's, or its own.
    pub(crate) fn input_of(&self, index: u32) -> u32 {
        let found = self.shared.binary_search_by_key(&index, |&(index, _)| index);
        found.map_or(index, |place| self.shared[place].1)
    }
}

fn unchanged(&(index, bits): &(u32, u64), slots: &[u64]) -> bool {
    slots.get(index as usize) == Some(&bits)
}

fn equal(&(scalar, other): &(u32, u32), slots: &[u64]) -> bool {
    slots.get(scalar as usize) == slots.get(other as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalars_that_come_once_for_each_parameter_are_compared_as_runs() {
        // Three parameters of four scalars each; the last scalar is each parameter's own.
        let pairs = (1..3).flat_map(|parameter| (0..3).map(move |scalar| (4 * parameter + scalar, scalar)));
        let assumptions = SlotAssumptions::new(vec![(3, 7)], pairs.collect());
        assert_eq!(assumptions.equal_runs.len(), 2);
        let slots = [1, 2, 3, 7, 1, 2, 3, 8, 1, 2, 3, 9];
        assert!(assumptions.hold(&slots) && !assumptions.hold(&slots[..10]), "a scalar is missing");
        for changed in 0..slots.len() {
            let mut other = slots;
            other[changed] = 70;
            let holds = changed == 7 || changed == 11;
            assert_eq!((assumptions.hold(&other), assumptions.still_true(&other) == assumptions), (holds, holds));
            assert!(assumptions.still_true(&other).hold(&other));
        }
    }

    #[test]
    fn scalars_in_another_order_are_runs_of_their_own() {
        let assumptions = SlotAssumptions::new(Vec::new(), vec![(5, 0), (3, 1), (4, 2), (6, 2)]);
        assert_eq!(assumptions.equal_runs.len(), 3);
        let slots = [4, 5, 6, 5, 6, 4, 6];
        assert!(assumptions.hold(&slots));
        assert!((3..7).all(|changed| {
            let mut other = slots;
            other[changed] = 0;
            !assumptions.hold(&other)
        }));
    }
}
