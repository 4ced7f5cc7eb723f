//! Compiled programs and the bounded cache that keeps them.
//!
//! A program's identity is its canonical form: the recorded nodes that its outputs need, numbered in their own order.
//! Run-time scalars and buffers are no part of it. Extracting that form walks the recording, so recordings that are compiled
//! or come back are remembered with the programs that they are: a step that is recorded again finds its program by the hash
//! that was kept while recording, and one comparison.
//!
//! Offsets (starts of slices) are constants in the program that is compiled first. When the same recording comes with
//! other values, exactly those that changed become run-time scalars. The new program serves all that the old one did, so it
//! takes its place: an offset that changes costs one compile. Scalars that are equal and have the same role (an
//! optimizer's numbers, once per parameter) likewise share one input until their values differ.

mod assumptions;
mod provenance;

pub(crate) use assumptions::SlotAssumptions;
pub(crate) use provenance::Provenance;

use crate::engine::{Arguments, Executable, Input};
use crate::error::Result;
use crate::metrics::Counters;
use crate::recording::Recording;
use burn_tpu_graph::{Arrival, Beginning, Bindings, Builder, Graph, Node, NodeId, Program, Split};
use lru::LruCache;
use parking_lot::Mutex;
use rustc_hash::{FxBuildHasher, FxHasher};
use std::borrow::Cow;
use std::hash::{Hash, Hasher};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// The part of a recording that a cut runs: the first `len` nodes, and which of them are outputs.
pub(crate) struct Subgraph<'t> {
    pub(crate) recording: &'t Recording,
    pub(crate) len: usize,
    /// The nodes to materialise, ascending.
    pub(crate) outputs: Vec<NodeId>,
    /// Who recorded the nodes. No part of the subgraph's identity.
    pub(crate) provenance: Provenance,
}

impl Subgraph<'_> {
    pub(crate) fn nodes(&self) -> &[Node] {
        &self.recording.nodes()[..self.len]
    }

    /// The graph's own hash was kept while recording, so there is no walk here.
    fn hash(&self, arrivals: &[Arrival]) -> u64 {
        hash_of_subgraph(self.recording.hash_at(self.len), &self.outputs, arrivals)
    }

    fn is(&self, recorded: &Recorded, arrivals: &[Arrival]) -> bool {
        recorded.outputs == self.outputs && recorded.arrivals == arrivals && self.has_nodes_of(&recorded.graph)
    }

    /// Returns whether the nodes are those of a graph. If the recording follows it, nothing is compared.
    fn has_nodes_of(&self, graph: &Arc<Graph>) -> bool {
        let follows = self.recording.following().is_some_and(|followed| Arc::ptr_eq(followed, graph));
        (follows && graph.len() == self.len) || graph.nodes() == self.nodes()
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
    /// Whether the program's slots are those of the recording, in their order, up to the last that it has.
    has_slots_in_order: bool,
    /// On a mesh, where the recording's buffers were.
    pub(crate) arrivals: Vec<Arrival>,
    /// Whether the lines of its outputs are still looked for.
    pub(crate) wanted_lines: WantedLines,
}

/// The runs of a recording in which the lines of its outputs are looked for. A stack takes microseconds to capture, so most
/// recordings know few at first; the next one follows it, and captures the stacks of its outputs.
pub(crate) struct WantedLines(AtomicU8);

/// The number of runs in which lines are looked for. Those of some values are never found.
const MOST_LOOKS: u8 = 4;

impl WantedLines {
    pub(crate) fn is_wanted(&self) -> bool {
        self.0.load(Relaxed) > 0
    }

    /// A run of the recording noted the lines that are known: all of them, or not.
    pub(crate) fn tried(&self, all: bool) {
        let left = self.0.load(Relaxed).saturating_sub(1);
        self.0.store(if all { 0 } else { left }, Relaxed);
    }
}

