//! What a compiled program assumes of its run-time scalars.

use burn_tpu_graph::Program;

/// What a program takes for granted about its slots (by index in the program), and every run checks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SlotAssumptions {
    /// Offsets that are constants, with their bits, ascending. The others are run-time scalars.
    offsets: Vec<(u32, u64)>,
    /// Scalars that share another one's input, ascending: the two are equal.
    shared: Vec<(u32, u32)>,
}

/// Fewer scalars than this are not worth an assumption.
const MANY_SCALARS: usize = 32;

impl SlotAssumptions {
    /// Returns all that can be assumed of a program that is compiled for the first time.
    pub(crate) fn all(program: &Program, slots: &[u64]) -> Self {
        let bits = |index: u32| slots.get(index as usize).copied();
        let mut offsets: Vec<_> = program.offsets().filter_map(|index| Some((index, bits(index)?))).collect();
        let many = program.slots().count() >= MANY_SCALARS;
        let mut shared = if many { program.twins(bits) } else { Vec::new() };
        offsets.sort_unstable();
        shared.sort_unstable();
        Self { offsets, shared }
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
            whole.offsets.extend(piece.offsets.iter().map(|&(offset, bits)| (index(offset), bits)));
            whole.shared.extend(piece.shared.iter().map(|&(scalar, other)| (index(scalar), index(other))));
        }
        whole.offsets.sort_unstable();
        whole.offsets.dedup();
        whole.shared.sort_unstable();
        whole.shared.dedup();
        whole
    }

    /// Returns whether they hold.
    pub(crate) fn hold(&self, slots: &[u64]) -> bool {
        self.offsets.iter().all(|offset| unchanged(offset, slots)) && self.shared.iter().all(|pair| equal(pair, slots))
    }

    /// Returns those that still hold.
    pub(crate) fn still_true(&self, slots: &[u64]) -> Self {
        Self {
            offsets: self.offsets.iter().copied().filter(|offset| unchanged(offset, slots)).collect(),
            shared: self.shared.iter().copied().filter(|pair| equal(pair, slots)).collect(),
        }
    }

    /// Returns the bits of an offset that is a constant.
    pub(crate) fn offset(&self, index: u32) -> Option<u64> {
        let found = self.offsets.binary_search_by_key(&index, |&(index, _)| index);
        found.ok().map(|place| self.offsets[place].1)
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
