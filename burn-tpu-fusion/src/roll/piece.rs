//! The loops of a program: where the operands of a repeated piece come from, trip by trip.

use super::period::{self, Run};
use super::sequence::{Sequence, integer, starts};
use super::{MIN_MEMBERS, MIN_SCANNING_MEMBERS, MIN_TRIPS};
use burn_tpu_graph::op::OpKind;
use burn_tpu_graph::{DType, NodeId, Op, TensorType};

/// The largest multiple of a period that is tried. The sums of a layer's weight gradients repeat with the period of one
/// weight by their keys, but only with the period of all of them by their operands.
const MOST_PERIODS_IN_ONE: usize = 8;

/// A number that grows by `step` from trip to trip.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Counted {
    pub(super) first: i64,
    pub(super) step: i64,
}

impl Counted {
    fn of(first: i64, second: i64) -> Self {
        Self { first, step: second - first }
    }

    fn at(self, trip: usize) -> i64 {
        self.first + self.step * trip as i64
    }
}

/// A member of a loop's piece: `position` counts from the start of the piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Position {
    /// The loop, by its index.
    pub(super) of: usize,
    pub(super) position: usize,
}

/// Where an operand comes from in each trip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// The member so many places before, in the same trip or in the one before. In the first trip, the latter is a value
    /// from outside.
    Inside { distance: usize },
    /// The same value in each trip.
    Fixed(NodeId),
    /// What an earlier loop computed, in trips that follow a rule.
    Scanned { member: Position, trip: Counted },
    /// An integer constant, which follows a rule.
    Integer { dtype: DType, value: Counted },
}

/// Trips of one piece: members `start..start + period * trips`.
pub(super) struct Loop {
    pub(super) start: usize,
    pub(super) period: usize,
    pub(super) trips: usize,
    /// By position and operand.
    pub(super) sources: Vec<Vec<Source>>,
    /// By position: where a slice begins, if that is not the same in all trips.
    pub(super) slices: Vec<Option<Vec<Counted>>>,
}

impl Loop {
    pub(super) fn end(&self) -> usize {
        self.start + self.period * self.trips
    }
}

/// The loops of a program, in order.
#[derive(Default)]
pub(super) struct Loops(Vec<Loop>);

impl std::ops::Deref for Loops {
    type Target = [Loop];

    fn deref(&self) -> &[Loop] {
        &self.0
    }
}

impl Loops {
    /// Finds the loops of a program.
    pub(super) fn find(sequence: &Sequence) -> Self {
        let mut loops = Self::default();
        for run in period::runs(&sequence.keys) {
            let free = loops.0.last().map_or(0, Loop::end);
            let run = Run { start: run.start.max(free), ..run };
            if run.start < run.end {
                loops.add(sequence, run);
            }
        }
        loops
    }

    /// Returns the loop that a member belongs to, its position and its trip.
    pub(super) fn at(&self, place: usize) -> Option<(Position, usize)> {
        let of = self.0.partition_point(|candidate| candidate.end() <= place);
        let found = self.0.get(of).filter(|found| found.start <= place)?;
        let from_start = place - found.start;
        Some((Position { of, position: from_start % found.period }, from_start / found.period))
    }

    /// Adds the loops of a run, with the multiple of its period by which they replace the most members.
    fn add(&mut self, sequence: &Sequence, run: Run) {
        let multiples = (1..=MOST_PERIODS_IN_ONE).map(|times| Run { period: run.period * times, ..run });
        let long_enough = multiples.take_while(|run| run.end - run.start >= MIN_TRIPS * run.period);
        let mut best: (usize, Vec<Loop>) = (0, Vec::new());
        for run in long_enough {
            let known = self.0.len();
            self.add_with_period(sequence, run);
            let found = self.0.split_off(known);
            let members = found.iter().map(|found| found.end() - found.start).sum();
            if members > best.0 {
                best = (members, found);
            }
        }
        self.0.extend(best.1);
    }

    fn add_with_period(&mut self, sequence: &Sequence, run: Run) {
        let mut start = period::first_copy(sequence, run);
        while start + MIN_TRIPS * run.period <= run.end {
            let found = self.grown(sequence, Run { start, ..run });
            let trips = found.trips;
            if Self::pays(sequence, &found) {
                self.0.push(found);
                start += trips * run.period;
            } else {
                // The last trip may be the first one of a loop: there, operands from the trip before follow no rule.
                start += (trips - 1).max(1) * run.period;
            }
        }
    }

    /// Returns the longest loop that begins at the start of a run.
    fn grown(&self, sequence: &Sequence, run: Run) -> Loop {
        let Run { start, period, end } = run;
        let mut grown = Loop { start, period, trips: 1, sources: Vec::new(), slices: Vec::new() };
        for position in 0..period {
            let Some(sources) = self.sources(sequence, &grown, position) else { return grown };
            grown.sources.push(sources);
            grown.slices.push(moving_slice(sequence, &grown, position));
        }
        let most = (end - start) / period;
        let next = (1..most).find(|&trip| (0..period).any(|position| !self.holds(sequence, &grown, position, trip)));
        grown.trips = next.unwrap_or(most);
        grown
    }

    /// Returns the sources that the first two trips suggest for the operands at a position.
    fn sources(&self, sequence: &Sequence, grown: &Loop, position: usize) -> Option<Vec<Source>> {
        let first = grown.start + position;
        let second = first + grown.period;
        let pairs = sequence.node(first).operands.iter().zip(&sequence.node(second).operands);
        pairs.map(|(&a, &b)| self.source(sequence, grown, [(first, a), (second, b)])).collect()
    }

