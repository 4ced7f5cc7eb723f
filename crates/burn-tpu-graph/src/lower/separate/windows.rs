//! Windows of windows: XLA replaces a dynamic slice of a dynamic slice with one whose start is the sum of both. Only the sum
//! is clamped then: where either start is out of range, the result is beside the inner slice. A gather or a scatter at one
//! index reads its operand as such a slice.

use super::{is_fused, is_update, nodes};
use crate::{Graph, Node, NodeId, Op};

/// Returns the operands of windows that are windows themselves, or computed from one element by element: XLA leaves out
/// what does not change it.
pub(super) fn of_windows(graph: &Graph) -> impl Iterator<Item = (NodeId, usize)> {
    let mut read: Vec<bool> = Vec::with_capacity(graph.nodes().len());
    nodes(graph).filter_map(move |(id, node)| {
        let of_window = |id: &NodeId| read[id.index()];
        let (window, update) = (is_window(graph, node), is_update(&node.op));
        let joined = window && node.operands.first().is_some_and(of_window);
        let passes = (update || is_fused(&node.op)) && node.operands.iter().any(of_window);
        read.push(passes || (window && !update));
        joined.then_some((id, 0))
    })
}

/// Returns whether the op reads its operand at one run-time position.
pub(super) fn is_window(graph: &Graph, node: &Node) -> bool {
    let index_vector_dim = match &node.op {
        Op::DynamicSlice { .. } => return true,
        Op::Gather(attrs) => attrs.index_vector_dim,
        Op::Scatter(attrs) => attrs.index_vector_dim,
        _ => return false,
    };
    let components = |indices: &NodeId| graph.ty(*indices).dims.get(index_vector_dim).copied().unwrap_or(1);
    node.operands.get(1).is_some_and(|indices| graph.ty(*indices).elements() == components(indices))
}

#[cfg(test)]
mod tests {
    use super::super::tests::of_places;
    use crate::op::{BinaryOp, Combine, GatherAttrs, ScatterAttrs, ScatterMode};
    use crate::{Builder, DType, Graph, NodeId, Result};
    use smallvec::smallvec;

    /// Reads a row `[1, 4]` for each of the places.
    fn rows(g: &mut Graph, x: NodeId, places: NodeId) -> Result<NodeId> {
        let attrs = GatherAttrs {
            offset_dims: smallvec![1],
            collapsed_slice_dims: smallvec![0],
            operand_batching_dims: smallvec![],
            start_indices_batching_dims: smallvec![],
            start_index_map: smallvec![0],
            index_vector_dim: 1,
            slice_sizes: smallvec![1, 4],
        };
        g.gather(x, places, attrs)
    }

    /// Adds a row to that at each of the places.
    fn add_rows(g: &mut Graph, x: NodeId, places: NodeId, row: NodeId) -> Result<NodeId> {
        let attrs = ScatterAttrs {
            update_window_dims: smallvec![1],
            inserted_window_dims: smallvec![0],
            input_batching_dims: smallvec![],
            scatter_indices_batching_dims: smallvec![],
            scatter_dims_to_operand_dims: smallvec![0],
            index_vector_dim: 1,
            mode: ScatterMode::Combine(Combine::Sum),
        };
        g.scatter(x, places, row, attrs)
    }

    /// Reads a window of half of the rows, from the first of the places.
    fn half(g: &mut Graph, x: NodeId, places: NodeId) -> Result<NodeId> {
        let first = g.slice_dim(places, 0, 0, 1)?;
        let (first, zero) = (g.reshape(first, &[])?, g.scalar(DType::I32, 0)?);
        let [height, width] = [g.dims(x)[0] / 2, g.dims(x)[1]];
        g.dynamic_slice(x, &[first, zero], &[height, width])
    }

    #[test]
    fn a_window_of_a_window_is_after_a_barrier() {
        let barriers = |text: String| text.matches("stablehlo.optimization_barrier").count();
        let texts = [
            of_places(1, |g, x, places| half(g, x, places).and_then(|x| half(g, x, places))),
            of_places(1, |g, x, places| half(g, x, places).and_then(|x| rows(g, x, places))),
            of_places(1, |g, x, places| rows(g, x, places).and_then(|x| rows(g, x, places))),
            of_places(1, |g, x, places| {
                let (x, row) = (half(g, x, places)?, rows(g, x, places)?);
                add_rows(g, x, places, row)
            }),
            of_places(1, |g, x, places| {
                let x = half(g, x, places)?;
                let x = g.transpose(x, &[1, 0]).and_then(|x| g.binary(BinaryOp::Add, x, x))?;
                half(g, x, places)
            }),
        ];
        assert_eq!(texts.map(barriers), [1; 5]);
    }

    #[test]
    fn other_windows_are_not() {
        let texts = [
            of_places(1, half),
            of_places(2, |g, x, places| rows(g, x, places).and_then(|x| half(g, x, places))),
            of_places(2, |g, x, places| half(g, x, places).and_then(|x| rows(g, x, places))),
            of_places(1, |g, x, places| {
                let x = half(g, x, places)?;
                let x = g.reduce(Combine::Sum, x, &[1]).and_then(|x| g.broadcast_in_dim(x, &[3, 4], &[0]))?;
                half(g, x, places)
            }),
        ];
        assert!(texts.iter().all(|text| !text.contains("optimization_barrier")), "{texts:?}");
    }
}
