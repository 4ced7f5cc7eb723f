//! What the values of a region are at the keys that a block leaves out.
//!
//! Owns: whether one key, the *mean key*, can represent all of them, and what it has in each value. May not know: how large
//! a block is, or how the mean key is computed.

use super::bounds::{self, Bounds};
use super::cut::Block;
use super::part::{Part, bounds as bounds_of, is_repeated};
use super::region::{Axes, Member, Region, Regions, is_wide};
use burn_tpu_graph::op::{BinaryOp, Combine, UnaryOp};
use burn_tpu_graph::{Graph, Node, NodeId, Op};
use std::collections::HashMap;

/// What a value has at the mean key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MeanKeyValue {
    /// The number that it has at all keys.
    Same,
    /// The mean of its numbers at all keys.
    Mean,
    /// Nothing: its numbers differ, and their mean is not known.
    Unknown,
}

/// A value at the keys that a block leaves out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct AtRest {
    pub(super) form: MeanKeyValue,
    /// The operand that has the same numbers, if one has.
    pub(super) operand: Option<usize>,
    bounds: Bounds,
}

impl AtRest {
    const ROW: Self = Self::of(MeanKeyValue::Same, Bounds::ANY);

    const fn of(form: MeanKeyValue, bounds: Bounds) -> Self {
        Self { form, operand: None, bounds }
    }

    fn is_one_number(self, other: Self) -> bool {
        let is_same = (self.form, other.form) == (MeanKeyValue::Same, MeanKeyValue::Same);
        is_same && self.bounds.is_point() && self.bounds == other.bounds
    }
}

/// Returns the value of each member with a dim of keys at all keys of a block; `None` if the mean key cannot represent
/// them.
pub(super) fn at_rest(
    graph: &Graph,
    regions: &Regions,
    region: &Region,
    block: &Block,
) -> Option<HashMap<NodeId, AtRest>> {
    let mut known = HashMap::new();
    for &id in &region.members {
        let member = regions.member(id)?;
        let found = of_member(graph, regions, &known, id, block)?;
        let key = match member {
            Member::Rows { axes, .. } => axes.key,
            Member::Sum { key } => key,
        };
        // A sum over queries is read as it is, key by key.
        let is_read = regions.is_read_outside(id) || matches!(member, Member::Sum { .. });
        if key.is_some() && is_read && found.form != MeanKeyValue::Same {
            return None;
        }
        known.extend(key.map(|_| (id, found)));
    }
    Some(known)
}

/// Returns the value of a member; `None` if it combines values that are not known at the mean key.
fn of_member(
    graph: &Graph,
    regions: &Regions,
    known: &HashMap<NodeId, AtRest>,
    id: NodeId,
    block: &Block,
) -> Option<AtRest> {
    let (node, member) = (graph.node(id), regions.member(id)?);
    let is_float = node.ty.dtype.is_float();
    let Some(rows) = node.operands.iter().copied().find(|&operand| regions.reads_rows(id, operand)) else {
        // The product that a region begins with.
        return Some(AtRest::of(if is_float { MeanKeyValue::Mean } else { MeanKeyValue::Unknown }, Bounds::ANY));
    };
    let Some(Member::Rows { axes, .. }) = regions.member(rows) else { return None };
    let read = known.get(&rows).copied().unwrap_or(AtRest::ROW);
    let is_same = read.form == MeanKeyValue::Same;
    let combined = |is_known: bool| is_known.then_some(AtRest::of(read.form, read.bounds.of_sums()));
    match (&node.op, axes.key) {
        (_, None) if !has_key(member) => Some(AtRest::ROW),
        (Op::DotGeneral(_), Some(_)) => combined(is_same && is_float && is_wide(node)),
        (Op::Reduce { combine, dims }, Some(key)) if dims.contains(&key) => combined(match combine {
            Combine::Sum => read.form != MeanKeyValue::Unknown && is_wide(node) && (is_same || is_float),
            Combine::Max | Combine::Min | Combine::And | Combine::Or => is_same,
            Combine::Prod => false,
        }),
        (Op::Reduce { combine, .. }, Some(_)) => {
            let keeps = is_same || *combine == Combine::Sum;
            Some(AtRest::of(if keeps { read.form } else { MeanKeyValue::Unknown }, read.bounds.of_sums()))
        }
        (Op::ArgReduce { dim, .. }, Some(_)) => {
            let is_place = matches!(graph.node(node.operands[1]).op, Op::Iota { dim: along, .. } if along == *dim);
            combined(is_same && is_place && !read.bounds.nan)
        }
        (Op::Scatter(_), _) => Some(AtRest::of(MeanKeyValue::Unknown, Bounds::ANY)),
        _ => {
            let Member::Rows { axes: axes @ Axes { key: Some(key), .. }, .. } = member else { return None };
            let part = block.part(&node.ty.dims, axes);
            let operand = |&operand: &NodeId| match regions.reads_rows(id, operand) {
                true => known.get(&operand).copied().unwrap_or(AtRest::ROW),
                false => of_outside(graph, operand, &part, key),
            };
            Some(of_elements(graph, node, &node.operands.iter().map(operand).collect::<Vec<_>>()))
        }
    }
}

