//! Bilinear reads of images at positions that are known at run time, and the adjoint of such a read.
//!
//! Images are `[n, groups, channels, height * width]`, positions are `[n, groups, points]` in pixels. A corner outside
//! its image reads 0 and receives no gradient.

use crate::ops::index::gathered;
use burn_tpu_graph::op::{BinaryOp, Combine, Direction, GatherAttrs, ScatterAttrs, ScatterMode, UnaryOp};
use burn_tpu_graph::{Builder, DType, Dims, NodeId, Result};

/// The four pixels around each position.
pub(super) struct Corners {
    /// In the order (low, low), (low, high), (high, low), (high, high) of (y, x).
    all: [Corner; 4],
    /// The distances of each position from its low corner, in y and in x, and the distances from its high corner.
    near: [NodeId; 2],
    far: [NodeId; 2],
}

struct Corner {
    /// The flat position in the image, clamped to the image.
    index: NodeId,
    /// Whether the corner is inside the image.
    inside: NodeId,
    /// The weight in a bilinear read.
    weight: NodeId,
}

/// One side of one axis: the clamped pixel coordinate, whether it was inside the image, and its weight.
struct Side {
    at: NodeId,
    inside: NodeId,
    share: NodeId,
}

impl Corners {
    /// Returns the corners of positions `[y, x]` in images of `[height, width]`.
    pub fn new(g: &mut impl Builder, positions: [NodeId; 2], sizes: [usize; 2]) -> Result<Self> {
        let (rows, near_y, far_y) = sides(g, positions[0], sizes[0])?;
        let (columns, near_x, far_x) = sides(g, positions[1], sizes[1])?;
        let [low, high] = &rows;
        let [left, right] = &columns;
        let all = [
            Corner::new(g, low, left, sizes[1])?,
            Corner::new(g, low, right, sizes[1])?,
            Corner::new(g, high, left, sizes[1])?,
            Corner::new(g, high, right, sizes[1])?,
        ];
        Ok(Self { all, near: [near_y, near_x], far: [far_y, far_x] })
    }

    /// Returns the pixels at the corners, each `[n, groups, channels, points]`.
    pub fn read(&self, g: &mut impl Builder, images: NodeId) -> Result<[NodeId; 4]> {
        let [a, b, c, d] = &self.all;
        Ok([a.read(g, images)?, b.read(g, images)?, c.read(g, images)?, d.read(g, images)?])
    }

    /// Returns the weighted sum of the pixels that [`Corners::read`] returned.
    pub fn blend(&self, g: &mut impl Builder, pixels: &[NodeId; 4]) -> Result<NodeId> {
        let mut sum = per_point(g, BinaryOp::Mul, pixels[0], self.all[0].weight)?;
        for (corner, &pixels) in self.all.iter().zip(pixels).skip(1) {
            let part = per_point(g, BinaryOp::Mul, pixels, corner.weight)?;
            sum = g.binary(BinaryOp::Add, sum, part)?;
        }
        Ok(sum)
    }

    /// Returns the derivatives of [`Corners::blend`] with respect to y and x.
    pub fn slopes(&self, g: &mut impl Builder, pixels: &[NodeId; 4]) -> Result<[NodeId; 2]> {
        let &[low_low, low_high, high_low, high_high] = pixels;
        let by_y = self.slope(g, 1, [low_low, high_low], [low_high, high_high])?;
        let by_x = self.slope(g, 0, [low_low, low_high], [high_low, high_high])?;
        Ok([by_y, by_x])
    }

    /// Returns the difference between the second and the first of each pair, weighted along the other axis `across`.
    fn slope(&self, g: &mut impl Builder, across: usize, low: [NodeId; 2], high: [NodeId; 2]) -> Result<NodeId> {
        let low = g.binary(BinaryOp::Sub, low[1], low[0])?;
        let high = g.binary(BinaryOp::Sub, high[1], high[0])?;
        let low = per_point(g, BinaryOp::Mul, low, self.far[across])?;
        let high = per_point(g, BinaryOp::Mul, high, self.near[across])?;
        g.binary(BinaryOp::Add, low, high)
    }

