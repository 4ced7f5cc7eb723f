//! Matrices as factors of products: which value, and which of its dims are rows and columns.
//!
//! Owns: what a batched product of two matrices multiplies, through transposes, and a matrix as an operand of a kernel.

use burn_tpu_graph::op::{DotAttrs, Precision};
use burn_tpu_graph::{Builder, Graph, GraphError, NodeId, Op};

/// A matrix for each place of a batch. Equal ones have the same elements in the same roles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Matrix {
    pub(super) value: NodeId,
    /// The dims of the batch, in the order of the scores'.
    pub(super) batch: Vec<usize>,
    pub(super) row: usize,
    pub(super) column: usize,
}

impl Matrix {
    /// Creates a matrix from the dims of a value, which may be transposed.
    pub(super) fn new(graph: &Graph, value: NodeId, batch: Vec<usize>, [row, column]: [usize; 2]) -> Self {
        let mut matrix = Self { value, batch, row, column };
        while let Op::Transpose { permutation } = &graph.node(matrix.value).op {
            matrix.value = graph.node(matrix.value).operands[0];
            matrix.batch.iter_mut().for_each(|dim| *dim = permutation[*dim]);
            (matrix.row, matrix.column) = (permutation[matrix.row], permutation[matrix.column]);
        }
        matrix
    }

    /// Returns whether two are the same matrices, or equal ones that were recorded twice.
    pub(super) fn is_same(&self, graph: &Graph, other: &Self) -> bool {
        let roles = |matrix: &Self| (matrix.batch.clone(), matrix.row, matrix.column);
        roles(self) == roles(other) && is_equal(graph, self.value, other.value, 3)
    }

    /// Returns the sizes of the batch, of the rows and of the columns.
    pub(super) fn sizes(&self, graph: &Graph) -> (Vec<usize>, [usize; 2]) {
        let dims = &graph.ty(self.value).dims;
        (self.batch.iter().map(|&dim| dims[dim]).collect(), [dims[self.row], dims[self.column]])
    }

    /// Adds the matrices as `[batch, heads, rows, columns]` to a graph with its value.
    pub(super) fn add(&self, graph: &mut Graph, value: NodeId) -> Result<NodeId, GraphError> {
        let order: Vec<usize> = self.batch.iter().copied().chain([self.row, self.column]).collect();
        let ordered = graph.transpose(value, &order)?;
        let dims = graph.dims(ordered);
        let (batch, matrix) = dims.split_at(self.batch.len());
        let [batch, heads] = batch_and_heads(batch);
        graph.reshape(ordered, &[batch, heads, matrix[0], matrix[1]])
    }
}

/// Returns the dims of a batch as two: the last are the heads.
pub(super) fn batch_and_heads(dims: &[usize]) -> [usize; 2] {
    let (heads, batch) = dims.split_last().map_or((1, &[][..]), |(heads, batch)| (*heads, batch));
    [batch.iter().product(), heads]
}

/// Returns whether two nodes compute the same from the same values, a few nodes back.
pub(super) fn is_equal(graph: &Graph, a: NodeId, b: NodeId, depth: u32) -> bool {
    let (left, right) = (graph.node(a), graph.node(b));
    let is_known = matches!(left.op, Op::Constant(_) | Op::Iota { .. });
    let is_same_op = left.op == right.op && left.operands.len() == right.operands.len();
    let mut pairs = left.operands.iter().zip(&right.operands);
    a == b
        || is_same_op && is_known
        || is_same_op && depth > 0 && pairs.len() > 0 && pairs.all(|(&a, &b)| is_equal(graph, a, b, depth - 1))
}

/// The dims of a side of a product: those of the batch, the only contracted one, and the only free one.
pub(super) struct Side {
    pub(super) batch: Vec<usize>,
    pub(super) contracted: usize,
    pub(super) free: usize,
}

/// Returns the sides of a product of matrices; `None` for products of other ranks, and for those that are to be more exact
/// than a kernel's.
pub(super) fn sides(graph: &Graph, attrs: &DotAttrs, operands: &[NodeId]) -> Option<[Side; 2]> {
    if attrs.precision != Precision::Default {
        return None;
    }
    let side = |place: usize, batch: &[usize], contracted: &[usize]| {
        let &[contracted] = contracted else { return None };
        let rank = graph.rank(operands[place]);
        let mut free = (0..rank).filter(|dim| !batch.contains(dim) && *dim != contracted);
        let side = Side { batch: batch.to_vec(), contracted, free: free.next()? };
        free.next().is_none().then_some(side)
    };
    Some([side(0, &attrs.lhs_batch, &attrs.lhs_contract)?, side(1, &attrs.rhs_batch, &attrs.rhs_contract)?])
}
