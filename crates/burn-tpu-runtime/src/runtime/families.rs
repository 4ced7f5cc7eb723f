//! The families of a device's programs: which recordings differ in sizes alone, and their programs for buckets of sizes.
//!
//! A recording of a third size makes a family of those that are like it. Which recordings came, and in which order, decides
//! this alone, never time. A size whose bucket is not in memory runs in a larger one that is, if that is little more work: a
//! token's attention over 16 places costs what one over 8 does. A size that comes often gets a program of its own, if its
//! bucket is much more work: the images of three sizes, the full batches of an epoch. On a mesh, only if that program would
//! split what the bucket's does. A bucket that does not fit into the device's memory is left out.
//!
//! On a mesh, buckets are multiples of what gives the devices equal parts, and the program of a bucket is placed for the
//! arguments that come.
//!
//! Owns: the recordings by what they have without their sizes, the families, and the programs of buckets. May not know:
//! where a program runs, and how values are passed.

mod bucket;
mod member;
mod warm_up;

pub(super) use bucket::Bucket;
pub(crate) use member::Member;

use super::forms::{Form, Forms};
use crate::error::TpuError;
use crate::metrics::Counters;
use crate::options::ShapeBuckets;
use crate::units::bytes;
use crate::warnings;
use burn_tpu_fusion::{Optimization, Pipeline, Rewrite};
use burn_tpu_graph::family::{Family, Numbers, Skeleton};
use burn_tpu_graph::{Program, cost};
use lru::LruCache;
use parking_lot::Mutex;
use rustc_hash::{FxBuildHasher, FxHashMap};
use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

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

/// The latest runs whose slots a new bucket is compiled for: what differs between them is no constant of its program.
const MOST_RUNS: usize = 3;

/// The families of a device, by the hash of their skeletons.
pub(super) struct Families {
    forms: Forms,
    known: Mutex<LruCache<u64, Known, FxBuildHasher>>,
    /// Whether it was said that a bucket does not fit into the device's memory.
    said_too_large: AtomicBool,
}

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
    families: Vec<KnownFamily>,
    runs: SizeCounts,
    /// The slots of the latest runs in their forms, latest last.
    slots: VecDeque<Vec<u64>>,
}

/// A family with the programs of its buckets.
struct KnownFamily {
    family: Family,
    /// What the bucket of each varying size is a multiple of.
    multiples: Vec<i64>,
    buckets: Buckets,
    /// The largest of each varying size that came.
    largest: Vec<i64>,
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

/// What a bucket is chosen by.
#[derive(Clone, Copy)]
pub(super) struct BucketChoice<'a> {
    pub(super) buckets: &'a ShapeBuckets,
    /// The level, and the rewrites that it is without, of a device that makes loops of what repeats.
    pub(super) loops_at: Option<(Optimization, &'a [Rewrite])>,
    /// Whether nothing may be compiled. Then any bucket in memory that has room is taken, whatever its work.
    pub(super) is_frozen: bool,
    /// The most bytes that may be live on the device.
    pub(super) memory_limit: Option<u64>,
}

/// What a device says of a recording that may be of a family.
pub(super) trait FamilyDevice {
    /// Returns what the bucket of each varying size is a multiple of.
    fn multiples(&self, family: &Family, form: &Form) -> Vec<i64>;

    /// Returns the program of a bucket for the recording's arguments.
    fn placed(&self, bucket: &Bucket, form: &Form) -> Arc<Program>;

