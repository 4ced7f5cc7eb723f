//! Tests of what the pass rewrites and of what it leaves unchanged.

use super::*;
use crate::pass::testing;
use burn_tpu_graph::op::{BinaryOp, Combine, Direction, DotAttrs, UnaryOp};
use burn_tpu_graph::{Number, TensorType};
use burn_tpu_interpreter::{HostTensor, interpret};

/// A graph with the parameters `[2, 3]` of an element type that a test asks for.
#[derive(Default)]
struct Formula {
    graph: Graph,
    parameters: u32,
}

impl Formula {
    fn parameter(&mut self, dtype: DType) -> NodeId {
        self.parameters += 1;
        let ty = TensorType::new(dtype, [2, 3].as_slice());
        self.graph.add(Op::Parameter { index: self.parameters - 1, ty }, &[]).unwrap()
    }

    fn binary(&mut self, op: BinaryOp, x: NodeId, y: NodeId) -> NodeId {
        self.graph.binary(op, x, y).unwrap()
    }

    fn unary(&mut self, op: UnaryOp, x: NodeId) -> NodeId {
        self.graph.unary(op, x).unwrap()
    }

    fn convert(&mut self, x: NodeId, dtype: DType) -> NodeId {
        self.graph.convert(x, dtype).unwrap()
    }

    /// Returns the sum of each row, which is accumulated in f32 and rounded to the type of `x`.
    fn row_sums(&mut self, x: NodeId) -> NodeId {
        let dtype = self.graph.dtype(x);
        let wide = self.convert(x, DType::F32);
        let sums = self.graph.reduce(Combine::Sum, wide, &[1]).unwrap();
        self.convert(sums, dtype)
    }

    fn run(&self, outputs: &[NodeId]) -> (Program, Rewritten) {
        testing::run(&RoundOnce, &self.graph, outputs)
    }

    #[track_caller]
    fn assert_rounds_once(&self, outputs: &[NodeId], removed: usize) {
        let (_, rewritten) = self.run(outputs);
        let text = rewritten.program.to_string();
        let is_narrow = |node: &&Node| node.ty.dtype.is_half() && !matches!(node.op, Op::Parameter { .. });
        let narrow: Vec<_> = rewritten.program.graph().nodes().iter().filter(is_narrow).collect();
        assert_eq!(rewritten.count, removed, "{text}");
        assert_eq!(narrow.len(), outputs.len(), "{text}");
        assert!(narrow.iter().all(|node| matches!(node.op, Op::Convert { .. })), "{text}");
    }

    #[track_caller]
    fn assert_unchanged(&self, outputs: &[NodeId]) {
        let (program, rewritten) = self.run(outputs);
        assert_eq!((rewritten.program, rewritten.count), (program, 0));
    }
}

#[test]
fn a_chain_is_rounded_at_its_end() {
    for dtype in [DType::BF16, DType::F16] {
        let mut f = Formula::default();
        let (x, y) = (f.parameter(dtype), f.parameter(dtype));
        let difference = f.binary(BinaryOp::Sub, x, y);
        let square = f.binary(BinaryOp::Mul, difference, difference);
        let output = f.unary(UnaryOp::Exp, square);
        f.assert_rounds_once(&[output], 2);
    }
}

#[test]
fn the_text_of_a_rewritten_chain() {
    let mut f = Formula::default();
    let (x, y) = (f.parameter(DType::BF16), f.parameter(DType::BF16));
    let difference = f.binary(BinaryOp::Sub, x, y);
    let output = f.binary(BinaryOp::Mul, y, difference);
    let text = "\
%0 = parameter {index = 0} : bf16[2,3]
%1 = parameter {index = 1} : bf16[2,3]
%2 = convert %0 : f32[2,3]
%3 = convert %1 : f32[2,3]
%4 = subtract %2, %3 : f32[2,3]
%5 = convert %1 : f32[2,3]
%6 = multiply %5, %4 : f32[2,3]
%7 = convert %6 : bf16[2,3]
outputs %7
";
    assert_eq!(f.run(&[output]).1.program.to_string(), text);
}

