//! Causal attention whose keys and values go round a ring of chips: [Liu et al.](https://arxiv.org/abs/2310.01889), with
//! the softmax of [Milakov and Gimelshein](https://arxiv.org/abs/1805.02867) that reads scores block by block.
//!
//! A sequence is divided into `2 * parts` blocks, of which part `r` has the blocks `r` and `2 * parts - 1 - r`, its *first*
//! and its *second* half. Before a trip of the loop, each part passes the keys and values that it holds on to the next
//! part: after trip `t`, part `r` has those of part `r - t`. Of their four pairs of halves, a causal mask leaves two whole
//! and hides two:
//!
//! | the holder of the keys | first queries | second queries |
//! |---|---|---|
//! | a part before | see the first keys | see the first keys |
//! | a part after | see nothing | see the first and the second keys |
//!
//! So each part computes two products of a trip: its second queries with the first keys, and one pair that depends on the
//! part. Which one is a choice of operands, which each chip makes for itself. Only at the start, where the keys are a
//! part's own, is a part of the scores hidden.
//!
//! The parts are a dim of all values that a mesh splits, and to pass something on is to roll that dim: XLA's partitioner
//! makes a collective permute of it. So the same program runs on one chip.
//!
//! The backward pass goes round again: it computes the scores from queries and keys, and the weights from the scores and the
//! logarithm of each row's sum. The gradients of keys and values go round with them, in f32, until they are at home. In a
//! loop over layers the forward pass would go round once more, for the result and the logarithms, unless these are kept
//! by their name, [`RING`].
//!
//! Owns: what is computed of queries, keys and values. May not know: how the parts of a sequence come together.

use super::attention::{HIDDEN, capped};
use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::prelude::*;
use burn::tensor::{DType, TensorPrimitive};
use burn_tpu::{Layers, LayersBackend, MeshBackend, Tpu, TpuFloat, TpuInt, keep, shard};

/// The name of what the backward pass of a ring reads of its forward pass, for [`burn_tpu::Keep::Names`].
pub const RING: &str = "ring";

/// What a ring computes.
#[derive(Clone, Debug)]
pub struct Ring {
    pub(super) parts: usize,
    /// The axes of a mesh that split the batch, the heads and the sequence.
    pub(super) axes: [Option<String>; 3],
    /// How many keys a query sees, the last of which is its own; all before it without a window.
    pub(super) window: Option<usize>,
    pub(super) scale: f64,
    /// 0 for none.
    pub(super) cap: f64,
}

/// The backends that compute attention as a ring: [`Tpu`] and its autodiff.
pub trait RingBackend: LayersBackend + MeshBackend {
    /// Returns `[batch, heads, length, head]`, of queries of that shape and of keys and values `[batch, kv_heads, length,
    /// head]`, in the order of the parts. `starts` is where the text of each query begins, `[batch, length]`.
    #[doc(hidden)]
    fn ring_attention(
        ring: &Ring,
        operands: [Tensor<Self, 4>; 3],
        starts: Option<Tensor<Self, 2, Int>>,
    ) -> Tensor<Self, 4>;
}

impl<F: TpuFloat, I: TpuInt> RingBackend for Tpu<F, I> {
    fn ring_attention(
        ring: &Ring,
        operands: [Tensor<Self, 4>; 3],
        starts: Option<Tensor<Self, 2, Int>>,
    ) -> Tensor<Self, 4> {
        Pass::new(ring, &operands, starts).forward(&operands).0
    }
}

impl<F: TpuFloat, I: TpuInt, C: CheckpointStrategy> RingBackend for Autodiff<Tpu<F, I>, C> {
    fn ring_attention(
        ring: &Ring,
        operands: [Tensor<Self, 4>; 3],
        starts: Option<Tensor<Self, 2, Int>>,
    ) -> Tensor<Self, 4> {
        let tracked = operands.map(|operand| operand.into_primitive().tensor());
        let inner = tracked.clone().map(|operand| float(operand.primitive));
        let starts = starts.map(|starts| Tensor::from_primitive(starts.into_primitive()));
        let pass = Pass::new(ring, &inner, starts.clone());
        let (result, logs) = pass.forward(&inner);
        let (result, logs) = (keep(RING, result), logs.map(|log| keep(RING, log)));
        let value = result.clone().into_primitive().tensor();
        let saved = Saved { ring: ring.clone(), operands: inner, starts, result, logs };
        let result = match RingGradient.prepare::<C>(tracked.map(|operand| operand.node)).compute_bound().stateful() {
            OpsKind::Tracked(prepared) => prepared.finish(saved, value),
            OpsKind::UnTracked(prepared) => prepared.finish(value),
        };
        float(result)
    }
}