    /// Returns whether a program is compiled and in memory.
    fn is_in_memory(&self, program: &Arc<Program>) -> bool;
}

impl Default for Families {
    fn default() -> Self {
        let known = Mutex::new(LruCache::with_hasher(MOST_SKELETONS, FxBuildHasher));
        Self { forms: Forms::default(), known, said_too_large: AtomicBool::new(false) }
    }
}

impl Families {
    /// Returns the bucket of a recorded program with these slots, if it is of a family that has one for it. A program whose
    /// sizes are new is remembered.
    pub(super) fn member(
        &self,
        program: &Arc<Program>,
        slots: &[u64],
        choice: &BucketChoice,
        counters: &Counters,
        device: &impl FamilyDevice,
    ) -> Option<Member> {
        if *choice.buckets == ShapeBuckets::Off || program.summary().has_custom_calls {
            return None;
        }
        let roundings = choice.loops_at.map(|(level, skipped)| move || Pipeline::of_roundings(level, skipped));
        let form = self.forms.of(program, slots, roundings);
        let slots = form.slots(slots);
        let numbers = Numbers::of(form.program(), &slots);
        let hash = numbers.skeleton.stable_hash();
        let new = || Alike::new(numbers.skeleton.clone());
        let shared = self.known(hash, cost::nodes(form.program()), new);
        let mut alike = shared.lock();
        if alike.skeleton != numbers.skeleton {
            *alike = new();
        }
        alike.note_slots(&slots);
        let (family, sizes) = alike.family(&form, numbers, counters, device)?;
        // A frozen device may refuse them.
        if !choice.is_frozen {
            alike.families[family].came(&sizes);
        }
        let known = &mut alike.families[family];
        let (bucket, placed) = known.bucket(&sizes, choice, slots.len(), |bucket| placed_in(device, bucket, &form))?;
        let has_equal_parts = known.have_equal_parts(&sizes);
        drop(alike);
        if !self.fits(&bucket, choice) {
            return None;
        }
        let member = Member { bucket, program: placed, form, sizes, has_equal_parts, alike: shared };
        let gets_own = member.comes_often() && !choice.is_frozen;
        (member.is_exact() && !gets_own).then_some(member)
    }

    /// Returns whether a bucket may fit into the device's memory.
    fn fits(&self, bucket: &Bucket, choice: &BucketChoice) -> bool {
        if let Some(limit) = choice.memory_limit.filter(|&limit| bucket.bytes > limit) {
            let (arguments, limit) = (bytes(bucket.bytes), bytes(limit));
            self.leave_out(bucket, &format!("its arguments take {arguments}, and the limit is {limit}"));
        }
        !bucket.is_left_out()
    }

    /// Leaves out a bucket that does not fit into the device's memory from now on. This is said once.
    fn leave_out(&self, bucket: &Bucket, reason: &dyn std::fmt::Display) {
        if bucket.is_too_large.swap(true, Relaxed) || self.said_too_large.swap(true, Relaxed) {
            return;
        }
        warnings::warn(format_args!(
            "{bucket}: it does not fit into the device's memory, so its programs are compiled for their exact sizes: \
             {reason}. This is said once"
        ));
    }

    /// Returns whether an error says that a member's bucket does not fit into the device's memory. It is left out then.
    pub(super) fn leaves_out(&self, member: &Member, error: &TpuError) -> bool {
        let is_too_large = error.is_out_of_memory();
        if is_too_large {
            self.leave_out(&member.bucket, error);
        }
        is_too_large
    }

    /// Returns the recordings of a skeleton of this many nodes. What was used least recently is forgotten.
    fn known(&self, hash: u64, nodes: usize, new: impl Fn() -> Alike) -> Arc<Mutex<Alike>> {
        let mut known = self.known.lock();
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
        let (recordings, families, runs, slots) = Default::default();
        Self { skeleton, recordings, families, runs, slots }
    }

    /// Notes the slots of a run.
    fn note_slots(&mut self, slots: &[u64]) {
        if self.slots.iter().any(|known| known == slots) {
            return;
        }
        if self.slots.len() == MOST_RUNS {
            self.slots.pop_front();
        }
        self.slots.push_back(slots.to_vec());
    }

