//! Attention of many forms, as autodiff records it, and the attention that the kernels must compute for it.

use burn_tpu_graph::op::{BinaryOp, Combine, Direction, DotAttrs, UnaryOp};
use burn_tpu_graph::{Builder, DType, Graph, NodeId, Number, Op, Program, TensorType};
use burn_tpu_kernels::Element;
use burn_tpu_kernels::kernels::attention::{Attention, Band, Bias, Dropout, Dropped};

/// What random attention is made of.
#[derive(Clone, Debug)]
pub struct Form {
    /// Batch, heads, queries, keys, width.
    pub dims: [usize; 5],
    /// The keys after a query that it sees, and how many before them if there is a window; `None` sees all.
    pub ahead: Option<i64>,
    pub window: Option<i64>,
    /// The number that masks a score, and how: 0 selects it, 1 selects the others, 2 adds it.
    pub fill: f64,
    pub how: usize,
    pub has_bias: bool,
    pub cap: Option<f64>,
    /// Whether each sequence has a number of keys, and how the mask says so: 0 hides keys from it on, 1 shows those before.
    pub lengths: Option<usize>,
    /// Along which of batch, heads and queries a mask of data varies, if there is one.
    pub of_data: Option<[bool; 3]>,
    /// How it is written: 0 selects, 1 is one with the mask of positions, 2 adds.
    pub how_data: usize,
    /// What is dropped, if anything is.
    pub dropped: Option<Dropped>,
    /// Whether the scale is a number that is known at run time.
    pub is_slot: bool,
    /// Whether the gradient is recorded as autodiff does for a division, and not in closed form.
    pub is_quotient: bool,
    /// Whether keys are transposed before their product, and their gradient after it.
    pub is_turned: bool,
    pub dtype: DType,
}

/// The scale; that of a slot is the interpreter's.
const SCALE: f64 = 0.5;
pub const SLOT: f64 = 0.25;
/// Of the words of a draw, the largest that keeps its number: four of five do.
const MOST: u32 = u32::MAX / 5 * 4;
/// The factor of those that are kept.
const OF_KEPT: f64 = 1.25;

impl Form {
    /// Whether one mask hides by position and by data.
    fn is_joined(&self) -> bool {
        self.how_data == 1 && self.ahead.is_some() && self.how < 2
    }

    /// Returns the biases that the kernels read.
    fn biases(&self) -> Vec<Bias> {
        let [batch, heads, queries, ..] = self.dims;
        let dims =
            |[b, h, q]: [bool; 3]| [if b { batch } else { 1 }, if h { heads } else { 1 }, if q { queries } else { 1 }];
        let of_bias = self.has_bias.then(|| (dims([false, true, true]), self.dtype == DType::BF16));
        // A sum of numbers in the element type, or bool.
        let is_narrow = self.how_data != 2 || self.dtype == DType::BF16;
        let of_data = self.of_data.map(|varies| (dims(varies), is_narrow));
        let mut found: Vec<([usize; 3], bool)> = Vec::new();
        for (dims, is_narrow) in of_bias.into_iter().chain(of_data) {
            match found.iter_mut().find(|(known, _)| *known == dims) {
                Some((_, known)) => *known &= is_narrow,
                None => found.push((dims, is_narrow)),
            }
        }
        let bias = |([batch, heads, queries], is_narrow): ([usize; 3], bool)| {
            let element = if is_narrow && queries > 1 { Element::BF16 } else { Element::F32 };
            Bias { element, batch, heads, queries }
        };
        found.into_iter().map(bias).collect()
    }
}

/// A program that is being recorded.
pub struct Recorded {
    graph: Graph,
    scores: [usize; 4],
    dtype: DType,
    parameters: u32,
    of_lengths: Option<NodeId>,
    of_data: Option<NodeId>,
    given: DType,
}

impl Recorded {
    fn parameter(&mut self, dims: &[usize]) -> NodeId {
        self.parameters += 1;
        let op = Op::Parameter { index: self.parameters - 1, ty: TensorType::new(self.given, dims) };
        let parameter = self.graph.add(op, &[]).unwrap();
        self.graph.convert(parameter, self.dtype).unwrap()
    }