impl Recorded {
    /// Returns the hash of its subgraph.
    fn hash(&self) -> u64 {
        hash_of_subgraph(self.graph.hash_at(self.graph.len()), &self.outputs, &self.arrivals)
    }

    /// Returns the program's arguments, from the buffers of the recording. One that failed is missing.
    pub(crate) fn arguments(&self, buffers: &[Input]) -> Arguments {
        self.bindings.parameters.iter().map(|&index| buffers[index as usize].clone().ok()).collect()
    }

    /// The values of the program's slots, from those of the recording.
    pub(crate) fn slots<'s>(&self, recorded: &'s [u64]) -> Cow<'s, [u64]> {
        let same = self.has_slots_in_order && self.bindings.slots.len() == recorded.len();
        if same { Cow::Borrowed(recorded) } else { self.bindings.slots.iter().map(|&i| recorded[i as usize]).collect() }
    }
}

/// A program that is ready to run.
pub(crate) struct CompiledProgram {
    pub(crate) executable: Arc<dyn Executable>,
    /// Shared with the traces that follow the program, so that they do not keep an evicted executable alive.
    pub(crate) assumptions: Arc<SlotAssumptions>,
}

/// An earlier program that explains why a recording has to be compiled.
pub(crate) enum Earlier {
    /// The same program is compiled, with these assumptions.
    Compiled(Arc<SlotAssumptions>),
    /// The same program was evicted.
    Evicted,
    /// The recording of the program that is most like it.
    Like(Arc<Recorded>),
}

/// Returns the similarity of two recordings: the number of equal op kinds at the start and at the end, and the number
/// of equal nodes at the start. Returns `None` if less than half of the op kinds are equal: the recordings are unrelated.
pub(crate) fn similarity(old: &Graph, new: &Graph) -> Option<(usize, usize)> {
    let kinds = |(a, b): &(&Node, &Node)| a.op.mnemonic() == b.op.mnemonic();
    let (a, b) = (old.nodes(), new.nodes());
    let front = a.iter().zip(b).take_while(kinds).count();
    let rest = a.len().min(b.len()) - front;
    let back = a.iter().rev().zip(b.iter().rev()).take(rest).take_while(kinds).count();
    let equal = old.hashes().iter().zip(new.hashes()).take_while(|(a, b)| a == b).count();
    (2 * (front + back) >= a.len().max(b.len())).then_some((front + back, equal))
}

/// How the host's values of a split program are transferred.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Packing {
    /// Small ones together.
    Together,
    Alone,
}

/// What is counted of a program.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Count {
    /// It ran in the interpreter.
    Interpreted,
    /// It is the device's part of a program that was not in memory.
    Family,
    /// It was in memory, and came with many values to transfer.
    Transfers,
    /// The number of its nodes after the rewrites.
    Nodes,
    /// A subgraph, which is counted by its own hash, was extracted.
    Extracted,
}

/// How a program's host values are packed, which of its parameters were on the host, and its parts.
type Parts = (Packing, Vec<u32>, Option<Arc<Split>>);

/// Which of a program's parameters were given, and its parts.
type BegunParts = (Vec<u32>, Option<Arc<Beginning>>);

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

/// The number of programs whose events are counted.
const MOST_COUNTED: NonZeroUsize = NonZeroUsize::MIN.saturating_add(9_999);

/// The number of programs whose parts are kept. Each holds its nodes once more.
const MOST_SPLIT: NonZeroUsize = NonZeroUsize::MIN.saturating_add(15);

/// The number of programs that are kept as they are placed on a mesh: parts of others, and buckets of sizes.
const MOST_PLACED: NonZeroUsize = NonZeroUsize::MIN.saturating_add(63);

/// The number of programs that are kept as the interpreter rounds them. Each is there twice.
const MOST_ROUNDED: NonZeroUsize = NonZeroUsize::MIN.saturating_add(63);

