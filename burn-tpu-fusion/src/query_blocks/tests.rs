//! Tests of what the pass divides into blocks and of what it leaves unchanged.

use super::*;
use crate::pass::testing;
use burn_tpu_graph::op::{BinaryOp, Combine, Direction, DotAttrs, UnaryOp};
use burn_tpu_graph::{Builder, DType, Graph, NodeId, Op, Sharding, TensorType};

const HEADS: usize = 2;
const WIDTH: usize = 16;

/// Attention of `[HEADS, size, WIDTH]` with its gradients.
struct Attention {
    graph: Graph,
    size: usize,
    parameters: u32,
    /// The scores that masks have filled.
    filled: Vec<NodeId>,
    /// How the queries are split.
    queries: Option<Sharding>,
}

impl Attention {
    fn new(size: usize) -> Self {
        Self { graph: Graph::new(), size, parameters: 0, filled: Vec::new(), queries: None }
    }

    fn parameter(&mut self, dtype: DType, dims: &[usize]) -> NodeId {
        let index = self.parameters;
        self.parameters += 1;
        self.graph.add(Op::Parameter { index, ty: TensorType::new(dtype, dims) }, &[]).unwrap()
    }

    /// Multiplies, for each head, over a dim of either value.
    fn dot(&mut self, lhs: NodeId, rhs: NodeId, [left, right]: [usize; 2]) -> NodeId {
        let attrs = DotAttrs::new([&[0], &[0]], [&[left], &[right]], DType::F32);
        self.graph.dot_general(lhs, rhs, attrs).unwrap()
    }

    /// Returns the place of each score along a dim, plus a number.
    fn places(&mut self, dim: usize, plus: i64) -> NodeId {
        let places = self.graph.iota(DType::I32, &[HEADS, self.size, self.size], dim).unwrap();
        self.graph.binary_const(BinaryOp::Add, places, plus).unwrap()
    }

    /// Returns whether the key comes after the query.
    fn future(&mut self) -> NodeId {
        let (query, key) = (self.places(1, 0), self.places(2, 0));
        self.graph.compare(Direction::Gt, key, query).unwrap()
    }

    fn fill(&mut self, mask: NodeId, value: f64, scores: NodeId) -> NodeId {
        let value = self.graph.splat_like(scores, value).unwrap();
        self.filled.push(mask);
        self.graph.select(mask, value, scores).unwrap()
    }

    /// Returns the gradient of scores before masks filled them.
    fn unfilled(&mut self, gradient: NodeId) -> NodeId {
        self.filled.clone().into_iter().rev().fold(gradient, |gradient, mask| {
            let zeros = self.graph.splat_like(gradient, 0.0).unwrap();
            self.graph.select(mask, zeros, gradient).unwrap()
        })
    }

    /// Writes attention whose scores `masked` masks, and whose weights `dropped` drops, and runs the pass.
    fn run(
        mut self,
        masked: impl Fn(&mut Self, NodeId) -> NodeId,
        dropped: impl Fn(&mut Self, NodeId) -> NodeId,
    ) -> Blocks {
        let dims = [HEADS, self.size, WIDTH];
        let [mut q, k, v, gradient] = [(); 4].map(|()| self.parameter(DType::F32, &dims));
        if let Some(sharding) = self.queries.take() {
            q = self.graph.sharding_constraint(q, sharding).unwrap();
        }
        let scores = self.dot(q, k, [2, 2]);
        let scores = masked(&mut self, scores);
        let weights = self.softmax(scores);
        let kept = dropped(&mut self, weights);
        let result = self.dot(kept, v, [2, 1]);
        let dv = self.dot(kept, gradient, [1, 1]);
        let dp = self.dot(gradient, v, [2, 2]);
        let dp = dropped(&mut self, dp);
        let product = self.graph.binary(BinaryOp::Mul, dp, weights).unwrap();
        let sums = self.graph.accumulate_keepdim(Combine::Sum, product, 2).unwrap();
        let sums = self.graph.broadcast_like(sums, dp).unwrap();
        let centered = self.graph.binary(BinaryOp::Sub, dp, sums).unwrap();
        let ds = self.graph.binary(BinaryOp::Mul, weights, centered).unwrap();
        let ds = self.unfilled(ds);
        let (dq, dk) = (self.dot(ds, k, [2, 1]), self.dot(ds, q, [1, 1]));
        Blocks::of(&self.graph, &[result, dq, dk, dv])
    }