#[test]
fn a_formula_in_f32_reads_the_unrounded_value() {
    let mut f = Formula::default();
    let x = f.parameter(DType::BF16);
    let square = f.binary(BinaryOp::Mul, x, x);
    let wide = f.convert(square, DType::F32);
    let tanh = f.unary(UnaryOp::Tanh, wide);
    let narrow = f.convert(tanh, DType::BF16);
    let output = f.binary(BinaryOp::Add, narrow, x);
    f.assert_rounds_once(&[output], 2);
}

#[test]
fn a_sum_and_its_operand_stay_wide_through_a_broadcast() {
    let mut f = Formula::default();
    let x = f.parameter(DType::BF16);
    let square = f.binary(BinaryOp::Mul, x, x);
    let sums = f.row_sums(square);
    let sums = f.graph.reshape(sums, &[2, 1]).unwrap();
    let sums = f.graph.broadcast_in_dim(sums, &[2, 3], &[0, 1]).unwrap();
    let output = f.binary(BinaryOp::Div, x, sums);
    f.assert_rounds_once(&[output], 2);
}

#[test]
fn a_choice_keeps_its_condition() {
    let mut f = Formula::default();
    let (x, y) = (f.parameter(DType::BF16), f.parameter(DType::BF16));
    let less = f.graph.compare(Direction::Lt, x, y).unwrap();
    let sum = f.binary(BinaryOp::Add, x, y);
    let chosen = f.graph.select(less, sum, x).unwrap();
    let output = f.unary(UnaryOp::Neg, chosen);
    f.assert_rounds_once(&[output], 2);
}

#[test]
fn a_single_op_is_unchanged() {
    let mut f = Formula::default();
    let (x, y) = (f.parameter(DType::BF16), f.parameter(DType::BF16));
    let sum = f.binary(BinaryOp::Add, x, y);
    f.assert_unchanged(&[sum]);
}

#[test]
fn what_an_output_or_a_second_op_sees_is_rounded() {
    let mut f = Formula::default();
    let (x, y) = (f.parameter(DType::BF16), f.parameter(DType::BF16));
    let sum = f.binary(BinaryOp::Add, x, y);
    let (one, other) = (f.unary(UnaryOp::Exp, sum), f.unary(UnaryOp::Tanh, sum));
    f.assert_unchanged(&[sum, one]);
    f.assert_unchanged(&[one, other]);
}

#[test]
fn what_a_comparison_or_a_movement_reads_is_rounded() {
    let mut f = Formula::default();
    let (x, y) = (f.parameter(DType::BF16), f.parameter(DType::BF16));
    let sum = f.binary(BinaryOp::Add, x, y);
    let less = f.graph.compare(Direction::Lt, sum, y).unwrap();
    f.assert_unchanged(&[less]);
    let turned = f.graph.transpose(sum, &[1, 0]).unwrap();
    let output = f.unary(UnaryOp::Neg, turned);
    f.assert_unchanged(&[output]);
    let moved = f.graph.reshape(sum, &[6]).unwrap();
    f.assert_unchanged(&[moved]);
}

#[test]
fn a_wide_value_with_other_readers_is_read_rounded() {
    let mut f = Formula::default();
    let (x, y) = (f.parameter(DType::F32), f.parameter(DType::BF16));
    let exp = f.unary(UnaryOp::Exp, x);
    let narrow = f.convert(exp, DType::BF16);
    let output = f.binary(BinaryOp::Add, narrow, y);
    f.assert_unchanged(&[output, exp]);
}

