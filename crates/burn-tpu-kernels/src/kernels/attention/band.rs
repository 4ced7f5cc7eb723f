//! Masks of positions: causal attention, sliding windows, and the blocks that they hide.

use super::{Attention, LARGEST};
use crate::Index;

/// The keys that a query sees by position: query `q` sees those from `q + offset - left` to `q + offset + right`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Band {
    /// How many keys before its own position a query sees; all of them if `None`.
    pub left: Option<i32>,
    /// How many keys after its own position a query sees; all of them if `None`.
    pub right: Option<i32>,
    /// The position of the first query among the keys: the length of the cache, when a cache goes before.
    pub offset: i32,
}

impl Band {
    /// All keys.
    pub const ALL: Band = Band { left: None, right: None, offset: 0 };
    /// The keys up to the query's own position.
    pub const CAUSAL: Band = Band { left: None, right: Some(0), offset: 0 };

    /// Returns the band of the last `width` keys up to the query's own position.
    pub fn window(width: i32) -> Self {
        Self { left: Some(width - 1), ..Self::CAUSAL }
    }

    /// Returns whether a number is too large to be added to a position.
    pub(super) fn is_wide(&self) -> bool {
        let numbers = [self.left.unwrap_or(0), self.right.unwrap_or(0), self.offset];
        numbers.iter().any(|number| number.unsigned_abs() as usize > LARGEST)
    }
}

impl Attention {
    /// Returns the block of keys that a step copies: that of the step, or the nearest that its queries see. A step whose
    /// block is hidden so finds the block of the step before, and nothing is copied for it.
    pub(super) fn seen_key_block(&self, query: &Index, key: &Index) -> Index {
        let Band { left, right, offset } = self.band;
        let (size, last) = (self.blocks.keys as i32, self.counts()[1] as i32 - 1);
        let first_query = query.clone() * self.blocks.queries as i32 + offset;
        let last_query = first_query.clone() + (self.blocks.queries as i32 - 1);
        let block = |position: Index| (position.max(0) / size).min(last);
        let from = left.map(|left| block(first_query - left));
        clamped(key.clone(), from, right.map(|right| block(last_query + right)))
    }

    /// Returns the block of queries that a step copies: that of the step, or the nearest that sees its keys.
    pub(super) fn seen_query_block(&self, query: &Index, key: &Index) -> Index {
        let Band { left, right, offset } = self.band;
        let (size, last) = (self.blocks.queries as i32, self.counts()[0] as i32 - 1);
        let first_key = key.clone() * self.blocks.keys as i32 - offset;
        let last_key = first_key.clone() + (self.blocks.keys as i32 - 1);
        let block = |position: Index| (position.max(0) / size).min(last);
        let from = right.map(|right| block(first_key - right));
        clamped(query.clone(), from, left.map(|left| block(last_key + left)))
    }
}

fn clamped(index: Index, from: Option<Index>, to: Option<Index>) -> Index {
    let index = from.into_iter().fold(index, Index::max);
    to.into_iter().fold(index, Index::min)
}