fn float<B: Backend, const D: usize>(primitive: B::FloatTensorPrimitive) -> Tensor<B, D> {
    Tensor::from_primitive(TensorPrimitive::Float(primitive))
}

/// The backward pass of a ring.
#[derive(Debug)]
struct RingGradient;

/// What it reads.
#[derive(Clone, Debug)]
struct Saved<B: Backend> {
    ring: Ring,
    operands: [Tensor<B, 4>; 3],
    starts: Option<Tensor<B, 2, Int>>,
    result: Tensor<B, 4>,
    logs: [Block<B>; 2],
}

impl<F: TpuFloat, I: TpuInt> Backward<Tpu<F, I>, 3> for RingGradient {
    type State = Saved<Tpu<F, I>>;

    fn backward(self, ops: Ops<Self::State, 3>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let Ops { parents, node, state } = ops;
        let of_result = float(gradients.consume::<Tpu<F, I>>(&node));
        let pass = Pass::new(&state.ring, &state.operands, state.starts.clone());
        for (parent, gradient) in parents.into_iter().zip(pass.backward(&state, of_result)) {
            if let Some(parent) = parent {
                gradients.register::<Tpu<F, I>>(parent.id, gradient.into_primitive().tensor());
            }
        }
    }
}

/// Values of one half of each part: `[batch, kv_heads, parts, rows, ..]`. The rows of queries are those of all heads that
/// share a head of keys.
type Block<B> = Tensor<B, 5>;

/// A trip of a ring, of which nothing differs but what it is given.
#[derive(Module, Clone, Debug)]
struct Trip;

/// The queries of one half, or what belongs to them.
#[derive(Clone)]
struct Queries<B: Backend> {
    query: Block<B>,
    /// Their places in the sequence, `[parts, rows]`.
    places: Tensor<B, 2, Int>,
    /// Where their texts begin, `[batch, parts, rows]`.
    starts: Option<Tensor<B, 3, Int>>,
}

/// The keys and values of one half.
#[derive(Clone)]
struct Keys<B: Backend> {
    key: Block<B>,
    value: Block<B>,
    /// Their places in the sequence, `[parts, keys]`.
    places: Tensor<B, 2, Int>,
}

/// The result of queries for the keys that were read so far: the largest score and the sum of the weights, `[.., rows, 1]`,
/// and the sum of the weighted values, all in f32.
type Partial<B> = (Block<B>, Block<B>, Block<B>);

/// What the gradients of a half's queries are computed from, beside the queries: the gradient of the result, the logarithms
/// of the rows' sums, and the sums of the result times its gradient.
#[derive(Clone)]
struct Given<B: Backend> {
    gradient: Block<B>,
    log: Block<B>,
    product: Block<B>,
}

/// A pass over a ring.
struct Pass<'r, B: Backend> {
    ring: &'r Ring,
    kv_heads: usize,
    /// The heads of queries that share one of keys.
    group: usize,
    /// The length of a block.
    length: usize,
    starts: Option<Tensor<B, 2, Int>>,
    device: B::Device,
}

impl<'r, B: LayersBackend + MeshBackend> Pass<'r, B> {
    fn new(ring: &'r Ring, [query, key, _]: &[Tensor<B, 4>; 3], starts: Option<Tensor<B, 2, Int>>) -> Self {
        let ([_, heads, length, _], [_, kv_heads, ..]) = (query.dims(), key.dims());
        let (group, length) = (heads / kv_heads, length / (2 * ring.parts));
        Self { ring, kv_heads, group, length, starts, device: query.device() }
    }

