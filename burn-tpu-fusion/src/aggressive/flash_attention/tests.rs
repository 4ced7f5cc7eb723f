//! Tests of what becomes kernels and of what is left as it is.

use super::*;
use crate::pass::testing;
use burn_tpu_graph::op::{BinaryOp, Combine, Direction, DotAttrs, UnaryOp};
use burn_tpu_graph::{Builder, DType, Graph, NodeId, TensorType, custom_calls};

const HEADS: usize = 2;
const WIDTH: usize = 64;

/// Attention of `[HEADS, size, WIDTH]` with its gradients, as autodiff records a division.
struct Attention {
    graph: Graph,
    size: usize,
    parameters: u32,
}

impl Attention {
    fn new(size: usize) -> Self {
        Self { graph: Graph::new(), size, parameters: 0 }
    }

    fn parameter(&mut self, dims: &[usize]) -> NodeId {
        let (index, ty) = (self.parameters, TensorType::new(DType::BF16, dims));
        self.parameters += 1;
        self.graph.add(Op::Parameter { index, ty }, &[]).unwrap()
    }

    /// Multiplies, for each head, over a dim of either value, and rounds.
    fn dot(&mut self, lhs: NodeId, rhs: NodeId, [left, right]: [usize; 2]) -> NodeId {
        let attrs = DotAttrs::new([&[0], &[0]], [&[left], &[right]], DType::F32);
        let product = self.graph.dot_general(lhs, rhs, attrs).unwrap();
        self.graph.convert(product, DType::BF16).unwrap()
    }

    fn binary(&mut self, op: BinaryOp, lhs: NodeId, rhs: NodeId) -> NodeId {
        self.graph.binary(op, lhs, rhs).unwrap()
    }

    /// Returns whether the key comes after the query.
    fn future(&mut self) -> NodeId {
        let dims = [HEADS, self.size, self.size];
        let [query, key] = [1, 2].map(|dim| self.graph.iota(DType::I32, &dims, dim).unwrap());
        self.graph.compare(Direction::Gt, key, query).unwrap()
    }

    fn fill(&mut self, mask: NodeId, value: f64, x: NodeId) -> NodeId {
        let value = self.graph.splat_like(x, value).unwrap();
        self.graph.select(mask, value, x).unwrap()
    }

    fn sum(&mut self, x: NodeId) -> NodeId {
        let sum = self.graph.accumulate_keepdim(Combine::Sum, x, 2).unwrap();
        self.graph.broadcast_like(sum, x).unwrap()
    }

    /// Writes attention with its gradients and runs the pass. `masked` masks the scores and their gradient, `changed` the
    /// weights and theirs, and `returned` adds what is returned too.
    fn run(
        mut self,
        masked: impl Fn(&mut Self, NodeId, bool) -> NodeId,
        changed: impl Fn(&mut Self, NodeId) -> NodeId,
        returned: impl Fn(&mut Self, [NodeId; 3]) -> Option<NodeId>,
    ) -> Vec<String> {
        let dims = [HEADS, self.size, WIDTH];
        let [q, k, v, gradient] = [(); 4].map(|()| self.parameter(&dims));
        let slot = self.graph.add(Op::Slot { index: 0, dtype: DType::BF16 }, &[]).unwrap();
        let turned = self.graph.transpose(k, &[0, 2, 1]).unwrap();
        let scores = self.dot(q, turned, [2, 1]);
        let root = self.graph.broadcast_like(slot, scores).unwrap();
        let scaled = self.binary(BinaryOp::Div, scores, root);
        let masked_scores = masked(&mut self, scaled, false);
        let largest = self.graph.accumulate_keepdim(Combine::Max, masked_scores, 2).unwrap();
        let shifted = self.binary(BinaryOp::Sub, masked_scores, largest);
        let e = self.graph.unary(UnaryOp::Exp, shifted).unwrap();
        let l = self.sum(e);
        let weights = self.binary(BinaryOp::Div, e, l);
        let kept = changed(&mut self, weights);
        let result = self.dot(kept, v, [2, 1]);
        let dv = self.dot(kept, gradient, [1, 1]);
        let dp = self.dot(gradient, v, [2, 2]);
        let dp = changed(&mut self, dp);
        let of_quotient = self.binary(BinaryOp::Div, dp, l);
        let negative = self.graph.unary(UnaryOp::Neg, e).unwrap();
        let square = self.binary(BinaryOp::Mul, l, l);
        let quotient = self.binary(BinaryOp::Div, negative, square);
        let products = self.binary(BinaryOp::Mul, dp, quotient);
        let of_sum = self.sum(products);
        let sum = self.binary(BinaryOp::Add, of_quotient, of_sum);
        let ds = self.binary(BinaryOp::Mul, e, sum);
        let ds = masked(&mut self, ds, true);
        let ds = self.binary(BinaryOp::Div, ds, root);
        let dq = self.dot(ds, k, [2, 1]);
        let dk = self.dot(q, ds, [1, 1]);
        let more = returned(&mut self, [weights, ds, masked_scores]);
        let outputs: Vec<_> = [result, dq, dk, dv].into_iter().chain(more).collect();
        calls(&self.graph, &outputs)
    }
}

