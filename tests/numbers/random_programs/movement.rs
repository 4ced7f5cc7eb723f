//! Steps of ops that move elements, by static and by run-time positions. They are exact wherever their operand is.

use super::builder::{Builder, Choices, Value, ulp};
use burn_tpu_graph::Builder as _;
use burn_tpu_graph::op::{BinaryOp, Combine, GatherAttrs, MemorySpace, ScatterAttrs, ScatterMode};
use burn_tpu_graph::{DType, Dims, NodeId, Result, Sharding};
use smallvec::SmallVec;

/// Returns a permutation of `rank` dims.
fn permutation(c: &mut Choices, rank: usize) -> Dims {
    let mut dims: Dims = (0..rank).collect();
    (1..rank).for_each(|i| dims.swap(i, c.below(i + 1)));
    dims
}

pub fn moved(b: &mut Builder, c: &mut Choices) -> Result<()> {
    let x = b.any(c)?;
    let dims = b.dims(x);
    let y = match c.below(8) {
        0 => b.graph.transpose(x.id, &permutation(c, dims.len()))?,
        1 => {
            let reversed: Dims = (0..dims.len()).filter(|_| c.below(2) == 0).collect();
            b.graph.reverse(x.id, &reversed)?
        }
        2 => slice(b, c, x)?,
        3 => broadcast(b, c, x)?,
        4 => {
            let dims = c.dims();
            b.fitted(x, &dims)?.id
        }
        5 => {
            let mut flat: Dims = permutation(c, dims.len()).iter().map(|&d| dims[d]).collect();
            flat.insert(c.below(flat.len() + 1), 1);
            b.graph.reshape(x.id, &flat)?
        }
        // A program that is on no mesh ignores it.
        6 if !dims.is_empty() => b.graph.sharding_constraint(x.id, Sharding::first_dim(dims.len(), &[0]))?,
        // Where there is no other memory, the value stays where it is.
        _ if c.below(4) == 0 => b.graph.move_to(x.id, MemorySpace::PinnedHost)?,
        _ => b.graph.optimization_barrier(x.id)?,
    };
    b.keep(y, x.error, x.wild);
    Ok(())
}

fn slice(b: &mut Builder, c: &mut Choices, x: Value) -> Result<NodeId> {
    let dims = b.dims(x);
    let start: Dims = dims.iter().map(|&size| c.below(size + 1)).collect();
    let limit: Dims = dims.iter().zip(&start).map(|(&size, &start)| start + c.below(size - start + 1)).collect();
    let stride: Dims = dims.iter().map(|_| 1 + c.below(3)).collect();
    b.graph.slice(x.id, &start, &limit, &stride)
}

fn broadcast(b: &mut Builder, c: &mut Choices, x: Value) -> Result<NodeId> {
    let (mut dims, mut mapping) = (Dims::new(), Dims::new());
    for &size in &b.dims(x) {
        (0..c.below(2)).for_each(|_| dims.push(1 + c.below(3)));
        mapping.push(dims.len());
        dims.push(if size == 1 { 1 + c.below(4) } else { size });
    }
    b.graph.broadcast_in_dim(x.id, &dims, &mapping)
}

pub fn pad(b: &mut Builder, c: &mut Choices) -> Result<()> {
    let x = b.any(c)?;
    let value = b.alike(c, x)?;
    let value = b.fitted(value, &[1])?;
    let value = Value { id: b.graph.reshape(value.id, &[])?, ..value };
    let (mut low, mut high, mut interior) = (Vec::new(), Vec::new(), Dims::new());
    for &size in &b.dims(x) {
        let crop = size as isize / 2;
        interior.push(c.of(&[0, 0, 1, 2]));
        low.push(c.below(crop as usize + 3) as isize - crop);
        high.push(c.below(crop as usize + 3) as isize - crop);
    }
    let y = b.graph.pad(x.id, value.id, &low, &high, &interior)?;
    b.keep(y, x.error.max(value.error), x.wild || value.wild);
    Ok(())
}

