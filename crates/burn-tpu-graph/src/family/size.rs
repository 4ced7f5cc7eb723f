//! Numbers of a family's programs as functions of the sizes that vary.
//!
//! Owns: the form of such a function, and finding it from the numbers of several recordings. May not know: ops.

use rustc_hash::FxHashMap;
use smallvec::{SmallVec, smallvec};

/// A number of a program: `scale` times the product of some varying sizes, plus `offset`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Size {
    scale: i64,
    /// The varying sizes, ascending; none for a number that is the same in the whole family.
    of: SmallVec<[u8; 2]>,
    offset: i64,
}

/// The most sizes that vary independently of each other.
const MOST_VARYING: usize = 4;

impl Size {
    /// Returns a number that is the same in the whole family.
    pub fn fixed(number: i64) -> Self {
        Self { scale: 0, of: SmallVec::new(), offset: number }
    }

    pub(super) fn varying(index: usize) -> Self {
        Self { scale: 1, of: smallvec![index as u8], offset: 0 }
    }

    /// Returns the number, if it is the same in the whole family.
    pub fn as_fixed(&self) -> Option<i64> {
        self.of.is_empty().then_some(self.offset)
    }

    /// Returns whether the number is the same in the whole family.
    pub fn is_fixed(&self) -> bool {
        self.of.is_empty()
    }

    /// Returns the factor, the indices of the varying sizes, and what is added to their product.
    pub fn parts(&self) -> (i64, &[u8], i64) {
        (self.scale, &self.of, self.offset)
    }

    /// Returns the number for these varying sizes; `None` if it overflows.
    pub fn at(&self, sizes: &[i64]) -> Option<i64> {
        let mut number = self.scale;
        for &index in &self.of {
            number = number.checked_mul(sizes[usize::from(index)])?;
        }
        number.checked_add(self.offset)
    }

    /// Returns the size of the buffer of an axis of this size, where the varying sizes are padded to `buckets`. A bucket has
    /// room for what is added to its size, see [`Size::added`].
    pub fn capacity(&self, buckets: &[i64]) -> Option<usize> {
        let offset = if self.of.len() > 1 { self.offset.max(0) } else { 0 };
        let number = if self.scale > 0 { Self { offset, ..self.clone() }.at(buckets)? } else { self.offset };
        usize::try_from(number).ok()
    }

    /// Returns what a varying size is made larger by, at least, and its index.
    pub fn added(&self) -> Option<(usize, i64)> {
        let &[index] = &*self.of else { return None };
        (self.scale > 0).then(|| (usize::from(index), (self.offset + self.scale - 1).div_euclid(self.scale)))
    }

    /// Returns the index of a varying size, and what its bucket is a multiple of where a buffer of this size has so many
    /// equal parts; `None` if no varying size makes a buffer larger.
    pub fn multiple(&self, parts: i64) -> Option<(usize, i64)> {
        let &index = self.of.first().filter(|_| self.scale > 0)?;
        Some((usize::from(index), parts / greatest_common_divisor(parts, self.scale)))
    }

    /// Returns the product of two numbers, if it has the same form.
    pub fn times(&self, other: &Self) -> Option<Self> {
        match (self.as_fixed(), other.as_fixed()) {
            (Some(factor), _) => other.scaled(factor),
            (_, Some(factor)) => self.scaled(factor),
            _ if self.offset == 0 && other.offset == 0 => {
                let mut of: SmallVec<[u8; 2]> = self.of.iter().chain(&other.of).copied().collect();
                of.sort_unstable();
                Some(Self { scale: self.scale.checked_mul(other.scale)?, of, offset: 0 })
            }
            _ => None,
        }
    }

    fn scaled(&self, factor: i64) -> Option<Self> {
        if factor == 0 {
            return Some(Self::fixed(0));
        }
        let [scale, offset] = [self.scale, self.offset].map(|number| number.checked_mul(factor));
        Some(Self { scale: scale?, of: self.of.clone(), offset: offset? })
    }

    /// Returns the quotient of two numbers, if it has the same form: `3 m n` over `n` is `3 m`.
    pub fn over(&self, other: &Self) -> Option<Self> {
        let (mut of, mut scale, mut offset) = (self.of.clone(), self.scale, self.offset);
        if let Some(factor) = other.as_fixed() {
            if factor == 0 || scale % factor != 0 || offset % factor != 0 {
                return None;
            }
            (scale, offset) = (scale / factor, offset / factor);
        } else {
            for index in &other.of {
                of.remove(of.iter().position(|known| known == index)?);
            }
            if scale % other.scale != 0 {
                return None;
            }
            scale /= other.scale;
            offset = 0;
            if of.is_empty() {
                (scale, offset) = (0, scale);
            }
        }
        let quotient = Self { scale, of, offset };
        (quotient.times(other).as_ref() == Some(self)).then_some(quotient)
    }

