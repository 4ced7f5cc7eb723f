//! Watching a trace for the place where it leaves the programs that it made before.
//!
//! A line of source costs microseconds to find, an op takes a quarter of one to record. So the trace's graph follows the
//! arenas of the latest programs; when the last of them is left, the stack is noted, unresolved, once per trace. It becomes
//! a line only if a compile follows.

use super::location;
use crate::program::Identity;
use backtrace::Backtrace;
use burn_tpu_graph::Graph;
use std::ops::Range;
use std::sync::Arc;

/// How many programs are followed: a step, a validation, and a few more.
const MOST: usize = 8;

/// What a trace follows.
#[derive(Default)]
pub(crate) struct Watch {
    /// The latest programs of the trace, latest first.
    recent: Vec<Arc<Identity>>,
    /// Whether the trace was one of them when it was last looked at.
    following: bool,
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
    /// A trace begins with this empty graph.
    pub(crate) fn restart(&mut self, graph: &mut Graph) {
        graph.follow(self.recent.iter().map(|identity| &identity.arena));
        self.following = !self.recent.is_empty();
        self.diverged = None;
        self.moved = None;
    }

    /// Nodes were added without their caller: nobody can say whose they are.
    pub(crate) fn rerecorded(&mut self, graph: &Graph) {
        self.following = graph.following().is_some();
    }

    /// An op was recorded, whose nodes begin at `start`.
    pub(crate) fn recorded(&mut self, start: usize, graph: &Graph) {
        if self.following && graph.following().is_none() {
            self.following = false;
            self.diverged = Some(Witness::new(start..graph.len()));
        }
    }

    /// An offset is about to become the next node.
    pub(crate) fn offset(&mut self, graph: &Graph, index: u32, bits: u64) {
        let Some(arena) = graph.following().filter(|_| self.moved.is_none()) else { return };
        let followed = self.recent.iter().find(|identity| Arc::ptr_eq(&identity.arena, arena));
        if followed.and_then(|identity| identity.assumed.offset(index)).is_some_and(|offset| offset != bits) {
            self.moved = Some(Witness::new(graph.len()..graph.len() + 1));
        }
    }

    /// The trace was run as this program.
    pub(crate) fn ran(&mut self, identity: &Arc<Identity>) {
        self.recent.retain(|recent| !Arc::ptr_eq(recent, identity));
        self.recent.insert(0, Arc::clone(identity));
        self.recent.truncate(MOST);
        self.following = false;
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
