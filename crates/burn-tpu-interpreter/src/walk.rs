//! Walks over strided elements in row-major order, as runs along the innermost dim.
//!
//! Owns: the only loops over several dims. May not know: element types (only `Copy`), ops.

use super::vector::vectorized;
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

    /// Returns each operand's position at the start of every run, in row-major order.
    pub(super) fn runs(&self, starts: [usize; N]) -> Runs<'_, N> {
        let next = if self.empty { None } else { Some(starts) };
        Runs { outer: &self.outer, index: SmallVec::from_elem(0, self.outer.len()), next }
    }
}

/// The runs of a [`Walk`].
pub(super) struct Runs<'a, const N: usize> {
    outer: &'a [(usize, [isize; N])],
    index: SmallVec<[usize; 4]>,
    next: Option<[usize; N]>,
}

impl<const N: usize> Iterator for Runs<'_, N> {
    type Item = [usize; N];

    fn next(&mut self) -> Option<[usize; N]> {
        let found = self.next.take()?;
        let mut position = found;
        for (index, &(size, steps)) in self.index.iter_mut().zip(self.outer).rev() {
            *index += 1;
            let back = if *index < size { 0 } else { size };
            for n in 0..N {
                position[n] = position[n].wrapping_add_signed(steps[n].wrapping_mul(1 - back as isize));
            }
            if back == 0 {
                self.next = Some(position);
                break;
            }
            *index = 0;
        }
        Some(found)
    }
}

/// Returns the runs of a new row-major value of `dims`.
fn rows<'a, U: Copy, const N: usize>(
    out: &'a mut [U],
    walk: &'a Walk<N>,
    starts: [usize; N],
) -> impl Iterator<Item = (&'a mut [U], [usize; N])> {
    out.chunks_exact_mut(walk.len.max(1)).zip(walk.runs(starts))
}

/// Returns `f` of every element, row-major. The result is written once: copies of large values are most of what uses this.
pub(super) fn map<T: Copy, U: Copy>(dims: &[usize], x: View<T>, f: impl Fn(T) -> U) -> Vec<U> {
    let walk = Walk::new(dims, [x.strides]);
    let mut out = Vec::with_capacity(dims.iter().product());
    for [i] in walk.runs([x.offset]) {
        match walk.steps {
            [1] => {
                let run = &x.data[i..i + walk.len];
                vectorized(walk.len, || out.extend(run.iter().map(|&v| f(v))));
            }
            [0] => out.extend(std::iter::repeat_n(f(x.data[i]), walk.len)),
            [step] => out.extend((0..walk.len).map(|k| f(x.data[at(i, step, k)]))),
        }
    }
    out
}

/// Returns `f` of every pair of elements, row-major. The result is written once, as that of [`map`].
pub(super) fn zip<A: Copy, B: Copy, U: Copy>(dims: &[usize], a: View<A>, b: View<B>, f: impl Fn(A, B) -> U) -> Vec<U> {
    let walk = Walk::new(dims, [a.strides, b.strides]);
    let len = walk.len;
    let mut out = Vec::with_capacity(dims.iter().product());
    for [i, j] in walk.runs([a.offset, b.offset]) {
        match walk.steps {
            [1, 1] => {
                let pairs = a.data[i..i + len].iter().zip(&b.data[j..j + len]);
                vectorized(len, || out.extend(pairs.map(|(&v, &w)| f(v, w))));
            }
            [1, 0] => {
                let (run, w) = (&a.data[i..i + len], b.data[j]);
                vectorized(len, || out.extend(run.iter().map(|&v| f(v, w))));
            }
            [0, 1] => {
                let (v, run) = (a.data[i], &b.data[j..j + len]);
                vectorized(len, || out.extend(run.iter().map(|&w| f(v, w))));
            }
            [s, t] => out.extend((0..len).map(|k| f(a.data[at(i, s, k)], b.data[at(j, t, k)]))),
        }
    }
    out
}

