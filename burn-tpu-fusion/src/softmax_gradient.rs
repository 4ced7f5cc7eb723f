//! The gradient of softmax in attention sums over a head's width instead of over all keys.
//!
//! The gradient of a softmax needs, for each row, the sum of probabilities times their gradients. In attention those
//! gradients are a product, and its sum is known without them:
//!
//! ```text
//! sum over keys of p * (do v^T)   =   sum over the head's width of do * (p v)
//! ```
//!
//! and `p v` is what attention returned. Recorded op by op, it is the sum on the left: a pass over the scores of all pairs
//! of a query and a key, for which XLA writes `do v^T` to memory or computes it twice. This pass records the sum on the
//! right.
//!
//! It finds the sum over the last dim of a product of factors, one of which is `do v^T`, where a product `x v` exists whose
//! `x` has all the other factors that vary from key to key. What varies from query to query alone is moved out of the sum.
//! So it does not matter in which order softmax and its gradient multiply and divide, nor whether dropout is a factor of
//! both.
//!
//! What attention returns is kept from the forward to the backward pass, and people merge its heads before they use it:
//! `[batch, heads, rows, 64]` is transposed and reshaped to `[batch, rows, heads * 64]`. A TPU pads rows of 64 numbers to
//! 128, so XLA would keep both forms, or the padded one. The sum reads the merged form, and a barrier after it keeps XLA
//! from taking the other one. XLA would also convert 16-bit floats to f32 before it moves them, twice the bytes: a second
//! barrier has it move them first.
//!
//! # Why it is exact
//! Both are the sum of `p[k] * do[d] * v[k, d]` over `k` and `d`, in another order, in f32 or wider.
//! - An infinity or NaN in `p`, `do` or `v` is in a term of both, and zero times infinity is NaN: neither is finite. Which
//!   of NaN, infinity and -infinity it is can differ if `do` is infinite.
//! - A factor `r` that varies from query to query alone: the sum of `r * x` is `r` times the sum of `x`. If `r` is not
//!   finite, neither is.
//! - A number that multiplies all weights, as the scale of dropout does, multiplies the product instead.
//! - Any other factor of the product `p v` that the sum lacks would have to be taken back, which cannot be done if it is
//!   zero or infinite. Such sums are left as they are, but for one: the product has `x / r` and the sum `x / r^2`. If
//!   `r^2` is infinite, both are zero (or NaN, as above): `r` counts as the largest finite number then, and `r / r^2` is
//!   zero. If `r` is zero, neither is finite.
//!
//! Rounding differs, so the bits do. An overflow is a rounding too: it can make `do v^T` infinite at a key of a small
//! weight, and not `p v`.
//!
//! Gain: `docs/decisions/0028-attention-in-blocks-of-queries.md`; of the merged form,
//! `docs/decisions/0042-attention-is-kept-with-its-heads-merged.md`.

use crate::number::number;
use crate::readers::Readers;
use crate::{Pass, Rewritten};
use burn_tpu_graph::op::{BinaryOp, Combine, DotAttrs, UnaryOp};
use burn_tpu_graph::{Builder, DType, Dims, Graph, GraphError, NodeId, Op, Program, Renaming};
use std::collections::{BTreeMap, BTreeSet};

/// The pass that sums over a head's width. See the module's documentation.
#[derive(Clone, Copy, Debug, Default)]
pub struct SoftmaxGradient;

impl Pass for SoftmaxGradient {
    fn name(&self) -> &'static str {
        "softmax_gradient"
    }

    fn run(&self, program: &Program) -> Result<Rewritten, GraphError> {
        let (sums, scaled) = find(program);
        if scaled.is_empty() {
            return rewritten(program, &sums);
        }
        let moved = scaled_later(program, &scaled)?;
        let (more, _) = find(&moved);
        if more.len() > sums.len() { rewritten(&moved, &more) } else { rewritten(program, &sums) }
    }
}

