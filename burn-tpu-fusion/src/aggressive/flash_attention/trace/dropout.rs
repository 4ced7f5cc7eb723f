//! What is dropped: which values are the draw of a dropout, and how they are drawn.

use super::super::matrix::is_equal;
use super::{Dropout, Masking, Scores, Trace};
use burn_tpu_graph::op::Direction;
use burn_tpu_graph::{DType, NodeId, Op};
use burn_tpu_kernels::kernels::attention::Dropped;

impl Trace<'_> {
    /// Returns whether a value drops scores that nothing masks yet, and records the draw.
    pub(super) fn drops_scores(&mut self, scores: &Scores, id: NodeId, roles: &[Option<usize>]) -> bool {
        !scores.has_dropout && scores.masking == Masking::default() && self.drops(id, roles, Dropped::Scores)
    }

    /// Returns whether a value is 1 for the numbers that a draw keeps and 0 for the others, and records the draw.
    /// There is one draw, of a word for each number, in their order.
    pub(super) fn drops(&mut self, mut id: NodeId, roles: &[Option<usize>], of: Dropped) -> bool {
        while let Op::Convert { .. } | Op::OptimizationBarrier = self.graph.node(id).op {
            id = self.graph.node(id).operands[0];
        }
        let is_in_order = roles.iter().copied().eq((0..self.rank + 2).map(Some)) && self.rank <= 2;
        let found = self.draw(id, of).filter(|_| is_in_order);
        let Some(found) = found else { return false };
        match &self.dropout {
            Some(known) => known.most == found.most && is_equal(self.graph, known.state, found.state, 12),
            None => {
                self.dropout = Some(found);
                true
            }
        }
    }

    /// Returns the draw of words that a comparison bounds by a number.
    fn draw(&self, id: NodeId, of: Dropped) -> Option<Dropout> {
        let node = self.graph.node(id);
        let (Op::Compare(Direction::Le), &[words, most]) = (&node.op, &node.operands[..]) else { return None };
        let words = self.graph.node(words);
        let (Op::GetResult { index: 1 }, &[draw]) = (&words.op, &words.operands[..]) else { return None };
        let draw = self.graph.node(draw);
        let Op::Constant(most) = &self.graph.node(self.source(most)).op else { return None };
        let is_of_weights = matches!(draw.op, Op::RngBitGenerator { .. })
            && words.ty.dtype == DType::U32
            && words.ty.dims[..] == self.dims[..];
        let most = u32::try_from(most.splat()?.to_i64()).ok()?;
        is_of_weights.then(|| Dropout { state: draw.operands[0], most, of })
    }
}
