//! Batches of labelled images the size of MNIST's.

use super::noise::Noise;
use burn::prelude::*;

/// The side of an image, in pixels.
pub const SIDE: usize = 28;
/// The number of pixels in an image.
pub const PIXELS: usize = SIDE * SIDE;
/// The number of classes: ten digits.
pub const CLASSES: usize = 10;

/// Images `[batch, 784]` and their classes `[batch]`.
#[derive(Module, Debug)]
pub struct Images<B: Backend> {
    /// `[batch, 784]`, row-major
    pub images: Tensor<B, 2>,
    /// `[batch]`, 0 to 9
    pub targets: Tensor<B, 1, Int>,
}

impl<B: Backend> Images<B> {
    /// Returns a learnable batch: noise with a bright bar whose position is the class. A step's batch is the same on
    /// every backend.
    pub fn synthetic(batch: usize, step: usize, device: &B::Device) -> Self {
        let mut noise = Noise::of_step(step);
        let (mut pixels, mut targets) = (Vec::with_capacity(batch * PIXELS), Vec::with_capacity(batch));
        for _ in 0..batch {
            let class = noise.below(CLASSES);
            targets.push(class as i32);
            pixels.extend((0..PIXELS).map(|pixel| {
                let bright = pixel * CLASSES / PIXELS == class;
                noise.unit() + if bright { 1.0 } else { 0.0 }
            }));
        }
        Self {
            images: Tensor::from_data(TensorData::new(pixels, [batch, PIXELS]), device),
            targets: Tensor::from_data(TensorData::new(targets, [batch]), device),
        }
    }
}
