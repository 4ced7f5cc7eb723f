//! Attention in kernels on TPUs, forward and backward, without its scores in main memory.
//!
//! Recorded op by op, attention keeps the scores of all pairs of a query and a key for its gradient. The kernels of
//! `burn-tpu-kernels` compute them block by block, and again backward, from one number for each query: memory is linear in
//! the sequence.
//!
//! ```text
//! s = mask(scale * q k^T)       out, logsumexp = flash_attention(q, k, v)
//! p = softmax(s)                dq             = flash_attention_query_gradient(q, k, v, do, logsumexp, sum(do * out))
//! o = p v                       dk, dv         = flash_attention_key_gradient(the same)
//! dv = p^T do, dq = .. k, dk = ..
//! ```
//!
//! Forward and backward are found together, by what the values are. The pass follows everything that is computed from a
//! product of queries and keys ([`trace`]): scores (scaled, capped, masked, with a bias), and after the exponential
//! polynomials in it, in its sum over a row and in the gradient of the probabilities ([`polynomial`]). However autodiff
//! orders divisions, products and sums, the gradient of the scores is one polynomial. A mask of positions is a function of
//! the distance of a key from a query ([`positions`]), which is a band that the kernels know; one of padding compares places
//! with a length for each sequence ([`lengths`]). A mask or a bias of data is added to the scores from an array that has the
//! dims along which it varies ([`views`]): a row of keys for each sequence, where keys are padding. Weights or scores that a
//! draw drops are dropped by the kernels, which compute the draw again. Then the products are replaced by calls of kernels
//! with plain forms ([`emit`], [`plain`]), and all between them is dead.
//!
//! Legality. Nothing is replaced unless *all* that reads a value between the first product and the results is attention as
//! above: weights that are returned or the gradient of a bias leave everything as it is, for
//! [`QueryBlocks`](crate::QueryBlocks). Other roundings than recorded: scores and sums are f32 and not rounded to 16 bits; a
//! scale that is known at run time multiplies the queries, which are rounded once more. What masks scores (at most -1,000)
//! is taken for smaller than each row's largest score by so much that its exponential is 0; a row that is masked as a whole
//! has the result 0.
//!
//! When it is no loss: at least [`LEAST`] queries and keys, in whole blocks, and heads of 64 or 128, which is what was
//! measured and compiled. For TPUs alone, since the plain forms keep all scores. On a mesh, every device runs the kernels on
//! its sequences and heads ([`division`]).
//!
//! Gain: `docs/decisions/0034-attention-in-kernels-and-options-by-trial.md`.

mod division;
mod emit;
mod lengths;
mod matrix;
mod plain;
mod polynomial;
mod positions;
mod trace;
mod views;

use crate::{Pass, Rewritten};
use burn_tpu_graph::{GraphError, NodeId, Op, Program};
use division::Division;
use emit::{CallCache, Plan};
use std::collections::HashMap;

/// The fewest queries and keys: shorter attention is faster in blocks of queries.
const LEAST: usize = 1024;

/// The pass that computes attention in kernels. See the module's documentation.
#[derive(Clone, Copy, Debug)]
pub struct FlashAttention {
    least: usize,
    widths: [usize; 2],
    /// Sequences are multiples of this number.
    block: usize,
}

impl Default for FlashAttention {
    fn default() -> Self {
        Self { least: LEAST, widths: [64, 128], block: 128 }
    }
}

impl FlashAttention {
    /// Creates the pass for attention of any size, for tests with small programs.
    #[doc(hidden)]
    pub fn of_any_size(width: usize) -> Self {
        Self { least: 1, widths: [width; 2], block: 1 }
    }

    /// Returns whether a product of these queries and keys is large enough, and of whole blocks.
    fn takes(&self, program: &Program, node: NodeId) -> bool {
        let graph = program.graph();
        let node = graph.node(node);
        let (Op::DotGeneral(attrs), &[.., queries, keys]) = (&node.op, &node.ty.dims[..]) else { return false };
        let &[contracted] = &attrs.lhs_contract[..] else { return false };
        let is_whole = |size: usize| size >= self.least && size.is_multiple_of(self.block);
        let width = graph.ty(node.operands[0]).dims[contracted];
        is_whole(queries) && is_whole(keys) && self.widths.contains(&width)
    }

    fn plans(&self, program: &Program) -> Vec<Plan> {
        let graph = program.graph();
        let mut readers = vec![Vec::new(); graph.len()];
        for id in graph.ids() {
            for operand in &graph.node(id).operands {
                readers[operand.index()].push(id);
            }
        }
        let (mut plans, mut calls) = (Vec::new(), CallCache::new(Division::of(program)));
        for product in graph.ids().filter(|&node| self.takes(program, node)) {
            if let Some(attention) = trace::attention(program, product, &readers) {
                plans.extend(Plan::new(graph, attention, &mut calls));
            }
        }
        plans
    }
}

impl Pass for FlashAttention {
    fn name(&self) -> &'static str {
        "flash_attention"
    }

    fn run(&self, program: &Program) -> Result<Rewritten, GraphError> {
        let mut plans = self.plans(program);
        if plans.is_empty() {
            return Ok(Rewritten { program: program.clone(), count: 0 });
        }
        let mut plan_of: HashMap<NodeId, usize> = HashMap::new();
        for (index, plan) in plans.iter().enumerate() {
            plan_of.extend(plan.nodes().map(|node| (node, index)));
        }
        let rewritten = program.rebuild(|new, id| {
            let dtype = program.graph().ty(id).dtype;
            let replaced = match plan_of.get(&id) {
                Some(&plan) => plans[plan].add(&mut new.graph, id, dtype, &new.renamed)?,
                None => None,
            };
            replaced.map_or_else(|| new.copy(id), Ok)
        })?;
        Ok(Rewritten { program: rewritten, count: plans.len() })
    }
}

#[cfg(test)]
mod tests;
