//! A decoder whose layers run as one loop: what recording and compiling it cost does not depend on their number.
//!
//! Owns: which layers are a trip of the loop. May not know: what the layers compute, and how a loop is recorded.

use super::cache::{LoopedCache, TripCache};
use super::context::Context;
use super::decoder::{Decoder, Inputs, Layer, no_sums};
use super::exchange::Exchange;
use super::mixture::RouterReport;
use super::view::{Places, View, Views};
use crate::error::Result;
use burn::prelude::*;
use burn_tpu::{Keep, Layers, LayersBackend, MeshBackend};

/// A [`Decoder`] whose layers are a loop. A trip has as many layers as it takes until their windows
/// repeat: one in most families, two in Gemma 2, six in Gemma 3.
#[derive(Module, Debug)]
pub struct LoopedDecoder<B: Backend> {
    /// What is before and after the loop, with the last layers where their number is no multiple of a trip's.
    ends: Decoder<B>,
    trips: Layers<B, Vec<Layer<B>>>,
}

impl<B: Backend> Decoder<B> {
    /// Returns the decoder with its layers as a loop, which keeps what `keep` says for the backward pass.
    ///
    /// # Errors
    /// [`LlmError::Loop`](crate::LlmError::Loop) for layers that differ in more than the values of their weights.
    pub fn into_loop(mut self, keep: Keep) -> Result<LoopedDecoder<B>> {
        let length = period(&self.config().windows);
        let rest = self.layers.split_off(self.layers.len() / length * length);
        let mut layers = std::mem::replace(&mut self.layers, rest).into_iter();
        let mut trips = Vec::new();
        while layers.len() > 0 {
            trips.push(layers.by_ref().take(length).collect());
        }
        Ok(LoopedDecoder { trips: Layers::new(trips)?.with_keep(keep), ends: self })
    }
}

impl<B: Backend> LoopedDecoder<B> {
    /// Returns the decoder with its layers one by one.
    pub fn into_decoder(self) -> Decoder<B> {
        let mut decoder = self.ends;
        let rest = std::mem::take(&mut decoder.layers);
        decoder.layers = self.trips.into_blocks().into_iter().flatten().chain(rest).collect();
        decoder
    }

    /// Returns what the model computes.
    pub fn config(&self) -> &crate::Config {
        self.ends.config()
    }
}

impl<B: LayersBackend + MeshBackend> LoopedDecoder<B> {
    /// Returns what [`Decoder::nats`] does. On a mesh with an axis `expert`, tokens are exchanged between its chips as
    /// [`Dispatch::Sorted`](super::Dispatch::Sorted) and [`Dispatch::Capacity`](super::Dispatch::Capacity) say.
    ///
    /// # Errors
    /// [`LlmError::Loop`](crate::LlmError::Loop) if the layers cannot be recorded as a loop.
    pub fn nats(&self, tokens: Tensor<B, 2, Int>, starts: Option<Tensor<B, 2, Int>>) -> Result<Tensor<B, 2>> {
        self.nats_of(&Inputs::new(tokens, starts, None)?)
    }

    /// Returns what [`Decoder::nats_over`] does.
    ///
    /// # Errors
    /// [`LlmError::Context`](crate::LlmError::Context) for a length that does not divide;
    /// [`LlmError::Loop`](crate::LlmError::Loop) if the layers cannot be recorded as a loop.
    pub fn nats_over(
        &self,
        tokens: Tensor<B, 2, Int>,
        starts: Option<Tensor<B, 2, Int>>,
        context: &Context<B>,
    ) -> Result<Tensor<B, 2>> {
        self.nats_of(&Inputs::new(tokens, starts, Some(context))?)
    }

