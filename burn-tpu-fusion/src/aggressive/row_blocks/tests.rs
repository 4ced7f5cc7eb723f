//! Tests of what becomes a loop and of what is left as it is. Values are compared in `tests/numbers/fusion.rs`.

use super::split::{Divided, Split};
use super::*;
use crate::pass::testing;
use burn_tpu_graph::op::{BinaryOp, Combine, DotAttrs, UnaryOp};
use burn_tpu_graph::{Builder, DType, Graph, NodeId, Op, TensorType};
use std::sync::Arc;

const ROWS: usize = 6;
const WIDTH: usize = 2;
const CLASSES: usize = 5;

/// A graph with `x: [ROWS, WIDTH]`, a weight `[WIDTH, CLASSES]` and their product.
struct Head {
    graph: Graph,
    x: NodeId,
    weight: NodeId,
    logits: NodeId,
}

impl Head {
    fn new() -> Self {
        Self::of(DType::F32)
    }

    /// Creates the graph for factors of this type. The product is in f32.
    fn of(dtype: DType) -> Self {
        let mut graph = Graph::new();
        let mut factor =
            |index, dims: &[usize]| graph.add(Op::Parameter { index, ty: TensorType::new(dtype, dims) }, &[]).unwrap();
        let (x, weight) = (factor(0, &[ROWS, WIDTH]), factor(1, &[WIDTH, CLASSES]));
        let logits = product(&mut graph, [x, weight], [1, 0]);
        Self { graph, x, weight, logits }
    }

    /// Adds the logarithm of the sum of exponentials of each row, and the gradient of the logits if that of each row is `g`.
    fn loss(&mut self, g: NodeId) -> [NodeId; 2] {
        let graph = &mut self.graph;
        let exp = graph.unary(UnaryOp::Exp, self.logits).unwrap();
        let sums = graph.reduce(Combine::Sum, exp, &[1]).unwrap();
        let loss = graph.unary(UnaryOp::Log, sums).unwrap();
        let of_sum = graph.binary(BinaryOp::Div, g, sums).unwrap();
        let of_exp = graph.broadcast_in_dim(of_sum, &[ROWS, CLASSES], &[0]).unwrap();
        [loss, graph.binary(BinaryOp::Mul, exp, of_exp).unwrap()]
    }

    fn ones(&mut self) -> NodeId {
        self.graph.splat(DType::F32, &[ROWS], 1.0).unwrap()
    }

    /// Adds the gradients of the rows and of the weight.
    fn gradients(&mut self, of_logits: NodeId) -> [NodeId; 2] {
        let of_x = product(&mut self.graph, [of_logits, self.weight], [1, 1]);
        [of_x, product(&mut self.graph, [self.x, of_logits], [0, 0])]
    }

    fn run(&self, outputs: &[NodeId]) -> Rewritten {
        testing::run(&RowBlocks::of(ROWS * CLASSES, 2 * CLASSES), &self.graph, outputs).1
    }
}

fn parameter(graph: &mut Graph, index: u32, dims: &[usize]) -> NodeId {
    graph.add(Op::Parameter { index, ty: TensorType::new(DType::F32, dims) }, &[]).unwrap()
}

fn product(graph: &mut Graph, [lhs, rhs]: [NodeId; 2], [left, right]: [usize; 2]) -> NodeId {
    let attrs = DotAttrs::new([&[], &[]], [&[left], &[right]], DType::F32);
    graph.dot_general(lhs, rhs, attrs).unwrap()
}

/// Returns the trips and the body of the only loop.
fn only_loop(rewritten: &Rewritten) -> (usize, Arc<Program>) {
    let nodes = rewritten.program.graph().nodes().iter();
    let mut loops = nodes.filter_map(|node| match &node.op {
        Op::For { trips, body } => Some((trips.most(), Arc::clone(body))),
        _ => None,
    });
    let only = loops.next().expect("a loop");
    assert!(loops.next().is_none());
    only
}

#[test]
fn a_loss_and_its_gradients_become_a_loop() {
    let mut head = Head::new();
    let ones = head.ones();
    let [loss, of_logits] = head.loss(ones);
    let [of_x, of_weight] = head.gradients(of_logits);
    let total = head.graph.reduce(Combine::Sum, loss, &[0]).unwrap();
    let rewritten = head.run(&[total, of_x, of_weight]);
    assert_eq!(rewritten.count, 1);
    let types = [&[ROWS][..], &[ROWS, WIDTH], &[WIDTH, CLASSES], &[ROWS, WIDTH], &[WIDTH, CLASSES]];
    let (trips, body) = only_loop(&rewritten);
    let results: Vec<TensorType> = body.output_types().cloned().collect();
    assert_eq!((trips, results), (3, types.map(|dims| TensorType::new(DType::F32, dims)).to_vec()));
    let largest = rewritten.program.graph().nodes().iter().map(|node| node.ty.elements()).max();
    assert_eq!(largest, Some(ROWS * WIDTH));
}

