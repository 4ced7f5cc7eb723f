//! Tests of what the pass moves and of what it leaves unchanged.

use super::*;
use crate::pass::testing;
use burn_tpu_graph::op::{BinaryOp, Combine, UnaryOp};
use burn_tpu_graph::{DType, Graph};

/// A graph with `x: [4, 3]`, `rows: [4, 1]` and `indices: i32[4, 1, 1]`.
struct Rows {
    graph: Graph,
    x: NodeId,
    rows: NodeId,
    indices: NodeId,
}

impl Rows {
    fn new(dtype: DType) -> Self {
        let mut graph = Graph::new();
        let mut parameter = |index, dtype, dims: &[usize]| {
            graph.add(Op::Parameter { index, ty: TensorType::new(dtype, dims) }, &[]).unwrap()
        };
        let (x, rows) = (parameter(0, dtype, &[4, 3]), parameter(1, dtype, &[4, 1]));
        let indices = parameter(2, DType::I32, &[4, 1, 1]);
        Self { graph, x, rows, indices }
    }

    /// Takes one element of each row, as Burn's `gather` along dim 1 does.
    fn gather(&mut self, x: NodeId) -> NodeId {
        let dims = |dims: &[usize]| Dims::from_slice(dims);
        let attrs = GatherAttrs {
            offset_dims: Dims::new(),
            collapsed_slice_dims: dims(&[1]),
            operand_batching_dims: dims(&[0]),
            start_indices_batching_dims: dims(&[0]),
            start_index_map: dims(&[1]),
            index_vector_dim: 2,
            slice_sizes: dims(&[1, 1]),
        };
        self.graph.gather(x, self.indices, attrs).unwrap()
    }

    fn run(&self, outputs: &[NodeId]) -> (Program, Rewritten) {
        testing::run(&GatherFirst, &self.graph, outputs)
    }

    #[track_caller]
    fn assert_unchanged(&self, outputs: &[NodeId]) {
        let (program, rewritten) = self.run(outputs);
        assert_eq!((rewritten.program, rewritten.count), (program, 0));
    }
}

#[test]
fn one_element_of_each_row_is_computed() {
    let mut rows = Rows::new(DType::F32);
    let (x, sums) = (rows.x, rows.rows);
    let shifted = rows.graph.binary(BinaryOp::Sub, x, sums).unwrap();
    let scaled = rows.graph.binary_const(BinaryOp::Mul, shifted, 2.0).unwrap();
    let exp = rows.graph.unary(UnaryOp::Exp, scaled).unwrap();
    let gathered = rows.gather(exp);
    let (_, rewritten) = rows.run(&[gathered]);
    let text = rewritten.program.to_string();
    let tail = "\
%4 = reshape %1 : f32[4]
%5 = broadcast_in_dim %4 {mapping = [0]} : f32[4,1]
%6 = subtract %3, %5 : f32[4,1]
%7 = constant {value = 2.0} : f32[4,1]
%8 = multiply %6, %7 : f32[4,1]
%9 = exponential %8 : f32[4,1]
outputs %9
";
    assert!(text.ends_with(tail) && text.contains("%3 = gather %0, %2"), "{text}");
    assert_eq!(rewritten.count, 1);
}

/// Cross-entropy: the shifted logits are read by the sum of exponentials too, and the logits by their maximum.
#[test]
fn a_value_that_others_read_is_passed_if_its_operand_is_read_by_several() {
    let mut rows = Rows::new(DType::F32);
    let (x, sums) = (rows.x, rows.rows);
    let largest = rows.graph.accumulate_keepdim(Combine::Max, x, 1).unwrap();
    let shifted = rows.graph.binary(BinaryOp::Sub, x, largest).unwrap();
    let exp = rows.graph.unary(UnaryOp::Exp, shifted).unwrap();
    let log_softmax = rows.graph.binary(BinaryOp::Sub, shifted, sums).unwrap();
    let gathered = rows.gather(log_softmax);
    let (_, rewritten) = rows.run(&[gathered, exp]);
    let graph = rewritten.program.graph();
    let gather = graph.nodes().iter().find(|node| matches!(node.op, Op::Gather(_))).unwrap();
    assert!(matches!(graph.node(gather.operands[0]).op, Op::Parameter { index: 0, .. }), "{}", rewritten.program);

    let mut rows = Rows::new(DType::F32);
    let tanh = rows.graph.unary(UnaryOp::Tanh, rows.x).unwrap();
    let gathered = rows.gather(tanh);
    // `tanh` is in memory, and its operand need not be.
    rows.assert_unchanged(&[gathered, tanh]);
}

