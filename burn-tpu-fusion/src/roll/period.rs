//! Ranges of members whose keys repeat with a period, and where to cut them into copies.

use super::sequence::Sequence;
use super::{MIN_SCANNING_MEMBERS, MIN_TRIPS};
use rustc_hash::{FxHashMap, FxHasher};
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

/// The number of consecutive members that must be equal before their distance counts as a period.
const WINDOW: usize = 16;

/// A period occurs at least so often in a repetition that is long enough to roll. (Parts of its piece may repeat with
/// another period of their own, which hides this one there.)
const MIN_OCCURRENCES: usize = MIN_SCANNING_MEMBERS / 2;

/// The largest number of periods that are tried, the most frequent first.
const MOST_PERIODS: usize = 16;

/// Members `start..end`, each of which has the key of the one a period before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Run {
    pub(super) start: usize,
    pub(super) period: usize,
    pub(super) end: usize,
}

/// Returns the runs that are long enough for a loop, by their start. They may overlap.
pub(super) fn runs(keys: &[u64]) -> Vec<Run> {
    let mut runs: Vec<Run> = periods(keys).into_iter().flat_map(|period| with_period(keys, period)).collect();
    runs.sort_unstable();
    runs
}

/// Returns the most frequent distances between equal windows.
fn periods(keys: &[u64]) -> Vec<usize> {
    let mut last: FxHashMap<u64, usize> = FxHashMap::default();
    let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
    for (place, window) in keys.windows(WINDOW).enumerate() {
        let mut hasher = FxHasher::default();
        window.hash(&mut hasher);
        if let Some(before) = last.insert(hasher.finish(), place) {
            *counts.entry(place - before).or_default() += 1;
        }
    }
    let mut frequent: Vec<_> = counts.into_iter().filter(|&(_, count)| count >= MIN_OCCURRENCES).collect();
    frequent.sort_by_key(|&(period, count)| (std::cmp::Reverse(count), period));
    frequent.into_iter().map(|(period, _)| period).take(MOST_PERIODS).collect()
}

/// Returns the runs of one period.
fn with_period(keys: &[u64], period: usize) -> Vec<Run> {
    let mut runs = Vec::new();
    let mut first = period;
    for place in period..=keys.len() {
        if place < keys.len() && keys[place] == keys[place - period] {
            continue;
        }
        let run = Run { start: first - period, period, end: place };
        if run.end - run.start >= MIN_SCANNING_MEMBERS.max(MIN_TRIPS * period) {
            runs.push(run);
        }
        first = place + 1;
    }
    runs
}

/// Returns the place at which the first copy of a run begins: among those that lose no copy, the first one at which the
/// fewest values pass from a copy to the next.
pub(super) fn first_copy(sequence: &Sequence, run: Run) -> usize {
    let Run { start, period, end } = run;
    let middle = start + (end - start) / period / 2 * period;
    // How far the values of each member of the copy before the middle are read.
    let mut reach = vec![0; period];
    for place in middle..(middle + period).min(end) {
        for distance in distances(sequence, place) {
            let steady = distance < 2 * period && distances(sequence, place - period).any(|other| other == distance);
            if steady && place - distance >= start {
                let producer = &mut reach[(place - distance - start) % period];
                *producer = distance.max(*producer);
            }
        }
    }
    let crossing = crossings(&reach);
    let choices = 0..=(end - start) % period;
    start + choices.min_by_key(|&cut| crossing[cut]).unwrap_or_default()
}

/// Returns how far before a member its operands are.
fn distances(sequence: &Sequence, place: usize) -> impl Iterator<Item = usize> {
    sequence.node(place).operands.iter().filter_map(move |&operand| Some(place - sequence.place(operand)?))
}

/// Returns for each cut (before which member of the period) the number of values that cross it.
fn crossings(reach: &[usize]) -> Vec<usize> {
    let period = reach.len();
    // Each value crosses the cuts `producer + 1 ..= producer + reach`, modulo the period.
    let mut changes = vec![0isize; 2 * period + 1];
    for (producer, &reach) in reach.iter().enumerate() {
        changes[producer + 1] += 1;
        changes[producer + 1 + reach.min(period)] -= 1;
    }
    let mut crossing = vec![0usize; period];
    let mut open = 0;
    for (cut, change) in changes.iter().enumerate() {
        open += change;
        crossing[cut % period] += open.unsigned_abs();
    }
    crossing
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_of_each_period_is_found() {
        let piece: Vec<u64> = (0..40).collect();
        let keys: Vec<u64> = [vec![90, 91], piece.repeat(9), vec![92], [7, 8, 9].repeat(100), vec![93]].concat();
        let found = runs(&keys);
        assert!(found.contains(&Run { start: 2, period: 40, end: 362 }), "{found:?}");
        assert!(found.contains(&Run { start: 363, period: 3, end: 663 }), "{found:?}");
    }

    #[test]
    fn short_runs_and_few_copies_are_ignored() {
        let piece: Vec<u64> = (0..100).collect();
        assert_eq!(runs(&piece.repeat(MIN_TRIPS - 1)), []);
        assert_eq!(runs(&[1, 2, 3].repeat(MIN_SCANNING_MEMBERS / 3)), []);
        assert_eq!(runs(&[]), []);
    }

    #[test]
    fn a_value_crosses_the_cuts_after_its_producer_up_to_its_last_reader() {
        assert_eq!(crossings(&[1, 1, 0, 0]), [0, 1, 1, 0]);
        assert_eq!(crossings(&[0, 0, 2, 9]), [2, 1, 1, 2]);
    }
}
