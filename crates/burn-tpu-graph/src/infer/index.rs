//! Rules of ops that address elements by run-time integers. The integers are signed: contrary to the specification,
//! XLA reads the upper half of some unsigned types as negative numbers.

use super::{Rule, check_distinct, check_increasing, check_len};
use crate::op::{GatherAttrs, ScatterAttrs, ScatterMode};
use crate::{Dims, TensorType};

fn check_starts(starts: &[&TensorType], rank: usize) -> Rule<()> {
    check_len("starts", starts.len(), rank)?;
    match starts.iter().find(|ty| ty.rank() != 0 || !ty.dtype.is_signed_int() || ty.dtype != starts[0].dtype) {
        Some(ty) => Err(format!("starts must be scalars of one signed integer type, got {ty}")),
        None => Ok(()),
    }
}

fn check_fits(sizes: &[usize], x: &TensorType) -> Rule<()> {
    check_len("sizes", sizes.len(), x.rank())?;
    if sizes.iter().zip(&x.dims).any(|(s, d)| s > d) {
        return Err(format!("a slice of {sizes:?} does not fit {x}"));
    }
    Ok(())
}

pub(super) fn dynamic_slice(types: &[&TensorType], sizes: &[usize]) -> Rule {
    check_starts(&types[1..], types[0].rank())?;
    check_fits(sizes, types[0])?;
    Ok(TensorType::new(types[0].dtype, sizes))
}

pub(super) fn dynamic_update_slice(types: &[&TensorType]) -> Rule {
    check_starts(&types[2..], types[0].rank())?;
    check_fits(&types[1].dims, types[0])?;
    if types[0].dtype != types[1].dtype {
        return Err(format!("the update must be {}, not {}", types[0].dtype, types[1].dtype));
    }
    Ok(types[0].clone())
}

/// Returns the dims of the indices without the index vector. If `index_vector_dim` is the rank, its size is 1.
fn index_dims(indices: &TensorType, vector_dim: usize, components: usize) -> Rule<Dims> {
    if !indices.dtype.is_signed_int() {
        return Err(format!("indices must be signed integers, not {}", indices.dtype));
    }
    if vector_dim > indices.rank() {
        return Err(format!("index_vector_dim {vector_dim} is out of range for {indices}"));
    }
    let found = indices.dims.get(vector_dim).copied().unwrap_or(1);
    check_len("an index", found, components)?;
    Ok((0..indices.rank()).filter(|&d| d != vector_dim).map(|d| indices.dims[d]).collect())
}

/// The dim roles that gather and scatter check in the same way, for the operand and the indices.
struct Roles<'a> {
    /// Operand dims that a slice or an update does not have.
    dropped: &'a [usize],
    operand_batching: &'a [usize],
    indices_batching: &'a [usize],
    /// Operand dims that the components of an index address.
    addressed: &'a [usize],
    index_vector_dim: usize,
}

impl Roles<'_> {
    fn check(&self, x: &TensorType, indices: &TensorType) -> Rule<()> {
        check_increasing("dropped dims", self.dropped, x.rank())?;
        check_increasing("batching dims", self.operand_batching, x.rank())?;
        let dropped: Dims = self.dropped.iter().chain(self.operand_batching).copied().collect();
        check_distinct(&dropped, x.rank())?;
        let addressed: Dims = self.addressed.iter().chain(self.operand_batching).copied().collect();
        check_distinct(&addressed, x.rank())?;
        check_len("batching dims of the indices", self.indices_batching.len(), self.operand_batching.len())?;
        check_distinct(self.indices_batching, indices.rank())?;
        if self.indices_batching.contains(&self.index_vector_dim) {
            return Err(format!("index_vector_dim {} cannot be a batching dim", self.index_vector_dim));
        }
        let mut pairs = self.operand_batching.iter().zip(self.indices_batching);
        match pairs.find(|&(&d, &i)| x.dims[d] != indices.dims[i]) {
            Some((d, i)) => Err(format!("batching dim {d} of {x} and {i} of {indices} differ")),
            None => Ok(()),
        }
    }

    /// Returns the operand dims that a slice or an update has.
    fn kept(&self, x: &TensorType) -> Dims {
        (0..x.rank()).filter(|d| !self.dropped.contains(d) && !self.operand_batching.contains(d)).collect()
    }
}

