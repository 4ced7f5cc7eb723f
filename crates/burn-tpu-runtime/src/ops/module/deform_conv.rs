//! Deformable 2D convolution: every kernel element of every output position reads the input bilinearly at a separate
//! position. A dot with the kernel follows.
//!
//! Dims used throughout: n images, o output channels in `weight_groups`, c input channels in `offset_groups`, k kernel
//! elements (row-major), l output positions (row-major). Offsets are `[n, offset_groups * k * 2, h_out, w_out]`, with y
//! before x. Masks are `[n, offset_groups * k, h_out, w_out]`. Positions and samples are at least f32; the dots use the
//! input's type.

use super::conv::bias_backward;
use super::operands::{add_bias, expect_spatial, present};
use super::sample::{Corners, per_point};
use crate::Tensor;
use crate::ops::broken_rule;
use crate::trace::record_many;
use burn_tpu_graph::op::{BinaryOp, Combine, DotAttrs};
use burn_tpu_graph::{Builder, DType, NodeId, Result};

/// The options of a deformable convolution: first along the height, then along the width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeformConvOptions {
    /// The distance between two positions of the kernel.
    pub stride: [usize; 2],
    /// The number of zeros around the image.
    pub padding: [usize; 2],
    /// The distance between two kernel elements.
    pub dilation: [usize; 2],
    /// The number of independent groups of features.
    pub weight_groups: usize,
    /// The number of groups of input channels, each with its own offsets and masks.
    pub offset_groups: usize,
}

/// The operands of a deformable convolution.
pub struct Operands<'t> {
    /// The images, `[n, c, height, width]`.
    pub x: &'t Tensor,
    /// The offset of the position that each kernel element reads, `[n, offset_groups * k * 2, h_out, w_out]`.
    pub offset: &'t Tensor,
    /// The kernel, `[o, c / weight_groups, kernel_h, kernel_w]`.
    pub weight: &'t Tensor,
    /// The weight of each read, `[n, offset_groups * k, h_out, w_out]`.
    pub mask: Option<&'t Tensor>,
    /// The bias, `[o]`.
    pub bias: Option<&'t Tensor>,
}

/// The gradients of [`Operands`].
pub struct Gradients {
    /// With respect to the images.
    pub x: Tensor,
    /// With respect to the offsets.
    pub offset: Tensor,
    /// With respect to the kernel.
    pub weight: Tensor,
    /// With respect to the mask, if there is one.
    pub mask: Option<Tensor>,
    /// With respect to the bias, if there is one.
    pub bias: Option<Tensor>,
}

/// Computes `deform_conv2d`.
pub fn deform_conv2d(operands: &Operands, options: &DeformConvOptions) -> Tensor {
    let (x, offset, weight) = (operands.x, operands.offset, operands.weight);
    let all = present(&[x, offset, weight], &[operands.mask, operands.bias]);
    let [y] = record_many("deform_conv2d", &all, |r, nodes| {
        let sizes = Sizes::new(r, [nodes[0], nodes[1], nodes[2]], options)?;
        let mut optional = nodes[3..].iter().copied();
        let mask = operands.mask.and_then(|_| optional.next());
        let sampled = Sampled::new(r, &sizes, [nodes[0], nodes[1]], mask, options)?;
        let columns = sampled.columns(r, &sizes)?;
        let y = sizes.product(r, nodes[2], columns)?;
        Ok([add_bias(r, y, optional.next(), 1)?])
    });
    y
}

/// Computes `deform_conv2d_backward`.
pub fn deform_conv2d_backward(operands: &Operands, grad: &Tensor, options: &DeformConvOptions) -> Gradients {
    let all = present(&[operands.x, operands.offset, operands.weight, grad], &[operands.mask]);
    let [x, offset, weight, mask] = record_many("deform_conv2d_backward", &all, |r, nodes| {
        let sizes = Sizes::new(r, [nodes[0], nodes[1], nodes[2]], options)?;
        let sampled = Sampled::new(r, &sizes, [nodes[0], nodes[1]], nodes.get(4).copied(), options)?;
        let columns = sampled.columns(r, &sizes)?;
        let weight = sizes.weight_gradient(r, nodes[3], columns)?;
        let column_grads = sizes.column_gradients(r, nodes[2], nodes[3])?;
        let [x, offset, mask] = sampled.gradients(r, &sizes, column_grads)?;
        Ok([x, offset, weight, mask])
    });
    let mask = operands.mask.map(|_| mask);
    let bias = operands.bias.map(|_| bias_backward("deform_conv2d_bias_backward", grad));
    Gradients { x, offset, weight, mask, bias }
}

/// All sizes that follow from the shapes and options.
struct Sizes {
    dtype: DType,
    n: usize,
    c: usize,
    image: [usize; 2],
    o: usize,
    kernel: [usize; 2],
    out: [usize; 2],
    offset_groups: usize,
    weight_groups: usize,
}

