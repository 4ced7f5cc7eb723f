//! Moving windows: `reduce_window`, one dim after another, and `select_and_scatter`.

use super::buffer::{Element, dispatch_bits, dispatch_numeric};
use super::error::Result;
use super::numeric::{Bits, Number};
use super::tensor::HostTensor;
use super::walk::{at, row_major};
use burn_tpu_graph::Dims;
use burn_tpu_graph::op::{Combine, WindowAttrs};
use std::ops::Range;

/// Combines the elements under a moving window. 16-bit floats were widened.
pub(super) fn reduce_window(
    x: &HostTensor,
    combine: Combine,
    window: &WindowAttrs,
    dims: &[usize],
) -> Result<HostTensor> {
    match combine {
        Combine::Sum => dispatch_numeric!(x.dtype(), T => windows(x, window, dims, T::ZERO, T::plus)),
        Combine::Prod => dispatch_numeric!(x.dtype(), T => windows(x, window, dims, T::ONE, T::times)),
        Combine::Max => dispatch_numeric!(x.dtype(), T => windows(x, window, dims, T::LOWEST, T::larger)),
        Combine::Min => dispatch_numeric!(x.dtype(), T => windows(x, window, dims, T::HIGHEST, T::smaller)),
        Combine::And => dispatch_bits!(x.dtype(), T => windows(x, window, dims, T::ALL_ONES, T::and)),
        Combine::Or => dispatch_bits!(x.dtype(), T => windows(x, window, dims, T::ALL_ZEROS, T::or)),
    }
}

/// A window is a box and combining is associative, so the dims are combined one after another.
fn windows<T: Element>(
    x: &HostTensor,
    window: &WindowAttrs,
    dims: &[usize],
    identity: T,
    f: impl Fn(T, T) -> T + Copy,
) -> Result<HostTensor> {
    let mut shape = x.dims().clone();
    let mut data = x.elements::<T>()?.into_owned();
    for (d, &size) in dims.iter().enumerate() {
        let line = Line::new(window, d, shape[d], size);
        if !line.is_trivial() {
            let (outer, inner) = (shape[..d].iter().product(), shape[d + 1..].iter().product());
            data = line.pass(&data, outer, inner, identity, f);
        }
        shape[d] = size;
    }
    Ok(HostTensor::new(dims, data))
}

/// The window along one dim.
struct Line {
    size: usize,
    positions: usize,
    window: usize,
    stride: usize,
    base_dilation: usize,
    window_dilation: usize,
    low: isize,
}

impl Line {
    fn new(window: &WindowAttrs, d: usize, size: usize, positions: usize) -> Self {
        let (base_dilation, window_dilation) = (window.base_dilation[d], window.window_dilation[d]);
        let (low, _) = window.padding[d];
        Self { size, positions, window: window.dims[d], stride: window.strides[d], base_dilation, window_dilation, low }
    }

    fn is_trivial(&self) -> bool {
        self.window == 1 && self.stride == 1 && self.base_dilation == 1 && self.low == 0 && self.positions == self.size
    }

    /// The element under tap `tap` of position `position`, unless that is padding.
    fn element(&self, position: usize, tap: usize) -> Option<usize> {
        let place = (position * self.stride + tap * self.window_dilation).checked_add_signed(-self.low)?;
        let element = place / self.base_dilation;
        (place % self.base_dilation == 0 && element < self.size).then_some(element)
    }

    /// The elements under a position when nothing is dilated: one range.
    fn range(&self, position: usize) -> Range<usize> {
        let start = (position * self.stride) as isize - self.low;
        let clip = |place: isize| place.clamp(0, self.size as isize) as usize;
        clip(start)..clip(start + self.window as isize)
    }

    /// Combines along the middle dim of `[outer, size, inner]`.
    fn pass<T: Element>(
        &self,
        x: &[T],
        outer: usize,
        inner: usize,
        identity: T,
        f: impl Fn(T, T) -> T + Copy,
    ) -> Vec<T> {
        let (from, to) = (self.size * inner, self.positions * inner);
        let mut out = vec![identity; outer * to];
        for (x, out) in x.chunks_exact(from.max(1)).zip(out.chunks_exact_mut(to.max(1))) {
            if self.base_dilation == 1 && self.window_dilation == 1 {
                self.ranges(x, out, inner, f);
            } else {
                self.taps(x, out, inner, f);
            }
        }
        out
    }