    fn dot(&mut self, lhs: NodeId, rhs: NodeId, [left, right]: [usize; 2]) -> NodeId {
        let attrs = DotAttrs::new([&[0, 1], &[0, 1]], [&[left], &[right]], DType::F32);
        let product = self.graph.dot_general(lhs, rhs, attrs).unwrap();
        self.graph.convert(product, self.dtype).unwrap()
    }

    fn binary(&mut self, op: BinaryOp, lhs: NodeId, rhs: NodeId) -> NodeId {
        self.graph.binary(op, lhs, rhs).unwrap()
    }

    fn constant(&mut self, op: BinaryOp, x: NodeId, number: f64) -> NodeId {
        self.graph.binary_const(op, x, number).unwrap()
    }

    fn hidden(&mut self, ahead: i64, window: Option<i64>) -> NodeId {
        let [query, key] = [2, 3].map(|dim| self.graph.iota(DType::I32, &self.scores, dim).unwrap());
        let last = self.graph.binary_const(BinaryOp::Add, query, ahead).unwrap();
        let after = self.graph.compare(Direction::Gt, key, last).unwrap();
        let Some(window) = window else { return after };
        let first = self.graph.binary_const(BinaryOp::Sub, last, window).unwrap();
        let before = self.graph.compare(Direction::Lt, key, first).unwrap();
        self.binary(BinaryOp::Or, after, before)
    }

    /// Returns a value without the keys after each sequence's length.
    fn padded(&mut self, form: &Form, x: NodeId, is_gradient: bool) -> NodeId {
        let Some(how) = form.lengths else { return x };
        let [batch, _, _, keys] = self.scores;
        let lengths = self.lengths(batch, keys);
        let g = &mut self.graph;
        let lengths = g.reshape(lengths, &[batch, 1]).unwrap();
        let lengths = g.broadcast_to(lengths, &[batch, keys]).unwrap();
        let places = g.iota(DType::I32, &[batch, keys], 1).unwrap();
        let direction = if how == 0 { Direction::Ge } else { Direction::Lt };
        let mask = g.compare(direction, places, lengths).unwrap();
        let mask = g.reshape(mask, &[batch, 1, 1, keys]).unwrap();
        let mask = g.broadcast_to(mask, &self.scores).unwrap();
        let fill = g.splat_like(x, if is_gradient { 0.0 } else { form.fill }).unwrap();
        if how == 0 { g.select(mask, fill, x) } else { g.select(mask, x, fill) }.unwrap()
    }

    /// Returns lengths from a parameter: at least 1, so that causal attention sees a key, and up to all.
    fn lengths(&mut self, batch: usize, keys: usize) -> NodeId {
        let of_any = match self.of_lengths {
            Some(parameter) => parameter,
            None => {
                let op = Op::Parameter { index: self.parameters, ty: TensorType::new(DType::I32, [batch]) };
                self.parameters += 1;
                *self.of_lengths.insert(self.graph.add(op, &[]).unwrap())
            }
        };
        let rest = self.graph.binary_const(BinaryOp::Rem, of_any, keys as i64).unwrap();
        self.graph.binary_const(BinaryOp::Add, rest, 1).unwrap()
    }

    /// Returns which scores data hides: never those of the first key.
    fn hidden_by_data(&mut self, varies: [bool; 3]) -> NodeId {
        let [batch, heads, queries, keys] = self.scores;
        let own = |varies: bool, size: usize| if varies { size } else { 1 };
        let dims = [own(varies[0], batch), own(varies[1], heads), own(varies[2], queries), keys];
        let data = match self.of_data {
            Some(parameter) => parameter,
            None => {
                let parameter = self.parameter(&dims);
                *self.of_data.insert(parameter)
            }
        };
        let data = self.graph.broadcast_to(data, &self.scores).unwrap();
        let hidden = self.graph.compare_const(Direction::Gt, data, 0.5).unwrap();
        let key = self.graph.iota(DType::I32, &self.scores, 3).unwrap();
        let is_late = self.graph.compare_const(Direction::Gt, key, 0).unwrap();
        self.binary(BinaryOp::And, hidden, is_late)
    }

