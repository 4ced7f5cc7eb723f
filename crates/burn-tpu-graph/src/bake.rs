//! Baking: scalars that decide how a program is compiled become constants while they do not change.
//!
//! These are the offsets of slices (a static slice is a view or part of a fusion, a dynamic one often a copy), and the
//! numbers of attention: where a large mask begins, what it fills, the cap of scores, and the bounds of a softmax's rows.
//! Rewrites leave out what such a mask hides, and recognise attention by these numbers.
//!
//! What a loop reads in every trip and is computed from constants and places alone, such as a mask, moves into its
//! body: there, rewrites see it.

use crate::op::{BinaryOp, Combine, OpKind, SliceAttrs, Trips, UnaryOp};
use crate::{Builder, Dims, Graph, Literal, LiteralData, Node, NodeId, Op, Program, Result, TensorType};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Masks of fewer elements hide too little to be worth a constant.
const LARGE_MASK: usize = 512 * 512;

/// What is computed by more nodes than this stays outside of loops.
const MOST_MOVED: usize = 64;

impl Program {
    /// Returns the slots and offsets to bake, by `index`, in node order: all offsets, the slots in a large comparison of
    /// places, those that a large selection fills in, the factors before and after a large hyperbolic tangent and in its
    /// slope, and what the maximum or the sum of exponentials of a large array's rows is compared with and replaced by.
    pub fn bakeable(&self) -> Vec<u32> {
        let graph = self.graph();
        let origins = origins(graph);
        let nodes = || (0..graph.len() as u32).map(NodeId).map(|id| (id, graph.node(id)));
        let large = || nodes().filter(|(_, node)| node.ty.elements() >= LARGE_MASK);
        let is_mask = |(id, node): &(NodeId, &Node)| {
            matches!(node.op, Op::Compare(_)) && origins[id.index()] == Origin { places: true, data: false }
        };
        let masks = large().filter(is_mask).map(|(id, _)| id);
        let is_of_rows = |id: NodeId| matches!(graph.node(id).op, Op::Compare(_)) && compares_rows(graph, id);
        let is_filled = |node: &Node| node.ty.elements() >= LARGE_MASK || is_of_rows(node.operands[0]);
        let selections = nodes().filter(|(_, node)| node.op == Op::Select && is_filled(node));
        let filled = selections.flat_map(|(_, node)| [node.operands[1], node.operands[2]]);
        let compared = nodes().filter(|(id, _)| is_of_rows(*id)).flat_map(|(_, node)| node.operands.to_vec());
        let capped = large().flat_map(|(_, node)| around_tanh(graph, node));
        let marked: Vec<_> = masks.chain(filled).chain(compared).chain(capped).collect();
        let mut is_baked = vec![false; graph.len()];
        nodes().for_each(|(id, node)| is_baked[id.index()] = matches!(node.op, Op::Offset { .. }));
        marked.into_iter().for_each(|id| mark_scalars(graph, &origins, id, &mut is_baked));
        let baked = self.slots().filter(|(node, ..)| is_baked[node.index()]);
        let mut baked: Vec<u32> = baked.map(|(_, index, _)| index).collect();
        for index in nodes().filter_map(|(_, node)| with_slots(graph, node)).flat_map(|body| body.bakeable()) {
            if !baked.contains(&index) {
                baked.push(index);
            }
        }
        baked
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
            Op::For { trips, body } => counted_loop(graph, *trips, body, operands),
            op => graph.add(op.clone(), operands),
        })
    }
}

/// Returns the carries that no trip of a loop changes.
fn invariants(body: &Program) -> impl Iterator<Item = u32> {
    let is_unchanged = |(carry, output): (u32, &NodeId)| {
        matches!(body.graph().node(*output).op, Op::Parameter { index, .. } if index == carry).then_some(carry)
    };
    (0..).zip(body.outputs()).filter_map(is_unchanged)
}

/// Returns the body of a loop with slots for the carries that are slots of the graph and that no trip changes; `None`
/// if there is none, or the node is no loop.
fn with_slots(graph: &Graph, node: &Node) -> Option<Program> {
    let Op::For { body, .. } = &node.op else { return None };
    let is_slot = |&carry: &u32| matches!(graph.node(node.operands[carry as usize]).op, Op::Slot { .. });
    let slots: BTreeMap<u32, Op> = invariants(body)
        .filter(is_slot)
        .map(|carry| (carry, graph.node(node.operands[carry as usize]).op.clone()))
        .collect();
    if slots.is_empty() {
        return None;
    }
    let with_slots = body.rewrite(|new, _, node, operands| match &node.op {
        Op::Parameter { index, .. } if let Some(slot) = slots.get(index) => new.add(slot.clone(), &[]),
        op => new.add(op.clone(), operands),
    });
    with_slots.ok()
}