pub fn concatenate(b: &mut Builder, c: &mut Choices) -> Result<()> {
    let x = b.pick(c, DType::F32, |b, value| !b.dims(value).is_empty())?;
    let dims = b.dims(x);
    if dims.is_empty() {
        return Ok(());
    }
    let dim = c.below(dims.len());
    let mut parts = vec![x];
    for _ in 0..c.below(3) {
        let mut size = dims.clone();
        size[dim] = c.below(4);
        let part = b.alike(c, x)?;
        parts.push(b.fitted(part, &size)?);
    }
    let ids: Vec<NodeId> = parts.iter().map(|part| part.id).collect();
    let y = b.graph.concatenate(&ids, dim)?;
    b.keep(y, parts.iter().fold(0.0, |most, part| most.max(part.error)), parts.iter().any(|part| part.wild));
    Ok(())
}

/// Returns one integer scalar per dim, in or out of range: offsets, or elements of a value.
fn starts(b: &mut Builder, c: &mut Choices, rank: usize) -> Result<Vec<NodeId>> {
    if c.below(2) == 0 {
        return (0..rank).map(|_| Ok(b.offset(c)?.id)).collect();
    }
    let source = b.signed_int(c)?;
    let source = b.fitted(source, &[rank])?;
    let one = |b: &mut Builder, i: usize| {
        let element = b.graph.slice_dim(source.id, 0, i, i + 1)?;
        b.graph.reshape(element, &[])
    };
    (0..rank).map(|i| one(b, i)).collect()
}

pub fn dynamic(b: &mut Builder, c: &mut Choices) -> Result<()> {
    let x = b.any(c)?;
    let dims = b.dims(x);
    let starts = starts(b, c, dims.len())?;
    let sizes: Dims = dims.iter().map(|&size| c.below(size + 1)).collect();
    if c.below(2) == 0 {
        let y = b.graph.dynamic_slice(x.id, &starts, &sizes)?;
        b.keep(y, x.error, x.wild);
        return Ok(());
    }
    let update = b.alike(c, x)?;
    let update = b.fitted(update, &sizes)?;
    let y = b.graph.dynamic_update_slice(x.id, update.id, &starts)?;
    b.keep(y, x.error.max(update.error), x.wild || update.wild);
    Ok(())
}

/// Adds a loop. Each trip copies the last slice of a value to the trip's position, and may reverse the value; the numbers
/// of the trips are summed.
pub fn looped(b: &mut Builder, c: &mut Choices) -> Result<()> {
    let x = b.any(c)?;
    let dims = b.dims(x);
    if dims.contains(&0) {
        return Ok(());
    }
    let (trips, turned) = (c.of(&[2, 1, 3, 0, 6]), c.below(2) == 0);
    let count = b.graph.scalar(DType::I32, c.below(9) as i64)?;
    let [y, count] = b.graph.for_loop(trips, [x.id, count], |g, trip, [x, count]| {
        let part = if dims.is_empty() { x } else { g.slice_dim(x, 0, dims[0] - 1, dims[0])? };
        let y = g.dynamic_update_slice(x, part, &vec![trip; dims.len()])?;
        let all: Dims = (0..dims.len()).collect();
        Ok([if turned { g.reverse(y, &all)? } else { y }, g.binary(BinaryOp::Add, count, trip)?])
    })?;
    b.keep(y, x.error, x.wild);
    b.keep(count, 0.0, false);
    Ok(())
}

/// How indices address the operand of a gather or a scatter.
struct Addressing {
    /// The operand dims that slices lack.
    dropped: Dims,
    /// Pairs of an operand dim and the indices' dim that it is batched with.
    batching: Dims,
    addressed: Dims,
    /// The dims of the indices, with the components last.
    indices: Dims,
    /// The sizes of a slice, per operand dim.
    sizes: Dims,
}

impl Addressing {
    /// Chooses rows of one dim, windows at points, or rows along a shared first dim.
    fn choose(c: &mut Choices, dims: &[usize]) -> Self {
        let count = c.below(4);
        let mut sizes: Dims = dims.iter().map(|&size| if c.below(3) == 0 { c.below(size + 1) } else { size }).collect();
        let batched = dims.len() > 1 && c.below(3) == 1;
        let (dropped, batching, addressed) = match c.below(3) {
            _ if batched => (Dims::from_slice(&[1]), Dims::from_slice(&[0]), Dims::from_slice(&[1])),
            0 => (Dims::new(), Dims::new(), (0..dims.len()).rev().collect()),
            _ => {
                let dim = c.below(dims.len());
                (Dims::from_slice(&[dim]), Dims::new(), Dims::from_slice(&[dim]))
            }
        };
        dropped.iter().chain(&batching).for_each(|&d| sizes[d] = dims[d].min(1));
        let mut indices: Dims = batching.iter().map(|&d| dims[d]).collect();
        indices.extend([count, addressed.len()]);
        Self { dropped, batching, addressed, indices, sizes }
    }

