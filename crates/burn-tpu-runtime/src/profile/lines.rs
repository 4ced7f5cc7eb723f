//! Which lines of source recorded the ops of a profile.
//!
//! A stack takes microseconds to capture. The same recording comes again each step, so a stack is captured once for each
//! beginning of a recording, which its structural hash identifies.

use crate::recompile::{Caller, Resolver};
use burn_tpu_graph::Label;
use rustc_hash::FxHashMap;

/// The place of a captured stack.
pub(crate) type CallerId = u32;

/// The stacks of a profile, and which ops wait for a cut.
#[derive(Default)]
pub(super) struct Callers {
    captured: Vec<Caller>,
    /// By the hash of a recording up to the end of the op.
    known: FxHashMap<u64, CallerId>,
    /// By stream and position, the ops that were recorded and not cut yet.
    waiting: FxHashMap<(u64, u64), (Label, CallerId)>,
}

/// The ops of a cut, each with the stack that recorded it.
#[derive(Default)]
pub(crate) struct CutLines(FxHashMap<Label, Vec<CallerId>>);

impl Callers {
    /// Notes an op at a position of a stream. The recording has this hash at its end. Returns the op's stack, and whether it
    /// was captured now.
    pub(super) fn recorded(&mut self, op: Label, at: (u64, u64), hash: u64) -> (CallerId, bool) {
        let before = self.captured.len();
        let captured = &mut self.captured;
        let id = *self.known.entry(hash).or_insert_with(|| {
            captured.push(Caller::capture());
            captured.len() as CallerId - 1
        });
        self.waiting.insert(at, (op, id));
        (id, self.captured.len() > before)
    }

    /// Returns the stacks of the ops of a cut.
    pub(super) fn of_cut(&mut self, stream: u64, positions: impl Iterator<Item = u64>) -> CutLines {
        let mut lines = CutLines::default();
        for (op, id) in positions.filter_map(|position| self.waiting.remove(&(stream, position))) {
            lines.0.entry(op).or_default().push(id);
        }
        lines
    }

    /// Returns the stacks, to be resolved.
    pub(super) fn take(&mut self) -> ResolvedCallers {
        self.known.clear();
        self.waiting.clear();
        let callers = std::mem::take(&mut self.captured);
        ResolvedCallers { places: vec![None; callers.len()], callers, resolver: Resolver::default() }
    }
}

/// The number of lines that a row shows.
const MOST_LINES: usize = 8;

/// The stacks of a profile that has ended, which are resolved when they are asked for.
pub(super) struct ResolvedCallers {
    callers: Vec<Caller>,
    places: Vec<Option<Place>>,
    resolver: Resolver,
}

/// Where an op was recorded.
#[derive(Clone, Default)]
pub(super) struct Place {
    /// As `src/model.rs:41 in app::Block::forward`.
    pub(super) line: String,
    /// As `Gpt/Block/Linear`; empty if no method `forward` is in the stack.
    pub(super) module: String,
}

impl ResolvedCallers {
    pub(super) fn place(&mut self, id: CallerId) -> Place {
        let index = id as usize;
        let (Some(known), Some(caller)) = (self.places.get_mut(index), self.callers.get(index)) else {
            return Place::default();
        };
        let resolver = &mut self.resolver;
        known.get_or_insert_with(|| Place { line: resolver.line(caller), module: resolver.modules(caller) }).clone()
    }

    /// Returns the lines that recorded these ops of a cut, of which a row has so many each: first those that recorded most of
    /// the row. Ops of one name that several lines recorded count for each of them in its share.
    pub(super) fn lines_of(&mut self, lines: &CutLines, ops: &[(Label, usize)]) -> String {
        let mut weights: FxHashMap<String, f64> = FxHashMap::default();
        for (op, count) in ops {
            let Some(callers) = lines.0.get(op) else { continue };
            let share = *count as f64 / callers.len() as f64;
            for &caller in callers {
                *weights.entry(self.place(caller).line).or_default() += share;
            }
        }
        let mut lines: Vec<_> = weights.into_iter().collect();
        lines.sort_unstable_by(|(a, n), (b, m)| m.total_cmp(n).then_with(|| a.cmp(b)));
        let more = lines.len().saturating_sub(MOST_LINES);
        let shown = lines.into_iter().take(MOST_LINES).map(|(line, _)| line);
        let more = (more > 0).then(|| format!("{more} more lines"));
        shown.chain(more).collect::<Vec<_>>().join("; ")
    }
}
