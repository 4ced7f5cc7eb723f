//! A convolution with one group for each feature is a sum of shifted products: XLA's CPU compiler has no good code for so
//! many groups.
//!
//! ```text
//! convolution(x, w), one group a feature    -> sum over taps k: slice(pad(x), k) * broadcast(w[k])
//! the gradient of w, one group a feature    -> loop over taps k: reduce_sum(dynamic_slice(pad(x), k) * dy)
//! ```
//!
//! The gradient of `x` is such a convolution too, of a padded gradient.
//!
//! # Why it is exact
//! A convolution is defined as this sum of products over the padded input, whose padding and holes are zeros. Products and
//! sums have the convolution's own accumulation type and are rounded to its result once. The order of the sum is that of the
//! taps, from zero on.
//!
//! When it is no loss. Groups of one feature each, and at most [`MOST_TAPS`] taps, which are as many operations for the
//! compiler. For CPUs alone: a TPU's compiler has a form of its own. A program on a mesh is left alone, since its
//! partitioner knows convolutions.
//!
//! Gain: `docs/decisions/0060-depthwise-convolutions-on-cpus.md`.

use crate::{Pass, Rewritten};
use burn_tpu_graph::op::{BinaryOp, Combine, ConvAttrs, ConvDims};
use burn_tpu_graph::{Builder, DType, Dims, Graph, GraphError, NodeId, Op, Program};

/// The most taps of a kernel: 7 by 7 is 49.
const MOST_TAPS: usize = 64;

/// The pass that writes convolutions of one feature a group as sums of products. See the module's documentation.
#[derive(Clone, Copy, Debug, Default)]
pub struct Depthwise;

impl Pass for Depthwise {
    fn name(&self) -> &'static str {
        "depthwise"
    }

    fn run(&self, program: &Program) -> Result<Rewritten, GraphError> {
        let mut count = 0;
        let rewritten = program.rebuild(|new, id| {
            let Some(found) = find(program, id) else { return new.copy(id) };
            count += 1;
            let (x, other) = (new.renamed.id(found.operands[0])?, new.renamed.id(found.operands[1])?);
            found.add(&mut new.graph, x, other)
        })?;
        Ok(Rewritten { program: if count == 0 { program.clone() } else { rewritten }, count })
    }
}

/// What a convolution of one feature a group computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The sum of taps, `[batch, features, spatial...]`.
    Convolution,
    /// The gradient of the kernel, `[features, 1, taps...]`, whose kernel operand is the gradient of the result.
    KernelGradient,
}

struct Found<'a> {
    kind: Kind,
    attrs: &'a ConvAttrs,
    operands: [NodeId; 2],
    /// The spatial dims of the sum of taps: of the result, or of its gradient.
    places: Dims,
    /// The spatial dims of the kernel.
    taps: Dims,
    result: Dims,
}

/// Returns the convolution of one feature a group that a node is.
fn find(program: &Program, id: NodeId) -> Option<Found<'_>> {
    let (graph, node) = (program.graph(), program.graph().node(id));
    let (Op::Convolution(attrs), &[x, other]) = (&node.op, &node.operands[..]) else { return None };
    let (input, kernel, result) = (&graph.ty(x).dims, &graph.ty(other).dims, &node.ty.dims);
    let features = input[1];
    let (kind, places, taps) = if attrs.feature_groups == features && is_convolution(attrs, kernel, result, features) {
        (Kind::Convolution, &result[2..], &kernel[2..])
    } else if attrs.batch_groups == features && is_kernel_gradient(attrs, kernel, features) {
        (Kind::KernelGradient, &kernel[2..], &result[2..])
    } else {
        return None;
    };
    let is_one_of_many = features > 1 && (1..=MOST_TAPS).contains(&taps.iter().product::<usize>());
    let found = Found {
        kind,
        attrs,
        operands: [x, other],
        places: Dims::from_slice(places),
        taps: Dims::from_slice(taps),
        result: result.clone(),
    };
    (is_one_of_many && node.ty.elements() > 0 && program.mesh().is_none()).then_some(found)
}

/// Returns whether each group of a convolution has one feature and makes one. A kernel `[features, 1, ...]` and one of
/// `[1, features, ...]` have their elements in one order.
fn is_convolution(attrs: &ConvAttrs, kernel: &[usize], result: &[usize], features: usize) -> bool {
    attrs.batch_groups == 1
        && is_in_order(&attrs.input, [0, 1])
        && is_in_order(&attrs.output, [0, 1])
        && (is_in_order(&attrs.kernel, [0, 1]) || is_in_order(&attrs.kernel, [1, 0]))
        && kernel[attrs.kernel.feature] == 1
        && result[1] == features
}

/// Returns whether a convolution is the gradient of such a kernel: features are its batch, one a group.
fn is_kernel_gradient(attrs: &ConvAttrs, gradient: &[usize], features: usize) -> bool {
    let roles = [&attrs.input, &attrs.kernel, &attrs.output];
    attrs.feature_groups == 1 && roles.into_iter().all(|roles| is_in_order(roles, [1, 0])) && gradient[1] == features
}

fn is_in_order(roles: &ConvDims, [batch, feature]: [usize; 2]) -> bool {
    roles.batch == batch && roles.feature == feature && roles.spatial.iter().copied().eq(2..2 + roles.spatial.len())
}

