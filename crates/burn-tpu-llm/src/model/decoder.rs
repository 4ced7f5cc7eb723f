//! The whole decoder and its layers.

use super::attention::{Attention, capped};
use super::cache::{Cache, KeysAndValues};
use super::context::Context;
use super::embedding::Embedding;
use super::few_bits::Bits;
use super::kept::INPUT;
use super::mixture::{Dispatch, Mlp, Pass, RouterReport};
use super::norm::RmsNorm;
use super::product::Product;
use super::projection::Projection;
use super::view::{Places, View, Views};
use crate::config::{Config, LoraConfig};
use burn::prelude::*;
use burn::tensor::DType;
use burn::tensor::activation::log_softmax;
use burn_tpu::keep;

/// A decoder-only transformer as a [`Config`](struct@Config) describes it.
#[derive(Module, Debug)]
pub struct Decoder<B: Backend> {
    /// The vectors of the tokens, `[vocabulary, width]`.
    pub embed_tokens: Embedding<B>,
    /// The layers, the first one first.
    pub layers: Vec<Layer<B>>,
    /// The norm before the logits.
    pub norm: RmsNorm<B>,
    /// `[width, vocabulary]`; without it, the logits are products with `embed_tokens`.
    pub lm_head: Option<Projection<B>>,
    #[module(skip)]
    config: Config,
    /// What the adapter is, if there is one.
    #[module(skip)]
    pub(crate) lora: Option<LoraConfig>,
}

/// A layer of a [`Decoder`]. The norms have the names of Hugging Face's tensors, which differ between families in what
/// they say: without norms after attention and feed-forward, `post_attention_layernorm` is the one before feed-forward.
#[derive(Module, Debug)]
pub struct Layer<B: Backend> {
    /// The norm before attention.
    pub input_layernorm: RmsNorm<B>,
    /// Attention.
    pub self_attn: Attention<B>,
    /// The norm after attention; without norms after, the one before feed-forward.
    pub post_attention_layernorm: RmsNorm<B>,
    /// The norm before feed-forward, in layers with norms after.
    pub pre_feedforward_layernorm: Option<RmsNorm<B>>,
    /// The gated feed-forward, or a mixture of some.
    pub mlp: Mlp<B>,
    /// The norm after feed-forward, in layers with norms after.
    pub post_feedforward_layernorm: Option<RmsNorm<B>>,
}

impl Config {
    /// Creates a decoder with random weights, which are made when they are first used.
    ///
    /// # Errors
    /// [`LlmError::Config`](crate::LlmError::Config) for sizes that do not fit each other.
    pub fn init<B: Backend>(&self, device: &B::Device) -> crate::Result<Decoder<B>> {
        self.check()?;
        Ok(Decoder {
            embed_tokens: Embedding::new(self.vocabulary, self.width, device),
            layers: (0..self.layers).map(|_| Layer::new(self, device)).collect(),
            norm: RmsNorm::new(self.width, self.norm_epsilon, device),
            lm_head: (!self.tied).then(|| Projection::new(self.width, self.vocabulary, false, device)),
            config: self.clone(),
            lora: None,
        })
    }
}

impl<B: Backend> Layer<B> {
    /// Creates a layer with random weights.
    pub fn new(config: &Config, device: &B::Device) -> Self {
        let norm = || RmsNorm::new(config.width, config.norm_epsilon, device);
        Self {
            input_layernorm: norm(),
            self_attn: Attention::new(config, device),
            post_attention_layernorm: norm(),
            pre_feedforward_layernorm: config.post_norms.then(norm),
            mlp: Mlp::new(config, device),
            post_feedforward_layernorm: config.post_norms.then(norm),
        }
    }

