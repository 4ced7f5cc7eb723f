//! Parts of values: a range of indices along each dim.
//!
//! Owns: which part of its operands an op needs, the bounds of a part, and how a part is added to a graph. May not know:
//! which parts anyone wants.

use super::bounds::{self, Bounds};
use burn_tpu_graph::op::{BinaryOp, OpKind};
use burn_tpu_graph::{Builder, Dims, Graph, GraphError, Literal, LiteralData, NodeId, Number, Op, Program};
use burn_tpu_graph::{Renaming, TensorType};
use std::collections::HashMap;
use std::ops::Range;

/// A range of indices for each dim of a value.
pub(super) type Part = Vec<Range<usize>>;

/// The number of nodes that one question about bounds may look at. Masks that people write need a few dozen.
const MOST_NODES: u32 = 512;

/// Returns all of a value of these dims.
pub(super) fn whole(dims: &[usize]) -> Part {
    dims.iter().map(|&size| 0..size).collect()
}

fn dims_of(part: &Part) -> Dims {
    part.iter().map(Range::len).collect()
}

/// Returns whether an op computes each element from the elements at its place, on a part of a value too: a constraint is of
/// a whole value, and complex numbers are no carries of a loop.
pub(crate) fn is_elementwise(op: &Op) -> bool {
    op.is_elementwise() && op.kind() != OpKind::Complex && !matches!(op, Op::ShardingConstraint(_))
}

/// Returns the dim of `new` that has the elements of a dim of `old`, if a reshape between them keeps it apart.
pub(super) fn reshaped(old: &[usize], new: &[usize], dim: usize) -> Option<usize> {
    let before = |dims: &[usize], dim: usize| dims[..dim].iter().product::<usize>();
    (0..new.len()).find(|&to| new[to] == old[dim] && before(new, to) == before(old, dim))
}

/// Returns the part of an operand that a part of the result needs; `None` for ops that do more than compute element by
/// element, repeat, permute dims, or insert and remove dims of size 1.
fn of_operand(op: &Op, operand: &[usize], part: &Part) -> Option<Part> {
    match op {
        op if is_elementwise(op) => Some(part.clone()),
        Op::BroadcastInDim { mapping, .. } => {
            let range = |(&size, &dim): (&usize, &usize)| if size == 1 { 0..1 } else { part[dim].clone() };
            Some(operand.iter().zip(mapping).map(range).collect())
        }
        Op::Reshape { dims } => {
            let wide = |dims: &[usize]| dims.iter().copied().filter(|&size| size != 1).collect::<Dims>();
            let mut ranges = part.iter().zip(dims).filter(|(_, size)| **size != 1).map(|(range, _)| range.clone());
            let range = |&size: &usize| if size == 1 { Some(0..1) } else { ranges.next() };
            (wide(dims) == wide(operand)).then(|| operand.iter().map(range).collect())?
        }
        Op::Transpose { permutation } => {
            let place = |dim: usize| permutation.iter().position(|&from| from == dim);
            (0..operand.len()).map(|dim| Some(part[place(dim)?].clone())).collect()
        }
        _ => None,
    }
}

/// Returns the bounds of a part of a value that is computed from places and constants; any number for other values.
pub(super) fn bounds(graph: &Graph, id: NodeId, part: &Part) -> Bounds {
    let mut left = MOST_NODES;
    bounds_within(graph, id, part, &mut left)
}

fn bounds_within(graph: &Graph, id: NodeId, part: &Part, left: &mut u32) -> Bounds {
    *left = left.saturating_sub(1);
    let node = graph.node(id);
    match &node.op {
        _ if *left == 0 => Bounds::ANY,
        Op::Constant(literal) => {
            let value = literal.splat().map(Number::to_f64).filter(|value| !value.is_nan());
            value.map_or(Bounds::ANY, Bounds::point)
        }
        Op::Iota { dim, .. } => Bounds::between(part[*dim].start as f64, (part[*dim].end - 1) as f64),
        op => {
            let operand = |&operand: &NodeId| {
                let part = of_operand(op, &graph.ty(operand).dims, part);
                part.map_or(Bounds::ANY, |part| bounds_within(graph, operand, &part, left))
            };
            let operands: Vec<_> = node.operands.iter().map(operand).collect();
            bounds::of_op(op, node.ty.dtype, &operands)
        }
    }
}

/// Returns whether a value is the same along a dim, for all indices of the others.
pub(super) fn is_repeated(graph: &Graph, id: NodeId, dim: usize) -> bool {
    let mut left = MOST_NODES;
    is_repeated_within(graph, id, dim, &mut left)
}

