//! Loops: what a body must look like for its carries.

use super::{accepts, refuses, ty};
use burn_tpu_graph::op::Trips;
use burn_tpu_graph::{Builder, DType, Graph, NodeId, Op, Program, Result};
use std::sync::Arc;

/// Returns a loop whose body has parameters of these types and returns what `record` computes from them.
fn loop_over(trips: Trips, types: &str, record: impl FnOnce(&mut Graph, &[NodeId]) -> Result<Vec<NodeId>>) -> Op {
    let mut graph = Graph::new();
    let parameters = types.split_whitespace().enumerate();
    let parameters: Vec<_> = parameters.map(|(i, text)| super::parameter(&mut graph, i as u32, &ty(text))).collect();
    let left = record(&mut graph, &parameters).unwrap();
    Op::For { trips, body: Arc::new(Program::extract(&graph, &left).unwrap()) }
}

#[test]
fn loops_return_the_types_of_their_carries() {
    let turn = |trips| loop_over(Trips::Exactly(trips), "f32[2] i1[]", |_, carries| Ok(carries.to_vec()));
    accepts(turn(3), "f32[2] i1[]", "f32[2] i1[]");
    accepts(turn(0), "f32[2] i1[]", "f32[2] i1[]");
    accepts(turn(i32::MAX as usize), "f32[2] i1[]", "f32[2] i1[]");
    refuses(turn(1 << 31), "f32[2] i1[]", "2147483648 trips");
    refuses(turn(3), "f32[2] i1[1]", "parameter 1 is i1[], but the loop passes i1[1]");
    refuses(turn(3), "f32[2]", "parameter 1 is i1[], but the loop passes i32[]");
    refuses(turn(3), "f32[2] i1[] f32[2]", "returns 2 values for 3 carries");
}

#[test]
fn the_trip_count_may_be_an_operand() {
    let turn = |most| loop_over(Trips::AtMost(most), "f32[2] i1[]", |_, carries| Ok(carries.to_vec()));
    accepts(turn(3), "f32[2] i1[] i32[]", "f32[2] i1[]");
    refuses(turn(1 << 31), "f32[2] i1[] i32[]", "2147483648 trips");
    refuses(turn(3), "f32[2] i1[] i64[]", "the trip count is i64[]");
    refuses(turn(3), "f32[2] i1[] i32[1]", "the trip count is i32[1]");
    refuses(turn(3), "i32[]", "it carries nothing");
}

#[test]
fn bodies_return_the_types_of_their_carries() {
    let first = loop_over(Trips::Exactly(3), "f32[2] f32[3]", |_, carries| Ok(vec![carries[0], carries[0]]));
    refuses(first, "f32[2] f32[3]", "returns f32[2] for carry 1, which is f32[3]");
    let counter = || loop_over(Trips::Exactly(3), "i32[] i32[]", |_, given| Ok(vec![given[1]]));
    accepts(counter(), "i32[]", "i32[]");
    refuses(counter(), "i64[]", "returns i32[] for carry 0, which is i64[]");
    let beyond = loop_over(Trips::Exactly(3), "i32[] i32[] i32[]", |_, given| Ok(vec![given[2]]));
    refuses(beyond, "i32[]", "parameter 2 is i32[], but the loop passes nothing");
}

#[test]
fn bodies_are_closed() {
    let slot = |g: &mut Graph| g.add(Op::Slot { index: 4, dtype: DType::F32 }, &[]);
    refuses(loop_over(Trips::Exactly(3), "", |g, _| Ok(vec![slot(g)?])), "f32[]", "reads slot 4");
    let offset = |g: &mut Graph| g.add(Op::Offset { index: 1, dtype: DType::I32 }, &[]);
    refuses(loop_over(Trips::Exactly(3), "", |g, _| Ok(vec![offset(g)?])), "i32[]", "reads slot 1");
}
