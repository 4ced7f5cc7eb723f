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
        Self::of_layers(config.layers, config, [batch, capacity], dtype, device)
    }

    fn of_layers(
        layers: usize,
        config: &Config,
        [batch, capacity]: [usize; 2],
        dtype: DType,
        device: &B::Device,
    ) -> Self {
        let shape = [batch, config.kv_heads, capacity, config.head];
        let empty = || [(); 2].map(|()| Tensor::zeros(shape, (device, dtype)));
        Self { layers: (0..layers).map(|_| empty()).collect(), starts: None, capacity, position: 0 }
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

    /// Returns the position after `length` more.
    ///
    /// # Panics
    /// If the cache is shorter.
    pub(super) fn position_after(&self, length: usize) -> usize {
        let next = self.position + length;
        assert!(next <= self.capacity, "position {next} in a cache of {}", self.capacity);
        next
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

    pub(super) fn starts(&self) -> Option<Tensor<B, 2, Int>> {
        self.starts.clone()
    }
}

/// The keys and values of layers, where attention writes those of new positions.
pub(super) trait KeysAndValues<B: Backend> {
    /// Writes keys and values `[batch, kv_heads, length, head]` of a layer at the position, and returns all of the
    /// layer's.
    fn write(&mut self, layer: usize, new: [Tensor<B, 4>; 2]) -> [Tensor<B, 4>; 2];
}

impl<B: Backend> KeysAndValues<B> for Cache<B> {
    fn write(&mut self, layer: usize, new: [Tensor<B, 4>; 2]) -> [Tensor<B, 4>; 2] {
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

/// The keys and values of a [`LoopedDecoder`](super::LoopedDecoder), and the position that is written next.
#[derive(Clone, Debug)]
pub struct LoopedCache<B: Backend> {
    /// Keys and values of the loop, `[trips, layers of a trip, batch, kv_heads, capacity, head]`.
    pub(super) trips: [Tensor<B, 6>; 2],
    /// Those of the layers after the loop.
    pub(super) rest: Cache<B>,
}

impl<B: Backend> LoopedCache<B> {
    /// Creates an empty cache for this many trips and layers of a trip, and layers after them.
    pub(super) fn new(
        [trips, of_trip, rest]: [usize; 3],
        config: &Config,
        [batch, capacity]: [usize; 2],
        dtype: DType,
        device: &B::Device,
    ) -> Self {
        let shape = [trips, of_trip, batch, config.kv_heads, capacity, config.head];
        let trips = [(); 2].map(|()| Tensor::zeros(shape, (device, dtype)));
        Self { trips, rest: Cache::of_layers(rest, config, [batch, capacity], dtype, device) }
    }

    /// Returns the position that is written next.
    pub fn position(&self) -> usize {
        self.rest.position
    }

    /// Chooses the position that is written next, as [`Cache::set_position`].
    ///
    /// # Panics
    /// If the cache is shorter.
    pub fn set_position(&mut self, position: usize) {
        self.rest.set_position(position);
    }

    /// Chooses where the text of each row begins, as [`Cache::set_starts`].
    pub fn set_starts(&mut self, starts: Option<Tensor<B, 2, Int>>) {
        self.rest.set_starts(starts);
    }

    /// Returns the cache with the keys and values of a layer split over the axes of a mesh, as [`Cache::shard`].
    ///
    /// # Panics
    /// As [`shard`].
    pub fn shard(self, dims: [Option<&str>; 4]) -> Self
    where
        B: MeshBackend,
    {
        let [batch, heads, positions, head] = dims;
        let trips = self.trips.map(|stack| shard(stack, [None, None, batch, heads, positions, head]));
        Self { trips, rest: self.rest.shard(dims) }
    }
}

/// The keys and values of one trip of a loop, `[layers of a trip, batch, kv_heads, capacity, head]`.
pub(super) struct TripCache<B: Backend> {
    pub(super) layers: [Tensor<B, 5>; 2],
    pub(super) position: usize,
}

impl<B: Backend> KeysAndValues<B> for TripCache<B> {
    fn write(&mut self, layer: usize, new: [Tensor<B, 4>; 2]) -> [Tensor<B, 4>; 2] {
        let [batch, heads, length, head] = new[0].dims();
        let place = [layer..layer + 1, 0..batch, 0..heads, self.position..self.position + length, 0..head];
        for (cached, new) in self.layers.iter_mut().zip(new) {
            *cached = cached.clone().slice_assign(place.clone(), new.unsqueeze_dim(0));
        }
        self.layers.clone().map(|cached| cached.slice_dim(0, layer..layer + 1).squeeze_dim(0))
    }
}
