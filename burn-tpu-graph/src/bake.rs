//! Baking: scalars that decide how a program is compiled become constants while they do not change.
//!
//! These are the offsets of slices (a static slice is a view or part of a fusion, a dynamic one often a copy), and the
//! numbers of large masks: where one begins, and what it fills. Rewrites leave out what such a mask hides.

use crate::op::SliceAttrs;
use crate::{Builder, Dims, Graph, Literal, LiteralData, Node, NodeId, Op, Program, Result, TensorType};

/// Masks of fewer elements hide too little to be worth a constant.
const LARGE_MASK: usize = 512 * 512;

impl Program {
    /// Returns the slots and offsets to bake, by `index`, in node order: all offsets, the slots in a large comparison of
    /// places, and, if there is such a comparison, those that a large selection fills in.
    pub fn bakeable(&self) -> Vec<u32> {
        let graph = self.graph();
        let origins = origins(graph);
        let nodes = || (0..graph.len() as u32).map(NodeId).map(|id| (id, graph.node(id)));
        let large = || nodes().filter(|(_, node)| node.ty.elements() >= LARGE_MASK);
        let is_mask = |(id, node): &(NodeId, &Node)| {
            matches!(node.op, Op::Compare(_)) && origins[id.index()] == Origin { places: true, data: false }
        };
        let masks: Vec<_> = large().filter(is_mask).map(|(id, _)| id).collect();
        let selections = large().filter(|(_, node)| node.op == Op::Select && !masks.is_empty());
        let filled: Vec<_> = selections.flat_map(|(_, node)| [node.operands[1], node.operands[2]]).collect();
        let mut is_baked = vec![false; graph.len()];
        nodes().for_each(|(id, node)| is_baked[id.index()] = matches!(node.op, Op::Offset { .. }));
        masks.into_iter().chain(filled).for_each(|id| mark_scalars(graph, &origins, id, &mut is_baked));
        let baked = self.slots().filter(|(node, ..)| is_baked[node.index()]);
        baked.map(|(_, index, _)| index).collect()
    }

    /// The program with constants for the slots and offsets that `value` gives bits for (by `index`); the others stay
    /// run-time scalars.
    ///
    /// # Errors
    /// Never, for a program that the verifier accepts.
    pub fn bake(&self, value: impl Fn(u32) -> Option<u64>) -> Result<Self> {
        self.rewrite(|graph, _, node, operands| match &node.op {
            Op::Slot { index, dtype } | Op::Offset { index, dtype } => match value(*index) {
                Some(bits) => {
                    graph.constant(Literal { ty: TensorType::scalar(*dtype), data: LiteralData::Splat(bits) })
                }
                None => graph.add(node.op.clone(), operands),
            },
            Op::DynamicSlice { sizes } => dynamic_slice(graph, node, operands, sizes),
            op => graph.add(op.clone(), operands),
        })
    }
}

/// What a value is computed from, besides constants and scalars.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Origin {
    /// The places of elements.
    places: bool,
    /// Anything else: parameters, random draws.
    data: bool,
}

/// Returns the origin of each value.
fn origins(graph: &Graph) -> Vec<Origin> {
    let mut origins: Vec<Origin> = Vec::with_capacity(graph.len());
    for node in graph.nodes() {
        let start = Origin {
            places: matches!(node.op, Op::Iota { .. }),
            data: matches!(
                node.op,
                Op::Parameter { .. } | Op::RngBitGenerator { .. } | Op::For { .. } | Op::CustomCall(_)
            ),
        };
        let operands = node.operands.iter().map(|id| origins[id.index()]);
        origins.push(operands.fold(start, |a, b| Origin { places: a.places || b.places, data: a.data || b.data }));
    }
    origins
}

/// Marks the slots that a value without data is computed from.
fn mark_scalars(graph: &Graph, origins: &[Origin], id: NodeId, is_marked: &mut [bool]) {
    let mut left = vec![id];
    let mut is_seen = std::collections::HashSet::new();
    while let Some(id) = left.pop().filter(|id| !origins[id.index()].data) {
        if is_seen.insert(id) {
            is_marked[id.index()] |= matches!(graph.node(id).op, Op::Slot { .. });
            left.extend(&graph.node(id).operands);
        }
    }
}

