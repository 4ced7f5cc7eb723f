//! The families of a device's programs: which recordings differ in sizes alone, and their programs for buckets of sizes.
//!
//! A recording of a third size makes a family of those that are like it. Which recordings came, and in which order, decides
//! this alone, never time. A size whose bucket is not in memory runs in a larger one that is, if that is little more work: a
//! token's attention over 16 places costs what one over 8 does. A size that comes often gets a program of its own, if its
//! bucket is much more work: the images of three sizes, the full batches of an epoch.
//!
//! Owns: the recordings by what they have without their sizes, the families, and the programs of buckets. May not know:
//! where a program runs, and how values are passed.

use super::forms::{Form, Forms};
use crate::metrics::Counters;
use crate::options::ShapeBuckets;
use burn_tpu_graph::family::{Family, Numbers, Padded, Skeleton};
use burn_tpu_graph::{Program, TensorType, cost, custom_calls};
use lru::LruCache;
use parking_lot::Mutex;
use rustc_hash::{FxBuildHasher, FxHashMap};
use std::num::NonZeroUsize;
use std::sync::Arc;

/// The number of skeletons that are remembered.
const MOST_SKELETONS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(255);

/// The number of nodes of all skeletons that are remembered. The latest always stays.
const MOST_NODES: usize = 100_000;

/// The recordings of a skeleton that are kept until they are a family. Each holds its nodes.
const MOST_RECORDINGS: usize = 6;

/// Work is much more than other work if it is that, and this part of it, and more.
const MUCH_MORE: u64 = 4;

/// The runs of a size after which it may come often.
const MANY_RUNS: u32 = 32;

/// The number of sizes of a skeleton whose runs are counted.
const MOST_SIZES: usize = 1_000;

/// The families of one skeleton.
const MOST_FAMILIES: usize = 4;

/// The families of a device, by the hash of their skeletons.
#[derive(Default)]
pub(super) struct Families {
    forms: Forms,
    known: Alikes,
}

/// What is known of each skeleton, by its hash.
struct Alikes(Mutex<LruCache<u64, Known, FxBuildHasher>>);

/// Recordings of one skeleton, and the number of its nodes.
struct Known {
    alike: Arc<Mutex<Alike>>,
    nodes: usize,
}

/// Recordings of one skeleton.
struct Alike {
    skeleton: Skeleton,
    recordings: Vec<(Arc<Program>, Numbers)>,
    /// Oldest first. A later one has more sizes that vary: the rows of a batch too, after the last batch of an epoch.
    families: Vec<(Family, Buckets)>,
    runs: SizeCounts,
}

/// How often sizes came.
#[derive(Default)]
struct SizeCounts {
    of_size: FxHashMap<Vec<i64>, u32>,
    all: u32,
}

impl SizeCounts {
    /// Counts a run, and returns whether its sizes come often: a quarter of many runs.
    fn is_often(&mut self, sizes: &[i64]) -> bool {
        if self.of_size.len() == MOST_SIZES {
            *self = Self::default();
        }
        let count = self.of_size.entry(sizes.to_vec()).or_default();
        *count = count.saturating_add(1);
        self.all = self.all.saturating_add(1);
        *count >= MANY_RUNS && u64::from(*count) * 4 >= u64::from(self.all)
    }
}

/// The programs of a family by the bucket of each varying size; `None` where an op has no exact rule.
type Buckets = FxHashMap<Vec<i64>, Option<Arc<Bucket>>>;

/// A family's program for one bucket of each varying size.
pub(super) struct Bucket {
    pub(super) program: Arc<Program>,
    padded: Padded,
    /// The element operations of a run.
    work: u64,
    /// The number of slots before the varying sizes.
    slots: usize,
}

/// A recording of a family, which its program for a bucket can run.
#[derive(Clone)]
pub(super) struct Member {
    pub(super) bucket: Arc<Bucket>,
    form: Form,
    /// The varying sizes.
    sizes: Vec<i64>,
}

impl Default for Alikes {
    fn default() -> Self {
        Self(Mutex::new(LruCache::with_hasher(MOST_SKELETONS, FxBuildHasher)))
    }
}

impl Families {
    /// Returns the bucket of a recorded program with these slots, if it is of a family that has one for it. A program whose
    /// sizes are new is remembered.
    pub(super) fn member(
        &self,
        program: &Arc<Program>,
        slots: &[u64],
        may_loop: bool,
        buckets: &ShapeBuckets,
        counters: &Counters,
        is_in_memory: impl Fn(&Arc<Program>) -> bool,
    ) -> Option<Member> {
        let is_possible = *buckets != ShapeBuckets::Off && program.placement().is_none();
        if !is_possible || !custom_calls(program).is_empty() {
            return None;
        }
        let form = self.forms.of(program, slots, may_loop);
        let slots = form.slots(slots);
        let numbers = Numbers::of(form.program(), &slots);
        let hash = numbers.skeleton.stable_hash();
        let new = || Alike::new(numbers.skeleton.clone());
        let alike = self.known.get(hash, cost::nodes(form.program()), new);
        let mut alike = alike.lock();
        if alike.skeleton != numbers.skeleton {
            *alike = new();
        }
        let (family, sizes) = alike.family(form.program(), numbers, counters)?;
        let bucket = alike.bucket(family, &sizes, buckets, slots.len(), is_in_memory)?;
        if alike.runs.is_often(&sizes) && is_much_more(bucket.work, cost::work(program)) {
            return None;
        }
        let member = Member { bucket, form, sizes };
        member.is_exact().then_some(member)
    }
}

