//! Convolutions of any rank, dilation and grouping, as matrix products over patches.
//!
//! The padded input is seen through strides as `[feature, kernel…, batch, position…]`: a patch matrix that costs
//! nothing until a chunk of it is copied for a product. The gradients of a convolution are convolutions with roles
//! exchanged, so chunks are cut along batch or along features, whichever keeps the products square.

use super::contract::{Matrices, Product};
use super::convert::{convert, splat};
use super::error::Result;
use super::movement::{pad, reverse, slice_at, transpose};
use super::tensor::HostTensor;
use super::walk::Strides;
use burn_tpu_graph::op::{ConvAttrs, ConvDims, PadAttrs};
use burn_tpu_graph::{DType, Dims};
use smallvec::SmallVec;

/// Elements of a chunk of the patch matrix: a few megabytes, about a core's cache.
const CHUNK: usize = 1 << 19;

/// A convolution of operands whose 16-bit floats were widened. The result may be wider than the operands.
pub(super) fn convolution(x: HostTensor, kernel: HostTensor, attrs: &ConvAttrs, dims: &[usize]) -> Result<HostTensor> {
    let dtype = attrs.result.accumulator();
    let (x, kernel) = (convert(x, dtype)?, convert(kernel, dtype)?);
    match dtype {
        DType::F32 => convolve::<f32>(x, kernel, attrs, dims),
        DType::F64 => convolve::<f64>(x, kernel, attrs, dims),
        DType::I8 => convolve::<i8>(x, kernel, attrs, dims),
        DType::I16 => convolve::<i16>(x, kernel, attrs, dims),
        DType::I32 => convolve::<i32>(x, kernel, attrs, dims),
        DType::I64 => convolve::<i64>(x, kernel, attrs, dims),
        DType::U8 => convolve::<u8>(x, kernel, attrs, dims),
        DType::U16 => convolve::<u16>(x, kernel, attrs, dims),
        DType::U32 => convolve::<u32>(x, kernel, attrs, dims),
        DType::U64 => convolve::<u64>(x, kernel, attrs, dims),
        other @ (DType::Bool | DType::BF16 | DType::F16 | DType::C64) => Err(format!("has no {other} product").into()),
    }
}

/// The dims in the order batch, feature, spatial.
fn in_order(roles: &ConvDims) -> Dims {
    [roles.batch, roles.feature].into_iter().chain(roles.spatial.iter().copied()).collect()
}

fn convolve<T: Product>(x: HostTensor, kernel: HostTensor, attrs: &ConvAttrs, dims: &[usize]) -> Result<HostTensor> {
    let x = padded(transpose(x, &in_order(&attrs.input)), attrs)?;
    let mut kernel = transpose(kernel, &in_order(&attrs.kernel));
    if attrs.reverse_kernel {
        kernel = reverse(kernel, &(2..x.dims().len()).collect::<Dims>());
    }
    let order = in_order(&attrs.output);
    let positions: Dims = attrs.output.spatial.iter().map(|&d| dims[d]).collect();
    let groups = attrs.feature_groups * attrs.batch_groups;
    let (batch, features) = (dims[attrs.output.batch], dims[attrs.output.feature]);
    let per_group = features / groups;
    // Written as [feature, batch, position…], which is how the products come, and seen as the result's dims.
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

/// The input `[batch, feature, spatial…]` with its dilation and padding in place.
fn padded(x: HostTensor, attrs: &ConvAttrs) -> Result<HostTensor> {
    if attrs.padding.iter().all(|&p| p == (0, 0)) && attrs.lhs_dilation.iter().all(|&d| d == 1) {
        return Ok(x);
    }
    let low: SmallVec<[isize; 4]> = [0, 0].into_iter().chain(attrs.padding.iter().map(|p| p.0)).collect();
    let high: SmallVec<[isize; 4]> = [0, 0].into_iter().chain(attrs.padding.iter().map(|p| p.1)).collect();
    let interior: Dims = [0, 0].into_iter().chain(attrs.lhs_dilation.iter().map(|d| d - 1)).collect();
    let size = |d: usize| {
        let spread = x.dims()[d] + x.dims()[d].saturating_sub(1) * interior[d];
        spread.saturating_add_signed(low[d] + high[d])
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
        let moves = |by: &Dims| by.iter().zip(&steps[2..]).map(|(&by, &step)| by as isize * step).collect::<Strides>();
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

    /// kernel `[out, feature * taps]` times patches `[feature * taps, batch * positions]`, into `out`.
    fn product<T: Product>(&self, kernel: &HostTensor, out: &mut [T]) -> Result<()> {
        if out.is_empty() || self.features * self.taps == 0 {
            return Ok(());
        }
        // The inner size of a product by samples, and the outer size of one by features: the larger is the squarer.
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

    /// The patch matrix of some features and samples, copied along whichever of its sides has the longer inner dim.
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

/// `size` elements of `dim` from `start`.
fn narrow(x: HostTensor, dim: usize, start: usize, size: usize) -> HostTensor {
    let mut from = Dims::from_elem(0, x.dims().len());
    from[dim] = start;
    let mut dims = x.dims().clone();
    dims[dim] = size;
    let strides = x.strides().clone();
    slice_at(x, &from, dims, strides)
}
