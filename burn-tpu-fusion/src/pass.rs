//! The interface of a pass.

use burn_tpu_graph::{GraphError, Program};

/// A rewrite of one pattern.
///
/// A pass depends on the program alone: no clocks, no environment, no order of hash maps, since the result is
/// lowered, compiled and cached. It keeps the number, order and types of the outputs, and the index of every
/// parameter and slot that is still read. Applied to its own result it finds nothing.
pub trait Pass {
    /// Returns the name in logs and reports.
    fn name(&self) -> &'static str;

    /// Returns the rewritten program, or the same program if the pattern does not occur.
    ///
    /// # Errors
    /// Fails if a replacement breaks an op's rule, which is a bug of the pass.
    fn run(&self, program: &Program) -> Result<Rewritten, GraphError>;
}

/// The result of a pass.
#[derive(Clone, Debug)]
pub struct Rewritten {
    /// The program after the pass.
    pub program: Program,
    /// The number of places where the pattern was found.
    pub count: usize,
}

#[cfg(test)]
pub(crate) mod testing {
    use super::{Pass, Rewritten};
    use burn_tpu_graph::op::{Combine, ScatterAttrs, ScatterMode};
    use burn_tpu_graph::{DType, Dims, Graph, NodeId, Program, TensorType, verify};
    use burn_tpu_interpreter::{HostTensor, interpret};

    /// Returns the scatter that adds one number to each row of `[heads, queries, keys]`, at a place of the last dim, as the
    /// gradient of a maximum does. `index_vector_dim` is the rank of the places, or their last dim of size 1.
    pub(crate) fn scatter_to_rows(index_vector_dim: usize) -> ScatterAttrs {
        let dims = Dims::from_slice;
        ScatterAttrs {
            update_window_dims: Dims::new(),
            inserted_window_dims: dims(&[2]),
            input_batching_dims: dims(&[0, 1]),
            scatter_indices_batching_dims: dims(&[0, 1]),
            scatter_dims_to_operand_dims: dims(&[2]),
            index_vector_dim,
            mode: ScatterMode::Combine(Combine::Sum),
        }
    }

    /// Runs a pass on the program of these outputs, and holds it to what every pass promises. Returns the program before it
    /// too.
    #[track_caller]
    pub(crate) fn run(pass: &dyn Pass, graph: &Graph, outputs: &[NodeId]) -> (Program, Rewritten) {
        let program = Program::extract(graph, outputs).unwrap();
        let rewritten = pass.run(&program).unwrap();
        verify(&rewritten.program).unwrap();
        assert!(program.output_types().eq(rewritten.program.output_types()));
        assert_eq!(pass.run(&rewritten.program).unwrap().count, 0, "a second run finds nothing");
        if rewritten.count == 0 {
            assert_eq!(rewritten.program, program);
        }
        (program, rewritten)
    }

    /// Runs a program of f32 and of integers of 8 bits on small whole numbers, whose sums are exact in any order.
    pub(crate) fn values(program: &Program) -> Vec<Vec<u8>> {
        let value = |ty: &TensorType| {
            let numbers = (0..ty.elements()).map(|place| ((place * 7) % 11) as i8 - 5);
            let bytes: Vec<u8> = match ty.dtype {
                DType::F32 => numbers.flat_map(|number| f32::from(number).to_le_bytes()).collect(),
                _ => numbers.map(|number| number as u8).collect(),
            };
            HostTensor::from_bytes(ty.clone(), bytes)
        };
        let inputs: Vec<HostTensor> = program.parameters().map(|(_, ty)| value(ty)).collect();
        let results = interpret(program, |index| inputs.get(index as usize).cloned(), &[]).unwrap();
        results.iter().map(HostTensor::to_bytes).collect()
    }
}
