//! The ndarray engine: programs run in the calling thread through the interpreter. It needs no plugin.

use super::ndarray::{HostTensor, interpret};
use super::{Arguments, DeviceBuffer, Engine, Executable, Execution, argument, wrong_engine};
use crate::error::{Result, TpuError};
use burn_tpu_graph::{Op, Program, TensorType};
use rustc_hash::FxHashMap;

/// Runs programs with burn-ndarray.
pub(crate) struct NdArrayEngine;

impl Engine for NdArrayEngine {
    fn describe(&self) -> String {
        "burn-ndarray on the host".into()
    }

    fn upload(&self, ty: &TensorType, bytes: Vec<u8>) -> Result<DeviceBuffer> {
        Ok(DeviceBuffer::Host(HostTensor::from_bytes(ty.clone(), bytes)))
    }

    fn download(&self, buffer: &DeviceBuffer) -> Result<Vec<u8>> {
        host(buffer).map(HostTensor::to_bytes)
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
    fn execute(&self, arguments: Arguments, slots: &[u64]) -> Result<Execution> {
        let mut parameters = FxHashMap::default();
        for (index, _) in self.program.parameters() {
            parameters.insert(index, host(argument(&arguments, index)?)?.clone());
        }
        drop(arguments);
        let results = interpret(&self.program, &|index| parameters[&index].clone(), slots);
        let results = results.map_err(|error| TpuError::Host { reason: error.to_string() })?;
        Ok(Execution { outputs: results.into_iter().map(DeviceBuffer::Host).collect(), ..Execution::default() })
    }

    /// The interpreter holds the graph only.
    fn size_bytes(&self) -> u64 {
        (self.program.graph().len() * std::mem::size_of::<burn_tpu_graph::Node>()) as u64
    }
}

fn host(buffer: &DeviceBuffer) -> Result<&HostTensor> {
    match buffer {
        DeviceBuffer::Host(tensor) => Ok(tensor),
        DeviceBuffer::Pjrt(_) => Err(wrong_engine()),
    }
}