    /// Returns the sum of two numbers, if it has the same form.
    pub fn plus(&self, other: &Self) -> Option<Self> {
        let offset = self.offset.checked_add(other.offset)?;
        let (scale, of) = match (self.is_fixed(), other.is_fixed()) {
            (true, _) => (other.scale, &other.of),
            (_, true) => (self.scale, &self.of),
            _ if self.of == other.of => (self.scale.checked_add(other.scale)?, &self.of),
            _ => return None,
        };
        let of = if scale == 0 { SmallVec::new() } else { of.clone() };
        Some(Self { scale, of, offset })
    }

    /// Returns the number with the opposite sign.
    pub fn negated(&self) -> Self {
        Self { scale: -self.scale, of: self.of.clone(), offset: -self.offset }
    }
}

/// The numbers of several recordings as functions of their varying sizes.
pub(super) struct Fit {
    /// One for each place of a number; `None` where no function was found.
    pub(super) numbers: Vec<Option<Size>>,
    /// The place that has each varying size.
    pub(super) varying: Vec<usize>,
}

impl Fit {
    /// Finds the functions for rows of numbers, one row for each recording. Only a place that `is_size` may be a varying
    /// size; every such place has a function. Returns `None` if more sizes vary than a family may have.
    pub(super) fn of(rows: &[&[i64]], is_size: impl Fn(usize) -> bool) -> Option<Self> {
        let places = rows.first()?.len();
        let column = |place: usize| -> Vec<i64> { rows.iter().map(|row| row[place]).collect() };
        let mut columns: FxHashMap<Vec<i64>, (usize, bool)> = FxHashMap::default();
        for place in (0..places).filter(|&place| rows.iter().any(|row| row[place] != rows[0][place])) {
            let known = columns.entry(column(place)).or_insert((place, is_size(place)));
            if !known.1 && is_size(place) {
                *known = (place, true);
            }
        }
        // A size comes before its multiples, and before what is computed from it later in the program.
        let mut ordered: Vec<(&Vec<i64>, usize, bool)> =
            columns.iter().map(|(column, &(place, has_size))| (column, place, has_size)).collect();
        ordered.sort_by_key(|&(column, place, has_size)| (!has_size, spread(column), place));
        let mut varying: Vec<(usize, &[i64])> = Vec::new();
        let mut found: FxHashMap<&[i64], Option<Size>> = FxHashMap::default();
        for (column, place, has_size) in ordered {
            let known: Vec<&[i64]> = varying.iter().map(|(_, column)| *column).collect();
            let size = affine(column, &known).or_else(|| product(column, &known));
            if size.is_none() && has_size {
                if varying.len() == MOST_VARYING {
                    return None;
                }
                found.insert(column, Some(Size::varying(varying.len())));
                varying.push((place, column));
                continue;
            }
            found.insert(column, size);
        }
        let number = |place: usize| match found.get(&*column(place)) {
            Some(size) => size.clone(),
            None => Some(Size::fixed(rows[0][place])),
        };
        let numbers = (0..places).map(number).collect();
        Some(Self { numbers, varying: varying.iter().map(|(place, _)| *place).collect() })
    }
}