impl Alikes {
    /// Returns the recordings of a skeleton of this many nodes. What was used least recently is forgotten.
    fn get(&self, hash: u64, nodes: usize, new: impl Fn() -> Alike) -> Arc<Mutex<Alike>> {
        let mut known = self.0.lock();
        if let Some(found) = known.get(&hash) {
            return Arc::clone(&found.alike);
        }
        let alike = Arc::new(Mutex::new(new()));
        known.put(hash, Known { alike: Arc::clone(&alike), nodes });
        let mut all: usize = known.iter().map(|(_, known)| known.nodes).sum();
        while all > MOST_NODES && known.len() > 1 {
            all -= known.pop_lru().map_or(0, |(_, forgotten)| forgotten.nodes);
        }
        alike
    }
}

/// Returns whether work is so much more than other work that another program is worth its compile.
fn is_much_more(work: u64, than: u64) -> bool {
    work > than + than / MUCH_MORE
}

impl Alike {
    fn new(skeleton: Skeleton) -> Self {
        Self { skeleton, recordings: Vec::new(), families: Vec::new(), runs: SizeCounts::default() }
    }

    /// Returns the place of a recording's family, and its varying sizes. If it is of none, one is looked for anew with it.
    fn family(
        &mut self,
        program: &Arc<Program>,
        mut numbers: Numbers,
        counters: &Counters,
    ) -> Option<(usize, Vec<i64>)> {
        for (place, (family, _)) in self.families.iter().enumerate() {
            if let Some(sizes) = family.sizes(&numbers) {
                return Some((place, sizes));
            }
        }
        let is_known = self.recordings.iter().any(|(_, known)| known.is_equal(&numbers));
        if is_known || self.families.len() == MOST_FAMILIES {
            return None;
        }
        if self.recordings.len() == MOST_RECORDINGS {
            self.recordings.remove(0);
        }
        // It is that of all of them.
        numbers.skeleton = Skeleton::default();
        self.recordings.push((Arc::clone(program), numbers));
        let found = Family::of(&self.recordings)?;
        let (_, numbers) = self.recordings.last()?;
        let sizes = found.sizes(numbers)?;
        Counters::add(&counters.families, 1);
        self.families.push((found, Buckets::default()));
        Some((self.families.len() - 1, sizes))
    }

    /// Returns the program for the bucket of these sizes, or for a larger one in memory.
    fn bucket(
        &mut self,
        family: usize,
        sizes: &[i64],
        buckets: &ShapeBuckets,
        slots: usize,
        is_in_memory: impl Fn(&Arc<Program>) -> bool,
    ) -> Option<Arc<Bucket>> {
        let (family, known) = &mut self.families[family];
        let least = family.least_buckets(sizes).into_iter();
        let sizes: Vec<i64> = least.map(|size| buckets.bucket(size)).collect::<Option<_>>()?;
        if known.values().any(Option::is_none) {
            return None;
        }
        let make = || match family.padded(&sizes, slots as u32) {
            Ok(padded) => {
                let (program, work) = (Arc::clone(&padded.program), cost::work(&padded.program));
                Some(Arc::new(Bucket { program, padded, work, slots }))
            }
            Err(error) => {
                tracing::warn!(
                    "programs that differ in sizes alone are compiled for each size, because of an op without an exact form \
                     for a size that varies: {error}"
                );
                None
            }
        };
        let own = known.entry(sizes.clone()).or_insert_with(make).clone()?;
        if is_in_memory(&own.program) {
            return Some(own);
        }
        let has_room = |larger: &[i64]| larger.iter().zip(&sizes).all(|(larger, size)| larger >= size);
        let larger = known.iter().filter(|(sizes, _)| has_room(sizes)).filter_map(|(_, bucket)| bucket.as_ref());
        let larger = larger.filter(|bucket| !is_much_more(bucket.work, own.work) && is_in_memory(&bucket.program));
        Some(larger.min_by_key(|bucket| bucket.work).cloned().unwrap_or(own))
    }
}

impl Member {
    /// Returns whether the bucket's program is exact for these sizes.
    fn is_exact(&self) -> bool {
        self.bucket.padded.at_least_zero.iter().all(|size| size.at(&self.sizes).is_some_and(|number| number >= 0))
    }

    /// Returns whether the bucket's program has so much more work than this that another program is worth its compile.
    pub(super) fn is_much_more_than(&self, work: u64) -> bool {
        is_much_more(self.bucket.work, work)
    }

    /// Returns the slots of the bucket's program: recorded ones and true sizes.
    pub(super) fn slots(&self, recorded: &[u64]) -> Vec<u64> {
        self.slots_with(recorded, |index| self.sizes[index] as u64)
    }

    /// Returns slots in which every true size is another one, and no two are equal: a program that is compiled for both
    /// takes no size for granted.
    pub(super) fn other_slots(&self, recorded: &[u64]) -> Vec<u64> {
        self.slots_with(recorded, |index| u64::MAX - index as u64)
    }

    fn slots_with(&self, recorded: &[u64], size: impl Fn(usize) -> u64) -> Vec<u64> {
        let recorded = self.form.slots(recorded);
        let slot = |&index: &u32| match (index as usize).checked_sub(self.bucket.slots) {
            Some(of_size) => size(of_size),
            None => recorded[index as usize],
        };
        self.bucket.padded.bindings.slots.iter().map(slot).collect()
    }

    /// Returns the parameters of the bucket's program: the index in the recorded program, and the type of the buffer.
    pub(super) fn parameters(&self) -> impl Iterator<Item = (u32, &TensorType)> {
        let recorded = &self.bucket.padded.bindings.parameters;
        let recorded = |index: u32| self.form.parameter(recorded[index as usize]);
        self.bucket.program.parameters().map(move |(index, ty)| (recorded(index), ty))
    }
}
