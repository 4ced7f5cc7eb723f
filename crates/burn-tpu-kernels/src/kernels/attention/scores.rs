//! The masked scores of a block of queries and a block of keys, which all three kernels compute alike.

use super::dropout::{Dropped, without_dropped};
use super::{Attention, Masks, Place};
use crate::{Binary, Comparison, Element, Index, KernelBuilder, Reduction, Result, Unary, Value};

/// The score of a key that is not seen. Its exponential is zero beside any maximum that a row may have.
const HIDDEN: f32 = -2.4e38;
/// The maximum of no scores, so far below all scores that their exponentials decay to zero, and so far above `HIDDEN`.
pub(super) const EMPTY: f32 = -1.2e38;

/// How a matrix of scores is laid out.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Layout {
    /// A row for each query.
    Queries,
    /// A row for each key.
    Keys,
}

/// Scores, the hyperbolic tangent that capped them, and which of them are kept.
pub(super) struct Scores {
    pub scores: Value,
    tanh: Option<Value>,
    kept: Option<Value>,
}

impl Attention {
    /// Computes the scores of a block of queries and a block of keys.
    pub(super) fn scores(
        &self,
        k: &mut KernelBuilder,
        at: &Place,
        masks: &Masks,
        [queries, keys]: [Value; 2],
        layout: Layout,
    ) -> Result<Scores> {
        let products = match layout {
            Layout::Queries => k.matmul_transposed(queries, keys)?,
            Layout::Keys => k.matmul_transposed(keys, queries)?,
        };
        let scale = k.float(self.scale / self.softcap.unwrap_or(1.0));
        let (mut scores, mut tanh) = (k.mul(products, scale)?, None);
        if let Some(softcap) = self.softcap {
            let (capped, softcap) = (k.unary(Unary::Tanh, scores)?, k.float(softcap));
            (scores, tanh) = (k.mul(capped, softcap)?, Some(capped));
        }
        let kept = self.kept(k, at, masks, Dropped::Scores, layout)?;
        scores = without_dropped(k, kept, scores)?;
        for &bias in &masks.biases {
            let bias = k.load(bias)?;
            let bias = k.cast(bias, Element::F32)?;
            let bias = if layout == Layout::Keys { turned(k, bias)? } else { bias };
            scores = k.add(scores, bias)?;
        }
        if let Some(seen) = self.seen(k, at, masks, layout)? {
            let hidden = k.float(HIDDEN);
            scores = k.select(seen, scores, hidden)?;
        }
        Ok(Scores { scores, tanh, kept })
    }

    /// Returns the gradient of `scale * q k^T` from that of the scores, without the factor `scale`.
    pub(super) fn of_products(&self, k: &mut KernelBuilder, scores: &Scores, gradient: Value) -> Result<Value> {
        let gradient = without_dropped(k, scores.kept, gradient)?;
        let Some(tanh) = scores.tanh else { return Ok(gradient) };
        let (one, square) = (k.float(1.0), k.mul(tanh, tanh)?);
        let slope = k.sub(one, square)?;
        k.mul(gradient, slope)
    }

    /// Returns which keys are seen by which queries; `None` if all are.
    fn seen(&self, k: &mut KernelBuilder, at: &Place, masks: &Masks, layout: Layout) -> Result<Option<Value>> {
        let mut conditions = self.in_band(k, at, layout)?;
        if let Some(lengths) = masks.lengths {
            let (dims, query_dim) = self.layout(layout);
            let (key, length) = (k.iota(&dims, 1 - query_dim)?, k.load_scalar(lengths, &at.batch)?);
            let first_key = k.index(&self.first(at).1)?;
            let length = k.sub(length, first_key)?;
            conditions.push(k.compare(Comparison::Less, key, length)?);
        }
        all(k, conditions)
    }

    /// Returns, for each bound of the band, which keys it lets which queries see.
    fn in_band(&self, k: &mut KernelBuilder, at: &Place, layout: Layout) -> Result<Vec<Value>> {
        let upper = self.band.right.map(|right| (Comparison::LessEqual, right));
        let lower = self.band.left.map(|left| (Comparison::GreaterEqual, -left));
        let bounds: Vec<_> = upper.into_iter().chain(lower).collect();
        if bounds.is_empty() {
            return Ok(Vec::new());
        }
        let (dims, query_dim) = self.layout(layout);
        let (query, key) = (k.iota(&dims, query_dim)?, k.iota(&dims, 1 - query_dim)?);
        let from_query = k.sub(key, query)?;
        let (first_query, first_key) = self.first(at);
        let own = first_query - first_key;
        let within = |(comparison, bound): (Comparison, i32)| {
            let bound = k.index(&(own.clone() + bound))?;
            k.compare(comparison, from_query, bound)
        };
        bounds.into_iter().map(within).collect()
    }