fn is_repeated_within(graph: &Graph, id: NodeId, dim: usize, left: &mut u32) -> bool {
    *left = left.saturating_sub(1);
    let node = graph.node(id);
    let dims = &node.ty.dims;
    let exhausted = *left == 0;
    let mut operand_is = |operand: NodeId, dim: usize| is_repeated_within(graph, operand, dim, left);
    match (&node.op, &node.operands[..]) {
        _ if exhausted => false,
        _ if dims[dim] == 1 => true,
        (Op::Constant(literal), _) => matches!(literal.data, LiteralData::Splat(_)),
        (Op::Iota { dim: along, .. }, _) => *along != dim,
        (Op::BroadcastInDim { mapping, .. }, &[operand]) => {
            mapping.iter().position(|&to| to == dim).is_none_or(|from| operand_is(operand, from))
        }
        (Op::Transpose { permutation }, &[operand]) => operand_is(operand, permutation[dim]),
        (Op::Reshape { .. }, &[operand]) => {
            reshaped(dims, &graph.ty(operand).dims, dim).is_some_and(|from| operand_is(operand, from))
        }
        (op, operands) => is_elementwise(op) && operands.iter().all(|&operand| operand_is(operand, dim)),
    }
}

/// Returns whether a constraint splits a dim of a value, or of what the value is made of in another type or shape.
pub(super) fn is_split(graph: &Graph, id: NodeId, dim: usize) -> bool {
    let node = graph.node(id);
    match (&node.op, &node.operands[..]) {
        (Op::ShardingConstraint(sharding), _) => sharding.dims().get(dim).is_some_and(|axes| !axes.is_empty()),
        (Op::Transpose { permutation }, &[operand]) => is_split(graph, operand, permutation[dim]),
        (Op::Reshape { .. }, &[operand]) => {
            reshaped(&node.ty.dims, &graph.ty(operand).dims, dim).is_some_and(|from| is_split(graph, operand, from))
        }
        (op, &[operand]) if is_elementwise(op) => is_split(graph, operand, dim),
        _ => false,
    }
}

/// Parts of a program's values, as nodes of the graph that it is rewritten to.
pub(super) struct Parts<'a> {
    old: &'a Graph,
    /// Whether a value is computed from places and constants alone. A part of one is computed anew, not sliced.
    is_positional: Vec<bool>,
    added: HashMap<(NodeId, Part), NodeId>,
}

impl<'a> Parts<'a> {
    pub(super) fn new(program: &'a Program) -> Self {
        let mut is_positional: Vec<bool> = Vec::with_capacity(program.graph().len());
        for node in program.graph().nodes() {
            is_positional.push(match &node.op {
                Op::Constant(literal) => matches!(literal.data, LiteralData::Splat(_)),
                Op::Iota { .. } => true,
                Op::BroadcastInDim { .. } | Op::Reshape { .. } | Op::Transpose { .. } => {
                    is_positional[node.operands[0].index()]
                }
                op => is_elementwise(op) && node.operands.iter().all(|id| is_positional[id.index()]),
            });
        }
        Self { old: program.graph(), is_positional, added: HashMap::new() }
    }

    /// Returns a part of an old value.
    pub(super) fn add(
        &mut self,
        graph: &mut Graph,
        renamed: &Renaming,
        id: NodeId,
        part: Part,
    ) -> Result<NodeId, GraphError> {
        if dims_of(&part) == self.old.ty(id).dims {
            return renamed.id(id);
        }
        if let Some(&added) = self.added.get(&(id, part.clone())) {
            return Ok(added);
        }
        let added = self.add_anew(graph, renamed, id, &part)?;
        self.added.insert((id, part), added);
        Ok(added)
    }

    fn add_anew(
        &mut self,
        graph: &mut Graph,
        renamed: &Renaming,
        id: NodeId,
        part: &Part,
    ) -> Result<NodeId, GraphError> {
        let (node, dims) = (self.old.node(id), dims_of(part));
        match &node.op {
            Op::Constant(Literal { ty, data: data @ LiteralData::Splat(_) }) => {
                return graph.constant(Literal { ty: TensorType::new(ty.dtype, &dims), data: data.clone() });
            }
            Op::Iota { ty, dim } => {
                let iota = graph.iota(ty.dtype, &dims, *dim)?;
                return match part[*dim].start {
                    0 => Ok(iota),
                    start => graph.binary_const(BinaryOp::Add, iota, start as i64),
                };
            }
            op if self.is_positional[id.index()] || matches!(op, Op::BroadcastInDim { .. }) => {
                let parts = node.operands.iter().map(|&operand| of_operand(op, &self.old.ty(operand).dims, part));
                if let Some(parts) = parts.collect::<Option<Vec<_>>>() {
                    let operands = node.operands.iter().zip(parts);
                    let operands = operands.map(|(&operand, part)| self.add(graph, renamed, operand, part));
                    let operands = operands.collect::<Result<Vec<_>, _>>()?;
                    return graph.add(with_dims(op, &dims), &operands);
                }
            }
            _ => {}
        }
        let (start, limit): (Dims, Dims) = part.iter().map(|range| (range.start, range.end)).unzip();
        graph.slice(renamed.id(id)?, &start, &limit, &Dims::from_elem(1, part.len()))
    }
}

/// Returns an op with other dims of its result, if it names them.
pub(crate) fn with_dims(op: &Op, dims: &[usize]) -> Op {
    let dims = Dims::from_slice(dims);
    match op {
        Op::BroadcastInDim { mapping, .. } => Op::BroadcastInDim { dims, mapping: mapping.clone() },
        Op::Reshape { .. } => Op::Reshape { dims },
        op => op.clone(),
    }
}
