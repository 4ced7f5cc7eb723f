//! Compiled programs and the bounded cache that keeps them.
//!
//! A program's identity is its canonical form: the recorded nodes that its outputs need, numbered in their own order.
//! Run-time scalars and buffers are no part of it. Extracting that form walks the recording, so the recordings that were
//! seen are remembered with the programs that they are: a step that is recorded again finds its program by the hash that
//! was kept while recording, and one comparison.
//!
//! Offsets (starts of slices) are constants in the program that is compiled first. When the same recording comes with
//! other values, exactly those that changed become run-time scalars. The new program serves all that the old one did, so it
//! takes its place: an offset that changes costs one compile. Scalars that are equal and have the same role (an
//! optimizer's numbers, once per parameter) likewise share one input until their values differ.

mod assumptions;

pub(crate) use assumptions::SlotAssumptions;

use crate::engine::Executable;
use crate::metrics::Counters;
use crate::recompile::{Difference, broken, likeness, of_recordings};
use crate::trace::Recording;
use burn_tpu_graph::{Bindings, Builder, Graph, Node, NodeId, Program};
use lru::LruCache;
use parking_lot::Mutex;
use rustc_hash::{FxBuildHasher, FxHasher};
use std::borrow::Cow;
use std::hash::{Hash, Hasher};
use std::num::NonZeroUsize;
use std::sync::Arc;

/// What a cut recorded: the first `len` nodes of a recording, and which of them are its outputs.
pub(crate) struct Form<'t> {
    pub(crate) recording: &'t Recording,
    pub(crate) len: usize,
    /// The nodes to materialise, ascending.
    pub(crate) outputs: Vec<NodeId>,
}

impl Form<'_> {
    pub(crate) fn nodes(&self) -> &[Node] {
        &self.recording.nodes()[..self.len]
    }

    /// The graph's own hash was kept while recording, so there is no walk here.
    fn hash(&self) -> u64 {
        hash(&(self.recording.hash_at(self.len), &self.outputs))
    }

    fn is(&self, recorded: &Recorded) -> bool {
        let followed = self.recording.following().is_some_and(|graph| Arc::ptr_eq(graph, &recorded.graph));
        let same_nodes = || (followed && recorded.graph.len() == self.len) || recorded.graph.nodes() == self.nodes();
        recorded.outputs == self.outputs && same_nodes()
    }
}

/// A recording that was cut before, and the program that it is.
pub(crate) struct Recorded {
    /// The recorded nodes, for later traces to follow.
    pub(crate) graph: Arc<Graph>,
    pub(crate) outputs: Vec<NodeId>,
    pub(crate) program: Arc<Program>,
    /// Where the program's inputs and nodes are in the recording.
    pub(crate) bindings: Bindings,
}

impl Recorded {
    /// The values of the program's slots, from those of the recording.
    pub(crate) fn slots<'s>(&self, recorded: &'s [u64]) -> Cow<'s, [u64]> {
        let same = self.bindings.slots.iter().copied().eq(0..recorded.len() as u32);
        if same { Cow::Borrowed(recorded) } else { self.bindings.slots.iter().map(|&i| recorded[i as usize]).collect() }
    }
}

/// A program that is ready to run.
pub(crate) struct Compiled {
    pub(crate) executable: Arc<dyn Executable>,
    /// Shared with the traces that follow the program, so that they do not keep an evicted executable alive.
    pub(crate) assumptions: Arc<SlotAssumptions>,
}

/// A canonical program as the key of a map.
#[derive(Clone)]
struct Key(Arc<Program>);

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0 == other.0
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

/// The number of evicted programs whose assumptions are remembered.
const MOST_EVICTED: NonZeroUsize = NonZeroUsize::MIN.saturating_add(999);

/// The number of programs whose runs in the interpreter are counted.
const MOST_INTERPRETED: NonZeroUsize = NonZeroUsize::MIN.saturating_add(999);

/// Recordings that are remembered for each program in memory. Most have one; dead nodes make others.
const RECORDINGS_PER_PROGRAM: NonZeroUsize = NonZeroUsize::MIN.saturating_add(3);

/// Least-recently-used programs of one device, bounded by number and by bytes.
pub(crate) struct ProgramCache {
    programs: Mutex<Programs>,
}

struct Programs {
    compiled: LruCache<Key, Arc<Compiled>, FxBuildHasher>,
    /// By the hash of their form.
    recorded: LruCache<u64, Vec<Arc<Recorded>>, FxBuildHasher>,
    /// By their hash, the assumptions of evicted programs: an offset that became a run-time scalar stays one.
    evicted: LruCache<u64, Arc<SlotAssumptions>, FxBuildHasher>,
    /// How often programs that are not compiled ran in the interpreter.
    interpreted: LruCache<Key, u32, FxBuildHasher>,
    bytes: u64,
    most_bytes: u64,
}

impl ProgramCache {
    pub(crate) fn new(entries: NonZeroUsize, bytes: u64) -> Self {
        let programs = Programs {
            compiled: LruCache::with_hasher(entries, FxBuildHasher),
            recorded: LruCache::with_hasher(entries.saturating_mul(RECORDINGS_PER_PROGRAM), FxBuildHasher),
            evicted: LruCache::with_hasher(MOST_EVICTED, FxBuildHasher),
            interpreted: LruCache::with_hasher(MOST_INTERPRETED, FxBuildHasher),
            bytes: 0,
            most_bytes: bytes,
        };
        Self { programs: Mutex::new(programs) }
    }

