//! Tests of which sums the pass finds.

use super::*;
use crate::pass::testing;
use burn_tpu_graph::TensorType;

/// `x: [2, 5, 5]`, `row: [2, 5, 1]`, and `v`, `gradient`: `[2, 5, 3]`, with the gradient of `x v`.
struct Rows {
    graph: Graph,
    x: NodeId,
    row: NodeId,
    of_x: NodeId,
}

impl Rows {
    /// `is_same` tells whether the gradient is of a product with the same `v`.
    fn new(dtype: DType, is_same: bool) -> Self {
        let mut graph = Graph::new();
        let mut parameter =
            |index, dims: &[usize]| graph.add(Op::Parameter { index, ty: TensorType::new(dtype, dims) }, &[]).unwrap();
        let (x, row) = (parameter(0, &[2, 5, 5]), parameter(1, &[2, 5, 1]));
        let [v, gradient, other] = [2, 3, 4].map(|index| parameter(index, &[2, 5, 3]));
        let row = graph.broadcast_to(row, &[2, 5, 5]).unwrap();
        let turned = graph.transpose(if is_same { v } else { other }, &[0, 2, 1]).unwrap();
        let of_x = dot(&mut graph, gradient, turned, dtype);
        Self { graph, x, row, of_x }
    }

    fn binary(&mut self, op: BinaryOp, lhs: NodeId, rhs: NodeId) -> NodeId {
        self.graph.binary(op, lhs, rhs).unwrap()
    }

    /// Returns how often the pass fires on `weights v` and the sum of `values` over the columns.
    fn count(mut self, weights: NodeId, values: NodeId) -> usize {
        let result = self.product(weights, self.graph.dtype(values));
        let sum = self.sum(values);
        testing::run(&SoftmaxGradient, &self.graph, &[result, sum]).1.count
    }

    /// Adds `weights v`.
    fn product(&mut self, weights: NodeId, dtype: DType) -> NodeId {
        let v = self.graph.nodes().iter().position(|node| matches!(node.op, Op::Parameter { index: 2, .. })).unwrap();
        dot(&mut self.graph, weights, NodeId(v as u32), dtype)
    }

    fn sum(&mut self, values: NodeId) -> NodeId {
        self.graph.accumulate(Combine::Sum, values, &[2]).unwrap()
    }

    /// Returns the program with the sum of `of_x * x` and `x v` in the form that `merge` gives it; `reads_first` tells
    /// whether `x v` itself is a result too.
    fn merged(reads_first: bool, merge: impl Fn(&mut Graph, NodeId) -> NodeId) -> String {
        let mut rows = Self::new(DType::F32, true);
        let product = rows.product(rows.x, DType::F32);
        let merged = merge(&mut rows.graph, product);
        let values = rows.binary(BinaryOp::Mul, rows.of_x, rows.x);
        let sum = rows.sum(values);
        let outputs = if reads_first { vec![merged, sum, product] } else { vec![merged, sum] };
        let rewritten = testing::run(&SoftmaxGradient, &rows.graph, &outputs).1;
        assert_eq!(rewritten.count, 1);
        rewritten.program.to_string()
    }
}

fn dot(graph: &mut Graph, lhs: NodeId, rhs: NodeId, dtype: DType) -> NodeId {
    let attrs = DotAttrs::new([&[0], &[0]], [&[2], &[1]], dtype.accumulator());
    let product = graph.dot_general(lhs, rhs, attrs).unwrap();
    graph.convert(product, dtype).unwrap()
}

/// The sum of `-gradient * x / row^2` beside the product of `x / row`, as autodiff records a softmax.
#[test]
fn the_sum_of_a_softmax_is_found_and_rows_move_out_of_it() {
    for dtype in [DType::F32, DType::BF16] {
        let mut rows = Rows::new(dtype, true);
        let (x, row, of_x) = (rows.x, rows.row, rows.of_x);
        let weights = rows.binary(BinaryOp::Div, x, row);
        let negative = rows.graph.unary(UnaryOp::Neg, x).unwrap();
        let quotient = rows.binary(BinaryOp::Div, negative, row);
        let quotient = rows.binary(BinaryOp::Div, quotient, row);
        let values = rows.binary(BinaryOp::Mul, of_x, quotient);
        assert_eq!(rows.count(weights, values), 1, "{dtype}");
    }
}

#[test]
fn a_factor_of_both_such_as_dropout_is_found() {
    let mut rows = Rows::new(DType::F32, true);
    let (x, of_x) = (rows.x, rows.of_x);
    let kept = rows.graph.add(Op::Parameter { index: 9, ty: TensorType::new(DType::F32, [2, 5, 5]) }, &[]).unwrap();
    let weights = rows.binary(BinaryOp::Mul, x, kept);
    let dropped = rows.binary(BinaryOp::Mul, of_x, kept);
    let values = rows.binary(BinaryOp::Mul, dropped, x);
    assert_eq!(rows.count(weights, values), 1);
}

