//! Means of values over the keys that blocks leave out.

use super::part::{Parts, whole};
use burn_tpu_graph::op::{BinaryOp, Combine};
use burn_tpu_graph::{Builder, GraphError, NodeId, Rebuild};
use std::collections::HashMap;
use std::ops::Range;

/// The means that were added to a graph, and what they share: blocks leave out overlapping ranges of keys.
#[derive(Default)]
pub(super) struct Means {
    means: HashMap<(NodeId, usize, Range<usize>), NodeId>,
    /// The sum over a range, divided by the number of all keys: no sum of finite numbers overflows.
    shares: HashMap<(NodeId, usize, Range<usize>), NodeId>,
}

impl Means {
    /// Returns the mean of an old value over a range of a dim, which has size 1 then. With the range comes where the ranges
    /// of all blocks begin and end, in order.
    pub(super) fn add(
        &mut self,
        new: &mut Rebuild,
        parts: &mut Parts,
        id: NodeId,
        dim: usize,
        (range, ends): (&Range<usize>, &[usize]),
    ) -> Result<NodeId, GraphError> {
        if let Some(&mean) = self.means.get(&(id, dim, range.clone())) {
            return Ok(mean);
        }
        let ty = new.old().ty(id).clone();
        let middle = ends.iter().copied().filter(|end| range.start < *end && *end < range.end);
        let cuts: Vec<usize> = [range.start].into_iter().chain(middle).chain([range.end]).collect();
        let mut sum = self.share(new, parts, id, dim, cuts[0]..cuts[1])?;
        for cut in cuts.windows(2).skip(1) {
            let share = self.share(new, parts, id, dim, cut[0]..cut[1])?;
            sum = new.graph.binary(BinaryOp::Add, sum, share)?;
        }
        let scaled = new.graph.binary_const(BinaryOp::Mul, sum, ty.dims[dim] as f64 / range.len() as f64)?;
        let mean = new.graph.convert(scaled, ty.dtype)?;
        self.means.insert((id, dim, range.clone()), mean);
        Ok(mean)
    }

    fn share(
        &mut self,
        new: &mut Rebuild,
        parts: &mut Parts,
        id: NodeId,
        dim: usize,
        range: Range<usize>,
    ) -> Result<NodeId, GraphError> {
        if let Some(&share) = self.shares.get(&(id, dim, range.clone())) {
            return Ok(share);
        }
        let dims = &new.old().ty(id).dims;
        let all = dims[dim] as f64;
        let mut part = whole(dims);
        part[dim] = range.clone();
        let value = parts.add(&mut new.graph, &new.renamed, id, part)?;
        let graph = &mut new.graph;
        let wide = graph.convert(value, graph.dtype(value).accumulator())?;
        let scaled = graph.binary_const(BinaryOp::Mul, wide, 1.0 / all)?;
        let share = graph.accumulate_keepdim(Combine::Sum, scaled, dim)?;
        self.shares.insert((id, dim, range), share);
        Ok(share)
    }
}
