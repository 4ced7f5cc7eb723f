//! Dividing a long program into pieces: programs of bounded size that run one after another.
//!
//! Owns: where a program is cut, and which values pass between its pieces. May not know: how pieces are compiled, and where
//! values are.
//!
//! The cuts depend on the program alone:
//! 1. *Leaves* (inputs, constants, and what only moves their elements) belong to no piece: each piece builds those that it
//!    reads. The other nodes are *members*, in the order of the recording.
//! 2. A piece has between half the limit and the limit of nodes. In that window, the cut is where the values that pass to
//!    later pieces have the fewest bytes.
//! 3. A place where the program goes on as it did after an earlier cut is preferred, if at most twice as many bytes pass
//!    there. So a loop that was recorded step by step is cut at the same places of its steps, and most pieces are equal.
//! 4. A value that cannot be a program's argument is not cut off from its readers. There a piece may exceed the limit.
//!
//! Pieces are canonical programs. Two that differ only in the places of offsets, parameters and scalars in the whole are one
//! program.

use crate::{Bindings, DType, Node, NodeId, Op, Program, Rebuild, Result, cost};
use rustc_hash::{FxHashMap, FxHashSet, FxHasher};
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;

/// The number of members that are compared to tell whether a program goes on as it did before.
const ALIKE: usize = 32;

/// The longest chain of ops that is a leaf. Each piece that reads it computes it again.
const MOST_LEAF_OPS: u8 = 8;

/// A program as several that run one after another. Results are numbered over all pieces.
#[derive(Clone, Debug)]
pub struct Pieces {
    /// The programs, each once.
    pub programs: Vec<Arc<Program>>,
    /// The pieces, in the order in which they run.
    pub pieces: Vec<Piece>,
    /// The number of the result that is each output of the whole program.
    pub outputs: Vec<usize>,
}

/// One run of a program.
#[derive(Clone, Debug)]
pub struct Piece {
    /// The program's index in [`Pieces::programs`].
    pub program: usize,
    /// Its parameters.
    pub inputs: Vec<PieceInput>,
    /// Its slots and offsets, by their index in the whole program.
    pub slots: Vec<u32>,
}

/// A parameter of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PieceInput {
    /// Where its value comes from.
    pub value: PieceValue,
    /// Whether no later piece reads the value, and it is no output of the whole program.
    pub is_last_use: bool,
}

/// A value that a piece reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PieceValue {
    /// The parameter of this index of the whole program.
    Parameter(u32),
    /// The result of this number of an earlier piece.
    Result(usize),
}

impl Pieces {
    /// Returns the pieces of a program, or `None` if it is a single one. A piece has at most `limit` nodes, where a cut is
    /// possible, and the leaves and inputs that it has for itself.
    ///
    /// # Errors
    /// Only a bug gives one: a piece that breaks an op's rule.
    pub fn of(program: &Program, limit: usize) -> Result<Option<Self>> {
        let members = Members::of(program);
        let cuts = members.cuts(limit.max(1));
        if cuts.is_empty() {
            return Ok(None);
        }
        Division::new(&members, &cuts).pieces().map(Some)
    }

    /// Returns the pieces that run a program.
    pub fn runs_of(&self, program: usize) -> impl Iterator<Item = &Piece> {
        self.pieces.iter().filter(move |piece| piece.program == program)
    }
}

/// The nodes of a program that are not leaves, in order. A member is named by its place.
struct Members<'p> {
    program: &'p Program,
    ids: Vec<NodeId>,
    /// The place of each node; `None` for a leaf.
    places: Vec<Option<usize>>,
    /// A hash of each member's op and type.
    keys: Vec<u64>,
    /// The number of nodes before each member, those of loop bodies included; and one entry for the end.
    sizes: Vec<usize>,
    /// What passes a cut before each member.
    crossing: Vec<Crossing>,
}

/// The values that pass a cut.
#[derive(Clone, Copy, Default)]
struct Crossing {
    bytes: isize,
    /// The number of those that cannot be an argument.
    inseparable: isize,
}

impl<'p> Members<'p> {
    fn of(program: &'p Program) -> Self {
        let nodes = program.graph().nodes();
        let (mut ids, mut places, mut keys, mut sizes) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (mut leaf_ops, mut size) = (Vec::with_capacity(nodes.len()), 0);
        for (node, id) in nodes.iter().zip((0..).map(NodeId)) {
            leaf_ops.push(leaf_length(node, &leaf_ops));
            let is_member = leaf_ops[id.index()].is_none();
            places.push(is_member.then_some(ids.len()));
            if is_member {
                ids.push(id);
                keys.push(key(node));
                sizes.push(size);
            }
            size += cost::node_count(node);
        }
        sizes.push(size);
        // The leaves before the first member are in the first piece.
        sizes[0] = 0;
        let crossing = crossings(program, &ids, &places);
        Self { program, ids, places, keys, sizes, crossing }
    }

