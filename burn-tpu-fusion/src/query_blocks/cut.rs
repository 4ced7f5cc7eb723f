//! Which keys each block of queries needs.
//!
//! Owns: how large a block is. May not know: when keys can be left out, how blocks are computed.

use super::part::Part;
use super::region::{Axes, Region, Regions};
use super::rest::{AtRest, at_rest};
use burn_tpu_graph::{Graph, NodeId};
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

/// The width of heads that fill the lanes of a TPU.
const WIDE: usize = 128;

impl Default for Sizes {
    fn default() -> Self {
        Self { most_queries: 512, fewest_queries: 256, lanes: 128 }
    }
}

/// Queries of a region, and the keys that they need.
#[derive(Clone, Debug)]
pub(super) struct Block {
    pub(super) queries: Range<usize>,
    pub(super) keys: Range<usize>,
    /// The keys before them and after them.
    pub(super) rests: Vec<Rest>,
}

/// Keys that a block leaves out: one key represents all of them.
#[derive(Clone, Debug)]
pub(super) struct Rest {
    pub(super) keys: Range<usize>,
    /// The values that have a dim of keys.
    pub(super) values: HashMap<NodeId, AtRest>,
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
    // The wider a head is, the less an exact cut saves of a block's time, and each block takes time to compile.
    let blocks = if regions.width(region) < WIDE { 8 } else { 4 };
    let size = (region.queries / blocks).clamp(fewest_queries, most_queries).next_multiple_of(lanes);
    let mut blocks = Vec::new();
    for start in (0..region.queries).step_by(size) {
        let queries = start..region.queries.min(start + size);
        blocks.push(block(graph, regions, region, queries, lanes));
    }
    let needed: usize = blocks.iter().map(|block| block.queries.len() * block.keys.len()).sum();
    (5 * needed <= 4 * region.queries * region.keys).then_some(blocks)
}

/// Returns the block of these queries, with the keys that it needs.
fn block(graph: &Graph, regions: &Regions, region: &Region, queries: Range<usize>, lanes: usize) -> Block {
    let rest = |keys: &Range<usize>| {
        let block = Block { queries: queries.clone(), keys: keys.clone(), rests: Vec::new() };
        at_rest(graph, regions, region, &block).map(|values| Rest { keys: keys.clone(), values })
    };
    let can_rest = |keys: Range<usize>| keys.is_empty() || rest(&keys).is_some();
    // The fewer keys are left out, the more is known of them.
    let groups: Vec<usize> = (0..region.keys).step_by(lanes).collect();
    let end = groups.partition_point(|&end| !can_rest(end..region.keys)).max(1);
    let end = groups.get(end).map_or(region.keys, |&end| end);
    let begin = groups.partition_point(|&begin| begin < end && can_rest(0..begin));
    let keys = groups[begin.saturating_sub(1)]..end;
    let left_out = [0..keys.start, keys.end..region.keys].into_iter().filter(|keys| !keys.is_empty());
    match left_out.map(|keys| rest(&keys)).collect() {
        Some(rests) => Block { queries, keys, rests },
        None => Block { queries, keys: 0..region.keys, rests: Vec::new() },
    }
}
