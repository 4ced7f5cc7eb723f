//! Which ops and lines made the results of programs.

use crate::engine::SharedBuffer;
use crate::program::Recorded;
use crate::recompile::DivergenceTracker;

/// Notes the ops and, as far as the tracker knows them, the lines that made the results of a recording. The tracker of the
/// recording's next run captures the others.
pub(crate) fn note_lines(recorded: &Recorded, tracker: &DivergenceTracker, results: &[SharedBuffer]) {
    if !recorded.wanted_lines.is_wanted() {
        return;
    }
    let mut all = true;
    for (&node, result) in recorded.outputs.iter().zip(results) {
        let Some(site) = result.site() else { continue };
        site.set_op(recorded.graph.label(node));
        all &= site.set_caller(|| tracker.caller(node.index()));
    }
    recorded.wanted_lines.tried(all);
}