    fn window(&self) -> Dims {
        let kept = (0..self.sizes.len()).filter(|d| !self.dropped.contains(d) && !self.batching.contains(d));
        kept.map(|d| self.sizes[d]).collect()
    }

    /// Returns the dims of the slices: batch dims first, then those of the window.
    fn slices(&self) -> Dims {
        let batch = &self.indices[..self.indices.len() - 1];
        batch.iter().copied().chain(self.window()).collect()
    }

    fn offset_dims(&self) -> Dims {
        let batch = self.indices.len() - 1;
        (batch..batch + self.window().len()).collect()
    }
}

/// Returns indices of any index type, many of them within a few steps of the range.
fn indices(b: &mut Builder, c: &mut Choices, dims: &[usize]) -> Result<NodeId> {
    let value = b.signed_int(c)?;
    Ok(b.fitted(value, dims)?.id)
}

pub fn gather(b: &mut Builder, c: &mut Choices) -> Result<()> {
    let x = b.pick(c, DType::F32, |b, value| !b.dims(value).is_empty())?;
    let dims = b.dims(x);
    if dims.is_empty() {
        return Ok(());
    }
    let way = Addressing::choose(c, &dims);
    let indices = indices(b, c, &way.indices)?;
    let attrs = GatherAttrs {
        offset_dims: way.offset_dims(),
        collapsed_slice_dims: way.dropped.clone(),
        operand_batching_dims: way.batching.clone(),
        start_indices_batching_dims: way.batching.clone(),
        start_index_map: way.addressed.clone(),
        index_vector_dim: way.indices.len() - 1,
        slice_sizes: way.sizes.clone(),
    };
    let y = b.graph.gather(x.id, indices, attrs)?;
    b.keep(y, x.error, x.wild);
    Ok(())
}

pub fn scatter(b: &mut Builder, c: &mut Choices) -> Result<()> {
    let x = b.pick(c, DType::F32, |b, value| !b.dims(value).is_empty())?;
    let dims = b.dims(x);
    if dims.is_empty() {
        return Ok(());
    }
    let way = Addressing::choose(c, &dims);
    let indices = indices(b, c, &way.indices)?;
    let mode = scatter_mode(c, b.dtype(x));
    let summed = mode == ScatterMode::Combine(Combine::Sum) && b.dtype(x).is_float();
    let x = if summed { b.tamed(x)? } else { x };
    let updates = b.alike(c, x)?;
    let updates = b.fitted(updates, &way.slices())?;
    let attrs = ScatterAttrs {
        update_window_dims: way.offset_dims(),
        inserted_window_dims: way.dropped.clone(),
        input_batching_dims: way.batching.clone(),
        scatter_indices_batching_dims: way.batching.clone(),
        scatter_dims_to_operand_dims: way.addressed.clone(),
        index_vector_dim: way.indices.len() - 1,
        mode,
    };
    let y = b.graph.scatter(x.id, indices, updates.id, attrs)?;
    if summed {
        let terms = b.elements(updates) as f64;
        return b.settle(y, x.error + terms * (updates.error + terms * ulp(b.dtype(x))));
    }
    b.keep(y, x.error.max(updates.error), x.wild || updates.wild);
    Ok(())
}

fn scatter_mode(c: &mut Choices, dtype: DType) -> ScatterMode {
    use Combine as C;
    let combines: SmallVec<[Combine; 6]> = match dtype {
        DType::Bool => SmallVec::from_slice(&[C::And, C::Or]),
        float if float.is_float() => SmallVec::from_slice(&[C::Sum, C::Max, C::Min]),
        _ => SmallVec::from_slice(&[C::Sum, C::Prod, C::Max, C::Min, C::And, C::Or]),
    };
    if c.below(3) == 0 { ScatterMode::Assign } else { ScatterMode::Combine(c.of(&combines)) }
}
