use super::*;
use crate::Builder;
use crate::op::ConvDims;
use crate::op::{BinaryOp, UnaryOp};
use smallvec::smallvec;

fn parameter(graph: &mut Graph, index: u32, dtype: DType, dims: &[usize]) -> NodeId {
    graph.add(Op::Parameter { index, ty: TensorType::new(dtype, dims) }, &[]).unwrap()
}

fn counted(graph: &Graph, output: NodeId) -> Cost {
    cost(&Program::extract(graph, &[output]).unwrap())
}

#[test]
fn a_dot_costs_two_operations_per_multiply_add_and_lists_its_matrices() {
    let mut graph = Graph::new();
    graph.set_label("float_matmul");
    let lhs = parameter(&mut graph, 0, DType::BF16, &[6, 3, 5]);
    let rhs = parameter(&mut graph, 1, DType::BF16, &[6, 5, 7]);
    let attrs = DotAttrs::new([&[0], &[0]], [&[2], &[1]], DType::F32);
    let dot = graph.dot_general(lhs, rhs, attrs).unwrap();
    let program = Program::extract(&graph, &[dot]).unwrap();
    assert_eq!(cost(&program), Cost { dot_flops: 2 * 6 * 3 * 5 * 7, ..Cost::default() });
    let expected =
        Contraction { label: "float_matmul", dtype: DType::BF16, batch: 6, m: 3, n: 7, k: 5, flops: 2 * 6 * 3 * 5 * 7 };
    assert_eq!(contractions(&program), [expected]);
}

/// Input `[2, 4, 8, 8]`, kernel `[6, 4 / groups, 3, 3]`.
fn convolution(padding: isize, stride: usize, lhs_dilation: usize, groups: usize) -> (Cost, Contraction) {
    let mut graph = Graph::new();
    let input = parameter(&mut graph, 0, DType::F32, &[2, 4, 8, 8]);
    let kernel = parameter(&mut graph, 1, DType::F32, &[6, 4 / groups, 3, 3]);
    let roles = || ConvDims { batch: 0, feature: 1, spatial: smallvec![2, 3] };
    let attrs = ConvAttrs {
        strides: smallvec![stride, stride],
        padding: smallvec![(padding, padding); 2],
        lhs_dilation: smallvec![lhs_dilation; 2],
        rhs_dilation: smallvec![1, 1],
        input: roles(),
        kernel: roles(),
        output: roles(),
        feature_groups: groups,
        batch_groups: 1,
        result: DType::F32,
        precision: crate::op::Precision::Default,
    };
    let output = graph.convolution(input, kernel, attrs).unwrap();
    let program = Program::extract(&graph, &[output]).unwrap();
    (cost(&program), contractions(&program)[0])
}

#[test]
fn a_convolution_counts_only_taps_that_read_an_element() {
    // Without padding every position counts: 6 x 6 outputs of 3 x 3.
    let (whole, shape) = convolution(0, 1, 1, 1);
    assert_eq!(whole.convolution_flops, 2 * (2 * 6 * 4) * (6 * 3) * (6 * 3));
    assert_eq!((shape.m, shape.k, shape.n), (2 * 6 * 6, 4 * 9, 6));
    // With padding 1, per dim: 8 outputs of 3 taps, where the first and the last output each have one tap in the padding.
    assert_eq!(convolution(1, 1, 1, 1).0.convolution_flops, 2 * (2 * 6 * 4) * 22 * 22);
    // Stride 2 and padding 1, per dim: 4 outputs, where the first has one tap in the padding.
    assert_eq!(convolution(1, 2, 1, 1).0.convolution_flops, 2 * (2 * 6 * 4) * 11 * 11);
    // Dilation 2 makes 15 positions, every other one a hole; the 13 outputs read 2, 1, 2, … elements.
    assert_eq!(convolution(0, 1, 2, 1).0.convolution_flops, 2 * (2 * 6 * 4) * (7 * 2 + 6) * (7 * 2 + 6));
    assert_eq!(convolution(0, 1, 1, 2).0.convolution_flops, whole.convolution_flops / 2);
}

#[test]
fn elementwise_arithmetic_counts_elements_and_functions_count_separately() {
    let mut graph = Graph::new();
    let x = parameter(&mut graph, 0, DType::F32, &[3, 5]);
    let sum = graph.binary(BinaryOp::Add, x, x).unwrap();
    assert_eq!(counted(&graph, sum), Cost { elementwise_flops: 15, ..Cost::default() });
    let exp = graph.unary(UnaryOp::Exp, sum).unwrap();
    assert_eq!(counted(&graph, exp), Cost { elementwise_flops: 15, transcendentals: 15, ..Cost::default() });
    assert_eq!(counted(&graph, exp).flops(), 15);
}

#[test]
fn integers_and_movement_are_not_floating_point_operations() {
    let mut graph = Graph::new();
    let x = parameter(&mut graph, 0, DType::I32, &[4, 4]);
    let sum = graph.binary(BinaryOp::Add, x, x).unwrap();
    let moved = graph.transpose(sum, &[1, 0]).unwrap();
    let wide = graph.convert(moved, DType::F32).unwrap();
    assert_eq!(counted(&graph, wide), Cost::default());
}

#[test]
fn a_reduction_of_n_elements_combines_n_minus_one_times() {
    let mut graph = Graph::new();
    let x = parameter(&mut graph, 0, DType::F32, &[4, 100]);
    let sum = graph.reduce(Combine::Sum, x, &[1]).unwrap();
    assert_eq!(counted(&graph, sum), Cost { reduction_flops: 4 * 99, ..Cost::default() });
}

#[test]
fn a_body_counts_once_per_trip_and_its_dots_are_listed_once() {
    let mut graph = Graph::new();
    let x = parameter(&mut graph, 0, DType::F32, &[4, 4]);
    let attrs = DotAttrs::new([&[], &[]], [&[1], &[0]], DType::F32);
    let looped = graph.for_loop(3, [x], |g, _, [x]| {
        let [x] = g.for_loop(5, [x], |g, _, [x]| Ok([g.unary(UnaryOp::Exp, x)?]))?;
        Ok([g.dot_general(x, x, attrs)?])
    });
    let program = Program::extract(&graph, &looped.unwrap()).unwrap();
    assert_eq!(cost(&program), Cost { dot_flops: 3 * 128, transcendentals: 15 * 16, ..Cost::default() });
    let dots = contractions(&program);
    assert_eq!(dots.iter().map(|dot| (dot.k, dot.flops)).collect::<Vec<_>>(), [(4, 3 * 128)]);
}

/// No op of the table overflows or divides by zero when its cost is computed.
#[test]
fn the_whole_corpus_has_a_cost() {
    let cases = crate::corpus::cases().unwrap();
    let total: u64 = cases.iter().map(|case| cost(&case.program).flops()).sum();
    assert!(total > 0);
    let dots = cases.iter().filter(|case| case.name.starts_with("dot/"));
    dots.for_each(|case| assert!(!contractions(&case.program).is_empty(), "{}", case.name));
}