    /// Returns the places before which the program is cut, ascending.
    fn cuts(&self, limit: usize) -> Vec<usize> {
        let (mut cuts, mut last) = (Vec::new(), 0);
        let mut known = FxHashSet::from_iter([self.continuation(0)]);
        while self.sizes[self.ids.len()] - self.sizes[last] > limit {
            let Some(next) = self.next_cut(last, limit, &known) else { break };
            known.insert(self.continuation(next));
            cuts.push(next);
            last = next;
        }
        cuts
    }

    /// Returns the first cut after the last one. `known` are the continuations after earlier cuts.
    fn next_cut(&self, last: usize, limit: usize, known: &FxHashSet<u64>) -> Option<usize> {
        let window = self.window(last, limit);
        let may_cut = |place: &usize| self.crossing[*place].inseparable == 0;
        let bytes = |place: &usize| self.crossing[*place].bytes;
        let Some(least) = window.clone().filter(may_cut).min_by_key(bytes) else {
            return (window.end..self.ids.len()).find(may_cut);
        };
        let is_alike = |place: &usize| known.contains(&self.continuation(*place));
        let few = window.filter(may_cut).filter(|place| bytes(place) <= 2 * bytes(&least));
        Some(few.filter(is_alike).min_by_key(bytes).unwrap_or(least))
    }

    /// Returns the places that leave a piece of at least half the limit, and of at most the limit.
    fn window(&self, last: usize, limit: usize) -> Range<usize> {
        let until =
            |size: usize| self.sizes[..self.ids.len()].partition_point(|&place| place < self.sizes[last] + size);
        let first = until(limit.div_ceil(2)).max(last + 1);
        first..until(limit + 1).max(first)
    }

    /// Returns a hash of how the program goes on at a place.
    fn continuation(&self, place: usize) -> u64 {
        let mut hasher = FxHasher::default();
        self.keys[place..].iter().take(ALIKE).for_each(|key| key.hash(&mut hasher));
        hasher.finish()
    }
}

/// Returns the number of ops of a leaf; `None` for a node that is no leaf.
fn leaf_length(node: &Node, before: &[Option<u8>]) -> Option<u8> {
    let longest = node.operands.iter().try_fold(0, |most, operand| Some(before[operand.index()]?.max(most)))?;
    (node.op.is_leaf_or_view() && longest < MOST_LEAF_OPS).then_some(longest + 1)
}

fn key(node: &Node) -> u64 {
    let mut hasher = FxHasher::default();
    (&node.op, &node.ty, node.operands.len()).hash(&mut hasher);
    hasher.finish()
}

/// Returns what passes a cut before each member. An output does not count: it is kept wherever the cuts are.
fn crossings(program: &Program, ids: &[NodeId], places: &[Option<usize>]) -> Vec<Crossing> {
    let graph = program.graph();
    let (mut last_use, mut last_result) = (vec![0; ids.len()], vec![0; ids.len()]);
    for (place, &id) in ids.iter().enumerate() {
        for read in graph.node(id).operands.iter().filter_map(|operand| places[operand.index()]) {
            last_use[read] = place;
            if matches!(graph.node(id).op, Op::GetResult { .. }) {
                last_result[read] = place;
            }
        }
    }
    let outputs: FxHashSet<NodeId> = program.outputs().iter().copied().collect();
    let mut crossing = vec![Crossing::default(); ids.len() + 1];
    for (place, &id) in ids.iter().enumerate() {
        let ty = graph.ty(id);
        let bytes = if outputs.contains(&id) { 0 } else { ty.bytes() as isize };
        let inseparable = if ty.dtype == DType::C64 { last_use[place] } else { last_result[place] };
        let mut add = |place: usize, sign: isize, bytes: isize, inseparable: isize| {
            crossing[place].bytes += sign * bytes;
            crossing[place].inseparable += sign * inseparable;
        };
        for (end, bytes, inseparable) in [(last_use[place], bytes, 0), (inseparable, 0, 1)] {
            if end > place {
                add(place + 1, 1, bytes, inseparable);
                add(end + 1, -1, bytes, inseparable);
            }
        }
    }
    let mut open = Crossing::default();
    for here in &mut crossing {
        open = Crossing { bytes: open.bytes + here.bytes, inseparable: open.inseparable + here.inseparable };
        *here = open;
    }
    crossing
}

/// The members of each piece and what it computes for others.
struct Division<'m> {
    members: &'m Members<'m>,
    /// The places of each piece.
    ranges: Vec<Range<usize>>,
    /// The nodes that later pieces or the caller read, of each piece.
    results: Vec<Vec<NodeId>>,
    /// The number of each result.
    numbers: FxHashMap<NodeId, usize>,
}

