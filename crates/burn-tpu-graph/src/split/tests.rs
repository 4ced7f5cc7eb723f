use super::*;
use crate::op::{BinaryOp, UnaryOp};
use crate::{Number, verify};

fn parameter(graph: &mut Graph, index: u32, dtype: DType, dims: &[usize]) -> NodeId {
    graph.add(Op::Parameter { index, ty: TensorType::new(dtype, dims) }, &[]).unwrap()
}

/// Splits a program and checks both parts.
fn split(graph: &Graph, outputs: &[NodeId], hosts: &[u32]) -> Option<Split> {
    let program = Program::extract(graph, outputs).unwrap();
    let split = Split::of(&program, |index| hosts.contains(&index)).unwrap();
    for part in split.iter().flat_map(|split| [&split.host.0, &*split.device.0]) {
        assert_eq!(verify(part), Ok(()));
    }
    split
}

/// `tanh(w + cat(rows scaled))` with one parameter for each row.
fn stacked(rows: u32) -> (Graph, NodeId) {
    let mut graph = Graph::new();
    let w = parameter(&mut graph, 0, DType::F32, &[rows as usize, 4]);
    let scaled = |index| {
        let row = parameter(&mut graph, index, DType::F32, &[4]);
        let row = graph.reshape(row, &[1, 4]).unwrap();
        graph.binary_const(BinaryOp::Mul, row, 0.5).unwrap()
    };
    let rows: Vec<_> = (1..=rows).map(scaled).collect();
    let batch = graph.concatenate(&rows, 0).unwrap();
    let sum = graph.binary(BinaryOp::Add, w, batch).unwrap();
    let output = graph.unary(UnaryOp::Tanh, sum).unwrap();
    (graph, output)
}

#[test]
fn what_is_stacked_from_host_values_is_one_transfer() {
    let (graph, output) = stacked(6);
    let split = split(&graph, &[output], &[1, 2, 3, 4, 5, 6]).unwrap();
    assert_eq!(split.host.1.parameters, [1, 2, 3, 4, 5, 6]);
    assert_eq!(split.transfers, [Transfer { ty: TensorType::new(DType::F32, [6, 4]), results: vec![0] }]);
    assert_eq!((split.device.1.parameters.as_slice(), split.first_transfer), (&[0, 7][..], 7));
    assert_eq!((split.device.0.graph().len(), split.outputs.as_slice()), (4, &[Source::Device(0)][..]));
}

#[test]
fn a_program_of_one_part_is_not_split() {
    let (graph, output) = stacked(3);
    assert!(split(&graph, &[output], &[]).is_none());
    assert!(split(&graph, &[output], &[0, 1, 2, 3]).is_none());
}

#[test]
fn small_values_of_one_width_share_a_transfer() {
    let mut graph = Graph::new();
    let w = parameter(&mut graph, 0, DType::F32, &[3]);
    let x = parameter(&mut graph, 1, DType::F32, &[3]);
    let n = parameter(&mut graph, 2, DType::I32, &[1, 3]);
    let flag = parameter(&mut graph, 3, DType::Bool, &[3]);
    let other = parameter(&mut graph, 4, DType::Bool, &[3]);
    let n = graph.reshape(n, &[3]).unwrap();
    let n = graph.convert(n, DType::F32).unwrap();
    let sum = graph.binary(BinaryOp::Add, w, x).unwrap();
    let sum = graph.binary(BinaryOp::Add, sum, n).unwrap();
    let chosen = graph.select(flag, sum, w).unwrap();
    let chosen = graph.select(other, chosen, w).unwrap();
    let split = split(&graph, &[chosen], &[1, 2, 3, 4]).unwrap();
    let types: Vec<_> = split.transfers.iter().map(|transfer| transfer.ty.to_string()).collect();
    assert_eq!(types, [TensorType::new(DType::U32, [6]).to_string(), TensorType::new(DType::U8, [6]).to_string()]);
    assert_eq!(split.device.0.parameters().count(), 3);
}

#[test]
fn a_mask_that_is_built_row_by_row_of_constants_is_the_hosts_and_a_random_state_is_not() {
    let mut graph = Graph::new();
    let w = parameter(&mut graph, 0, DType::F32, &[4, 8]);
    let mut mask = graph.splat(DType::F32, &[4, 8], 0).unwrap();
    for (row, length) in [3, 5, 8, 1].into_iter().enumerate() {
        let ones = graph.splat(DType::F32, &[1, length], 1).unwrap();
        let starts = [row, 0].map(|start| graph.scalar(DType::I32, Number::Int(start as i64)).unwrap());
        mask = graph.dynamic_update_slice(mask, ones, &starts).unwrap();
    }
    let masked = graph.binary(BinaryOp::Mul, w, mask).unwrap();
    let found = split(&graph, &[masked, mask], &[]).unwrap();
    assert_eq!(found.outputs, [Source::Device(0), Source::Host(0)]);
    assert_eq!(found.device.0.graph().len(), 3);
    let (low, high) = (graph.splat(DType::F32, &[1], 1).unwrap(), graph.splat(DType::F32, &[1], 2).unwrap());
    let state = graph.concatenate(&[low, high], 0).unwrap();
    let used = graph.slice_dim(state, 0, 0, 1).unwrap();
    let used = graph.broadcast_to(used, &[8]).unwrap();
    let row = graph.slice_dim(w, 0, 0, 1).unwrap();
    let row = graph.reshape(row, &[8]).unwrap();
    let sum = graph.binary(BinaryOp::Add, row, used).unwrap();
    assert!(split(&graph, &[sum], &[]).is_none());
}

#[test]
fn what_would_grow_stays_on_the_device() {
    let mut graph = Graph::new();
    let w = parameter(&mut graph, 0, DType::F32, &[64, 8]);
    let x = parameter(&mut graph, 1, DType::F32, &[8]);
    let negative = graph.unary(UnaryOp::Neg, x).unwrap();
    let rows = graph.reshape(negative, &[1, 8]).unwrap();
    let rows = graph.broadcast_to(rows, &[64, 8]).unwrap();
    let sum = graph.binary(BinaryOp::Add, w, rows).unwrap();
    let split = split(&graph, &[sum], &[1]).unwrap();
    assert_eq!(split.transfers[0].ty, TensorType::new(DType::F32, [1, 8]));
    assert_eq!(split.host_ops, 2);
}

#[test]
fn an_empty_host_value_is_a_host_value() {
    let mut graph = Graph::new();
    let w = parameter(&mut graph, 0, DType::F32, &[4]);
    let x = parameter(&mut graph, 1, DType::F32, &[2, 0]);
    let y = parameter(&mut graph, 2, DType::F32, &[4]);
    let empty = graph.reshape(x, &[0]).unwrap();
    let sum = graph.binary(BinaryOp::Add, w, y).unwrap();
    let joined = graph.concatenate(&[empty, sum], 0).unwrap();
    let split = split(&graph, &[joined], &[1, 2]).unwrap();
    assert_eq!((split.host_ops, split.transfers.len()), (1, 2));
}

#[test]
fn a_large_parameter_is_transferred_as_it_is() {
    let mut graph = Graph::new();
    let w = parameter(&mut graph, 0, DType::F32, &[100_000]);
    let x = parameter(&mut graph, 1, DType::F32, &[100_000]);
    let sum = graph.binary(BinaryOp::Add, w, x).unwrap();
    assert!(split(&graph, &[sum], &[1]).is_none());
}
