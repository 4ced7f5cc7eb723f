//! Turns images on the host into batches on the device, and builds the data loaders for the Learner.
//!
//! Every batch of a run has the same shape, since each new shape is a program to compile: the training set is
//! truncated to a multiple of the batch size, and the test set is read in batches whose size divides its 10,000 images.

use crate::data::Item;
use burn::data::dataloader::batcher::Batcher;
use burn::data::dataloader::{DataLoader, DataLoaderBuilder};
use burn::data::dataset::InMemDataset;
use burn::prelude::*;
use burn::tensor::ElementConversion;
use burn_tpu_workspace::models::{Images, PIXELS};
use std::sync::Arc;

/// Mean and standard deviation of the training set's pixels, scaled to 0..1.
const MEAN: f32 = 0.1307;
const DEVIATION: f32 = 0.3081;

/// The number of test images per batch; divides 10,000.
const TEST_BATCH: usize = 1_000;

/// Converts pixels to the backend's own float type while copying, so that nothing is converted twice.
#[derive(Clone)]
pub struct MnistBatcher<B: Backend> {
    normalised: [B::FloatElem; 256],
}

impl<B: Backend> MnistBatcher<B> {
    /// Creates a table from pixel to normalised value: there are only 256 of them.
    pub fn new() -> Self {
        let normalise = |pixel: usize| ((pixel as f32 / 255.0 - MEAN) / DEVIATION).elem();
        Self { normalised: std::array::from_fn(normalise) }
    }
}

impl<B: Backend> Batcher<B, Item, Images<B>> for MnistBatcher<B> {
    fn batch(&self, items: Vec<Item>, device: &B::Device) -> Images<B> {
        let pixels = items.iter().flat_map(|item| &item.pixels);
        let pixels: Vec<B::FloatElem> = pixels.map(|pixel| self.normalised[usize::from(*pixel)]).collect();
        let targets: Vec<i32> = items.iter().map(|item| i32::from(item.label)).collect();
        Images {
            images: Tensor::from_data(TensorData::new(pixels, [items.len(), PIXELS]), device),
            targets: Tensor::from_data(TensorData::new(targets, [items.len()]), device),
        }
    }
}

/// Returns shuffled full batches, built by one background thread: with two threads, their order would depend on timing.
pub fn training<B: Backend>(
    mut items: Vec<Item>,
    batch_size: usize,
    seed: u64,
    device: &B::Device,
) -> Arc<dyn DataLoader<B, Images<B>>> {
    items.truncate(items.len() / batch_size * batch_size);
    let loader = DataLoaderBuilder::new(MnistBatcher::<B>::new()).batch_size(batch_size).num_workers(1);
    loader.shuffle(seed).set_device(device.clone()).build(InMemDataset::new(items))
}

/// Returns all test images, in order.
pub fn testing<B: Backend>(items: Vec<Item>, device: &B::Device) -> Arc<dyn DataLoader<B, Images<B>>> {
    let loader = DataLoaderBuilder::new(MnistBatcher::<B>::new()).batch_size(TEST_BATCH);
    loader.set_device(device.clone()).build(InMemDataset::new(items))
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn_flex::Flex;

    fn items(count: usize) -> Vec<Item> {
        (0..count).map(|n| Item { pixels: [255; PIXELS], label: n as u8 % 10 }).collect()
    }

    #[test]
    fn a_batch_is_normalised_and_keeps_its_labels() {
        let batch = Batcher::<Flex, _, _>::batch(&MnistBatcher::new(), items(3), &Default::default());
        assert_eq!(batch.images.dims(), [3, PIXELS]);
        let white = batch.images.into_data().iter::<f32>().next().unwrap();
        assert!((white - (1.0 - MEAN) / DEVIATION).abs() < 1e-6, "{white}");
        assert_eq!(batch.targets.into_data().iter::<i64>().collect::<Vec<_>>(), [0, 1, 2]);
    }

    #[test]
    fn training_batches_are_full_and_in_the_same_order_every_time() {
        let labels = || {
            let loader = training::<Flex>(items(23), 5, 1, &Default::default());
            let batches = loader.iter().map(|batch| batch.targets.into_data().iter::<i64>().collect::<Vec<_>>());
            batches.collect::<Vec<_>>()
        };
        let first = labels();
        assert_eq!(first.iter().map(Vec::len).collect::<Vec<_>>(), [5; 4]);
        assert_eq!(first, labels());
    }
}
