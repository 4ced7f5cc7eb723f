//! Which custom call keeps a program from being compiled.

use crate::error::{Result, TpuError};
use burn_tpu_graph::{Builder, CustomCall, Graph, Op, Program, custom_calls};
use burn_tpu_pjrt::PjrtError;
use std::sync::Arc;

/// Returns the error for a program that a plugin does not compile. If it does not compile one of the program's custom calls
/// alone either, that is the mistake of whoever wrote the call. `compile` compiles a program for the same device.
pub(super) fn compile_error(
    program: &Program,
    context: String,
    error: PjrtError,
    compile: impl Fn(&Program) -> Result<Result<(), PjrtError>>,
) -> TpuError {
    let mut calls = custom_calls(program);
    calls.dedup();
    for call in calls.into_iter().filter(|_| !error.is_out_of_memory()) {
        let Ok(Err(alone)) = alone(call).and_then(|program| compile(&program)) else { continue };
        if !alone.is_out_of_memory() {
            return TpuError::CustomOp { name: call.name().to_owned(), reason: alone.to_string() };
        }
    }
    TpuError::pjrt(context)(error)
}

/// Returns the program of one call.
fn alone(call: &Arc<CustomCall>) -> Result<Program> {
    let build = || {
        let mut graph = Graph::new();
        let operands = call.form().operands().iter().enumerate();
        let operands =
            operands.map(|(index, ty)| graph.add(Op::Parameter { index: index as u32, ty: ty.clone() }, &[]));
        let operands = operands.collect::<burn_tpu_graph::Result<Vec<_>>>()?;
        let results = graph.custom_call(Arc::clone(call), &operands)?;
        Program::extract(&graph, &results)
    };
    build().map_err(|error| TpuError::Bug(error.to_string()))
}