impl<'m> Division<'m> {
    fn new(members: &'m Members<'m>, cuts: &[usize]) -> Self {
        let starts = std::iter::once(0).chain(cuts.iter().copied());
        let ends = cuts.iter().copied().chain([members.ids.len()]);
        let ranges: Vec<_> = starts.zip(ends).map(|(start, end)| start..end).collect();
        let results = results(members, &ranges);
        let numbers = results.iter().flatten().copied().zip(0..).collect();
        Self { members, ranges, results, numbers }
    }

    fn pieces(&self) -> Result<Pieces> {
        let (mut programs, mut known) = (Vec::new(), FxHashMap::default());
        let mut pieces = Vec::with_capacity(self.ranges.len());
        for (range, results) in self.ranges.iter().zip(&self.results) {
            let (program, bindings) = PieceBuilder::new(self, range.clone()).build(results)?;
            let program = Arc::new(program);
            let index = *known.entry(Arc::clone(&program)).or_insert(programs.len());
            if index == programs.len() {
                programs.push(program);
            }
            pieces.push(Piece { program: index, inputs: self.inputs(&bindings), slots: bindings.slots });
        }
        let outputs: Vec<usize> = self.members.program.outputs().iter().map(|output| self.numbers[output]).collect();
        mark_last_uses(&mut pieces, &outputs);
        Ok(Pieces { programs, pieces, outputs })
    }

    fn inputs(&self, bindings: &Bindings) -> Vec<PieceInput> {
        let first_result = self.first_result();
        let value = |&index: &u32| match index.checked_sub(first_result) {
            Some(number) => PieceValue::Result(number as usize),
            None => PieceValue::Parameter(index),
        };
        let values = bindings.parameters.iter().map(value);
        values.map(|value| PieceInput { value, is_last_use: false }).collect()
    }

    /// Returns the index of the parameter that is result 0 of the first piece; the other results follow.
    fn first_result(&self) -> u32 {
        self.members.program.parameters().map(|(index, _)| index + 1).max().unwrap_or(0)
    }
}

/// Returns the results of each piece, in order. A leaf that is an output is the last piece's.
fn results(members: &Members, ranges: &[Range<usize>]) -> Vec<Vec<NodeId>> {
    let graph = members.program.graph();
    let last = ranges.len() - 1;
    let piece_of =
        |id: NodeId| members.places[id.index()].map(|place| ranges.partition_point(|range| range.end <= place));
    let mut is_result = vec![false; graph.len()];
    members.program.outputs().iter().for_each(|output| is_result[output.index()] = true);
    for (piece, range) in ranges.iter().enumerate() {
        let read = members.ids[range.clone()].iter().flat_map(|&id| &graph.node(id).operands);
        let from_others = read.filter(|&&operand| piece_of(operand).is_some_and(|of| of != piece));
        from_others.for_each(|operand| is_result[operand.index()] = true);
    }
    let mut results = vec![Vec::new(); ranges.len()];
    for id in (0..graph.len() as u32).map(NodeId).filter(|id| is_result[id.index()]) {
        results[piece_of(id).unwrap_or(last)].push(id);
    }
    results
}

/// Marks the last use of each value, except of the results that are outputs.
fn mark_last_uses(pieces: &mut [Piece], outputs: &[usize]) {
    let mut later: FxHashSet<PieceValue> = outputs.iter().copied().map(PieceValue::Result).collect();
    let inputs = pieces.iter_mut().rev().flat_map(|piece| &mut piece.inputs);
    inputs.for_each(|input| input.is_last_use = later.insert(input.value));
}

/// The graph of one piece while it is built.
struct PieceBuilder<'d> {
    division: &'d Division<'d>,
    range: Range<usize>,
    new: Rebuild<'d>,
}

impl<'d> PieceBuilder<'d> {
    fn new(division: &'d Division<'d>, range: Range<usize>) -> Self {
        Self { division, range, new: Rebuild::new(division.members.program.graph()) }
    }

    fn build(mut self, results: &[NodeId]) -> Result<(Program, Bindings)> {
        for place in self.range.clone() {
            self.take(self.division.members.ids[place])?;
        }
        for &id in results {
            self.take(id)?;
        }
        Program::canonical(&self.new.graph, &self.new.renamed.ids(results)?)
    }

    /// Adds a member of the piece, a leaf with the leaves that it reads, or a parameter for the result of another piece.
    fn take(&mut self, id: NodeId) -> Result<NodeId> {
        if let Some(known) = self.new.renamed.get(id) {
            return Ok(known);
        }
        let node = self.new.old().node(id);
        if self.division.members.places[id.index()].is_some_and(|place| !self.range.contains(&place)) {
            let index = self.division.first_result() + self.division.numbers[&id] as u32;
            return self.new.add(id, Op::Parameter { index, ty: node.ty.clone() }, &[]);
        }
        for &operand in &node.operands {
            self.take(operand)?;
        }
        self.new.copy(id)
    }
}

#[cfg(test)]
mod tests;