/// Returns the greatest number that divides both, of numbers from 1 on.
pub(super) fn greatest_common_divisor(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

fn spread(column: &[i64]) -> i64 {
    let (least, most) = (column.iter().min(), column.iter().max());
    most.zip(least).map_or(0, |(most, least)| most.saturating_sub(*least))
}

/// Returns the column as a multiple of a varying size plus a number.
fn affine(column: &[i64], varying: &[&[i64]]) -> Option<Size> {
    for (index, size) in varying.iter().enumerate() {
        let function = line(column, size).map(|(scale, offset)| Size { scale, offset, ..Size::varying(index) });
        if let Some(function) = function.filter(|function| follows(column, function, varying)) {
            return Some(function);
        }
    }
    None
}

/// Returns the column as a multiple of the product of two varying sizes, plus a number.
fn product(column: &[i64], varying: &[&[i64]]) -> Option<Size> {
    for first in 0..varying.len() {
        for second in first..varying.len() {
            let both = varying[first].iter().zip(varying[second]);
            let Some(product) = both.map(|(a, b)| a.checked_mul(*b)).collect::<Option<Vec<i64>>>() else { continue };
            let of = smallvec![first as u8, second as u8];
            let function = line(column, &product).map(|(scale, offset)| Size { scale, of, offset });
            if let Some(function) = function.filter(|function| follows(column, function, varying)) {
                return Some(function);
            }
        }
    }
    None
}

/// Returns the factor and the number of `column = factor * other + number`, from two rows.
fn line(column: &[i64], other: &[i64]) -> Option<(i64, i64)> {
    let row = (1..other.len()).find(|&row| other[row] != other[0])?;
    let (rise, run) = (column[row] - column[0], other[row] - other[0]);
    if rise == 0 || rise % run != 0 {
        return None;
    }
    let scale = rise / run;
    Some((scale, column[0] - scale * other[0]))
}

fn follows(column: &[i64], function: &Size, varying: &[&[i64]]) -> bool {
    column.iter().enumerate().all(|(row, &number)| {
        let sizes: SmallVec<[i64; MOST_VARYING]> = varying.iter().map(|size| size[row]).collect();
        function.at(&sizes) == Some(number)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The functions of three recordings, of whose places all but the last may be sizes.
    fn fit(rows: [&[i64]; 3]) -> Option<Fit> {
        let last = rows[0].len() - 1;
        Fit::of(&rows, |place| place != last)
    }

    fn size(scale: i64, of: &[u8], offset: i64) -> Option<Size> {
        Some(Size { scale, of: SmallVec::from_slice(of), offset })
    }

    #[test]
    fn numbers_are_functions_of_the_sizes_that_vary() {
        // 4b, 7, n, n + 1, b, b n, b n - 1, 64 - n, and a number that is none.
        let row = |b: i64, n: i64, last: i64| vec![4 * b, 7, n, n + 1, b, b * n, b * n - 1, 64 - n, last];
        let rows = [row(2, 5, 3), row(3, 9, 1), row(7, 10, 4)];
        let found = fit([&rows[0], &rows[1], &rows[2]]).unwrap();
        assert_eq!(found.varying, [2, 4]);
        let expected = [
            size(4, &[1], 0),
            Some(Size::fixed(7)),
            size(1, &[0], 0),
            size(1, &[0], 1),
            size(1, &[1], 0),
            size(1, &[0, 1], 0),
            size(1, &[0, 1], -1),
            size(-1, &[0], 64),
            None,
        ];
        assert_eq!(found.numbers, expected);
    }

    #[test]
    fn too_many_sizes_are_no_family() {
        let rows: [&[i64]; 3] = [&[1, 2, 3, 4, 5, 0], &[2, 9, 1, 7, 3, 0], &[9, 3, 7, 4, 4, 0]];
        assert!(fit(rows).is_none());
    }

    #[test]
    fn a_bucket_has_room_for_what_is_added() {
        let size = Size { scale: 4, offset: 6, ..Size::varying(0) };
        assert_eq!((size.added(), size.capacity(&[8])), (Some((0, 2)), Some(32)));
        assert_eq!(size.at(&[6]), Some(30));
        let rest = Size { scale: -1, offset: 64, ..Size::varying(0) };
        assert_eq!((rest.added(), rest.capacity(&[8])), (None, Some(64)));
        let [less, more] = [-1, 3].map(|offset| Size { scale: 2, of: smallvec![0, 1], offset });
        assert_eq!((less.capacity(&[8, 4]), more.capacity(&[8, 4])), (Some(64), Some(67)));
    }

    #[test]
    fn a_bucket_is_a_multiple_of_what_its_size_lacks_for_equal_parts() {
        let six = Size { scale: 6, ..Size::varying(1) };
        assert_eq!([1, 2, 4, 8].map(|parts| six.multiple(parts)), [1, 1, 2, 4].map(|multiple| Some((1, multiple))));
        let rest = Size { scale: -1, offset: 64, ..Size::varying(0) };
        assert_eq!((rest.multiple(4), Size::fixed(7).multiple(4)), (None, None));
    }

    #[test]
    fn products_and_quotients_keep_their_form() {
        let (n, four) = (Size::varying(0), Size::fixed(4));
        let many = n.times(&four).unwrap();
        assert_eq!((many.over(&n), many.over(&four)), (Some(four.clone()), Some(n.clone())));
        assert_eq!((n.over(&four), Size::fixed(12).over(&four)), (None, Some(Size::fixed(3))));
        let both = many.times(&Size::varying(1)).unwrap();
        assert_eq!((both.over(&n), n.over(&both)), (size(4, &[1], 0), None));
        assert_eq!((n.plus(&n.negated()), n.plus(&four)), (Some(Size::fixed(0)), size(1, &[0], 4)));
        let next = Size { offset: 1, ..n.clone() };
        assert_eq!(next.times(&n), None);
        assert_eq!(n.times(&n), size(1, &[0, 0], 0));
    }
}
