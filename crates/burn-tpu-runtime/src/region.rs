//! Regions of row-major arrays: boxes, and the runs of elements that two of them share.
//!
//! Owns the arithmetic of parts: which bytes of a value a device has, a file has, and both have. May not know where the
//! bytes are.

/// A box of a row-major array: its first index and its size in each dim.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Region {
    /// The first index in each dim.
    pub start: Vec<usize>,
    /// The number of indices in each dim.
    pub sizes: Vec<usize>,
}

/// A region of a value, and the processes that have it: all of them the same elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The region.
    pub region: Region,
    /// The numbers of the processes, ascending.
    pub processes: Vec<usize>,
}

impl Region {
    /// Returns the region of all elements of an array of these dims.
    pub fn whole(dims: &[usize]) -> Self {
        Self { start: vec![0; dims.len()], sizes: dims.to_vec() }
    }

    /// Returns the number of elements.
    pub fn elements(&self) -> usize {
        self.sizes.iter().product()
    }

    /// Returns the first index after the region in a dim.
    fn end(&self, dim: usize) -> usize {
        self.start[dim] + self.sizes[dim]
    }

    /// Returns whether every element of another region is in this one.
    pub fn contains(&self, other: &Self) -> bool {
        let is_within = |dim| self.start[dim] <= other.start[dim] && other.end(dim) <= self.end(dim);
        self.start.len() == other.start.len() && (0..self.start.len()).all(is_within)
    }

    /// Returns the smallest region that contains all of these; `None` of none.
    pub fn around(regions: &[Self]) -> Option<Self> {
        let rank = regions.first()?.start.len();
        let first = |dim| regions.iter().map(|region| region.start[dim]).min().unwrap_or(0);
        let end = |dim| regions.iter().map(|region| region.end(dim)).max().unwrap_or(0);
        let start: Vec<usize> = (0..rank).map(first).collect();
        let sizes = (0..rank).map(|dim| end(dim) - start[dim]).collect();
        Some(Self { start, sizes })
    }

    /// Returns the elements that two regions of one array share; `None` if there are none.
    pub fn common(&self, other: &Self) -> Option<Self> {
        let rank = self.start.len();
        let start: Vec<usize> = (0..rank).map(|dim| self.start[dim].max(other.start[dim])).collect();
        let end = |dim| self.end(dim).min(other.end(dim));
        let sizes: Vec<usize> = (0..rank).map(|dim| end(dim).saturating_sub(start[dim])).collect();
        (!sizes.contains(&0)).then_some(Self { start, sizes })
    }

    /// Calls `run` with each run of elements that is contiguous in both regions of one array: its place in this one,
    /// its place in the other, its length. Returns the number of elements that they share.
    pub fn runs(&self, other: &Self, mut run: impl FnMut(usize, usize, usize)) -> usize {
        let Some(common) = self.common(other) else { return 0 };
        // The dims after the last one that is not whole in both are spanned by a run.
        let is_split = |&dim: &usize| common.sizes[dim] != self.sizes[dim] || common.sizes[dim] != other.sizes[dim];
        let last = (0..common.sizes.len()).rev().find(is_split).unwrap_or(0);
        let length: usize = common.sizes[last.min(common.sizes.len())..].iter().product();
        let outer: usize = common.sizes[..last].iter().product();
        for i in 0..outer {
            run(self.place(&common, last, i), other.place(&common, last, i), length);
        }
        common.elements()
    }

    /// Returns the place, in elements, at which run `i` of a region within this one begins, of those over the dims
    /// before `last`.
    fn place(&self, within: &Self, last: usize, i: usize) -> usize {
        let Some(&whole) = self.sizes.get(last) else { return 0 };
        let mut stride: usize = self.sizes[last + 1..].iter().product();
        let mut at = (within.start[last] - self.start[last]) * stride;
        stride *= whole;
        let mut rest = i;
        for dim in (0..last).rev() {
            at += (within.start[dim] - self.start[dim] + rest % within.sizes[dim]) * stride;
            rest /= within.sizes[dim];
            stride *= self.sizes[dim];
        }
        at
    }