/// Replaces every element of the row-major `out` by `f` of it and of the element at the same position of `b`.
pub(super) fn update<T: Copy, B: Copy>(dims: &[usize], out: &mut [T], b: View<B>, f: impl Fn(T, B) -> T) {
    let walk = Walk::new(dims, [b.strides]);
    let len = walk.len;
    for (run, [j]) in rows(out, &walk, [b.offset]) {
        match walk.steps {
            [1] => {
                let pairs = run.iter_mut().zip(&b.data[j..j + len]);
                vectorized(len, || pairs.for_each(|(v, &w)| *v = f(*v, w)));
            }
            [0] => {
                let w = b.data[j];
                vectorized(len, || run.iter_mut().for_each(|v| *v = f(*v, w)));
            }
            [step] => {
                for (k, v) in run.iter_mut().enumerate() {
                    *v = f(*v, b.data[at(j, step, k)]);
                }
            }
        }
    }
}

/// Returns the element of `on_true` or `on_false` that each element of `predicate` chooses, row-major.
pub(super) fn choose<T: Copy>(dims: &[usize], predicate: View<bool>, on_true: View<T>, on_false: View<T>) -> Vec<T> {
    let pick = |holds: bool, yes: T, no: T| if holds { yes } else { no };
    let walk = Walk::new(dims, [predicate.strides, on_true.strides, on_false.strides]);
    let len = walk.len;
    let mut out = Vec::with_capacity(dims.iter().product());
    for [i, j, k] in walk.runs([predicate.offset, on_true.offset, on_false.offset]) {
        match walk.steps {
            [1, 1, 1] => {
                let choices = on_true.data[j..j + len].iter().zip(&on_false.data[k..k + len]);
                let chosen = predicate.data[i..i + len].iter().zip(choices);
                vectorized(len, || out.extend(chosen.map(|(&holds, (&yes, &no))| pick(holds, yes, no))));
            }
            [1, 1, 0] => {
                let no = on_false.data[k];
                let chosen = predicate.data[i..i + len].iter().zip(&on_true.data[j..j + len]);
                vectorized(len, || out.extend(chosen.map(|(&holds, &yes)| pick(holds, yes, no))));
            }
            [1, 0, 1] => {
                let yes = on_true.data[j];
                let chosen = predicate.data[i..i + len].iter().zip(&on_false.data[k..k + len]);
                vectorized(len, || out.extend(chosen.map(|(&holds, &no)| pick(holds, yes, no))));
            }
            [p, t, f] => {
                let element =
                    |n: usize| pick(predicate.data[at(i, p, n)], on_true.data[at(j, t, n)], on_false.data[at(k, f, n)]);
                out.extend((0..len).map(element));
            }
        }
    }
    out
}

/// Copies the elements of `x` to the positions in `out` that `offset` and `strides` describe.
pub(super) fn copy<T: Copy>(dims: &[usize], x: View<T>, out: &mut [T], offset: usize, strides: &[isize]) {
    let walk = Walk::new(dims, [x.strides, strides]);
    for [i, o] in walk.runs([x.offset, offset]) {
        copy_run(&walk, x.data, i, out, o);
    }
}

/// Copies one run of a walk over `from`, starting at `i`, and `to`, starting at `o`.
pub(super) fn copy_run<T: Copy>(walk: &Walk<2>, from: &[T], i: usize, to: &mut [T], o: usize) {
    let len = walk.len;
    match walk.steps {
        [1, 1] => to[o..o + len].copy_from_slice(&from[i..i + len]),
        [0, 1] => to[o..o + len].fill(from[i]),
        [s, t] => {
            for k in 0..len {
                to[at(o, t, k)] = from[at(i, s, k)];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn starts(dims: &[usize], strides: &[isize], offset: usize) -> (usize, Vec<usize>) {
        let walk = Walk::new(dims, [strides]);
        (walk.len, walk.runs([offset]).map(|[i]| i).collect())
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
