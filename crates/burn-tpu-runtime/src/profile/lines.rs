//! The lines of a profile's rows.

use crate::lines::{Resolver, Stack};
use burn_tpu_graph::Label;
use rustc_hash::FxHashMap;

/// The stacks that recorded the ops of a cut, by op.
#[derive(Default)]
pub(crate) struct CutLines(FxHashMap<Label, Vec<Stack>>);

impl FromIterator<(Label, Stack)> for CutLines {
    fn from_iter<I: IntoIterator<Item = (Label, Stack)>>(ops: I) -> Self {
        let mut lines = Self::default();
        for (op, stack) in ops {
            lines.0.entry(op).or_default().push(stack);
        }
        lines
    }
}

/// The number of lines that a row shows.
const MOST_LINES: usize = 8;

/// Where the ops of a profile that has ended were recorded. Each stack is resolved when it is first asked for.
#[derive(Default)]
pub(super) struct Places {
    /// By the id of the stack, which is kept here so that no other one has it.
    known: FxHashMap<usize, (Stack, Place)>,
    resolver: Resolver,
}

/// Where an op was recorded.
#[derive(Clone)]
pub(super) struct Place {
    /// As `src/model.rs:41 in app::Block::forward`.
    pub(super) line: String,
    /// As `Gpt/Block/Linear`; empty if no method `forward` is in the stack.
    pub(super) module: String,
}

impl Places {
    pub(super) fn place(&mut self, stack: &Stack) -> Place {
        let Self { known, resolver } = self;
        let (_, place) = known.entry(stack.id()).or_insert_with(|| {
            let place = Place { line: resolver.line(stack), module: resolver.modules(stack) };
            (stack.clone(), place)
        });
        place.clone()
    }

    /// Returns the lines that recorded the ops of a row, the line with the most nodes first. `ops` has each op of the row
    /// with the number of its nodes. If several lines recorded an op in this cut, each counts for an equal share of its
    /// nodes.
    pub(super) fn lines_of(&mut self, lines: &CutLines, ops: &[(Label, usize)]) -> String {
        let mut shares: FxHashMap<String, f64> = FxHashMap::default();
        for (op, nodes) in ops {
            let Some(stacks) = lines.0.get(op) else { continue };
            for stack in stacks {
                *shares.entry(self.place(stack).line).or_default() += *nodes as f64 / stacks.len() as f64;
            }
        }
        let mut lines: Vec<(String, f64)> = shares.into_iter().collect();
        lines.sort_unstable_by(|(a, n), (b, m)| m.total_cmp(n).then_with(|| a.cmp(b)));
        let more = lines.len().saturating_sub(MOST_LINES);
        let mut shown: Vec<String> = lines.into_iter().take(MOST_LINES).map(|(line, _)| line).collect();
        if more > 0 {
            shown.push(format!("{more} more lines"));
        }
        shown.join("; ")
    }
}