    /// Returns what [`Decoder::nats_and_routers`] does.
    ///
    /// # Errors
    /// Those of [`LoopedDecoder::nats`].
    pub fn nats_and_routers(
        &self,
        tokens: Tensor<B, 2, Int>,
        starts: Option<Tensor<B, 2, Int>>,
    ) -> Result<(Tensor<B, 2>, RouterReport<B>)> {
        let inputs = Inputs::new(tokens, starts, None)?;
        let device = inputs.tokens.device();
        let mut views = self.views(&inputs);
        let of_trip = self.views_of_trip(&mut views);
        let x = self.ends.embed(inputs.tokens.clone());
        let (x, sums) = self.trips.forward((x, no_sums(&device)), |layers, (x, sums)| {
            let mut sums = Some(sums);
            let x = layers.iter().zip(&of_trip).fold(x, |x, (layer, view)| layer.forward(x, view, None, &mut sums));
            (x, sums.unwrap_or_else(|| no_sums(&device)))
        })?;
        let mut sums = Some(sums);
        let hidden = self.ends.run_layers(x, &mut views, None, &mut sums);
        let sums = sums.unwrap_or_else(|| no_sums(&device));
        Ok((self.ends.nats_of(hidden, inputs.targets.clone()), RouterReport::of(sums, self.config().layers)))
    }

    /// Returns an empty cache for `capacity` positions of `batch` texts.
    pub fn cache(&self, batch: usize, capacity: usize, device: &B::Device) -> LoopedCache<B> {
        let config = self.config();
        let layers = [self.trips.len(), period(&config.windows), self.ends.layers.len()];
        LoopedCache::new(layers, config, [batch, capacity], self.ends.dtype(), device)
    }

    /// Returns what [`Decoder::extend`] does, without a gradient. [`LoopedDecoder::logits`] of those that matter follow.
    ///
    /// # Errors
    /// [`LlmError::Loop`](crate::LlmError::Loop) on a backend with autodiff, or if the layers cannot be recorded as a loop.
    ///
    /// # Panics
    /// If the cache has no room for the tokens.
    pub fn extend(&self, tokens: Tensor<B, 2, Int>, cache: &mut LoopedCache<B>) -> Result<Tensor<B, 3>> {
        let (begin, next) = (cache.position(), cache.rest.position_after(tokens.dims()[1]));
        let queries = Tensor::arange(begin as i64..next as i64, &tokens.device());
        let places = Places { queries, keys: cache.rest.capacity(), starts: cache.rest.starts(), context: None };
        let mut views = Views::new(self.config(), places);
        let of_trip = self.views_of_trip(&mut views);
        let x = self.ends.embed(tokens);
        let (x, trips) = self.trips.forward_with_state(x, cache.trips.clone(), |layers, mut x, cached| {
            let mut cached = TripCache { layers: cached, position: begin };
            for (index, (layer, view)) in layers.iter().zip(&of_trip).enumerate() {
                x = layer.forward(x, view, Some((&mut cached, index)), &mut None);
            }
            (x, cached.layers)
        })?;
        cache.trips = trips;
        let hidden = self.ends.run_layers(x, &mut views, Some(&mut cache.rest), &mut None);
        cache.set_position(next);
        Ok(hidden)
    }

    /// Returns what [`Decoder::logits`] does.
    pub fn logits(&self, hidden: Tensor<B, 3>) -> Tensor<B, 3> {
        self.ends.logits(hidden)
    }

    fn nats_of(&self, inputs: &Inputs<'_, B>) -> Result<Tensor<B, 2>> {
        let mut views = self.views(inputs);
        let of_trip = self.views_of_trip(&mut views);
        let x = inputs.split(self.ends.embed(inputs.tokens.clone()));
        let x = self.trips.forward(x, |layers, mut x| {
            for (layer, view) in layers.iter().zip(&of_trip) {
                x = inputs.split(layer.forward(x, view, None, &mut None));
            }
            x
        })?;
        let hidden = inputs.split(self.ends.run_layers(x, &mut views, None, &mut None));
        Ok(inputs.restored(self.ends.nats_of(hidden, inputs.targets.clone())))
    }

    fn views(&self, inputs: &Inputs<'_, B>) -> Views<'_, B> {
        Views::new(self.config(), inputs.places()).with_exchange(Exchange::new(&inputs.tokens.device()))
    }

    fn views_of_trip(&self, views: &mut Views<'_, B>) -> Vec<View<B>> {
        (0..period(&self.config().windows)).map(|layer| views.of(layer)).collect()
    }
}

/// Returns after how many layers the windows repeat.
fn period(windows: &[Option<usize>]) -> usize {
    let repeats = |length: &usize| windows.iter().zip(&windows[*length..]).all(|(one, next)| one == next);
    (1..windows.len()).find(repeats).unwrap_or(windows.len())
}