/// Interleaves `batch` and `window` dims: the window dims are at positions `offset_dims` of the result.
fn interleave(batch: &[usize], window: &[usize], offset_dims: &[usize]) -> Rule<Dims> {
    let rank = batch.len() + window.len();
    check_len("offset or window dims", offset_dims.len(), window.len())?;
    check_increasing("offset or window dims", offset_dims, rank)?;
    let (mut batch, mut window) = (batch.iter(), window.iter());
    let next = |d: usize| if offset_dims.contains(&d) { window.next() } else { batch.next() };
    (0..rank).map(next).map(|size| size.copied().ok_or_else(|| "dims do not add up".to_string())).collect()
}

pub(super) fn gather(x: &TensorType, indices: &TensorType, attrs: &GatherAttrs) -> Rule {
    let roles = Roles {
        dropped: &attrs.collapsed_slice_dims,
        operand_batching: &attrs.operand_batching_dims,
        indices_batching: &attrs.start_indices_batching_dims,
        addressed: &attrs.start_index_map,
        index_vector_dim: attrs.index_vector_dim,
    };
    check_fits(&attrs.slice_sizes, x)?;
    roles.check(x, indices)?;
    let kept = roles.kept(x);
    if let Some(d) = (0..x.rank()).find(|d| !kept.contains(d) && attrs.slice_sizes[*d] > 1) {
        return Err(format!("slice size of dim {d} must be 1, since the result drops it"));
    }
    let batch = index_dims(indices, attrs.index_vector_dim, attrs.start_index_map.len())?;
    let window: Dims = kept.iter().map(|&d| attrs.slice_sizes[d]).collect();
    Ok(TensorType { dtype: x.dtype, dims: interleave(&batch, &window, &attrs.offset_dims)? })
}

pub(super) fn scatter(x: &TensorType, indices: &TensorType, updates: &TensorType, attrs: &ScatterAttrs) -> Rule {
    let roles = Roles {
        dropped: &attrs.inserted_window_dims,
        operand_batching: &attrs.input_batching_dims,
        indices_batching: &attrs.scatter_indices_batching_dims,
        addressed: &attrs.scatter_dims_to_operand_dims,
        index_vector_dim: attrs.index_vector_dim,
    };
    roles.check(x, indices)?;
    check_update_type(x, updates, attrs.mode)?;
    let batch = index_dims(indices, attrs.index_vector_dim, attrs.scatter_dims_to_operand_dims.len())?;
    check_increasing("update_window_dims", &attrs.update_window_dims, updates.rank())?;
    let window: Dims = attrs.update_window_dims.iter().map(|&d| updates.dims[d]).collect();
    let kept = roles.kept(x);
    check_len("update_window_dims", window.len(), kept.len())?;
    if window.iter().zip(&kept).any(|(&w, &d)| w > x.dims[d]) {
        return Err(format!("an update window of {window:?} does not fit {x}"));
    }
    if updates.dims != interleave(&batch, &window, &attrs.update_window_dims)? {
        return Err(format!("updates {updates} do not match indices {indices}"));
    }
    Ok(x.clone())
}

fn check_update_type(x: &TensorType, updates: &TensorType, mode: ScatterMode) -> Rule<()> {
    if updates.dtype != x.dtype {
        return Err(format!("updates must be {}, not {}", x.dtype, updates.dtype));
    }
    match mode {
        ScatterMode::Assign => Ok(()),
        ScatterMode::Combine(combine) => super::window::check_combine(combine, x.dtype),
    }
}