    /// Writes attention without gradients, and runs the pass.
    fn forward(
        mut self,
        masked: impl Fn(&mut Self, NodeId) -> NodeId,
        dropped: impl Fn(&mut Self, NodeId) -> NodeId,
    ) -> Blocks {
        let dims = [HEADS, self.size, WIDTH];
        let [q, k, v] = [(); 3].map(|()| self.parameter(DType::F32, &dims));
        let scores = self.dot(q, k, [2, 2]);
        let scores = masked(&mut self, scores);
        let weights = self.softmax(scores);
        let kept = dropped(&mut self, weights);
        let result = self.dot(kept, v, [2, 1]);
        Blocks::of(&self.graph, &[result])
    }

    fn softmax(&mut self, scores: NodeId) -> NodeId {
        let g = &mut self.graph;
        let largest = g.accumulate_keepdim(Combine::Max, scores, 2).unwrap();
        let largest = g.broadcast_like(largest, scores).unwrap();
        let shifted = g.binary(BinaryOp::Sub, scores, largest).unwrap();
        let exponentials = g.unary(UnaryOp::Exp, shifted).unwrap();
        let sum = g.accumulate_keepdim(Combine::Sum, exponentials, 2).unwrap();
        let sum = g.broadcast_like(sum, scores).unwrap();
        g.binary(BinaryOp::Div, exponentials, sum).unwrap()
    }
}

/// What the pass made of a program.
#[derive(Debug, PartialEq)]
struct Blocks {
    count: usize,
    /// The dims `[queries, keys]` of each exponential of several keys.
    scores: Vec<[usize; 2]>,
}

impl Blocks {
    fn of(graph: &Graph, outputs: &[NodeId]) -> Self {
        let (_, rewritten) = testing::run(&QueryBlocks::default(), graph, outputs);
        let nodes = rewritten.program.graph().nodes().iter();
        let exponentials = nodes.filter(|node| node.op == Op::Unary(UnaryOp::Exp));
        let scores = exponentials.map(|node| [node.ty.dims[1], node.ty.dims[2]]);
        let scores = scores.filter(|[_, keys]| *keys > 1).collect();
        Self { count: rewritten.count, scores }
    }

    fn found(scores: &[[usize; 2]]) -> Self {
        Self { count: 1, scores: scores.to_vec() }
    }

    fn none(size: usize) -> Self {
        Self { count: 0, scores: vec![[size, size]] }
    }
}

fn all(_: &mut Attention, weights: NodeId) -> NodeId {
    weights
}

fn causal(attention: &mut Attention, scores: NodeId) -> NodeId {
    let future = attention.future();
    attention.fill(future, -1e4, scores)
}

/// The blocks of causal attention of 1000 tokens: keys in groups of 128.
const CAUSAL: [[usize; 2]; 4] = [[256, 256], [256, 512], [256, 768], [232, 1000]];

#[test]
fn a_block_of_causal_attention_reads_the_keys_up_to_its_last_query() {
    assert_eq!(Attention::new(1000).run(causal, all), Blocks::found(&CAUSAL));
}

#[test]
fn scores_between_bounds_are_divided() {
    let clamped = |attention: &mut Attention, scores| {
        let [low, high] = [-30.0, 30.0].map(|bound| attention.graph.splat_like(scores, bound).unwrap());
        let scores = attention.graph.clamp(low, scores, high).unwrap();
        causal(attention, scores)
    };
    assert_eq!(Attention::new(1000).run(clamped, all), Blocks::found(&CAUSAL));
}

