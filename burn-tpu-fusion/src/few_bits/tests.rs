//! Products with matrices of few bits have the values that they had, and others are left alone.

use super::*;
use crate::pass::testing::{self, values};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

#[derive(Clone, Copy, Debug)]
struct Case {
    blocks: usize,
    block: usize,
    rows: usize,
    out: usize,
    /// Whether the integers are the low halves of theirs.
    has_halves: bool,
}

fn parameter(graph: &mut Graph, index: u32, dtype: DType, dims: &[usize]) -> NodeId {
    graph.add(Op::Parameter { index, ty: TensorType::new(dtype, dims) }, &[]).unwrap()
}

impl Case {
    fn sum(&self) -> (Graph, NodeId) {
        let (mut graph, Self { blocks, block, rows, out, .. }) = (Graph::new(), *self);
        let x = parameter(&mut graph, 0, DType::F32, &[blocks, rows, block]);
        let integers = if self.has_halves { DType::U8 } else { DType::I8 };
        let mut weights = parameter(&mut graph, 1, integers, &[blocks, block, out]);
        if self.has_halves {
            let mask = graph.scalar(integers, 15i64).unwrap();
            weights = graph.binary(BinaryOp::And, weights, mask).unwrap();
        }
        let weights = graph.convert(weights, DType::F32).unwrap();
        let scales = parameter(&mut graph, 2, DType::F32, &[blocks, out]);
        let scales = graph.reshape(scales, &[blocks, 1, out]).unwrap();
        let attrs = DotAttrs::new([&[0], &[0]], [&[2], &[1]], DType::F32);
        let sums = graph.dot_general(x, weights, attrs).unwrap();
        let scales = graph.broadcast_in_dim(scales, &[blocks, rows, out], &[0, 1, 2]).unwrap();
        let scaled = graph.binary(BinaryOp::Mul, sums, scales).unwrap();
        let sum = graph.reduce(Combine::Sum, scaled, &[0]).unwrap();
        (graph, sum)
    }
}

fn cases() -> impl Strategy<Value = Case> {
    (1..13usize, 1..5usize, 1..4usize, 1..6usize, any::<bool>())
        .prop_map(|(blocks, block, rows, out, has_halves)| Case { blocks, block, rows, out, has_halves })
}

proptest! {
    #![proptest_config(ProptestConfig {
        rng_seed: RngSeed::Fixed(0),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_loop_over_blocks_has_the_value_of_their_sum(case in cases()) {
        let (graph, sum) = case.sum();
        let (before, after) = testing::run(&FewBits, &graph, &[sum]);
        prop_assert_eq!(after.count, usize::from(case.blocks > 1), "{:?}", case);
        prop_assert_eq!(values(&before), values(&after.program), "{:?}", case);
    }
}

#[test]
fn a_trip_has_as_many_blocks_as_divide_and_fit() {
    let cases = [((18, 32 * 576), 3), ((16, 32 * 576), 4), ((16, 32 * 1536), 2), ((17, 32), 1), ((18, 1 << 20), 1)];
    for ((blocks, floats), expected) in cases {
        assert_eq!(blocks_of_trip(blocks, floats), expected, "{blocks} blocks of {floats}");
    }
}

#[test]
fn what_is_read_elsewhere_stays() {
    let case = Case { blocks: 4, block: 3, rows: 2, out: 5, has_halves: true };
    let (graph, sum) = case.sum();
    for id in graph.ids().filter(|&id| matches!(graph.node(id).op, Op::DotGeneral(_) | Op::Binary(BinaryOp::Mul))) {
        assert_eq!(testing::run(&FewBits, &graph, &[sum, id]).1.count, 0);
    }
}

#[test]
fn floats_stay() {
    let mut graph = Graph::new();
    let x = parameter(&mut graph, 0, DType::F32, &[4, 2, 3]);
    let weights = parameter(&mut graph, 1, DType::F32, &[4, 3, 5]);
    let scales = parameter(&mut graph, 2, DType::F32, &[4, 2, 5]);
    let attrs = DotAttrs::new([&[0], &[0]], [&[2], &[1]], DType::F32);
    let sums = graph.dot_general(x, weights, attrs).unwrap();
    let scaled = graph.binary(BinaryOp::Mul, sums, scales).unwrap();
    let sum = graph.reduce(Combine::Sum, scaled, &[0]).unwrap();
    assert_eq!(testing::run(&FewBits, &graph, &[sum]).1.count, 0);
}