/// Returns the sums of a program, and the products of scaled weights that are the reason why others are none.
fn find(program: &Program) -> (BTreeMap<NodeId, Sum>, BTreeSet<NodeId>) {
    let graph = program.graph();
    let products = RowProduct::all(graph);
    let readers = Readers::all(program);
    let (mut sums, mut scaled) = (BTreeMap::new(), BTreeSet::new());
    for id in graph.ids() {
        if let Some(sum) = Sum::find(graph, id, &products, &readers, &mut scaled) {
            sums.insert(id, sum);
        }
    }
    (sums, scaled)
}

fn rewritten(program: &Program, sums: &BTreeMap<NodeId, Sum>) -> Result<Rewritten, GraphError> {
    if sums.is_empty() {
        return Ok(Rewritten { program: program.clone(), count: 0 });
    }
    let kept: BTreeSet<NodeId> = sums.values().filter_map(|sum| sum.merged.last().copied()).collect();
    let rewritten = program.rebuild(|new, id| {
        let added = match sums.get(&id) {
            Some(sum) => sum.add(program.graph(), &mut new.graph, &new.renamed)?,
            None => new.copy(id)?,
        };
        if kept.contains(&id) { new.graph.optimization_barrier(added) } else { Ok(added) }
    })?;
    Ok(Rewritten { program: rewritten, count: sums.len() })
}

/// Returns the program in which these products are scaled instead of their weights.
fn scaled_later(program: &Program, products: &BTreeSet<NodeId>) -> Result<Program, GraphError> {
    let old = program.graph();
    program.rebuild(|new, id| {
        let node = old.node(id);
        let weights = Some(id).filter(|id| products.contains(id)).and_then(|_| scaled(old, node.operands[0]));
        let Some((weights, scale)) = weights else { return new.copy(id) };
        let (weights, matrix) = (new.renamed.id(weights)?, new.renamed.id(node.operands[1])?);
        let scale = new.renamed.id(scale)?;
        new.label(id);
        let graph = &mut new.graph;
        let product = graph.add(node.op.clone(), &[weights, matrix])?;
        let product = graph.convert(product, graph.dtype(weights))?;
        let scale = graph.reshape(scale, &[])?;
        let scale = graph.broadcast_like(scale, product)?;
        let scaled = graph.binary(BinaryOp::Mul, product, scale)?;
        graph.convert(scaled, node.ty.dtype)
    })
}

/// Returns weights and the number by which a value multiplies all of them, such as the scale of dropout.
fn scaled(graph: &Graph, id: NodeId) -> Option<(NodeId, NodeId)> {
    let (Op::Binary(BinaryOp::Mul), &[lhs, rhs]) = (&graph.node(id).op, &graph.node(id).operands[..]) else {
        return None;
    };
    number(graph, rhs).map(|scale| (lhs, scale)).or_else(|| number(graph, lhs).map(|scale| (rhs, scale)))
}

/// A product `[batch.., rows, columns]` of rows and a matrix.
struct RowProduct {
    id: NodeId,
    /// The product in the type that it is rounded to.
    result: NodeId,
    rows: NodeId,
    matrix: Matrix,
}

/// A matrix as the right side of a product. Equal ones have the same elements in the same roles.
#[derive(PartialEq, Eq)]
struct Matrix {
    value: NodeId,
    batch: Dims,
    contracted: usize,
    free: usize,
}

impl RowProduct {
    /// Returns all of a graph, in its order.
    fn all(graph: &Graph) -> Vec<Self> {
        let mut products: Vec<Self> = Vec::new();
        for (index, node) in graph.nodes().iter().enumerate() {
            let id = NodeId(index as u32);
            if let (Op::Convert { .. }, &[operand]) = (&node.op, &node.operands[..])
                && let Ok(place) = products.binary_search_by_key(&operand, |product| product.id)
            {
                products[place].result = id;
            }
            products.extend(Self::of(graph, id));
        }
        products
    }

