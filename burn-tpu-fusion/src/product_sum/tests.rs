//! Tests of what the pass rewrites and of what it leaves unchanged.

use super::*;
use crate::pass::testing;
use burn_tpu_graph::{DType, TensorType};

/// A graph with the product of `x: [4, 8, 3]` and `y: [4, 8, 5]` for each of the first dim: `[4, 3, 5]`.
struct Products {
    graph: Graph,
    products: NodeId,
}

impl Products {
    fn new(dtype: DType) -> Self {
        let mut graph = Graph::new();
        let mut parameter =
            |index, dims: &[usize]| graph.add(Op::Parameter { index, ty: TensorType::new(dtype, dims) }, &[]).unwrap();
        let (x, y) = (parameter(0, &[4, 8, 3]), parameter(1, &[4, 8, 5]));
        let x = graph.transpose(x, &[0, 2, 1]).unwrap();
        let attrs = DotAttrs::new([&[0], &[0]], [&[2], &[1]], DType::F32);
        let products = graph.dot_general(x, y, attrs).unwrap();
        Self { graph, products }
    }

    fn run(&self, outputs: &[NodeId]) -> (usize, String) {
        let (_, rewritten) = testing::run(&ProductSum, &self.graph, outputs);
        (rewritten.count, rewritten.program.to_string())
    }
}

const ONE_PRODUCT: &str = "dot_general %0, %1 {lhs_batch = [], rhs_batch = [], lhs_contract = [0, 1], rhs_contract = \
                           [0, 1]} : f32[3,5]";

#[test]
fn a_summed_batch_is_contracted() {
    let mut p = Products::new(DType::F32);
    let sum = p.graph.reduce(Combine::Sum, p.products, &[0]).unwrap();
    let (count, text) = p.run(&[sum]);
    assert!(count == 1 && text.contains(ONE_PRODUCT) && !text.contains("transpose"), "{text}");
}

#[test]
fn a_rounding_before_the_sum_is_left_out() {
    let mut p = Products::new(DType::BF16);
    let rounded = p.graph.convert(p.products, DType::BF16).unwrap();
    let sum = p.graph.accumulate(Combine::Sum, rounded, &[0]).unwrap();
    let (count, text) = p.run(&[sum]);
    assert!(count == 1 && text.contains(ONE_PRODUCT), "{text}");
    // Unless the rounded products are read.
    assert_eq!(p.run(&[sum, rounded]).0, 0);
}

#[test]
fn other_sums_stay() {
    let mut p = Products::new(DType::F32);
    let rows = p.graph.reduce(Combine::Sum, p.products, &[1]).unwrap();
    let both = p.graph.reduce(Combine::Sum, p.products, &[0, 1]).unwrap();
    let largest = p.graph.reduce(Combine::Max, p.products, &[0]).unwrap();
    let sum = p.graph.reduce(Combine::Sum, p.products, &[0]).unwrap();
    assert_eq!(p.run(&[rows]).0, 0, "a dim of a factor alone");
    assert_eq!(p.run(&[both]).0, 0, "a dim of a factor too");
    assert_eq!(p.run(&[largest]).0, 0, "no sum");
    assert_eq!(p.run(&[sum, p.products]).0, 0, "the products are read");
}

#[test]
fn one_of_two_batch_dims_is_contracted_and_a_transpose_that_moves_rows_stays() {
    let mut graph = Graph::new();
    let mut parameter =
        |index, dims: &[usize]| graph.add(Op::Parameter { index, ty: TensorType::new(DType::F32, dims) }, &[]).unwrap();
    let (x, y) = (parameter(0, &[6, 7, 2, 3, 8]), parameter(1, &[2, 3, 8, 5]));
    // [2, 3, 7, 6, 8]: its free dims, 7 and 6, are the other way round in `x`.
    let turned = graph.transpose(x, &[2, 3, 1, 0, 4]).unwrap();
    let attrs = DotAttrs::new([&[0, 1], &[0, 1]], [&[4], &[2]], DType::F32);
    let products = graph.dot_general(turned, y, attrs).unwrap();
    let sum = graph.reduce(Combine::Sum, products, &[1]).unwrap();
    let (_, rewritten) = testing::run(&ProductSum, &graph, &[sum]);
    let text = rewritten.program.to_string();
    let attrs = "lhs_batch = [0], rhs_batch = [0], lhs_contract = [1, 4], rhs_contract = [1, 2]";
    assert!(rewritten.count == 1 && text.contains("transpose") && text.contains(attrs), "{text}");
}
