//! Batches of labelled images the size of MNIST's.

use super::noise::Noise;
use burn::prelude::*;

/// Pixels along an image's side.
pub const SIDE: usize = 28;
/// Pixels in an image.
pub const PIXELS: usize = SIDE * SIDE;
/// The ten digits.
pub const CLASSES: usize = 10;

/// Images `[batch, 784]` and their classes `[batch]`.
#[derive(Clone, Debug)]
pub struct Images<B: Backend> {
    /// `[batch, 784]`, row by row
    pub images: Tensor<B, 2>,
    /// `[batch]`, 0 to 9
    pub targets: Tensor<B, 1, Int>,
}

impl<B: Backend> Images<B> {
    /// Noise with a bright bar whose place is the class: something that can be learned. The same for a step on every backend.
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