impl Found<'_> {
    /// Adds the sum of products.
    fn add(&self, graph: &mut Graph, x: NodeId, other: NodeId) -> Result<NodeId, GraphError> {
        let wide = graph.convert(x, self.attrs.result)?;
        let other = graph.convert(other, self.attrs.result)?;
        let padded = self.padded(graph, wide)?;
        match self.kind {
            Kind::Convolution => self.sum_of_taps(graph, padded, other),
            Kind::KernelGradient => self.sums_by_tap(graph, padded, other),
        }
    }

    /// Adds the input with the zeros before, after and between its elements.
    fn padded(&self, graph: &mut Graph, x: NodeId) -> Result<NodeId, GraphError> {
        let rank = graph.rank(x);
        let (mut low, mut high, mut interior) = (vec![0; rank], vec![0; rank], vec![0; rank]);
        for (i, &edges) in self.attrs.padding.iter().enumerate() {
            (low[i + 2], high[i + 2]) = edges;
            interior[i + 2] = self.attrs.lhs_dilation[i] - 1;
        }
        let zero = graph.scalar(self.attrs.result, 0.0)?;
        graph.pad(x, zero, &low, &high, &interior)
    }

    fn sum_of_taps(&self, graph: &mut Graph, padded: NodeId, kernel: NodeId) -> Result<NodeId, GraphError> {
        let features = self.result[1];
        let taps: Dims = [features].into_iter().chain(self.taps.iter().copied()).collect();
        let kernel = graph.reshape(kernel, &taps)?;
        let mut sum = graph.splat(self.attrs.result, &self.result, 0.0)?;
        for tap in indices(&self.taps) {
            let seen = self.seen(graph, padded, &tap)?;
            let starts: Dims = [0].into_iter().chain(tap.iter().copied()).collect();
            let limits: Dims = [features].into_iter().chain(tap.iter().map(|place| place + 1)).collect();
            let weight = graph.slice(kernel, &starts, &limits, &Dims::from_elem(1, starts.len()))?;
            let weight = graph.reshape(weight, &[features])?;
            let weight = graph.broadcast_in_dim(weight, &self.result, &[1])?;
            let product = graph.binary(BinaryOp::Mul, seen, weight)?;
            sum = graph.binary(BinaryOp::Add, sum, product)?;
        }
        Ok(sum)
    }

    /// Adds what a tap of the kernel is multiplied with at each place.
    fn seen(&self, graph: &mut Graph, padded: NodeId, tap: &[usize]) -> Result<NodeId, GraphError> {
        let (mut starts, mut limits) = (Dims::from_elem(0, tap.len() + 2), graph.dims(padded));
        for (i, &place) in tap.iter().enumerate() {
            starts[i + 2] = place * self.attrs.rhs_dilation[i];
            limits[i + 2] = starts[i + 2] + (self.places[i] - 1) * self.attrs.strides[i] + 1;
        }
        let steps: Dims = [1, 1].into_iter().chain(self.attrs.strides.iter().copied()).collect();
        graph.slice(padded, &starts, &limits, &steps)
    }

    /// Adds a loop over the taps, each of whose trips sums the products of one: a sum for each tap would take the compiler
    /// five times as long, and runs no faster.
    fn sums_by_tap(&self, graph: &mut Graph, padded: NodeId, gradient: NodeId) -> Result<NodeId, GraphError> {
        let taps = self.taps.iter().product::<usize>();
        let sums = graph.splat(self.attrs.result, &[taps, self.result[0]], 0.0)?;
        let but_features: Dims = (0..self.result.len()).filter(|&dim| dim != 1).collect();
        let carries = [padded, gradient, sums];
        let [_, _, sums] = graph.for_loop(taps, carries, |g, tap, [padded, gradient, sums]| {
            let seen = self.seen_by(g, padded, tap)?;
            let product = g.binary(BinaryOp::Mul, seen, gradient)?;
            let sum = g.reduce(Combine::Sum, product, &but_features)?;
            let sum = g.reshape(sum, &[1, self.result[0]])?;
            let zero = g.scalar(DType::I32, 0i64)?;
            let sums = g.dynamic_update_slice(sums, sum, &[tap, zero])?;
            Ok([padded, gradient, sums])
        })?;
        let sums = graph.transpose(sums, &[1, 0])?;
        graph.reshape(sums, &self.result)
    }

    /// Adds what the tap of a number, `i32[]`, is multiplied with at each place. In the gradient of a kernel, the distances
    /// of taps are the convolution's strides, and those of places its dilation.
    fn seen_by(&self, graph: &mut Graph, padded: NodeId, tap: NodeId) -> Result<NodeId, GraphError> {
        let zero = graph.scalar(DType::I32, 0i64)?;
        let (mut starts, mut sizes) = (vec![zero; graph.rank(padded)], graph.dims(padded));
        let mut inner = 1;
        for (i, &taps) in self.taps.iter().enumerate().rev() {
            let index = graph.binary_const(BinaryOp::Div, tap, inner)?;
            let index = graph.binary_const(BinaryOp::Rem, index, taps as i64)?;
            starts[i + 2] = graph.binary_const(BinaryOp::Mul, index, self.attrs.strides[i] as i64)?;
            sizes[i + 2] = (self.places[i] - 1) * self.attrs.rhs_dilation[i] + 1;
            inner *= taps as i64;
        }
        let reach = graph.dynamic_slice(padded, &starts, &sizes)?;
        let steps: Dims = [1, 1].into_iter().chain(self.attrs.rhs_dilation.iter().copied()).collect();
        graph.slice(reach, &Dims::from_elem(0, sizes.len()), &sizes, &steps)
    }
}

/// Returns all indices of these dims, the last dim fastest.
fn indices(dims: &[usize]) -> Vec<Dims> {
    let mut all = vec![Dims::new()];
    for &size in dims {
        let longer = |index: &Dims| {
            let index = index.clone();
            (0..size).map(move |place| index.iter().copied().chain([place]).collect())
        };
        all = all.iter().flat_map(longer).collect();
    }
    all
}

#[cfg(test)]
mod tests;
