//! Matrix products: `dot_general` as batches of matrix products, and the product itself.
//!
//! Floats go through ndarray's product, which is matrixmultiply's. A transposed
//! operand is passed as such and not copied. Integers are multiplied here, with wrapping.

use super::buffer::{Element, Flat};
use super::convert::convert;
use super::error::{Reason, Result};
use super::movement::transpose;
use super::numeric::Number;
use super::tensor::HostTensor;
use super::vector::vectorized;
use super::walk::{View, map};
use burn_tpu_graph::op::DotAttrs;
use burn_tpu_graph::{DType, Dims};
use ndarray::{ArrayView3, Axis};

/// A batch of matrices, stored row-major one after another; `transposed` means that they are stored column-major.
pub(super) struct Matrices<T: Element> {
    pub(super) data: Flat<T>,
    pub(super) count: usize,
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) transposed: bool,
}

/// An element type with a matrix product.
pub(super) trait Product: Number {
    /// Returns the products of the matrices that `pairs` selects, row-major one after another.
    fn product(lhs: &Matrices<Self>, rhs: &Matrices<Self>, pairs: &[(usize, usize)]) -> Result<Vec<Self>>;
}

macro_rules! float_products {
    ($($ty:ty)*) => {$(
        impl Product for $ty {
            fn product(lhs: &Matrices<Self>, rhs: &Matrices<Self>, pairs: &[(usize, usize)]) -> Result<Vec<Self>> {
                let (m, k, n) = (lhs.rows, lhs.columns, rhs.columns);
                if m * n * k == 0 {
                    return Ok(vec![0.0; pairs.len() * m * n]);
                }
                if m == 1 && !rhs.transposed {
                    return Ok(row_products(lhs, rhs, pairs));
                }
                // The matrices as stored: the strides express the transposition.
                let a = ArrayView3::from_shape(lhs.stored(), &lhs.data).map_err(shape_error)?;
                let b = ArrayView3::from_shape(rhs.stored(), &rhs.data).map_err(shape_error)?;
                let mut out = Vec::new();
                for &(i, j) in pairs {
                    let (x, y) = (a.index_axis(Axis(0), i), b.index_axis(Axis(0), j));
                    let x = if lhs.transposed { x.reversed_axes() } else { x };
                    let y = if rhs.transposed { y.reversed_axes() } else { y };
                    let product = x.dot(&y);
                    if product.is_standard_layout() && pairs.len() == 1 {
                        return Ok(product.into_raw_vec_and_offset().0);
                    }
                    match product.as_slice() {
                        Some(rows) => out.extend_from_slice(rows),
                        None => out.extend(product.iter().copied()),
                    }
                }
                Ok(out)
            }
        }
    )*};
}

float_products!(f32 f64);

/// Products of rows with matrices, whose own product would first copy all of the matrix into blocks. The terms of a sum are
/// added one after another, as there.
fn row_products<T: Product>(lhs: &Matrices<T>, rhs: &Matrices<T>, pairs: &[(usize, usize)]) -> Vec<T> {
    let (k, n) = (lhs.columns, rhs.columns);
    let mut out = vec![T::ZERO; pairs.len() * n];
    for (sums, &(i, j)) in out.chunks_exact_mut(n).zip(pairs) {
        let (row, matrix) = (&lhs.data[i * k..][..k], &rhs.data[j * k * n..][..k * n]);
        vectorized(k * n, || {
            for (&x, factors) in row.iter().zip(matrix.chunks_exact(n)) {
                for (sum, &y) in sums.iter_mut().zip(factors) {
                    *sum = sum.plus(x.times(y));
                }
            }
        });
    }
    out
}

impl Product for i64 {
    fn product(lhs: &Matrices<Self>, rhs: &Matrices<Self>, pairs: &[(usize, usize)]) -> Result<Vec<Self>> {
        Ok(integer_product(lhs, rhs, pairs))
    }
}

fn integer_product(lhs: &Matrices<i64>, rhs: &Matrices<i64>, pairs: &[(usize, usize)]) -> Vec<i64> {
    let (m, k, n) = (lhs.rows, lhs.columns, rhs.columns);
    let (a, b) = (lhs.straight(), rhs.straight());
    let mut out = vec![0; pairs.len() * m * n];
    for (row, line) in out.chunks_exact_mut(n.max(1)).enumerate() {
        let (i, j) = pairs[row / m];
        let terms = &a[(i * m + row % m) * k..][..k];
        for (p, &x) in terms.iter().enumerate() {
            let factors = &b[(j * k + p) * n..][..n];
            line.iter_mut().zip(factors).for_each(|(sum, &y)| *sum = sum.plus(x.times(y)));
        }
    }
    out
}

fn shape_error(error: impl std::fmt::Display) -> Reason {
    error.to_string().into()
}

impl<T: Element> Matrices<T> {
    /// Returns one matrix, given row-major (or column-major if `transposed`).
    pub(super) fn one(data: Flat<T>, rows: usize, columns: usize, transposed: bool) -> Self {
        Self { data, count: 1, rows, columns, transposed }
    }

