//! Which values are small because they were made of reduced ones: their f32 form costs nothing wherever it is written.
//!
//! No size is compared: a value is reduced because of the ops that made it, so a formula rounds in the same places at all
//! sizes.

use burn_tpu_graph::op::OpKind;
use burn_tpu_graph::{Graph, Node, NodeId, Op};

/// How large a value is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Size {
    /// One number, perhaps for each element.
    Uniform,
    /// A reduction, or element-wise ops on reductions and single numbers.
    Reduced,
    /// A reduction that is repeated along further dims.
    Repeated,
    /// Anything else.
    Whole,
}

/// The sizes of the values of a program.
pub(super) struct Reduced(Vec<Size>);

impl Reduced {
    /// Returns the sizes of all values of a graph.
    pub(super) fn of(graph: &Graph) -> Self {
        let mut sizes = Vec::with_capacity(graph.len());
        for node in graph.nodes() {
            let size = size(node, &sizes);
            sizes.push(size);
        }
        Self(sizes)
    }

    /// Returns whether several ops can read the f32 form of a value as cheaply as its 16-bit form.
    pub(super) fn is_free(&self, id: NodeId) -> bool {
        self.0[id.index()] != Size::Whole
    }
}

/// Returns the size of a node's result. `sizes` are those of the nodes before it.
fn size(node: &Node, sizes: &[Size]) -> Size {
    let of_operands = || node.operands.iter().map(|operand| sizes[operand.index()]);
    let is_small = |size: Size| matches!(size, Size::Uniform | Size::Reduced);
    if node.ty.dims.is_empty() {
        return Size::Uniform;
    }
    match (&node.op, node.op.kind()) {
        (Op::Constant(literal), _) if literal.splat().is_some() => Size::Uniform,
        (Op::Reduce { .. }, _) => Size::Reduced,
        (Op::BroadcastInDim { .. }, _) => match sizes[node.operands[0].index()] {
            Size::Reduced => Size::Repeated,
            size => size,
        },
        (Op::Reshape { .. }, _) => sizes[node.operands[0].index()],
        (_, OpKind::Arithmetic | OpKind::Cast) if of_operands().all(is_small) => {
            if of_operands().all(|size| size == Size::Uniform) { Size::Uniform } else { Size::Reduced }
        }
        _ => Size::Whole,
    }
}