    /// Ranges that all start at the first element grow from one another: a cumulative sum costs one step each.
    fn ranges<T: Element>(&self, x: &[T], out: &mut [T], inner: usize, f: impl Fn(T, T) -> T + Copy) {
        let cumulative = (0..self.positions).all(|p| self.range(p).start == 0);
        for p in 0..self.positions {
            let mut range = self.range(p);
            if cumulative && p > 0 {
                range.start = self.range(p - 1).end;
                out.copy_within((p - 1) * inner..p * inner, p * inner);
            }
            for element in range {
                combine(&mut out[p * inner..][..inner], &x[element * inner..][..inner], f);
            }
        }
    }

    fn taps<T: Element>(&self, x: &[T], out: &mut [T], inner: usize, f: impl Fn(T, T) -> T + Copy) {
        for (p, out) in out.chunks_exact_mut(inner).enumerate() {
            for element in (0..self.window).filter_map(|tap| self.element(p, tap)) {
                combine(out, &x[element * inner..][..inner], f);
            }
        }
    }
}

fn combine<T: Element>(out: &mut [T], x: &[T], f: impl Fn(T, T) -> T) {
    out.iter_mut().zip(x).for_each(|(sum, &v)| *sum = f(*sum, v));
}

/// Adds each source element where its window's largest operand element lies (the first of equals). Windows take no
/// dilation. 16-bit floats were widened.
pub(super) fn select_and_scatter(x: &HostTensor, source: &HostTensor, window: &WindowAttrs) -> Result<HostTensor> {
    dispatch_numeric!(x.dtype(), T => {
        let out = scatter_to_largest::<T>(x.dims(), &x.elements()?, source.dims(), &source.elements()?, window);
        Ok(HostTensor::new(x.dims(), out))
    })
}

fn scatter_to_largest<T: Number>(
    dims: &[usize],
    x: &[T],
    positions: &[usize],
    source: &[T],
    window: &WindowAttrs,
) -> Vec<T> {
    let lines: Vec<Line> = (0..dims.len()).map(|d| Line::new(window, d, dims[d], positions[d])).collect();
    let mut out = vec![T::ZERO; x.len()];
    let mut position = Dims::from_elem(0, dims.len());
    for &addend in source {
        let ranges: Vec<Range<usize>> = lines.iter().zip(&position).map(|(line, &p)| line.range(p)).collect();
        if let Some(place) = largest(dims, x, &ranges) {
            out[place] = out[place].plus(addend);
        }
        advance(&mut position, positions);
    }
    out
}

/// The place of the largest element of a box. As XLA selects: the kept one must be `>=` the next, or the next is kept.
fn largest<T: Number>(dims: &[usize], x: &[T], ranges: &[Range<usize>]) -> Option<usize> {
    if ranges.iter().any(Range::is_empty) {
        return None;
    }
    let Some((inner, outer)) = ranges.split_last() else { return Some(0) };
    let strides = row_major(dims);
    let sizes: Dims = outer.iter().map(|range| range.len()).collect();
    let mut index = Dims::from_elem(0, outer.len());
    let mut kept: Option<usize> = None;
    for _ in 0..sizes.iter().product() {
        let start = outer.iter().zip(&index).zip(&strides).fold(0, |sum, ((r, i), &s)| at(sum, s, r.start + i));
        for place in start + inner.start..start + inner.end {
            kept = kept.filter(|&kept| x[kept] >= x[place]).or(Some(place));
        }
        advance(&mut index, &sizes);
    }
    kept
}

/// The next index in row-major order.
fn advance(index: &mut [usize], sizes: &[usize]) {
    for (i, &size) in index.iter_mut().zip(sizes).rev() {
        *i += 1;
        if *i < size {
            return;
        }
        *i = 0;
    }
}