/// Returns the calls that the pass makes of a program.
fn calls(graph: &Graph, outputs: &[NodeId]) -> Vec<String> {
    let (_, rewritten) = testing::run(&FlashAttention::default(), graph, outputs);
    if rewritten.count > 0 {
        let is_exp = |node: &burn_tpu_graph::Node| node.op == Op::Unary(UnaryOp::Exp);
        assert!(!rewritten.program.graph().nodes().iter().any(is_exp), "the scores are not computed");
    }
    let mut names: Vec<_> = custom_calls(&rewritten.program).iter().map(|call| call.name().to_owned()).collect();
    names.sort();
    names
}

const ALL: [&str; 3] = ["flash_attention", "flash_attention_key_gradient", "flash_attention_query_gradient"];

fn open(_: &mut Attention, x: NodeId, _: bool) -> NodeId {
    x
}

fn causal(attention: &mut Attention, x: NodeId, is_gradient: bool) -> NodeId {
    let future = attention.future();
    attention.fill(future, if is_gradient { 0.0 } else { -1e4 }, x)
}

fn whole(_: &mut Attention, x: NodeId) -> NodeId {
    x
}

fn nothing(_: &mut Attention, _: [NodeId; 3]) -> Option<NodeId> {
    None
}

#[test]
fn attention_and_its_gradients_become_three_calls() {
    assert_eq!(Attention::new(1024).run(causal, whole, nothing), ALL);
    assert_eq!(Attention::new(1024).run(open, whole, nothing), ALL);
    let biased = |attention: &mut Attention, x: NodeId, is_gradient: bool| {
        let size = attention.size;
        let bias = attention.parameter(&[HEADS, size, size]);
        let x = if is_gradient { x } else { attention.binary(BinaryOp::Add, x, bias) };
        causal(attention, x, is_gradient)
    };
    assert_eq!(Attention::new(1024).run(biased, whole, nothing), ALL);
    let window = |attention: &mut Attention, x: NodeId, is_gradient: bool| {
        let dims = [HEADS, attention.size, attention.size];
        let x = causal(attention, x, is_gradient);
        let [query, key] = [1, 2].map(|dim| attention.graph.iota(DType::I32, &dims, dim).unwrap());
        let first = attention.graph.binary_const(BinaryOp::Sub, query, 200).unwrap();
        let old = attention.graph.compare(Direction::Lt, key, first).unwrap();
        attention.fill(old, if is_gradient { 0.0 } else { -1e4 }, x)
    };
    assert_eq!(Attention::new(1024).run(window, whole, nothing), ALL);
    // Weights, and so their gradient, times a number.
    let halved = |attention: &mut Attention, x: NodeId| attention.graph.binary_const(BinaryOp::Mul, x, 0.5).unwrap();
    assert_eq!(Attention::new(1024).run(causal, halved, nothing), ALL);
}