    /// Returns the result, and the logarithms of the sums of each half's rows.
    fn forward(&self, [query, key, value]: &[Tensor<B, 4>; 3]) -> (Tensor<B, 4>, [Block<B>; 2]) {
        let queries = self.queries(query);
        let own = [key, value].map(|x| self.halves(x));
        let held = self.packed(&own);
        let [first, second] = self.keys(&held, &self.parts());
        let start = |queries: &Queries<B>, keys| self.first(queries, keys);
        let mut partial = [start(&queries[0], &first), start(&queries[1], &second)];
        partial[1] = self.with(&queries[1], &first, partial[1].clone());
        if self.ring.parts > 1 {
            let trip = |_: &Trip, (held, number, [first, second]): (Block<B>, Tensor<B, 1, Int>, [Partial<B>; 2])| {
                let next = self.rolled(held.clone());
                let (before, keys) = self.trip(&held, &number);
                let second = self.with(&queries[1], &keys[0], second);
                let chosen = self.either_partial(&before, &first, &second);
                let new = self.with(&self.either_queries(&before, &queries), &self.either_keys(&before, keys), chosen);
                let first_next = self.either_partial(&before, &new, &first);
                (next, number + 1, [first_next, self.either_partial(&before, &second, &new)])
            };
            let start = (self.rolled(held), Tensor::ones([1], &self.device), partial);
            partial = self.round(start, trip).2;
        }
        let results = partial.clone().map(|(_, sum, values)| (values / sum).cast(query.dtype()));
        let logs = partial.map(|(largest, sum, _)| largest + sum.log());
        (self.joined(results, query.dims()), logs)
    }

    /// Returns the gradients of queries, keys and values.
    fn backward(&self, saved: &Saved<B>, gradient: Tensor<B, 4>) -> [Tensor<B, 4>; 3] {
        let [query, key, value] = &saved.operands;
        let queries = self.queries(query);
        let given = self.given(saved, gradient);
        let own = [key, value].map(|x| self.halves(x));
        let held = self.packed(&own);
        let [first, second] = self.keys(&held, &self.parts());
        let pairs = [(0, &first, true), (1, &second, true), (1, &first, false)];
        let [at_first, at_second, across] =
            pairs.map(|(half, keys, is_own)| self.gradients(&queries[half], &given[half], keys, is_own));
        let mut of_queries = [at_first[0].clone(), at_second[0].clone() + across[0].clone()];
        let of_key = |place: usize| [at_first[place].clone() + across[place].clone(), at_second[place].clone()];
        let mut of_held = self.packed(&[of_key(1), of_key(2)]);
        if self.ring.parts > 1 {
            type State<B> = (Block<B>, Block<B>, Tensor<B, 1, Int>, [Block<B>; 2]);
            let trip = |_: &Trip, (held, of_held, number, [of_first, of_second]): State<B>| {
                let next = self.rolled(held.clone());
                let (before, keys) = self.trip(&held, &number);
                let always = self.gradients(&queries[1], &given[1], &keys[0], false);
                let (queries, given) = (self.either_queries(&before, &queries), self.either_given(&before, &given));
                let found = self.gradients(&queries, &given, &self.either_keys(&before, keys), false);
                let [query, key, value] = found.map(|gradient| self.divided(&before, gradient));
                let [[query_0, query_1], [key_0, key_1], [value_0, value_1]] = [query, key, value];
                let [of_query, of_key, of_value] = always;
                let of_this = self.packed(&[[key_0 + of_key, key_1], [value_0 + of_value, value_1]]);
                let of_queries = [of_first + query_0, of_second + query_1 + of_query];
                (next, self.rolled(of_held + of_this), number + 1, of_queries)
            };
            let start = (self.rolled(held), self.rolled(of_held), Tensor::ones([1], &self.device), of_queries);
            (_, of_held, _, of_queries) = self.round(start, trip);
        }
        let [of_keys, of_values] = self.unpacked(&of_held);
        let cast = |halves: [Block<B>; 2], like: &Tensor<B, 4>| {
            self.joined(halves.map(|half| half.cast(like.dtype())), like.dims())
        };
        [cast(of_queries, query), cast(of_keys, key), cast(of_values, value)]
    }

    /// Runs a trip for each of the other parts.
    fn round<T>(&self, start: T, trip: impl Fn(&Trip, T) -> T) -> T
    where
        T: burn_tpu::OpTensors<Backend = B> + Clone,
    {
        let one_by_one = |start: T| (1..self.ring.parts).fold(start, |state, _| trip(&Trip, state));
        let Ok(trips) = Layers::new(vec![Trip; self.ring.parts - 1]) else { return one_by_one(start) };
        // Trips that cannot be a loop compute the same one by one.
        trips.forward(start.clone(), &trip).unwrap_or_else(|_| one_by_one(start))
    }

    /// Returns whether the keys of a trip are those of a part before, and the keys.
    fn trip(&self, held: &Block<B>, number: &Tensor<B, 1, Int>) -> (Tensor<B, 1, Bool>, [Keys<B>; 2]) {
        let parts = self.parts();
        let number = number.clone().expand([self.ring.parts]);
        let before = parts.clone().greater_equal(number.clone());
        let owner = parts.clone() - number.clone();
        let owner = owner.clone().mask_where(before.clone().bool_not(), owner + self.ring.parts as i64);
        (before, self.keys(held, &owner))
    }