/// The number of nodes of all recordings that are remembered, each of which is there twice. The latest always stays.
const MOST_RECORDED_NODES: usize = 100_000;

/// Recordings that are remembered for each program in memory. Most have one; dead nodes make others.
const RECORDINGS_PER_PROGRAM: NonZeroUsize = NonZeroUsize::MIN.saturating_add(3);

/// Least-recently-used programs of one device, bounded by number and by bytes.
pub(crate) struct ProgramCache {
    programs: Mutex<Programs>,
}

struct Programs {
    compiled: LruCache<Key, Arc<CompiledProgram>, FxBuildHasher>,
    /// By the hash of their subgraph.
    recorded: LruCache<u64, Vec<Arc<Recorded>>, FxBuildHasher>,
    /// By their hash, the assumptions of evicted programs: an offset that became a run-time scalar stays one.
    evicted: LruCache<u64, Arc<SlotAssumptions>, FxBuildHasher>,
    /// By event, and by the hash of the program.
    counts: LruCache<(Count, u64), u32, FxBuildHasher>,
    /// How values are packed, the parameters that were on the host, and the parts.
    splits: LruCache<Key, Parts, FxBuildHasher>,
    /// The parameters that were given, and the parts.
    beginnings: LruCache<Key, BegunParts, FxBuildHasher>,
    /// By the arrivals of their arguments, programs for a mesh.
    placed: LruCache<(Key, Vec<Arrival>), Arc<Program>, FxBuildHasher>,
    /// Programs with the roundings that they are computed with.
    rounded: LruCache<Key, Arc<Program>, FxBuildHasher>,
    recorded_nodes: usize,
    bytes: u64,
    most_bytes: u64,
}

impl ProgramCache {
    pub(crate) fn new(entries: NonZeroUsize, bytes: u64) -> Self {
        let programs = Programs {
            compiled: LruCache::with_hasher(entries, FxBuildHasher),
            recorded: LruCache::with_hasher(entries.saturating_mul(RECORDINGS_PER_PROGRAM), FxBuildHasher),
            evicted: LruCache::with_hasher(MOST_EVICTED, FxBuildHasher),
            counts: LruCache::with_hasher(MOST_COUNTED, FxBuildHasher),
            splits: LruCache::with_hasher(MOST_SPLIT, FxBuildHasher),
            beginnings: LruCache::with_hasher(MOST_SPLIT, FxBuildHasher),
            placed: LruCache::with_hasher(MOST_PLACED, FxBuildHasher),
            rounded: LruCache::with_hasher(MOST_ROUNDED, FxBuildHasher),
            recorded_nodes: 0,
            bytes: 0,
            most_bytes: bytes,
        };
        Self { programs: Mutex::new(programs) }
    }

    /// Returns a subgraph with its canonical program, which is extracted and placed now if it is not remembered. A subgraph
    /// is remembered when it comes back: code that records something new all the time would fill the memory otherwise.
    /// `arrivals` says where the recording's buffers are on a mesh; `place` takes the program and the recorded index of each
    /// parameter.
    ///
    /// # Errors
    /// Only a bug gives one: an output that does not exist.
    pub(crate) fn recorded(
        &self,
        subgraph: &Subgraph,
        arrivals: &[Arrival],
        place: impl FnOnce(Program, &[u32]) -> Program,
    ) -> burn_tpu_graph::Result<Arc<Recorded>> {
        let hash = subgraph.hash(arrivals);
        let mut programs = self.programs.lock();
        let known = programs.recorded.get(&hash).into_iter().flatten();
        if let Some(known) = known.into_iter().find(|recorded| subgraph.is(recorded, arrivals)) {
            return Ok(Arc::clone(known));
        }
        let graph = subgraph.recording.to_graph(subgraph.len);
        let (program, bindings) = Program::canonical(&graph, &subgraph.outputs)?;
        let program = programs.interned(place(program, &bindings.parameters));
        let (outputs, arrivals) = (subgraph.outputs.clone(), arrivals.to_vec());
        let wanted_lines = WantedLines(AtomicU8::new(MOST_LOOKS));
        let has_slots_in_order = bindings.slots.iter().copied().eq(0..bindings.slots.len() as u32);
        let recorded = Recorded { graph, outputs, program, bindings, has_slots_in_order, arrivals, wanted_lines };
        let recorded = Arc::new(recorded);
        if programs.count(Count::Extracted, hash) > 1 {
            programs.remember(hash, Arc::clone(&recorded));
        }
        Ok(recorded)
    }

