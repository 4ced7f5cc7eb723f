//! Weights of 8 or 4 bits: integers, and a scale for each block of them.
//!
//! Owns: how they are laid out on the device, and products with them. May not know: files, and which products have
//! them.
//!
//! Burn's own quantized tensors are symmetric and take a byte for each value; GGUF's Q4_1 has a least value for each
//! block, and 4 bits are to take 4. So these are plain ops on integers, which any backend has, and gradients pass
//! through them to what is multiplied.

use super::on_tpu::is_native;
use burn::module::{Param, ParamId};
use burn::prelude::*;
use burn::tensor::module::linear as product;
use burn::tensor::{DType, ElementConversion, FloatDType};
use std::ops::Range;

/// The inputs that share a scale.
pub(crate) const BLOCK: usize = 32;

/// The most rows that are multiplied block by block. Each row costs a sum for each block and output; the numbers of the
/// matrix cost 32 of those, for any number of rows.
const MOST_ROWS: usize = BLOCK;

/// How many bits a weight takes, beside its share of its block's scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bits {
    /// 8, symmetric: `scale * integer`. With the scale, 8.5.
    Eight,
    /// 4: `scale * integer + least`. With both, 5.
    Four,
}

impl Bits {
    /// Returns whether a matrix with so many inputs can have weights of so many bits: its blocks are whole, and two
    /// integers of 4 bits that share a byte are of different blocks.
    fn divide(self, inputs: usize) -> bool {
        inputs.is_multiple_of(match self {
            Self::Eight => BLOCK,
            Self::Four => 2 * BLOCK,
        })
    }
}

/// A matrix `[inputs, outputs]` in few bits. Its parameters are not trained.
#[derive(Module, Debug)]
pub struct FewBits<B: Backend> {
    /// 8 bits: i8, `[inputs / 32, 32, outputs]`. 4 bits: u8, `[inputs / 64, 32, outputs]`, whose low halves are the
    /// first half of the inputs and whose high halves are the second.
    pub quants: Param<Tensor<B, 3, Int>>,
    /// f16, `[inputs / 32, outputs]`.
    pub scales: Param<Tensor<B, 2>>,
    /// With 4 bits alone, what an integer of 0 stands for: f16, `[inputs / 32, outputs]`.
    pub least: Option<Param<Tensor<B, 2>>>,
}

impl<B: Backend> FewBits<B> {
    /// Creates a matrix of zeros, which are made when they are first used.
    fn new(bits: Bits, inputs: usize, outputs: usize, device: &B::Device) -> Self {
        let blocks = Shape::new([inputs / BLOCK, outputs]);
        let zeros = || {
            let (shape, device) = (blocks.clone(), device.clone());
            let zeros = move |device: &B::Device, _| Tensor::zeros(shape.clone(), (device, DType::F16));
            Param::uninitialized(ParamId::new(), zeros, device, false, blocks.clone())
        };
        let (bytes, dtype, least) = match bits {
            Bits::Eight => (inputs, DType::I8, None),
            Bits::Four => (inputs / 2, DType::U8, Some(zeros())),
        };
        let shape = Shape::new([bytes / BLOCK, BLOCK, outputs]);
        let of = shape.clone();
        let quants = move |device: &B::Device, _| Tensor::zeros(of.clone(), (device, dtype));
        let quants = Param::uninitialized(ParamId::new(), quants, device.clone(), false, shape);
        Self { quants, scales: zeros(), least }
    }

    /// Creates a matrix of zeros with so many bits, or 8 if they do not divide its inputs; `None` if those do not
    /// either.
    pub(crate) fn at_least(bits: Bits, inputs: usize, outputs: usize, device: &B::Device) -> Option<Self> {
        let bits = [bits, Bits::Eight].into_iter().find(|bits| bits.divide(inputs))?;
        Some(Self::new(bits, inputs, outputs, device))
    }

    /// Returns the numbers of inputs and outputs.
    pub(crate) fn dims(&self) -> [usize; 2] {
        let [blocks, outputs] = self.scales.lazy_shape().dims();
        [blocks * BLOCK, outputs]
    }

    /// Returns the number of bits.
    pub fn bits(&self) -> Bits {
        if self.least.is_some() { Bits::Four } else { Bits::Eight }
    }

    /// Maps `[batch, length, inputs]` to `[batch, length, outputs]`.
    pub(crate) fn product(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        let [batch, length, _] = x.dims();
        let rows = batch * length;
        let mut sum: Option<Tensor<B, 3>> = None;
        let mut begin = 0;
        for part in self.parts(self.quants.val(), self.scales.val(), self.least.as_ref().map(Param::val)) {
            let end = begin + part.quants.dims()[0] * BLOCK;
            let x = x.clone().slice_dim(2, begin..end);
            let y = if rows > MOST_ROWS {
                product(x.clone(), part.numbers().cast(x.dtype()), None)
            } else {
                let y = part.product(x.reshape([rows, end - begin]));
                y.reshape([batch, length, self.dims()[1]])
            };
            sum = Some(match sum {
                Some(sum) => sum + y,
                None => y,
            });
            begin = end;
        }
        sum.unwrap_or(x)
    }