    /// Returns the product that a node is.
    fn of(graph: &Graph, id: NodeId) -> Option<Self> {
        let (Op::DotGeneral(attrs), &[rows, matrix]) = (&graph.node(id).op, &graph.node(id).operands[..]) else {
            return None;
        };
        let batch = attrs.lhs_batch.len();
        let is_standard =
            |attrs: &DotAttrs| attrs.lhs_batch.iter().copied().eq(0..batch) && attrs.lhs_contract[..] == [batch + 1];
        let ranks = [rows, matrix].map(|id| graph.rank(id));
        (ranks == [batch + 2; 2] && is_standard(attrs)).then(|| Self {
            id,
            result: id,
            rows,
            matrix: Matrix::of(graph, matrix, &attrs.rhs_batch, attrs.rhs_contract[0]),
        })
    }
}

impl Matrix {
    fn of(graph: &Graph, id: NodeId, batch: &[usize], contracted: usize) -> Self {
        let free = (0..batch.len() + 2).find(|dim| !batch.contains(dim) && *dim != contracted).unwrap_or_default();
        let mut matrix = Self { value: id, batch: Dims::from_slice(batch), contracted, free };
        while let Op::Transpose { permutation } = &graph.node(matrix.value).op {
            matrix.value = graph.node(matrix.value).operands[0];
            matrix.batch.iter_mut().for_each(|dim| *dim = permutation[*dim]);
            (matrix.contracted, matrix.free) = (permutation[matrix.contracted], permutation[matrix.free]);
        }
        matrix
    }

    fn is_transposed(&self, other: &Self) -> bool {
        self.value == other.value
            && self.batch == other.batch
            && (self.contracted, self.free) == (other.free, other.contracted)
    }
}

/// The factors of a value `[.., rows, columns]`.
#[derive(Default)]
struct Factors {
    /// The factors that vary along the columns.
    values: Vec<NodeId>,
    /// The factors that are the same for all columns.
    rows: Vec<(NodeId, Scale)>,
    is_negative: bool,
}

/// How a factor that is the same for all columns scales a sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scale {
    Multiplies,
    Divides,
    /// It divides, and is the square of this one, by which the product is divided.
    DividesAsSquare(NodeId),
}

impl Factors {
    fn of(graph: &Graph, id: NodeId) -> Self {
        let mut factors = Self::default();
        factors.collect(graph, id);
        factors
    }

    fn collect(&mut self, graph: &Graph, id: NodeId) {
        let node = graph.node(id);
        match (&node.op, &node.operands[..]) {
            (Op::Binary(BinaryOp::Mul), &[lhs, rhs]) => [lhs, rhs].into_iter().for_each(|id| self.collect(graph, id)),
            (Op::Binary(BinaryOp::Div), &[lhs, rhs]) if is_row(graph, rhs) => {
                self.collect(graph, lhs);
                self.rows.push((rhs, Scale::Divides));
            }
            (Op::Unary(UnaryOp::Neg), &[x]) => {
                self.collect(graph, x);
                self.is_negative = !self.is_negative;
            }
            (Op::Convert { .. }, &[x]) if graph.dtype(x).is_float() => self.collect(graph, x),
            _ if is_row(graph, id) => self.rows.push((id, Scale::Multiplies)),
            _ => self.values.push(id),
        }
    }
}

/// Returns whether a value is the same for all columns.
fn is_row(graph: &Graph, id: NodeId) -> bool {
    let node = graph.node(id);
    let Op::BroadcastInDim { mapping, .. } = &node.op else { return false };
    let last = node.ty.rank().saturating_sub(1);
    let source = &graph.ty(node.operands[0]).dims;
    mapping.iter().zip(source).all(|(&dim, &size)| dim != last || size == 1)
}

/// A sum over the columns of a product times other factors, which is a sum over the width of that product.
struct Sum {
    dtype: DType,
    gradient: NodeId,
    /// The product with the other factors.
    product: NodeId,
    /// The ops that merge the product's heads, in their order.
    merged: Vec<NodeId>,
    rows: Vec<(NodeId, Scale)>,
    is_negative: bool,
}

