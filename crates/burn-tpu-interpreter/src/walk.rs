//! Walks over strided elements in row-major order, as runs along the innermost dim.
//!
//! Owns: the only loops over several dims. May not know: element types (only `Copy`), ops.

use smallvec::SmallVec;

/// Distance in elements between neighbours along each dim. 0 repeats an element; a negative stride goes backwards.
pub(super) type Strides = SmallVec<[isize; 4]>;

/// The elements of one operand: where it starts and its strides.
#[derive(Clone, Copy)]
pub(super) struct View<'a, T> {
    pub(super) data: &'a [T],
    pub(super) offset: usize,
    pub(super) strides: &'a [isize],
}

/// Returns the strides of a row-major value.
pub(super) fn row_major(dims: &[usize]) -> Strides {
    let mut strides = Strides::from_elem(1, dims.len());
    for i in (0..dims.len().saturating_sub(1)).rev() {
        strides[i] = strides[i + 1] * dims[i + 1].max(1) as isize;
    }
    strides
}

/// Returns the position `count` steps of `stride` after `start`.
pub(super) fn at(start: usize, stride: isize, count: usize) -> usize {
    start.wrapping_add_signed(stride.wrapping_mul(count as isize))
}

/// Returns the sizes and strides, innermost first, without dims of size 1. Neighbouring dims that have one common
/// stride in every operand are merged.
pub(super) fn merge<const N: usize>(dims: &[usize], strides: [&[isize]; N]) -> SmallVec<[(usize, [isize; N]); 4]> {
    let mut merged: SmallVec<[(usize, [isize; N]); 4]> = SmallVec::new();
    for d in (0..dims.len()).rev().filter(|&d| dims[d] != 1) {
        let steps = strides.map(|s| s[d]);
        match merged.last_mut() {
            Some((len, inner)) if (0..N).all(|n| steps[n] == inner[n] * *len as isize) => *len *= dims[d],
            _ => merged.push((dims[d], steps)),
        }
    }
    merged
}

/// A walk over `N` operands of the same dims.
pub(super) struct Walk<const N: usize> {
    /// The dims around a run, outermost first.
    outer: SmallVec<[(usize, [isize; N]); 4]>,
    /// The length of a run.
    pub(super) len: usize,
    /// The strides of each operand within a run.
    pub(super) steps: [isize; N],
    empty: bool,
}

impl<const N: usize> Walk<N> {
    pub(super) fn new(dims: &[usize], strides: [&[isize]; N]) -> Self {
        let mut outer = merge(dims, strides);
        outer.reverse();
        let (len, steps) = outer.pop().unwrap_or((1, [1; N]));
        Self { outer, len, steps, empty: dims.contains(&0) }
    }

    /// Calls `run` with each operand's position at the start of every run, in row-major order.
    pub(super) fn runs(&self, starts: [usize; N], mut run: impl FnMut([usize; N])) {
        if self.empty {
            return;
        }
        let mut position = starts;
        let mut index: SmallVec<[usize; 4]> = SmallVec::from_elem(0, self.outer.len());
        loop {
            run(position);
            let mut d = self.outer.len();
            loop {
                let Some(outer) = d.checked_sub(1) else { return };
                d = outer;
                let (size, steps) = self.outer[d];
                index[d] += 1;
                let back = if index[d] < size { 0 } else { size };
                for n in 0..N {
                    position[n] = position[n].wrapping_add_signed(steps[n].wrapping_mul(1 - back as isize));
                }
                if back == 0 {
                    break;
                }
                index[d] = 0;
            }
        }
    }
}

/// Returns `f` of every element, row-major.
pub(super) fn map<T: Copy, U: Copy>(dims: &[usize], x: View<T>, f: impl Fn(T) -> U) -> Vec<U> {
    let walk = Walk::new(dims, [x.strides]);
    let mut out = Vec::with_capacity(dims.iter().product());
    let len = walk.len;
    walk.runs([x.offset], |[i]| match walk.steps {
        [1] => out.extend(x.data[i..i + len].iter().map(|&v| f(v))),
        [0] => out.extend(std::iter::repeat_n(f(x.data[i]), len)),
        [step] => out.extend((0..len).map(|k| f(x.data[at(i, step, k)]))),
    });
    out
}

