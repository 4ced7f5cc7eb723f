//! The ops and lines that make the results of programs.

use crate::engine::{HostValue, SharedBuffer};
use crate::lines::OpLines;
use crate::program::Recorded;

/// Notes the ops and, as far as they have one, the stacks that made the results of a recording. The others are captured when
/// it is recorded again.
pub(crate) fn note_lines(recorded: &Recorded, lines: &OpLines, results: &[SharedBuffer]) {
    if !recorded.wanted_lines.is_wanted() {
        return;
    }
    let mut all = true;
    for (&node, result) in recorded.outputs.iter().zip(results) {
        let larger = HostValue::of(result).and_then(HostValue::only_larger);
        let Some(site) = larger.as_ref().map_or(result, |(_, buffer)| buffer).site() else { continue };
        site.set_op(recorded.graph.label(node));
        all &= site.set_stack(lines.of(node.index()));
    }
    recorded.wanted_lines.tried(all);
}
