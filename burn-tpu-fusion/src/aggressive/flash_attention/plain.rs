//! The plain forms of attention's kernels: what the calls mean, for every engine that is no TPU.
//!
//! They are attention as it is defined, without blocks, on the kernels' operands. Scores and sums are f32, and the factors
//! of products have the element type, as in the kernels.

use burn_tpu_graph::op::{BinaryOp, Combine, Direction, DotAttrs, UnaryOp};
use burn_tpu_graph::{Builder, DType, Graph, GraphError, NodeId, Number, Op, Program, TensorType};
use burn_tpu_kernels::kernels::attention::{Attention, Dropped};
use burn_tpu_kernels::{ArrayType, Element};

type Result<T> = std::result::Result<T, GraphError>;

/// Returns the type of an array of a kernel.
fn tensor(ty: &ArrayType) -> TensorType {
    let dtype = match ty.element {
        Element::Bool => DType::Bool,
        Element::I8 => DType::I8,
        Element::I32 => DType::I32,
        Element::BF16 => DType::BF16,
        Element::F32 => DType::F32,
    };
    TensorType::new(dtype, &ty.dims)
}

/// The words of the state of a draw.
pub(super) const STATE_WORDS: usize = 4;

/// The graph of a plain form, whose parameters are the operands of a kernel.
struct Plain<'a> {
    graph: Graph,
    attention: &'a Attention,
    operands: Vec<NodeId>,
}

/// Returns the plain form of the forward kernel. `state` is the length of the operand that begins with the state of a draw.
pub(super) fn forward(attention: &Attention, state: usize) -> Result<Program> {
    let mut plain = Plain::new(attention, 3, state)?;
    let scores = plain.scores()?.0;
    let g = &mut plain.graph;
    let largest = g.accumulate_keepdim(Combine::Max, scores, 3)?;
    // A row that sees no key has the sum 0.
    let largest = g.binary_const(BinaryOp::Max, largest, EMPTY)?;
    let shifted = g.binary(BinaryOp::Sub, scores, largest)?;
    let weights = g.unary(UnaryOp::Exp, shifted)?;
    let sum = g.accumulate_keepdim(Combine::Sum, weights, 3)?;
    let is_empty = g.compare_const(Direction::Eq, sum, 0.0)?;
    let one = g.splat_like(sum, 1.0)?;
    let sum = g.select(is_empty, one, sum)?;
    let kept = plain.without_dropped(Dropped::Weights, weights)?;
    let out = plain.product(kept, plain.operands[2], [3, 2])?;
    let g = &mut plain.graph;
    let out = g.binary(BinaryOp::Div, out, sum)?;
    let out = g.convert(out, tensor(&attention.query_type()).dtype)?;
    let log = g.unary(UnaryOp::Log, sum)?;
    let column = g.binary(BinaryOp::Add, largest, log)?;
    let row = g.reshape(column, &attention.row_type().dims)?;
    Program::extract(g, &[out, row])
}

/// Returns the plain form of the kernel of the queries' gradient.
pub(super) fn query_gradient(attention: &Attention, state: usize) -> Result<Program> {
    let mut plain = Plain::new(attention, 6, state)?;
    let (_, gradient) = plain.gradients()?;
    let sum = plain.product(gradient, plain.operands[1], [3, 2])?;
    let result = plain.finish(sum, f64::from(attention.scale))?;
    Program::extract(&plain.graph, &[result])
}

/// Returns the plain form of the kernel of the keys' and the values' gradients.
pub(super) fn key_gradient(attention: &Attention, state: usize) -> Result<Program> {
    let mut plain = Plain::new(attention, 6, state)?;
    let (weights, gradient) = plain.gradients()?;
    let of_keys = plain.product(gradient, plain.operands[0], [2, 2])?;
    let of_values = plain.product(weights, plain.operands[3], [2, 2])?;
    let (of_keys, of_values) = (plain.grouped(of_keys)?, plain.grouped(of_values)?);
    let results = [plain.finish(of_keys, f64::from(attention.scale))?, plain.finish(of_values, 1.0)?];
    Program::extract(&plain.graph, &results)
}

/// The maximum of no scores, as in the kernels.
const EMPTY: f64 = -1.2e38;
/// The score of a key that is not seen, as in the kernels.
pub(super) const HIDDEN: f64 = -2.4e38;