/// Returns `f` of every pair of elements, row-major.
pub(super) fn zip<A: Copy, B: Copy, U>(dims: &[usize], a: View<A>, b: View<B>, f: impl Fn(A, B) -> U) -> Vec<U> {
    let walk = Walk::new(dims, [a.strides, b.strides]);
    let mut out = Vec::with_capacity(dims.iter().product());
    let len = walk.len;
    walk.runs([a.offset, b.offset], |[i, j]| match walk.steps {
        [1, 1] => out.extend(a.data[i..i + len].iter().zip(&b.data[j..j + len]).map(|(&x, &y)| f(x, y))),
        [1, 0] => {
            let y = b.data[j];
            out.extend(a.data[i..i + len].iter().map(|&x| f(x, y)));
        }
        [0, 1] => {
            let x = a.data[i];
            out.extend(b.data[j..j + len].iter().map(|&y| f(x, y)));
        }
        [s, t] => out.extend((0..len).map(|k| f(a.data[at(i, s, k)], b.data[at(j, t, k)]))),
    });
    out
}

/// Replaces every element of the row-major `out` by `f` of it and of the element at the same position of `b`.
pub(super) fn update<T: Copy, B: Copy>(dims: &[usize], out: &mut [T], b: View<B>, f: impl Fn(T, B) -> T) {
    let walk = Walk::new(dims, [b.strides]);
    let len = walk.len;
    let mut rest = out;
    walk.runs([b.offset], |[j]| {
        let (run, tail) = std::mem::take(&mut rest).split_at_mut(len);
        rest = tail;
        match walk.steps {
            [1] => run.iter_mut().zip(&b.data[j..j + len]).for_each(|(x, &y)| *x = f(*x, y)),
            [0] => {
                let y = b.data[j];
                run.iter_mut().for_each(|x| *x = f(*x, y));
            }
            [t] => run.iter_mut().enumerate().for_each(|(k, x)| *x = f(*x, b.data[at(j, t, k)])),
        }
    });
}

/// Copies the elements of `x` to the positions in `out` that `offset` and `strides` describe.
pub(super) fn copy<T: Copy>(dims: &[usize], x: View<T>, out: &mut [T], offset: usize, strides: &[isize]) {
    let walk = Walk::new(dims, [x.strides, strides]);
    let len = walk.len;
    walk.runs([x.offset, offset], |[i, o]| match walk.steps {
        [1, 1] => out[o..o + len].copy_from_slice(&x.data[i..i + len]),
        [0, 1] => out[o..o + len].fill(x.data[i]),
        [s, t] => (0..len).for_each(|k| out[at(o, t, k)] = x.data[at(i, s, k)]),
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn starts(dims: &[usize], strides: &[isize], offset: usize) -> (usize, Vec<usize>) {
        let walk = Walk::new(dims, [strides]);
        let mut seen = Vec::new();
        walk.runs([offset], |[i]| seen.push(i));
        (walk.len, seen)
    }

    #[test]
    fn dims_in_one_stride_are_one_run() {
        assert_eq!(starts(&[2, 1, 3], &[3, 9, 1], 0), (6, vec![0]));
        assert_eq!(starts(&[2, 3], &[0, 0], 4), (6, vec![4]));
        assert_eq!(starts(&[], &[], 4), (1, vec![4]));
    }

    #[test]
    fn strides_that_do_not_merge_give_runs_in_row_major_order() {
        assert_eq!(starts(&[2, 2, 3], &[1, 10, 2], 0), (3, vec![0, 10, 1, 11]));
        assert_eq!(starts(&[3, 2], &[-2, 1], 4), (2, vec![4, 2, 0]));
    }

    #[test]
    fn empty_dims_have_no_runs() {
        assert_eq!(starts(&[2, 0, 3], &[0, 3, 1], 0).1, Vec::<usize>::new());
        assert_eq!(starts(&[0], &[1], 0).1, Vec::<usize>::new());
    }
}
