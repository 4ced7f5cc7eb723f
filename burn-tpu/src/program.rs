//! Compiled programs and the bounded cache that keeps them.
//!
//! The key of a program is what was recorded: the graph and which of its nodes are outputs. Run-time scalars and buffers are
//! not in it. A hit compares the graphs, not only their hashes, and the offsets that the program holds as constants.
//!
//! Offsets (starts of slices) are baked when a recording is first compiled. When it comes again with other values, exactly
//! those are lifted to run-time scalars. The new program serves all that the old one did, so it takes its place: what was
//! lifted stays lifted, and an offset that moves costs one compile.

use crate::engine::Executable;
use crate::metrics::Counters;
use crate::recompile::{Difference, likeness, moved_offset, of_programs};
use burn_tpu_graph::{Graph, NodeId, Program};
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
    /// The recorded graph's hash behind each node.
    pub(crate) hashes: Vec<u64>,
    /// Which offsets the program holds as constants.
    pub(crate) baked: Baked,
}

/// The offsets that are constants in a program: position among the trace's slots, and bits. The others are run-time
/// scalars.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Baked(Vec<(u32, u64)>);

impl Baked {
    /// All offsets of a program that is compiled for the first time.
    pub(crate) fn all(program: &Program, slots: &[u64]) -> Self {
        Self(program.offsets().map(|index| (index, slots[index as usize])).collect())
    }

    /// Whether a program with these constants computes what was recorded.
    pub(crate) fn fits(&self, slots: &[u64]) -> bool {
        self.0.iter().all(|&(index, bits)| slots.get(index as usize) == Some(&bits))
    }

    /// Those that still stand where they stood.
    pub(crate) fn still(&self, slots: &[u64]) -> Self {
        Self(self.0.iter().copied().filter(|&(index, bits)| slots.get(index as usize) == Some(&bits)).collect())
    }

    /// The constant of an offset that is baked.
    pub(crate) fn get(&self, index: u32) -> Option<u64> {
        self.0.iter().find(|&&(i, _)| i == index).map(|&(_, bits)| bits)
    }
}

/// How many programs that were let go are remembered.
const MOST_GONE: NonZeroUsize = NonZeroUsize::MIN.saturating_add(999);

/// Least-recently-used programs of one device, bounded by number and by bytes.
pub(crate) struct ProgramCache {
    programs: Mutex<Programs>,
}

struct Programs {
    entries: LruCache<Recorded, Arc<Compiled>, rustc_hash::FxBuildHasher>,
    /// By their key's hash, programs that were let go, and what they had baked: an offset that was lifted stays so.
    gone: LruCache<u64, Baked, rustc_hash::FxBuildHasher>,
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
            return moved_offset(key, &same.identity.baked, slots);
        }
        if programs.gone.contains(&hash(key)) {
            return Some(Difference::evicted());
        }
        let alike = programs.entries.iter().filter_map(|(old, _)| Some((likeness(&old.graph, &key.graph)?, old)));
        // Of equals the latest, which comes first.
        let most = alike.reduce(|best, next| if next.0 > best.0 { next } else { best });
        most.map(|(_, old)| of_programs(old, key))
    }

    /// What was baked into a program that was let go.
    pub(crate) fn baked_before(&self, key: &Recorded) -> Option<Baked> {
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
            programs.gone.put(hash(&key), old.identity.baked.clone());
        }
        programs.bytes = 0;
    }
}

impl Programs {
    fn let_go(&mut self, key: &Recorded, old: &Compiled, counters: &Counters) {
        self.gone.put(hash(key), old.identity.baked.clone());
        Counters::add(&counters.cache_evictions, 1);
    }
}

fn hash(key: &Recorded) -> u64 {
    let mut hasher = rustc_hash::FxHasher::default();
    key.hash(&mut hasher);
    hasher.finish()
}
