//! Which lines of source recorded the ops of a program.
//!
//! A stack takes up to a hundred microseconds to capture, an op a quarter of one to record. The same recording comes again
//! each step, so a stack is captured once for each beginning of a recording, which its structural hash identifies. Two
//! places of a program may record the same: an [`Anchor`] keeps them apart. It is a hash of the stacks of a few ops at
//! the beginning of each trace, which are captured every time.

use crate::recompile::{Caller, Resolver, StepPlace};
use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHasher};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// The most stacks of a device, each of some 600 bytes. Ops of later recordings have no line.
const MOST_CALLERS: usize = 50_000;

/// Ops before this one, whose number in their trace is 0 or a power of two, are captured every time.
const ANCHORED: usize = 32;

/// A captured stack; 0 is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LineId(u32);

/// Who recorded the beginning of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Anchor(u64);

/// The captured stacks of a device.
#[derive(Default)]
pub(crate) struct RecordedLines {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    callers: Vec<Caller>,
    /// By the beginning of a trace, and by the hash of the recording up to the end of the op.
    known: FxHashMap<(Anchor, u64), LineId>,
}

impl RecordedLines {
    /// Returns the stack of the op with this number in its trace, which the calling thread has just recorded. The recording
    /// has this hash at its end.
    pub(crate) fn recorded(&self, anchor: &mut Anchor, number: usize, hash: u64) -> LineId {
        let is_anchor = number < ANCHORED && (number == 0 || number.is_power_of_two());
        let caller = is_anchor.then(Caller::capture);
        if let Some(caller) = &caller {
            let before = if number == 0 { Anchor::default() } else { *anchor };
            *anchor = before.then(caller.stack_hash());
        }
        let mut state = self.state.lock();
        if let Some(&known) = state.known.get(&(*anchor, hash)) {
            return known;
        }
        if state.callers.len() >= MOST_CALLERS {
            return LineId::default();
        }
        state.callers.push(caller.unwrap_or_else(Caller::capture));
        let id = LineId(state.callers.len() as u32);
        state.known.insert((*anchor, hash), id);
        id
    }

    /// Returns the place of a stack; `None` if the stack was not kept.
    pub(crate) fn resolve(&self, id: LineId, resolver: &mut Resolver) -> Option<StepPlace> {
        let caller = self.state.lock().callers.get((id.0 as usize).checked_sub(1)?)?.clone();
        Some(resolver.place(&caller))
    }
}

impl Anchor {
    fn then(self, stack: u64) -> Self {
        let mut hasher = FxHasher::default();
        (self.0, stack).hash(&mut hasher);
        Self(hasher.finish())
    }
}

/// The stack of each op of a program: the end of its recorded nodes, ascending, with its stack.
#[derive(Clone, Debug, Default)]
pub(crate) struct OpLines(Arc<[(u32, LineId)]>);

impl FromIterator<(u32, LineId)> for OpLines {
    fn from_iter<I: IntoIterator<Item = (u32, LineId)>>(ops: I) -> Self {
        Self(ops.into_iter().collect())
    }
}

impl OpLines {
    /// Returns the stack of the op that recorded a node. A parameter's is that of the first op that reads it.
    pub(crate) fn of(&self, node: usize) -> LineId {
        let place = self.0.partition_point(|&(end, _)| end as usize <= node);
        self.0.get(place).map_or_else(LineId::default, |&(_, line)| line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numerics::StepPart;

    #[test]
    fn a_stack_is_captured_once_for_each_beginning_of_a_recording() {
        let lines = RecordedLines::default();
        let step = || {
            let mut anchor = Anchor::default();
            [7, 8, 9, 10]
                .into_iter()
                .enumerate()
                .map(|(i, hash)| lines.recorded(&mut anchor, i, hash))
                .collect::<Vec<_>>()
        };
        let both: Vec<_> = (0..2).map(|_| step()).collect();
        assert_eq!(both[0], both[1]);
        let elsewhere = step();
        assert!(elsewhere.iter().all(|id| !both[0].contains(id)), "another line of source records the same");
        let mut resolver = Resolver::default();
        let place = lines.resolve(elsewhere[0], &mut resolver).unwrap();
        assert_eq!((place.part, place.gradient_of), (StepPart::Forward, None));
        assert!(!place.line.is_empty() && lines.resolve(LineId::default(), &mut resolver).is_none());
    }

    #[test]
    fn a_node_belongs_to_the_op_that_ends_after_it() {
        let ids = [1, 2].map(LineId);
        let lines: OpLines = [(2, ids[0]), (2, ids[0]), (5, ids[1])].into_iter().collect();
        assert_eq!([0, 1, 2, 4].map(|node| lines.of(node)), [ids[0], ids[0], ids[1], ids[1]]);
        assert_eq!(lines.of(5), LineId::default());
    }
}
