//! The ndarray engine: the interpreter runs programs in the calling thread. It needs no plugin.

use super::{
    Arguments, DeviceBuffer, Engine, Executable, Execution, HostBytes, SharedBuffer, downcast, take_argument,
    wrong_engine,
};
use crate::error::{Result, TpuError};
use burn_tpu_graph::{Graph, NodeId, Op, Program, Sharding, TensorType};
use burn_tpu_interpreter::{HostTensor, interpret, interpret_graph};
use std::any::Any;
use std::sync::Arc;

impl DeviceBuffer for HostTensor {}

/// Runs programs with the interpreter.
pub(crate) struct NdArrayEngine;

/// Opens the host engine, which is always available.
pub(crate) fn open_ndarray() -> Arc<dyn Engine> {
    Arc::new(NdArrayEngine)
}

impl Engine for NdArrayEngine {
    fn describe(&self) -> String {
        "the interpreter on the host".into()
    }

    fn upload(&self, ty: &TensorType, bytes: HostBytes, _: Option<&Sharding>) -> Result<SharedBuffer> {
        Ok(Arc::new(HostTensor::from_bytes(ty.clone(), bytes)))
    }

    fn download(&self, buffer: &SharedBuffer) -> Result<Vec<u8>> {
        downcast(buffer).map(HostTensor::to_bytes)
    }

    fn lowers(&self, _op: &Op) -> bool {
        true
    }

    fn compile(&self, program: &Program) -> Result<Box<dyn Executable>> {
        Ok(Box::new(Interpreted { program: program.clone() }))
    }

    fn wait(&self) -> Result<()> {
        Ok(())
    }
}

struct Interpreted {
    program: Program,
}

impl Executable for Interpreted {
    fn execute(&self, arguments: &mut Arguments, slots: &[u64]) -> Result<Execution> {
        let mut execution = Execution::default();
        let mut parameters: Vec<Option<HostTensor>> = vec![None; arguments.len()];
        for (index, ty) in self.program.parameters() {
            let (value, donated) = owned(take_argument(arguments, index)?)?;
            execution.donated_buffers += usize::from(donated);
            execution.donated_bytes += if donated { ty.bytes() } else { 0 };
            parameters[index as usize] = Some(value);
        }
        let results = interpret_values(&self.program, parameters, slots)?;
        execution.outputs = results.into_iter().map(|value| Arc::new(value) as SharedBuffer).collect();
        Ok(execution)
    }

    /// The interpreter stores only the graph.
    fn size_bytes(&self) -> u64 {
        (self.program.graph().len() * std::mem::size_of::<burn_tpu_graph::Node>()) as u64
    }
}

/// Returns the results of a program on the host. `parameters[i]` is the value of parameter `i`, `slots[i]` the bits of slot
/// `i`.
pub(crate) fn interpret_values(
    program: &Program,
    mut parameters: Vec<Option<HostTensor>>,
    slots: &[u64],
) -> Result<Vec<HostTensor>> {
    let results = interpret(program, |index| parameters.get_mut(index as usize)?.take(), slots);
    results.map_err(|error| TpuError::Host { reason: error.to_string() })
}

/// Returns the values of some nodes of a graph, whose nodes are all computed. `take` returns the value of a parameter.
pub(crate) fn interpret_nodes(
    graph: &Graph,
    outputs: &[NodeId],
    take: impl FnMut(u32) -> Option<HostTensor>,
    slots: &[u64],
) -> Result<Vec<HostTensor>> {
    interpret_graph(graph, outputs, take, slots).map_err(|error| TpuError::Host { reason: error.to_string() })
}

/// [`interpret_values`] on row-major little-endian bytes, one byte per bool.
#[cfg(feature = "testing")]
pub fn interpret_program(program: &Program, parameters: &[impl AsRef<[u8]>], slots: &[u64]) -> Result<Vec<Vec<u8>>> {
    let mut values = vec![None; parameters.len()];
    for (index, ty) in program.parameters() {
        let place = index as usize;
        if let Some((value, bytes)) = values.get_mut(place).zip(parameters.get(place)) {
            *value = Some(HostTensor::from_bytes(ty.clone(), bytes));
        }
    }
    let results = interpret_values(program, values, slots)?;
    Ok(results.iter().map(HostTensor::to_bytes).collect())
}

/// Returns the value, and whether its buffer had no other owner. If it had none, the program may overwrite the value.
fn owned(buffer: SharedBuffer) -> Result<(HostTensor, bool)> {
    let any: Arc<dyn Any + Send + Sync> = buffer;
    match Arc::try_unwrap(any.downcast::<HostTensor>().map_err(|_| wrong_engine())?) {
        Ok(tensor) => Ok((tensor, true)),
        Err(shared) => Ok(((*shared).clone(), false)),
    }
}
