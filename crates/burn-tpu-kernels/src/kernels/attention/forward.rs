//! The forward kernel: an online softmax along the blocks of keys.
//!
//! Scratch memory holds, for each query of the block, the maximum `m` of the scores so far, the sum `l` of their
//! exponentials, and the sum `o` of values weighted by them. A block with scores `s` changes these to
//!
//! ```text
//! m' = max(m, max(s))     p = exp(s - m')     l' = exp(m - m') l + sum(p)     o' = exp(m - m') o + p v
//! ```
//!
//! and after the last block the result is `o / l`, and `m + log(l)`, the logarithm of the sum of all exponentials, is all
//! that backward needs (Dao, *FlashAttention-2*, 2023, algorithm 1).

use super::dropout::{Dropped, without_dropped};
use super::scores::{EMPTY, Layout, when_at};
use super::{Attention, Place};
use crate::{Comparison, Element, Kernel, KernelBuilder, Reduction, Ref, Result, Unary, Value};

/// The memory that is kept along the keys.
struct Running {
    max: Ref,
    sum: Ref,
    out: Ref,
}

impl Attention {
    /// Returns the forward kernel.
    ///
    /// Operands: queries, keys, values, the biases, the lengths if there are any, the state of the draw if there is dropout.
    /// Results: `out` of the queries' type, and `logsumexp` of [`row_type`](Self::row_type), which is -1.2e38 for a query
    /// that sees no key.
    ///
    /// # Errors
    /// [`Unsupported`](crate::KernelError::Unsupported) for sizes that the kernel does not take.
    pub fn forward(&self) -> Result<Kernel> {
        self.check()?;
        let (axes, at) = self.query_grid();
        let mut k = KernelBuilder::new("attention", &axes);
        let seen = Place { key: self.seen_key_block(&at.query, &at.key), ..at.clone() };
        let queries = k.operand(self.query_window(&at));
        let [keys, values] = [0, 1].map(|_| k.operand(self.key_window(&seen)));
        let masks = self.masks(&mut k, &seen);
        let (out, logsumexp) = (k.result(self.query_window(&at)), k.result(self.row_window(&at)));
        let column = [self.blocks.queries, 1];
        let [max, sum] = [0, 1].map(|_| k.scratch(Element::F32, &column));
        let running = Running { max, sum, out: k.scratch(Element::F32, &[self.blocks.queries, self.head_dim]) };

        when_at(&mut k, &[(3, 0)], |k| running.start(k))?;
        self.when_seen(&mut k, &at, &masks, |k| {
            let factors = [k.load(queries)?, k.load(keys)?];
            let scores = self.scores(k, &at, &masks, factors, Layout::Queries)?;
            let values = k.load(values)?;
            let weights = running.weights(k, scores.scores)?;
            let kept = self.kept(k, &at, &masks, Dropped::Weights, Layout::Queries)?;
            let kept = without_dropped(k, kept, weights.weights)?;
            running.add(k, kept, weights.decay, values, self.element)
        })?;
        when_at(&mut k, &[(3, self.counts()[1] - 1)], |k| running.finish(k, out, logsumexp, self))?;
        k.build()
    }
}

/// The exponentials of a block of scores, and the factor of what was added up before it.
struct Weights {
    weights: Value,
    decay: Value,
}

impl Running {
    fn start(&self, k: &mut KernelBuilder) -> Result<()> {
        let (empty, zero) = (k.float(EMPTY), k.float(0.0));
        k.store(self.max, empty)?;
        k.store(self.sum, zero)?;
        k.store(self.out, zero)
    }

    /// Adds a block of scores to the maximum and the sum, and returns its weights.
    fn weights(&self, k: &mut KernelBuilder, scores: Value) -> Result<Weights> {
        let (before, largest) = (k.load(self.max)?, k.reduce(Reduction::Max, scores, 1)?);
        let max = k.max(before, largest)?;
        let (shifted, decay) = (k.sub(scores, max)?, k.sub(before, max)?);
        let (weights, decay) = (k.exp(shifted)?, k.exp(decay)?);
        k.store(self.max, max)?;
        let added = k.reduce(Reduction::Sum, weights, 1)?;
        accumulate(k, self.sum, decay, added)?;
        Ok(Weights { weights, decay })
    }

    /// Adds a block of weighted values.
    fn add(&self, k: &mut KernelBuilder, weights: Value, decay: Value, values: Value, element: Element) -> Result<()> {
        let weights = k.cast(weights, element)?;
        let added = k.matmul(weights, values)?;
        accumulate(k, self.out, decay, added)
    }

    fn finish(&self, k: &mut KernelBuilder, out: Ref, logsumexp: Ref, attention: &Attention) -> Result<()> {
        let (sum, zero, one) = (k.load(self.sum)?, k.float(0.0), k.float(1.0));
        // The sum of no exponentials.
        let is_empty = k.compare(Comparison::Equal, sum, zero)?;
        let sum = k.select(is_empty, one, sum)?;
        let weighted = k.load(self.out)?;
        let result = k.div(weighted, sum)?;
        let result = k.cast(result, attention.element)?;
        k.store(out, result)?;
        let (max, log) = (k.load(self.max)?, k.unary(Unary::Log, sum)?);
        let column = k.add(max, log)?;
        let row = to_row(k, column)?;
        k.store(logsumexp, row)
    }
}

/// Stores `decay * sum + added` as the sum.
fn accumulate(k: &mut KernelBuilder, sum: Ref, decay: Value, added: Value) -> Result<()> {
    let before = k.load(sum)?;
    let decayed = k.mul(before, decay)?;
    let after = k.add(decayed, added)?;
    k.store(sum, after)
}

/// Returns a column as a row: 128 copies of it, which are whole registers, transposed.
fn to_row(k: &mut KernelBuilder, column: Value) -> Result<Value> {
    let rows = k.ty(column)?.dims[0];
    let copies = k.broadcast(column, &[rows, 128])?;
    let copies = k.transpose(copies)?;
    k.reduce(Reduction::Max, copies, 0)
}