impl Sum {
    fn find(
        graph: &Graph,
        id: NodeId,
        products: &[RowProduct],
        readers: &[Readers],
        blocked: &mut BTreeSet<NodeId>,
    ) -> Option<Self> {
        let node = graph.node(id);
        let Op::Reduce { combine: Combine::Sum, dims } = &node.op else { return None };
        let is_last_dim = dims[..] == [node.ty.rank()];
        if !is_last_dim || !node.ty.dtype.is_float() || node.ty.dtype.is_half() {
            return None;
        }
        let factors = Factors::of(graph, *node.operands.first()?);
        for (place, &value) in factors.values.iter().enumerate() {
            let Ok(gradient) = products.binary_search_by_key(&value, |product| product.id) else { continue };
            let gradient = &products[gradient];
            let mut others = factors.values.clone();
            others.remove(place);
            if others.is_empty() {
                continue;
            }
            for product in products.iter().take_while(|product| product.result < id) {
                if !product.matrix.is_transposed(&gradient.matrix) {
                    continue;
                }
                let own = Factors::of(graph, product.rows);
                if !is_same(graph, &own.values, &others) {
                    continue;
                }
                if let Some(rows) = scales(graph, &factors.rows, &own.rows) {
                    return Some(Self {
                        dtype: node.ty.dtype,
                        gradient: gradient.rows,
                        product: product.result,
                        merged: merged(graph, readers, product.result, id),
                        rows,
                        is_negative: factors.is_negative != own.is_negative,
                    });
                }
                blocked.extend(scaled(graph, product.rows).map(|_| product.id));
            }
        }
        None
    }

    /// Adds the sum over the width.
    fn add(&self, old: &Graph, graph: &mut Graph, renamed: &Renaming) -> Result<NodeId, GraphError> {
        let dtype = self.dtype;
        let (gradient, product) = (renamed.id(self.gradient)?, self.split(old, graph, renamed)?);
        let (gradient, product) = (graph.convert(gradient, dtype)?, graph.convert(product, dtype)?);
        let products = graph.binary(BinaryOp::Mul, gradient, product)?;
        let width = graph.rank(products) - 1;
        let mut sum = graph.reduce(Combine::Sum, products, &[width])?;
        let dims = graph.dims(sum);
        for &(row, scale) in &self.rows {
            let factor = self.row(old, graph, renamed, row, &dims)?;
            let (op, factor) = match scale {
                Scale::Multiplies => (BinaryOp::Mul, factor),
                Scale::Divides => (BinaryOp::Div, factor),
                Scale::DividesAsSquare(root) => {
                    let root = self.row(old, graph, renamed, root, &dims)?;
                    let root = finite(graph, root)?;
                    (BinaryOp::Mul, graph.binary(BinaryOp::Div, root, factor)?)
                }
            };
            sum = graph.binary(op, sum, factor)?;
        }
        if self.is_negative { graph.unary(UnaryOp::Neg, sum) } else { Ok(sum) }
    }

    /// Adds a factor that is the same for all columns, without the dim of the columns.
    fn row(
        &self,
        old: &Graph,
        graph: &mut Graph,
        renamed: &Renaming,
        row: NodeId,
        dims: &[usize],
    ) -> Result<NodeId, GraphError> {
        let row = old.node(row);
        let Op::BroadcastInDim { mapping, .. } = &row.op else { return renamed.id(row.operands[0]) };
        let source = row.operands[0];
        // The dim of the columns has one element, if the source has it.
        let (mapping, kept): (Dims, Dims) =
            mapping.iter().copied().zip(old.dims(source)).filter(|&(dim, _)| dim != dims.len()).unzip();
        let row = graph.reshape(renamed.id(source)?, &kept)?;
        let row = graph.broadcast_in_dim(row, dims, &mapping)?;
        graph.convert(row, self.dtype)
    }

