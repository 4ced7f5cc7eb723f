//! Attention in blocks of queries, without the keys that its mask hides.
//!
//! Causal attention computes the scores of all pairs of a query and a key, and then masks half of them. Recorded op by op,
//! XLA computes them all, forward and backward. This pass computes a block of queries at a time, with the keys that it sees:
//!
//! ```text
//! s = select(key > query, -10000, q k^T)       for each block of queries b, which sees the keys [0, e):
//! p = softmax(s)                                   s = select(key > query, -10000, q[b] k[..e]^T)
//! o = p v                                          p = softmax(s);  o[b] = p v[..e]
//! dv = p^T do                                      dv[..e] += p^T do[b]
//! ds = p (do v^T - sum(..)) ...                    ...
//! ```
//!
//! It knows no attention by its name. It finds
//! 1. the products of queries and keys, and what is computed from them query by query: scaling, masks, softmax, dropout, the
//!    products with values, and all of that for gradients ([`region`]);
//! 2. the keys that a block of queries can leave out, since no maximum, sum or product of theirs changes without them
//!    ([`cut`]). For that it computes between which numbers the masked values are ([`bounds`], [`part`]);
//! 3. and writes the same ops again for each block ([`emit`]).
//!
//! So it is the same for a mask of places of any form (causal, a sliding window), written with `mask_fill` or with an added
//! bias, and for attention with a padding mask, dropout or a softcap besides. Burn's `attention` op is found as well; its
//! gradient passes through the place of each row's largest score, which is in the row's block.
//!
//! Legality. Each row is computed by the same ops from the same numbers. Three things are taken for granted of scores:
//! - what masks them (at most -1,000, as the usual -10,000 or -inf) is smaller than each row's largest score by 500 or more.
//!   Then the exponential of a masked score is 0, as the softmax of the whole row computes it;
//! - what zeros are multiplied with is finite;
//! - no row is masked as a whole. (Such a row is the mean of all values, or NaN, and now that of the keys in its blocks.)
//!
//! Sums over keys leave out zeros; sums over queries are sums of the blocks' sums, in f32. So the last bits can differ.
//!
//! When it is no loss: products of more than 512 queries and keys, of which a fifth or more is left out. Unrolled blocks
//! cost compile time, so a long sequence has no more blocks than it needs.
//!
//! Gain: `docs/decisions/0028-attention-in-blocks-of-queries.md`.

mod bounds;
mod cut;
mod emit;
mod part;
mod region;

use crate::{Pass, Rewritten};
use burn_tpu_graph::{GraphError, Program};
use cut::Sizes;
use region::Regions;
use std::collections::HashMap;

pub(crate) use part::{is_elementwise, with_dims};

/// The pass that computes attention in blocks of queries. See the module's documentation.
#[derive(Clone, Copy, Debug, Default)]
pub struct QueryBlocks {
    sizes: Sizes,
}

impl QueryBlocks {
    /// Creates the pass with blocks of so many queries, for tests with small programs. Keys are left out one by one.
    #[doc(hidden)]
    pub fn of(queries: usize) -> Self {
        Self { sizes: Sizes { most_queries: queries, fewest_queries: queries, lanes: 1 } }
    }
}

impl Pass for QueryBlocks {
    fn name(&self) -> &'static str {
        "query_blocks"
    }

    fn run(&self, program: &Program) -> Result<Rewritten, GraphError> {
        let regions = Regions::find(program, self.sizes.most_queries);
        let mut divided = Vec::new();
        for region in &regions.all {
            if let Some(blocks) = cut::blocks(program.graph(), &regions, region, self.sizes) {
                divided.push((region, blocks));
            }
        }
        if divided.is_empty() {
            return Ok(Rewritten { program: program.clone(), count: 0 });
        }
        let mut blocks_of = HashMap::new();
        for (region, blocks) in &divided {
            blocks_of.extend(region.members.iter().map(|&id| (id, &blocks[..])));
        }
        Ok(Rewritten { program: emit::emit(program, &regions, &blocks_of)?, count: divided.len() })
    }
}

#[cfg(test)]
mod tests;
