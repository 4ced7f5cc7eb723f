//! The backward kernels: one follows a block of queries along the keys, the other a block of keys along the queries.
//!
//! With `P = exp(scores - logsumexp)`, the probabilities, and `D = sum over the width of dO * O` for each query, which the
//! caller computes (Dao, *FlashAttention-2*, 2023, algorithm 2):
//!
//! ```text
//! dV = P^T dO     dP = dO V^T     dS = P * (dP - D)     dQ = scale dS K     dK = scale dS^T Q
//! ```
//!
//! Where weights are dropped, `P` in dV and dP are 0; `D` stays the sum of `P dP`. Where scores are dropped, dS is 0. The
//! scores are computed once more in each kernel. Keys and values get the gradients of all heads of their group.

use super::dropout::{Dropped, without_dropped};
use super::scores::{Layout, to_column, when_at};
use super::{Attention, Masks, Place};
use crate::{Axis, Element, Index, Kernel, KernelBuilder, Ref, Result, Value};

/// The operands of both kernels.
struct Operands {
    queries: Ref,
    keys: Ref,
    values: Ref,
    gradient: Ref,
    logsumexp: Ref,
    products: Ref,
    masks: Masks,
}

impl Attention {
    /// Returns the kernel of the queries' gradient.
    ///
    /// Operands: queries, keys, values, the gradient of `out`, `logsumexp`, the sums of `out` times its gradient (of
    /// [`row_type`](Self::row_type)), the biases, the lengths if there are any, the state of the draw if there is dropout.
    /// Result: the gradient.
    ///
    /// # Errors
    /// [`Unsupported`](crate::KernelError::Unsupported) for sizes that the kernel does not take.
    pub fn query_gradient(&self) -> Result<Kernel> {
        self.check()?;
        let (axes, at) = self.query_grid();
        let mut k = KernelBuilder::new("attention_query_gradient", &axes);
        let seen = Place { key: self.seen_key_block(&at.query, &at.key), ..at.clone() };
        let operands = self.operands(&mut k, &seen);
        let result = k.result(self.query_window(&at));
        let sum = k.scratch(Element::F32, &[self.blocks.queries, self.head_dim]);
        let columns = [0, 1].map(|_| k.scratch(Element::F32, &[self.blocks.queries, 1]));

        when_at(&mut k, &[(3, 0)], |k| {
            store_zero(k, sum)?;
            let rows = [operands.logsumexp, operands.products];
            rows.into_iter().zip(columns).try_for_each(|(row, column)| store_column(k, row, column))
        })?;
        self.when_seen(&mut k, &at, &operands.masks, |k| {
            let saved = [k.load(columns[0])?, k.load(columns[1])?];
            let (_, gradient) = self.gradients(k, &at, &operands, saved, Layout::Queries)?;
            let keys = k.load(operands.keys)?;
            let added = k.matmul(gradient, keys)?;
            accumulate(k, sum, added)
        })?;
        when_at(&mut k, &[(3, self.counts()[1] - 1)], |k| self.finish(k, sum, result, self.scale))?;
        k.build()
    }