    /// Adds the product, from the value with merged heads.
    fn split(&self, old: &Graph, graph: &mut Graph, renamed: &Renaming) -> Result<NodeId, GraphError> {
        let kept = renamed.id(*self.merged.last().unwrap_or(&self.product))?;
        self.merged.iter().rev().try_fold(kept, |value, &id| match &old.node(id).op {
            Op::Transpose { permutation } => {
                let place = |dim: usize| permutation.iter().position(|&from| from == dim).unwrap_or(dim);
                graph.transpose(value, &(0..permutation.len()).map(place).collect::<Dims>())
            }
            _ => {
                let split = graph.reshape(value, &old.dims(old.node(id).operands[0]))?;
                if graph.dtype(split).is_half() { graph.optimization_barrier(split) } else { Ok(split) }
            }
        })
    }
}

/// Returns the factors of the sum of a product's columns times `sum`, given the product's own factors; `None` if one of
/// those cannot be taken back.
fn scales(graph: &Graph, sum: &[(NodeId, Scale)], own: &[(NodeId, Scale)]) -> Option<Vec<(NodeId, Scale)>> {
    let source = |row: NodeId| graph.node(row).operands[0];
    let mut scales = sum.to_vec();
    for &(row, scale) in own {
        let is_same =
            |&(other, of): &(NodeId, Scale)| of == scale && (other == row || graph.node(other) == graph.node(row));
        let is_square = |&(other, of): &(NodeId, Scale)| of == scale && is_square(graph, source(other), source(row));
        if let Some(place) = scales.iter().position(is_same) {
            scales.remove(place);
        } else if let Some(place) = scales.iter().position(is_square)
            && scale == Scale::Divides
        {
            scales[place].1 = Scale::DividesAsSquare(row);
        } else {
            return None;
        }
    }
    Some(scales)
}

/// Returns whether a value is the square of another one.
fn is_square(graph: &Graph, square: NodeId, root: NodeId) -> bool {
    let unwrapped = |mut id: NodeId| {
        while let Op::Reshape { .. } | Op::Convert { .. } = graph.node(id).op {
            id = graph.node(id).operands[0];
        }
        id
    };
    let square = graph.node(unwrapped(square));
    let is_product = square.op == BinaryOp::Mul.into();
    is_product && square.operands.iter().all(|&factor| unwrapped(factor) == unwrapped(root))
}

/// Adds the finite number that is nearest to each of a value.
fn finite(graph: &mut Graph, x: NodeId) -> Result<NodeId, GraphError> {
    let most = if graph.dtype(x) == DType::F64 { f64::MAX } else { f32::MAX.into() };
    let (low, high) = (graph.splat_like(x, -most)?, graph.splat_like(x, most)?);
    graph.clamp(low, x, high)
}

/// Returns the transposes and reshapes of a product that come before `sum`, if they make its rows longer.
fn merged(graph: &Graph, readers: &[Readers], product: NodeId, sum: NodeId) -> Vec<NodeId> {
    let is_moved = |id: &NodeId| matches!(graph.node(*id).op, Op::Transpose { .. } | Op::Reshape { .. });
    let next = |id: &NodeId| match readers[id.index()] {
        Readers::One(reader) => Some(reader).filter(is_moved),
        Readers::Nobody | Readers::Two(_) | Readers::Many => None,
    };
    let moved: Vec<NodeId> = std::iter::successors(next(&product), next).take_while(|id| *id < sum).collect();
    let row = |id: NodeId| graph.dims(id).last().copied();
    let is_longer = moved.last().is_some_and(|&last| row(last) > row(product));
    if is_longer { moved } else { Vec::new() }
}

/// Returns whether two lists have the same values in any order.
fn is_same(graph: &Graph, left: &[NodeId], right: &[NodeId]) -> bool {
    let mut right = right.to_vec();
    left.len() == right.len()
        && left.iter().all(|&a| {
            let found = right.iter().position(|&b| a == b || graph.node(a) == graph.node(b));
            found.map(|place| right.swap_remove(place)).is_some()
        })
}

#[cfg(test)]
mod tests;
