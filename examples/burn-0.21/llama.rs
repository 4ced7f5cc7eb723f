//! A Llama whose sizes grow with the text: a cache that is read as its filled part, one that grows by `cat`, and beams.

use crate::SEED;
use crate::numbers::Numbers;
use burn::nn::{RmsNorm, RmsNormConfig, RotaryEncoding, RotaryEncodingConfig};
use burn::prelude::*;
use burn::tensor::activation::{log_softmax, silu, softmax};

const LAYERS: usize = 4;
const WIDTH: usize = 512;
const HEADS: usize = 8;
/// Heads of keys and values, each of which several heads of queries share.
const GROUPS: usize = 2;
const FEATURES: usize = WIDTH / HEADS;
const HIDDEN: usize = 1376;
const VOCABULARY: usize = 8192;
/// The positions of a cache of fixed size.
const POSITIONS: usize = 512;
const BEAMS: usize = 4;
/// The lengths of the prompts of the runs of a process.
const PROMPTS: [usize; 4] = [6, 23, 3, 9];

/// How a layer keeps its keys and values `[rows, groups, positions, features]`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Cache {
    /// Written into a tensor of a fixed size, and read as its filled part.
    Filled,
    /// Grows by `cat`.
    Grown,
}

struct Layer<B: Backend> {
    query: Tensor<B, 2>,
    key: Tensor<B, 2>,
    value: Tensor<B, 2>,
    output: Tensor<B, 2>,
    gate: Tensor<B, 2>,
    up: Tensor<B, 2>,
    down: Tensor<B, 2>,
    before_attention: RmsNorm<B>,
    before_hidden: RmsNorm<B>,
}

struct Llama<B: Backend> {
    /// `[vocabulary, width]`, read for tokens and for logits.
    tokens: Tensor<B, 2>,
    layers: Vec<Layer<B>>,
    norm: RmsNorm<B>,
    rope: RotaryEncoding<B>,
}

/// The keys and values of a layer.
struct LayerCache<B: Backend> {
    kind: Cache,
    parts: Option<[Tensor<B, 4>; 2]>,
}

impl<B: Backend> LayerCache<B> {
    /// Adds the parts of positions `from..to`, and returns all parts up to `to`.
    fn extend(&mut self, new: [Tensor<B, 4>; 2], (from, to): (usize, usize)) -> [Tensor<B, 4>; 2] {
        let [rows, groups, _, features] = new[0].dims();
        let old = self.parts.take();
        let kept = match (self.kind, old) {
            (Cache::Grown, None) => new,
            (Cache::Grown, Some(old)) => {
                let [keys, values] = old;
                let [new_keys, new_values] = new;
                [Tensor::cat(vec![keys, new_keys], 2), Tensor::cat(vec![values, new_values], 2)]
            }
            (Cache::Filled, old) => {
                let empty = || Tensor::zeros([rows, groups, POSITIONS, features], &new[0].device());
                let [keys, values] = old.unwrap_or_else(|| [empty(), empty()]);
                let [new_keys, new_values] = new;
                let place = [0..rows, 0..groups, from..to, 0..features];
                [keys.slice_assign(place.clone(), new_keys), values.slice_assign(place, new_values)]
            }
        };
        let filled = kept.clone().map(|part| part.slice([0..rows, 0..groups, 0..to, 0..features]));
        self.parts = Some(kept);
        filled
    }
}

impl<B: Backend> Llama<B> {
    fn new(device: &B::Device) -> Self {
        let mut numbers = Numbers::new(SEED);
        let mut matrix = |rows: usize, columns: usize| {
            let scale = (3.0 / rows as f32).sqrt();
            let elements: Vec<f32> = (0..rows * columns).map(|_| numbers.signed() * scale).collect();
            Tensor::<B, 2>::from_data(TensorData::new(elements, [rows, columns]), device)
        };
        let norm = || RmsNormConfig::new(WIDTH).init(device);
        let layer = |_| Layer {
            query: matrix(WIDTH, WIDTH),
            key: matrix(WIDTH, GROUPS * FEATURES),
            value: matrix(WIDTH, GROUPS * FEATURES),
            output: matrix(WIDTH, WIDTH),
            gate: matrix(WIDTH, HIDDEN),
            up: matrix(WIDTH, HIDDEN),
            down: matrix(HIDDEN, WIDTH),
            before_attention: norm(),
            before_hidden: norm(),
        };
        let layers = (0..LAYERS).map(layer).collect();
        let rope = RotaryEncodingConfig::new(POSITIONS, FEATURES).init(device);
        Self { tokens: matrix(VOCABULARY, WIDTH), layers, norm: norm(), rope }
    }

    fn cache(kind: Cache) -> Vec<LayerCache<B>> {
        (0..LAYERS).map(|_| LayerCache { kind, parts: None }).collect()
    }

    /// Maps the tokens `[rows, new]` of positions `from..` to the logits `[rows, vocabulary]` after the last of them.
    fn forward(&self, ids: Tensor<B, 2, Int>, from: usize, caches: &mut [LayerCache<B>]) -> Tensor<B, 2> {
        let [rows, new] = ids.dims();
        let x = self.tokens.clone().select(0, ids.reshape([rows * new])).reshape([rows, new, WIDTH]);
        let x = self.layers.iter().zip(caches).fold(x, |x, (layer, cache)| layer.forward(x, from, cache, &self.rope));
        let last = self.norm.forward(x.slice([0..rows, new - 1..new])).reshape([rows, WIDTH]);
        last.matmul(self.tokens.clone().transpose())
    }
}

