//! Compiled programs and the bounded cache that keeps them.
//!
//! The key of a program is what was recorded: the graph and which of its nodes are outputs. Run-time scalars and buffers are
//! not in it. A hit compares the graphs, not only their hashes, and what the program assumes of the scalars.
//!
//! Offsets (starts of slices) are baked when a recording is first compiled. When it comes again with other values, exactly
//! those are lifted to run-time scalars. The new program serves all that the old one did, so it takes its place: what was
//! lifted stays lifted, and an offset that moves costs one compile. So it is with scalars that are equal and play the same part
//! (an optimizer's numbers, once per parameter): they travel as one until they part.

use crate::engine::Executable;
use crate::metrics::Counters;
use crate::recompile::{Difference, broken, likeness, of_programs};
use burn_tpu_graph::{Arena, Graph, NodeId, Program};
use lru::LruCache;
use parking_lot::Mutex;
use std::hash::{Hash, Hasher};
use std::num::NonZeroUsize;
use std::sync::Arc;

/// What a cut recorded: a program's identity.
pub(crate) struct Recorded {
    pub(crate) graph: Graph,
    /// The nodes to materialise, ascending.
    pub(crate) outputs: Vec<NodeId>,
}

impl Hash for Recorded {
    /// The graph's own hash was kept while recording, so there is no walk here.
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.graph.hash_at(self.graph.len()).hash(state);
        self.outputs.hash(state);
    }
}

impl PartialEq for Recorded {
    fn eq(&self, other: &Self) -> bool {
        self.outputs == other.outputs && self.graph == other.graph
    }
}

impl Eq for Recorded {}

/// A program that is ready to run.
pub(crate) struct Compiled {
    pub(crate) executable: Arc<dyn Executable>,
    pub(crate) identity: Arc<Identity>,
}

/// What tells a program from another while it is recorded.
pub(crate) struct Identity {
    /// The recorded graph, for later traces to follow.
    pub(crate) arena: Arc<Arena>,
    pub(crate) assumed: Assumed,
}

/// What a program takes for granted about the trace's slots (named by position), and every run checks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Assumed {
    /// Offsets that are constants, with their bits, ascending. The others are run-time scalars.
    offsets: Vec<(u32, u64)>,
    /// Scalars that travel as another one, ascending: the two are equal.
    twins: Vec<(u32, u32)>,
}

/// Fewer scalars than this are not worth an assumption.
const MANY_SCALARS: usize = 32;

impl Assumed {
    /// All that can be assumed of a program that is compiled for the first time.
    pub(crate) fn all(program: &Program, slots: &[u64]) -> Self {
        let bits = |index: u32| slots.get(index as usize).copied();
        let mut offsets: Vec<_> = program.offsets().filter_map(|index| Some((index, bits(index)?))).collect();
        let many = program.slots().count() >= MANY_SCALARS;
        let mut twins = if many { program.twins(bits) } else { Vec::new() };
        offsets.sort_unstable();
        twins.sort_unstable();
        Self { offsets, twins }
    }

    /// Whether a program that assumes this computes what was recorded.
    pub(crate) fn fits(&self, slots: &[u64]) -> bool {
        self.offsets.iter().all(|offset| stands(offset, slots)) && self.twins.iter().all(|twins| equal(twins, slots))
    }

    /// What still holds.
    pub(crate) fn still(&self, slots: &[u64]) -> Self {
        Self {
            offsets: self.offsets.iter().copied().filter(|offset| stands(offset, slots)).collect(),
            twins: self.twins.iter().copied().filter(|twins| equal(twins, slots)).collect(),
        }
    }

    /// The constant that an offset is.
    pub(crate) fn offset(&self, index: u32) -> Option<u64> {
        let found = self.offsets.binary_search_by_key(&index, |&(index, _)| index);
        found.ok().map(|place| self.offsets[place].1)
    }

    /// The scalar as which a scalar travels: another one, or itself.
    pub(crate) fn first(&self, index: u32) -> u32 {
        let found = self.twins.binary_search_by_key(&index, |&(index, _)| index);
        found.map_or(index, |place| self.twins[place].1)
    }
}

fn stands(&(index, bits): &(u32, u64), slots: &[u64]) -> bool {
    slots.get(index as usize) == Some(&bits)
}

