//! Convolutions of any rank, dilation and grouping, as matrix products over patches.
//!
//! The padded input is viewed through strides as `[feature, kernel…, batch, position…]`: a patch matrix that costs
//! nothing until a chunk of it is copied for a product. The gradients of a convolution are convolutions with
//! exchanged roles, so chunks are cut along batch or along features, whichever keeps the products closer to square.

use super::contract::{Matrices, Product};
use super::convert::{convert, splat};
use super::error::Result;
use super::movement::{pad, slice_at, transpose};
use super::tensor::HostTensor;
use super::walk::Strides;
use burn_tpu_graph::op::{ConvAttrs, ConvDims, PadAttrs};
use burn_tpu_graph::{DType, Dims};
use smallvec::SmallVec;

/// Elements of a chunk of the patch matrix: a few megabytes, about the size of one core's cache.
const CHUNK: usize = 1 << 19;

/// Computes a convolution. The caller has widened 16-bit floats. The result may be wider than the operands.
pub(super) fn convolution(x: HostTensor, kernel: HostTensor, attrs: &ConvAttrs, dims: &[usize]) -> Result<HostTensor> {
    let dtype = attrs.result.accumulator();
    let (x, kernel) = (convert(x, dtype)?, convert(kernel, dtype)?);
    match dtype {
        DType::F32 => convolve::<f32>(x, kernel, attrs, dims),
        DType::F64 => convolve::<f64>(x, kernel, attrs, dims),
        // Integers wrap, so that the low bits are the same in the widest type.
        dtype if dtype.is_int() => {
            let (x, kernel) = (convert(x, DType::I64)?, convert(kernel, DType::I64)?);
            convert(convolve::<i64>(x, kernel, attrs, dims)?, dtype)
        }
        other => Err(format!("has no {other} product").into()),
    }
}

/// Returns the dims in the order batch, feature, spatial.
fn in_order(roles: &ConvDims) -> Dims {
    [roles.batch, roles.feature].into_iter().chain(roles.spatial.iter().copied()).collect()
}

fn convolve<T: Product>(x: HostTensor, kernel: HostTensor, attrs: &ConvAttrs, dims: &[usize]) -> Result<HostTensor> {
    let x = padded(transpose(x, &in_order(&attrs.input)), attrs)?;
    let kernel = transpose(kernel, &in_order(&attrs.kernel));
    let order = in_order(&attrs.output);
    let positions: Dims = attrs.output.spatial.iter().map(|&d| dims[d]).collect();
    let groups = attrs.feature_groups * attrs.batch_groups;
    let (batch, features) = (dims[attrs.output.batch], dims[attrs.output.feature]);
    let per_group = features / groups;
    // Stored as [feature, batch, position…], the order of the products, and viewed with the result's dims.
    let mut out = vec![T::ZERO; dims.iter().product()];
    let rows = out.len() / groups;
    for (group, out) in out.chunks_exact_mut(rows.max(1)).enumerate() {
        let kernel = narrow(kernel.clone(), 0, group * per_group, per_group);
        let x = if attrs.batch_groups > 1 {
            narrow(x.clone(), 0, group * batch, batch)
        } else {
            let features = kernel.dims()[1];
            narrow(x.clone(), 1, group * features, features)
        };
        Patches::new(x, &kernel, &positions, attrs).product::<T>(&kernel, out)?;
    }
    let stored: Dims = [features, batch].into_iter().chain(positions).collect();
    let mut from_stored = Dims::from_elem(0, order.len());
    order.iter().enumerate().for_each(|(i, &d)| from_stored[d] = [1, 0].get(i).copied().unwrap_or(i));
    Ok(transpose(HostTensor::new(&stored, out), &from_stored))
}

