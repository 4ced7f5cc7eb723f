//! Where the rows of a value are, and how ops move them.
//!
//! Owns: which dims of a value are divided into blocks, before and after an op. May not know: which ops belong to a region.

use crate::query_blocks::is_elementwise;
use burn_tpu_graph::op::AxisRule;
use burn_tpu_graph::{Dims, Graph, NodeId, Op};
use smallvec::SmallVec;

/// A dim that is divided into equal parts. Block `i` has part `(i / inner) % parts`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Divided {
    pub(super) dim: usize,
    pub(super) parts: usize,
    pub(super) inner: usize,
}

/// The divided dims of a value, outermost first. Without any, each block reads the whole value.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Split(pub(super) SmallVec<[Divided; 2]>);

impl Split {
    /// Divides the leading dims, so that each block is a run of consecutive elements; `None` if the sizes do not allow it.
    pub(super) fn leading(dims: &[usize], blocks: usize) -> Option<Self> {
        let (mut inner, mut split) = (blocks, Self::default());
        for (dim, &size) in dims.iter().enumerate().filter(|(_, size)| **size != 1) {
            if inner == 1 {
                break;
            }
            let parts = if inner.is_multiple_of(size) { size } else { inner };
            if !size.is_multiple_of(parts) {
                return None;
            }
            inner /= parts;
            split.0.push(Divided { dim, parts, inner });
        }
        (inner == 1).then_some(split)
    }

    /// Returns the dims of a block of a value with these dims.
    pub(super) fn block(&self, dims: &[usize]) -> Dims {
        let mut block = Dims::from_slice(dims);
        self.0.iter().for_each(|divided| block[divided.dim] /= divided.parts);
        block
    }

    fn blocks(&self) -> usize {
        self.0.iter().map(|divided| divided.parts).product()
    }

    /// Returns the divided dims that have a place, at that place.
    fn at(&self, place: impl Fn(usize) -> Option<usize>) -> Self {
        let moved = self.0.iter().filter_map(|&divided| Some(Divided { dim: place(divided.dim)?, ..divided }));
        Self(moved.collect())
    }

    /// Returns the divided dims at their places; `None` if one has no place.
    pub(super) fn all_at(&self, place: impl Fn(usize) -> Option<usize>) -> Option<Self> {
        let moved = self.at(place);
        (moved.0.len() == self.0.len()).then_some(moved)
    }
}

/// Returns how the result of a node is divided if an operand is divided like this.
pub(super) fn result_split(graph: &Graph, id: NodeId, operand: usize, split: &Split) -> Option<Split> {
    let node = graph.node(id);
    if let Op::Reshape { dims } = &node.op {
        return reshaped(&graph.ty(node.operands[0]).dims, dims, split);
    }
    let places = places(graph, id, operand)?;
    split.all_at(|dim| places[dim])
}

/// Returns how an operand of a node has to be divided for such blocks of the result.
pub(super) fn operand_split(graph: &Graph, id: NodeId, operand: usize, split: &Split) -> Option<Split> {
    let node = graph.node(id);
    if let Op::Reshape { dims } = &node.op {
        return reshaped(dims, &graph.ty(node.operands[0]).dims, split);
    }
    let places = places(graph, id, operand)?;
    Some(split.at(|dim| places.iter().position(|&place| place == Some(dim))))
}

/// Returns the split after a reshape; `None` unless each block is a run of consecutive elements before and after it.
fn reshaped(old: &[usize], new: &[usize], split: &Split) -> Option<Split> {
    let blocks = split.blocks();
    Split::leading(new, blocks).filter(|_| Split::leading(old, blocks).as_ref() == Some(split))
}

/// Returns, for each dim of an operand, the dim of the result along which an element needs elements at its own index alone;
/// `None` for ops that are not understood.
fn places(graph: &Graph, id: NodeId, operand: usize) -> Option<SmallVec<[Option<usize>; 4]>> {
    let node = graph.node(id);
    let is_understood = match &node.op {
        Op::GetResult { .. } => matches!(graph.node(node.operands[0]).op, Op::ArgReduce { .. }),
        Op::BroadcastInDim { .. }
        | Op::Transpose { .. }
        | Op::Reduce { .. }
        | Op::ArgReduce { .. }
        | Op::DotGeneral(_) => true,
        Op::Gather(attrs) => attrs.offset_dims.is_empty(),
        Op::Scatter(attrs) => attrs.update_window_dims.is_empty(),
        op => is_elementwise(op),
    };
    is_understood.then(|| graph.axis_rules(node, operand).iter().map(AxisRule::kept).collect())
}
