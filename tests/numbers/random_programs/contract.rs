//! Steps of ops that combine many elements: products, reductions, windows, sorts, transforms.

use super::builder::{Builder, Choices, TAME, Value, ulp};
use burn_tpu_graph::Builder as _;
use burn_tpu_graph::op::{Combine, ConvAttrs, ConvDims, DotAttrs, FftKind, Precision, UnaryOp, WindowAttrs};
use burn_tpu_graph::{DType, Dims, NodeId, Result};
use smallvec::SmallVec;

/// Returns the error of a sum of `terms` products of tame values: their own, and one rounding of the partial sum per term.
fn sum_error(terms: usize, error: f64, accumulator: DType) -> f64 {
    let terms = terms as f64;
    terms * error + terms * terms * TAME * ulp(accumulator)
}

pub fn dot(b: &mut Builder, c: &mut Choices) -> Result<()> {
    let x = b.pick(c, DType::F32, |b, value| b.dtype(value) != DType::Bool)?;
    let x = b.tamed(x)?;
    let (dtype, dims) = (b.dtype(x), b.dims(x));
    let y = b.alike(c, x)?;
    let batch = c.below(dims.len() + 1).min(2);
    let contract = if dims.len() > batch { c.below(2) } else { 0 };
    let (first, last): (Dims, Dims) = ((0..batch).collect(), (batch..batch + contract).collect());
    let mut other: Dims = dims[..batch + contract].into();
    (0..c.below(3)).for_each(|_| other.push(c.of(&[2, 1, 3, 0])));
    let y = b.fitted(y, &other)?;
    let result = if dtype.is_half() && c.below(2) == 0 { DType::F32 } else { dtype };
    let attrs = DotAttrs::new([&first, &first], [&last, &last], result);
    let terms = dims[batch..batch + contract].iter().product();
    let z = b.graph.dot_general(x.id, y.id, attrs)?;
    finish_sum(b, z, terms, TAME * (x.error + y.error), result)
}

/// Keeps an integer sum; clamps a float one.
fn finish_sum(b: &mut Builder, id: NodeId, terms: usize, error: f64, accumulator: DType) -> Result<()> {
    if accumulator.is_int() {
        b.keep(id, 0.0, false);
        return Ok(());
    }
    b.settle(id, sum_error(terms.max(1), error, accumulator))
}

pub fn convolution(b: &mut Builder, c: &mut Choices) -> Result<()> {
    let x = b.float(c)?;
    let dtype = b.dtype(x);
    let spatial = 1 + c.below(2);
    let (groups, per_group, out) = (1 + c.below(2), 1 + c.below(2), 1 + c.below(2));
    let by_batch = groups > 1 && c.below(2) == 0;
    let samples = (1 + c.below(2)) * if by_batch { groups } else { 1 };
    let features = per_group * if by_batch { 1 } else { groups };
    let sizes: Vec<usize> = (0..spatial).map(|_| 1 + c.below(5)).collect();
    let windows: Vec<usize> = (0..spatial).map(|_| 1 + c.below(3)).collect();
    let x = b.fitted(x, &[&[samples, features], &sizes[..]].concat())?;
    let kernel = b.alike(c, x)?;
    let kernel = b.fitted(kernel, &[&[out * groups, per_group], &windows[..]].concat())?;
    if b.is_known(x) && b.is_known(kernel) {
        // XLA's CPU compiler wrongly transposes values that it has folded (CPU plugin 0.0.1).
        return Ok(());
    }
    let roles = || ConvDims { batch: 0, feature: 1, spatial: (2..2 + spatial).collect() };
    let result = if dtype.is_half() { DType::F32 } else { dtype };
    let attrs = ConvAttrs {
        strides: (0..spatial).map(|_| 1 + c.below(2)).collect(),
        padding: (0..spatial).map(|_| (c.below(3) as isize, c.below(2) as isize)).collect(),
        lhs_dilation: (0..spatial).map(|_| 1 + c.below(2)).collect(),
        rhs_dilation: (0..spatial).map(|_| 1 + c.below(2)).collect(),
        input: roles(),
        kernel: roles(),
        output: roles(),
        feature_groups: if by_batch { 1 } else { groups },
        batch_groups: if by_batch { groups } else { 1 },
        result,
        precision: Precision::Default,
    };
    let terms = per_group * windows.iter().product::<usize>();
    let y = b.graph.convolution(x.id, kernel.id, attrs)?;
    finish_sum(b, y, terms, TAME * (x.error + kernel.error), result)
}