    /// Returns a value without what data hides, unless the mask of positions does so.
    fn without_data(&mut self, form: &Form, x: NodeId, is_gradient: bool) -> NodeId {
        let Some(varies) = form.of_data.filter(|_| !form.is_joined()) else { return x };
        let hidden = self.hidden_by_data(varies);
        let fill = self.graph.splat_like(x, if is_gradient { 0.0 } else { form.fill }).unwrap();
        match form.how_data {
            2 if is_gradient => x,
            2 => {
                let zeros = self.graph.splat_like(x, 0.0).unwrap();
                let mask = self.graph.select(hidden, fill, zeros).unwrap();
                self.binary(BinaryOp::Add, x, mask)
            }
            _ => self.graph.select(hidden, fill, x).unwrap(),
        }
    }

    fn masked(&mut self, form: &Form, x: NodeId, is_gradient: bool) -> NodeId {
        let x = self.padded(form, x, is_gradient);
        let x = self.without_data(form, x, is_gradient);
        let Some(ahead) = form.ahead else { return x };
        let mut hidden = self.hidden(ahead, form.window);
        if let Some(varies) = form.of_data.filter(|_| form.is_joined()) {
            let by_data = self.hidden_by_data(varies);
            hidden = self.binary(BinaryOp::Or, hidden, by_data);
        }
        let fill = self.graph.splat_like(x, if is_gradient { 0.0 } else { form.fill }).unwrap();
        match form.how {
            0 => self.graph.select(hidden, fill, x).unwrap(),
            1 => {
                let seen = self.graph.unary(UnaryOp::Not, hidden).unwrap();
                self.graph.select(seen, x, fill).unwrap()
            }
            _ if is_gradient => x,
            _ => {
                let zeros = self.graph.splat_like(x, 0.0).unwrap();
                let mask = self.graph.select(hidden, fill, zeros).unwrap();
                self.binary(BinaryOp::Add, x, mask)
            }
        }
    }

    /// Returns a value times the scale. That of the gradient is another slot.
    fn scaled(&mut self, form: &Form, x: NodeId, index: u32) -> NodeId {
        if !form.is_slot {
            return self.constant(BinaryOp::Mul, x, SCALE);
        }
        let slot = self.graph.add(Op::Slot { index, dtype: DType::F32 }, &[]).unwrap();
        let slot = self.graph.convert(slot, self.dtype).unwrap();
        self.binary(BinaryOp::Mul, x, slot)
    }

    /// Returns numbers, or their gradient, of which some are dropped and the others are scaled, if the form drops these.
    fn dropped(&mut self, form: &Form, of: Dropped, x: NodeId) -> NodeId {
        if form.dropped != Some(of) {
            return x;
        }
        let g = &mut self.graph;
        let state = g.splat(DType::U64, &[2], Number::UInt(0x1234_5678_9abc)).unwrap();
        let (_, words) = g.rng_bit_generator(state, DType::U32, &self.scores).unwrap();
        let is_kept = g.compare_const(Direction::Le, words, Number::UInt(MOST.into())).unwrap();
        let kept = g.convert(is_kept, self.dtype).unwrap();
        let kept = self.binary(BinaryOp::Mul, x, kept);
        self.constant(BinaryOp::Mul, kept, OF_KEPT)
    }

    fn summed(&mut self, x: NodeId) -> NodeId {
        let sum = self.graph.accumulate_keepdim(Combine::Sum, x, 3).unwrap();
        self.graph.broadcast_like(sum, x).unwrap()
    }

