//! One invalid program per invariant, and programs that keep them all.

use super::*;
use crate::op::{BinaryOp, Trips, UnaryOp};
use crate::{DType, Mesh, Operands, corpus};

fn f32s(size: usize) -> TensorType {
    TensorType::new(DType::F32, [size])
}

fn node(op: Op, operands: &[u32], ty: TensorType) -> Node {
    let operands: Operands = operands.iter().copied().map(NodeId).collect();
    Node { op, operands, ty, more: Vec::new() }
}

fn parameter(index: u32, ty: TensorType) -> Node {
    node(Op::Parameter { index, ty: ty.clone() }, &[], ty)
}

fn broken(nodes: Vec<Node>, outputs: &[u32]) -> VerifyError {
    let outputs = outputs.iter().copied().map(NodeId).collect();
    verify(&Program::unchecked(nodes, outputs)).expect_err("the program is broken")
}

#[test]
fn the_corpus_is_valid() {
    for case in corpus::cases().unwrap() {
        assert_eq!(verify(&case.program), Ok(()), "{}", case.name);
    }
}

#[test]
fn operands_come_before_their_user() {
    let add = || Op::Binary(BinaryOp::Add);
    for operand in [1, 2] {
        let error = broken(vec![parameter(0, f32s(2)), node(add(), &[0, operand], f32s(2))], &[1]);
        assert_eq!(error, VerifyError::OperandOrder { node: NodeId(1), operand: NodeId(operand) });
    }
}

#[test]
fn a_node_has_as_many_operands_as_its_op_takes() {
    let error = broken(vec![parameter(0, f32s(2)), node(Op::Select, &[0, 0], f32s(2))], &[1]);
    assert_eq!(error, VerifyError::Arity { node: NodeId(1), op: "stablehlo.select", found: 2 });
}

#[test]
fn get_result_needs_an_existing_result_of_a_node_with_several() {
    for index in [0, 1] {
        let error = broken(vec![parameter(0, f32s(2)), node(Op::GetResult { index }, &[0], f32s(2))], &[1]);
        assert_eq!(error, VerifyError::NoSuchResult { node: NodeId(1), operand: NodeId(0), index, results: 1 });
    }
    let mut sort = node(Op::Sort { dim: 0, descending: false }, &[0, 0], f32s(2));
    sort.more = vec![f32s(2)];
    let error = broken(vec![parameter(0, f32s(2)), sort, node(Op::GetResult { index: 2 }, &[1], f32s(2))], &[2]);
    assert_eq!(error, VerifyError::NoSuchResult { node: NodeId(2), operand: NodeId(1), index: 2, results: 2 });
}

#[test]
fn sizes_are_bounded() {
    for ty in [f32s(infer::MAX_BYTES), TensorType::new(DType::F32, [0, usize::MAX])] {
        let error = broken(vec![parameter(0, ty.clone())], &[0]);
        assert_eq!(error, VerifyError::TooLarge { node: NodeId(0), ty });
    }
}

#[test]
fn rules_accept_every_node() {
    let nodes = vec![parameter(0, f32s(2)), node(Op::Unary(UnaryOp::Not), &[0], f32s(2))];
    assert!(matches!(broken(nodes, &[1]), VerifyError::Rule { node: NodeId(1), .. }));
    let adds_unequal =
        vec![parameter(0, f32s(2)), parameter(1, f32s(3)), node(Op::Binary(BinaryOp::Add), &[0, 1], f32s(2))];
    assert!(matches!(broken(adds_unequal, &[2]), VerifyError::Rule { node: NodeId(2), .. }));
}

#[test]
fn stored_types_equal_the_inferred_ones() {
    let error = broken(vec![parameter(0, f32s(2)), node(Op::Unary(UnaryOp::Exp), &[0], f32s(3))], &[1]);
    let (claimed, inferred) = (vec![f32s(3)], vec![f32s(2)]);
    assert_eq!(error, VerifyError::Types { node: NodeId(1), claimed, inferred });
    let sort = node(Op::Sort { dim: 0, descending: false }, &[0, 0], f32s(2));
    assert!(matches!(broken(vec![parameter(0, f32s(2)), sort], &[1]), VerifyError::Types { node: NodeId(1), .. }));
}