/// Returns the input `[batch, feature, spatial…]` with its dilation and padding applied.
fn padded(x: HostTensor, attrs: &ConvAttrs) -> Result<HostTensor> {
    if attrs.padding.iter().all(|&p| p == (0, 0)) && attrs.lhs_dilation.iter().all(|&d| d == 1) {
        return Ok(x);
    }
    let low: SmallVec<[isize; 4]> = [0, 0].into_iter().chain(attrs.padding.iter().map(|p| p.0)).collect();
    let high: SmallVec<[isize; 4]> = [0, 0].into_iter().chain(attrs.padding.iter().map(|p| p.1)).collect();
    let interior: Dims = [0, 0].into_iter().chain(attrs.lhs_dilation.iter().map(|d| d - 1)).collect();
    let size = |d: usize| {
        let spread = x.dims()[d] + x.dims()[d].saturating_sub(1) * interior[d];
        spread.saturating_add_signed(low[d]).saturating_add_signed(high[d])
    };
    let dims: Dims = (0..x.dims().len()).map(size).collect();
    let zero = splat(x.dtype(), &[], 0);
    pad(x, &zero, &PadAttrs { low, high, interior }, &dims)
}

/// The patches of one group: a view `[feature, kernel…, batch, position…]` of the padded input.
struct Patches {
    view: HostTensor,
    features: usize,
    /// Elements of the kernel per pair of features.
    taps: usize,
    batch: usize,
    /// Positions of the kernel on one sample.
    positions: usize,
    spatial: usize,
}

impl Patches {
    fn new(x: HostTensor, kernel: &HostTensor, positions: &[usize], attrs: &ConvAttrs) -> Self {
        let (dims, steps, offset) = (x.dims().clone(), x.strides().clone(), x.offset());
        let window = &kernel.dims()[2..];
        let moves = |by: &Dims| {
            by.iter().zip(&steps[2..]).map(|(&by, &step)| step.wrapping_mul(by as isize)).collect::<Strides>()
        };
        let (taps, walk) = (moves(&attrs.rhs_dilation), moves(&attrs.strides));
        let strides: Strides = [steps[1]].into_iter().chain(taps).chain([steps[0]]).chain(walk).collect();
        let shape: Dims = [dims[1]].iter().chain(window).chain(&[dims[0]]).chain(positions).copied().collect();
        Self {
            view: x.viewed(shape, offset, strides),
            features: dims[1],
            taps: window.iter().product(),
            batch: dims[0],
            positions: positions.iter().product(),
            spatial: positions.len(),
        }
    }

    /// Writes kernel `[out, feature * taps]` times patches `[feature * taps, batch * positions]` into `out`.
    fn product<T: Product>(&self, kernel: &HostTensor, out: &mut [T]) -> Result<()> {
        if out.is_empty() || self.features * self.taps == 0 {
            return Ok(());
        }
        // The inner size of a product by samples, and the outer size of one by features: the product with the larger
        // one is closer to square.
        let by_samples = (self.features * self.taps).min(self.positions);
        let by_features = self.taps.min(self.batch * self.positions);
        if by_samples >= by_features { self.by_samples(kernel, out) } else { self.by_features(kernel, out) }
    }

    fn by_samples<T: Product>(&self, kernel: &HostTensor, out: &mut [T]) -> Result<()> {
        let (inner, rows) = (self.features * self.taps, kernel.dims()[0]);
        let chunk = (CHUNK / (inner * self.positions)).clamp(1, self.batch);
        let weights = Matrices::one(kernel.to_flat::<T>()?, rows, inner, false);
        for first in (0..self.batch).step_by(chunk) {
            let samples = chunk.min(self.batch - first);
            let patches = self.matrix::<T>((0, self.features), (first, samples))?;
            let product = T::product(&weights, &patches, &[(0, 0)])?;
            let columns = samples * self.positions;
            let lines = out.chunks_exact_mut(self.batch * self.positions);
            for (line, row) in lines.zip(product.chunks_exact(columns)) {
                line[first * self.positions..][..columns].copy_from_slice(row);
            }
        }
        Ok(())
    }

