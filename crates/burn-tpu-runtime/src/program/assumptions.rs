//! What a compiled program assumes of its run-time scalars.

use burn_tpu_graph::Program;

/// What a program takes for granted about its slots (by index in the program), and every run checks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SlotAssumptions {
    /// Scalars that are constants, with their bits, ascending. The others are inputs.
    constants: Vec<(u32, u64)>,
    /// Scalars that share another one's input, ascending: the two are equal.
    shared: Vec<(u32, u32)>,
}

/// Fewer scalars than this are not worth an assumption.
const MANY_SCALARS: usize = 32;

impl SlotAssumptions {
    /// Returns all that can be assumed of a program that is compiled for the first time.
    pub(crate) fn all(program: &Program, slots: &[u64]) -> Self {
        let bits = |index: u32| slots.get(index as usize).copied();
        let baked = program.bakeable().into_iter();
        let mut constants: Vec<_> = baked.filter_map(|index| Some((index, bits(index)?))).collect();
        let many = program.slots().count() >= MANY_SCALARS;
        let is_input = |index: u32| constants.iter().all(|&(constant, _)| constant != index);
        let mut shared = if many { program.twins(|index| bits(index).filter(|_| is_input(index))) } else { Vec::new() };
        constants.sort_unstable();
        shared.sort_unstable();
        Self { constants, shared }
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
        let mut whole = Self::default();
        for (piece, slots) in pieces {
            let index = |index: u32| slots[index as usize];
            whole.constants.extend(piece.constants.iter().map(|&(scalar, bits)| (index(scalar), bits)));
            whole.shared.extend(piece.shared.iter().map(|&(scalar, other)| (index(scalar), index(other))));
        }
        whole.constants.sort_unstable();
        whole.constants.dedup();
        whole.shared.sort_unstable();
        whole.shared.dedup();
        whole
    }

    /// Returns what is assumed if these scalars are constants too.
    pub(crate) fn with_constants(mut self, constants: &[(u32, u64)]) -> Self {
        self.constants.extend(constants);
        self.constants.sort_unstable();
        self.constants.dedup();
        self
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
            && self.shared.iter().all(|pair| equal(pair, slots))
    }

    /// Returns those that still hold.
    pub(crate) fn still_true(&self, slots: &[u64]) -> Self {
        Self {
            constants: self.constants.iter().copied().filter(|scalar| unchanged(scalar, slots)).collect(),
            shared: self.shared.iter().copied().filter(|pair| equal(pair, slots)).collect(),
        }
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
