//! Attention with its gradients, as Burn's autodiff records it.

use crate::pass::testing;
use burn_tpu_graph::op::{BinaryOp, Combine, Direction, DotAttrs, UnaryOp};
use burn_tpu_graph::{Builder, DType, Graph, NodeId, Op, Program, TensorType};

/// What random attention is made of.
#[derive(Clone, Debug)]
pub(super) struct RandomAttention {
    /// Heads, queries, keys, width.
    pub(super) dims: [usize; 4],
    pub(super) dtype: DType,
    /// In the order in which they mask.
    pub(super) masks: Vec<Mask>,
    pub(super) softmax: Softmax,
    pub(super) weights: Weights,
    pub(super) has_bias: bool,
    pub(super) softcap: bool,
    /// Whether the weights and the masked scores are results too.
    pub(super) returns_weights: bool,
    /// Whether the gradients are results too.
    pub(super) trains: bool,
    /// Whether `softmax_gradient` runs.
    pub(super) moves_sums: bool,
    /// Of the values.
    pub(super) seed: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Mask {
    pub(super) how: How,
    pub(super) number: f64,
    pub(super) fill: Fill,
}

/// Which scores a mask hides.
#[derive(Clone, Copy, Debug)]
pub(super) enum How {
    /// Keys further than this after the query.
    Causal { ahead: i64 },
    /// Keys further than this before the query.
    Window { before: i64 },
    /// Some keys of each head, for all queries.
    Padding,
    /// Any.
    Data,
}

/// How a mask hides a score.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Fill {
    /// `select(hidden, number, score)`.
    Selected,
    /// `select(seen, score, number)`.
    Kept,
    /// `score + select(hidden, number, 0)`.
    Added,
    /// `select(hidden, x, score)`, with any number `x` that the program is given.
    Given,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Softmax {
    /// The gradient does not pass through the largest score.
    Plain,
    /// That of Burn's `attention`: rows that are masked with -inf as a whole are 0.
    Op,
    /// With one more score of 0.
    Quiet,
    /// Without subtraction of the largest score.
    Unshifted,
}

/// What the weights are multiplied with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Weights {
    All,
    /// Zeros and ones, then a number that the program is given.
    Dropped,
    /// Any numbers.
    Scaled,
}

/// The values of attention that its gradients need.
struct Forward {
    tanh: Option<NodeId>,
    hidden: Vec<NodeId>,
    masked: NodeId,
    largest: Option<NodeId>,
    exponentials: NodeId,
    /// The sum of each row, and that before it is limited.
    sum: NodeId,
    unlimited: NodeId,
    weights: NodeId,
    kept: NodeId,
}