    /// Returns the number of each part, `[parts]`.
    fn parts(&self) -> Tensor<B, 1, Int> {
        Tensor::arange(0..self.ring.parts as i64, &self.device)
    }

    /// Returns the first value for the parts whose keys are those of a part before, and the second for the others.
    fn either(&self, before: &Tensor<B, 1, Bool>, first: &Block<B>, second: &Block<B>) -> Block<B> {
        let before: Tensor<B, 5, Bool> = before.clone().reshape([1, 1, self.ring.parts, 1, 1]);
        second.clone().mask_where(before.expand(first.dims()), first.clone())
    }

    /// Returns a gradient of the halves that were chosen as those of the first and of the second halves.
    fn divided(&self, before: &Tensor<B, 1, Bool>, gradient: Block<B>) -> [Block<B>; 2] {
        let zeros = gradient.zeros_like();
        [self.either(before, &gradient, &zeros), self.either(before, &zeros, &gradient)]
    }

    fn either_places(
        &self,
        before: &Tensor<B, 1, Bool>,
        first: &Tensor<B, 2, Int>,
        second: &Tensor<B, 2, Int>,
    ) -> Tensor<B, 2, Int> {
        let before: Tensor<B, 2, Bool> = before.clone().reshape([self.ring.parts, 1]);
        second.clone().mask_where(before.expand(first.dims()), first.clone())
    }

    fn either_queries(&self, before: &Tensor<B, 1, Bool>, [first, second]: &[Queries<B>; 2]) -> Queries<B> {
        let starts = first.starts.as_ref().zip(second.starts.as_ref()).map(|(first, second)| {
            let before: Tensor<B, 3, Bool> = before.clone().reshape([1, self.ring.parts, 1]);
            second.clone().mask_where(before.expand(first.dims()), first.clone())
        });
        let places = self.either_places(before, &first.places, &second.places);
        Queries { query: self.either(before, &first.query, &second.query), places, starts }
    }

    fn either_keys(&self, before: &Tensor<B, 1, Bool>, [first, second]: [Keys<B>; 2]) -> Keys<B> {
        let places = self.either_places(before, &first.places, &second.places);
        let key = self.either(before, &first.key, &second.key);
        Keys { key, value: self.either(before, &first.value, &second.value), places }
    }

    fn either_partial(&self, before: &Tensor<B, 1, Bool>, first: &Partial<B>, second: &Partial<B>) -> Partial<B> {
        let either = |first, second| self.either(before, first, second);
        (either(&first.0, &second.0), either(&first.1, &second.1), either(&first.2, &second.2))
    }

    fn either_given(&self, before: &Tensor<B, 1, Bool>, [first, second]: &[Given<B>; 2]) -> Given<B> {
        let either = |first, second| self.either(before, first, second);
        Given {
            gradient: either(&first.gradient, &second.gradient),
            log: either(&first.log, &second.log),
            product: either(&first.product, &second.product),
        }
    }

    /// Returns the places of both halves' keys by their part, each `[parts, length]`.
    fn places(&self, part: &Tensor<B, 1, Int>) -> [Tensor<B, 2, Int>; 2] {
        let (parts, length) = (self.ring.parts, self.length);
        let within = Tensor::arange(0..length as i64, &self.device).reshape([1, length]).expand([parts, length]);
        let last = 2 * parts as i64 - 1;
        [part.clone(), part.clone().neg() + last]
            .map(|block| (block * length as i64).reshape([parts, 1]).expand([parts, length]) + within.clone())
    }

    /// Divides queries or keys `[batch, heads, length, head]` into the halves of the parts.
    fn halves(&self, x: &Tensor<B, 4>) -> [Block<B>; 2] {
        let [batch, heads, _, head] = x.dims();
        let (parts, group, length) = (self.ring.parts, heads / self.kv_heads, self.length);
        let [of_batch, of_heads, axis] = self.axes();
        let x = shard(x.clone(), [of_batch, of_heads, axis, None]);
        let x = x.reshape([batch, self.kv_heads, group, parts, 2, length, head]).permute([0, 1, 3, 4, 2, 5, 6]);
        let x: Tensor<B, 5> = x.reshape([batch, self.kv_heads, parts, 2 * group * length, head]);
        let rows = group * length;
        [0, 1].map(|half| self.split(x.clone().slice_dim(3, half * rows..(half + 1) * rows)))
    }