/// The scale of dropout is an input of its own in the forward and in the backward pass.
#[test]
fn a_number_that_multiplies_all_weights_multiplies_the_product() {
    let mut rows = Rows::new(DType::F32, true);
    let (x, of_x) = (rows.x, rows.of_x);
    let [forward, backward] = [7, 8].map(|index| {
        let number = rows.graph.add(Op::Parameter { index, ty: TensorType::new(DType::F32, []) }, &[]).unwrap();
        rows.graph.broadcast_to(number, &[2, 5, 5]).unwrap()
    });
    let weights = rows.binary(BinaryOp::Mul, x, forward);
    let scaled = rows.binary(BinaryOp::Mul, of_x, backward);
    let values = rows.binary(BinaryOp::Mul, scaled, x);
    assert_eq!(rows.count(weights, values), 1);
}

#[test]
fn a_factor_of_the_product_that_the_sum_lacks_is_not_taken_back() {
    let mut rows = Rows::new(DType::F32, true);
    let (x, row, of_x) = (rows.x, rows.row, rows.of_x);
    let values = rows.binary(BinaryOp::Mul, of_x, x);
    let weights = rows.binary(BinaryOp::Mul, x, row);
    assert_eq!(rows.count(weights, values), 0);
    let mut rows = Rows::new(DType::F32, true);
    let (x, row, of_x) = (rows.x, rows.row, rows.of_x);
    let values = rows.binary(BinaryOp::Mul, of_x, x);
    let weights = rows.binary(BinaryOp::Div, x, row);
    assert_eq!(rows.count(weights, values), 0);
}

#[test]
fn other_sums_are_left_as_they_are() {
    // The gradient of a product with another matrix.
    let mut rows = Rows::new(DType::F32, false);
    let (x, of_x) = (rows.x, rows.of_x);
    let values = rows.binary(BinaryOp::Mul, of_x, x);
    assert_eq!(rows.count(x, values), 0);
    // A factor that the product does not have.
    let mut rows = Rows::new(DType::F32, true);
    let (x, of_x) = (rows.x, rows.of_x);
    let square = rows.binary(BinaryOp::Mul, x, x);
    let values = rows.binary(BinaryOp::Mul, of_x, square);
    assert_eq!(rows.count(x, values), 0);
    // A row that is a divisor of nothing but varies along the columns.
    let mut rows = Rows::new(DType::F32, true);
    let (x, of_x) = (rows.x, rows.of_x);
    let quotient = rows.binary(BinaryOp::Div, of_x, x);
    assert_eq!(rows.count(x, quotient), 0);
    // The gradient alone.
    let rows = Rows::new(DType::F32, true);
    let (x, of_x) = (rows.x, rows.of_x);
    assert_eq!(rows.count(x, of_x), 0);
}

/// Merges the batch of 2 into rows of 6 numbers.
fn merge(graph: &mut Graph, product: NodeId) -> NodeId {
    let turned = graph.transpose(product, &[1, 0, 2]).unwrap();
    graph.reshape(turned, &[5, 6]).unwrap()
}

#[test]
fn the_sum_reads_the_form_with_merged_heads() {
    let text = Rows::merged(false, merge);
    let tail = "\
%5 = reshape %4 : f32[5,6]
%6 = optimization_barrier %5 : f32[5,6]
%7 = reshape %6 : f32[5,2,3]
%8 = transpose %7 {permutation = [1, 0, 2]} : f32[2,5,3]
%9 = multiply %2, %8 : f32[2,5,3]
%10 = reduce %9 {combine = Sum, dims = [2]} : f32[2,5]
outputs %6, %10
";
    assert!(text.ends_with(tail), "{text}");
}

#[test]
fn merged_heads_of_16_bits_are_moved_before_they_are_converted() {
    let mut rows = Rows::new(DType::BF16, true);
    let product = rows.product(rows.x, DType::BF16);
    let merged = merge(&mut rows.graph, product);
    let values = rows.binary(BinaryOp::Mul, rows.of_x, rows.x);
    let sum = rows.sum(values);
    let text = testing::run(&SoftmaxGradient, &rows.graph, &[merged, sum]).1.program.to_string();
    let moved = "\
%8 = reshape %7 : bf16[5,2,3]
%9 = optimization_barrier %8 : bf16[5,2,3]
%10 = transpose %9 {permutation = [1, 0, 2]} : bf16[2,5,3]
";
    assert!(text.contains(moved), "{text}");
}

#[test]
fn a_product_that_is_kept_as_it_is_has_no_barrier() {
    // Not merged; merged but also read as it is; moved, in rows that are no longer.
    let forms = [
        Rows::merged(false, |_, product| product),
        Rows::merged(true, merge),
        Rows::merged(false, |graph, product| graph.transpose(product, &[1, 0, 2]).unwrap()),
    ];
    assert!(forms.iter().all(|text| !text.contains("barrier")), "{forms:?}");
}