    /// Returns the sizes of a block of scores, and which of them counts the queries.
    pub(super) fn layout(&self, layout: Layout) -> ([usize; 2], usize) {
        let [queries, keys] = [self.blocks.queries, self.blocks.keys];
        match layout {
            Layout::Queries => ([queries, keys], 0),
            Layout::Keys => ([keys, queries], 1),
        }
    }

    /// Runs a body where some query of the step sees some key.
    pub(super) fn when_seen(
        &self,
        k: &mut KernelBuilder,
        at: &Place,
        masks: &Masks,
        body: impl FnOnce(&mut KernelBuilder) -> Result<()>,
    ) -> Result<()> {
        let (first_query, first_key) = self.first(at);
        let last_query = first_query.clone() + (self.blocks.queries as i32 - 1);
        let last_key = first_key.clone() + (self.blocks.keys as i32 - 1);
        let mut conditions = Vec::new();
        if let Some(right) = self.band.right {
            conditions.push(compare(k, Comparison::LessEqual, first_key.clone(), last_query + right)?);
        }
        if let Some(left) = self.band.left {
            conditions.push(compare(k, Comparison::GreaterEqual, last_key, first_query - left)?);
        }
        if let Some(lengths) = masks.lengths {
            let (first_key, length) = (k.index(&first_key)?, k.load_scalar(lengths, &at.batch)?);
            conditions.push(k.compare(Comparison::Less, first_key, length)?);
        }
        match all(k, conditions)? {
            Some(condition) => k.when(condition, body),
            None => body(k),
        }
    }

    /// Returns the positions of the first query and of the first key of a step.
    fn first(&self, at: &Place) -> (Index, Index) {
        let first_query = at.query.clone() * self.blocks.queries as i32 + self.band.offset;
        (first_query, at.key.clone() * self.blocks.keys as i32)
    }
}

/// Returns a bias with a row for each key.
fn turned(k: &mut KernelBuilder, bias: Value) -> Result<Value> {
    match k.ty(bias)?.dims[0] {
        1 => to_column(k, bias),
        _ => k.transpose(bias),
    }
}

/// Returns a row as a column: 128 copies of it, which are whole registers, transposed.
pub(super) fn to_column(k: &mut KernelBuilder, row: Value) -> Result<Value> {
    let columns = k.ty(row)?.dims[1];
    let copies = k.broadcast(row, &[128, columns])?;
    let copies = k.transpose(copies)?;
    k.reduce(Reduction::Max, copies, 1)
}

/// Returns the comparison of two expressions of the grid.
fn compare(k: &mut KernelBuilder, op: Comparison, x: Index, y: Index) -> Result<Value> {
    let (x, y) = (k.index(&x)?, k.index(&y)?);
    k.compare(op, x, y)
}

/// Runs a body in the steps whose indices along these axes are those.
pub(super) fn when_at(
    k: &mut KernelBuilder,
    axes: &[(usize, usize)],
    body: impl FnOnce(&mut KernelBuilder) -> Result<()>,
) -> Result<()> {
    let equal = |k: &mut KernelBuilder, (axis, at): (usize, usize)| {
        compare(k, Comparison::Equal, Index::grid(axis), Index::from(at as i32))
    };
    let conditions = axes.iter().map(|&axis| equal(k, axis)).collect::<Result<Vec<_>>>()?;
    match all(k, conditions)? {
        Some(condition) => k.when(condition, body),
        None => body(k),
    }
}

/// Returns whether all conditions are true; `None` without any.
fn all(k: &mut KernelBuilder, conditions: Vec<Value>) -> Result<Option<Value>> {
    let mut conditions = conditions.into_iter();
    let Some(first) = conditions.next() else { return Ok(None) };
    conditions.try_fold(first, |x, y| k.binary(Binary::And, x, y)).map(Some)
}
