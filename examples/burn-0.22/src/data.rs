//! The MNIST files as bytes, and batches of them as tensors.

use anyhow::{Context, Result, ensure};
use burn::prelude::*;
use std::path::{Path, PathBuf};

const PIXELS: usize = 784;

/// One of the two halves of MNIST.
#[derive(Clone, Copy)]
pub enum Split {
    Train,
    Test,
}

/// Images and their digits.
pub struct Digits {
    pixels: Vec<u8>,
    labels: Vec<u8>,
}

/// Returns the folder where `cargo xtask data` puts the files.
pub fn folder() -> Result<PathBuf> {
    let base = match (std::env::var_os("BURN_TPU_CACHE_DIR"), std::env::var_os("XDG_CACHE_HOME")) {
        (Some(cache), _) => PathBuf::from(cache),
        (None, Some(cache)) => PathBuf::from(cache).join("burn-tpu"),
        (None, None) => PathBuf::from(std::env::var_os("HOME").context("HOME is not set")?).join(".cache/burn-tpu"),
    };
    Ok(base.join("mnist"))
}

impl Digits {
    /// Reads both files of a split.
    pub fn load(folder: &Path, split: Split) -> Result<Self> {
        let (name, count) = match split {
            Split::Train => ("train", 60_000),
            Split::Test => ("t10k", 10_000),
        };
        let read = |file: String, header: usize, bytes: usize| {
            let path = folder.join(file);
            let data =
                std::fs::read(&path).with_context(|| format!("{} is missing: `cargo xtask data`", path.display()))?;
            ensure!(data.len() == header + bytes, "{} is not whole", path.display());
            anyhow::Ok(data[header..].to_vec())
        };
        Ok(Self {
            pixels: read(format!("{name}-images-idx3-ubyte"), 16, count * PIXELS)?,
            labels: read(format!("{name}-labels-idx1-ubyte"), 8, count)?,
        })
    }

    pub fn len(&self) -> usize {
        self.labels.len()
    }

    pub fn label(&self, image: usize) -> i64 {
        self.labels[image].into()
    }

    /// Returns images `[batch, 784]` from 0 to 1, and their digits `[batch]`.
    pub fn batch(&self, images: &[usize], device: &Device) -> (Tensor<2>, Tensor<1, Int>) {
        let rows = images.iter().flat_map(|&image| &self.pixels[image * PIXELS..(image + 1) * PIXELS]);
        let pixels: Vec<f32> = rows.map(|&pixel| f32::from(pixel) / 255.0).collect();
        let labels: Vec<i32> = images.iter().map(|&image| self.labels[image].into()).collect();
        let count = images.len();
        (
            Tensor::from_data(TensorData::new(pixels, [count, PIXELS]), device),
            Tensor::from_data(TensorData::new(labels, [count]), device),
        )
    }
}