    fn by_features<T: Product>(&self, kernel: &HostTensor, out: &mut [T]) -> Result<()> {
        let (columns, rows) = (self.batch * self.positions, kernel.dims()[0]);
        let chunk = (CHUNK / (self.taps * columns)).clamp(1, self.features);
        for first in (0..self.features).step_by(chunk) {
            let features = chunk.min(self.features - first);
            let patches = self.matrix::<T>((first, features), (0, self.batch))?;
            let weights = narrow(kernel.clone(), 1, first, features).to_flat::<T>()?;
            let weights = Matrices::one(weights, rows, features * self.taps, false);
            let product = T::product(&weights, &patches, &[(0, 0)])?;
            out.iter_mut().zip(product).for_each(|(sum, term)| *sum = sum.plus(term));
        }
        Ok(())
    }

    /// Returns the patch matrix of some features and samples, copied in the storage order whose inner dim is longer.
    fn matrix<T: Product>(&self, features: (usize, usize), samples: (usize, usize)) -> Result<Matrices<T>> {
        let view = narrow(self.view.clone(), 0, features.0, features.1);
        let view = narrow(view, 1 + self.spatial, samples.0, samples.1);
        let (rows, columns) = (features.1 * self.taps, samples.1 * self.positions);
        let half = 1 + self.spatial;
        let transposed = self.spatial > 0 && view.dims()[half - 1] > view.dims()[2 * half - 1];
        if !transposed {
            return Ok(Matrices::one(view.to_flat::<T>()?, rows, columns, false));
        }
        let turned: Dims = (half..2 * half).chain(0..half).collect();
        Ok(Matrices::one(transpose(view, &turned).to_flat::<T>()?, rows, columns, true))
    }
}

