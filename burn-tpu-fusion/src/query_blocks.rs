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
//! 2. the keys that a block of queries can leave out ([`cut`]), since one key can represent all of them ([`rest`]). For
//!    that it computes between which numbers the values of masks are ([`bounds`], [`part`]);
//! 3. and writes the same ops again for each block ([`emit`]).
//!
//! So it is the same for a mask of places of any form (causal, a sliding window), with any number, and for attention with a
//! bias or dropout besides. Burn's `attention` op is found as well, with its gradient. Attention with a softcap is found if
//! the program has no gradient of it: that of a masked score is zero times the slope of `tanh`, and the slope can be NaN.
//!
//! # Why it is exact
//! Nothing is assumed of the values. The keys that a block leaves out become one, the *mean key*, which counts as often as
//! there are keys:
//!
//! - *One number for each row*: what a mask selects for all these queries and keys, and what is computed from that and from
//!   the row, such as its weight. The mean key has that number. Any op may read it.
//! - *A number for each key whose mean is known*: the product of the row and of the key's `k` or `v`, and multiples and
//!   sums of such products. The mean key has their mean, from the [`means`] of `k` and `v`. A sum over keys may read it,
//!   and a `select` that hides it.
//! - *Anything else*. The mean key has nothing. Only a `select` that hides it may read it.
//!
//! From that follows the rest:
//!
//! - Maximum of a row: that of the needed keys and of the one number. Sum: the needed keys, and as often as there are keys
//!   the number or the mean. Product with `v`: the needed keys, and as often as there are keys the number times the mean of
//!   `v`. Sum over queries (`p^T do`): the same for all keys that are left out.
//! - So a row that is masked as a whole has its weights, and a fill of any size is exact beside scores of any size.
//! - Zero times infinity is NaN as before: a mean of numbers that are not all finite is not finite. That of finite numbers
//!   does not overflow, since they are divided before they are added.
//! - Zero or NaN times a finite number is zero or NaN. So the weights that -inf masks are one number after dropout too;
//!   those that another number masks are not, and then nothing is left out.
//! - A mask of data hides nothing for certain. Where it fills the same number as the mask of places before it, the number
//!   is certain. A score plus a number is as unknown as the score: masks that are added hide nothing for certain either,
//!   since infinity minus infinity is NaN.
//!
//! Sums have another order, so their last bits can differ, and so can whether a sum overflows and which sign a zero has.
//! Where a gradient is infinite, NaN and infinity can replace each other in what is not finite either way.
//!
//! When it is no loss: products of more than 512 queries and keys whose queries no mesh splits, if at least a fifth is left
//! out. Unrolled blocks cost compile time, so a long sequence has no more blocks than it needs.
//!
//! Gain: `docs/decisions/0028-attention-in-blocks-of-queries.md`.

mod bounds;
mod cut;
mod emit;
mod means;
mod part;
mod region;
mod rest;

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
        for region in regions.all.iter().filter(|region| !regions.is_split(region)) {
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