#[test]
fn bodies_keep_every_invariant() {
    let body = |size| {
        let nodes = vec![parameter(0, f32s(2)), node(Op::Unary(UnaryOp::Exp), &[0], f32s(size))];
        std::sync::Arc::new(Program::unchecked(nodes, vec![NodeId(1)]))
    };
    let looped =
        |size| vec![parameter(0, f32s(2)), node(Op::For { trips: Trips::Exactly(3), body: body(size) }, &[0], f32s(2))];
    assert_eq!(verify(&Program::unchecked(looped(2), vec![NodeId(1)])), Ok(()));
    let VerifyError::Body { node, error } = broken(looped(3), &[1]) else { panic!("the body is broken") };
    assert_eq!(node, NodeId(1));
    assert!(matches!(*error, VerifyError::Types { node: NodeId(1), .. }), "{error}");
}

#[test]
fn outputs_exist() {
    let error = broken(vec![parameter(0, f32s(2))], &[0, 1]);
    assert_eq!(error, VerifyError::OutputMissing { position: 1, node: NodeId(1) });
}

#[test]
fn outputs_are_real() {
    let complex = node(Op::Complex, &[0, 0], TensorType::new(DType::C64, [2]));
    let error = broken(vec![parameter(0, f32s(2)), complex], &[1]);
    assert_eq!(error, VerifyError::OutputComplex { position: 0, node: NodeId(1) });
}

#[test]
fn a_parameter_is_one_node() {
    let error = broken(vec![parameter(7, f32s(2)), parameter(7, f32s(3))], &[0, 1]);
    assert_eq!(error, VerifyError::ParameterTwice { index: 7, first: NodeId(0), second: NodeId(1) });
}

#[test]
fn a_slot_is_one_node() {
    let slot = |dtype| node(Op::Slot { index: 3, dtype }, &[], TensorType::scalar(dtype));
    let error = broken(vec![slot(DType::F32), slot(DType::F32)], &[0, 1]);
    assert_eq!(error, VerifyError::SlotTwice { index: 3, first: NodeId(0), second: NodeId(1) });
    let offset = node(Op::Offset { index: 3, dtype: DType::I32 }, &[], TensorType::scalar(DType::I32));
    let error = broken(vec![slot(DType::F32), offset], &[0, 1]);
    assert_eq!(error, VerifyError::SlotTwice { index: 3, first: NodeId(0), second: NodeId(1) });
}

#[test]
fn every_node_is_needed() {
    let exp = || Op::Unary(UnaryOp::Exp);
    let error = broken(vec![parameter(0, f32s(2)), node(exp(), &[0], f32s(2))], &[0]);
    assert_eq!(error, VerifyError::Unreachable { node: NodeId(1) });
    let chain = vec![parameter(0, f32s(2)), node(exp(), &[0], f32s(2)), node(exp(), &[1], f32s(2))];
    assert_eq!(broken(chain, &[0]), VerifyError::Unreachable { node: NodeId(2) });
}

#[test]
fn a_placement_has_an_even_sharding_for_each_parameter_and_result() {
    let mesh = Mesh::new(&[("data".to_owned(), 2)]).unwrap();
    let program = |size: usize, constraint: &[u8]| {
        let op = Op::ShardingConstraint(Sharding::first_dim(1, constraint));
        Program::unchecked(vec![parameter(0, f32s(size)), node(op, &[0], f32s(size))], vec![NodeId(1)])
    };
    let check = |program: Program, parameters: &[Sharding], results: &[Sharding]| {
        let (parameters, results) = (parameters.to_vec(), results.to_vec());
        verify(&program.placed(Placement { mesh: mesh.clone(), batch: vec![0], parameters, results }))
    };
    let (split, whole) = (Sharding::first_dim(1, &[0]), Sharding::replicated(1));
    let [split, whole] = [[split], [whole]];
    assert_eq!(check(program(4, &[0]), &split, &whole), Ok(()));
    // A value inside the program may have uneven parts.
    assert_eq!(check(program(3, &[0]), &whole, &whole), Ok(()));
    let broken = [
        (check(program(3, &[0]), &split, &whole), 0, "3 elements"),
        (check(program(3, &[0]), &whole, &split), 1, "3 elements"),
        (check(program(4, &[1]), &whole, &whole), 1, "axis 1 does not exist"),
        (check(program(4, &[0]), &[], &whole), 0, "no sharding"),
        (check(program(4, &[0]), &whole, &[]), 1, "no sharding"),
    ];
    for (found, at, part) in broken {
        match found {
            Err(VerifyError::Placement { node, rule }) => assert!(node == NodeId(at) && rule.contains(part), "{rule}"),
            other => panic!("{part}: {other:?}"),
        }
    }
}
