//! What the positions of a layer's queries and keys say: how they are rotated, and which keys a query must not see.

use super::rope::Rotation;
use crate::config::Config;
use burn::prelude::*;

/// The rotation of positions, and the keys that are hidden from each query.
#[derive(Clone, Debug)]
pub(crate) struct View<B: Backend> {
    pub(crate) rotation: Rotation<B>,
    /// `[queries, keys]`, true at keys after the query and at those that its window has left.
    pub(crate) hidden: Tensor<B, 2, Bool>,
}

/// The views of a decoder's layers, of which those with the same window share one.
pub(super) struct Views<'c, B: Backend> {
    config: &'c Config,
    /// The positions of the queries, `[queries]`.
    queries: Tensor<B, 1, Int>,
    /// The number of keys, which begin at position 0.
    keys: usize,
    known: Vec<(Option<usize>, View<B>)>,
}

impl<'c, B: Backend> Views<'c, B> {
    pub(super) fn new(config: &'c Config, queries: Tensor<B, 1, Int>, keys: usize) -> Self {
        Self { config, queries, keys, known: Vec::new() }
    }

    /// Returns the view of a layer.
    pub(super) fn of(&mut self, layer: usize) -> View<B> {
        let window = self.config.windows[layer];
        if let Some((_, view)) = self.known.iter().find(|(known, _)| *known == window) {
            return view.clone();
        }
        let rotation = Rotation::new(self.config.rope_of(layer), self.config.head, self.queries.clone());
        let view = View { rotation, hidden: self.hidden(window) };
        self.known.push((window, view.clone()));
        view
    }

    fn hidden(&self, window: Option<usize>) -> Tensor<B, 2, Bool> {
        let keys = Tensor::arange(0..self.keys as i64, &self.queries.device()).unsqueeze::<2>();
        let shape = [self.queries.dims()[0], self.keys];
        let ahead = keys.expand(shape) - self.queries.clone().unsqueeze_dim::<2>(1).expand(shape);
        let later = ahead.clone().greater_elem(0);
        match window {
            Some(window) => later.bool_or(ahead.lower_equal_elem(-(window as i64))),
            None => later,
        }
    }
}