    /// Returns the weights of these outputs `[batch, length]`, `[batch, length, inputs]`: rows of a table that is kept
    /// as its transpose.
    pub(crate) fn rows(&self, outputs: Tensor<B, 2, Int>, dtype: DType) -> Tensor<B, 3> {
        let [batch, length] = outputs.dims();
        let at: Tensor<B, 1, Int> = outputs.reshape([batch * length]);
        let chosen = |x: Tensor<B, 2>| x.select(1, at.clone());
        let scales = chosen(self.scales.val());
        let least = self.least.as_ref().map(|least| chosen(least.val()));
        let parts = if least.is_none() && batch * length <= MOST_ROWS && is_native::<B>(&at.device()) {
            vec![Part { quants: self.columns(&at), scales, least }]
        } else {
            self.parts(self.quants.val().select(2, at.clone()), scales, least)
        };
        let columns = Tensor::cat(parts.into_iter().map(Part::numbers).collect(), 0).cast(dtype);
        let inputs = columns.dims()[0];
        columns.transpose().reshape([batch, length, inputs])
    }

    /// Returns the integers of these outputs, `[inputs / 32, 32, chosen]`, as a product with ones at their places: to
    /// gather columns, a TPU copies the whole table. Integers of 8 bits are exact in any type of a product.
    fn columns(&self, at: &Tensor<B, 1, Int>) -> Tensor<B, 3> {
        let quants = float(self.quants.val());
        let [blocks, block, outputs] = quants.dims();
        let [chosen] = at.dims();
        // Burn's `one_hot` reads its input.
        let place = Tensor::<B, 1, Int>::arange(0..outputs as i64, &at.device());
        let [place, at] =
            [place.unsqueeze_dim::<2>(1), at.clone().unsqueeze_dim(0)].map(|x| x.expand([outputs, chosen]));
        let columns = quants.reshape([blocks * block, outputs]).matmul(place.equal(at).float().cast(DType::F32));
        columns.reshape([blocks, block, chosen])
    }

    /// Returns the parts of inputs that follow each other.
    fn parts(&self, quants: Tensor<B, 3, Int>, scales: Tensor<B, 2>, least: Option<Tensor<B, 2>>) -> Vec<Part<B>> {
        let Some(least) = least else { return vec![Part { quants: float(quants), scales, least: None }] };
        let blocks = scales.dims()[0];
        let halves = [quants.clone().bitwise_and_scalar(15.elem()), quants.bitwise_right_shift_scalar(4.elem())];
        let places = [0..blocks / 2, blocks / 2..blocks];
        let part = |(quants, place): (_, Range<usize>)| Part {
            quants: float(quants),
            scales: scales.clone().slice_dim(0, place.clone()),
            least: Some(least.clone().slice_dim(0, place)),
        };
        halves.into_iter().zip(places).map(part).collect()
    }
}

/// Returns integers in f32.
fn float<B: Backend>(quants: Tensor<B, 3, Int>) -> Tensor<B, 3> {
    quants.cast(FloatDType::F32)
}

/// Some inputs of a matrix, with an integer for each weight.
struct Part<B: Backend> {
    /// Integers in f32, `[blocks, 32, outputs]`
    quants: Tensor<B, 3>,
    /// `[blocks, outputs]`
    scales: Tensor<B, 2>,
    /// `[blocks, outputs]`
    least: Option<Tensor<B, 2>>,
}

impl<B: Backend> Part<B> {
    /// Maps `[rows, inputs]` to `[rows, outputs]`: a sum for each block, whose scale it is multiplied by. So no weight is
    /// multiplied alone, and the compiler reads the matrix in few bits where it multiplies it.
    fn product(self, x: Tensor<B, 2>) -> Tensor<B, 2> {
        let dtype = x.dtype();
        let [blocks, _, _] = self.quants.dims();
        let rows = x.dims()[0];
        let x = x.reshape([rows, blocks, BLOCK]).swap_dims(0, 1);
        let sums = x.clone().matmul(self.quants.cast(dtype)).cast(DType::F32);
        let mut y = (sums * self.scales.cast(DType::F32).unsqueeze_dim::<3>(1)).sum_dim(0).squeeze_dim::<2>(0);
        if let Some(least) = self.least {
            let inputs = x.cast(DType::F32).sum_dim(2).squeeze_dim::<2>(2).transpose();
            y = y + inputs.matmul(least.cast(DType::F32));
        }
        y.cast(dtype)
    }

    /// Returns the weights in f32, `[inputs, outputs]`: `scale * integer + least`.
    fn numbers(self) -> Tensor<B, 2> {
        let [blocks, _, outputs] = self.quants.dims();
        let of_block = |x: Tensor<B, 2>| x.cast(DType::F32).unsqueeze_dim::<3>(1);
        let mut numbers = self.quants * of_block(self.scales);
        if let Some(least) = self.least {
            numbers = numbers + of_block(least);
        }
        numbers.reshape([blocks * BLOCK, outputs])
    }
}