/// A recording of attention.
pub(super) struct Attention {
    pub(super) graph: Graph,
    dims: [usize; 4],
    dtype: DType,
    pub(super) parameters: Vec<TensorType>,
    pub(super) outputs: Vec<(&'static str, NodeId)>,
    /// The values whose products the results are sums of, for the bounds of rounding.
    pub(super) terms: Vec<(&'static str, NodeId)>,
    factors: Option<NodeId>,
}

/// The scale of weights, and the cap of scores.
const SCALE: f64 = 1.25;
const CAP: f64 = 20.0;

impl Attention {
    pub(super) fn record(form: &RandomAttention) -> Self {
        let mut this = Self {
            graph: Graph::new(),
            dims: form.dims,
            dtype: form.dtype,
            parameters: Vec::new(),
            outputs: Vec::new(),
            terms: Vec::new(),
            factors: None,
        };
        let [heads, queries, keys, width] = form.dims;
        let [q, gradient] = [(); 2].map(|()| this.parameter(form.dtype, &[heads, queries, width]));
        let [k, v] = [(); 2].map(|()| this.parameter(form.dtype, &[heads, keys, width]));
        let forward = this.forward(form, q, k);
        let result = this.dot(forward.kept, v, [2, 1]);
        this.outputs.push(("result", result));
        this.terms.extend([
            ("q", q),
            ("k", k),
            ("v", v),
            ("do", gradient),
            ("p", forward.kept),
            ("weights", forward.weights),
            ("scores", forward.masked),
        ]);
        if form.returns_weights {
            this.outputs.extend([("weights", forward.weights), ("scores", forward.masked)]);
        }
        if form.trains {
            let dv = this.dot(forward.kept, gradient, [1, 1]);
            this.outputs.push(("dv", dv));
            let ds = this.backward(form, &forward, gradient, v);
            let (dq, dk) = (this.dot(ds, k, [2, 1]), this.dot(ds, q, [1, 1]));
            this.outputs.extend([("dq", dq), ("dk", dk)]);
        }
        this
    }

    pub(super) fn program(&self) -> Program {
        self.program_of(&self.outputs)
    }

    pub(super) fn program_of(&self, outputs: &[(&str, NodeId)]) -> Program {
        let outputs: Vec<NodeId> = outputs.iter().map(|&(_, id)| id).collect();
        Program::extract(&self.graph, &outputs).unwrap()
    }

    fn parameter(&mut self, dtype: DType, dims: &[usize]) -> NodeId {
        let ty = TensorType::new(dtype, dims);
        self.parameters.push(ty.clone());
        self.graph.add(Op::Parameter { index: self.parameters.len() as u32 - 1, ty }, &[]).unwrap()
    }

    fn scores(&self) -> [usize; 3] {
        [self.dims[0], self.dims[1], self.dims[2]]
    }

    /// Multiplies, for each head, over a dim of either value.
    fn dot(&mut self, lhs: NodeId, rhs: NodeId, [left, right]: [usize; 2]) -> NodeId {
        let attrs = DotAttrs::new([&[0], &[0]], [&[left], &[right]], self.dtype.accumulator());
        let product = self.graph.dot_general(lhs, rhs, attrs).unwrap();
        self.graph.convert(product, self.dtype).unwrap()
    }

    fn binary(&mut self, op: BinaryOp, lhs: NodeId, rhs: NodeId) -> NodeId {
        self.graph.binary(op, lhs, rhs).unwrap()
    }

    fn constant(&mut self, op: BinaryOp, lhs: NodeId, rhs: f64) -> NodeId {
        self.graph.binary_const(op, lhs, rhs).unwrap()
    }

    /// Returns which scores a mask hides.
    fn hidden(&mut self, how: How) -> NodeId {
        let [heads, _, keys] = self.scores();
        let scores = self.scores();
        let place = |this: &mut Self, dim: usize, plus: i64| {
            let place = this.graph.iota(DType::I32, &scores, dim).unwrap();
            this.graph.binary_const(BinaryOp::Add, place, plus).unwrap()
        };
        match how {
            How::Causal { ahead } => {
                let (last, key) = (place(self, 1, ahead), place(self, 2, 0));
                self.graph.compare(Direction::Gt, key, last).unwrap()
            }
            How::Window { before } => {
                let (first, key) = (place(self, 1, -before), place(self, 2, 0));
                self.graph.compare(Direction::Lt, key, first).unwrap()
            }
            How::Padding => {
                let padding = self.parameter(DType::Bool, &[heads, 1, keys]);
                self.graph.broadcast_to(padding, &scores).unwrap()
            }
            How::Data => self.parameter(DType::Bool, &scores),
        }
    }

    fn mask(&mut self, mask: &Mask, hidden: NodeId, scores: NodeId) -> NodeId {
        let number = match mask.fill {
            Fill::Given => {
                let number = self.parameter(self.dtype, &[]);
                self.graph.broadcast_like(number, scores).unwrap()
            }
            _ => self.graph.splat_like(scores, mask.number).unwrap(),
        };
        match mask.fill {
            Fill::Selected | Fill::Given => self.graph.select(hidden, number, scores).unwrap(),
            Fill::Kept => {
                let seen = self.graph.unary(UnaryOp::Not, hidden).unwrap();
                self.graph.select(seen, scores, number).unwrap()
            }
            Fill::Added => {
                let zeros = self.graph.splat_like(scores, 0.0).unwrap();
                let bias = self.graph.select(hidden, number, zeros).unwrap();
                self.binary(BinaryOp::Add, scores, bias)
            }
        }
    }

    fn forward(&mut self, form: &RandomAttention, q: NodeId, k: NodeId) -> Forward {
        let scores = self.dot(q, k, [2, 2]);
        let mut masked = self.constant(BinaryOp::Mul, scores, 0.5);
        let mut tanh = None;
        if form.softcap {
            let fraction = self.constant(BinaryOp::Div, masked, CAP);
            let bounded = self.graph.unary(UnaryOp::Tanh, fraction).unwrap();
            tanh = Some(bounded);
            masked = self.constant(BinaryOp::Mul, bounded, CAP);
        }
        if form.has_bias {
            let bias = self.parameter(form.dtype, &self.scores());
            masked = self.binary(BinaryOp::Add, masked, bias);
        }
        let mut hidden = Vec::new();
        for mask in &form.masks {
            hidden.push(self.hidden(mask.how));
            masked = self.mask(mask, hidden[hidden.len() - 1], masked);
        }
        // A softmax of 16-bit floats is computed in f32.
        let scores = self.graph.convert(masked, form.dtype.accumulator()).unwrap();
        let largest = (form.softmax != Softmax::Unshifted)
            .then(|| self.graph.accumulate_keepdim(Combine::Max, scores, 2).unwrap());
        let lowest = if self.dtype == DType::F64 { f64::MIN } else { f32::MIN.into() };
        let shift = match form.softmax {
            Softmax::Op => largest.map(|largest| self.constant(BinaryOp::Max, largest, lowest)),
            _ => largest,
        };
        let shifted = shift.map_or(scores, |shift| self.binary(BinaryOp::Sub, scores, shift));
        let exponentials = self.graph.unary(UnaryOp::Exp, shifted).unwrap();
        let unlimited = self.graph.accumulate_keepdim(Combine::Sum, exponentials, 2).unwrap();
        let sum = match (form.softmax, largest) {
            (Softmax::Op, _) => self.constant(BinaryOp::Max, unlimited, f32::MIN_POSITIVE.into()),
            (Softmax::Quiet, Some(largest)) => {
                let negative = self.graph.unary(UnaryOp::Neg, largest).unwrap();
                let one = self.graph.unary(UnaryOp::Exp, negative).unwrap();
                self.binary(BinaryOp::Add, unlimited, one)
            }
            _ => unlimited,
        };
        let weights = self.binary(BinaryOp::Div, exponentials, sum);
        let [weights, exponentials, sum, unlimited] =
            [weights, exponentials, sum, unlimited].map(|id| self.graph.convert(id, form.dtype).unwrap());
        let largest = largest.map(|id| self.graph.convert(id, form.dtype).unwrap());
        let kept = self.weighted(form, weights);
        Forward { tanh, hidden, masked, largest, exponentials, sum, unlimited, weights, kept }
    }

    /// Multiplies weights, or their gradients, with what the form says.
    fn weighted(&mut self, form: &RandomAttention, weights: NodeId) -> NodeId {
        let dims = self.scores();
        let factors = match (form.weights, self.factors) {
            (Weights::All, _) => return weights,
            (_, Some(factors)) => factors,
            (Weights::Dropped, None) => {
                let kept = self.parameter(DType::Bool, &dims);
                self.graph.convert(kept, form.dtype).unwrap()
            }
            (Weights::Scaled, None) => self.parameter(form.dtype, &dims),
        };
        self.factors = Some(factors);
        let weighted = self.binary(BinaryOp::Mul, weights, factors);
        if form.weights == Weights::Scaled {
            return self.constant(BinaryOp::Mul, weighted, SCALE);
        }
        // Each use of a number is an input of its own.
        let scale = self.parameter(form.dtype, &[]);
        let scale = self.graph.broadcast_like(scale, weighted).unwrap();
        self.binary(BinaryOp::Mul, weighted, scale)
    }

    /// Returns the gradient of the product of queries and keys.
    fn backward(&mut self, form: &RandomAttention, forward: &Forward, gradient: NodeId, v: NodeId) -> NodeId {
        let dp = self.dot(gradient, v, [2, 2]);
        let dp = self.weighted(form, dp);
        let one = self.graph.splat_like(forward.sum, 1.0).unwrap();
        let inverse = self.binary(BinaryOp::Div, one, forward.sum);
        let direct = self.binary(BinaryOp::Mul, dp, inverse);
        let negative = self.graph.unary(UnaryOp::Neg, forward.exponentials).unwrap();
        let square = self.binary(BinaryOp::Mul, forward.sum, forward.sum);
        let quotient = self.binary(BinaryOp::Div, negative, square);
        let through_sum = self.binary(BinaryOp::Mul, dp, quotient);
        let mut through_sum = self.graph.accumulate_keepdim(Combine::Sum, through_sum, 2).unwrap();
        if form.softmax == Softmax::Op {
            through_sum = self.zero_where(Direction::Lt, forward.unlimited, f32::MIN_POSITIVE.into(), through_sum);
        }
        let de = self.binary(BinaryOp::Add, direct, through_sum);
        let mut ds = self.binary(BinaryOp::Mul, de, forward.exponentials);
        self.terms.extend([("dp", dp), ("direct", direct), ("through sum", through_sum), ("de", de), ("shifted", ds)]);
        if let (Softmax::Op, Some(largest)) = (form.softmax, forward.largest) {
            ds = self.through_largest(forward.masked, largest, ds);
        }
        for (mask, &hidden) in form.masks.iter().zip(&forward.hidden).rev() {
            let zeros = self.graph.splat_like(ds, 0.0).unwrap();
            if mask.fill != Fill::Added {
                ds = self.graph.select(hidden, zeros, ds).unwrap();
            }
        }
        if form.has_bias {
            self.outputs.push(("dbias", ds));
        }
        if let Some(tanh) = forward.tanh {
            let square = self.binary(BinaryOp::Mul, tanh, tanh);
            let negative = self.graph.unary(UnaryOp::Neg, square).unwrap();
            let slope = self.constant(BinaryOp::Add, negative, 1.0);
            ds = self.binary(BinaryOp::Mul, ds, slope);
        }
        self.terms.push(("ds", ds));
        self.constant(BinaryOp::Mul, ds, 0.5)
    }

    fn zero_where(&mut self, direction: Direction, x: NodeId, bound: f64, value: NodeId) -> NodeId {
        let is_zero = self.graph.compare_const(direction, x, bound).unwrap();
        let zeros = self.graph.splat_like(value, 0.0).unwrap();
        self.graph.select(is_zero, zeros, value).unwrap()
    }

    /// Adds the gradient of the largest score of each row.
    fn through_largest(&mut self, masked: NodeId, largest: NodeId, ds: NodeId) -> NodeId {
        let [heads, queries, _] = self.scores();
        let negative = self.graph.unary(UnaryOp::Neg, ds).unwrap();
        let sum = self.graph.accumulate_keepdim(Combine::Sum, negative, 2).unwrap();
        let lowest = if self.dtype == DType::F64 { f64::MIN } else { f32::MIN.into() };
        let sum = self.zero_where(Direction::Lt, largest, lowest, sum);
        let places = self.graph.iota(DType::I32, &self.scores(), 2).unwrap();
        let (_, place) = self.graph.arg_reduce(true, masked, places, 2).unwrap();
        let place = self.graph.reshape(place, &[heads, queries, 1]).unwrap();
        let updates = self.graph.reshape(sum, &[heads, queries, 1]).unwrap();
        let zeros = self.graph.splat_like(ds, 0.0).unwrap();
        let place = self.graph.reshape(place, &[heads, queries, 1, 1]).unwrap();
        let scattered = self.graph.scatter(zeros, place, updates, testing::scatter_to_rows(3)).unwrap();
        self.binary(BinaryOp::Add, ds, scattered)
    }
}