fn has_key(member: Member) -> bool {
    matches!(member, Member::Rows { axes: Axes { key: Some(_), .. }, .. } | Member::Sum { key: Some(_) })
}

/// Returns the value at the part of an operand that is no member. `key` is its dim of the keys.
fn of_outside(graph: &Graph, id: NodeId, part: &Part, key: usize) -> AtRest {
    let bounds = bounds_of(graph, id, part);
    let is_same = bounds.is_point() || is_repeated(graph, id, key);
    AtRest::of(if is_same { MeanKeyValue::Same } else { MeanKeyValue::Unknown }, bounds)
}

/// Returns the value of an op that computes element by element, or moves elements.
fn of_elements(graph: &Graph, node: &Node, operands: &[AtRest]) -> AtRest {
    use MeanKeyValue::{Mean, Same, Unknown};
    let all: Vec<Bounds> = operands.iter().map(|operand| operand.bounds).collect();
    let bounds = bounds::of_op(&node.op, node.ty.dtype, &all);
    let as_operand = |place: usize| AtRest { operand: Some(place), ..operands[place] };
    let are_floats = node.operands.iter().all(|&id| graph.ty(id).dtype.is_float());
    let form = match (&node.op, operands) {
        (Op::Select, [predicate, ..]) if predicate.bounds.is_point() => {
            return as_operand(if predicate.bounds.low == 1.0 { 1 } else { 2 });
        }
        (Op::Select, &[_, on_true, on_false]) if on_true.is_one_number(on_false) => return as_operand(1),
        _ if operands.iter().all(|operand| operand.form == Same) => Same,
        // Zero stays zero, and NaN stays NaN.
        (Op::Binary(BinaryOp::Mul), &[a, b]) if a.form == Same && a.bounds.is_zero_or_nan() && b.bounds.is_finite() => {
            return as_operand(0);
        }
        (Op::Binary(BinaryOp::Mul), &[a, b]) if b.form == Same && b.bounds.is_zero_or_nan() && a.bounds.is_finite() => {
            return as_operand(1);
        }
        _ if !(are_floats && node.ty.dtype.is_float()) => Unknown,
        (Op::Binary(BinaryOp::Add | BinaryOp::Sub), [a, b]) if a.form != Unknown && b.form != Unknown => Mean,
        (Op::Binary(BinaryOp::Mul), [a, b]) if matches!((a.form, b.form), (Same, Mean) | (Mean, Same)) => Mean,
        (Op::Binary(BinaryOp::Div), [a, b]) if (a.form, b.form) == (Mean, Same) => Mean,
        (
            Op::Unary(UnaryOp::Neg)
            | Op::Convert { .. }
            | Op::OptimizationBarrier
            | Op::BroadcastInDim { .. }
            | Op::Reshape { .. }
            | Op::Transpose { .. },
            [x],
        ) => x.form,
        _ => Unknown,
    };
    AtRest::of(form, bounds)
}
