//! The keys and values of earlier positions, of a fixed size, so that every step is the same program.

use crate::config::Config;
use burn::prelude::*;
use burn::tensor::DType;
use burn_tpu::{MeshBackend, shard};

/// Keys and values of all layers, and the position that is written next.
#[derive(Clone, Debug)]
pub struct Cache<B: Backend> {
    /// Keys and values of each layer, `[batch, kv_heads, capacity, head]`.
    layers: Vec<[Tensor<B, 4>; 2]>,
    /// Where the text of each row begins, `[batch, 1]`; without it, all begin at 0.
    starts: Option<Tensor<B, 2, Int>>,
    capacity: usize,
    position: usize,
}

impl<B: Backend> Cache<B> {
    /// Creates an empty cache for `capacity` positions of `batch` texts.
    pub fn new(config: &Config, batch: usize, capacity: usize, dtype: DType, device: &B::Device) -> Self {
        let shape = [batch, config.kv_heads, capacity, config.head];
        let empty = || [(); 2].map(|()| Tensor::zeros(shape, (device, dtype)));
        Self { layers: (0..config.layers).map(|_| empty()).collect(), starts: None, capacity, position: 0 }
    }

    /// Returns the number of positions that it can hold.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Returns the position that is written next.
    pub fn position(&self) -> usize {
        self.position
    }

    /// Chooses the position that is written next; what is at and after it counts as empty.
    ///
    /// # Panics
    /// If the cache is shorter.
    pub fn set_position(&mut self, position: usize) {
        assert!(position <= self.capacity, "position {position} of a cache of {}", self.capacity);
        self.position = position;
    }

    /// Chooses where the text of each row begins, `[batch, 1]`: what is before that is not seen.
    pub fn set_starts(&mut self, starts: Option<Tensor<B, 2, Int>>) {
        self.starts = starts;
    }

    /// Returns the cache with its keys and values, `[batch, kv_heads, capacity, head]`, split over the axes of a mesh, as
    /// [`shard`] does. Steps leave them so.
    ///
    /// # Panics
    /// As [`shard`].
    pub fn shard(mut self, dims: [Option<&str>; 4]) -> Self
    where
        B: MeshBackend,
    {
        for tensor in self.layers.iter_mut().flatten() {
            *tensor = shard(tensor.clone(), dims);
        }
        self
    }

    pub(crate) fn starts(&self) -> Option<Tensor<B, 2, Int>> {
        self.starts.clone()
    }

    /// Writes keys and values `[batch, kv_heads, length, head]` of a layer at the position, and returns all of the
    /// layer's.
    pub(crate) fn write(&mut self, layer: usize, new: [Tensor<B, 4>; 2]) -> [Tensor<B, 4>; 2] {
        let [batch, heads, length, head] = new[0].dims();
        let place = [0..batch, 0..heads, self.position..self.position + length, 0..head];
        let layer = &mut self.layers[layer];
        for (cached, new) in layer.iter_mut().zip(new) {
            // The cache must be the only one that refers to the tensor, for it to be updated in place.
            let whole = std::mem::replace(cached, new.clone());
            *cached = whole.slice_assign(place.clone(), new);
        }
        layer.clone()
    }
}