fn equal(&(twin, first): &(u32, u32), slots: &[u64]) -> bool {
    slots.get(twin as usize) == slots.get(first as usize)
}

/// How many programs that were let go are remembered.
const MOST_GONE: NonZeroUsize = NonZeroUsize::MIN.saturating_add(999);

/// Least-recently-used programs of one device, bounded by number and by bytes.
pub(crate) struct ProgramCache {
    programs: Mutex<Programs>,
}

struct Programs {
    entries: LruCache<Recorded, Arc<Compiled>, rustc_hash::FxBuildHasher>,
    /// By their key's hash, programs that were let go, and what they assumed: an offset that was lifted stays so.
    gone: LruCache<u64, Assumed, rustc_hash::FxBuildHasher>,
    bytes: u64,
    most_bytes: u64,
}

impl ProgramCache {
    pub(crate) fn new(entries: NonZeroUsize, bytes: u64) -> Self {
        let entries = LruCache::with_hasher(entries, rustc_hash::FxBuildHasher);
        let gone = LruCache::with_hasher(MOST_GONE, rustc_hash::FxBuildHasher);
        Self { programs: Mutex::new(Programs { entries, gone, bytes: 0, most_bytes: bytes }) }
    }

    pub(crate) fn get(&self, key: &Recorded) -> Option<Arc<Compiled>> {
        self.programs.lock().entries.get(key).map(Arc::clone)
    }

    /// How a recording that has to be compiled differs from the program most like it; `None` when none is like it.
    pub(crate) fn explain(&self, key: &Recorded, slots: &[u64]) -> Option<Difference> {
        let programs = self.programs.lock();
        if let Some(same) = programs.entries.peek(key) {
            return broken(key, &same.identity.assumed, slots);
        }
        if programs.gone.contains(&hash(key)) {
            return Some(Difference::evicted());
        }
        let alike = programs.entries.iter().filter_map(|(old, _)| Some((likeness(&old.graph, &key.graph)?, old)));
        // Of equals the latest, which comes first.
        let most = alike.reduce(|best, next| if next.0 > best.0 { next } else { best });
        most.map(|(_, old)| of_programs(old, key))
    }

    /// What a program that was let go had assumed.
    pub(crate) fn assumed_before(&self, key: &Recorded) -> Option<Assumed> {
        self.programs.lock().gone.get(&hash(key)).cloned()
    }

    /// Keeps a program, and lets the least recently used ones go until both bounds hold. The newest always stays.
    pub(crate) fn insert(&self, key: Recorded, compiled: Arc<Compiled>, counters: &Counters) {
        let mut programs = self.programs.lock();
        programs.bytes += compiled.executable.size_bytes();
        let replaced = programs.entries.contains(&key);
        if let Some((key, old)) = programs.entries.push(key, compiled) {
            programs.bytes -= old.executable.size_bytes();
            if !replaced {
                programs.let_go(&key, &old, counters);
            }
        }
        while programs.bytes > programs.most_bytes && programs.entries.len() > 1 {
            let Some((key, old)) = programs.entries.pop_lru() else { break };
            programs.bytes -= old.executable.size_bytes();
            programs.let_go(&key, &old, counters);
        }
    }

    /// The hashes of the programs in the cache, ascending: what tests compare between runs.
    pub(crate) fn keys(&self) -> Vec<u64> {
        let programs = self.programs.lock();
        let mut keys: Vec<u64> = programs.entries.iter().map(|(key, _)| hash(key)).collect();
        keys.sort_unstable();
        keys
    }

    /// Lets all programs go.
    pub(crate) fn clear(&self) {
        let mut programs = self.programs.lock();
        while let Some((key, old)) = programs.entries.pop_lru() {
            programs.gone.put(hash(&key), old.identity.assumed.clone());
        }
        programs.bytes = 0;
    }
}

impl Programs {
    fn let_go(&mut self, key: &Recorded, old: &Compiled, counters: &Counters) {
        self.gone.put(hash(key), old.identity.assumed.clone());
        Counters::add(&counters.cache_evictions, 1);
    }
}

fn hash(key: &Recorded) -> u64 {
    let mut hasher = rustc_hash::FxHasher::default();
    key.hash(&mut hasher);
    hasher.finish()
}
