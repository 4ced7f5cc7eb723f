//! Random programs that repeat a random piece, unrolled.

use burn_tpu_graph::op::{BinaryOp, DotAttrs, UnaryOp};
use burn_tpu_graph::{Builder, DType, Graph, Literal, NodeId, Op, Program, TensorType};
use proptest::prelude::*;

const WIDTH: usize = 3;

/// Numbers that describe a program. Any change of them describes another valid program.
#[derive(Clone, Debug)]
pub struct Recipe {
    /// The ops of a first loop, and of a second one that reads what the first one computed.
    pieces: [Vec<(u8, u16)>; 2],
    trips: usize,
    /// Whether the second loop goes through the first one's trips from the last to the first.
    reverse: bool,
    /// Trips of the first loop of which a value is a result.
    picked: Vec<u16>,
    /// Whether the first trip differs from the others.
    irregular: bool,
}

pub fn recipes() -> impl Strategy<Value = Recipe> {
    let piece = || prop::collection::vec(any::<(u8, u16)>(), 12..24);
    let parts =
        ([piece(), piece()], 22..40usize, any::<bool>(), prop::collection::vec(any::<u16>(), 0..3), any::<bool>());
    parts.prop_map(|(pieces, trips, reverse, picked, irregular)| Recipe { pieces, trips, reverse, picked, irregular })
}

/// A program under construction, and the values that its next op can read.
struct Recorder {
    graph: Graph,
    /// Two weights and two constants.
    fixed: [NodeId; 4],
    /// `[trips, WIDTH, WIDTH]`.
    input: NodeId,
}

impl Recorder {
    fn new(trips: usize) -> Self {
        let mut graph = Graph::new();
        let parameter = |graph: &mut Graph, index, dims: &[usize]| {
            graph.add(Op::Parameter { index, ty: TensorType::new(DType::F32, dims) }, &[]).unwrap()
        };
        let input = parameter(&mut graph, 0, &[trips, WIDTH, WIDTH]);
        let weights = [1, 2].map(|index| parameter(&mut graph, index, &[WIDTH, WIDTH]));
        let constants = [0.0, 0.5].map(|value| graph.splat(DType::F32, &[WIDTH, WIDTH], value).unwrap());
        Self { graph, fixed: [weights[0], weights[1], constants[0], constants[1]], input }
    }

    fn dot(&mut self, a: NodeId, b: NodeId) -> NodeId {
        let attrs = DotAttrs::new([&[], &[]], [&[1], &[0]], DType::F32);
        let product = self.graph.dot_general(a, b, attrs).unwrap();
        // Keeps values small.
        self.graph.unary(UnaryOp::Tanh, product).unwrap()
    }

    fn op(&mut self, op: u8, a: NodeId, b: NodeId) -> NodeId {
        let binary = |graph: &mut Graph, op| graph.binary(op, a, b).unwrap();
        match op % 8 {
            0 | 1 => self.dot(a, b),
            2 => binary(&mut self.graph, BinaryOp::Add),
            3 => binary(&mut self.graph, BinaryOp::Mul),
            4 => binary(&mut self.graph, BinaryOp::Max),
            5 => self.graph.unary(UnaryOp::Sin, a).unwrap(),
            6 => self.graph.transpose(a, &[1, 0]).unwrap(),
            _ => self.graph.unary(UnaryOp::Logistic, a).unwrap(),
        }
    }

    /// Returns a buffer with `value` in row block `at`.
    fn assigned(&mut self, buffer: NodeId, value: NodeId, at: usize) -> NodeId {
        let entry = self.graph.reshape(value, &[1, WIDTH, WIDTH]).unwrap();
        let starts = [at, 0, 0].map(|at| self.graph.constant(Literal::scalar(DType::I32, at as i64)).unwrap());
        self.graph.dynamic_update_slice(buffer, entry, &starts).unwrap()
    }

    /// Records the piece once per trip. `given` are the values that only one trip reads. Returns the last two values of each
    /// trip, and a buffer with the sums over trips.
    fn repeat(&mut self, recipe: &Recipe, piece: usize, given: &[Vec<NodeId>]) -> (Vec<[NodeId; 2]>, NodeId) {
        let mut states = [self.fixed[2], self.fixed[0]];
        let mut buffer = self.graph.splat(DType::F32, &[recipe.trips, WIDTH, WIDTH], 0.0).unwrap();
        let mut sum: Option<NodeId> = None;
        let mut left = Vec::new();
        for (trip, given) in given.iter().enumerate() {
            let slice = self.graph.slice_dim(self.input, 0, trip, trip + 1).unwrap();
            let taken = self.graph.reshape(slice, &[WIDTH, WIDTH]).unwrap();
            let mut values: Vec<NodeId> = [&self.fixed[..], &states, given, &[taken]].concat();
            for &(op, other) in &recipe.pieces[piece] {
                // Each op reads the one before, so that none is dead.
                let (last, other) = (values[values.len() - 1], values[usize::from(other) % values.len()]);
                let value = self.op(op, last, other);
                values.push(value);
            }
            let last = values[values.len() - 1];
            let first =
                if recipe.irregular && trip == 0 { last } else { self.graph.unary(UnaryOp::Cos, last).unwrap() };
            states = [first, values[values.len() - 2]];
            sum = Some(sum.map_or(last, |sum| self.graph.binary(BinaryOp::Add, last, sum).unwrap()));
            buffer = self.assigned(buffer, sum.unwrap_or(last), trip);
            left.push(states);
        }
        (left, buffer)
    }
}

impl Recipe {
    pub fn trips(&self) -> usize {
        self.trips
    }

    pub fn program(&self) -> Program {
        let mut recorder = Recorder::new(self.trips);
        let (first, buffer) = recorder.repeat(self, 0, &vec![Vec::new(); self.trips]);
        let mut given: Vec<Vec<NodeId>> = first.iter().map(|states| states.to_vec()).collect();
        if self.reverse {
            given.reverse();
        }
        let (second, sums) = recorder.repeat(self, 1, &given);
        let picked = self.picked.iter().map(|&trip| first[usize::from(trip) % self.trips][0]);
        let mut others: Vec<NodeId> = first.iter().map(|states| states[1]).collect();
        if self.picked.len() == 1 {
            others.reverse();
        }
        let joined = recorder.graph.concatenate(&others, usize::from(self.irregular)).unwrap();
        let last = second[self.trips - 1];
        let outputs: Vec<NodeId> = picked.chain([buffer, sums, joined, last[0], last[1]]).collect();
        Program::canonical(&recorder.graph, &outputs).unwrap().0
    }
}