    fn stored(&self) -> (usize, usize, usize) {
        if self.transposed { (self.count, self.columns, self.rows) } else { (self.count, self.rows, self.columns) }
    }

    /// Returns the elements row-major.
    fn straight(&self) -> std::borrow::Cow<'_, [T]> {
        let data = self.data.as_slice();
        if !self.transposed {
            return data.into();
        }
        let (rows, columns) = (self.rows as isize, self.columns as isize);
        let view = View { data, offset: 0, strides: &[rows * columns, 1, rows] };
        map(&[self.count, self.rows, self.columns], view, |v| v).into()
    }

    /// Returns `x` as matrices of its `row` dims by its `column` dims, one per element of its `batch` dims, and the
    /// number of the matrix for each position of the batch: a batch dim that repeats has one matrix.
    fn of(x: &HostTensor, batch: &[usize], row: &[usize], column: &[usize]) -> Result<(Self, Vec<usize>)> {
        let size = |dims: &[usize]| dims.iter().map(|&d| x.dims()[d]).product::<usize>();
        let (rows, columns) = (size(row), size(column));
        let (x, number) = without_repeats(x.clone(), batch);
        let ordered =
            |first: &[usize], second: &[usize]| Dims::from_iter([batch, first, second].into_iter().flatten().copied());
        let straight = transpose(x.clone(), &ordered(row, column));
        let turned = (!straight.is_dense()).then(|| transpose(x, &ordered(column, row))).filter(HostTensor::is_dense);
        let transposed = turned.is_some();
        let data = turned.unwrap_or(straight).to_flat::<T>()?;
        let count = number.iter().copied().max().map_or(0, |last| last + 1);
        Ok((Self { data, count, rows, columns, transposed }, number))
    }
}

/// Returns `x` with size 1 for each of the `batch` dims along which it repeats, and for each position of the batch
/// the position that holds its elements.
fn without_repeats(x: HostTensor, batch: &[usize]) -> (HostTensor, Vec<usize>) {
    let (mut dims, strides, offset) = (x.dims().clone(), x.strides().clone(), x.offset());
    let mut number = vec![0];
    for &d in batch {
        let size = dims[d];
        let repeats = size > 0 && strides[d] == 0;
        dims[d] = if repeats { 1 } else { size };
        let held = dims[d];
        let next = |&n: &usize| (0..size).map(move |i| if repeats { n } else { n * held + i });
        number = number.iter().flat_map(next).collect();
    }
    (x.viewed(dims, offset, strides), number)
}

/// Contracts the operands. The caller has widened 16-bit floats. The result may be wider than the operands.
pub(super) fn dot_general(lhs: HostTensor, rhs: HostTensor, attrs: &DotAttrs, dims: &[usize]) -> Result<HostTensor> {
    let dtype = attrs.result.accumulator();
    let (lhs, rhs) = (convert(lhs, dtype)?, convert(rhs, dtype)?);
    match dtype {
        DType::F32 => dot::<f32>(&lhs, &rhs, attrs, dims),
        DType::F64 => dot::<f64>(&lhs, &rhs, attrs, dims),
        // Integers wrap, so that the low bits are the same in the widest type.
        dtype if dtype.is_int() => {
            let (lhs, rhs) = (convert(lhs, DType::I64)?, convert(rhs, DType::I64)?);
            convert(dot::<i64>(&lhs, &rhs, attrs, dims)?, dtype)
        }
        other => Err(format!("has no {other} product").into()),
    }
}

