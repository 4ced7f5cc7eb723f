//! Weights of 8 or 4 bits: integers, and a scale for each block of them.
//!
//! Owns: how they are laid out on the device, and products with them. May not know: files, and which products have
//! them.
//!
//! Burn's own quantized tensors are symmetric and take a byte for each value; GGUF's Q4_1 has a least value for each
//! block, and 4 bits are to take 4. So these are plain ops on integers, which any backend has, and gradients pass
//! through them to what is multiplied.

use burn::module::{Param, ParamId};
use burn::prelude::*;
use burn::tensor::module::linear as product;
use burn::tensor::{DType, ElementConversion, FloatDType};
use std::ops::Range;

/// The inputs that share a scale.
pub(crate) const BLOCK: usize = 32;

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
    /// 8 bits: i8, `[inputs, outputs]`. 4 bits: u8, `[inputs / 2, outputs]`, whose low halves are the first half of the
    /// inputs and whose high halves are the second.
    pub quants: Param<Tensor<B, 2, Int>>,
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
        let (rows, dtype, least) = match bits {
            Bits::Eight => (inputs, DType::I8, None),
            Bits::Four => (inputs / 2, DType::U8, Some(zeros())),
        };
        let shape = Shape::new([rows, outputs]);
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
        let mut sum: Option<Tensor<B, 3>> = None;
        let mut begin = 0;
        for part in self.parts(self.quants.val(), self.scales.val(), self.least.as_ref().map(Param::val)) {
            let end = begin + part.dims()[0];
            let y = product(x.clone().slice_dim(2, begin..end), part.cast(x.dtype()), None);
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
        let least = self.least.as_ref().map(|least| chosen(least.val()));
        let parts = self.parts(self.quants.val().select(1, at.clone()), chosen(self.scales.val()), least);
        let columns = Tensor::cat(parts, 0).cast(dtype);
        let inputs = columns.dims()[0];
        columns.transpose().reshape([batch, length, inputs])
    }

    /// Returns the numbers in f32, `[inputs, outputs]`, in parts that follow each other.
    fn parts(&self, quants: Tensor<B, 2, Int>, scales: Tensor<B, 2>, least: Option<Tensor<B, 2>>) -> Vec<Tensor<B, 2>> {
        let Some(least) = least else { return vec![numbers(quants, scales, None)] };
        let blocks = scales.dims()[0];
        let halves = [quants.clone().bitwise_and_scalar(15.elem()), quants.bitwise_right_shift_scalar(4.elem())];
        let places = [0..blocks / 2, blocks / 2..blocks];
        let part = |(quants, place): (_, Range<usize>)| {
            numbers(quants, scales.clone().slice_dim(0, place.clone()), Some(least.clone().slice_dim(0, place)))
        };
        halves.into_iter().zip(places).map(part).collect()
    }
}

/// Returns `scale * integer + least` in f32, `[inputs, outputs]`.
fn numbers<B: Backend>(quants: Tensor<B, 2, Int>, scales: Tensor<B, 2>, least: Option<Tensor<B, 2>>) -> Tensor<B, 2> {
    let [inputs, outputs] = quants.dims();
    let shape = [inputs / BLOCK, BLOCK, outputs];
    let of_block = |x: Tensor<B, 2>| x.cast(DType::F32).unsqueeze_dim::<3>(1).expand(shape);
    let mut numbers = quants.cast(FloatDType::F32).reshape(shape) * of_block(scales);
    if let Some(least) = least {
        numbers = numbers + of_block(least);
    }
    numbers.reshape([inputs, outputs])
}