    /// Returns the adjoint of a read and blend: adds each of `values` `[n, groups, channels, points]` to its four
    /// corners in images of zeros with `dims`. One scatter updates all four corners.
    pub fn spread(&self, g: &mut impl Builder, values: NodeId, dims: &[usize]) -> Result<NodeId> {
        let (mut indices, mut updates) = (Vec::with_capacity(4), Vec::with_capacity(4));
        for corner in &self.all {
            let share = per_point(g, BinaryOp::Mul, values, corner.weight)?;
            updates.push(corner.mask(g, share)?);
            indices.push(corner.index);
        }
        let indices = g.concatenate(&indices, 2)?;
        let updates = g.concatenate(&updates, 3)?;
        let zeros = g.splat(g.dtype(values), dims, 0.0)?;
        let attrs = ScatterAttrs {
            update_window_dims: Dims::from_slice(&[2]),
            inserted_window_dims: Dims::from_slice(&[3]),
            input_batching_dims: Dims::from_slice(&[0, 1]),
            scatter_indices_batching_dims: Dims::from_slice(&[0, 1]),
            scatter_dims_to_operand_dims: Dims::from_slice(&[3]),
            index_vector_dim: 3,
            mode: ScatterMode::Combine(Combine::Sum),
        };
        g.scatter(zeros, indices, updates, attrs)
    }
}

impl Corner {
    fn new(g: &mut impl Builder, row: &Side, column: &Side, width: usize) -> Result<Self> {
        let start = g.binary_const(BinaryOp::Mul, row.at, width as i64)?;
        Ok(Self {
            index: g.binary(BinaryOp::Add, start, column.at)?,
            inside: g.binary(BinaryOp::And, row.inside, column.inside)?,
            weight: g.binary(BinaryOp::Mul, row.share, column.share)?,
        })
    }

    fn read(&self, g: &mut impl Builder, images: NodeId) -> Result<NodeId> {
        let (mut dims, points) = (g.dims(images), g.dims(self.index)[2]);
        let channels = dims[2];
        dims[3] = points;
        let attrs = GatherAttrs {
            offset_dims: Dims::from_slice(&[2]),
            collapsed_slice_dims: Dims::from_slice(&[3]),
            operand_batching_dims: Dims::from_slice(&[0, 1]),
            start_indices_batching_dims: Dims::from_slice(&[0, 1]),
            start_index_map: Dims::from_slice(&[3]),
            index_vector_dim: 3,
            slice_sizes: Dims::from_slice(&[1, 1, channels, 1]),
        };
        let pixels = gathered(g, images, self.index, attrs, &dims)?;
        self.mask(g, pixels)
    }

    /// Returns the values, with 0 where the corner is outside the image.
    fn mask(&self, g: &mut impl Builder, values: NodeId) -> Result<NodeId> {
        let dims = g.dims(values);
        let inside = g.broadcast_in_dim(self.inside, &dims, &[0, 1, 3])?;
        let zero = g.splat_like(values, 0.0)?;
        g.select(inside, values, zero)
    }
}

/// Combines `[n, groups, channels, points]` with `[n, groups, points]`.
pub(super) fn per_point(g: &mut impl Builder, op: BinaryOp, values: NodeId, points: NodeId) -> Result<NodeId> {
    let dims = g.dims(values);
    let points = g.broadcast_in_dim(points, &dims, &[0, 1, 3])?;
    g.binary(op, values, points)
}

/// Returns the pixels below and above each position on an axis of `size`, and the distances to them.
fn sides(g: &mut impl Builder, position: NodeId, size: usize) -> Result<([Side; 2], NodeId, NodeId)> {
    let low = g.unary(UnaryOp::Floor, position)?;
    let high = g.binary_const(BinaryOp::Add, low, 1.0)?;
    let near = g.binary(BinaryOp::Sub, position, low)?;
    let far = g.binary(BinaryOp::Sub, high, position)?;
    Ok(([side(g, low, far, size)?, side(g, high, near, size)?], near, far))
}

/// Clamps the coordinate while it is a float, since an integer cannot represent every float.
fn side(g: &mut impl Builder, at: NodeId, share: NodeId, size: usize) -> Result<Side> {
    let first = g.splat_like(at, 0.0)?;
    let last = g.splat_like(at, size.saturating_sub(1) as f64)?;
    let clamped = g.clamp(first, at, last)?;
    let inside = g.compare(Direction::Eq, clamped, at)?;
    Ok(Side { at: g.convert(clamped, DType::I32)?, inside, share })
}
