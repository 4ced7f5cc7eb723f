//! Classifiers of photographs, `[batch, 3, side, side]`, as Burn users write them: ResNet-50, ViT-B/16 and ConvNeXt-T.
//!
//! Owns: the models in the sizes of their papers, or smaller ones for tests, and their batches.

mod convnext;
mod resnet50;
mod vit;

pub use convnext::{ConvNext, ConvNextConfig};
pub use resnet50::{ResNet50, ResNet50Config};
pub use vit::{Vit, VitConfig};

use super::noise::Noise;
use burn::prelude::*;

/// Photographs and their classes.
#[derive(Module, Debug)]
pub struct Photos<B: Backend> {
    /// `[batch, 3, side, side]`
    pub photos: Tensor<B, 4>,
    /// `[batch]`
    pub targets: Tensor<B, 1, Int>,
}

impl<B: Backend> Photos<B> {
    /// Returns a learnable batch: noise with a bright bar whose position is the class. A step's batch is the same on every
    /// backend.
    pub fn synthetic(batch: usize, side: usize, classes: usize, step: usize, device: &B::Device) -> Self {
        let mut noise = Noise::of_step(step);
        let places = 3 * side * side;
        let (mut values, mut targets) = (Vec::with_capacity(batch * places), Vec::with_capacity(batch));
        for _ in 0..batch {
            let class = noise.below(classes);
            targets.push(class as i32);
            values.extend((0..places).map(|place| {
                let row = place / side % side;
                noise.unit() + if row * classes / side == class { 1.0 } else { 0.0 }
            }));
        }
        Self {
            photos: Tensor::from_data(TensorData::new(values, [batch, 3, side, side]), device),
            targets: Tensor::from_data(TensorData::new(targets, [batch]), device),
        }
    }
}
