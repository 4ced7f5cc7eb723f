//! Sets of times: unions, lengths and differences of ranges in nanoseconds.

use std::ops::Range;

/// Times that do not overlap, ascending.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Intervals(Vec<Range<u64>>);

impl FromIterator<Range<u64>> for Intervals {
    /// Returns the union of ranges, in any order.
    fn from_iter<I: IntoIterator<Item = Range<u64>>>(ranges: I) -> Self {
        let mut ranges: Vec<_> = ranges.into_iter().filter(|range| !range.is_empty()).collect();
        ranges.sort_unstable_by_key(|range| range.start);
        let mut union: Vec<Range<u64>> = Vec::new();
        for range in ranges {
            match union.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => union.push(range),
            }
        }
        Self(union)
    }
}

impl Intervals {
    /// Returns the total length.
    pub(crate) fn length(&self) -> u64 {
        self.0.iter().map(|range| range.end - range.start).sum()
    }

    /// Returns the times of this set that are in `window`.
    pub(crate) fn within(&self, window: &Range<u64>) -> Self {
        let clip = |range: &Range<u64>| range.start.max(window.start)..range.end.min(window.end);
        self.0.iter().map(clip).collect()
    }

    /// Returns the times that are in this set and not in `other`.
    pub(crate) fn without(&self, other: &Self) -> Self {
        let mut left = Vec::new();
        for range in &self.0 {
            let first = other.0.partition_point(|hole| hole.end <= range.start);
            let mut start = range.start;
            for hole in other.0[first..].iter().take_while(|hole| hole.start < range.end) {
                left.push(start..hole.start);
                start = hole.end;
            }
            left.push(start..range.end);
        }
        left.into_iter().collect()
    }

    /// Returns the ranges.
    pub(crate) fn into_ranges(self) -> Vec<Range<u64>> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unions_and_differences_have_the_lengths_of_their_sets() {
        let set: Intervals = [5..9, 0..3, 2..4, 9..10, 7..7].into_iter().collect();
        assert_eq!(set, Intervals(vec![0..4, 5..10]));
        assert_eq!((set.length(), set.within(&(3..6)).length(), set.within(&(20..30)).length()), (9, 2, 0));
        let other: Intervals = [1..6, 7..8, 20..30].into_iter().collect();
        assert_eq!(set.without(&other).into_ranges(), [0..1, 6..7, 8..10]);
        assert_eq!(other.without(&set).into_ranges(), [4..5, 20..30]);
        assert_eq!(set.without(&set).into_ranges(), []);
    }
}
