//! The stacks of recorded ops: captured once for each beginning of a recording, kept with the ops.
//!
//! The same recording comes again each step, so a stack is captured once for each beginning of a recording, which its
//! structural hash identifies. Two places of a program may record the same: where every op keeps its stack, an [`Anchor`]
//! tells them apart. It is a hash of the stacks of a few ops at the beginning of each trace, which are captured every time.

use super::Stack;
use burn_tpu_graph::NodeId;
use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHasher};
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;

/// The most stacks that a device remembers, each of some 600 bytes. Ops of later recordings have none.
const MOST_STACKS: usize = 50_000;

/// Ops before this one, whose number in their trace is 0 or a power of two, are captured every time.
const ANCHORED: usize = 32;

/// The stacks that recorded the beginning of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Anchor(u64);

/// The stacks of a device's recordings.
pub(crate) struct RecordedLines {
    /// Whether every op keeps its stack, since any may be reported.
    keeps_all: bool,
    /// By the beginning of a trace, and by the hash of the recording up to the end of the op.
    known: Mutex<FxHashMap<(Anchor, u64), Stack>>,
}

/// An op that the calling thread has just recorded.
pub(crate) struct RecordedOp {
    /// Its number in its trace.
    pub(crate) number: usize,
    /// The hash of the recording at its end.
    pub(crate) hash: u64,
    /// Whether its own stack is asked for, and not that of an op that recorded the same.
    pub(crate) is_asked: bool,
    pub(crate) is_profiled: bool,
}

/// The stack of an op, if it has one.
#[derive(Default)]
pub(crate) struct OpStack {
    pub(crate) stack: Option<Stack>,
    /// Whether it was captured for this op.
    pub(crate) is_new: bool,
}

impl RecordedLines {
    pub(super) fn new(keeps_all: bool) -> Self {
        Self { keeps_all, known: Mutex::default() }
    }

    /// Returns whether every op keeps its stack.
    pub(crate) fn keeps_all(&self) -> bool {
        self.keeps_all
    }

    /// Returns the stack of an op, which is captured now if it has to be.
    pub(crate) fn recorded(&self, anchor: &mut Anchor, op: &RecordedOp) -> OpStack {
        let is_anchor = self.keeps_all && op.number < ANCHORED && (op.number == 0 || op.number.is_power_of_two());
        let captured = (op.is_asked || is_anchor).then(Stack::capture);
        if let Some(stack) = captured.as_ref().filter(|_| is_anchor) {
            let before = if op.number == 0 { Anchor::default() } else { *anchor };
            *anchor = before.then(stack.hash_of_frames());
        }
        if self.keeps_all || op.is_profiled {
            self.remembered((*anchor, op.hash), captured, op.is_asked)
        } else {
            OpStack { is_new: captured.is_some(), stack: captured }
        }
    }

    /// Returns the stack that recorded the same before, unless the op's own is asked for. Else it is remembered from now on.
    fn remembered(&self, key: (Anchor, u64), captured: Option<Stack>, is_asked: bool) -> OpStack {
        let mut known = self.known.lock();
        let is_full = known.len() >= MOST_STACKS;
        match known.get(&key) {
            Some(stack) if !is_asked => OpStack { stack: Some(stack.clone()), is_new: false },
            None if is_full && !is_asked => OpStack::default(),
            _ => {
                let stack = captured.unwrap_or_else(Stack::capture);
                if !is_full {
                    known.entry(key).or_insert_with(|| stack.clone());
                }
                OpStack { stack: Some(stack), is_new: true }
            }
        }
    }
}

impl Anchor {
    fn then(self, stack: u64) -> Self {
        let mut hasher = FxHasher::default();
        (self.0, stack).hash(&mut hasher);
        Self(hasher.finish())
    }
}

/// The stacks of a program's ops, as far as they have one: with the range of each op's recorded nodes, ascending.
#[derive(Clone, Default)]
pub(crate) struct OpLines(Arc<[(Range<usize>, Stack)]>);