fn combine(c: &mut Choices, dtype: DType) -> Combine {
    use Combine as C;
    match dtype {
        DType::Bool => c.of(&[C::And, C::Or]),
        float if float.is_float() => c.of(&[C::Sum, C::Max, C::Prod, C::Min]),
        _ => c.of(&[C::Sum, C::Prod, C::Max, C::Min, C::And, C::Or]),
    }
}

/// Returns a value to combine: sums of tame floats in the accumulator's type, products of floats up to 1.
fn combinable(b: &mut Builder, c: &mut Choices) -> Result<(Value, Combine)> {
    let x = b.any(c)?;
    let combine = combine(c, b.dtype(x));
    if !b.dtype(x).is_float() || matches!(combine, Combine::Max | Combine::Min) {
        return Ok((x, combine));
    }
    let mut x = b.tamed(x)?;
    let dtype = b.dtype(x).accumulator();
    x.id = b.graph.convert(x.id, dtype)?;
    if combine == Combine::Prod {
        x.id = b.graph.unary(UnaryOp::Tanh, x.id)?;
        x.error += 16.0 * ulp(dtype);
    }
    Ok((x, combine))
}

/// Keeps the combination of `terms` elements of `x`.
fn combined(b: &mut Builder, id: NodeId, (x, combine): (Value, Combine), terms: usize) -> Result<()> {
    let dtype = b.graph.dtype(id);
    if !dtype.is_float() || (x.is_exact() && matches!(combine, Combine::Max | Combine::Min)) {
        // The extreme of an empty set of floats is infinite.
        b.keep(id, 0.0, true);
        return Ok(());
    }
    let extreme = b.tamed(Value { id, error: x.error, wild: true })?;
    let error = match combine {
        Combine::Max | Combine::Min => x.error,
        _ => sum_error(terms.max(1), x.error, dtype),
    };
    b.settle(extreme.id, error)
}

pub fn reduce(b: &mut Builder, c: &mut Choices) -> Result<()> {
    let (x, combine) = combinable(b, c)?;
    let dims = b.dims(x);
    let over: Dims = (0..dims.len()).filter(|_| c.below(2) == 0).collect();
    let y = b.graph.reduce(combine, x.id, &over)?;
    combined(b, y, (x, combine), over.iter().map(|&d| dims[d]).product())
}

fn window(c: &mut Choices, dims: &[usize], dilated: bool) -> WindowAttrs {
    let dilation = |c: &mut Choices| if dilated { c.of(&[1, 1, 2]) } else { 1 };
    let rank = dims.len();
    let mut window = WindowAttrs {
        dims: Dims::from_elem(1, rank),
        strides: Dims::from_elem(1, rank),
        base_dilation: Dims::from_elem(1, rank),
        window_dilation: Dims::from_elem(1, rank),
        padding: SmallVec::from_elem((0, 0), rank),
    };
    // Four numbers are enough for two dims; a window over more dims has no new behaviour.
    for d in (0..rank).rev().take(2) {
        window.dims[d] = 1 + c.below(3);
        window.strides[d] = 1 + c.below(2);
        window.base_dilation[d] = dilation(c);
        window.window_dilation[d] = dilation(c);
        window.padding[d] = (c.below(3) as isize, c.below(2) as isize);
    }
    window
}

pub fn reduce_window(b: &mut Builder, c: &mut Choices) -> Result<()> {
    let (x, combine) = combinable(b, c)?;
    let mut window = window(c, &b.dims(x), true);
    if c.below(3) == 0 && !b.dims(x).is_empty() {
        // A running combination, as in cumulative ops.
        let last = b.dims(x).len() - 1;
        let size = b.dims(x)[last].max(1);
        window = self::window(&mut Choices::new(&super::builder::Step { op: 0, choices: [0; 12] }), &b.dims(x), false);
        window.dims[last] = size;
        window.padding[last] = (size as isize - 1, 0);
    }
    let terms = window.dims.iter().product();
    let y = b.graph.reduce_window(combine, x.id, window)?;
    combined(b, y, (x, combine), terms)
}