impl Sizes {
    fn new(g: &impl Builder, nodes: [NodeId; 3], options: &DeformConvOptions) -> Result<Self> {
        expect_spatial(g, "gather", &nodes, 2)?;
        let [x, offset, weight] = nodes.map(|node| g.dims(node));
        let groups = [options.offset_groups, options.weight_groups];
        let divide = |features: usize| groups.iter().all(|&groups| groups > 0 && features.is_multiple_of(groups));
        if !divide(x[1]) || !weight[0].is_multiple_of(groups[1].max(1)) {
            let rule =
                format!("offset_groups {} and weight_groups {} do not divide the features", groups[0], groups[1]);
            return Err(broken_rule(g, "gather", &nodes, rule));
        }
        let offsets = [x[0], 2 * groups[0] * weight[2] * weight[3], offset[2], offset[3]];
        if offset[..] != offsets {
            return Err(broken_rule(g, "gather", &nodes, format!("the offsets must be {offsets:?}")));
        }
        Ok(Self {
            dtype: g.dtype(nodes[0]),
            n: x[0],
            c: x[1],
            image: [x[2], x[3]],
            o: weight[0],
            kernel: [weight[2], weight[3]],
            out: [offset[2], offset[3]],
            offset_groups: options.offset_groups,
            weight_groups: options.weight_groups,
        })
    }

    fn k(&self) -> usize {
        self.kernel[0] * self.kernel[1]
    }

    fn l(&self) -> usize {
        self.out[0] * self.out[1]
    }

    /// Returns the number of rows of the column matrix within one weight group: channels times kernel elements.
    fn rows(&self) -> usize {
        self.c / self.weight_groups * self.k()
    }

    /// Returns the kernel as `[weight_groups, o / weight_groups, rows]`.
    fn grouped_weight(&self, g: &mut impl Builder, weight: NodeId) -> Result<NodeId> {
        g.reshape(weight, &[self.weight_groups, self.o / self.weight_groups, self.rows()])
    }

    /// Returns the gradient as `[n, weight_groups, o / weight_groups, l]`.
    fn grouped_output(&self, g: &mut impl Builder, grad: NodeId) -> Result<NodeId> {
        g.reshape(grad, &[self.n, self.weight_groups, self.o / self.weight_groups, self.l()])
    }

    /// Returns the product `[n, o, h_out, w_out]` of the kernel and the columns `[n, weight_groups, rows, l]`.
    fn product(&self, g: &mut impl Builder, weight: NodeId, columns: NodeId) -> Result<NodeId> {
        let weight = self.grouped_weight(g, weight)?;
        let product = grouped_dot(g, (weight, 0, &[2]), (columns, 1, &[2]))?;
        let product = g.transpose(product, &[2, 0, 1, 3])?;
        let product = g.convert(product, self.dtype)?;
        g.reshape(product, &[self.n, self.o, self.out[0], self.out[1]])
    }

    fn weight_gradient(&self, g: &mut impl Builder, grad: NodeId, columns: NodeId) -> Result<NodeId> {
        let grad = self.grouped_output(g, grad)?;
        let product = grouped_dot(g, (grad, 1, &[0, 3]), (columns, 1, &[0, 3]))?;
        let product = g.convert(product, self.dtype)?;
        g.reshape(product, &[self.o, self.c / self.weight_groups, self.kernel[0], self.kernel[1]])
    }

    /// Returns the gradients of the columns, `[n, offset_groups, c / offset_groups, k * l]`, in the accumulator type.
    fn column_gradients(&self, g: &mut impl Builder, weight: NodeId, grad: NodeId) -> Result<NodeId> {
        let weight = self.grouped_weight(g, weight)?;
        let grad = self.grouped_output(g, grad)?;
        let product = grouped_dot(g, (weight, 0, &[1]), (grad, 1, &[2]))?;
        let product = g.transpose(product, &[2, 0, 1, 3])?;
        g.reshape(product, &[self.n, self.offset_groups, self.c / self.offset_groups, self.k() * self.l()])
    }
}

/// The values of the input at all positions.
struct Sampled {
    corners: Corners,
    /// The pixels at the corners.
    pixels: [NodeId; 4],
    /// The bilinear reads, `[n, offset_groups, c / offset_groups, k * l]`.
    values: NodeId,
    /// `[n, offset_groups, k * l]`
    mask: Option<NodeId>,
}

impl Sampled {
    fn new(
        g: &mut impl Builder,
        sizes: &Sizes,
        [x, offset]: [NodeId; 2],
        mask: Option<NodeId>,
        options: &DeformConvOptions,
    ) -> Result<Self> {
        let wide = sizes.dtype.accumulator();
        let (groups, points) = (sizes.offset_groups, sizes.k() * sizes.l());
        let images = g.convert(x, wide)?;
        let images = g.reshape(images, &[sizes.n, groups, sizes.c / groups, sizes.image[0] * sizes.image[1]])?;
        let positions = [positions(g, sizes, offset, 0, options)?, positions(g, sizes, offset, 1, options)?];
        let corners = Corners::new(g, positions, sizes.image)?;
        let pixels = corners.read(g, images)?;
        let values = corners.blend(g, &pixels)?;
        let mask = mask.map(|mask| {
            let mask = g.convert(mask, wide)?;
            g.reshape(mask, &[sizes.n, groups, points])
        });
        Ok(Self { corners, pixels, values, mask: mask.transpose()? })
    }