    /// Returns a form with its canonical program, which is extracted now if the form is new.
    ///
    /// # Errors
    /// Only a bug gives one: an output that does not exist.
    pub(crate) fn recorded(&self, form: &Form) -> burn_tpu_graph::Result<Arc<Recorded>> {
        let hash = form.hash();
        let mut programs = self.programs.lock();
        let known = programs.recorded.get(&hash).into_iter().flatten();
        if let Some(known) = known.into_iter().find(|recorded| form.is(recorded)) {
            return Ok(Arc::clone(known));
        }
        let graph = form.recording.to_graph(form.len);
        let (program, bindings) = Program::canonical(&graph, &form.outputs)?;
        let program = programs.interned(program);
        let recorded = Arc::new(Recorded { graph, outputs: form.outputs.clone(), program, bindings });
        programs.recorded.get_or_insert_mut(hash, Vec::new).push(Arc::clone(&recorded));
        Ok(recorded)
    }

    pub(crate) fn get(&self, program: &Arc<Program>) -> Option<Arc<Compiled>> {
        self.programs.lock().compiled.get(&Key(Arc::clone(program))).map(Arc::clone)
    }

    /// Returns how a recording that has to be compiled differs from the one most like it; `None` when none is like it.
    pub(crate) fn explain(&self, new: &Recorded, slots: &[u64]) -> Option<Difference> {
        let programs = self.programs.lock();
        if let Some(same) = programs.compiled.peek(&Key(Arc::clone(&new.program))) {
            return broken(new, &same.assumptions, slots);
        }
        if programs.evicted.contains(&hash(&new.program)) {
            return Some(Difference::evicted());
        }
        let compiled = |old: &&Arc<Recorded>| programs.compiled.contains(&Key(Arc::clone(&old.program)));
        let earlier = programs.recorded.iter().flat_map(|(_, recorded)| recorded).filter(compiled);
        let alike = earlier.filter_map(|old| Some((likeness(&old.graph, &new.graph)?, old)));
        // Of equals the latest, which comes first.
        let most = alike.reduce(|best, next| if next.0 > best.0 { next } else { best });
        most.map(|(_, old)| of_recordings(old, new))
    }

    /// Returns what an evicted program had assumed.
    pub(crate) fn assumed_before(&self, program: &Program) -> Option<Arc<SlotAssumptions>> {
        self.programs.lock().evicted.get(&hash(program)).cloned()
    }

    /// Returns whether a program has run in the interpreter and was not compiled since.
    pub(crate) fn was_interpreted(&self, program: &Arc<Program>) -> bool {
        self.programs.lock().interpreted.contains(&Key(Arc::clone(program)))
    }

    /// Counts a run in the interpreter, and returns the number of such runs.
    pub(crate) fn count_interpreted(&self, program: &Arc<Program>) -> u32 {
        let mut programs = self.programs.lock();
        let runs = programs.interpreted.get_or_insert_mut(Key(Arc::clone(program)), || 0);
        *runs += 1;
        *runs
    }

    /// Keeps a program, and evicts the least recently used ones until both bounds hold. The newest always stays.
    pub(crate) fn insert(&self, program: Arc<Program>, compiled: Arc<Compiled>, counters: &Counters) {
        let mut programs = self.programs.lock();
        programs.bytes += compiled.executable.size_bytes();
        let key = Key(program);
        programs.interpreted.pop(&key);
        let replaced = programs.compiled.contains(&key);
        if let Some((key, old)) = programs.compiled.push(key, compiled) {
            programs.bytes -= old.executable.size_bytes();
            if !replaced {
                programs.evict(&key, &old, counters);
            }
        }
        while programs.bytes > programs.most_bytes && programs.compiled.len() > 1 {
            let Some((key, old)) = programs.compiled.pop_lru() else { break };
            programs.bytes -= old.executable.size_bytes();
            programs.evict(&key, &old, counters);
        }
    }

    /// Returns the hashes of the programs in the cache, ascending: what tests compare between runs.
    pub(crate) fn keys(&self) -> Vec<u64> {
        let programs = self.programs.lock();
        let mut keys: Vec<u64> = programs.compiled.iter().map(|(key, _)| hash(&key.0)).collect();
        keys.sort_unstable();
        keys
    }

    /// Evicts all programs.
    pub(crate) fn clear(&self) {
        let mut programs = self.programs.lock();
        programs.interpreted.clear();
        while let Some((key, old)) = programs.compiled.pop_lru() {
            programs.evicted.put(hash(&key.0), Arc::clone(&old.assumptions));
        }
        programs.recorded.clear();
        programs.bytes = 0;
    }
}

impl Programs {
    /// The program as it is known already, so that equal programs are one.
    fn interned(&mut self, program: Program) -> Arc<Program> {
        let new = Key(Arc::new(program));
        self.compiled.get_key_value(&new).map_or_else(|| Arc::clone(&new.0), |(known, _)| Arc::clone(&known.0))
    }

    fn evict(&mut self, key: &Key, old: &Compiled, counters: &Counters) {
        self.evicted.put(hash(&key.0), Arc::clone(&old.assumptions));
        Counters::add(&counters.cache_evictions, 1);
    }
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = FxHasher::default();
    value.hash(&mut hasher);
    hasher.finish()
}
