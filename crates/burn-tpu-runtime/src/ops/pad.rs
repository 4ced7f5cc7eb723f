//! Padding: elements added before and after those of a tensor, for every element type.
//!
//! Sizes are part of the program, a constant to pad with is a slot.

use super::broken_rule;
use crate::Tensor;
use crate::trace::{Recorder, record};
use burn_tpu_graph::{Builder, Dims, NodeId, Number, Result};
use smallvec::SmallVec;

/// What is in the elements that are added.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Padding {
    /// A number.
    Constant(Number),
    /// The elements next to the edge, in reverse order; the edge itself is not repeated.
    Reflect,
    /// The element at the edge.
    Edge,
}

/// Returns `x` with elements added before and after, as many as `sizes` has for each dim.
pub fn pad(x: Tensor, sizes: &[(usize, usize)], padding: Padding) -> Tensor {
    record("pad", [&x], |r, [x]| {
        if sizes.len() != r.rank(x) {
            return Err(broken_rule(r, "pad", &[x], format!("takes a pair of sizes for each dim, not {sizes:?}")));
        }
        match padding {
            Padding::Constant(value) => constant(r, x, sizes, value),
            Padding::Reflect => along_each(r, x, sizes, reflected),
            Padding::Edge => along_each(r, x, sizes, repeated),
        }
    })
}

fn constant(r: &mut Recorder, x: NodeId, sizes: &[(usize, usize)], value: Number) -> Result<NodeId> {
    let value = r.slot(r.dtype(x), value)?;
    let (low, high): (SmallVec<[isize; 4]>, SmallVec<[isize; 4]>) =
        sizes.iter().map(|&(low, high)| (low as isize, high as isize)).unzip();
    r.pad(x, value, &low, &high, &Dims::from_elem(0, sizes.len()))
}

/// Concatenates, along one dim after the other, what `side` returns for the elements before, `x`, and what it returns for
/// those after.
fn along_each(
    r: &mut Recorder,
    mut x: NodeId,
    sizes: &[(usize, usize)],
    side: impl Fn(&mut Recorder, NodeId, usize, usize, bool) -> Result<NodeId>,
) -> Result<NodeId> {
    for (dim, &(low, high)) in sizes.iter().enumerate() {
        let mut parts = SmallVec::<[NodeId; 3]>::new();
        if low > 0 {
            parts.push(side(r, x, dim, low, true)?);
        }
        parts.push(x);
        if high > 0 {
            parts.push(side(r, x, dim, high, false)?);
        }
        x = r.concatenate(&parts, dim)?;
    }
    Ok(x)
}

fn reflected(r: &mut Recorder, x: NodeId, dim: usize, count: usize, before: bool) -> Result<NodeId> {
    let size = r.dims(x)[dim];
    if count >= size {
        return Err(broken_rule(r, "pad", &[x], format!("{count} elements of dim {dim} of size {size} are not there")));
    }
    let start = if before { 1 } else { size - 1 - count };
    let part = r.slice_dim(x, dim, start, start + count)?;
    r.reverse(part, &[dim])
}

fn repeated(r: &mut Recorder, x: NodeId, dim: usize, count: usize, before: bool) -> Result<NodeId> {
    let mut dims = r.dims(x);
    if dims[dim] == 0 {
        return Err(broken_rule(r, "pad", &[x], format!("dim {dim} has no edge")));
    }
    let start = if before { 0 } else { dims[dim] - 1 };
    let edge = r.slice_dim(x, dim, start, start + 1)?;
    dims[dim] = count;
    r.broadcast_to(edge, &dims)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::data;
    use crate::ops::testing::{devices, tensor, values};

    #[test]
    fn pads_before_and_after() {
        for device in devices() {
            let x = || data::to_device(tensor([1i32, 2, 3, 4, 5, 6], &[2, 3]), &device);
            let constant = pad(x(), &[(0, 1), (1, 0)], Padding::Constant(Number::Int(9)));
            assert_eq!(values(constant), [9.0, 1.0, 2.0, 3.0, 9.0, 4.0, 5.0, 6.0, 9.0, 9.0, 9.0, 9.0]);
            let reflected = pad(x(), &[(1, 0), (2, 1)], Padding::Reflect);
            let row = [[3.0, 2.0, 1.0, 2.0, 3.0, 2.0], [6.0, 5.0, 4.0, 5.0, 6.0, 5.0]];
            assert_eq!(values(reflected), [row[1], row[0], row[1]].concat());
            let edges = pad(x(), &[(0, 2), (1, 1)], Padding::Edge);
            let row = [[1.0, 1.0, 2.0, 3.0, 3.0], [4.0, 4.0, 5.0, 6.0, 6.0]];
            assert_eq!(values(edges), [row[0], row[1], row[1], row[1]].concat());
        }
    }

    #[test]
    #[should_panic(expected = "not there")]
    fn a_reflection_needs_its_elements() {
        pad(tensor([1.0f32, 2.0], &[2]), &[(2, 0)], Padding::Reflect);
    }
}