/// Returns a mask of data that varies along these dims of `[HEADS, size, size]`, and the keys from the first on.
fn of_data(attention: &mut Attention, varies: [bool; 3]) -> NodeId {
    let all = [HEADS, attention.size, attention.size];
    let dims: Vec<usize> = all.iter().zip(varies).map(|(&size, varies)| if varies { size } else { 1 }).collect();
    let data = attention.parameter(&dims);
    let data = attention.graph.broadcast_to(data, &all).unwrap();
    let hides = attention.graph.compare_const(Direction::Gt, data, 0.0).unwrap();
    let key = attention.graph.iota(DType::I32, &all, 2).unwrap();
    let is_late = attention.graph.compare_const(Direction::Gt, key, 0).unwrap();
    attention.binary(BinaryOp::And, hides, is_late)
}

#[test]
fn masks_and_biases_of_data_are_read_by_the_kernels() {
    for varies in [[false, false, true], [true, false, true], [true, true, true]] {
        let mask = std::cell::Cell::new(None);
        let masked = |attention: &mut Attention, x: NodeId, is_gradient: bool| {
            let fill = if is_gradient { 0.0 } else { -1e4 };
            let hidden = mask.get().unwrap_or_else(|| of_data(attention, varies));
            mask.set(Some(hidden));
            let future = attention.future();
            let hidden = attention.binary(BinaryOp::Or, future, hidden);
            attention.fill(hidden, fill, x)
        };
        assert_eq!(Attention::new(1024).run(masked, whole, nothing), ALL, "{varies:?}");
    }
    // A row of keys that is added, as for padding.
    let added = |attention: &mut Attention, x: NodeId, is_gradient: bool| {
        let row = attention.parameter(&[1, 1, attention.size]);
        let row = attention.graph.broadcast_like(row, x).unwrap();
        if is_gradient { x } else { attention.binary(BinaryOp::Add, x, row) }
    };
    assert_eq!(Attention::new(1024).run(added, whole, nothing), ALL);
}

/// A mask that the gradient has and the scores have not.
#[test]
fn another_mask_of_the_gradient_is_left_as_it_is() {
    let none: [&str; 0] = [];
    let masked = |attention: &mut Attention, x: NodeId, is_gradient: bool| {
        let hidden = of_data(attention, [false, false, true]);
        attention.fill(hidden, if is_gradient { 0.0 } else { -1e4 }, x)
    };
    assert_eq!(Attention::new(1024).run(masked, whole, nothing), none);
}

#[test]
fn what_kernels_do_not_compute_is_left_as_it_is() {
    let none: [&str; 0] = [];
    let dropped = |attention: &mut Attention, x: NodeId| {
        let dims = attention.graph.dims(x);
        let kept = attention.parameter(&dims);
        attention.binary(BinaryOp::Mul, x, kept)
    };
    assert_eq!(Attention::new(1024).run(causal, dropped, nothing), none);
    // Short sequences, and those that are not whole blocks.
    assert_eq!(Attention::new(896).run(causal, whole, nothing), none);
    assert_eq!(Attention::new(1100).run(causal, whole, nothing), none);
    // The gradient of a bias, weights or scores that are returned.
    for place in 0..3 {
        let returned = move |_: &mut Attention, values: [NodeId; 3]| Some(values[place]);
        assert_eq!(Attention::new(1024).run(causal, whole, returned), none, "{place}");
        let summed = move |attention: &mut Attention, values: [NodeId; 3]| {
            Some(attention.graph.reduce(Combine::Sum, values[place], &[0]).unwrap())
        };
        assert_eq!(Attention::new(1024).run(causal, whole, summed), none, "{place}");
    }
    // A mask that hides too little, and one of the gradient alone.
    let weak = |attention: &mut Attention, x: NodeId, is_gradient: bool| {
        let future = attention.future();
        attention.fill(future, if is_gradient { 0.0 } else { -100.0 }, x)
    };
    assert_eq!(Attention::new(1024).run(weak, whole, nothing), none);
    let of_gradient = |attention: &mut Attention, x: NodeId, is_gradient: bool| {
        if is_gradient { causal(attention, x, true) } else { x }
    };
    assert_eq!(Attention::new(1024).run(of_gradient, whole, nothing), none);
    let raised = |attention: &mut Attention, x: NodeId| attention.graph.binary_const(BinaryOp::Add, x, 0.5).unwrap();
    assert_eq!(Attention::new(1024).run(causal, raised, nothing), none);
}