    /// Multiplies the values by the mask, if there is one.
    fn masked(&self, g: &mut impl Builder, values: NodeId) -> Result<NodeId> {
        self.mask.map_or(Ok(values), |mask| per_point(g, BinaryOp::Mul, values, mask))
    }

    /// Returns the right side of the dot, `[n, weight_groups, rows, l]`, in the input's type.
    fn columns(&self, g: &mut impl Builder, sizes: &Sizes) -> Result<NodeId> {
        let values = self.masked(g, self.values)?;
        let values = g.convert(values, sizes.dtype)?;
        g.reshape(values, &[sizes.n, sizes.weight_groups, sizes.rows(), sizes.l()])
    }

    /// Returns the gradients with respect to input, offset and mask.
    fn gradients<B: Builder>(&self, g: &mut B, sizes: &Sizes, columns: NodeId) -> Result<[NodeId; 3]> {
        let (groups, k) = (sizes.offset_groups, sizes.k());
        let values = self.masked(g, columns)?;
        let images = [sizes.n, groups, sizes.c / groups, sizes.image[0] * sizes.image[1]];
        let x = self.corners.spread(g, values, &images)?;
        let mut by_axis = Vec::with_capacity(2);
        for slope in self.corners.slopes(g, &self.pixels)? {
            let along = sum_channels(g, values, slope)?;
            by_axis.push(g.reshape(along, &[sizes.n, groups * k, 1, sizes.out[0], sizes.out[1]])?);
        }
        let offset = g.concatenate(&by_axis, 2)?;
        let mask = sum_channels(g, columns, self.values)?;
        let finish = |g: &mut B, grad: NodeId, dims: &[usize]| {
            let grad = g.convert(grad, sizes.dtype)?;
            g.reshape(grad, dims)
        };
        Ok([
            finish(g, x, &[sizes.n, sizes.c, sizes.image[0], sizes.image[1]])?,
            finish(g, offset, &[sizes.n, groups * k * 2, sizes.out[0], sizes.out[1]])?,
            finish(g, mask, &[sizes.n, groups * k, sizes.out[0], sizes.out[1]])?,
        ])
    }
}

/// Returns the position along `axis` (0: y, 1: x) that each kernel element of each output position reads, `[n,
/// offset_groups, k * l]`: `output * stride + element * dilation - padding + offset`.
fn positions(
    g: &mut impl Builder,
    sizes: &Sizes,
    offset: NodeId,
    axis: usize,
    options: &DeformConvOptions,
) -> Result<NodeId> {
    let wide = sizes.dtype.accumulator();
    let lattice = [sizes.kernel[0], sizes.kernel[1], sizes.out[0], sizes.out[1]];
    let element = g.iota(wide, &lattice, axis)?;
    let element = g.binary_const(BinaryOp::Mul, element, options.dilation[axis] as f64)?;
    let output = g.iota(wide, &lattice, axis + 2)?;
    let output = g.binary_const(BinaryOp::Mul, output, options.stride[axis] as f64)?;
    let place = g.binary(BinaryOp::Add, element, output)?;
    let place = g.binary_const(BinaryOp::Sub, place, options.padding[axis] as f64)?;
    let place = g.reshape(place, &[1, 1, sizes.k() * sizes.l()])?;
    let offset = g.reshape(offset, &[sizes.n, sizes.offset_groups, sizes.k(), 2, sizes.l()])?;
    let offset = g.slice_dim(offset, 3, axis, axis + 1)?;
    let offset = g.convert(offset, wide)?;
    let offset = g.reshape(offset, &[sizes.n, sizes.offset_groups, sizes.k() * sizes.l()])?;
    g.binary(BinaryOp::Add, place, offset)
}

/// Returns the sum over channels of the products of `[n, groups, channels, points]`.
fn sum_channels(g: &mut impl Builder, lhs: NodeId, rhs: NodeId) -> Result<NodeId> {
    let product = g.binary(BinaryOp::Mul, lhs, rhs)?;
    g.reduce(Combine::Sum, product, &[2])
}

/// Records a dot within each weight group. Each side has its value, the dim of the groups, and the dims to contract.
fn grouped_dot(g: &mut impl Builder, lhs: (NodeId, usize, &[usize]), rhs: (NodeId, usize, &[usize])) -> Result<NodeId> {
    let attrs = DotAttrs::new([&[lhs.1], &[rhs.1]], [lhs.2, rhs.2], g.dtype(lhs.0).accumulator());
    g.dot_general(lhs.0, rhs.0, attrs)
}
