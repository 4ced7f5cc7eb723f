//! Tests of what the pass rewrites and of what it leaves unchanged.

use super::*;
use crate::pass::testing;
use burn_tpu_graph::{Dims, TensorType};

/// A graph that scatters `updates: [4, columns]` into zeros `[4, 3]` along dim 1.
struct Scattered {
    graph: Graph,
    scattered: NodeId,
}

impl Scattered {
    fn new(dtype: DType, columns: usize, base: f64, indices: DType) -> Self {
        let mut graph = Graph::new();
        let mut parameter = |index, dtype, dims: &[usize]| {
            graph.add(Op::Parameter { index, ty: TensorType::new(dtype, dims) }, &[]).unwrap()
        };
        let updates = parameter(0, dtype, &[4, columns]);
        let indices = parameter(1, indices, &[4, columns, 1]);
        let zeros = graph.splat(dtype, &[4, 3], base).unwrap();
        let dims = |dims: &[usize]| Dims::from_slice(dims);
        let attrs = ScatterAttrs {
            update_window_dims: Dims::new(),
            inserted_window_dims: dims(&[1]),
            input_batching_dims: dims(&[0]),
            scatter_indices_batching_dims: dims(&[0]),
            scatter_dims_to_operand_dims: dims(&[1]),
            index_vector_dim: 2,
            mode: ScatterMode::Combine(Combine::Sum),
        };
        let scattered = graph.scatter(zeros, indices, updates, attrs).unwrap();
        Self { graph, scattered }
    }

    fn count(&self, outputs: &[NodeId]) -> (usize, String) {
        let (_, rewritten) = testing::run(&ScatterSum, &self.graph, outputs);
        (rewritten.count, rewritten.program.to_string())
    }
}

#[test]
fn the_updates_are_summed() {
    let mut s = Scattered::new(DType::F32, 1, 0.0, DType::I32);
    let negated = s.graph.unary(UnaryOp::Neg, s.scattered).unwrap();
    let sum = s.graph.reduce(Combine::Sum, negated, &[1]).unwrap();
    let (count, text) = s.count(&[sum]);
    assert_eq!(count, 1);
    let tail = "\
%7 = and %4, %6 : i1[4,1]
%8 = constant {value = 0.0} : f32[4,1]
%9 = select %7, %0, %8 : f32[4,1]
%10 = negate %9 : f32[4,1]
%11 = reduce %10 {combine = Sum, dims = [1]} : f32[4]
outputs %11
";
    assert!(text.ends_with(tail), "{text}");
    // The scatter may have other users.
    let (count, text) = s.count(&[sum, s.scattered]);
    assert!(count == 1 && text.contains("scatter"), "{text}");
}

#[test]
fn what_is_not_a_sum_of_one_update_and_zeros_is_kept() {
    let sum = |mut s: Scattered, combine, dims: &[usize]| {
        let sum = s.graph.reduce(combine, s.scattered, dims).unwrap();
        s.count(&[sum]).0
    };
    let scattered = || Scattered::new(DType::F32, 1, 0.0, DType::I32);
    assert_eq!(sum(scattered(), Combine::Sum, &[1]), 1);
    assert_eq!(sum(scattered(), Combine::Sum, &[0]), 0, "another dim");
    assert_eq!(sum(scattered(), Combine::Sum, &[0, 1]), 0, "two dims");
    assert_eq!(sum(scattered(), Combine::Max, &[1]), 0, "no sum");
    assert_eq!(sum(Scattered::new(DType::F32, 2, 0.0, DType::I32), Combine::Sum, &[1]), 0, "two updates a row");
    assert_eq!(sum(Scattered::new(DType::F32, 1, 1.0, DType::I32), Combine::Sum, &[1]), 0, "ones");
    assert_eq!(sum(Scattered::new(DType::I32, 1, 0.0, DType::I32), Combine::Sum, &[1]), 0, "integers");
    let mut s = scattered();
    let exp = s.graph.unary(UnaryOp::Exp, s.scattered).unwrap();
    let sum_of_exp = s.graph.reduce(Combine::Sum, exp, &[1]).unwrap();
    assert_eq!(s.count(&[sum_of_exp]).0, 0, "exp(0) is 1");
}

/// The size of the dim must be a number of the indices' type.
#[test]
fn indices_of_a_type_too_small_for_the_dim_are_kept() {
    assert!(has_number(DType::I8, 127) && !has_number(DType::I8, 128));
    assert!(has_number(DType::U8, 255) && !has_number(DType::U8, 256));
    assert!(has_number(DType::U64, usize::MAX));
}
