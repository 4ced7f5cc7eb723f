//! Reductions, running reductions, indices of extreme values and sorts, of floats and integers.
//!
//! If a lane contains a NaN, burn-ndarray's result depends on the NaN's position; here NaN is the largest and the smallest
//! value, as in Burn's documentation of `sort`, and the first of equal elements counts. In these cases plain loops are the
//! reference, and also for sorted indices, which Burn's default does not keep stable.

mod floats;
mod ints;

use crate::case::Values;
use crate::feed::Feed;
use crate::harness::Row;
use crate::host::lanes;
use crate::strategies::*;
use burn_backend::{Backend, IntDType};
use proptest::prelude::*;

pub fn rows() -> Vec<Row> {
    floats::rows().into_iter().chain(ints::rows()).collect()
}

/// One operand with at least one element.
pub fn some<P: Pool>(value: Gen<P>) -> Cases<()> {
    one_shaped(value, full_shape(1), Just(()))
}

/// One operand with at least one element, and one of its dims.
pub fn some_dim<P: Pool>(value: Gen<P>) -> Cases<usize> {
    one_dim(value, full_shape(1))
}

/// A whole operand or one dim of it.
#[derive(Clone, Copy)]
pub enum Over {
    All,
    Dim(usize),
}

pub fn groups(dims: &[usize], over: Over) -> (Vec<Vec<usize>>, Vec<usize>) {
    match over {
        Over::All => (vec![(0..count(dims)).collect()], vec![1]),
        Over::Dim(dim) => {
            let mut kept = dims.to_vec();
            kept[dim] = 1;
            (lanes(dims, dim), kept)
        }
    }
}

/// Returns the position in each group of its largest or smallest float, or of its first NaN.
fn extreme_places(values: &[f64], groups: &[Vec<usize>], largest: bool) -> Vec<usize> {
    let better = |new: f64, old: f64| !old.is_nan() && (new.is_nan() || if largest { new > old } else { new < old });
    let best = |group: &Vec<usize>| {
        (1..group.len()).fold(0, |best, k| if better(values[group[k]], values[group[best]]) { k } else { best })
    };
    groups.iter().map(best).collect()
}

impl<B: Backend, A: Clone> Feed<'_, B, A> {
    pub fn law_extreme(&mut self, over: Over, largest: bool) {
        let (groups, dims) = groups(self.dims(0), over);
        let values = self.floats(0);
        let places = extreme_places(&values, &groups, largest);
        let found: Vec<_> = groups.iter().zip(places).map(|(group, k)| values[group[k]]).collect();
        self.float(self.load(&found, &dims));
    }

    pub fn law_place(&mut self, dtype: IntDType, dim: usize, largest: bool) {
        let (groups, dims) = groups(self.dims(0), Over::Dim(dim));
        let places = extreme_places(&self.floats(0), &groups, largest);
        let places: Vec<_> = places.into_iter().map(|k| k as i128).collect();
        self.int_as(dtype, self.load_int(&places, &dims));
    }

    pub fn law_scan(&mut self, dim: usize, step: fn(f64, f64) -> f64) {
        let values = self.floats(0);
        let mut found = values.clone();
        for lane in lanes(self.dims(0), dim) {
            for pair in lane.windows(2) {
                found[pair[1]] = step(found[pair[0]], values[pair[1]]);
            }
        }
        self.float(self.load(&found, self.dims(0)));
    }

    pub fn law_sorted_places(&mut self, dtype: IntDType, dim: usize, descending: bool, k: usize) {
        let places: Vec<Vec<i128>> = self.places(dim, descending, k).into_iter().map(widened).collect();
        let (places, dims) = self.unlaned(dim, &places);
        self.int_as(dtype, self.load_int(&places, &dims));
    }

    pub fn law_sorted(&mut self, dim: usize, descending: bool, k: usize) {
        let (places, lanes) = (self.places(dim, descending, k), lanes(self.dims(0), dim));
        if matches!(self.values(0), Values::Int(_)) {
            let values = self.wholes(0);
            let sorted: Vec<Vec<_>> = taken(&lanes, places, &values);
            let (sorted, dims) = self.unlaned(dim, &sorted);
            self.int(self.load_int(&sorted, &dims));
        } else {
            let values = self.floats(0);
            let sorted: Vec<Vec<_>> = taken(&lanes, places, &values);
            let (sorted, dims) = self.unlaned(dim, &sorted);
            self.float(self.load(&sorted, &dims));
        }
    }
}

fn widened(places: Vec<usize>) -> Vec<i128> {
    places.into_iter().map(|place| place as i128).collect()
}

fn taken<T: Copy>(lanes: &[Vec<usize>], places: Vec<Vec<usize>>, values: &[T]) -> Vec<Vec<T>> {
    lanes.iter().zip(places).map(|(lane, places)| places.into_iter().map(|k| values[lane[k]]).collect()).collect()
}

/// One operand with few elements, whose product stays in range.
pub fn factors<P: Pool>(value: Gen<P>) -> Cases<()> {
    one_shaped(value, prop::collection::vec(dim(), 0..=2).sboxed(), Just(()))
}

/// An operand with a dim, an order, and the number of elements to keep.
pub fn sorts<P: Pool>(value: Gen<P>) -> Cases<(usize, bool, usize)> {
    one_shaped(value, full_shape(1), (0..4usize, any::<bool>(), 1..=5usize))
        .prop_map(|case| {
            let (dim, descending, k) = case.attr;
            let dim = dim % case.operands[0].dims.len();
            let k = k.min(case.operands[0].dims[dim]);
            case.with((dim, descending, k))
        })
        .sboxed()
}