    /// Remembers a recording that is compiled.
    pub(crate) fn remember(&self, recorded: &Arc<Recorded>) {
        let (hash, mut programs) = (recorded.hash(), self.programs.lock());
        let known = programs.recorded.peek(&hash).into_iter().flatten();
        if !known.into_iter().any(|known| Arc::ptr_eq(known, recorded)) {
            programs.remember(hash, Arc::clone(recorded));
        }
    }

    pub(crate) fn get(&self, program: &Arc<Program>) -> Option<Arc<CompiledProgram>> {
        self.programs.lock().compiled.get(&Key(Arc::clone(program))).map(Arc::clone)
    }

    /// Returns what the cache knows of a recording that has to be compiled; `None` when nothing in memory is like it.
    pub(crate) fn earlier(&self, new: &Recorded) -> Option<Earlier> {
        let programs = self.programs.lock();
        if let Some(same) = programs.compiled.peek(&Key(Arc::clone(&new.program))) {
            return Some(Earlier::Compiled(Arc::clone(&same.assumptions)));
        }
        if programs.evicted.contains(&hash(&new.program)) {
            return Some(Earlier::Evicted);
        }
        let mut most_similar = None;
        for old in programs.recorded.iter().flat_map(|(_, recorded)| recorded) {
            if !programs.is_compiled(&Key(Arc::clone(&old.program))) {
                continue;
            }
            let Some(similarity) = similarity(&old.graph, &new.graph) else { continue };
            // The latest of equally similar ones comes first.
            if most_similar.is_none_or(|(most, _)| similarity > most) {
                most_similar = Some((similarity, old));
            }
        }
        most_similar.map(|(_, old)| Earlier::Like(Arc::clone(old)))
    }

    /// Returns what an evicted program had assumed.
    pub(crate) fn assumed_before(&self, program: &Program) -> Option<Arc<SlotAssumptions>> {
        self.programs.lock().evicted.get(&hash(program)).cloned()
    }

    /// Counts an event of a program, and returns the number of such events.
    pub(crate) fn count(&self, event: Count, program: &Program) -> u32 {
        self.programs.lock().count(event, hash(program))
    }

    /// Returns the number of events of a program.
    pub(crate) fn counted(&self, event: Count, program: &Program) -> u32 {
        self.programs.lock().counts.get(&(event, hash(program))).copied().unwrap_or(0)
    }

    /// Remembers a number of a program.
    pub(crate) fn note(&self, what: Count, program: &Program, number: u32) {
        self.programs.lock().counts.put((what, hash(program)), number);
    }

    /// Returns the two parts of a program for these parameters on the host, which `of` finds if they are not in memory.
    ///
    /// # Errors
    /// Those of `of`.
    pub(crate) fn split(
        &self,
        program: &Arc<Program>,
        (packing, on_host): (Packing, &[u32]),
        of: impl FnOnce() -> burn_tpu_graph::Result<Option<Split>>,
    ) -> burn_tpu_graph::Result<Option<Arc<Split>>> {
        let key = Key(Arc::clone(program));
        let is_same = |(by, hosts, _): &&Parts| *by == packing && hosts == on_host;
        let known = self.programs.lock().splits.get(&key).filter(is_same).cloned();
        if let Some((.., split)) = known {
            return Ok(split);
        }
        let split = of()?.map(Arc::new);
        self.programs.lock().splits.put(key, (packing, on_host.to_vec(), split.clone()));
        Ok(split)
    }