    /// Returns the place of a recording's family, and its varying sizes. If it is of none, one is looked for anew with it.
    fn family(
        &mut self,
        form: &Form,
        mut numbers: Numbers,
        counters: &Counters,
        device: &impl FamilyDevice,
    ) -> Option<(usize, Vec<i64>)> {
        for (place, known) in self.families.iter().enumerate() {
            if let Some(sizes) = known.family.sizes(&numbers) {
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
        self.recordings.push((Arc::clone(form.program()), numbers));
        let found = Family::of(&self.recordings)?;
        let (_, numbers) = self.recordings.last()?;
        let sizes = found.sizes(numbers)?;
        Counters::add(&counters.families, 1);
        let (multiples, largest) = (device.multiples(&found, form), sizes.clone());
        let mut found = KnownFamily { family: found, multiples, buckets: Buckets::default(), largest };
        let earlier: Vec<_> = self.recordings.iter().filter_map(|(_, row)| found.family.sizes(row)).collect();
        earlier.iter().for_each(|sizes| found.came(sizes));
        self.families.push(found);
        Some((self.families.len() - 1, sizes))
    }
}

impl KnownFamily {
    /// Notes sizes that came.
    fn came(&mut self, sizes: &[i64]) {
        self.largest.iter_mut().zip(sizes).for_each(|(largest, &size)| *largest = size.max(*largest));
    }

    /// Returns whether values of these sizes split over a mesh as those of a bucket do.
    fn have_equal_parts(&self, sizes: &[i64]) -> bool {
        sizes.iter().zip(&self.multiples).all(|(size, multiple)| size % multiple == 0)
    }

    /// Returns the bucket of these sizes, or a larger one whose program is in memory, with its program. `placed` returns
    /// that, and whether it is in memory.
    fn bucket(
        &mut self,
        sizes: &[i64],
        choice: &BucketChoice,
        slots: usize,
        placed: impl Fn(&Bucket) -> (Arc<Program>, bool),
    ) -> Option<(Arc<Bucket>, Arc<Program>)> {
        let bucket = |(size, &multiple): (i64, &i64)| next_multiple(choice.buckets.bucket(size)?, multiple);
        let least = self.family.least_buckets(sizes).into_iter();
        let sizes: Vec<i64> = least.zip(&self.multiples).map(bucket).collect::<Option<_>>()?;
        self.bucket_of(sizes, choice, slots, placed)
    }

    /// Returns the bucket of these sizes of buckets as [`KnownFamily::bucket`] does.
    fn bucket_of(
        &mut self,
        sizes: Vec<i64>,
        choice: &BucketChoice,
        slots: usize,
        placed: impl Fn(&Bucket) -> (Arc<Program>, bool),
    ) -> Option<(Arc<Bucket>, Arc<Program>)> {
        let Self { family, buckets: known, .. } = self;
        if known.values().any(Option::is_none) {
            return None;
        }
        let make = || match Bucket::of(family, &sizes, slots) {
            Ok(bucket) => Some(Arc::new(bucket)),
            Err(error) => {
                warnings::warn(format_args!(
                    "programs that differ in sizes alone are compiled for each size, because of an op without an exact form \
                     for a size that varies: {error}"
                ));
                None
            }
        };
        let own = known.entry(sizes.clone()).or_insert_with(make).clone()?;
        let (program, is_in_memory) = placed(&own);
        if is_in_memory {
            return Some((own, program));
        }
        let has_room = |larger: &[i64]| larger.iter().zip(&sizes).all(|(larger, size)| larger >= size);
        let larger = known.iter().filter(|(sizes, _)| has_room(sizes)).filter_map(|(_, bucket)| bucket.as_ref());
        let larger = larger.filter(|bucket| choice.is_frozen || !is_much_more(bucket.work, own.work));
        let larger = larger.filter(|bucket| !bucket.is_left_out()).map(|bucket| (bucket, placed(bucket)));
        let in_memory = larger.filter(|(_, (_, is_in_memory))| *is_in_memory).min_by_key(|(bucket, _)| bucket.work);
        Some(in_memory.map_or((own, program), |(bucket, (program, _))| (Arc::clone(bucket), program)))
    }
}

/// Returns the program of a bucket for a recording's arguments, and whether it is in memory.
fn placed_in(device: &impl FamilyDevice, bucket: &Bucket, form: &Form) -> (Arc<Program>, bool) {
    let program = device.placed(bucket, form);
    let is_in_memory = device.is_in_memory(&program);
    (program, is_in_memory)
}

/// Returns the least multiple of `factor` from a number on; `None` if it overflows.
fn next_multiple(number: i64, factor: i64) -> Option<i64> {
    let more = (factor - number % factor) % factor;
    number.checked_add(more)
}