/// A loop, whose body computes what no trip changes and what is computed from constants and places alone.
fn counted_loop(graph: &mut Graph, trips: Trips, body: &Arc<Program>, operands: &[NodeId]) -> Result<NodeId> {
    let mut moved = BTreeMap::new();
    for carry in invariants(body) {
        if let Some(nodes) = data_free(graph, operands[carry as usize]) {
            moved.insert(carry, nodes);
        }
    }
    if moved.is_empty() {
        return graph.add(Op::For { trips, body: Arc::clone(body) }, operands);
    }
    let outer = &*graph;
    let inner = body.rewrite(|new, _, node, operands| match &node.op {
        Op::Parameter { index, .. } if let Some(nodes) = moved.get(index) => copy(outer, nodes, new),
        Op::DynamicSlice { sizes } => dynamic_slice(new, node, operands, sizes),
        Op::For { trips, body } => counted_loop(new, *trips, body, operands),
        op => new.add(op.clone(), operands),
    })?;
    graph.add(Op::For { trips, body: Arc::new(inner) }, operands)
}

/// Returns the nodes that a value is computed from, in their order, if they are few, and are constants, places and
/// element-wise ops of these.
fn data_free(graph: &Graph, id: NodeId) -> Option<Vec<NodeId>> {
    let mut found = std::collections::BTreeSet::new();
    let mut left = vec![id];
    while let Some(id) = left.pop() {
        let node = graph.node(id);
        let is_moved = match &node.op {
            Op::Parameter { .. } | Op::Slot { .. } | Op::Offset { .. } => false,
            Op::Constant(literal) => literal.splat().is_some(),
            op => !matches!(op.kind(), OpKind::Draw | OpKind::Inner),
        };
        if !is_moved || found.len() == MOST_MOVED {
            return None;
        }
        if found.insert(id) {
            left.extend(&node.operands);
        }
    }
    Some(found.into_iter().collect())
}

