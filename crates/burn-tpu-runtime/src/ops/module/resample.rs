//! Resampling along one dim as a product with a small matrix `[out, in]`. It is linear in the input, so its gradient is
//! the product with the transposed matrix. Both use the matrix unit, at full precision: who averages or interpolates does
//! not expect a product whose factors are rounded.
//!
//! A matrix is built on the device from vectors of constants with one entry per output position, so that a program
//! contains `out` numbers instead of `out * in`.

use super::operands::vector;
use burn_tpu_graph::op::{BinaryOp, Direction, DotAttrs, Precision};
use burn_tpu_graph::{Builder, DType, Dims, NodeId, Result};

/// The direction in which a matrix `[out, in]` is applied.
#[derive(Clone, Copy)]
pub(super) enum Way {
    /// From `in` to `out`.
    Forward,
    /// From `out` to `in`: the gradient.
    Transposed,
}

/// Replaces dim `dim` of `x` by its product with `matrix`, in the matrix's element type.
pub(super) fn along(g: &mut impl Builder, x: NodeId, dim: usize, matrix: NodeId, way: Way) -> Result<NodeId> {
    let contract = match way {
        Way::Forward => 1,
        Way::Transposed => 0,
    };
    let attrs =
        DotAttrs { precision: Precision::Highest, ..DotAttrs::new([&[], &[]], [&[dim], &[contract]], g.dtype(matrix)) };
    let product = g.dot_general(x, matrix, attrs)?;
    // The new dim is the last one. It is moved to its position.
    let last = g.rank(product) - 1;
    let permutation: Dims = (0..dim).chain([last]).chain(dim..last).collect();
    g.transpose(product, &permutation)
}

/// Returns the matrix for output positions that read few inputs: row `o` holds `taps[t].1[o]` at column `taps[t].0[o]`,
/// summed over `t` (several taps can have the same column at a border).
pub(super) fn sparse(
    g: &mut impl Builder,
    dtype: DType,
    taps: &[(Vec<i64>, Vec<f64>)],
    inputs: usize,
) -> Result<NodeId> {
    let outputs = taps.first().map_or(0, |(columns, _)| columns.len());
    let dims = [outputs, inputs];
    let column = g.iota(DType::I32, &dims, 1)?;
    let zero = g.splat(dtype, &dims, 0.0)?;
    let mut matrix = zero;
    for (columns, weights) in taps {
        let at = rows(g, DType::I32, columns, &dims)?;
        let weight = rows(g, dtype, weights, &dims)?;
        let hit = g.compare(Direction::Eq, column, at)?;
        let entry = g.select(hit, weight, zero)?;
        matrix = g.binary(BinaryOp::Add, matrix, entry)?;
    }
    Ok(matrix)
}

/// Returns the matrix for output positions that each average a range `[start, end)` of inputs.
pub(super) fn averaging(
    g: &mut impl Builder,
    dtype: DType,
    ranges: &[(usize, usize)],
    inputs: usize,
) -> Result<NodeId> {
    let dims = [ranges.len(), inputs];
    let collect = |pick: fn(&(usize, usize)) -> usize| ranges.iter().map(|r| pick(r) as i64).collect::<Vec<_>>();
    let shares: Vec<f64> = ranges.iter().map(|(start, end)| 1.0 / (end - start) as f64).collect();
    let column = g.iota(DType::I32, &dims, 1)?;
    let start = rows(g, DType::I32, &collect(|r| r.0), &dims)?;
    let end = rows(g, DType::I32, &collect(|r| r.1), &dims)?;
    let after = g.compare(Direction::Ge, column, start)?;
    let before = g.compare(Direction::Lt, column, end)?;
    let inside = g.binary(BinaryOp::And, after, before)?;
    let share = rows(g, dtype, &shares, &dims)?;
    let zero = g.splat(dtype, &dims, 0.0)?;
    g.select(inside, share, zero)
}

/// Returns one constant per row, repeated along the row.
fn rows<T>(g: &mut impl Builder, dtype: DType, values: &[T], dims: &[usize]) -> Result<NodeId>
where
    T: Into<burn_tpu_graph::Number> + Copy,
{
    let column = vector(g, dtype, values)?;
    g.broadcast_in_dim(column, dims, &[0])
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn_tpu_graph::{Graph, Op, TensorType};

    #[test]
    fn the_factors_are_not_rounded() {
        let mut g = Graph::new();
        let x = g.add(Op::Parameter { index: 0, ty: TensorType::new(DType::F32, [2, 4]) }, &[]).unwrap();
        let matrix = averaging(&mut g, DType::F32, &[(0, 3), (1, 4)], 4).unwrap();
        along(&mut g, x, 1, matrix, Way::Forward).unwrap();
        let exact = |op: &Op| matches!(op, Op::DotGeneral(attrs) if attrs.precision == Precision::Highest);
        assert!(g.nodes().iter().any(|node| exact(&node.op)));
    }
}
