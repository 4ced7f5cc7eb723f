//! Moving windows: `reduce_window`, one dim after another, and `select_and_scatter`.

use super::buffer::{Element, dispatch_combined, dispatch_numeric};
use super::error::Result;
use super::numeric::{Combined, Number};
use super::tensor::HostTensor;
use super::walk::{at, row_major};
use burn_tpu_graph::DType;
use burn_tpu_graph::op::{Combine, WindowAttrs};
use std::ops::Range;

/// Combines the elements under a moving window. The caller has widened 16-bit floats.
pub(super) fn reduce_window(
    x: &HostTensor,
    combine: Combine,
    window: &WindowAttrs,
    dims: &[usize],
) -> Result<HostTensor> {
    match (combine, x.dtype()) {
        // Loops of their own, which use the vector units.
        (Combine::Sum, DType::F32) => windows(x, window, dims, f32::ZERO, f32::plus),
        (Combine::Max, DType::F32) => windows(x, window, dims, f32::LOWEST, f32::larger),
        (_, dtype) => dispatch_combined!(dtype, T => {
            let (identity, f) = T::combiner(combine)?;
            windows(x, window, dims, identity, f)
        }),
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

    /// Returns the element under tap `tap` of position `position`, or none if that is padding.
    fn element(&self, position: usize, tap: usize) -> Option<usize> {
        let place = (position * self.stride + tap * self.window_dilation).checked_add_signed(-self.low)?;
        let element = place / self.base_dilation;
        (place % self.base_dilation == 0 && element < self.size).then_some(element)
    }

    /// Returns the elements under a position when nothing is dilated: one range.
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

    /// If all ranges start at the first element, each extends the one before: a cumulative sum costs one step per position.
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

/// Adds each source element at the largest operand element of its window (the first of equal ones). Windows have no
/// dilation. The caller has widened 16-bit floats.
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
    let mut out = vec![T::ZERO; x.len()];
    let lines: Vec<Line> = (0..dims.len()).map(|d| Line::new(window, d, dims[d], positions[d])).collect();
    let Some((last, outer)) = lines.split_last() else { return source.to_vec() };
    // Leading dims along which the window does not move repeat the work of one plane.
    let lead = outer.iter().take_while(|line| line.is_trivial()).count();
    let (plane, addends) = (dims[lead..].iter().product::<usize>(), positions[lead..].iter().product::<usize>());
    let boxes = box_rows(&outer[lead..], &row_major(&dims[lead..]));
    let columns: Vec<Range<usize>> = (0..last.positions).map(|p| last.range(p)).collect();
    let planes = x.chunks_exact(plane.max(1)).zip(out.chunks_exact_mut(plane.max(1)));
    for ((x, out), source) in planes.zip(source.chunks_exact(addends.max(1))) {
        let windows = boxes.iter().flat_map(|rows| columns.iter().map(move |columns| (rows, columns)));
        for ((rows, columns), &addend) in windows.zip(source) {
            if let Some(place) = largest(x, rows, columns) {
                out[place] = out[place].plus(addend);
            }
        }
    }
    out
}

/// Returns, for each position of the window along all dims but the last, row-major, where the rows of its box start.
fn box_rows(outer: &[Line], strides: &[isize]) -> Vec<Vec<usize>> {
    let mut boxes = vec![vec![0]];
    for (line, &stride) in outer.iter().zip(strides) {
        let deeper = |rows: &Vec<usize>, position: usize| -> Vec<usize> {
            rows.iter().flat_map(|&row| line.range(position).map(move |i| at(row, stride, i))).collect()
        };
        boxes = boxes.iter().flat_map(|rows| (0..line.positions).map(move |p| deeper(rows, p))).collect();
    }
    boxes
}

/// Returns the place of the largest element of a box. As in XLA, the next element replaces the kept one unless the
/// kept one is `>=`.
fn largest<T: Number>(x: &[T], rows: &[usize], columns: &Range<usize>) -> Option<usize> {
    let mut kept: Option<(usize, T)> = None;
    for &row in rows {
        let line = &x[row + columns.start..row + columns.end];
        for (i, &value) in line.iter().enumerate() {
            kept = kept.filter(|kept| kept.1 >= value).or(Some((row + columns.start + i, value)));
        }
    }
    kept.map(|(place, _)| place)
}

#[cfg(test)]
mod tests {
    use super::super::testing::run;
    use super::*;
    use burn_tpu_graph::Builder;
    use smallvec::SmallVec;

    fn window(dims: &[usize], strides: &[usize]) -> WindowAttrs {
        WindowAttrs {
            dims: dims.into(),
            strides: strides.into(),
            base_dilation: SmallVec::from_elem(1, dims.len()),
            window_dilation: SmallVec::from_elem(1, dims.len()),
            padding: SmallVec::from_elem((0, 0), dims.len()),
        }
    }

    fn reduced<T: Element>(combine: Combine, dims: &[usize], x: &[T], window: &WindowAttrs) -> Vec<T> {
        run(|t| {
            let x = t.input(dims, x);
            t.graph.reduce_window(combine, x, window.clone())
        })
    }

    #[test]
    fn windows_overlap_or_skip() {
        let x = [1i32, 2, 3, 4, 5];
        assert_eq!(reduced(Combine::Sum, &[5], &x, &window(&[2], &[1])), [3, 5, 7, 9]);
        assert_eq!(reduced(Combine::Prod, &[5], &x, &window(&[2], &[3])), [2, 20]);
        assert_eq!(reduced(Combine::Max, &[2, 3], &[1, 9, 2, 3, 4, 5], &window(&[2, 2], &[1, 1])), [9, 9]);
    }

    #[test]
    fn padding_is_the_neutral_element() {
        let mut padded = window(&[2], &[2]);
        padded.padding[0] = (1, 2);
        assert_eq!(reduced(Combine::Max, &[3], &[-1f32, -2., -3.], &padded), [-1., -2., f32::NEG_INFINITY]);
        assert_eq!(reduced(Combine::Min, &[3], &[-1i8, -2, -3], &padded), [-1, -3, i8::MAX]);
        assert_eq!(reduced(Combine::And, &[3], &[true, true, false], &padded), [true, false, true]);
    }

    #[test]
    fn negative_padding_crops() {
        let mut cropped = window(&[2], &[1]);
        cropped.padding[0] = (-1, -1);
        assert_eq!(reduced(Combine::Sum, &[5], &[1, 2, 4, 8, 16], &cropped), [6, 12]);
    }

    #[test]
    fn dilations_spread_the_operand_and_the_window() {
        let mut base = window(&[2], &[1]);
        base.base_dilation[0] = 2;
        assert_eq!(reduced(Combine::Sum, &[3], &[1, 2, 4], &base), [1, 2, 2, 4]);
        let mut spread = window(&[2], &[1]);
        spread.window_dilation[0] = 2;
        assert_eq!(reduced(Combine::Sum, &[4], &[1, 2, 4, 8], &spread), [5, 10]);
    }

    #[test]
    fn a_window_over_all_elements_before_is_a_running_sum() {
        let mut running = window(&[1, 4], &[1, 1]);
        running.padding[1] = (3, 0);
        assert_eq!(reduced(Combine::Sum, &[2, 4], &[1, 2, 3, 4, 5, 6, 7, 8], &running), [1, 3, 6, 10, 5, 11, 18, 26]);
    }

    #[test]
    fn empty_operands_and_too_large_windows_have_no_positions() {
        assert!(reduced::<f32>(Combine::Sum, &[0, 2], &[], &window(&[1, 2], &[1, 1])).is_empty());
        assert!(reduced(Combine::Sum, &[2], &[1f32, 2.], &window(&[3], &[1])).is_empty());
        let mut all_padding = window(&[2], &[1]);
        all_padding.padding[0] = (1, 1);
        assert_eq!(reduced::<i32>(Combine::Max, &[0], &[], &all_padding), [i32::MIN]);
    }

    #[test]
    fn a_nan_is_the_maximum_of_its_window() {
        let found = reduced(Combine::Max, &[3], &[1f32, f32::NAN, 2.], &window(&[2], &[1]));
        assert!(found.iter().all(|v| v.is_nan()));
    }

    #[test]
    fn sums_of_halves_round_once() {
        let x = [256f32, 1., 1.].map(half::bf16::from_f32);
        assert_eq!(reduced(Combine::Sum, &[3], &x, &window(&[3], &[1])), [half::bf16::from_f32(258.)]);
    }

    fn scattered(dims: &[usize], x: &[f32], positions: &[usize], source: &[f32], window: &WindowAttrs) -> Vec<f32> {
        run(|t| {
            let (x, source) = (t.input(dims, x), t.input(positions, source));
            t.graph.select_and_scatter(x, source, window.clone())
        })
    }

    #[test]
    fn a_source_goes_to_the_first_of_the_largest() {
        let x = [1., 5., 5., 2., 3., 3.];
        assert_eq!(scattered(&[6], &x, &[3], &[10., 20., 30.], &window(&[2], &[2])), [0., 10., 20., 0., 30., 0.]);
        assert_eq!(scattered(&[2, 2], &[7., 7., 7., 7.], &[1, 1], &[4.], &window(&[2, 2], &[1, 1])), [4., 0., 0., 0.]);
    }

    #[test]
    fn overlapping_windows_add_up() {
        let x = [1., 9., 2.];
        assert_eq!(scattered(&[3], &x, &[2], &[10., 20.], &window(&[2], &[1])), [0., 30., 0.]);
    }

    #[test]
    fn windows_move_over_inner_dims_of_every_plane() {
        let mut pool = window(&[1, 1, 2, 2], &[1, 1, 2, 1]);
        pool.padding[2] = (1, 1);
        pool.padding[3] = (0, 1);
        // Two planes of [2, 2]: rows are padded to 4, columns to 3.
        let x = [1., 2., 4., 3., 8., 7., 5., 6.];
        let source = [1., 2., 4., 8., 16., 32., 64., 128.];
        let found = scattered(&[1, 2, 2, 2], &x, &[1, 2, 2, 2], &source, &pool);
        assert_eq!(found, [0., 3., 4., 8., 16., 32., 0., 192.]);
    }

    #[test]
    fn a_window_over_outer_dims_reads_columns() {
        let x = [1., 8., 3., 4.];
        assert_eq!(scattered(&[2, 2], &x, &[1, 2], &[10., 20.], &window(&[2, 1], &[1, 1])), [0., 20., 10., 0.]);
    }

    #[test]
    fn padding_is_never_selected_and_windows_of_padding_drop_their_source() {
        let mut padded = window(&[2], &[2]);
        padded.padding[0] = (2, 2);
        assert_eq!(scattered(&[2], &[-5., -7.], &[3], &[1., 2., 4.], &padded), [2., 0.]);
    }

    #[test]
    fn empty_operands_and_sources_scatter_nothing() {
        assert!(scattered(&[0], &[], &[0], &[], &window(&[1], &[1])).is_empty());
        assert_eq!(scattered(&[2], &[1., 2.], &[0], &[], &window(&[3], &[1])), [0., 0.]);
        assert!(scattered(&[2, 0], &[], &[1, 0], &[], &window(&[2, 1], &[1, 1])).is_empty());
        assert_eq!(scattered(&[], &[3.], &[], &[7.], &window(&[], &[])), [7.]);
    }
}