impl<B: Backend> Layer<B> {
    fn forward(
        &self,
        x: Tensor<B, 3>,
        from: usize,
        cache: &mut LayerCache<B>,
        rope: &RotaryEncoding<B>,
    ) -> Tensor<B, 3> {
        let [_, new, _] = x.dims();
        let h = self.before_attention.forward(x.clone());
        let queries = rope.apply(heads(&h, &self.query, HEADS), from);
        let new_parts = [rope.apply(heads(&h, &self.key, GROUPS), from), heads(&h, &self.value, GROUPS)];
        let parts = cache.extend(new_parts, (from, from + new));
        let [keys, values] = parts.map(|part| repeated(part, HEADS / GROUPS));
        let scores = queries.matmul(keys.swap_dims(2, 3)) / (FEATURES as f64).sqrt();
        let scores = if new > 1 { scores + causal_mask(new, from + new, &x.device()) } else { scores };
        let attended = softmax(scores, 3).matmul(values).swap_dims(1, 2).flatten::<3>(2, 3);
        let x = x + product(attended, &self.output);
        let h = self.before_hidden.forward(x.clone());
        let hidden = silu(product(h.clone(), &self.gate)) * product(h, &self.up);
        x + product(hidden, &self.down)
    }
}

fn product<B: Backend>(x: Tensor<B, 3>, weight: &Tensor<B, 2>) -> Tensor<B, 3> {
    x.matmul(weight.clone().unsqueeze())
}

/// Returns `[rows, heads, positions, features]`.
fn heads<B: Backend>(x: &Tensor<B, 3>, weight: &Tensor<B, 2>, heads: usize) -> Tensor<B, 4> {
    let [rows, positions, _] = x.dims();
    product(x.clone(), weight).reshape([rows, positions, heads, FEATURES]).swap_dims(1, 2)
}

/// Repeats each head of keys or values for the heads of queries that share it.
fn repeated<B: Backend>(x: Tensor<B, 4>, times: usize) -> Tensor<B, 4> {
    let [rows, groups, positions, features] = x.dims();
    let x = x.unsqueeze_dim::<5>(2).expand([rows, groups, times, positions, features]);
    x.reshape([rows, groups * times, positions, features])
}

/// Returns `[1, 1, new, positions]`, which hides later positions.
fn causal_mask<B: Backend>(new: usize, positions: usize, device: &B::Device) -> Tensor<B, 4> {
    let hidden = Tensor::<B, 2>::full([new, positions], f32::NEG_INFINITY, device);
    hidden.triu((positions - new + 1) as i64).unsqueeze()
}

fn prompt<B: Backend>(run: usize, device: &B::Device) -> Tensor<B, 2, Int> {
    let mut numbers = Numbers::new(run as u64);
    let tokens: Vec<i32> = (0..PROMPTS[run % PROMPTS.len()]).map(|_| numbers.within(0..VOCABULARY) as i32).collect();
    Tensor::<B, 1, Int>::from_ints(tokens.as_slice(), device).unsqueeze()
}

/// Generates so many tokens greedily, each of which is read, and returns them. Each run has another prompt.
pub fn generate<B: Backend>(count: usize, kind: Cache, run: usize, device: &B::Device) -> Vec<f64> {
    let (model, mut caches) = (Llama::<B>::new(device), Llama::cache(kind));
    let (mut ids, mut from, mut tokens) = (prompt(run, device), 0, Vec::new());
    for _ in 0..count {
        let [_, new] = ids.dims();
        let best = model.forward(ids, from, &mut caches).argmax(1);
        from += new;
        let token = best.into_data().iter::<i32>().next().expect("there is one row");
        tokens.push(f64::from(token));
        ids = Tensor::<B, 1, Int>::from_ints([token], device).unsqueeze();
    }
    tokens
}

/// Searches with beams over a cache that grows by `cat`, and returns the tokens of the best one.
pub fn search<B: Backend>(count: usize, run: usize, device: &B::Device) -> Vec<f64> {
    let (model, mut caches) = (Llama::<B>::new(device), Llama::cache(Cache::Grown));
    let (mut ids, mut from) = (prompt::<B>(run, device).repeat_dim(0, BEAMS), 0);
    let mut beams = vec![Vec::new(); BEAMS];
    // All beams begin equal, so only the first counts at first.
    let first = [0.0, f32::NEG_INFINITY, f32::NEG_INFINITY, f32::NEG_INFINITY];
    let mut sums = Tensor::<B, 1>::from_floats(first, device).reshape([BEAMS, 1]);
    for _ in 0..count {
        let [_, new] = ids.dims();
        let scores = log_softmax(model.forward(ids, from, &mut caches), 1) + sums;
        from += new;
        let (best, places) = scores.reshape([BEAMS * VOCABULARY]).topk_with_indices(BEAMS, 0);
        let places: Vec<i64> = places.into_data().iter::<i64>().collect();
        let parents: Vec<i32> = places.iter().map(|place| (place / VOCABULARY as i64) as i32).collect();
        let tokens: Vec<i32> = places.iter().map(|place| (place % VOCABULARY as i64) as i32).collect();
        let chosen = |(&parent, &token): (&i32, &i32)| {
            let mut beam: Vec<f64> = beams[parent as usize].clone();
            beam.push(f64::from(token));
            beam
        };
        beams = parents.iter().zip(&tokens).map(chosen).collect();
        let rows = Tensor::<B, 1, Int>::from_ints(parents.as_slice(), device);
        for cache in &mut caches {
            cache.parts = cache.parts.take().map(|parts| parts.map(|part| part.select(0, rows.clone())));
        }
        sums = best.reshape([BEAMS, 1]);
        ids = Tensor::<B, 1, Int>::from_ints(tokens.as_slice(), device).reshape([BEAMS, 1]);
    }
    beams.swap_remove(0)
}
