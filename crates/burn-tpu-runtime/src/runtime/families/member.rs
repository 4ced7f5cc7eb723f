//! A recording of a family: what its bucket's program takes of its arguments and slots.
//!
//! Owns: the recording's sizes and form. May not know: how a bucket was chosen.

use super::super::forms::Form;
use super::bucket::Bucket;
use super::{Alike, is_much_more};
use burn_tpu_graph::family::elements;
use burn_tpu_graph::{Program, TensorType};
use parking_lot::Mutex;
use std::sync::Arc;

/// A recording of a family, which its program for a bucket can run.
#[derive(Clone)]
pub(crate) struct Member {
    pub(in crate::runtime) bucket: Arc<Bucket>,
    /// The bucket's program; on a mesh, with a placement.
    pub(in crate::runtime) program: Arc<Program>,
    pub(super) form: Form,
    /// The varying sizes.
    pub(super) sizes: Vec<i64>,
    /// Whether its values split over a mesh as those of the bucket do. If not, every device would have all of a value.
    pub(super) has_equal_parts: bool,
    pub(super) alike: Arc<Mutex<Alike>>,
}

impl Member {
    /// Returns the number of elements of the bucket's values, and how many of them are padding in this run.
    pub(in crate::runtime) fn elements(&self) -> (u64, u64) {
        let all = self.bucket.elements;
        (all, all.saturating_sub(elements(self.form.program())))
    }

    /// Returns whether the bucket's program is exact for these sizes.
    pub(super) fn is_exact(&self) -> bool {
        self.bucket.padded.at_least_zero.iter().all(|size| size.at(&self.sizes).is_some_and(|number| number >= 0))
    }

    /// Counts a run, and returns whether its sizes come so often, and their bucket is so much more work, that they get a
    /// program of their own.
    pub(in crate::runtime) fn comes_often(&self) -> bool {
        let is_often = self.alike.lock().runs.is_often(&self.sizes);
        is_often && self.has_equal_parts && self.is_much_more_than(self.form.recorded().summary().work)
    }

    /// Returns whether the bucket's program has so much more work than this that another program is worth its compile.
    pub(in crate::runtime) fn is_much_more_than(&self, work: u64) -> bool {
        is_much_more(self.bucket.work, work)
    }

    /// Returns the slots of the bucket's program: recorded ones and true sizes.
    pub(in crate::runtime) fn slots(&self, recorded: &[u64]) -> Vec<u64> {
        self.slots_with(&self.form.slots(recorded), |index| self.sizes[index] as u64)
    }

    /// Returns the slots of runs that a new program of the bucket is compiled for: this one, the latest ones of the family,
    /// and one in which every true size is another, and no two are equal, so that no size is taken for granted.
    pub(in crate::runtime) fn runs(&self, recorded: &[u64]) -> Vec<Vec<u64>> {
        let others = self.slots_with(&self.form.slots(recorded), |index| u64::MAX - index as u64);
        let alike = self.alike.lock();
        let latest = alike.slots.iter().map(|slots| self.slots_with(slots, |index| self.sizes[index] as u64));
        [self.slots(recorded), others].into_iter().chain(latest).collect()
    }

    /// Returns the slots of the bucket's program from those of the form.
    fn slots_with(&self, recorded: &[u64], size: impl Fn(usize) -> u64) -> Vec<u64> {
        let slot = |&index: &u32| match (index as usize).checked_sub(self.bucket.slots) {
            Some(of_size) => size(of_size),
            None => recorded[index as usize],
        };
        self.bucket.padded.bindings.slots.iter().map(slot).collect()
    }

    /// Returns the parameters of the bucket's program: the index in the recorded program, and the type of the buffer.
    pub(in crate::runtime) fn parameters(&self) -> impl Iterator<Item = (u32, &TensorType)> {
        self.bucket.parameters().map(|(index, ty)| (self.form.parameter(index), ty))
    }
}
