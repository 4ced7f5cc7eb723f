//! What a layer sees beside its input. The places of queries and keys say how they are rotated, and which keys a query must
//! not see; a mesh says where tokens and experts are.

use super::context::{Context, ContextForm};
use super::exchange::Exchange;
use super::rope::Rotation;
use crate::config::Config;
use burn::prelude::*;

/// The rotation of queries and keys, and the keys that each query sees.
#[derive(Clone, Debug)]
pub(crate) struct View<B: Backend> {
    pub(crate) rotation: Rotation<B>,
    pub(crate) sight: Sight<B>,
    /// How tokens get to their experts, on a mesh that splits those.
    pub(crate) exchange: Option<Exchange<B>>,
}

/// The keys that each query sees.
#[derive(Clone, Debug)]
pub(crate) enum Sight<B: Backend> {
    /// All scores are computed, and those of hidden keys are replaced.
    Scores {
        /// `[1 or batch, 1, queries, keys]`, true at keys after the query, at those that its window has left and at those
        /// of other texts.
        hidden: Tensor<B, 4, Bool>,
        /// What splits the queries.
        context: Option<Context<B>>,
    },
    /// Keys go round the parts of a context, which knows the places of its queries.
    Ring {
        context: Context<B>,
        window: Option<usize>,
        /// Where the text of each query begins, `[batch, queries]`.
        starts: Option<Tensor<B, 2, Int>>,
    },
}

/// Where the queries of a pass are in the rows of its keys.
pub(super) struct Places<B: Backend> {
    /// `[queries]`
    pub(super) queries: Tensor<B, 1, Int>,
    /// The number of keys.
    pub(super) keys: usize,
    /// Where the text of each query begins in its row, `[batch, queries or 1]`; without it, all begin at 0.
    pub(super) starts: Option<Tensor<B, 2, Int>>,
    /// What splits the queries, in whose order they are.
    pub(super) context: Option<Context<B>>,
}

/// The views of a decoder's layers, of which those with the same window share one.
pub(super) struct Views<'c, B: Backend> {
    config: &'c Config,
    places: Places<B>,
    exchange: Option<Exchange<B>>,
    known: Vec<(Option<usize>, View<B>)>,
}

impl<'c, B: Backend> Views<'c, B> {
    pub(super) fn new(config: &'c Config, places: Places<B>) -> Self {
        Self { config, places, exchange: None, known: Vec::new() }
    }

    /// Sets how tokens get to their experts.
    pub(super) fn with_exchange(self, exchange: Option<Exchange<B>>) -> Self {
        Self { exchange, ..self }
    }

    /// Returns the view of a layer.
    pub(super) fn of(&mut self, layer: usize) -> View<B> {
        let window = self.config.windows[layer];
        if let Some((_, view)) = self.known.iter().find(|(known, _)| *known == window) {
            return view.clone();
        }
        let rotation = Rotation::new(self.config.rope_of(layer), self.config.head, self.places.positions());
        let view = View { rotation, sight: self.places.sight(window), exchange: self.exchange.clone() };
        self.known.push((window, view.clone()));
        view
    }
}

impl<B: Backend> Places<B> {
    fn sight(&self, window: Option<usize>) -> Sight<B> {
        match &self.context {
            Some(context) if context.form() == ContextForm::Ring => {
                Sight::Ring { context: context.clone(), window, starts: self.starts.clone() }
            }
            context => Sight::Scores { hidden: self.hidden(window), context: context.clone() },
        }
    }

    /// Returns the position of each query in its text, `[1 or batch, queries]`.
    fn positions(&self) -> Tensor<B, 2, Int> {
        let queries = self.queries.clone().unsqueeze::<2>();
        match &self.starts {
            Some(starts) => {
                let shape = [starts.dims()[0], queries.dims()[1]];
                queries.expand(shape) - starts.clone().expand(shape)
            }
            None => queries,
        }
    }

    fn hidden(&self, window: Option<usize>) -> Tensor<B, 4, Bool> {
        let keys = Tensor::arange(0..self.keys as i64, &self.queries.device());
        let shape = [self.queries.dims()[0], self.keys];
        let ahead =
            keys.clone().unsqueeze::<2>().expand(shape) - self.queries.clone().unsqueeze_dim::<2>(1).expand(shape);
        let later = ahead.clone().greater_elem(0);
        let hidden = match window {
            Some(window) => later.bool_or(ahead.lower_equal_elem(-(window as i64))),
            None => later,
        };
        let Some(starts) = &self.starts else { return hidden.unsqueeze() };
        // A text is in one piece, so what begins before it is of another one.
        let shape = [starts.dims()[0], 1, shape[0], shape[1]];
        let starts = starts.clone().unsqueeze_dim::<3>(2).unsqueeze_dim::<4>(1);
        let other = keys.unsqueeze::<4>().expand(shape).lower(starts.expand(shape));
        hidden.unsqueeze::<4>().expand(shape).bool_or(other)
    }
}