#[test]
fn a_loss_without_gradients_becomes_a_loop() {
    let mut head = Head::new();
    let ones = head.ones();
    let [loss, _] = head.loss(ones);
    let rewritten = head.run(&[loss]);
    assert_eq!((rewritten.count, only_loop(&rewritten).0), (1, 3));
}

#[test]
fn logits_of_16_bit_factors_are_rounded_after_their_bias() {
    let roundings = |dtype: DType| {
        let mut head = Head::of(dtype);
        let bias = parameter(&mut head.graph, 2, &[CLASSES]);
        head.logits = head.graph.binary(BinaryOp::Add, head.logits, bias).unwrap();
        let least = head.graph.reduce(Combine::Min, head.logits, &[1]).unwrap();
        let ones = head.ones();
        let [loss, _] = head.loss(ones);
        let body = only_loop(&head.run(&[least, loss])).1.to_string();
        let lines: Vec<_> = body.lines().map(|line| line.split(" = ").last().unwrap().to_string()).collect();
        let count = |of: &str| lines.iter().filter(|line| line.starts_with("convert") && line.ends_with(of)).count();
        [count("bf16[2,5]"), count("f32[2,5]")]
    };
    assert_eq!(roundings(DType::BF16), [1, 1]);
    assert_eq!(roundings(DType::F32), [0, 0]);
}

#[test]
fn logits_that_are_read_elsewhere_are_left() {
    let mut head = Head::new();
    let ones = head.ones();
    let [loss, of_logits] = head.loss(ones);
    assert_eq!(head.run(&[loss, head.logits]).count, 0, "returned");
    assert_eq!(head.run(&[of_logits]).count, 0, "a gradient of as many elements, returned");
    let order: Vec<_> = head.graph.sort(&[head.logits], 1, true).unwrap();
    assert_eq!(head.run(&[loss, order[0]]).count, 0, "read by an op that is not understood");
}

#[test]
fn a_gradient_that_depends_on_all_rows_is_left() {
    let mut head = Head::new();
    let ones = head.ones();
    let [loss, _] = head.loss(ones);
    let total = head.graph.reduce(Combine::Sum, loss, &[0]).unwrap();
    let each = head.graph.broadcast_in_dim(total, &[ROWS], &[]).unwrap();
    let [_, of_logits] = head.loss(each);
    let gradients = head.gradients(of_logits);
    assert_eq!(head.run(&gradients).count, 0);
}

#[test]
fn small_products_are_left() {
    let mut head = Head::new();
    let ones = head.ones();
    let [loss, _] = head.loss(ones);
    let pass = RowBlocks::of(ROWS * CLASSES + 1, CLASSES);
    assert_eq!(testing::run(&pass, &head.graph, &[loss]).1.count, 0);
}

#[test]
fn rows_that_cannot_be_divided_are_left() {
    let mut head = Head::new();
    let ones = head.ones();
    let [loss, _] = head.loss(ones);
    let pass = RowBlocks::of(ROWS * CLASSES, 2 * CLASSES - 1);
    assert_eq!(testing::run(&pass, &head.graph, &[loss]).1.count, 1, "six blocks of one row");
    let first = head.graph.slice_dim(head.x, 0, 0, 5).unwrap();
    let logits = product(&mut head.graph, [first, head.weight], [1, 0]);
    let sums = head.graph.reduce(Combine::Sum, logits, &[1]).unwrap();
    let pass = RowBlocks::of(5 * CLASSES, 3 * CLASSES);
    assert_eq!(testing::run(&pass, &head.graph, &[sums]).1.count, 0, "two to four blocks of five rows");
}

#[test]
fn runs_of_consecutive_rows_are_divided() {
    let divided = |dim, parts, inner| Divided { dim, parts, inner };
    let leading = |dims: &[usize], blocks| Split::leading(dims, blocks).map(|split| split.0.to_vec());
    assert_eq!(leading(&[8, 3], 4), Some(vec![divided(0, 4, 1)]));
    assert_eq!(leading(&[1, 8, 3], 4), Some(vec![divided(1, 4, 1)]));
    assert_eq!(leading(&[2, 8, 3], 8), Some(vec![divided(0, 2, 4), divided(1, 4, 1)]));
    assert_eq!(leading(&[3, 8], 4), None);
    assert_eq!(leading(&[2, 3], 4), None);
    assert_eq!(Split::leading(&[2, 8, 3], 8).unwrap().block(&[2, 8, 3])[..], [1, 2, 3]);
}
