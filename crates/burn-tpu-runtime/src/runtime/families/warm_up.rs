//! Compiles the programs of buckets before their sizes come.

use super::super::DeviceRuntime;
use super::super::forms::Form;
use super::super::padded::Candidate;
use super::{Alike, Bucket, BucketChoice, Families, FamilyDevice, Member, placed_in};
use crate::error::Result;
use crate::metrics::Counters;
use crate::options::ShapeBuckets;
use parking_lot::Mutex;
use std::sync::Arc;

/// A bucket that a family may need.
struct Wanted {
    alike: Arc<Mutex<Alike>>,
    /// The place of the family.
    family: usize,
    /// The bucket of each varying size.
    sizes: Vec<i64>,
}

impl DeviceRuntime {
    /// Compiles the programs of all known families for the buckets up to the largest sizes that came, the largest first,
    /// and as many as stay in memory. A bucket that would run in a larger one is left out. Returns the number of compiles:
    /// none on a mesh, where a program is placed for its arguments.
    ///
    /// # Errors
    /// Those of the compiler.
    pub(crate) fn compile_buckets(&self) -> Result<usize> {
        let (open, mut compiled) = (self.open(), 0);
        if open.engine()?.mesh().is_some() {
            return Ok(0);
        }
        // A frozen device compiles what it is asked to.
        let device = Candidate { runtime: self, on_mesh: None };
        let choice = BucketChoice { is_frozen: false, ..self.bucket_choice() };
        let mut room = open.options.cache_entries.get().saturating_sub(open.cache.len());
        for wanted in self.families.wanted(&open.options.shape_buckets, open.options.cache_entries.get()) {
            let Some((member, slots)) = self.families.missing(&wanted, &choice, &device) else { continue };
            if room == 0 {
                tracing::warn!("not every bucket is compiled: the programs in memory are as many as `cache_entries`");
                break;
            }
            match self.compiler.compile_unrecorded(&member.program, &member.runs(&slots)) {
                Err(error) if self.families.leaves_out(&member, &error) => continue,
                program => {
                    Counters::add(&open.counters.bucket_compiles, usize::from(!program?.executable.is_from_disk()))
                }
            }
            (room, compiled) = (room - 1, compiled + 1);
        }
        Ok(compiled)
    }
}

impl Families {
    /// Returns the buckets up to the largest sizes of each family, the largest first, and at most so many of each.
    fn wanted(&self, buckets: &ShapeBuckets, most: usize) -> Vec<Wanted> {
        let known: Vec<_> = self.known.lock().iter().map(|(_, known)| Arc::clone(&known.alike)).collect();
        let mut all = Vec::new();
        for shared in known {
            let alike = shared.lock();
            for (family, known) in alike.families.iter().enumerate() {
                let largest = known.family.least_buckets(&known.largest);
                let each: Vec<Vec<i64>> = largest.iter().map(|&size| buckets.up_to(size)).collect();
                let wanted = |sizes| Wanted { alike: Arc::clone(&shared), family, sizes };
                all.extend(combined(&each).into_iter().take(most).map(wanted));
            }
        }
        all
    }

    /// Returns a member of a bucket that is not in memory, and recorded slots; `None` if there is one in memory for these
    /// sizes, or none at all.
    fn missing(
        &self,
        wanted: &Wanted,
        choice: &BucketChoice,
        device: &impl FamilyDevice,
    ) -> Option<(Member, Vec<u64>)> {
        let Wanted { alike: shared, family, sizes } = wanted;
        let mut alike = shared.lock();
        let slots = alike.slots.back()?.clone();
        let known = &mut alike.families[*family];
        let form = Form::of(Arc::clone(known.family.program()));
        let placed = |bucket: &Bucket| placed_in(device, bucket, &form);
        let (bucket, program) = known.bucket_of(sizes.clone(), choice, slots.len(), placed)?;
        drop(alike);
        if device.is_in_memory(&program) || !self.fits(&bucket, choice) {
            return None;
        }
        let (sizes, alike) = (sizes.clone(), Arc::clone(shared));
        Some((Member { bucket, program, form, sizes, has_equal_parts: true, alike }, slots))
    }
}

/// Returns all choices of one size from each list, in descending order of their product.
fn combined(lists: &[Vec<i64>]) -> Vec<Vec<i64>> {
    let mut all = vec![Vec::new()];
    for list in lists {
        let with = |size: &i64| all.iter().map(|chosen| [&chosen[..], &[*size]].concat()).collect::<Vec<_>>();
        all = list.iter().flat_map(with).collect();
    }
    let product = |sizes: &Vec<i64>| sizes.iter().map(|&size| size as f64).product::<f64>();
    all.sort_by(|a, b| product(b).total_cmp(&product(a)));
    all
}

#[cfg(test)]
mod tests {
    use super::combined;

    #[test]
    fn buckets_are_combined_the_largest_first() {
        let all = combined(&[vec![8, 16], vec![4, 100]]);
        assert_eq!(all, [[16, 100], [8, 100], [16, 4], [8, 4]]);
    }
}