    /// Puts the halves of the parts together to `[batch, heads, length, head]`.
    fn joined(&self, halves: [Block<B>; 2], dims: [usize; 4]) -> Tensor<B, 4> {
        let [batch, heads, _, head] = dims;
        let (parts, group, length) = (self.ring.parts, heads / self.kv_heads, self.length);
        let x = Tensor::cat(halves.to_vec(), 3).reshape([batch, self.kv_heads, parts, 2, group, length, head]);
        let x = x.permute([0, 1, 4, 2, 3, 5, 6]).reshape(dims);
        let [of_batch, of_heads, axis] = self.axes();
        shard(x, [of_batch, of_heads, axis, None])
    }

    fn axes(&self) -> [Option<&str>; 3] {
        self.ring.axes.each_ref().map(Option::as_deref)
    }

    /// Splits the parts over their axis.
    fn split(&self, x: Block<B>) -> Block<B> {
        let [batch, heads, axis] = self.axes();
        shard(x, [batch, heads, axis, None, None])
    }

    /// Gives what each part has to the next one, and what the last one has to the first.
    fn rolled(&self, x: Block<B>) -> Block<B> {
        let last = self.ring.parts - 1;
        self.split(Tensor::cat(vec![x.clone().slice_dim(2, last..last + 1), x.slice_dim(2, 0..last)], 2))
    }

    /// Puts the halves of keys and values into one value, so that they are passed on at once.
    fn packed(&self, halves: &[[Block<B>; 2]; 2]) -> Block<B> {
        self.split(Tensor::cat(halves.concat(), 3))
    }

    /// Returns the halves of keys and those of values.
    fn unpacked(&self, held: &Block<B>) -> [[Block<B>; 2]; 2] {
        let place = |place: usize| held.clone().slice_dim(3, place * self.length..(place + 1) * self.length);
        [[place(0), place(1)], [place(2), place(3)]]
    }

    /// Returns both halves of the keys and values that belong to these parts.
    fn keys(&self, held: &Block<B>, owner: &Tensor<B, 1, Int>) -> [Keys<B>; 2] {
        let [[key_0, key_1], [value_0, value_1]] = self.unpacked(held);
        let [places_0, places_1] = self.places(owner);
        [Keys { key: key_0, value: value_0, places: places_0 }, Keys { key: key_1, value: value_1, places: places_1 }]
    }

    fn queries(&self, query: &Tensor<B, 4>) -> [Queries<B>; 2] {
        let (parts, group, length) = (self.ring.parts, self.group, self.length);
        let [places_0, places_1] = self.places(&self.parts()).map(|places| {
            places.reshape([parts, 1, length]).expand([parts, group, length]).reshape([parts, group * length])
        });
        let starts = |half: usize| {
            let starts = self.starts.clone()?;
            let batch = starts.dims()[0];
            let starts = starts.reshape([batch, parts, 2, length]).slice_dim(2, half..half + 1);
            Some(starts.expand([batch, parts, group, length]).reshape([batch, parts, group * length]))
        };
        let [query_0, query_1] = self.halves(query);
        [
            Queries { query: query_0, places: places_0, starts: starts(0) },
            Queries { query: query_1, places: places_1, starts: starts(1) },
        ]
    }

    /// Returns which scores are hidden, `[1 or batch, 1, parts, rows, keys]`; none for keys that all queries see.
    fn hidden(&self, queries: &Queries<B>, keys: &Keys<B>, is_own: bool) -> Option<Tensor<B, 5, Bool>> {
        let ([parts, rows], [_, length]) = (queries.places.dims(), keys.places.dims());
        let shape = [1, 1, parts, rows, length];
        let query = queries.places.clone().reshape([1, 1, parts, rows, 1]).expand(shape);
        let key: Tensor<B, 5, Int> = keys.places.clone().reshape([1, 1, parts, 1, length]).expand(shape);
        let ahead = key.clone() - query;
        let later = is_own.then(|| ahead.clone().greater_elem(0));
        let left = self.ring.window.map(|window| ahead.lower_equal_elem(-(window as i64)));
        let other = queries.starts.clone().map(|starts| {
            let batch = starts.dims()[0];
            let shape = [batch, 1, parts, rows, length];
            let starts: Tensor<B, 5, Int> = starts.reshape([batch, 1, parts, rows, 1]).expand(shape);
            key.expand(shape).lower(starts)
        });
        let all = [later, left, other].into_iter().flatten();
        all.reduce(|one, next| {
            let batch = one.dims()[0].max(next.dims()[0]);
            let shape = [batch, 1, parts, rows, length];
            one.expand(shape).bool_or(next.expand(shape))
        })
    }

