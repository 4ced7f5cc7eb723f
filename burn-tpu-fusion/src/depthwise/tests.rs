//! Random convolutions of one feature a group have the values that they had, and others are left alone.

use super::*;
use crate::pass::testing;
use burn_tpu_graph::op::{ConvDims, Precision};
use burn_tpu_graph::{DType, TensorType};
use burn_tpu_interpreter::{HostTensor, interpret};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use smallvec::SmallVec;

/// A convolution along `sizes.len()` dims.
#[derive(Clone, Debug)]
struct Case {
    dtype: DType,
    batch: usize,
    features: usize,
    sizes: Vec<usize>,
    taps: Vec<usize>,
    strides: Vec<usize>,
    lhs_dilation: Vec<usize>,
    rhs_dilation: Vec<usize>,
    padding: Vec<(isize, isize)>,
    kernel_first: bool,
}

fn roles(batch: usize, feature: usize, rank: usize) -> ConvDims {
    ConvDims { batch, feature, spatial: (2..2 + rank).collect() }
}

impl Case {
    fn attrs(&self) -> ConvAttrs {
        let (dims, rank) = (Dims::from_slice, self.sizes.len());
        ConvAttrs {
            strides: dims(&self.strides),
            padding: SmallVec::from_slice(&self.padding),
            lhs_dilation: dims(&self.lhs_dilation),
            rhs_dilation: dims(&self.rhs_dilation),
            input: roles(0, 1, rank),
            kernel: if self.kernel_first { roles(1, 0, rank) } else { roles(0, 1, rank) },
            output: roles(0, 1, rank),
            feature_groups: self.features,
            batch_groups: 1,
            result: self.dtype.accumulator(),
            precision: Precision::Default,
        }
    }

    fn input(&self) -> Vec<usize> {
        [self.batch, self.features].into_iter().chain(self.sizes.iter().copied()).collect()
    }

    fn kernel(&self) -> Vec<usize> {
        let features = if self.kernel_first { [1, self.features] } else { [self.features, 1] };
        features.into_iter().chain(self.taps.iter().copied()).collect()
    }

    /// Returns the convolution; `None` if the kernel does not fit.
    fn convolution(&self) -> Option<(Graph, NodeId)> {
        let mut graph = Graph::new();
        let x = parameter(&mut graph, 0, self.dtype, &self.input());
        let kernel = parameter(&mut graph, 1, self.dtype, &self.kernel());
        let node = graph.convolution(x, kernel, self.attrs()).ok()?;
        (graph.ty(node).elements() > 0).then_some((graph, node))
    }

    /// Returns the gradient of the kernel: distances of taps and places are exchanged.
    fn kernel_gradient(&self) -> Option<(Graph, NodeId)> {
        let (of, convolution) = self.convolution()?;
        let (mut graph, rank) = (Graph::new(), self.sizes.len());
        let x = parameter(&mut graph, 0, self.dtype, &self.input());
        let gradient = parameter(&mut graph, 1, self.dtype, &of.ty(convolution).dims);
        let attrs = ConvAttrs {
            strides: Dims::from_slice(&self.rhs_dilation),
            rhs_dilation: Dims::from_slice(&self.strides),
            input: roles(1, 0, rank),
            kernel: roles(1, 0, rank),
            output: roles(1, 0, rank),
            feature_groups: 1,
            batch_groups: self.features,
            ..self.attrs()
        };
        let node = graph.convolution(x, gradient, attrs).ok()?;
        let taps = graph.ty(node).dims[2..].iter().product::<usize>();
        (1..=MOST_TAPS).contains(&taps).then_some((graph, node))
    }
}

fn parameter(graph: &mut Graph, index: u32, dtype: DType, dims: &[usize]) -> NodeId {
    graph.add(Op::Parameter { index, ty: TensorType::new(dtype, dims) }, &[]).unwrap()
}