#[test]
fn every_form_of_the_mask_is_found() {
    let infinite = |attention: &mut Attention, scores| {
        let future = attention.future();
        attention.fill(future, f64::NEG_INFINITY, scores)
    };
    let kept = |attention: &mut Attention, scores: NodeId| {
        let (query, key) = (attention.places(1, 0), attention.places(2, 0));
        let past = attention.graph.compare(Direction::Le, key, query).unwrap();
        let hidden = attention.graph.splat_like(scores, -1e9).unwrap();
        let future = attention.graph.unary(UnaryOp::Not, past).unwrap();
        attention.filled.push(future);
        attention.graph.select(past, scores, hidden).unwrap()
    };
    let weak = |attention: &mut Attention, scores| {
        let future = attention.future();
        attention.fill(future, -100.0, scores)
    };
    let run_time = |attention: &mut Attention, scores: NodeId| {
        let future = attention.future();
        let fill = attention.parameter(DType::F32, &[]);
        let fill = attention.graph.broadcast_like(fill, scores).unwrap();
        attention.filled.push(future);
        attention.graph.select(future, fill, scores).unwrap()
    };
    let scaled_later = |attention: &mut Attention, scores: NodeId| {
        let masked = causal(attention, scores);
        attention.graph.binary_const(BinaryOp::Mul, masked, 0.25).unwrap()
    };
    assert_eq!(Attention::new(1000).run(infinite, all), Blocks::found(&CAUSAL));
    assert_eq!(Attention::new(1000).run(kept, all), Blocks::found(&CAUSAL));
    assert_eq!(Attention::new(1000).run(weak, all), Blocks::found(&CAUSAL));
    assert_eq!(Attention::new(1000).run(run_time, all), Blocks::found(&CAUSAL));
    assert_eq!(Attention::new(1000).run(scaled_later, all), Blocks::found(&CAUSAL));
}

/// Causal attention with a bias, which hides `padding` with another number after or before the causal mask.
fn padded(first: f64, second: f64, causal_is_last: bool) -> impl Fn(&mut Attention, NodeId) -> NodeId {
    move |attention, scores| {
        let padding = attention.parameter(DType::Bool, &[HEADS, 1, attention.size]);
        let padding = attention.graph.broadcast_like(padding, scores).unwrap();
        let bias = attention.parameter(DType::F32, &[HEADS, attention.size, attention.size]);
        let scores = attention.graph.binary(BinaryOp::Add, scores, bias).unwrap();
        let future = attention.future();
        let masks = if causal_is_last { [padding, future] } else { [future, padding] };
        let scores = attention.fill(masks[0], first, scores);
        attention.fill(masks[1], second, scores)
    }
}

#[test]
fn a_padding_mask_is_cut_with_the_scores_where_its_number_does_not_matter() {
    assert_eq!(Attention::new(1000).run(padded(-1e4, -1e4, false), all), Blocks::found(&CAUSAL));
    assert_eq!(Attention::new(1000).run(padded(-1e9, f64::NEG_INFINITY, true), all), Blocks::found(&CAUSAL));
    // A row that padding hides as a whole is the mean of all values.
    assert_eq!(Attention::new(1000).run(padded(f64::NEG_INFINITY, -1e9, false), all), Blocks::none(1000));
}

#[test]
fn dropout_is_cut_where_masked_weights_are_zero_or_nan() {
    let factors = |dtype: DType| {
        move |attention: &mut Attention, weights: NodeId| {
            let factors = attention.parameter(dtype, &[HEADS, 1000, 1000]);
            let factors = attention.graph.convert(factors, DType::F32).unwrap();
            attention.graph.binary(BinaryOp::Mul, weights, factors).unwrap()
        }
    };
    let masked = |fill: f64| {
        move |attention: &mut Attention, scores: NodeId| {
            let future = attention.future();
            attention.fill(future, fill, scores)
        }
    };
    // The sum of the gradient is no sum over keys after `softmax_gradient`.
    assert_eq!(Attention::new(1000).forward(masked(f64::NEG_INFINITY), factors(DType::Bool)), Blocks::found(&CAUSAL));
    // Zero times infinity is NaN.
    assert_eq!(Attention::new(1000).forward(masked(f64::NEG_INFINITY), factors(DType::F32)), Blocks::none(1000));
    // A row that is masked as a whole has weights.
    assert_eq!(Attention::new(1000).forward(masked(-1e4), factors(DType::Bool)), Blocks::none(1000));
}