impl OpLines {
    /// Returns the stacks of ops in the order of their recording, each given with the end of its nodes.
    pub(crate) fn of_ops<'a>(ops: impl Iterator<Item = (usize, Option<&'a Stack>)>) -> Self {
        let (mut lines, mut start) = (Vec::new(), 0);
        for (end, stack) in ops {
            lines.extend(stack.map(|stack| (start..end, stack.clone())));
            start = end;
        }
        Self(lines.into())
    }

    /// Returns the stack of the op that recorded a node. A parameter's is that of the first op that reads it.
    pub(crate) fn of(&self, node: usize) -> Option<&Stack> {
        let place = self.0.partition_point(|(nodes, _)| nodes.end <= node);
        self.0.get(place).filter(|(nodes, _)| nodes.contains(&node)).map(|(_, stack)| stack)
    }

    /// Returns the stack of the first op that has one.
    pub(crate) fn first(&self) -> Option<&Stack> {
        self.0.first().map(|(_, stack)| stack)
    }

    /// Returns the first stack, and the stacks that recorded these ascending nodes.
    pub(crate) fn first_and_of(&self, nodes: &[NodeId]) -> Self {
        let mut kept = Vec::new();
        for (range, stack) in &*self.0 {
            let after = nodes.partition_point(|node| node.index() < range.start);
            if kept.is_empty() || nodes.get(after).is_some_and(|node| node.index() < range.end) {
                kept.push((range.clone(), stack.clone()));
            }
        }
        Self(kept.into())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Resolver, StepPart};
    use super::*;

    fn op(number: usize, hash: u64) -> RecordedOp {
        RecordedOp { number, hash, is_asked: false, is_profiled: false }
    }

    #[test]
    fn a_stack_is_captured_once_for_each_beginning_of_a_recording() {
        let lines = RecordedLines::new(true);
        let step = || {
            let mut anchor = Anchor::default();
            let ops = [7, 8, 9, 10].into_iter().enumerate();
            ops.map(|(i, hash)| lines.recorded(&mut anchor, &op(i, hash)).stack.unwrap()).collect::<Vec<_>>()
        };
        let both: Vec<_> = (0..2).map(|_| step()).collect();
        let ids = |stacks: &[Stack]| stacks.iter().map(Stack::id).collect::<Vec<_>>();
        assert_eq!(ids(&both[0]), ids(&both[1]));
        let elsewhere = step();
        let known = ids(&both[0]);
        assert!(elsewhere.iter().all(|stack| !known.contains(&stack.id())), "another line of source records the same");
        let place = Resolver::default().place(&elsewhere[0]);
        assert_eq!((place.part, place.gradient_of), (StepPart::Forward, None));
        assert!(!place.line.is_empty());
    }

    #[test]
    fn without_a_reason_no_stack_is_captured() {
        let (lines, mut anchor) = (RecordedLines::new(false), Anchor::default());
        let recorded = lines.recorded(&mut anchor, &op(0, 7));
        assert!(recorded.stack.is_none() && !recorded.is_new && anchor == Anchor::default());
        let asked = RecordedOp { is_asked: true, ..op(0, 7) };
        let (first, second) = (lines.recorded(&mut anchor, &asked), lines.recorded(&mut anchor, &asked));
        assert!(first.is_new && second.is_new && first.stack.unwrap().id() != second.stack.unwrap().id());
        let profiled = RecordedOp { is_profiled: true, ..op(1, 7) };
        let (first, second) = (lines.recorded(&mut anchor, &profiled), lines.recorded(&mut anchor, &profiled));
        assert!(first.is_new && !second.is_new && first.stack.unwrap().id() == second.stack.unwrap().id());
    }

    #[test]
    fn a_node_belongs_to_the_op_that_ends_after_it() {
        let [first, second] = [Stack::capture(), Stack::capture()];
        let ops = [(2, Some(&first)), (2, Some(&first)), (3, None), (5, Some(&second)), (6, Some(&second))];
        let lines = OpLines::of_ops(ops.into_iter());
        let ids = |lines: &OpLines| [0, 1, 2, 3, 4, 5, 6].map(|node| lines.of(node).map(Stack::id));
        let [one, two] = [Some(first.id()), Some(second.id())];
        assert_eq!(ids(&lines), [one, one, None, two, two, two, None]);
        assert_eq!(ids(&lines.first_and_of(&[NodeId(4)])), [one, one, None, two, two, None, None]);
        assert_eq!(lines.first().map(Stack::id), one);
    }
}