pub fn select_and_scatter(b: &mut Builder, c: &mut Choices) -> Result<()> {
    let x = b.exact_float(c)?;
    let dtype = b.dtype(x).accumulator();
    let x = b.converted(x, dtype)?;
    // XLA's expansion ends the process on a scalar, and no framework op pools one.
    let x = if b.dims(x).is_empty() { b.fitted(x, &[1])? } else { x };
    let mut window = window(c, &b.dims(x), false);
    // In windows that the plugin's compiler pads itself, it selects a later one of equal elements instead of the first; the
    // backend pads before the op.
    window.padding.iter_mut().for_each(|edges| *edges = (0, 0));
    let positions = b.graph.reduce_window(Combine::Max, x.id, window.clone())?;
    let source = b.alike(c, x)?;
    let source = b.fitted(source, &b.graph.dims(positions))?;
    let overlap: usize = window.dims.iter().product();
    let y = b.graph.select_and_scatter(x.id, source.id, window)?;
    b.settle(y, sum_error(overlap, source.error, dtype))
}

pub fn arg_reduce(b: &mut Builder, c: &mut Choices) -> Result<()> {
    let x = b.pick(c, DType::F32, |b, value| value.is_exact() && b.dims(value).iter().any(|&size| size > 0))?;
    let dims = b.dims(x);
    let candidates: Dims = (0..dims.len()).filter(|&d| dims[d] > 0).collect();
    if candidates.is_empty() {
        return Ok(());
    }
    let dim = c.of(&candidates);
    let indices = b.graph.iota(c.of(&[DType::I32, DType::I64, DType::U8]), &dims, dim)?;
    let (value, index) = b.graph.arg_reduce(c.below(2) == 0, x.id, indices, dim)?;
    b.keep(value, 0.0, x.wild);
    b.keep(index, 0.0, false);
    Ok(())
}

pub fn sort(b: &mut Builder, c: &mut Choices) -> Result<()> {
    let key = b.pick(c, DType::F32, |b, value| value.is_exact() && !b.dims(value).is_empty())?;
    let dims = b.dims(key);
    if dims.is_empty() {
        return Ok(());
    }
    let payload = b.any(c)?;
    let payload = b.fitted(payload, &dims)?;
    let sorted = b.graph.sort(&[key.id, payload.id], c.below(dims.len()), c.below(2) == 1)?;
    b.keep(sorted[0], 0.0, key.wild);
    b.keep(sorted[1], payload.error, payload.wild);
    if b.dtype(key) != DType::Bool {
        let largest = dims.last().map_or(0, |&size| c.below(size + 1));
        let (values, places) = b.graph.top_k(key.id, largest)?;
        b.keep(values, 0.0, key.wild);
        b.keep(places, 0.0, false);
    }
    Ok(())
}

pub fn rng(b: &mut Builder, c: &mut Choices) -> Result<()> {
    let state = b.int(c)?;
    let state = b.converted(state, DType::U64)?;
    let state = b.fitted(state, &[2])?;
    let (next, bits) = b.graph.rng_bit_generator(state.id, c.of(&[DType::U32, DType::U64]), &c.dims())?;
    b.keep(next, 0.0, false);
    b.keep(bits, 0.0, false);
    Ok(())
}

/// Adds a transform of real lines: its real or imaginary part, or the transform followed by its inverse.
pub fn fft(b: &mut Builder, c: &mut Choices) -> Result<()> {
    let x = b.float(c)?;
    let x = b.converted(x, DType::F32)?;
    let length = 1 + c.below(8);
    let x = b.fitted(x, &[1 + c.below(3), length])?;
    let half = b.graph.fft(x.id, FftKind::Rfft, length)?;
    let y = match c.below(4) {
        0 => b.graph.real(half)?,
        1 => b.graph.imag(half)?,
        2 => b.graph.fft(half, FftKind::Irfft, length)?,
        _ => {
            let (re, im) = (b.graph.real(half)?, b.graph.imag(half)?);
            let turned = b.graph.complex(im, re)?;
            let kind = c.of(&[FftKind::Fft, FftKind::Ifft]);
            let spectrum = b.graph.fft(turned, kind, length / 2 + 1)?;
            b.graph.real(spectrum)?
        }
    };
    b.settle(y, sum_error(length * length, x.error, DType::F32))
}