    /// Returns the products that an adapter may change with their names within a layer.
    pub(super) fn products(&mut self) -> Vec<(Vec<String>, Product<'_, B>)> {
        let attention = &mut self.self_attn;
        let projections = [
            ("self_attn.q_proj", &mut attention.q_proj),
            ("self_attn.k_proj", &mut attention.k_proj),
            ("self_attn.v_proj", &mut attention.v_proj),
            ("self_attn.o_proj", &mut attention.o_proj),
        ];
        let named = projections.map(|(name, projection)| (vec![name.to_owned()], Product::One(projection)));
        named.into_iter().chain(self.mlp.products()).collect()
    }

    pub(super) fn forward(
        &self,
        x: Tensor<B, 3>,
        view: &View<B>,
        cache: Option<(&mut dyn KeysAndValues<B>, usize)>,
        sums: &mut Option<Tensor<B, 1>>,
    ) -> Tensor<B, 3> {
        let (x, pass) = (keep(INPUT, x), Pass { exchange: view.exchange.as_ref(), sums });
        let seen = self.self_attn.forward(self.input_layernorm.forward(x.clone()), view, cache);
        match (&self.pre_feedforward_layernorm, &self.post_feedforward_layernorm) {
            (Some(before), Some(after)) => {
                let x = x + self.post_attention_layernorm.forward(seen);
                x.clone() + after.forward(self.mlp.pass(before.forward(x), pass))
            }
            _ => {
                let x = x + seen;
                x.clone() + self.mlp.pass(self.post_attention_layernorm.forward(x), pass)
            }
        }
    }
}

impl<B: Backend> Decoder<B> {
    /// Returns what the model computes.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the type of the activations, which is that of the cache, and of all weights but norms and those in few
    /// bits.
    pub fn dtype(&self) -> DType {
        self.embed_tokens.dtype()
    }

    /// Returns where the decoder is.
    pub fn device(&self) -> B::Device {
        self.norm.weight.lazy_device()
    }

    /// Returns the decoder with zeros of few bits in place of the weights of its products, which take a weight in so
    /// many bits if their inputs are whole blocks of 32 or, for 4 bits, of 64. The tables of the vocabulary have 8.
    /// Files fill them: [`Source::load_few_bits`](crate::Source::load_few_bits). They are not trained.
    pub fn with_few_bits(mut self, bits: Bits) -> Self {
        let device = self.device();
        for layer in &mut self.layers {
            for (_, product) in layer.products() {
                product.set_few_bits(bits, &device);
            }
        }
        self.embed_tokens.set_few_bits(Bits::Eight, &device);
        if let Some(head) = &mut self.lm_head {
            head.set_few_bits(Bits::Eight, &device);
        }
        self
    }

    /// Returns the decoder with mixtures that compute their experts in this way.
    pub fn with_dispatch(mut self, dispatch: Dispatch) -> Self {
        for layer in &mut self.layers {
            if let Mlp::Mixture(mixture) = &mut layer.mlp {
                mixture.dispatch = dispatch;
            }
        }
        self
    }

    /// Returns whether some of the weights have few bits.
    pub fn has_few_bits(&self) -> bool {
        // A clone of handles.
        let mut decoder = self.clone();
        let mut products = decoder.products().into_iter();
        self.embed_tokens.few_bits.is_some() || products.any(|(_, product)| product.has_few_bits())
    }

    /// Maps tokens `[batch, length]` to the logits of each next token, `[batch, length, vocabulary]` in f32.
    pub fn forward(&self, tokens: Tensor<B, 2, Int>) -> Tensor<B, 3> {
        self.logits(self.hidden(tokens, None, None, &mut None))
    }

    /// Returns the mean cross-entropy in nats of each token of `[batch, length]` after those before it, `[1]` in f32.
    pub fn loss(&self, tokens: Tensor<B, 2, Int>) -> Tensor<B, 1> {
        self.nats(tokens, None).mean()
    }