#[test]
fn sums_of_products_stay_rounded() {
    let mut f = Formula::default();
    let (x, y) = (f.parameter(DType::BF16), f.parameter(DType::BF16));
    let attrs = DotAttrs::new([&[], &[]], [&[1], &[1]], DType::F32);
    let sums = f.graph.dot_general(x, y, attrs).unwrap();
    let narrow = f.convert(sums, DType::BF16);
    let output = f.unary(UnaryOp::Neg, narrow);
    f.assert_unchanged(&[output]);
}

/// Returns the rounded products of `[1, rows, 1]` and `[1, 1, 2]`.
fn products(f: &mut Formula, rows: usize) -> NodeId {
    let [x, y] = [[1, rows, 1], [1, 1, 2]].map(|dims| {
        f.parameters += 1;
        f.graph.add(Op::Parameter { index: f.parameters - 1, ty: TensorType::new(DType::BF16, dims) }, &[]).unwrap()
    });
    let attrs = DotAttrs::new([&[0], &[0]], [&[2], &[1]], DType::F32);
    let products = f.graph.dot_general(x, y, attrs).unwrap();
    f.convert(products, DType::BF16)
}

#[test]
fn a_batch_of_products_stays_wide_for_one_reader() {
    let mut f = Formula::default();
    let scores = products(&mut f, 3);
    let tanh = f.unary(UnaryOp::Tanh, scores);
    f.assert_rounds_once(&[tanh], 1);
    let negative = f.unary(UnaryOp::Neg, scores);
    f.assert_unchanged(&[tanh, negative]);
    f.assert_unchanged(&[scores, tanh]);
}

/// Numbers of bf16: the ends of its range, zeros of both signs, infinities, NaN, and others.
const SPECIAL: [f64; 16] = [
    0.0,
    -0.0,
    1.0,
    -3.0,
    0.3,
    8.0,
    2e-38,
    -2e-38,
    1e-40,
    2e-20,
    -5e19,
    1e38,
    -3e38,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::NAN,
];

#[test]
fn products_divided_by_a_number_are_the_quotients() {
    let mut f = Formula::default();
    let scores = products(&mut f, SPECIAL.len());
    f.parameters += 1;
    let ty = TensorType::new(DType::BF16, [].as_slice());
    let number = f.graph.add(Op::Parameter { index: 2, ty }, &[]).unwrap();
    let number = f.graph.broadcast_like(number, scores).unwrap();
    let quotients = f.binary(BinaryOp::Div, scores, number);
    let wide = f.convert(quotients, DType::F32);
    let (_, rewritten) = f.run(&[wide]);
    let divisions = rewritten.program.graph().nodes().iter().filter(|node| node.op == BinaryOp::Div.into());
    assert_eq!(divisions.map(|node| node.ty.rank()).collect::<Vec<_>>(), [0], "{}", rewritten.program);
    for divisor in SPECIAL {
        let inputs: [&[f64]; 3] = [&SPECIAL, &[1.0, 1.0], &[divisor]];
        let value = |index: u32, ty: &TensorType| {
            let bits = inputs[index as usize].iter().map(|&number| Number::Float(number).bits(DType::BF16));
            HostTensor::from_bytes(ty.clone(), bits.flat_map(|bits| (bits as u16).to_le_bytes()).collect::<Vec<u8>>())
        };
        let inputs: Vec<HostTensor> = rewritten.program.parameters().map(|(index, ty)| value(index, ty)).collect();
        let results = interpret(&rewritten.program, |index| inputs.get(index as usize).cloned(), &[]).unwrap();
        // Subnormal numbers count as zeros, as with XLA.
        let normal = |x: f32| if x.is_subnormal() { x * 0.0 } else { x };
        let rounded =
            |number: f64| normal(Number::of_bits(Number::Float(number).bits(DType::BF16), DType::BF16).to_f64() as f32);
        for (&x, bytes) in SPECIAL.iter().zip(results[0].to_bytes().chunks_exact(8)) {
            let found = f32::from_le_bytes(bytes[..4].try_into().unwrap());
            // A product is a sum that begins with zero.
            let expected = normal((0.0 + rounded(x)) / rounded(divisor));
            let is_near = (found - expected).abs() <= 2e-7 * expected.abs();
            let is_same = found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan();
            assert!(is_same || is_near && expected != 0.0, "{x} / {divisor}: {found} instead of {expected}");
        }
    }
}