/// A dynamic slice, static if all of its starts are constants.
fn dynamic_slice(graph: &mut Graph, node: &Node, operands: &[NodeId], sizes: &[usize]) -> Result<NodeId> {
    let starts: Option<Vec<i64>> = operands[1..].iter().map(|&start| constant(graph, start)).collect();
    let Some(starts) = starts else { return graph.add(node.op.clone(), operands) };
    // As at run time: a start clamps so that the slice fits.
    let clamp = |(d, start): (usize, i64)| start.clamp(0, (graph.ty(operands[0]).dims[d] - sizes[d]) as i64) as usize;
    let start: Dims = starts.into_iter().enumerate().map(clamp).collect();
    let limit: Dims = start.iter().zip(sizes).map(|(start, size)| start + size).collect();
    let attrs = SliceAttrs { start, limit, stride: Dims::from_elem(1, sizes.len()) };
    graph.add(Op::Slice(Box::new(attrs)), &operands[..1])
}

/// The value of an integer scalar constant.
fn constant(graph: &Graph, id: NodeId) -> Option<i64> {
    let Op::Constant(literal) = &graph.node(id).op else { return None };
    literal.splat().map(crate::Number::to_i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, verify};

    /// A slice `[2, 3]` of `f32[4, 5]` at two offsets.
    fn sliced() -> Program {
        let mut graph = Graph::new();
        let x = graph.add(Op::Parameter { index: 0, ty: TensorType::new(DType::F32, [4, 5]) }, &[]).unwrap();
        let starts = [0, 1].map(|index| graph.add(Op::Offset { index, dtype: DType::I32 }, &[]).unwrap());
        let taken = graph.dynamic_slice(x, &starts, &[2, 3]).unwrap();
        Program::extract(&graph, &[taken]).unwrap()
    }

    #[test]
    fn offsets_that_do_not_change_make_a_static_slice() {
        let baked = sliced().bake(|index| Some([1, 2][index as usize])).unwrap();
        verify(&baked).unwrap();
        assert_eq!(baked.bakeable(), [0; 0]);
        assert!(baked.to_string().contains("slice %0 {start = [1, 2], limit = [3, 5], stride = [1, 1]}"), "{baked}");
    }

    #[test]
    fn starts_clamp_as_they_do_at_run_time() {
        let baked = sliced().bake(|index| Some([u64::from(u32::MAX), 9][index as usize])).unwrap();
        assert!(baked.to_string().contains("start = [0, 2], limit = [2, 5]"), "{baked}");
    }

    #[test]
    fn an_offset_that_changes_stays_an_input() {
        let baked = sliced().bake(|index| (index == 0).then_some(1)).unwrap();
        verify(&baked).unwrap();
        assert_eq!(baked.bakeable(), [1]);
        assert_eq!(baked.slots().map(|(_, index, _)| index).collect::<Vec<_>>(), [1]);
        assert!(baked.to_string().contains("dynamic_slice"), "{baked}");
    }
    /// A mask of places `[size, size]` that fills a slot where the key is less than the query by another slot or more.
    fn masked(size: usize) -> Program {
        let mut graph = Graph::new();
        let dims = [size, size];
        let scores = graph.add(Op::Parameter { index: 0, ty: TensorType::new(DType::F32, dims) }, &[]).unwrap();
        let slots = [DType::I32, DType::F32, DType::F32].into_iter().zip(0..);
        let slots: Vec<_> = slots.map(|(dtype, index)| graph.add(Op::Slot { index, dtype }, &[]).unwrap()).collect();
        let slots: Vec<_> = slots.into_iter().map(|slot| graph.broadcast_to(slot, &dims).unwrap()).collect();
        let [query, key] = [0, 1].map(|dim| graph.iota(DType::I32, &dims, dim).unwrap());
        let query = graph.binary(crate::op::BinaryOp::Add, query, slots[0]).unwrap();
        let mask = graph.compare(crate::op::Direction::Gt, key, query).unwrap();
        let scaled = graph.binary(crate::op::BinaryOp::Mul, scores, slots[2]).unwrap();
        let filled = graph.select(mask, slots[1], scaled).unwrap();
        Program::extract(&graph, &[filled]).unwrap()
    }

    #[test]
    fn the_numbers_of_a_large_mask_are_baked_and_those_of_data_are_not() {
        assert_eq!(masked(512).bakeable(), [0, 1]);
        assert_eq!(masked(64).bakeable(), [0; 0]);
        let baked = masked(512).bake(|index| (index < 2).then_some(0)).unwrap();
        verify(&baked).unwrap();
        assert_eq!(baked.slots().map(|(_, index, _)| index).collect::<Vec<_>>(), [2]);
    }
}