    /// Returns scores in f32, `[.., rows, keys]`, before what is hidden.
    fn scores(&self, queries: &Queries<B>, keys: &Keys<B>) -> Block<B> {
        let scores = queries.query.clone().matmul(keys.key.clone().swap_dims(3, 4)).cast(DType::F32);
        capped(scores * self.ring.scale, self.ring.cap)
    }

    fn masked(&self, scores: Block<B>, queries: &Queries<B>, keys: &Keys<B>, is_own: bool) -> Block<B> {
        match self.hidden(queries, keys, is_own) {
            Some(hidden) => {
                let shape = scores.dims();
                scores.mask_fill(hidden.expand(shape), HIDDEN)
            }
            None => scores,
        }
    }

    /// Returns the result of queries for the keys of their own places: each sees its own key, so that hidden scores weigh
    /// nothing from here on.
    fn first(&self, queries: &Queries<B>, keys: &Keys<B>) -> Partial<B> {
        let scores = self.masked(self.scores(queries, keys), queries, keys, true);
        let largest = scores.clone().max_dim(4);
        let (sum, values) = self.weighted((scores - largest.clone()).exp(), keys);
        (largest, sum, values)
    }

    /// Adds keys to the result of queries.
    fn with(&self, queries: &Queries<B>, keys: &Keys<B>, (largest, sum, values): Partial<B>) -> Partial<B> {
        let scores = self.masked(self.scores(queries, keys), queries, keys, false);
        let new = largest.clone().max_pair(scores.clone().max_dim(4));
        let before = (largest - new.clone()).exp();
        let (of_keys, of_values) = self.weighted((scores - new.clone()).exp(), keys);
        (new, sum * before.clone() + of_keys, values * before + of_values)
    }

    /// Returns the sum of weights and that of weighted values, in f32. The sum is a product with ones beside the values: a
    /// sum of its own would read all scores once more.
    fn weighted(&self, weights: Block<B>, keys: &Keys<B>) -> (Block<B>, Block<B>) {
        let [batch, heads, parts, length, head] = keys.value.dims();
        let ones = Tensor::ones([batch, heads, parts, length, 1], (&self.device, DType::F32));
        let product = weights.matmul(Tensor::cat(vec![keys.value.clone().cast(DType::F32), ones], 4));
        (product.clone().slice_dim(4, head..head + 1), product.slice_dim(4, 0..head))
    }

    /// Returns what the gradients read beside queries and keys.
    fn given(&self, saved: &Saved<B>, gradient: Tensor<B, 4>) -> [Given<B>; 2] {
        let (results, gradients) = (self.halves(&saved.result), self.halves(&gradient));
        let half = |result: &Block<B>, gradient: &Block<B>, log: &Block<B>| {
            let product = (result.clone().cast(DType::F32) * gradient.clone().cast(DType::F32)).sum_dim(4);
            Given { gradient: gradient.clone(), log: log.clone(), product }
        };
        [0, 1].map(|place| half(&results[place], &gradients[place], &saved.logs[place]))
    }

    /// Returns the gradients of queries, keys and values for one pair of halves, in f32.
    fn gradients(&self, queries: &Queries<B>, given: &Given<B>, keys: &Keys<B>, is_own: bool) -> [Block<B>; 3] {
        let scores = self.scores(queries, keys);
        let masked = self.masked(scores.clone(), queries, keys, is_own);
        let weights = (masked - given.log.clone()).exp();
        let dtype = queries.query.dtype();
        let of_weights = given.gradient.clone().matmul(keys.value.clone().swap_dims(3, 4)).cast(DType::F32);
        let mut of_scores = weights.clone() * (of_weights - given.product.clone()) * self.ring.scale;
        if self.ring.cap != 0.0 {
            of_scores = of_scores * ((scores / self.ring.cap).powi_scalar(2).neg() + 1.0);
        }
        let (weights, of_scores) = (weights.cast(dtype), of_scores.cast(dtype));
        let of_value = weights.swap_dims(3, 4).matmul(given.gradient.clone());
        let of_query = of_scores.clone().matmul(keys.key.clone());
        let of_key = of_scores.swap_dims(3, 4).matmul(queries.query.clone());
        [of_query, of_key, of_value].map(|gradient| gradient.cast(DType::F32))
    }
}
