//! The inference rule of every op as tables: which operands it accepts, with which result, and which it rejects.
//!
//! Types are written as they print: `f32[2,3]`, `i1[]`, `bf16[0,1]`.

mod contract;
mod control;
mod elementwise;
mod index;
mod movement;
mod properties;
mod window;

use burn_tpu_graph::{Builder, DType, Graph, NodeId, Op, TensorType};

/// Parses a type.
fn ty(text: &str) -> TensorType {
    let (name, dims) = text.trim_end_matches(']').split_once('[').expect("a type has brackets");
    let dtype = DType::ALL.into_iter().find(|dtype| dtype.name() == name).expect("an element type");
    let dims: Vec<usize> = dims.split(',').filter(|d| !d.is_empty()).map(|d| d.parse().expect("a size")).collect();
    TensorType::new(dtype, dims)
}

/// Returns the result types of an op on operands of the given types (separated by spaces), or the error's text.
fn infer(op: impl Into<Op>, operands: &str) -> Result<String, String> {
    let mut graph = Graph::new();
    let mut ids: Vec<NodeId> = Vec::new();
    for (index, text) in operands.split_whitespace().enumerate() {
        ids.push(parameter(&mut graph, index as u32, &ty(text)));
    }
    let id = graph.add(op.into(), &ids).map_err(|error| error.to_string())?;
    let node = graph.node(id);
    Ok(node.result_types().map(ToString::to_string).collect::<Vec<_>>().join(" "))
}

/// Adds a parameter. Complex parameters are built from two real ones, since they cannot be passed in.
fn parameter(graph: &mut Graph, index: u32, ty: &TensorType) -> NodeId {
    if ty.dtype != DType::C64 {
        return graph.add(Op::Parameter { index, ty: ty.clone() }, &[]).expect("a small parameter");
    }
    let part = graph.add(Op::Parameter { index, ty: ty.with_dtype(DType::F32) }, &[]).expect("a small parameter");
    graph.complex(part, part).expect("two parts")
}

/// Asserts that the op accepts the operands and has the given result types.
#[track_caller]
fn accepts(op: impl Into<Op>, operands: &str, results: &str) {
    assert_eq!(infer(op, operands).as_deref(), Ok(results), "{operands}");
}

/// Asserts that the op rejects the operands with an error that names the op and contains `why`.
#[track_caller]
fn refuses(op: impl Into<Op>, operands: &str, why: &str) {
    let op = op.into();
    let name = op.mnemonic();
    match infer(op, operands) {
        Ok(results) => panic!("{name}({operands}) gave {results}"),
        Err(error) => assert!(error.starts_with(name) && error.contains(why), "{error}"),
    }
}

#[test]
fn every_op_refuses_too_few_operands() {
    for case in burn_tpu_graph::corpus::cases().unwrap() {
        for node in case.program.graph().nodes().iter().filter(|node| !node.operands.is_empty()) {
            let (least, _) = node.op.arity();
            let mut graph = Graph::new();
            let x = parameter(&mut graph, 0, &ty("f32[2]"));
            let error = graph.add(node.op.clone(), &vec![x; least - 1]).unwrap_err();
            assert!(error.rule.contains("operands, got"), "{error}");
        }
    }
}

#[test]
fn operands_must_exist() {
    let error = Graph::new().add(Op::IsFinite, &[NodeId(4)]).unwrap_err();
    assert!(error.rule.contains("%4 does not exist"), "{error}");
}