    /// Returns a program divided at its initial values if these parameters are given, which `of` finds if it is not in
    /// memory.
    ///
    /// # Errors
    /// Those of `of`.
    pub(crate) fn beginning(
        &self,
        program: &Arc<Program>,
        given: &[u32],
        of: impl FnOnce() -> burn_tpu_graph::Result<Option<Beginning>>,
    ) -> burn_tpu_graph::Result<Option<Arc<Beginning>>> {
        if let Some(beginning) = self.known_beginning(program, given) {
            return Ok(beginning);
        }
        let beginning = of()?.map(Arc::new);
        let key = Key(Arc::clone(program));
        self.programs.lock().beginnings.put(key, (given.to_vec(), beginning.clone()));
        Ok(beginning)
    }

    /// Returns what [`ProgramCache::beginning`] found for these parameters before; `None` if it has not been asked.
    pub(crate) fn known_beginning(&self, program: &Arc<Program>, given: &[u32]) -> Option<Option<Arc<Beginning>>> {
        let key = Key(Arc::clone(program));
        let mut programs = self.programs.lock();
        let known = programs.beginnings.get(&key).filter(|(of, _)| of == given);
        known.map(|(_, beginning)| beginning.clone())
    }

    /// Returns a program for arguments that arrive so, which `place` makes if it is not in memory.
    pub(crate) fn placed(
        &self,
        program: &Arc<Program>,
        arrivals: Vec<Arrival>,
        place: impl FnOnce(&[Arrival]) -> Program,
    ) -> Arc<Program> {
        let key = (Key(Arc::clone(program)), arrivals);
        if let Some(known) = self.programs.lock().placed.get(&key) {
            return Arc::clone(known);
        }
        let placed = place(&key.1);
        let mut programs = self.programs.lock();
        let placed = programs.interned(placed);
        programs.placed.put(key, Arc::clone(&placed));
        placed
    }

    /// Returns a program with the roundings that it is computed with, which `round` finds if it is not in memory.
    ///
    /// # Errors
    /// Those of `round`.
    pub(crate) fn rounded(
        &self,
        program: &Arc<Program>,
        round: impl FnOnce() -> Result<Arc<Program>>,
    ) -> Result<Arc<Program>> {
        let key = Key(Arc::clone(program));
        if let Some(known) = self.programs.lock().rounded.get(&key) {
            return Ok(Arc::clone(known));
        }
        let rounded = round()?;
        self.programs.lock().rounded.put(key, Arc::clone(&rounded));
        Ok(rounded)
    }

    /// Keeps a program, and evicts the least recently used ones until both bounds hold. The newest always stays.
    pub(crate) fn insert(&self, program: Arc<Program>, compiled: Arc<CompiledProgram>, counters: &Counters) {
        let mut programs = self.programs.lock();
        programs.bytes += compiled.executable.size_bytes();
        let key = Key(program);
        programs.counts.pop(&(Count::Interpreted, hash(&key.0)));
        let replaced = programs.compiled.contains(&key);
        if let Some((key, old)) = programs.compiled.push(key, compiled) {
            programs.bytes -= old.executable.size_bytes();
            if !replaced {
                programs.evict(&key, &old, counters);
            }
        }
        while programs.bytes > programs.most_bytes && programs.compiled.len() > 1 {
            programs.evict_least_recent(counters);
        }
    }

    /// Evicts programs until `is_full` says no, the least recently used half of them at a time. Returns how many.
    pub(crate) fn make_room(&self, is_full: impl Fn() -> bool, counters: &Counters) -> usize {
        let mut evicted = 0;
        while is_full() {
            let mut programs = self.programs.lock();
            let half = programs.compiled.len().div_ceil(2);
            if half == 0 {
                break;
            }
            for _ in 0..half {
                programs.evict_least_recent(counters);
            }
            evicted += half;
        }
        evicted
    }