/// The gradient of a maximum: it goes to the place of the largest score of each row, or to another one.
fn of_maximum(is_place: bool) -> Blocks {
    let mut attention = Attention::new(1000);
    let dims = [HEADS, 1000, WIDTH];
    let [q, k] = [(); 2].map(|()| attention.parameter(DType::F32, &dims));
    let scores = attention.dot(q, k, [2, 2]);
    let masked = causal(&mut attention, scores);
    let weights = attention.softmax(masked);
    let labels = attention.parameter(DType::I32, &[HEADS, 1000]);
    let g = &mut attention.graph;
    let places = g.iota(DType::I32, &[HEADS, 1000, 1000], 2).unwrap();
    let (largest, place) = g.arg_reduce(true, masked, places, 2).unwrap();
    let place = g.reshape(if is_place { place } else { labels }, &[HEADS, 1000, 1]).unwrap();
    let zeros = g.splat_like(weights, 0.0).unwrap();
    let scattered = g.scatter(zeros, place, largest, testing::scatter_to_rows(2)).unwrap();
    let sum = g.binary(BinaryOp::Add, scattered, weights).unwrap();
    let gradient = attention.unfilled(sum);
    let dk = attention.dot(gradient, q, [1, 1]);
    Blocks::of(&attention.graph, &[dk])
}

#[test]
fn the_gradient_of_the_largest_score_is_in_its_block() {
    assert_eq!(of_maximum(true), Blocks::found(&CAUSAL));
    // A label can be a key that the block leaves out, where the mask hides its gradient.
    assert_eq!(of_maximum(false), Blocks::found(&CAUSAL));
}

#[test]
fn a_window_leaves_out_the_keys_on_both_sides() {
    let window = |attention: &mut Attention, scores: NodeId| {
        let (query, key) = (attention.places(1, -200), attention.places(2, 0));
        let old = attention.graph.compare(Direction::Lt, key, query).unwrap();
        let future = attention.future();
        let hidden = attention.graph.binary(BinaryOp::Or, old, future).unwrap();
        attention.fill(hidden, -1e4, scores)
    };
    let found = Blocks::found(&[[256, 256], [256, 512], [256, 512], [232, 488]]);
    assert_eq!(Attention::new(1000).run(window, all), found);
}

#[test]
fn a_long_sequence_has_blocks_of_512() {
    let blocks = Attention::new(4096).run(causal, all).scores;
    assert_eq!(blocks, (1..=8).map(|block| [512, 512 * block]).collect::<Vec<_>>());
}

#[test]
fn what_hides_nothing_is_left_as_it_is() {
    // A score that is infinite stays infinite.
    let added = |attention: &mut Attention, scores: NodeId| {
        let future = attention.future();
        let bias = attention.graph.convert(future, DType::F32).unwrap();
        let bias = attention.graph.binary_const(BinaryOp::Mul, bias, -1e9).unwrap();
        attention.graph.binary(BinaryOp::Add, scores, bias).unwrap()
    };
    let open = |_: &mut Attention, scores| scores;
    let of_data = |attention: &mut Attention, scores: NodeId| {
        let dims = attention.graph.dims(scores);
        let mask = attention.parameter(DType::Bool, &dims);
        attention.fill(mask, -1e4, scores)
    };
    assert_eq!(Attention::new(1000).run(open, all), Blocks::none(1000));
    assert_eq!(Attention::new(1000).run(of_data, all), Blocks::none(1000));
    assert_eq!(Attention::new(1000).run(added, all), Blocks::none(1000));
    assert_eq!(Attention::new(512).run(causal, all), Blocks::none(512));
}

#[test]
fn queries_that_a_mesh_splits_stay_together() {
    let run = |dims: [&[u8]; 3]| {
        let queries = Some(Sharding::new(dims.map(Into::into)));
        Attention { queries, ..Attention::new(1000) }.run(causal, all)
    };
    assert_eq!(run([&[], &[0], &[]]), Blocks::none(1000));
    assert_eq!(run([&[0], &[], &[]]), Blocks::found(&CAUSAL));
}

#[test]
fn weights_and_scores_that_are_returned_have_all_keys() {
    let returned = |is_scores: bool| {
        let mut attention = Attention::new(1000);
        let dims = [HEADS, 1000, WIDTH];
        let [q, k] = [(); 2].map(|()| attention.parameter(DType::F32, &dims));
        let scores = attention.dot(q, k, [2, 2]);
        let masked = causal(&mut attention, scores);
        let weights = attention.softmax(masked);
        Blocks::of(&attention.graph, &[weights, masked][..1 + usize::from(is_scores)])
    };
    assert_eq!(returned(false), Blocks::found(&CAUSAL));
    assert_eq!(returned(true), Blocks::found(&CAUSAL));
}