/// Returns `size` elements of `dim` from `start`.
fn narrow(x: HostTensor, dim: usize, start: usize, size: usize) -> HostTensor {
    let mut from = Dims::from_elem(0, x.dims().len());
    from[dim] = start;
    let mut dims = x.dims().clone();
    dims[dim] = size;
    let strides = x.strides().clone();
    slice_at(x, &from, dims, strides)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Trial, run};
    use super::*;
    use burn_tpu_graph::Builder;
    use burn_tpu_graph::NodeId;
    use smallvec::smallvec;

    fn plain(spatial: usize) -> ConvAttrs {
        let dims = || ConvDims { batch: 0, feature: 1, spatial: (2..2 + spatial).collect() };
        ConvAttrs {
            strides: Dims::from_elem(1, spatial),
            padding: SmallVec::from_elem((0, 0), spatial),
            lhs_dilation: Dims::from_elem(1, spatial),
            rhs_dilation: Dims::from_elem(1, spatial),
            input: dims(),
            kernel: dims(),
            output: dims(),
            feature_groups: 1,
            batch_groups: 1,
            result: DType::F32,
            precision: Default::default(),
        }
    }

    fn convolved(build: impl FnOnce(&mut Trial) -> (NodeId, NodeId), attrs: ConvAttrs) -> Vec<f32> {
        run(|t| {
            let (x, kernel) = build(t);
            t.graph.convolution(x, kernel, attrs)
        })
    }

    /// Convolves one sample and one feature in one dim.
    fn line(x: &[f32], kernel: &[f32], attrs: ConvAttrs) -> Vec<f32> {
        convolved(|t| (t.input(&[1, 1, x.len()], x), t.input(&[1, 1, kernel.len()], kernel)), attrs)
    }

    const X: [f32; 4] = [1., 2., 3., 4.];

    #[test]
    fn the_kernel_moves_over_the_line() {
        assert_eq!(line(&X, &[1., 10.], plain(1)), [21., 32., 43.]);
        assert_eq!(line(&X, &[1., 10.], ConvAttrs { strides: smallvec![2], ..plain(1) }), [21., 43.]);
    }

    #[test]
    fn padding_adds_zeros_or_crops() {
        assert_eq!(
            line(&X, &[1., 10.], ConvAttrs { padding: smallvec![(1, 1)], ..plain(1) }),
            [10., 21., 32., 43., 4.]
        );
        assert_eq!(line(&X, &[1., 10.], ConvAttrs { padding: smallvec![(-1, 0)], ..plain(1) }), [32., 43.]);
    }

    #[test]
    fn dilations_spread_the_input_and_the_kernel() {
        assert_eq!(line(&X[..2], &[1., 10.], ConvAttrs { lhs_dilation: smallvec![2], ..plain(1) }), [1., 20.]);
        assert_eq!(line(&X, &[1., 10.], ConvAttrs { rhs_dilation: smallvec![2], ..plain(1) }), [31., 42.]);
        assert_eq!(line(&X[..1], &[5.], ConvAttrs { lhs_dilation: smallvec![usize::MAX], ..plain(1) }), [5.]);
        assert_eq!(line(&X[..1], &[5.], ConvAttrs { rhs_dilation: smallvec![usize::MAX], ..plain(1) }), [5.]);
    }

    #[test]
    fn features_add_up_and_groups_are_independent() {
        let all = convolved(|t| (t.counted(&[1, 2, 2]), t.input(&[1, 2, 1], &[1f32, 10.])), plain(1));
        assert_eq!(all, [20., 31.]);
        let grouped = ConvAttrs { feature_groups: 2, ..plain(1) };
        let groups = convolved(|t| (t.counted(&[1, 2, 2]), t.input(&[2, 1, 1], &[1f32, 10.])), grouped);
        assert_eq!(groups, [0., 1., 20., 30.]);
    }

    #[test]
    fn batch_groups_split_the_batch() {
        let attrs = ConvAttrs { batch_groups: 2, ..plain(1) };
        let found = convolved(|t| (t.counted(&[2, 1, 2]), t.input(&[2, 1, 1], &[1f32, 10.])), attrs);
        assert_eq!(found, [0., 1., 20., 30.]);
    }

    #[test]
    fn dims_may_be_in_any_order() {
        let last = || ConvDims { batch: 0, feature: 3, spatial: smallvec![1, 2] };
        let kernel = ConvDims { batch: 3, feature: 2, spatial: smallvec![0, 1] };
        let attrs = ConvAttrs { input: last(), kernel, output: last(), ..plain(2) };
        let found = convolved(|t| (t.counted(&[1, 2, 2, 2]), t.counted(&[2, 1, 2, 1])), attrs);
        // Columns of x: [[0, 1], [4, 5]] and [[2, 3], [6, 7]] by the kernel [[0, 1], [2, 3]].
        assert_eq!(found, [24., 36.]);
    }

    #[test]
    fn empty_sums_are_zero_and_no_positions_give_an_empty_result() {
        let no_features = convolved(|t| (t.counted(&[1, 0, 2]), t.counted(&[3, 0, 1])), plain(1));
        assert_eq!(no_features, [0.; 6]);
        assert!(convolved(|t| (t.counted(&[0, 1, 2]), t.counted(&[3, 1, 1])), plain(1)).is_empty());
        assert!(line(&X[..1], &[1., 2.], plain(1)).is_empty());
        assert!(convolved(|t| (t.counted(&[1, 1, 2]), t.counted(&[0, 1, 1])), plain(1)).is_empty());
    }

    #[test]
    fn no_spatial_dims_are_a_matrix_product() {
        assert_eq!(convolved(|t| (t.counted(&[2, 2]), t.counted(&[1, 2])), plain(0)), [1., 3.]);
    }

    #[test]
    fn integers_wrap_and_halves_round_once() {
        let bytes = run::<i8>(|t| {
            let (x, kernel) = (t.input(&[1, 2, 1], &[100i8, 100]), t.input(&[1, 2, 1], &[100i8, 100]));
            t.graph.convolution(x, kernel, ConvAttrs { result: DType::I8, ..plain(1) })
        });
        assert_eq!(bytes, [20000i32 as i8]);
        let halves = run::<half::bf16>(|t| {
            let [x, kernel] = [[256f32, 1., 1.], [1.; 3]].map(|v| t.input(&[1, 3, 1], &v.map(half::bf16::from_f32)));
            t.graph.convolution(x, kernel, ConvAttrs { result: DType::BF16, ..plain(1) })
        });
        assert_eq!(halves, [half::bf16::from_f32(258.)]);
    }
}