impl<'a> Plain<'a> {
    /// Creates a graph with the operands of a kernel: queries, keys and values, or these with the gradient and two rows, and
    /// then what masks the scores.
    fn new(attention: &'a Attention, count: usize, state: usize) -> Result<Self> {
        let (query, key, row) = (attention.query_type(), attention.key_type(), attention.row_type());
        let mut types: Vec<TensorType> =
            [&query, &key, &key, &query, &row, &row].into_iter().take(count).map(tensor).collect();
        for bias in &attention.biases {
            let dims = [bias.batch, bias.heads, bias.queries, attention.keys];
            types.push(tensor(&ArrayType::new(bias.element, dims)));
        }
        if attention.has_lengths {
            types.push(TensorType::new(DType::I32, [attention.batch]));
        }
        if attention.dropout.is_some() {
            types.push(TensorType::new(DType::I32, [state]));
        }
        let mut graph = Graph::new();
        let mut parameter = |(index, ty)| graph.add(Op::Parameter { index, ty }, &[]);
        let operands = (0..).zip(types).map(&mut parameter).collect::<Result<Vec<_>>>()?;
        Ok(Self { graph, attention, operands })
    }

    /// Adds a product of matrices that contracts these dims, in f32. The left factor is rounded to the element type.
    fn product(&mut self, lhs: NodeId, rhs: NodeId, [left, right]: [usize; 2]) -> Result<NodeId> {
        let lhs = self.graph.convert(lhs, tensor(&self.attention.query_type()).dtype)?;
        let attrs = DotAttrs::new([&[0, 1], &[0, 1]], [&[left], &[right]], DType::F32);
        // Each head of the keys serves a group of heads.
        let heads = self.attention.heads;
        let rhs = if self.graph.ty(rhs).dims[1] == heads { rhs } else { self.repeated(rhs)? };
        self.graph.dot_general(lhs, rhs, attrs)
    }

    /// Repeats keys or values for the heads of their groups.
    fn repeated(&mut self, x: NodeId) -> Result<NodeId> {
        let (dims, heads) = (self.graph.dims(x), self.attention.heads);
        let group = heads / self.attention.key_heads;
        let grouped = [dims[0], dims[1], group, dims[2], dims[3]];
        let repeated = self.graph.broadcast_in_dim(x, &grouped, &[0, 1, 3, 4])?;
        self.graph.reshape(repeated, &[dims[0], heads, dims[2], dims[3]])
    }

    /// Adds the scores, and the hyperbolic tangent that caps them if one does.
    fn scores(&mut self) -> Result<(NodeId, Option<NodeId>)> {
        let attention = self.attention;
        let biases = self.lengths() - attention.biases.len()..self.lengths();
        let products = self.product(self.operands[0], self.operands[1], [3, 3])?;
        let g = &mut self.graph;
        let cap = attention.softcap.map(f64::from);
        let mut scores = g.binary_const(BinaryOp::Mul, products, f64::from(attention.scale) / cap.unwrap_or(1.0))?;
        let mut tanh = None;
        if let Some(cap) = cap {
            let capped = g.unary(UnaryOp::Tanh, scores)?;
            (scores, tanh) = (g.binary_const(BinaryOp::Mul, capped, cap)?, Some(capped));
        }
        scores = self.without_dropped(Dropped::Scores, scores)?;
        let g = &mut self.graph;
        for &bias in &self.operands[biases] {
            let bias = g.convert(bias, DType::F32)?;
            scores = g.binary(BinaryOp::Add, scores, bias)?;
        }
        for seen in self.seen()? {
            let hidden = self.graph.splat_like(scores, HIDDEN)?;
            scores = self.graph.select(seen, scores, hidden)?;
        }
        Ok((scores, tanh))
    }

    /// Adds which keys are seen by which queries, a value for each reason.
    fn seen(&mut self) -> Result<Vec<NodeId>> {
        let &Attention { batch, heads, queries, keys, band, .. } = self.attention;
        let lengths = self.lengths();
        let (g, dims, mut seen) = (&mut self.graph, [batch, heads, queries, keys], Vec::new());
        let query = g.iota(DType::I32, &dims, 2)?;
        let query = g.binary_const(BinaryOp::Add, query, i64::from(band.offset))?;
        let key = g.iota(DType::I32, &dims, 3)?;
        let distance = g.binary(BinaryOp::Sub, key, query)?;
        if let Some(left) = band.left {
            seen.push(g.compare_const(Direction::Ge, distance, -i64::from(left))?);
        }
        if let Some(right) = band.right {
            seen.push(g.compare_const(Direction::Le, distance, i64::from(right))?);
        }
        if self.attention.has_lengths {
            let length = self.operands[lengths];
            let length = g.broadcast_in_dim(length, &dims, &[0])?;
            seen.push(g.compare(Direction::Lt, key, length)?);
        }
        Ok(seen)
    }

