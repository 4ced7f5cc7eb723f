//! Which keys each block of queries needs.
//!
//! Owns: when keys can be left out, and how large a block is. May not know: how blocks are computed.

use super::bounds::{self, Bounds};
use super::part::{Part, bounds as bounds_of};
use super::region::{Axes, Member, Region, Regions};
use burn_tpu_graph::op::{Combine, Direction};
use burn_tpu_graph::{Graph, Node, NodeId, Op};
use std::collections::HashMap;
use std::ops::Range;

/// The sizes of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sizes {
    /// The most queries in a block. Larger products are divided, so that no block is divided again.
    pub(super) most_queries: usize,
    /// The fewest queries in a block: smaller products leave the matrix unit idle.
    pub(super) fewest_queries: usize,
    /// Queries and keys are divided at multiples of this number: the lanes of a TPU's vector unit.
    pub(super) lanes: usize,
}

impl Default for Sizes {
    fn default() -> Self {
        Self { most_queries: 512, fewest_queries: 256, lanes: 128 }
    }
}

/// Queries of a region, and the keys that they need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) queries: Range<usize>,
    pub(super) keys: Range<usize>,
}

impl Block {
    /// Returns the indices along a dim that the block has, if it is the dim of the queries or of the keys.
    pub(super) fn range(&self, axes: Axes, dim: usize) -> Option<Range<usize>> {
        let keys = (Some(dim) == axes.key).then_some(&self.keys);
        (dim == axes.query).then_some(&self.queries).or(keys).cloned()
    }

    /// Returns the part of a value of these dims that the block has.
    pub(super) fn part(&self, dims: &[usize], axes: Axes) -> Part {
        dims.iter().enumerate().map(|(dim, &size)| self.range(axes, dim).unwrap_or(0..size)).collect()
    }
}

/// Returns the blocks of a region; `None` if they would save less than a fifth of its work.
pub(super) fn blocks(graph: &Graph, regions: &Regions, region: &Region, sizes: Sizes) -> Option<Vec<Block>> {
    let Sizes { most_queries, fewest_queries, lanes } = sizes;
    let size = (region.queries / 8).clamp(fewest_queries, most_queries).next_multiple_of(lanes);
    let mut blocks = Vec::new();
    for start in (0..region.queries).step_by(size) {
        let queries = start..region.queries.min(start + size);
        let keys = needed_keys(graph, regions, region, &queries, lanes);
        blocks.push(Block { queries, keys });
    }
    let needed: usize = blocks.iter().map(|block| block.queries.len() * block.keys.len()).sum();
    let is_less = blocks.iter().all(|block| !block.keys.is_empty()) && 5 * needed <= 4 * region.queries * region.keys;
    is_less.then_some(blocks)
}

/// Returns the keys between those, before and after them, that a block of queries may leave out.
fn needed_keys(
    graph: &Graph,
    regions: &Regions,
    region: &Region,
    queries: &Range<usize>,
    lanes: usize,
) -> Range<usize> {
    let is_masked = |keys: Range<usize>| is_masked(graph, regions, region, &Block { queries: queries.clone(), keys });
    // The more keys are left out, the more have to be masked.
    let groups: Vec<usize> = (0..region.keys).step_by(lanes).collect();
    let end = groups.partition_point(|&end| !is_masked(end..region.keys));
    let end = groups.get(end).map_or(region.keys, |&end| end);
    let begin = groups.partition_point(|&begin| begin < end && is_masked(0..begin));
    groups[begin.saturating_sub(1)]..end
}

/// Returns whether the queries of a block may leave out all its keys: whether these change no maximum and no sum.
fn is_masked(graph: &Graph, regions: &Regions, region: &Region, block: &Block) -> bool {
    if block.keys.is_empty() {
        return true;
    }
    let mut bounds = HashMap::new();
    for &id in &region.members {
        let Some(found) = of_member(graph, regions, &bounds, id, block) else { return false };
        bounds.insert(id, found);
        let has_keys = matches!(regions.member(id), Some(Member::Rows { axes: Axes { key: Some(_), .. }, .. }));
        // What is returned has zeros for the keys that are left out.
        if has_keys && regions.is_read_outside(id) && found != Bounds::ZERO {
            return false;
        }
    }
    true
}

/// Returns the bounds of a member at the keys of a block; `None` if it combines values there that change its result.
fn of_member(
    graph: &Graph,
    regions: &Regions,
    known: &HashMap<NodeId, Bounds>,
    id: NodeId,
    block: &Block,
) -> Option<Bounds> {
    let node = graph.node(id);
    let rows = node.operands.iter().copied().find(|&operand| regions.reads_rows(id, operand));
    // The products that a region begins with can be anything.
    let Some(rows) = rows else { return Some(Bounds::ANY) };
    let (Some(Member::Rows { axes, .. }), Some(member)) = (regions.member(rows), regions.member(id)) else {
        return None;
    };
    if let (Op::DotGeneral(_) | Op::Reduce { .. } | Op::ArgReduce { .. }, Some(key)) = (&node.op, axes.key) {
        return of_combined(node, member, key, known[&rows]);
    }
    let Member::Rows { axes, .. } = member else { return Some(Bounds::ANY) };
    let part = block.part(&node.ty.dims, axes);
    if let Op::Scatter(_) = node.op {
        // It changes nothing at the keys that are left out: no row has its largest score there.
        return Some(bounds_of(graph, node.operands[0], &part));
    }
    let operand = |&operand: &NodeId| match known.get(&operand) {
        Some(&known) if regions.reads_rows(id, operand) => known,
        _ => bounds_of(graph, operand, &part),
    };
    let operands: Vec<_> = node.operands.iter().map(operand).collect();
    // A search for NaN, as a maximum on the CPU has it.
    if node.op == Op::Compare(Direction::Ne) && node.operands[0] == node.operands[1] && operands[0] != Bounds::ANY {
        return Some(Bounds::ZERO);
    }
    Some(bounds::of_op(&node.op, node.ty.dtype, &operands))
}

/// Returns the bounds of a product or a reduction of values that have these bounds at the keys of a block.
fn of_combined(node: &Node, member: Member, key: usize, values: Bounds) -> Option<Bounds> {
    let is_maximum = match &node.op {
        Op::Reduce { combine, dims } => *combine == Combine::Max && dims.contains(&key),
        // A region has those of the largest score along the keys alone.
        op => matches!(op, Op::ArgReduce { .. }),
    };
    let is_reduced = match &node.op {
        Op::Reduce { dims, .. } => dims.contains(&key),
        _ => true,
    };
    match member {
        // Other keys have larger scores.
        Member::Rows { .. } if is_maximum => values.is_masked().then_some(Bounds::ANY),
        Member::Rows { .. } if is_reduced => {
            let is_sum = matches!(&node.op, Op::DotGeneral(_) | Op::Reduce { combine: Combine::Sum | Combine::Or, .. });
            (is_sum && values == Bounds::ZERO).then_some(Bounds::ANY)
        }
        Member::Rows { .. } if values == Bounds::ZERO => Some(Bounds::ZERO),
        Member::Rows { .. } => Some(Bounds::ANY),
        Member::Sum { .. } => (values == Bounds::ZERO).then_some(Bounds::ANY),
    }
}