    /// Returns the program of attention and the gradients of its arguments, in a type, of arguments in the form's type.
    pub fn program(form: &Form, dtype: DType) -> Program {
        let [batch, heads, queries, keys, width] = form.dims;
        let scores = [batch, heads, queries, keys];
        let mut r = Self {
            graph: Graph::new(),
            scores,
            dtype,
            parameters: 0,
            of_lengths: None,
            of_data: None,
            given: form.dtype,
        };
        let [q, gradient] = [(); 2].map(|()| r.parameter(&[batch, heads, queries, width]));
        let [k, v] = [(); 2].map(|()| r.parameter(&[batch, heads, keys, width]));
        let scores = match form.is_turned {
            true => {
                let turned = r.graph.transpose(k, &[0, 1, 3, 2]).unwrap();
                r.dot(q, turned, [3, 2])
            }
            false => r.dot(q, k, [3, 3]),
        };
        let z = r.scaled(form, scores, 0);
        let mut z = r.dropped(form, Dropped::Scores, z);
        let mut tanh = None;
        if let Some(cap) = form.cap {
            let fraction = r.constant(BinaryOp::Div, z, cap);
            let bounded = r.graph.unary(UnaryOp::Tanh, fraction).unwrap();
            (z, tanh) = (r.constant(BinaryOp::Mul, bounded, cap), Some(bounded));
        }
        if form.has_bias {
            let bias = r.parameter(&[1, heads, queries, keys]);
            let bias = r.graph.broadcast_like(bias, z).unwrap();
            z = r.binary(BinaryOp::Add, z, bias);
        }
        let masked = r.masked(form, z, false);
        let largest = r.graph.accumulate_keepdim(Combine::Max, masked, 3).unwrap();
        let shifted = r.binary(BinaryOp::Sub, masked, largest);
        let e = r.graph.unary(UnaryOp::Exp, shifted).unwrap();
        let l = r.summed(e);
        let probabilities = r.binary(BinaryOp::Div, e, l);
        let weights = r.dropped(form, Dropped::Weights, probabilities);
        let result = r.dot(weights, v, [3, 2]);
        let dv = r.dot(weights, gradient, [2, 2]);
        let dp = r.dot(gradient, v, [3, 3]);
        let dp = r.dropped(form, Dropped::Weights, dp);
        let ds = if form.is_quotient {
            let one = r.graph.splat_like(l, 1.0).unwrap();
            let inverse = r.binary(BinaryOp::Div, one, l);
            let of_quotient = r.binary(BinaryOp::Mul, dp, inverse);
            let negative = r.graph.unary(UnaryOp::Neg, e).unwrap();
            let square = r.constant(BinaryOp::Pow, l, 2.0);
            let quotient = r.binary(BinaryOp::Div, negative, square);
            let products = r.binary(BinaryOp::Mul, dp, quotient);
            let of_sum = r.summed(products);
            let sum = r.binary(BinaryOp::Add, of_quotient, of_sum);
            r.binary(BinaryOp::Mul, sum, e)
        } else {
            let products = r.binary(BinaryOp::Mul, dp, probabilities);
            let sums = r.summed(products);
            let centred = r.binary(BinaryOp::Sub, dp, sums);
            r.binary(BinaryOp::Mul, probabilities, centred)
        };
        let mut ds = r.masked(form, ds, true);
        if let Some(tanh) = tanh {
            let square = r.binary(BinaryOp::Mul, tanh, tanh);
            let one = r.graph.splat_like(square, 1.0).unwrap();
            let slope = r.binary(BinaryOp::Sub, one, square);
            ds = r.binary(BinaryOp::Mul, ds, slope);
        }
        let ds = r.dropped(form, Dropped::Scores, ds);
        let ds = r.scaled(form, ds, 1);
        let dq = r.dot(ds, k, [3, 2]);
        let dk = match form.is_turned {
            true => {
                let turned = r.dot(q, ds, [2, 2]);
                r.graph.transpose(turned, &[0, 1, 3, 2]).unwrap()
            }
            false => r.dot(ds, q, [2, 2]),
        };
        let results = [result, dq, dk, dv].map(|id| r.graph.convert(id, DType::F32).unwrap());
        Program::extract(&r.graph, &results).unwrap()
    }

    /// Returns the attention that the kernels must compute.
    pub fn attention(form: &Form) -> Attention {
        let [batch, heads, queries, keys, width] = form.dims;
        let element = if form.dtype == DType::BF16 { Element::BF16 } else { Element::F32 };
        let (first, last) = (1 - queries as i64, keys as i64 - 1);
        let right = form.ahead.filter(|ahead| *ahead < last);
        let left = form.ahead.zip(form.window).map(|(ahead, window)| ahead - window).filter(|from| *from > first);
        let scale = if form.is_slot { 1.0 } else { SCALE };
        let of_kept = if form.dropped == Some(Dropped::Scores) { OF_KEPT } else { 1.0 };
        Attention {
            scale: (scale * of_kept) as f32,
            softcap: form.cap.map(|cap| cap as f32),
            band: Band { left: left.map(|from| -from as i32), right: right.map(|to| to as i32), offset: 0 },
            has_lengths: form.lengths.is_some(),
            biases: form.biases(),
            dropout: form.dropped.map(|of| Dropout::new(MOST, of)),
            ..Attention::new(element, batch, heads, queries, keys, width)
        }
    }
}