/// Runs a program on small whole numbers, whose sums are exact in any order.
fn values(program: &Program) -> Vec<Vec<u8>> {
    let value = |ty: &TensorType, seed: usize| {
        let number = |i: usize| ((i * 7 + seed * 3) % 11) as f32 - 5.0;
        let f32s: Vec<u8> = (0..ty.elements()).flat_map(|i| number(i).to_le_bytes()).collect();
        let f32s = HostTensor::from_bytes(ty.with_dtype(DType::F32), f32s);
        // A 16-bit float is the upper half of such a number's bits.
        match ty.dtype {
            DType::BF16 => HostTensor::from_bytes(
                ty.clone(),
                f32s.to_bytes().chunks(4).flat_map(|n| [n[2], n[3]]).collect::<Vec<_>>(),
            ),
            _ => f32s,
        }
    };
    let parameters: Vec<HostTensor> = program.parameters().map(|(seed, ty)| value(ty, seed as usize)).collect();
    let results = interpret(program, |index| parameters.get(index as usize).cloned(), &[]).unwrap();
    results.iter().map(HostTensor::to_bytes).collect()
}

fn check((graph, node): (Graph, NodeId)) {
    let (before, rewritten) = testing::run(&Depthwise, &graph, &[node]);
    assert_eq!(rewritten.count, 1, "{before}");
    assert_eq!(values(&before), values(&rewritten.program), "{before}{}", rewritten.program);
}

fn cases() -> impl Strategy<Value = Case> {
    (1usize..4).prop_flat_map(|rank| {
        let all = |range: std::ops::Range<usize>| proptest::collection::vec(range, rank);
        let edges = proptest::collection::vec((-1isize..3, -1isize..3), rank);
        let outer = (prop_oneof![Just(DType::F32), Just(DType::BF16)], 1usize..3, 2usize..4, any::<bool>());
        (outer, all(1..6), all(1..4), all(1..3), all(1..3), all(1..3), edges).prop_map(
            |((dtype, batch, features, kernel_first), sizes, taps, strides, lhs_dilation, rhs_dilation, padding)| {
                Case { dtype, batch, features, sizes, taps, strides, lhs_dilation, rhs_dilation, padding, kernel_first }
            },
        )
    })
}

fn seeded() -> ProptestConfig {
    ProptestConfig { rng_seed: RngSeed::Fixed(0), failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(seeded())]

    #[test]
    fn a_convolution_is_the_sum_of_its_taps(case in cases()) {
        let found = case.convolution();
        prop_assume!(found.is_some());
        found.into_iter().for_each(check);
    }

    #[test]
    fn the_gradient_of_a_kernel_is_a_sum_for_each_tap(case in cases()) {
        let found = case.kernel_gradient();
        prop_assume!(found.is_some());
        found.into_iter().for_each(check);
    }
}

fn plain(features: usize, taps: usize) -> Case {
    Case {
        dtype: DType::F32,
        batch: 2,
        features,
        sizes: vec![9, 9],
        taps: vec![taps, taps],
        strides: vec![1, 1],
        lhs_dilation: vec![1, 1],
        rhs_dilation: vec![1, 1],
        padding: vec![(0, 0), (0, 0)],
        kernel_first: false,
    }
}

fn count((graph, node): (Graph, NodeId)) -> usize {
    testing::run(&Depthwise, &graph, &[node]).1.count
}

#[test]
fn one_feature_large_kernels_and_wide_groups_are_left_alone() {
    assert_eq!(count(plain(3, 8).convolution().unwrap()), 1);
    assert_eq!(count(plain(3, 9).convolution().unwrap()), 0, "81 taps");
    assert_eq!(count(plain(1, 3).convolution().unwrap()), 0, "one feature is no group of many");
    let mut graph = Graph::new();
    let x = parameter(&mut graph, 0, DType::F32, &[2, 4, 9, 9]);
    let kernel = parameter(&mut graph, 1, DType::F32, &[4, 2, 3, 3]);
    let attrs = ConvAttrs { feature_groups: 2, ..plain(4, 3).attrs() };
    let node = graph.convolution(x, kernel, attrs).unwrap();
    assert_eq!(count((graph, node)), 0, "two features a group");
}