    /// Returns the source of an operand, given its readers (by place) and its values in the first two trips.
    fn source(&self, sequence: &Sequence, grown: &Loop, operands: [(usize, NodeId); 2]) -> Option<Source> {
        let [(first, a), (second, b)] = operands;
        let graph = sequence.graph();
        if let Some(place) = sequence.place(b).filter(|&place| place >= grown.start) {
            let distance = second - place;
            let same_trip = place >= grown.start + grown.period;
            let outside = sequence.place(a).is_none_or(|place| place < grown.start);
            let starts_outside = outside && graph.ty(a) == graph.ty(b);
            let valid = if same_trip { sequence.place(a) == first.checked_sub(distance) } else { starts_outside };
            return valid.then_some(Source::Inside { distance });
        }
        if a == b {
            return Some(Source::Fixed(a));
        }
        if let (Some(x), Some(y)) = (integer(graph.node(a)), integer(graph.node(b))) {
            let dtype = graph.ty(a).dtype;
            return (graph.ty(b).dtype == dtype).then_some(Source::Integer { dtype, value: Counted::of(x, y) });
        }
        let [(member, from), (other, to)] = [self.at(sequence.place(a)?)?, self.at(sequence.place(b)?)?];
        (member == other).then_some(Source::Scanned { member, trip: Counted::of(from as i64, to as i64) })
    }

    /// Returns whether the member at a position of a trip after the first is what the loop's rules say.
    fn holds(&self, sequence: &Sequence, grown: &Loop, position: usize, trip: usize) -> bool {
        let place = grown.start + position + trip * grown.period;
        let node = sequence.node(place);
        let slice_holds = || match (&grown.slices[position], starts(node)) {
            (Some(rule), Some(starts)) => starts.iter().zip(rule).all(|(&start, rule)| start as i64 == rule.at(trip)),
            (None, Some(_)) => starts(sequence.node(grown.start + position)) == starts(node),
            (_, None) => true,
        };
        let operand_holds = |(&operand, source): (&NodeId, &Source)| match *source {
            Source::Inside { distance } => sequence.place(operand) == Some(place - distance),
            Source::Fixed(value) => operand == value,
            Source::Integer { dtype, value } => {
                let found = sequence.graph().node(operand);
                found.ty.dtype == dtype && integer(found) == Some(value.at(trip))
            }
            Source::Scanned { member, trip: rule } => {
                let found = sequence.place(operand).and_then(|place| self.at(place));
                found.is_some_and(|(found, from)| found == member && from as i64 == rule.at(trip))
            }
        };
        sequence.same_kind(place, grown.start + position)
            && slice_holds()
            && node.operands.iter().zip(&grown.sources[position]).all(operand_holds)
    }

    /// Returns whether a loop is valid and worth its overhead.
    fn pays(sequence: &Sequence, found: &Loop) -> bool {
        let Loop { start, period, trips, .. } = *found;
        let scans = found.sources.iter().flatten().any(|source| matches!(source, Source::Scanned { .. }));
        let least = if scans { MIN_SCANNING_MEMBERS } else { MIN_MEMBERS };
        let long = trips >= MIN_TRIPS && trips * period >= least;
        long && (0..period).any(|position| found.gains(sequence, position))
            && (0..period).all(|position| found.can_hold(sequence, position))
            && (start..found.end()).all(|place| {
                let trip_end = place - (place - start) % period + period;
                sequence.last_result(place) < trip_end
            })
    }
}

impl Loop {
    /// Returns whether the member at a position is worth a loop: a contraction, which XLA does not fuse with those of other
    /// trips, or something that reads or writes another place in each trip, which would be a kernel per trip. What is left
    /// is element-wise: unrolled, XLA may fuse all of it into one kernel.
    fn gains(&self, sequence: &Sequence, position: usize) -> bool {
        let moves = |source: &Source| matches!(source, Source::Scanned { .. } | Source::Integer { .. });
        let contracts = sequence.node(self.start + position).op.kind() == OpKind::Contraction;
        contracts || self.slices[position].is_some() || self.sources[position].iter().any(moves)
    }

    /// Returns whether a body can have the member at a position: a loop carries no complex values, and further results are
    /// read in the trip that computes them.
    fn can_hold(&self, sequence: &Sequence, position: usize) -> bool {
        let node = sequence.node(self.start + position);
        let in_this_trip = |source: &Source| matches!(*source, Source::Inside { distance } if distance <= position);
        let reads_result = matches!(node.op, Op::GetResult { .. });
        let is_complex = |ty: &TensorType| ty.dtype == DType::C64;
        let complex =
            is_complex(&node.ty) || node.operands.iter().any(|&operand| is_complex(sequence.graph().ty(operand)));
        !complex && (!reads_result || self.sources[position].iter().all(in_this_trip))
    }
}

/// Returns where the slice at a position begins, if that differs between the first two trips.
fn moving_slice(sequence: &Sequence, grown: &Loop, position: usize) -> Option<Vec<Counted>> {
    let first = grown.start + position;
    let [a, b] = [first, first + grown.period].map(|place| starts(sequence.node(place)));
    let (a, b) = (a?, b?);
    let rule = a.iter().zip(b).map(|(&a, &b)| Counted::of(a as i64, b as i64));
    (a != b).then(|| rule.collect())
}