    /// Returns the hashes of the programs in the cache, ascending: what tests compare between runs.
    pub(crate) fn keys(&self) -> Vec<u64> {
        let programs = self.programs.lock();
        let mut keys: Vec<u64> = programs.compiled.iter().map(|(key, _)| hash(&key.0)).collect();
        keys.sort_unstable();
        keys
    }

    /// Returns the number of programs in memory.
    pub(crate) fn len(&self) -> usize {
        self.programs.lock().compiled.len()
    }

    /// Returns the bytes of the programs in memory.
    pub(crate) fn bytes(&self) -> u64 {
        self.programs.lock().bytes
    }

    /// Evicts all programs.
    pub(crate) fn clear(&self) {
        let mut programs = self.programs.lock();
        programs.counts.clear();
        programs.splits.clear();
        programs.beginnings.clear();
        programs.placed.clear();
        programs.rounded.clear();
        while let Some((key, old)) = programs.compiled.pop_lru() {
            programs.evicted.put(hash(&key.0), Arc::clone(&old.assumptions));
        }
        programs.recorded.clear();
        programs.recorded_nodes = 0;
        programs.bytes = 0;
    }
}

impl Programs {
    /// Returns whether a program, or what is left of a first one, is in memory.
    fn is_compiled(&self, key: &Key) -> bool {
        let begun = || self.beginnings.peek(key).and_then(|(_, begun)| begun.as_ref());
        self.compiled.contains(key)
            || begun().is_some_and(|begun| self.compiled.contains(&Key(Arc::clone(&begun.rest.0))))
    }

    /// Counts an event of what has this hash, and returns the number of such events.
    fn count(&mut self, event: Count, hash: u64) -> u32 {
        let count = self.counts.get_or_insert_mut((event, hash), || 0);
        *count = count.saturating_add(1);
        *count
    }

    /// The program as it is known already, so that equal programs are one.
    fn interned(&mut self, program: Program) -> Arc<Program> {
        let new = Key(Arc::new(program));
        self.compiled.get_key_value(&new).map_or_else(|| Arc::clone(&new.0), |(known, _)| Arc::clone(&known.0))
    }

    /// Keeps a recording, and forgets the least recently used ones until both bounds hold.
    fn remember(&mut self, hash: u64, recorded: Arc<Recorded>) {
        self.recorded_nodes += recorded.graph.len();
        let mut same = self.recorded.pop(&hash).unwrap_or_default();
        same.push(recorded);
        if let Some((_, forgotten)) = self.recorded.push(hash, same) {
            self.recorded_nodes -= total_nodes(&forgotten);
        }
        while self.recorded_nodes > MOST_RECORDED_NODES && self.recorded.len() > 1 {
            let Some((_, forgotten)) = self.recorded.pop_lru() else { break };
            self.recorded_nodes -= total_nodes(&forgotten);
        }
    }

    fn evict_least_recent(&mut self, counters: &Counters) {
        if let Some((key, old)) = self.compiled.pop_lru() {
            self.bytes -= old.executable.size_bytes();
            self.evict(&key, &old, counters);
        }
    }

    fn evict(&mut self, key: &Key, old: &CompiledProgram, counters: &Counters) {
        self.evicted.put(hash(&key.0), Arc::clone(&old.assumptions));
        Counters::add(&counters.cache_evictions, 1);
    }
}

fn total_nodes(recorded: &[Arc<Recorded>]) -> usize {
    recorded.iter().map(|recorded| recorded.graph.len()).sum()
}

fn hash_of_subgraph(graph: u64, outputs: &[NodeId], arrivals: &[Arrival]) -> u64 {
    hash(&(graph, outputs, arrivals))
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = FxHasher::default();
    value.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests;
