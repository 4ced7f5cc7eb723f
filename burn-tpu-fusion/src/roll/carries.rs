//! What each loop carries: the values that its trips pass on, what it reads, and what the program reads of it afterwards.

use super::piece::{Loop, Loops, Position, Source};
use super::sequence::Sequence;
use burn_tpu_graph::{NodeId, Op};
use std::collections::BTreeSet;

/// One carry of a loop. Positions are those of its piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Carry {
    /// A member that the next trip reads, with the value from outside that the first trip reads.
    Moved { position: usize, first: NodeId },
    /// A value from outside that no trip changes.
    Fixed(NodeId),
    /// What an earlier loop has stacked; no trip changes it.
    Scanned(Position),
    /// A buffer for a member's values of all trips.
    Stacked { position: usize },
    /// A member that is read after the last trip only.
    Last { position: usize },
}

/// The values of loops that are read outside of the trip that computes them.
pub(super) struct Reads {
    /// Members of which one buffer with all values is needed.
    stacked: BTreeSet<Position>,
    /// Members whose value of the last trip is needed.
    last: BTreeSet<Position>,
}

impl Reads {
    /// Finds what is read of each loop by other loops, by nodes outside of loops, and by the caller of the program.
    pub(super) fn new(sequence: &Sequence, loops: &Loops) -> Self {
        let mut reads = Self { stacked: BTreeSet::new(), last: BTreeSet::new() };
        let mut read = |value: NodeId| {
            let Some((member, trip)) = sequence.place(value).and_then(|place| loops.at(place)) else { return };
            let is_last = trip + 1 == loops[member.of].trips;
            if is_last {
                reads.last.insert(member)
            } else {
                reads.stacked.insert(member)
            };
        };
        let outside = (0..sequence.len()).filter(|&place| loops.at(place).is_none());
        outside.for_each(|place| sequence.node(place).operands.iter().for_each(|&operand| read(operand)));
        sequence.program.outputs().iter().for_each(|&output| read(output));
        let values = |found: &Loop| found.carried(sequence).into_iter().filter_map(Carry::value).collect::<Vec<_>>();
        loops.iter().flat_map(values).for_each(read);
        let scanned = loops.iter().flat_map(|found| found.sources.iter().flatten());
        reads.stacked.extend(scanned.filter_map(|source| match *source {
            Source::Scanned { member, .. } => Some(member),
            _ => None,
        }));
        reads
    }

    /// Returns the carries of a loop, by its index: first those that its trips pass on, then those that they only read,
    /// then its results.
    pub(super) fn carries(&self, sequence: &Sequence, loops: &Loops, index: usize) -> Vec<Carry> {
        let mut carries = loops[index].carried(sequence);
        let own = |members: &BTreeSet<Position>| -> Vec<usize> {
            members.iter().filter(|member| member.of == index).map(|member| member.position).collect()
        };
        let stacked = own(&self.stacked);
        // These have the last value too.
        let known: BTreeSet<usize> = carries.iter().filter_map(|carry| carry.moved()).chain(stacked.clone()).collect();
        carries.extend(stacked.into_iter().map(|position| Carry::Stacked { position }));
        let last = own(&self.last).into_iter().filter(|position| !known.contains(position));
        carries.extend(last.map(|position| Carry::Last { position }));
        carries
    }
}

impl Carry {
    /// Returns the value from outside that the carry begins with, if it is one of the recording.
    pub(super) fn value(self) -> Option<NodeId> {
        match self {
            Carry::Moved { first, .. } | Carry::Fixed(first) => Some(first),
            Carry::Scanned(_) | Carry::Stacked { .. } | Carry::Last { .. } => None,
        }
    }

    /// Returns the position of the member that the next trip reads.
    fn moved(self) -> Option<usize> {
        match self {
            Carry::Moved { position, .. } => Some(position),
            Carry::Fixed(_) | Carry::Scanned(_) | Carry::Stacked { .. } | Carry::Last { .. } => None,
        }
    }
}

impl Loop {
    /// Returns the carry that provides an operand in the first member that reads it; `None` if the body computes it.
    pub(super) fn carry(&self, sequence: &Sequence, position: usize, operand: usize) -> Option<Carry> {
        match self.sources[position][operand] {
            Source::Inside { distance } if distance > position => {
                let first = sequence.node(self.start + position).operands[operand];
                Some(Carry::Moved { position: self.period + position - distance, first })
            }
            Source::Inside { .. } | Source::Integer { .. } => None,
            Source::Fixed(value) => carried_part(sequence, value).map(Carry::Fixed),
            Source::Scanned { member, .. } => Some(Carry::Scanned(member)),
        }
    }

    /// Returns the carries of the operands, each once.
    fn carried(&self, sequence: &Sequence) -> Vec<Carry> {
        let operands = |position: usize| (0..self.sources[position].len()).map(move |operand| (position, operand));
        let all = (0..self.period).flat_map(operands);
        let carries: BTreeSet<Carry> = all.filter_map(|(at, operand)| self.carry(sequence, at, operand)).collect();
        carries.into_iter().collect()
    }
}

/// Returns the value that is carried for a body to compute a value from outside: constants and broadcasts are repeated in
/// the body, where they are part of a fusion and need no memory (see `body`).
fn carried_part(sequence: &Sequence, value: NodeId) -> Option<NodeId> {
    let node = sequence.graph().node(value);
    match node.op {
        Op::Constant(_) | Op::Iota { .. } => None,
        Op::BroadcastInDim { .. } if sequence.place(value).is_none() => {
            node.operands.first().and_then(|&operand| carried_part(sequence, operand))
        }
        _ => Some(value),
    }
}