    /// Copies the elements that two regions of one array share from the bytes of this one to those of the other.
    /// Returns their number. `element` is the size of one in bytes.
    pub fn copy(&self, bytes: &[u8], to: &Self, to_bytes: &mut [u8], element: usize) -> usize {
        self.runs(to, |from, at, length| {
            let run = &bytes[from * element..][..length * element];
            to_bytes[at * element..][..length * element].copy_from_slice(run);
        })
    }

    /// Returns the bytes of a region within this one.
    pub fn take(&self, bytes: &[u8], part: &Self, element: usize) -> Vec<u8> {
        let mut taken = Vec::with_capacity(part.elements() * element);
        self.runs(part, |from, _, length| taken.extend_from_slice(&bytes[from * element..][..length * element]));
        taken
    }
}

/// Writes `[0:2, 4:8]`.
impl std::fmt::Display for Region {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let dims: Vec<String> =
            (0..self.start.len()).map(|dim| format!("{}:{}", self.start[dim], self.end(dim))).collect();
        write!(f, "[{}]", dims.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(start: &[usize], sizes: &[usize]) -> Region {
        Region { start: start.to_vec(), sizes: sizes.to_vec() }
    }

    #[test]
    fn parts_join_to_the_whole_and_to_each_other() {
        let dims = [4, 5, 6];
        let whole = Region::whole(&dims);
        let bytes: Vec<u8> = (0..240).map(|byte| byte as u8).collect();
        let parts = [region(&[0, 0, 0], &[4, 2, 6]), region(&[0, 2, 0], &[4, 3, 2]), region(&[0, 2, 2], &[4, 3, 4])];
        let mut joined = vec![0; bytes.len()];
        for part in &parts {
            let taken = whole.take(&bytes, part, 2);
            assert_eq!(taken.len(), part.elements() * 2);
            assert_eq!(part.copy(&taken, &whole, &mut joined, 2), part.elements());
        }
        assert_eq!(joined, bytes);
        // From parts to a region that cuts each of them.
        let other = region(&[1, 1, 1], &[2, 3, 4]);
        let mut found = vec![0; other.elements() * 2];
        let copied = parts.iter().map(|part| part.copy(&whole.take(&bytes, part, 2), &other, &mut found, 2));
        assert_eq!(copied.sum::<usize>(), other.elements());
        assert_eq!(found, whole.take(&bytes, &other, 2));
    }

    #[test]
    fn runs_are_as_long_as_both_regions_allow() {
        let runs = |from: &Region, to: &Region| {
            let mut runs = Vec::new();
            from.runs(to, |from, to, length| runs.push((from, to, length)));
            runs
        };
        let whole = Region::whole(&[4, 6]);
        assert_eq!(runs(&whole, &whole), [(0, 0, 24)]);
        assert_eq!(runs(&whole, &region(&[1, 0], &[2, 6])), [(6, 0, 12)]);
        assert_eq!(runs(&whole, &region(&[1, 3], &[2, 3])), [(9, 0, 3), (15, 3, 3)]);
        assert_eq!(runs(&region(&[2, 0], &[2, 6]), &region(&[0, 0], &[2, 6])), []);
        assert_eq!(runs(&Region::whole(&[]), &Region::whole(&[])), [(0, 0, 1)], "a single value");
        assert_eq!(runs(&Region::whole(&[0, 3]), &Region::whole(&[0, 3])), []);
        assert!(whole.contains(&region(&[3, 5], &[1, 1])) && !whole.contains(&region(&[3, 5], &[1, 2])));
        let around = Region::around(&[region(&[1, 3], &[2, 3]), region(&[0, 4], &[2, 1])]);
        assert_eq!(around.unwrap().to_string(), "[0:3, 3:6]");
    }
}