#[test]
fn the_narrower_value_is_gathered() {
    let mut rows = Rows::new(DType::BF16);
    let wide = rows.graph.convert(rows.x, DType::F32).unwrap();
    let gathered = rows.gather(wide);
    let (_, rewritten) = rows.run(&[gathered, wide]);
    assert!(rewritten.program.to_string().contains("gather %0, "), "{}", rewritten.program);

    let mut rows = Rows::new(DType::BF16);
    let flat = rows.graph.reshape(rows.x, &[12]).unwrap();
    let wide = rows.graph.convert(flat, DType::F32).unwrap();
    let square = rows.graph.reshape(wide, &[4, 3]).unwrap();
    let gathered = rows.gather(square);
    let text = rows.run(&[gathered, wide]).1.program.to_string();
    assert!(text.contains("%5 = gather %4, "), "{text}");

    let mut rows = Rows::new(DType::F32);
    let narrow = rows.graph.convert(rows.x, DType::BF16).unwrap();
    let gathered = rows.gather(narrow);
    rows.assert_unchanged(&[gathered]);
}

#[test]
fn a_value_that_differs_along_the_gathered_dim_stops_the_gather() {
    let mut rows = Rows::new(DType::F32);
    let columns = rows.graph.add(Op::Parameter { index: 3, ty: TensorType::new(DType::F32, [3]) }, &[]).unwrap();
    let columns = rows.graph.broadcast_in_dim(columns, &[4, 3], &[1]).unwrap();
    let sum = rows.graph.binary(BinaryOp::Add, rows.x, columns).unwrap();
    let gathered = rows.gather(sum);
    rows.assert_unchanged(&[gathered]);
    let mut rows = Rows::new(DType::F32);
    let square = rows.graph.binary(BinaryOp::Mul, rows.x, rows.x).unwrap();
    let gathered = rows.gather(square);
    assert_eq!(rows.run(&[gathered]).1.count, 1, "both operands are the gathered one");
}

/// An embedding takes rows: each element of the result is an element of the table, and constants have no rows.
#[test]
fn rows_of_a_table_are_taken_before_they_are_scaled() {
    let mut rows = Rows::new(DType::F32);
    let indices = rows.graph.add(Op::Parameter { index: 3, ty: TensorType::new(DType::I32, [2, 1]) }, &[]).unwrap();
    let scaled = rows.graph.binary_const(BinaryOp::Mul, rows.x, 2.0).unwrap();
    let attrs = GatherAttrs {
        offset_dims: Dims::from_slice(&[1]),
        collapsed_slice_dims: Dims::from_slice(&[0]),
        operand_batching_dims: Dims::new(),
        start_indices_batching_dims: Dims::new(),
        start_index_map: Dims::from_slice(&[0]),
        index_vector_dim: 1,
        slice_sizes: Dims::from_slice(&[1, 3]),
    };
    let taken = rows.graph.gather(scaled, indices, attrs.clone()).unwrap();
    let (_, rewritten) = rows.run(&[taken]);
    assert!(rewritten.program.to_string().contains("= constant {value = 2.0} : f32[2,3]"), "{}", rewritten.program);

    // A broadcast along the columns differs from row to row.
    let scaled = rows.graph.binary(BinaryOp::Mul, rows.x, rows.rows).unwrap();
    let taken = rows.graph.gather(scaled, indices, attrs).unwrap();
    rows.assert_unchanged(&[taken]);
}