/// `e / sum(e)` of bf16, and what an exponential is rounded for.
#[test]
fn exponentials_stay_wide_for_their_sum_and_their_quotient() {
    let mut f = Formula::default();
    let x = f.parameter(DType::BF16);
    let exponentials = f.unary(UnaryOp::Exp, x);
    let sums = f.row_sums(exponentials);
    let sums = f.graph.broadcast_in_dim(sums, &[2, 3], &[0]).unwrap();
    let quotients = f.binary(BinaryOp::Div, exponentials, sums);
    f.assert_rounds_once(&[quotients], 2);
    let other = f.unary(UnaryOp::Neg, exponentials);
    for outputs in [[quotients, exponentials], [quotients, other]] {
        assert_eq!(f.run(&outputs).1.count, 1, "the sum alone");
    }
}

/// Softmax and what its gradient subtracts: the sum has three readers.
#[test]
fn a_sum_stays_wide_for_all_of_its_element_wise_readers() {
    let mut f = Formula::default();
    let x = f.parameter(DType::BF16);
    let sums = f.row_sums(x);
    let reciprocal = f.unary(UnaryOp::Rsqrt, sums);
    let square = f.binary(BinaryOp::Mul, reciprocal, reciprocal);
    let broadcast = |f: &mut Formula, x| f.graph.broadcast_in_dim(x, &[2, 3], &[0]).unwrap();
    let (wide_sums, reciprocal, square) =
        (broadcast(&mut f, sums), broadcast(&mut f, reciprocal), broadcast(&mut f, square));
    let quotient = f.binary(BinaryOp::Div, x, wide_sums);
    let product = f.binary(BinaryOp::Mul, x, reciprocal);
    let other = f.binary(BinaryOp::Mul, x, square);
    let repeated = f.binary(BinaryOp::Add, x, wide_sums);
    f.assert_rounds_once(&[quotient, product, other, repeated], 3);
}

#[test]
fn a_sum_that_an_output_or_a_comparison_reads_is_rounded_for_all() {
    let mut f = Formula::default();
    let x = f.parameter(DType::BF16);
    let sums = f.row_sums(x);
    let (negative, root) = (f.unary(UnaryOp::Neg, sums), f.unary(UnaryOp::Sqrt, sums));
    f.assert_unchanged(&[negative, root, sums]);
    let less = f.graph.compare(Direction::Lt, sums, sums).unwrap();
    f.assert_unchanged(&[negative, root, less]);
}

#[test]
fn what_is_as_large_as_its_operand_is_rounded_for_several_readers() {
    let mut f = Formula::default();
    let x = f.parameter(DType::BF16);
    let sums = f.row_sums(x);
    let sums = f.graph.broadcast_in_dim(sums, &[2, 3], &[0]).unwrap();
    let centred = f.binary(BinaryOp::Sub, x, sums);
    let (one, other) = (f.unary(UnaryOp::Exp, centred), f.unary(UnaryOp::Tanh, centred));
    let (_, rewritten) = f.run(&[one, other]);
    assert_eq!(rewritten.count, 1, "the sum alone: {}", rewritten.program);
}

#[test]
fn other_types_are_unchanged() {
    for dtype in [DType::F32, DType::F64, DType::I32] {
        let mut f = Formula::default();
        let (x, y) = (f.parameter(dtype), f.parameter(dtype));
        let sum = f.binary(BinaryOp::Add, x, y);
        let output = f.binary(BinaryOp::Mul, sum, y);
        f.assert_unchanged(&[output]);
    }
}
