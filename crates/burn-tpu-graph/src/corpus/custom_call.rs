//! Test cases for custom calls. Both forms of a call compute the same.

use super::{Cases, Recorder};
use crate::op::{BinaryOp, Combine, UnaryOp};
use crate::{
    Builder, CallForm, CustomCall, DType, Graph, KernelCall, KernelCost, Mesh, NodeId, Op, Partition, Parts, Program,
    Result, Sharding, StableHlo,
};
use crate::{TensorType, op};
use std::sync::Arc;

pub(super) fn add(cases: &mut Cases) -> Result<()> {
    for dtype in [DType::F32, DType::BF16] {
        cases.add(format!("custom/kernel/{dtype}"), |r| {
            let x = r.parameter(dtype, &[8, 128])?;
            r.graph.custom_call(kernel(dtype)?, &[x, x])
        })?;
    }
    cases.add("custom/function", |r| {
        let (x, count) = (r.parameter(DType::F32, &[2, 3])?, r.parameter(DType::I32, &[])?);
        let results = r.graph.custom_call(function()?, &[x, count])?;
        // Two calls of one form share a function.
        let again = r.graph.custom_call(function()?, &[results[0], results[1]])?;
        Ok(vec![results[1], again[0]])
    })?;
    cases.add("custom/parts", |r| {
        let x = r.parameter(DType::F32, &[4, 3])?;
        r.graph.custom_call(parts()?, &[x])
    })?;
    cases.add("custom/in_loop", in_loop)
}

/// A kernel that adds `exp(x)` and `y`. Its configuration is none that a compiler takes: tests compile the plain form.
fn kernel(dtype: DType) -> Result<Arc<CustomCall>> {
    let ty = TensorType::new(dtype, [8, 128]);
    let plain = plain(&[ty.clone(), ty.clone()], |g, given| {
        let exp = g.unary(UnaryOp::Exp, given[0])?;
        Ok(vec![g.binary(BinaryOp::Add, exp, given[1])?])
    })?;
    let kernel = KernelCall {
        target: "tpu_custom_call".into(),
        backend_config: "{\"custom_call_config\": {\"body\": \"\\\\\"}}".into(),
        operands: vec![ty.clone(), ty.clone()],
        results: vec![ty],
        cost: KernelCost { flops: 1024, transcendentals: 1024, bytes: 3 * 4096 },
        partition: None,
    };
    CustomCall::new("exp-and-add", CallForm::Kernel(kernel), plain).map(Arc::new)
}

/// A function with a function of its own, which returns twice `x` and the next count.
fn function() -> Result<Arc<CustomCall>> {
    let text = r#"
        // The names of functions are changed, those in strings are not.
        module @jit_f attributes {mhlo.num_partitions = 1 : i32} {
          func.func public @main(%x: tensor<2x3xf32> {mhlo.layout_mode = "@twice, default"}, %n: tensor<i32>)
              -> (tensor<2x3xf32> {jax.result_info = "a, b"}, tensor<i32>) {
            %0 = call @twice(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
            %one = stablehlo.constant dense<1> : tensor<i32>
            %1 = stablehlo.add %n, %one : tensor<i32>
            return %0, %1 : tensor<2x3xf32>, tensor<i32>
          }
          func.func private @twice(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
            %0 = stablehlo.add %x, %x : tensor<2x3xf32>
            return %0 : tensor<2x3xf32>
          }
        }"#;
    let types = [TensorType::new(DType::F32, [2, 3]), TensorType::scalar(DType::I32)];
    let plain = plain(&types, |g, given| {
        let twice = g.binary(BinaryOp::Add, given[0], given[0])?;
        Ok(vec![twice, g.binary_const(BinaryOp::Add, given[1], 1i64)?])
    })?;
    CustomCall::new("twice", CallForm::Function(StableHlo::parse(text)?), plain).map(Arc::new)
}

/// What each of two devices computes of its rows: their sums. A program of one device has the plain form.
fn parts() -> Result<Arc<CustomCall>> {
    let sums = |rows| {
        plain(&[TensorType::new(DType::F32, [rows, 3])], |g, given| Ok(vec![g.reduce(Combine::Sum, given[0], &[1])?]))
    };
    let types = |rows| (vec![TensorType::new(DType::F32, [rows, 3])], vec![TensorType::new(DType::F32, [rows])]);
    let mesh = Mesh::new(&[("data".to_owned(), 2)]).map_err(|rule| crate::custom_call::error("mesh", &[], rule))?;
    let [operands, results] = [2, 1].map(|rank| vec![Sharding::first_dim(rank, &[0])]);
    let ((taken, given), partition) = (types(4), Partition { mesh, operands, results });
    let form = Parts::new(taken, given, partition, sums(2)?)?;
    CustomCall::new("sums", CallForm::Parts(form), sums(4)?).map(Arc::new)
}

/// A custom call in a loop, whose plain form has a region and a loop of its own.
fn in_loop(r: &mut Recorder) -> Result<Vec<NodeId>> {
    let ty = TensorType::new(DType::F32, [4, 8]);
    let body = plain(std::slice::from_ref(&ty), |g, given| {
        let [tamed] = g.for_loop(2, [given[0]], |g, _, [x]| Ok([g.unary(UnaryOp::Tanh, x)?]))?;
        let sum = g.reduce(Combine::Sum, tamed, &[1])?;
        let sum = g.broadcast_in_dim(sum, &[4, 8], &[0])?;
        Ok(vec![g.binary(op::BinaryOp::Sub, given[0], sum)?])
    })?;
    let text = "func.func @less(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
        %zero = stablehlo.constant dense<0.0> : tensor<f32>
        %once = stablehlo.tanh %x : tensor<4x8xf32>
        %twice = stablehlo.tanh %once : tensor<4x8xf32>
        %sum = stablehlo.reduce(%twice init: %zero) applies stablehlo.add across dimensions = [1]
            : (tensor<4x8xf32>, tensor<f32>) -> tensor<4xf32>
        %all = stablehlo.broadcast_in_dim %sum, dims = [0] : (tensor<4xf32>) -> tensor<4x8xf32>
        %less = stablehlo.subtract %x, %all : tensor<4x8xf32>
        return %less : tensor<4x8xf32>
    }";
    let call = CustomCall::new("less", CallForm::Function(StableHlo::parse(text)?), body).map(Arc::new)?;
    let x = r.parameter(DType::F32, &[4, 8])?;
    let last = r.graph.for_loop(3, [x], |g, _, [x]| Ok([g.custom_call(call, &[x])?[0]]))?;
    Ok(last.into())
}

/// Returns a program of parameters of these types.
fn plain(types: &[TensorType], build: impl FnOnce(&mut Graph, &[NodeId]) -> Result<Vec<NodeId>>) -> Result<Program> {
    let mut graph = Graph::new();
    let parameter = |(index, ty): (usize, &TensorType)| Op::Parameter { index: index as u32, ty: ty.clone() };
    let given = types.iter().enumerate().map(parameter).map(|op| graph.add(op, &[])).collect::<Result<Vec<_>>>()?;
    let results = build(&mut graph, &given)?;
    Program::extract(&graph, &results)
}