    /// Returns the cross-entropy in nats of each token of `[batch, length + 1]` but the first after those before it,
    /// `[batch, length]` in f32. A row may have several texts, one after another: `starts`, `[batch, length]`, is where
    /// in the row the text of each token begins, and a token sees its own text alone.
    pub fn nats(&self, tokens: Tensor<B, 2, Int>, starts: Option<Tensor<B, 2, Int>>) -> Tensor<B, 2> {
        let last = tokens.dims()[1] - 1;
        let hidden = self.hidden(tokens.clone().slice_dim(1, 0..last), starts, None, &mut None);
        self.nats_of(hidden, tokens.slice_dim(1, 1..last + 1))
    }

    /// Returns what [`Decoder::nats`] does, with the tokens of a row split over chips.
    ///
    /// # Errors
    /// [`LlmError::Context`](crate::LlmError::Context) for a length that does not divide.
    pub fn nats_over(
        &self,
        tokens: Tensor<B, 2, Int>,
        starts: Option<Tensor<B, 2, Int>>,
        context: &Context<B>,
    ) -> crate::Result<Tensor<B, 2>> {
        let inputs = Inputs::new(tokens, starts, Some(context))?;
        let x = inputs.split(self.embed(inputs.tokens.clone()));
        let mut views = Views::new(&self.config, inputs.places());
        let hidden = self.run_layers(x, &mut views, None, &mut None);
        Ok(inputs.restored(self.nats_of(inputs.split(hidden), inputs.targets.clone())))
    }

    /// Returns what [`Decoder::nats`] does, and what the routers of mixtures say of the batch: zeros, if there are none.
    pub fn nats_and_routers(
        &self,
        tokens: Tensor<B, 2, Int>,
        starts: Option<Tensor<B, 2, Int>>,
    ) -> (Tensor<B, 2>, RouterReport<B>) {
        let last = tokens.dims()[1] - 1;
        let mut sums = Some(no_sums(&tokens.device()));
        let hidden = self.hidden(tokens.clone().slice_dim(1, 0..last), starts, None, &mut sums);
        let sums = sums.unwrap_or_else(|| no_sums(&tokens.device()));
        (self.nats_of(hidden, tokens.slice_dim(1, 1..last + 1)), RouterReport::of(sums, self.config.layers))
    }

    /// Returns the cross-entropy in nats of tokens `[batch, length]`, by the vectors `[batch, length, width]` of those
    /// before them.
    pub(super) fn nats_of(&self, hidden: Tensor<B, 3>, targets: Tensor<B, 2, Int>) -> Tensor<B, 2> {
        log_softmax(self.logits(hidden), 2).gather(2, targets.unsqueeze_dim::<3>(2)).squeeze_dim::<2>(2).neg()
    }

    /// Maps the next tokens `[batch, length]` of texts whose beginnings are in the cache to vectors `[batch, length,
    /// width]`, and moves the cache's position by `length`. [`Decoder::logits`] of those that matter follow.
    ///
    /// # Panics
    /// If the cache has no room for them.
    pub fn extend(&self, tokens: Tensor<B, 2, Int>, cache: &mut Cache<B>) -> Tensor<B, 3> {
        let next = cache.position_after(tokens.dims()[1]);
        let hidden = self.hidden(tokens, cache.starts(), Some(cache), &mut None);
        cache.set_position(next);
        hidden
    }

    /// Maps vectors `[batch, length, width]` to logits `[batch, length, vocabulary]` in f32.
    pub fn logits(&self, hidden: Tensor<B, 3>) -> Tensor<B, 3> {
        let logits = match &self.lm_head {
            Some(head) => head.forward(hidden),
            None => self.embed_tokens.products(hidden),
        };
        capped(logits.cast(DType::F32), self.config.logit_cap.unwrap_or(0.0))
    }

