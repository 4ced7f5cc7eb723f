//! Tests of what the pass rewrites and of what it leaves unchanged.

use super::*;
use crate::pass::testing;
use burn_tpu_graph::TensorType;
use burn_tpu_graph::op::{DotAttrs, UnaryOp};

/// A layer under construction: input `[4, 3]`, weight `[3, 2]`, bias `[2]` of one element type.
struct Layer {
    graph: Graph,
    bias: NodeId,
    /// `x @ weight` in the accumulator's type.
    sums: NodeId,
    dtype: DType,
}

impl Layer {
    fn new(dtype: DType) -> Self {
        let mut graph = Graph::new();
        let mut parameter =
            |index, dims: &[usize]| graph.add(Op::Parameter { index, ty: TensorType::new(dtype, dims) }, &[]).unwrap();
        let (x, weight, bias) = (parameter(0, &[4, 3]), parameter(1, &[3, 2]), parameter(2, &[2]));
        let attrs = DotAttrs::new([&[], &[]], [&[1], &[0]], dtype.accumulator());
        let sums = graph.dot_general(x, weight, attrs).unwrap();
        Self { graph, bias, sums, dtype }
    }

    fn rounded(&mut self) -> NodeId {
        self.graph.convert(self.sums, self.dtype).unwrap()
    }

    fn biased(&mut self) -> NodeId {
        let rounded = self.rounded();
        self.graph.binary(BinaryOp::Add, rounded, self.bias).unwrap()
    }

    fn relu(&mut self, x: NodeId) -> NodeId {
        self.graph.binary_const(BinaryOp::Max, x, 0.0).unwrap()
    }

    /// An activation computed in f32.
    fn tanh(&mut self, x: NodeId) -> NodeId {
        let wide = self.graph.convert(x, self.dtype.accumulator()).unwrap();
        let tanh = self.graph.unary(UnaryOp::Tanh, wide).unwrap();
        self.graph.convert(tanh, self.dtype).unwrap()
    }

    fn run(&self, outputs: &[NodeId]) -> (Program, Rewritten) {
        testing::run(&LinearActivation, &self.graph, outputs)
    }

    #[track_caller]
    fn assert_unchanged(&self, outputs: &[NodeId]) {
        let (program, rewritten) = self.run(outputs);
        assert_eq!((rewritten.program, rewritten.count), (program, 0));
    }
}

const HEAD: &str = "\
%0 = parameter {index = 0} : bf16[4,3]
%1 = parameter {index = 1} : bf16[3,2]
%2 = parameter {index = 2} : bf16[2]
%3 = dot_general %0, %1 {lhs_batch = [], rhs_batch = [], lhs_contract = [1], rhs_contract = [0]} : f32[4,2]
%4 = convert %2 : f32[2]
%5 = broadcast_in_dim %4 {mapping = [1]} : f32[4,2]
%6 = add %3, %5 : f32[4,2]
";

#[test]
fn bias_and_relu_stay_in_f32() {
    let mut layer = Layer::new(DType::BF16);
    let biased = layer.biased();
    let output = layer.relu(biased);
    let (_, rewritten) = layer.run(&[output]);
    let tail = "\
%7 = constant {value = 0.0} : f32[4,2]
%8 = maximum %6, %7 : f32[4,2]
%9 = convert %8 : bf16[4,2]
outputs %9
";
    assert_eq!(rewritten.program.to_string(), format!("{HEAD}{tail}"));
    assert_eq!(rewritten.count, 2);
}

#[test]
fn an_activation_in_f32_reads_the_unrounded_value() {
    let mut layer = Layer::new(DType::BF16);
    let biased = layer.biased();
    let output = layer.tanh(biased);
    let (_, rewritten) = layer.run(&[output]);
    let tail = "\
%7 = tanh %6 : f32[4,2]
%8 = convert %7 : bf16[4,2]
outputs %8
";
    assert_eq!(rewritten.program.to_string(), format!("{HEAD}{tail}"));
}

#[test]
fn a_bias_without_activation_is_added_in_f32_as_either_operand() {
    for swapped in [false, true] {
        let mut layer = Layer::new(DType::F16);
        let rounded = layer.rounded();
        let bias = layer.graph.broadcast_to(layer.bias, &[4, 2]).unwrap();
        let operands = if swapped { [bias, rounded] } else { [rounded, bias] };
        let output = layer.graph.add(Op::Binary(BinaryOp::Add), &operands).unwrap();
        let (_, rewritten) = layer.run(&[output]);
        let text = rewritten.program.to_string();
        assert!(text.ends_with("%6 = add %3, %5 : f32[4,2]\n%7 = convert %6 : f16[4,2]\noutputs %7\n"), "{text}");
    }
}

#[test]
fn a_layer_without_bias_skips_the_rounding_before_its_activation() {
    let mut layer = Layer::new(DType::BF16);
    let rounded = layer.rounded();
    let output = layer.tanh(rounded);
    let (_, rewritten) = layer.run(&[output]);
    assert!(rewritten.program.to_string().contains("%3 = tanh %2 : f32[4,2]"), "{}", rewritten.program);
}

#[test]
fn f32_programs_are_unchanged() {
    for dtype in [DType::F32, DType::F64] {
        let mut layer = Layer::new(dtype);
        let biased = layer.biased();
        let outputs = [layer.relu(biased), layer.tanh(biased)];
        layer.assert_unchanged(&outputs);
    }
}

#[test]
fn a_rounded_value_with_another_use_is_kept() {
    let mut layer = Layer::new(DType::BF16);
    let rounded = layer.rounded();
    let biased = layer.graph.binary(BinaryOp::Add, rounded, layer.bias).unwrap();
    layer.assert_unchanged(&[biased, rounded]);
    let mut layer = Layer::new(DType::BF16);
    let biased = layer.biased();
    let output = layer.tanh(biased);
    let (_, rewritten) = layer.run(&[output, biased]);
    // The bias is added in f32; the activation reads the rounded value that the other user reads.
    assert_eq!(rewritten.count, 1);
    assert!(rewritten.program.to_string().contains("convert %7 : f32[4,2]"), "{}", rewritten.program);
}

#[test]
fn other_operands_than_a_broadcast_bias_or_zero_are_kept() {
    let mut layer = Layer::new(DType::BF16);
    let rounded = layer.rounded();
    let residual = layer.graph.add(Op::Parameter { index: 3, ty: TensorType::new(DType::BF16, [4, 2]) }, &[]).unwrap();
    let output = layer.graph.binary(BinaryOp::Add, rounded, residual).unwrap();
    layer.assert_unchanged(&[output]);
    let capped = layer.graph.binary_const(BinaryOp::Max, rounded, 1.0).unwrap();
    layer.assert_unchanged(&[capped]);
    let scaled = layer.graph.binary(BinaryOp::Mul, rounded, layer.bias).unwrap();
    layer.assert_unchanged(&[scaled]);
}

#[test]
fn a_broadcast_bias_with_two_users_is_kept() {
    let mut layer = Layer::new(DType::BF16);
    let rounded = layer.rounded();
    let bias = layer.graph.broadcast_to(layer.bias, &[4, 2]).unwrap();
    let output = layer.graph.binary(BinaryOp::Add, rounded, bias).unwrap();
    layer.assert_unchanged(&[output, bias]);
}

#[test]
fn sums_may_have_other_uses_in_f32() {
    let mut layer = Layer::new(DType::BF16);
    let biased = layer.biased();
    let (_, rewritten) = layer.run(&[biased, layer.sums]);
    assert!(rewritten.program.to_string().ends_with("outputs %7, %3\n"), "{}", rewritten.program);
}
