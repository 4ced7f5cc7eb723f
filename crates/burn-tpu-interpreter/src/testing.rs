//! Helpers for the tests of this crate: values in, values out, and ops run as the nodes of a program.

use super::buffer::Element;
use super::interpret::interpret;
use super::tensor::HostTensor;
use burn_tpu_graph::{Builder, DType, Graph, GraphError, NodeId, Op, Program, TensorType};
use rustc_hash::FxHashMap;

pub(super) fn tensor<T: Element>(dims: &[usize], values: &[T]) -> HostTensor {
    HostTensor::new(dims, values.to_vec())
}

pub(super) fn scalar<T: Element>(value: T) -> HostTensor {
    tensor(&[], &[value])
}

pub(super) fn f32s(dims: &[usize], values: &[f32]) -> HostTensor {
    tensor(dims, values)
}

pub(super) fn i32s(dims: &[usize], values: &[i32]) -> HostTensor {
    tensor(dims, values)
}

pub(super) fn values<T: Element>(x: &HostTensor) -> Vec<T> {
    x.elements::<T>().expect("the element type").into_owned()
}

/// A program under construction, with the values of its parameters.
#[derive(Default)]
pub(super) struct Trial {
    pub(super) graph: Graph,
    parameters: FxHashMap<u32, HostTensor>,
}

impl Trial {
    pub(super) fn input<T: Element>(&mut self, dims: &[usize], values: &[T]) -> NodeId {
        let index = self.parameters.len() as u32;
        let ty = TensorType::new(T::DTYPE, dims);
        self.parameters.insert(index, tensor(dims, values));
        self.graph.add(Op::Parameter { index, ty }, &[]).expect("a real type")
    }

    /// Adds a parameter of 0, 1, 2, … in row-major order.
    pub(super) fn counted(&mut self, dims: &[usize]) -> NodeId {
        let values: Vec<f32> = (0..dims.iter().product()).map(|i: usize| i as f32).collect();
        self.input(dims, &values)
    }

    pub(super) fn run(mut self, outputs: &[NodeId]) -> Vec<HostTensor> {
        let program = Program::extract(&self.graph, outputs).expect("outputs exist");
        interpret(&program, |index| self.parameters.remove(&index), &[]).expect("a checked program runs")
    }
}

/// Returns the elements of the first result that `build` records, which must have type `T`.
pub(super) fn run<T: Element>(build: impl FnOnce(&mut Trial) -> Result<NodeId, GraphError>) -> Vec<T> {
    let mut trial = Trial::default();
    let output = build(&mut trial).expect("the op takes these operands");
    assert_eq!(trial.graph.dtype(output), T::DTYPE);
    values(&trial.run(&[output])[0])
}

/// Returns the op's result on `x` as `dtype`, converted to f32, to test 16-bit floats.
pub(super) fn run_as(
    dtype: DType,
    x: &[f32],
    build: impl FnOnce(&mut Trial, NodeId) -> Result<NodeId, GraphError>,
) -> Vec<f32> {
    run(|trial| {
        let wide = trial.input(&[x.len()], x);
        let x = trial.graph.convert(wide, dtype)?;
        let y = build(trial, x)?;
        trial.graph.convert(y, DType::F32)
    })
}