    fn hidden(
        &self,
        tokens: Tensor<B, 2, Int>,
        starts: Option<Tensor<B, 2, Int>>,
        cache: Option<&mut Cache<B>>,
        sums: &mut Option<Tensor<B, 1>>,
    ) -> Tensor<B, 3> {
        let ([_, length], device) = (tokens.dims(), tokens.device());
        let begin = cache.as_ref().map_or(0, |cache| cache.position());
        let keys = cache.as_ref().map_or(length, |cache| cache.capacity());
        let queries = Tensor::arange(begin as i64..(begin + length) as i64, &device);
        let mut views = Views::new(&self.config, Places { queries, keys, starts, context: None });
        self.run_layers(self.embed(tokens), &mut views, cache, sums)
    }

    /// Maps tokens `[batch, length]` to the input of the first layer, `[batch, length, width]`.
    pub(super) fn embed(&self, tokens: Tensor<B, 2, Int>) -> Tensor<B, 3> {
        let x = self.embed_tokens.forward(tokens);
        match self.config.embedding_scale {
            Some(scale) => x * scale,
            None => x,
        }
    }

    /// Runs the layers, which are the last ones of the model, and the norm after them.
    pub(super) fn run_layers(
        &self,
        mut x: Tensor<B, 3>,
        views: &mut Views<'_, B>,
        mut cache: Option<&mut Cache<B>>,
        sums: &mut Option<Tensor<B, 1>>,
    ) -> Tensor<B, 3> {
        let first = self.config.layers - self.layers.len();
        for (index, layer) in self.layers.iter().enumerate() {
            let cache = cache.as_deref_mut().map(|cache| (cache as &mut dyn KeysAndValues<B>, index));
            x = layer.forward(x, &views.of(first + index), cache, sums);
        }
        self.norm.forward(x)
    }
}

/// What a pass over whole rows is given, in the order of the context that splits them.
pub(super) struct Inputs<'c, B: Backend> {
    /// `[batch, length]`
    pub(super) tokens: Tensor<B, 2, Int>,
    /// The token after each of them.
    pub(super) targets: Tensor<B, 2, Int>,
    starts: Option<Tensor<B, 2, Int>>,
    context: Option<&'c Context<B>>,
}

impl<'c, B: Backend> Inputs<'c, B> {
    /// Takes rows `[batch, length + 1]`, of which each token but the first is predicted.
    pub(super) fn new(
        tokens: Tensor<B, 2, Int>,
        starts: Option<Tensor<B, 2, Int>>,
        context: Option<&'c Context<B>>,
    ) -> crate::Result<Self> {
        let length = tokens.dims()[1] - 1;
        context.map_or(Ok(()), |context| context.check(length))?;
        let ordered = |x: &Tensor<B, 2, Int>| context.map_or_else(|| x.clone(), |context| context.ordered(x.clone()));
        let [before, after] = [0, 1].map(|first| tokens.clone().slice_dim(1, first..first + length));
        Ok(Self { tokens: ordered(&before), targets: ordered(&after), starts: starts.as_ref().map(ordered), context })
    }

    pub(super) fn places(&self) -> Places<B> {
        let length = self.tokens.dims()[1];
        let queries = Tensor::<B, 1, Int>::arange(0..length as i64, &self.tokens.device());
        let queries = match self.context {
            Some(context) => context.ordered(queries.unsqueeze()).squeeze_dim(0),
            None => queries,
        };
        Places { queries, keys: length, starts: self.starts.clone(), context: self.context.cloned() }
    }

    /// Splits the tokens of `[batch, length, width]`.
    pub(super) fn split(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        match self.context {
            Some(context) => context.split(x),
            None => x,
        }
    }

    /// Puts a number of each token, `[batch, length]`, into the order of the tokens.
    pub(super) fn restored(&self, x: Tensor<B, 2>) -> Tensor<B, 2> {
        match self.context {
            Some(context) => context.restored(x),
            None => x,
        }
    }
}

/// Returns sums of what routers say before the first one.
pub(super) fn no_sums<B: Backend>(device: &B::Device) -> Tensor<B, 1> {
    Tensor::zeros([3], (device, DType::F32))
}