    /// Adds the probabilities, and the gradient of the products of queries and keys without the factor `scale`.
    fn gradients(&mut self) -> Result<(NodeId, NodeId)> {
        let (scores, tanh) = self.scores()?;
        let [batch, heads, queries] = [self.attention.batch, self.attention.heads, self.attention.queries];
        let column = [batch, heads, queries, 1];
        let [logsumexp, products] = [4, 5].map(|place| self.operands[place]);
        let g = &mut self.graph;
        let (logsumexp, products) = (g.reshape(logsumexp, &column)?, g.reshape(products, &column)?);
        let shifted = g.binary(BinaryOp::Sub, scores, logsumexp)?;
        let weights = g.unary(UnaryOp::Exp, shifted)?;
        let of_weights = self.product(self.operands[3], self.operands[2], [3, 3])?;
        let of_weights = self.without_dropped(Dropped::Weights, of_weights)?;
        let g = &mut self.graph;
        let centred = g.binary(BinaryOp::Sub, of_weights, products)?;
        let gradient = g.binary(BinaryOp::Mul, weights, centred)?;
        let mut gradient = self.without_dropped(Dropped::Scores, gradient)?;
        let g = &mut self.graph;
        if let Some(tanh) = tanh {
            let square = g.binary(BinaryOp::Mul, tanh, tanh)?;
            let one = g.splat_like(square, 1.0)?;
            let slope = g.binary(BinaryOp::Sub, one, square)?;
            gradient = g.binary(BinaryOp::Mul, gradient, slope)?;
        }
        Ok((self.without_dropped(Dropped::Weights, weights)?, gradient))
    }

    /// Returns the place of the lengths among the operands: after all but the state of the draw.
    fn lengths(&self) -> usize {
        let last = [self.attention.has_lengths, self.attention.dropout.is_some()];
        self.operands.len() - last.into_iter().map(usize::from).sum::<usize>()
    }

    /// Adds numbers, or their gradient, with 0 for those that are dropped.
    fn without_dropped(&mut self, of: Dropped, numbers: NodeId) -> Result<NodeId> {
        let dropout = self.attention.dropout.filter(|dropout| dropout.of == of);
        let Some(dropout) = dropout else { return Ok(numbers) };
        let g = &mut self.graph;
        let words = g.slice_dim(self.operands[self.operands.len() - 1], 0, 0, STATE_WORDS)?;
        let words = g.bitcast_convert(words, DType::U32)?;
        let words = g.convert(words, DType::U64)?;
        let words = g.reshape(words, &[2, 2])?;
        let [low, high] = [g.slice_dim(words, 1, 0, 1)?, g.slice_dim(words, 1, 1, 2)?];
        let high = g.binary_const(BinaryOp::ShiftLeft, high, Number::UInt(32))?;
        let state = g.binary(BinaryOp::Or, high, low)?;
        let state = g.reshape(state, &[2])?;
        let dims = g.dims(numbers);
        let (_, bits) = g.rng_bit_generator(state, DType::U32, &dims)?;
        let is_kept = g.compare_const(Direction::Le, bits, Number::UInt(dropout.most.into()))?;
        let zero = g.splat_like(numbers, 0.0)?;
        g.select(is_kept, numbers, zero)
    }

    /// Adds the sum over the heads of each group.
    fn grouped(&mut self, sum: NodeId) -> Result<NodeId> {
        let (dims, key_heads) = (self.graph.dims(sum), self.attention.key_heads);
        let grouped = self.graph.reshape(sum, &[dims[0], key_heads, dims[1] / key_heads, dims[2], dims[3]])?;
        self.graph.accumulate(Combine::Sum, grouped, &[2])
    }

    /// Adds a sum times a factor, in the element type.
    fn finish(&mut self, sum: NodeId, factor: f64) -> Result<NodeId> {
        let scaled = self.graph.binary_const(BinaryOp::Mul, sum, factor)?;
        self.graph.convert(scaled, tensor(&self.attention.query_type()).dtype)
    }
}