    /// Returns the kernel of the keys' and the values' gradients.
    ///
    /// Operands as of [`query_gradient`](Self::query_gradient). Results: the gradient of the keys, that of the values.
    ///
    /// # Errors
    /// [`Unsupported`](crate::KernelError::Unsupported) for sizes that the kernel does not take.
    pub fn key_gradient(&self) -> Result<Kernel> {
        self.check()?;
        let (group, [queries, keys]) = (self.group(), self.counts());
        let outer = [self.batch, self.key_heads, keys].map(Axis::parallel);
        let axes = [&outer[..], &[Axis::arbitrary(group), Axis::arbitrary(queries)]].concat();
        let [batch, key_head, key, member, query] = [0, 1, 2, 3, 4].map(Index::grid);
        let at = Place { batch, head: key_head * group as i32 + member, query, key };
        let mut k = KernelBuilder::new("attention_key_gradient", &axes);
        let seen = Place { query: self.seen_query_block(&at.query, &at.key), ..at.clone() };
        let operands = self.operands(&mut k, &seen);
        let results = [0, 1].map(|_| k.result(self.key_window(&at)));
        let sums = [0, 1].map(|_| k.scratch(Element::F32, &[self.blocks.keys, self.head_dim]));

        when_at(&mut k, &[(3, 0), (4, 0)], |k| sums.into_iter().try_for_each(|sum| store_zero(k, sum)))?;
        self.when_seen(&mut k, &at, &operands.masks, |k| {
            let saved = [k.load(operands.logsumexp)?, k.load(operands.products)?];
            let (probabilities, gradient) = self.gradients(k, &at, &operands, saved, Layout::Keys)?;
            let factors = [(gradient, operands.queries), (probabilities, operands.gradient)];
            factors.into_iter().zip(sums).try_for_each(|((lhs, rhs), sum)| {
                let rhs = k.load(rhs)?;
                let added = k.matmul(lhs, rhs)?;
                accumulate(k, sum, added)
            })
        })?;
        when_at(&mut k, &[(3, group - 1), (4, queries - 1)], |k| {
            self.finish(k, sums[0], results[0], self.scale)?;
            self.finish(k, sums[1], results[1], 1.0)
        })?;
        k.build()
    }

    fn operands(&self, k: &mut KernelBuilder, at: &Place) -> Operands {
        let queries = k.operand(self.query_window(at));
        let [keys, values] = [0, 1].map(|_| k.operand(self.key_window(at)));
        let gradient = k.operand(self.query_window(at));
        let [logsumexp, products] = [0, 1].map(|_| k.operand(self.row_window(at)));
        Operands { queries, keys, values, gradient, logsumexp, products, masks: self.masks(k, at) }
    }

    /// Returns the probabilities of a block and the gradient of its products `q k^T` without the factor `scale`, both in
    /// the type of the elements. `saved` are the logarithms and the sums, columns for rows of queries.
    fn gradients(
        &self,
        k: &mut KernelBuilder,
        at: &Place,
        operands: &Operands,
        saved: [Value; 2],
        layout: Layout,
    ) -> Result<(Value, Value)> {
        let factors = [k.load(operands.queries)?, k.load(operands.keys)?];
        let scores = self.scores(k, at, &operands.masks, factors, layout)?;
        let shifted = k.sub(scores.scores, saved[0])?;
        let probabilities = k.exp(shifted)?;
        let (gradient, values) = (k.load(operands.gradient)?, k.load(operands.values)?);
        let of_probabilities = match layout {
            Layout::Queries => k.matmul_transposed(gradient, values)?,
            Layout::Keys => k.matmul_transposed(values, gradient)?,
        };
        let kept = self.kept(k, at, &operands.masks, Dropped::Weights, layout)?;
        let of_probabilities = without_dropped(k, kept, of_probabilities)?;
        let centred = k.sub(of_probabilities, saved[1])?;
        let of_scores = k.mul(probabilities, centred)?;
        let of_products = self.of_products(k, &scores, of_scores)?;
        let probabilities = without_dropped(k, kept, probabilities)?;
        Ok((k.cast(probabilities, self.element)?, k.cast(of_products, self.element)?))
    }

    /// Stores a sum times a factor as a result.
    fn finish(&self, k: &mut KernelBuilder, sum: Ref, result: Ref, factor: f32) -> Result<()> {
        let (sum, factor) = (k.load(sum)?, k.float(factor));
        let scaled = k.mul(sum, factor)?;
        let rounded = k.cast(scaled, self.element)?;
        k.store(result, rounded)
    }
}

fn store_zero(k: &mut KernelBuilder, to: Ref) -> Result<()> {
    let zero = k.float(0.0);
    k.store(to, zero)
}

fn accumulate(k: &mut KernelBuilder, sum: Ref, added: Value) -> Result<()> {
    let before = k.load(sum)?;
    let after = k.add(before, added)?;
    k.store(sum, after)
}

fn store_column(k: &mut KernelBuilder, row: Ref, column: Ref) -> Result<()> {
    let row = k.load(row)?;
    let turned = to_column(k, row)?;
    k.store(column, turned)
}