fn dot<T: Product>(lhs: &HostTensor, rhs: &HostTensor, attrs: &DotAttrs, dims: &[usize]) -> Result<HostTensor> {
    let free = |x: &HostTensor, batch: &Dims, contract: &Dims| -> Dims {
        (0..x.dims().len()).filter(|d| !batch.contains(d) && !contract.contains(d)).collect()
    };
    let lhs_free = free(lhs, &attrs.lhs_batch, &attrs.lhs_contract);
    let rhs_free = free(rhs, &attrs.rhs_batch, &attrs.rhs_contract);
    let (a, a_number) = Matrices::<T>::of(lhs, &attrs.lhs_batch, &lhs_free, &attrs.lhs_contract)?;
    let (b, b_number) = Matrices::<T>::of(rhs, &attrs.rhs_batch, &attrs.rhs_contract, &rhs_free)?;
    let pairs: Vec<_> = a_number.into_iter().zip(b_number).collect();
    Ok(HostTensor::new(dims, T::product(&a, &b, &pairs)?))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Trial, run};
    use super::*;
    use burn_tpu_graph::Builder;
    use burn_tpu_graph::NodeId;

    fn attrs(batch: &[[usize; 2]], contract: &[[usize; 2]], result: DType) -> DotAttrs {
        let side = |pairs: &[[usize; 2]], at: usize| -> Dims { pairs.iter().map(|pair| pair[at]).collect() };
        DotAttrs::new([&side(batch, 0), &side(batch, 1)], [&side(contract, 0), &side(contract, 1)], result)
    }

    fn product<T: Element>(build: impl FnOnce(&mut Trial) -> (NodeId, NodeId), attrs: DotAttrs) -> Vec<T> {
        run(|t| {
            let (lhs, rhs) = build(t);
            t.graph.dot_general(lhs, rhs, attrs)
        })
    }

    #[test]
    fn rows_are_multiplied_by_columns() {
        let plain = product::<f32>(|t| (t.counted(&[2, 3]), t.counted(&[3, 2])), attrs(&[], &[[1, 0]], DType::F32));
        assert_eq!(plain, [10., 13., 28., 40.]);
        let turned = product::<f32>(|t| (t.counted(&[3, 2]), t.counted(&[2, 3])), attrs(&[], &[[0, 1]], DType::F32));
        assert_eq!(turned, [10., 28., 13., 40.]);
    }

    #[test]
    fn batches_multiply_pairwise_at_any_dim() {
        // [2, b = 2, 1] . [1, b = 2, 1]
        let found =
            product::<f32>(|t| (t.counted(&[2, 2, 1]), t.counted(&[1, 2, 1])), attrs(&[[1, 1]], &[[2, 2]], DType::F32));
        assert_eq!(found, [0., 0., 1., 3.]);
    }

    /// One row has a loop of its own, if its matrix is stored row by row.
    #[test]
    fn a_row_is_multiplied_by_columns() {
        let rows = |t: &mut Trial| (t.counted(&[2, 1, 3]), t.counted(&[2, 3, 2]));
        assert_eq!(product::<f32>(rows, attrs(&[[0, 0]], &[[2, 1]], DType::F32)), [10., 13., 100., 112.]);
        let turned = |t: &mut Trial| (t.counted(&[2, 1, 3]), t.counted(&[2, 2, 3]));
        assert_eq!(product::<f32>(turned, attrs(&[[0, 0]], &[[2, 2]], DType::F32)), [5., 14., 86., 122.]);
    }

    #[test]
    fn a_repeated_batch_dim_is_multiplied_once() {
        let repeated = |t: &mut Trial| {
            let one = t.counted(&[1, 2, 2]);
            (t.graph.broadcast_in_dim(one, &[3, 2, 2], &[0, 1, 2]).unwrap(), t.counted(&[3, 2, 1]))
        };
        let found = product::<f32>(repeated, attrs(&[[0, 0]], &[[2, 1]], DType::F32));
        assert_eq!(found, [1., 3., 3., 13., 5., 23.]);
    }

    #[test]
    fn no_contracted_dim_is_an_outer_product_and_empty_sums_are_zero() {
        let outer = product::<f32>(|t| (t.counted(&[2]), t.counted(&[3])), attrs(&[], &[], DType::F32));
        assert_eq!(outer, [0., 0., 0., 0., 1., 2.]);
        let empty = product::<f32>(|t| (t.counted(&[2, 0]), t.counted(&[0, 3])), attrs(&[], &[[1, 0]], DType::F32));
        assert_eq!(empty, [0.; 6]);
        let none = product::<f32>(|t| (t.counted(&[0, 2]), t.counted(&[2, 3])), attrs(&[], &[[1, 0]], DType::F32));
        assert!(none.is_empty());
        let no_batch =
            product::<f32>(|t| (t.counted(&[0, 1, 2]), t.counted(&[0, 2, 3])), attrs(&[[0, 0]], &[[2, 1]], DType::F32));
        assert!(no_batch.is_empty());
        let scalars = product::<f64>(|t| (t.input(&[], &[3f64]), t.input(&[], &[4f64])), attrs(&[], &[], DType::F64));
        assert_eq!(scalars, [12.]);
    }

    #[test]
    fn integers_wrap_or_widen() {
        let pair = |t: &mut Trial| (t.input(&[2], &[100i8, 100]), t.input(&[2], &[100i8, 100]));
        assert_eq!(product::<i32>(pair, attrs(&[], &[[0, 0]], DType::I32)), [20000]);
        assert_eq!(product::<i8>(pair, attrs(&[], &[[0, 0]], DType::I8)), [20000i32 as i8]);
        let empty = |t: &mut Trial| (t.input::<u8>(&[0, 3], &[]), t.input::<u8>(&[3, 0], &[]));
        assert!(product::<u8>(empty, attrs(&[], &[[1, 0]], DType::U8)).is_empty());
        assert_eq!(product::<u8>(empty, attrs(&[], &[[0, 1]], DType::U8)), [0; 9]);
    }

    #[test]
    fn halves_accumulate_in_f32_and_round_once() {
        let pair = |t: &mut Trial| {
            let [x, y] = [[256f32, 1., 1.], [1.; 3]].map(|x| t.input(&[3], &x.map(half::bf16::from_f32)));
            (x, y)
        };
        assert_eq!(product::<half::bf16>(pair, attrs(&[], &[[0, 0]], DType::BF16)), [half::bf16::from_f32(258.)]);
        assert_eq!(product::<f32>(pair, attrs(&[], &[[0, 0]], DType::F32)), [258.]);
    }
}
