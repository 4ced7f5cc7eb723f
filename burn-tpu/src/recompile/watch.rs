//! Watching a trace for the place where it leaves the programs that it made before.
//!
//! A line of source costs microseconds to find, an op takes a quarter of one to record. So the running hash is compared with
//! those of the latest programs at the same length; when the last of them is left, the stack is noted, unresolved, once per
//! trace. It becomes a line only if a compile follows.

use super::location;
use crate::program::Identity;
use backtrace::Backtrace;
use burn_tpu_graph::Graph;
use std::ops::Range;
use std::sync::Arc;

/// How many programs are compared: a step, a validation, and a few more.
const MOST: usize = 8;

/// What a trace compares itself with.
#[derive(Default)]
pub(crate) struct Watch {
    /// The latest programs of the trace, latest first.
    recent: Vec<Arc<Identity>>,
    /// Bit i: up to now the trace is `recent[i]`.
    following: u8,
    diverged: Option<Witness>,
    moved: Option<Witness>,
}

/// The stack that recorded some nodes.
struct Witness {
    nodes: Range<usize>,
    stack: Backtrace,
}

impl Witness {
    fn new(nodes: Range<usize>) -> Self {
        Self { nodes, stack: Backtrace::new_unresolved() }
    }
}

impl Watch {
    /// A trace begins.
    pub(crate) fn restart(&mut self) {
        self.following = (1u16 << self.recent.len()).wrapping_sub(1) as u8;
        self.diverged = None;
        self.moved = None;
    }

    /// The trace was recorded again from the middle on, without its caller.
    pub(crate) fn resume(&mut self, graph: &Graph) {
        self.restart();
        self.follow(graph);
    }

    /// An op was recorded, whose nodes begin at `start`.
    pub(crate) fn recorded(&mut self, start: usize, graph: &Graph) {
        if self.following != 0 && !self.follow(graph) {
            self.diverged = Some(Witness::new(start..graph.len()));
        }
    }

    /// Whether the trace still is one of the recent programs.
    fn follow(&mut self, graph: &Graph) -> bool {
        let (len, mut left) = (graph.len(), self.following);
        while left != 0 && len > 0 {
            let i = left.trailing_zeros();
            left &= left - 1;
            if self.recent[i as usize].hashes.get(len - 1) != Some(&graph.hash_at(len)) {
                self.following &= !(1 << i);
            }
        }
        self.following != 0
    }

    /// An offset is about to become node `node`.
    pub(crate) fn offset(&mut self, node: usize, index: u32, bits: u64) {
        if self.following == 0 || self.moved.is_some() {
            return;
        }
        let latest = &self.recent[self.following.trailing_zeros() as usize];
        if latest.assumed.offset(index).is_some_and(|offset| offset != bits) {
            self.moved = Some(Witness::new(node..node + 1));
        }
    }

    /// The trace was run as this program.
    pub(crate) fn ran(&mut self, identity: &Arc<Identity>) {
        self.recent.retain(|recent| !Arc::ptr_eq(recent, identity));
        self.recent.insert(0, Arc::clone(identity));
        self.recent.truncate(MOST);
        self.following = 0;
    }

    /// The line that recorded a node, if it is where the trace left its programs. Without a node, or where its
    /// line was not noted, the line that has the program run now.
    pub(crate) fn location(&self, node: Option<usize>) -> Option<String> {
        let witnesses = self.diverged.iter().chain(&self.moved);
        let witness = witnesses.into_iter().find(|witness| node.is_some_and(|node| witness.nodes.contains(&node)));
        let stack = witness.map_or_else(Backtrace::new_unresolved, |witness| witness.stack.clone());
        location::of(stack)
    }
}
