//! Records small programs that repeat a piece.

use burn_tpu_graph::op::{BinaryOp, DotAttrs, UnaryOp};
use burn_tpu_graph::{Builder, DType, Graph, Literal, NodeId, Op, Program, TensorType};

/// Enough trips for a loop, whatever the piece.
pub(super) const STEPS: usize = 40;
pub(super) const WIDTH: usize = 4;

/// A recording in progress.
#[derive(Default)]
pub(super) struct Recording {
    pub(super) graph: Graph,
    parameters: u32,
}

impl Recording {
    pub(super) fn parameter(&mut self, dims: &[usize]) -> NodeId {
        let index = self.parameters;
        self.parameters += 1;
        self.graph.add(Op::Parameter { index, ty: TensorType::new(DType::F32, dims) }, &[]).unwrap()
    }

    pub(super) fn square(&mut self) -> NodeId {
        self.parameter(&[WIDTH, WIDTH])
    }

    pub(super) fn zeros(&mut self, dims: &[usize]) -> NodeId {
        self.graph.splat(DType::F32, dims, 0.0).unwrap()
    }

    pub(super) fn dot(&mut self, a: NodeId, b: NodeId) -> NodeId {
        let attrs = DotAttrs::new([&[], &[]], [&[1], &[0]], DType::F32);
        self.graph.dot_general(a, b, attrs).unwrap()
    }

    pub(super) fn binary(&mut self, op: BinaryOp, a: NodeId, b: NodeId) -> NodeId {
        self.graph.binary(op, a, b).unwrap()
    }

    pub(super) fn unary(&mut self, op: UnaryOp, x: NodeId) -> NodeId {
        self.graph.unary(op, x).unwrap()
    }

    /// Returns row block `at` of `[n, WIDTH, WIDTH]` as `[WIDTH, WIDTH]`.
    pub(super) fn taken(&mut self, x: NodeId, at: usize) -> NodeId {
        let slice = self.graph.slice_dim(x, 0, at, at + 1).unwrap();
        self.graph.reshape(slice, &[WIDTH, WIDTH]).unwrap()
    }

    /// Returns a buffer with `value` as row block `at`.
    pub(super) fn assigned(&mut self, buffer: NodeId, value: NodeId, at: usize) -> NodeId {
        let entry = self.graph.reshape(value, &[1, WIDTH, WIDTH]).unwrap();
        let start = |graph: &mut Graph, at: usize| graph.constant(Literal::scalar(DType::I32, at as i64)).unwrap();
        let starts = [at, 0, 0].map(|at| start(&mut self.graph, at));
        self.graph.dynamic_update_slice(buffer, entry, &starts).unwrap()
    }

    /// Returns the next state of a cell of ten nodes.
    pub(super) fn cell(&mut self, x: NodeId, state: NodeId, [a, b]: [NodeId; 2]) -> NodeId {
        let (from_x, from_state) = (self.dot(x, a), self.dot(state, b));
        let sum = self.binary(BinaryOp::Add, from_x, from_state);
        let gate = self.unary(UnaryOp::Logistic, sum);
        let new = self.unary(UnaryOp::Tanh, sum);
        let (kept, added) = (self.binary(BinaryOp::Mul, gate, state), self.binary(BinaryOp::Mul, gate, new));
        self.binary(BinaryOp::Add, kept, added)
    }

    /// Returns the states of a recurrent layer over `x`, from zeros.
    pub(super) fn states(
        &mut self,
        x: NodeId,
        weights: [NodeId; 2],
        order: impl Iterator<Item = usize>,
    ) -> Vec<NodeId> {
        let mut state = self.zeros(&[WIDTH, WIDTH]);
        order
            .map(|at| {
                let x = self.taken(x, at);
                state = self.cell(x, state, weights);
                state
            })
            .collect()
    }

    pub(super) fn program(self, outputs: &[NodeId]) -> Program {
        Program::canonical(&self.graph, outputs).unwrap().0
    }
}