/// Adds nodes of a graph to another one, and returns the last.
fn copy(graph: &Graph, nodes: &[NodeId], new: &mut Graph) -> Result<NodeId> {
    let mut renamed: BTreeMap<NodeId, NodeId> = BTreeMap::new();
    let mut last = NodeId(0);
    for &id in nodes {
        let node = graph.node(id);
        let operands: Vec<NodeId> = node.operands.iter().map(|operand| renamed[operand]).collect();
        last = new.add(node.op.clone(), &operands)?;
        renamed.insert(id, last);
    }
    Ok(last)
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
            data: matches!(node.op.kind(), OpKind::Draw | OpKind::Inner) || matches!(node.op, Op::Parameter { .. }),
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

/// Returns whether a comparison is of the maximum, or of the sum of exponentials, of a large array's rows.
fn compares_rows(graph: &Graph, comparison: NodeId) -> bool {
    let is_of_rows = |id: NodeId| {
        let id = source(graph, id);
        let node = graph.node(id);
        let of = node.operands.first().copied();
        let is_large = of.is_some_and(|of| graph.ty(of).elements() >= LARGE_MASK);
        let is_exp = |id: NodeId| graph.node(source(graph, id)).op == Op::Unary(UnaryOp::Exp);
        is_large
            && match node.op {
                Op::ArgReduce { .. } | Op::Reduce { combine: Combine::Max, .. } => true,
                Op::Reduce { combine: Combine::Sum, .. } => of.is_some_and(is_exp),
                _ => false,
            }
    };
    graph.node(comparison).operands.iter().any(|&operand| is_of_rows(operand))
}

/// Returns what a value has the numbers of.
fn source(graph: &Graph, mut id: NodeId) -> NodeId {
    while let Op::GetResult { .. } | Op::Reshape { .. } | Op::Convert { .. } = graph.node(id).op {
        id = graph.node(id).operands[0];
    }
    id
}

/// Returns the operands of what is computed before and after a hyperbolic tangent, and of the slope in its gradient.
fn around_tanh(graph: &Graph, node: &Node) -> Vec<NodeId> {
    let is_combined =
        |node: &Node| matches!(node.op, Op::Binary(BinaryOp::Mul | BinaryOp::Div | BinaryOp::Add | BinaryOp::Sub));
    let around = match node.op {
        Op::Unary(UnaryOp::Tanh) => graph.node(node.operands[0]),
        _ if node.operands.iter().any(|&operand| is_of_tanh(graph, operand)) => node,
        _ => return Vec::new(),
    };
    if is_combined(around) { around.operands.to_vec() } else { Vec::new() }
}

/// Returns whether a value is a hyperbolic tangent or its square, perhaps negated.
fn is_of_tanh(graph: &Graph, mut id: NodeId) -> bool {
    loop {
        let node = graph.node(id);
        match (&node.op, &node.operands[..]) {
            (Op::Unary(UnaryOp::Tanh), _) => return true,
            (Op::Convert { .. } | Op::Unary(UnaryOp::Neg), &[of]) => id = of,
            (Op::Binary(BinaryOp::Mul), &[of, other]) if of == other => id = of,
            _ => return false,
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

    /// Scores `[size, size]` that are capped by a slot, and whose rows are clamped as a softmax without NaN is.
    fn clamped(size: usize) -> Program {
        let mut graph = Graph::new();
        let dims = [size, size];
        let scores = graph.add(Op::Parameter { index: 0, ty: TensorType::new(DType::F32, dims) }, &[]).unwrap();
        let slots: Vec<_> =
            (0..5).map(|index| graph.add(Op::Slot { index, dtype: DType::F32 }, &[]).unwrap()).collect();
        let scaled = graph.broadcast_to(slots[0], &dims).unwrap();
        let scaled = graph.binary(BinaryOp::Mul, scores, scaled).unwrap();
        let cap = graph.broadcast_to(slots[1], &dims).unwrap();
        let fraction = graph.binary(BinaryOp::Div, scaled, cap).unwrap();
        let tanh = graph.unary(UnaryOp::Tanh, fraction).unwrap();
        let capped = graph.binary(BinaryOp::Mul, tanh, cap).unwrap();
        let square = graph.binary(BinaryOp::Mul, tanh, tanh).unwrap();
        let negative = graph.unary(UnaryOp::Neg, square).unwrap();
        let one = graph.broadcast_to(slots[4], &dims).unwrap();
        let slope = graph.binary(BinaryOp::Add, negative, one).unwrap();
        let largest = graph.accumulate_keepdim(Combine::Max, capped, 1).unwrap();
        let [least, other] = [2, 3].map(|slot| graph.broadcast_to(slots[slot], &[size, 1]).unwrap());
        let is_low = graph.compare(crate::op::Direction::Lt, largest, least).unwrap();
        let bounded = graph.select(is_low, least, largest).unwrap();
        let is_late = graph.compare(crate::op::Direction::Lt, other, other).unwrap();
        let rows = graph.select(is_late, other, bounded).unwrap();
        Program::extract(&graph, &[capped, rows, slope]).unwrap()
    }

    /// A loop of 3 trips over `[size, size]`, which fills a slot where a mask of places holds, and slices at an offset.
    fn loop_with_mask(size: usize) -> Program {
        let mut graph = Graph::new();
        let dims = [size, size];
        let scores = graph.add(Op::Parameter { index: 0, ty: TensorType::new(DType::F32, dims) }, &[]).unwrap();
        let start = graph.add(Op::Offset { index: 0, dtype: DType::I32 }, &[]).unwrap();
        let [first, fill, scale] = [(1, DType::I32), (2, DType::F32), (3, DType::F32)]
            .map(|(index, dtype)| graph.add(Op::Slot { index, dtype }, &[]).unwrap());
        let [query, key] = [0, 1].map(|dim| graph.iota(DType::I32, &dims, dim).unwrap());
        let first = graph.broadcast_to(first, &dims).unwrap();
        let query = graph.binary(BinaryOp::Add, query, first).unwrap();
        let mask = graph.compare(crate::op::Direction::Gt, key, query).unwrap();
        let carries = [scores, mask, fill, scale, start];
        let results = graph.for_loop(3, carries, |g, _, [x, mask, fill, scale, start]| {
            let row = g.dynamic_slice(x, &[start, start], &[1, size])?;
            let x = g.binary(BinaryOp::Add, x, row)?;
            let scale_all = g.broadcast_to(scale, &dims)?;
            let x = g.binary(BinaryOp::Mul, x, scale_all)?;
            let x = g.select(mask, fill, x)?;
            Ok([x, mask, fill, scale, start])
        });
        Program::extract(&graph, &results.unwrap()[..1]).unwrap()
    }

    #[test]
    fn what_a_loop_reads_and_is_computed_from_constants_alone_moves_into_its_body() {
        let program = loop_with_mask(512);
        let mut baked = program.bakeable();
        baked.sort_unstable();
        assert_eq!(baked, [0, 1, 2], "the offset, where the mask begins, and what it fills");
        let whole = program.bake(|index| (index < 3).then_some(0)).unwrap();
        verify(&whole).unwrap();
        let text = whole.to_string();
        let body = &text[text.find("body").unwrap()..];
        assert!(body.contains("iota") && body.contains("compare"), "{text}");
        assert!(body.contains("slice %") && !body.contains("dynamic_slice"), "{text}");
        // The scale is a slot, so it stays a carry.
        assert_eq!(whole.slots().map(|(_, index, _)| index).collect::<Vec<_>>(), [3]);
        let none = program.bake(|_| None).unwrap();
        assert_eq!(none, program);
    }

    #[test]
    fn the_cap_of_scores_and_the_bounds_of_rows_are_baked() {
        let mut baked = clamped(512).bakeable();
        baked.sort_unstable();
        assert_eq!(baked, [1, 2, 4]);
        assert_eq!(clamped(64).bakeable(), [0; 0]);
    }
}
