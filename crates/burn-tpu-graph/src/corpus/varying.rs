//! Random programs whose sizes vary: one seed gives the same ops at every size.
//!
//! Every number stays small and whole, and sums are of f32, so that nothing rounds and no result depends on the order of a
//! sum. Arguments may be NaN and infinite, and the padding of a buffer is NaN, or a position that exists.

use crate::family::{Family, Numbers, Padded, in_buffer, out_of_buffer};
use crate::op::{
    BinaryOp, Combine, ConvAttrs, ConvDims, Direction, DotAttrs, GatherAttrs, Precision, ScatterAttrs, ScatterMode,
    UnaryOp, WindowAttrs,
};
use crate::{Builder, DType, Dims, Graph, Literal, NodeId, Number, Op, Program, Result, TensorType};
use smallvec::smallvec;
use std::sync::Arc;

/// The number of sizes that vary.
pub const SIZES: usize = 2;

/// The varying sizes of the recordings that tell a family.
pub const SEEN: [[usize; SIZES]; 3] = [[3, 5], [5, 11], [8, 13]];

/// Varying sizes to try a family with.
pub const TRIED: [[usize; SIZES]; 8] = [[3, 5], [2, 4], [4, 13], [8, 14], [2, 7], [6, 2], [1, 6], [5, 1]];

/// A bucket that has room for all of them.
pub const BUCKETS: [i64; 4] = [16; 4];

/// A random program, to be tried at several sizes.
#[derive(Clone, Copy, Debug)]
pub struct Trial {
    /// What the program is made of.
    pub seed: u64,
    /// The number of its steps.
    pub steps: usize,
    /// The type of its floats: f32, or bf16.
    pub float: DType,
}

/// The arguments of a run: the bytes of the parameters, and the slots.
#[derive(Clone, Debug)]
pub struct Run {
    /// By index.
    pub parameters: Vec<Vec<u8>>,
    /// By index.
    pub slots: Vec<u64>,
}

/// Pseudorandom numbers below a bound.
fn numbers(seed: u64) -> impl FnMut(i64) -> i64 {
    let mut state = seed + 1;
    move |bound| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as i64 % bound
    }
}

impl Trial {
    /// Returns a program to be tried. Every third seed gives one in bf16.
    pub const fn new(seed: u64, steps: usize) -> Self {
        let float = if seed % 3 == 2 { DType::BF16 } else { DType::F32 };
        Self { seed, steps, float }
    }

    /// Returns the program for these sizes; `None` if an op refuses them.
    pub fn program(&self, sizes: [usize; SIZES]) -> Option<Arc<Program>> {
        program(self, sizes).ok().map(Arc::new)
    }

    /// Returns small whole numbers for a program; with NaN and infinities if they are to be `special`. The slots are the
    /// same at every size.
    pub fn run(&self, program: &Program, special: bool) -> Run {
        let parameters = program.parameters().map(|(index, ty)| {
            let mut next = numbers(self.seed + u64::from(index));
            let element = |_| {
                let number = match next(if special { 14 } else { 11 }) {
                    11 if ty.dtype.is_float() => Number::Float(f64::NAN),
                    12 if ty.dtype.is_float() => Number::Float(f64::INFINITY),
                    13 if ty.dtype.is_float() => Number::Float(f64::NEG_INFINITY),
                    number => Number::Int(number - 4),
                };
                number.bits(ty.dtype).to_le_bytes()[..ty.dtype.size_bytes()].to_vec()
            };
            (0..ty.elements()).flat_map(element).collect()
        });
        let parameters = parameters.collect();
        let mut next = numbers(self.seed ^ 77);
        let slots = program.slots().map(|(_, _, dtype)| Number::Int(next(9) - 1).bits(dtype)).collect();
        Run { parameters, slots }
    }

    fn numbers(&self, program: &Program) -> Numbers {
        Numbers::of(program, &self.run(program, false).slots)
    }

    /// Returns the family that the recordings of [`SEEN`] tell.
    pub fn family(&self) -> Option<Family> {
        let mut recordings = Vec::new();
        for sizes in SEEN {
            let program = self.program(sizes)?;
            let numbers = self.numbers(&program);
            recordings.push((program, numbers));
        }
        let is_one = recordings.iter().all(|(_, numbers)| numbers.skeleton == recordings[0].1.skeleton);
        if is_one { Family::of(&recordings) } else { None }
    }

    /// Returns the family's program for [`BUCKETS`].
    ///
    /// # Errors
    /// The op that has no exact form; none of these programs has one.
    pub fn padded(&self, family: &Family) -> Result<Padded> {
        let slots = self.program(SEEN[0]).map_or(0, |program| program.slots().count());
        family.padded(&BUCKETS, slots as u32)
    }

    /// Returns the varying sizes of the program of these sizes, if it is of the family and fits [`BUCKETS`].
    pub fn member(&self, family: &Family, padded: &Padded, sizes: [usize; SIZES]) -> Option<Vec<i64>> {
        let numbers = self.numbers(&*self.program(sizes)?);
        let is_like = self.program(SEEN[0]).is_some_and(|seen| self.numbers(&seen).skeleton == numbers.skeleton);
        let found = family.sizes(&numbers).filter(|_| is_like)?;
        let has_room = family.least_buckets(&found).iter().zip(BUCKETS).all(|(least, bucket)| *least <= bucket);
        let is_exact = padded.at_least_zero.iter().all(|size| size.at(&found).is_some_and(|number| number >= 0));
        (has_room && is_exact).then_some(found)
    }

    /// Returns the arguments of the program for a bucket: those of the recorded one in larger buffers.
    pub fn padded_run(&self, exact: &Program, run: &Run, padded: &Padded, sizes: &[i64]) -> Run {
        let types: Vec<&TensorType> = exact.parameters().map(|(_, ty)| ty).collect();
        let parameter = |(index, larger): (u32, &TensorType)| {
            let recorded = padded.bindings.parameters[index as usize] as usize;
            let (ty, size) = (types[recorded], larger.dtype.size_bytes());
            let is_true = in_buffer(&vec![1; ty.bytes()], ty, larger);
            let mut bytes = in_buffer(&run.parameters[recorded], ty, larger);
            let junk = if larger.dtype.is_float() { Number::Float(f64::NAN) } else { Number::Int(1) };
            for (place, element) in bytes.chunks_mut(size).enumerate() {
                if is_true[place * size] == 0 {
                    element.copy_from_slice(&junk.bits(larger.dtype).to_le_bytes()[..size]);
                }
            }
            bytes
        };
        let all: Vec<u64> = run.slots.iter().copied().chain(sizes.iter().map(|&size| size as u64)).collect();
        Run {
            parameters: padded.program.parameters().map(parameter).collect(),
            slots: padded.bindings.slots.iter().map(|&index| all[index as usize]).collect(),
        }
    }

    /// Returns what differs between the results of both programs, of which all NaN are one.
    pub fn difference(exact: &Program, expected: &[Vec<u8>], padded: &Padded, results: &[Vec<u8>]) -> Option<String> {
        let types = exact.output_types().zip(padded.program.output_types());
        for (number, (ty, larger)) in types.enumerate() {
            let (ours, right) = (out_of_buffer(&results[number], ty, larger), &expected[number]);
            let (ours, right) = (with_one_nan(ty.dtype, &ours), with_one_nan(ty.dtype, right));
            if ours != right {
                return Some(format!("output {number}, {ty} in {larger}: {ours:?} for {right:?}"));
            }
        }
        None
    }
}

/// Returns f32 or bf16 numbers with one NaN and one zero: sums of nothing but -0 may begin with +0.
fn with_one_nan(dtype: DType, bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    if !dtype.is_float() {
        return bytes;
    }
    for element in bytes.chunks_mut(dtype.size_bytes()) {
        // The bytes of a bf16 number are the last two of an f32's.
        let first = 4 - element.len();
        let mut wide = [0; 4];
        wide[first..].copy_from_slice(element);
        match f32::from_le_bytes(wide) {
            0.0 => element.fill(0),
            number if number.is_nan() => element.copy_from_slice(&f32::NAN.to_le_bytes()[first..]),
            _ => {}
        }
    }
    bytes
}

/// A size in a program: a number times a product of varying sizes, and more.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Dim {
    factor: usize,
    of: [usize; SIZES],
    added: isize,
}

impl Dim {
    const fn fixed(factor: usize) -> Self {
        Self { factor, of: [0; SIZES], added: 0 }
    }

    const fn varying(index: usize) -> Self {
        let mut of = [0; SIZES];
        of[index] = 1;
        Self { factor: 1, of, added: 0 }
    }

    fn at(&self, sizes: [usize; SIZES]) -> usize {
        let product: usize = sizes.iter().zip(self.of).map(|(size, power)| size.pow(power as u32)).product();
        (self.factor * product).checked_add_signed(self.added).unwrap_or(0)
    }

    fn times(&self, other: &Self) -> Option<Self> {
        let of = [self.of[0] + other.of[0], self.of[1] + other.of[1]];
        let is_plain = self.added == 0 && other.added == 0 && of.iter().sum::<usize>() <= 2;
        is_plain.then_some(Self { factor: self.factor * other.factor, of, added: 0 })
    }

    fn is_fixed(&self) -> bool {
        self.of == [0; SIZES]
    }
}

#[derive(Clone)]
struct Value {
    node: NodeId,
    dims: Vec<Dim>,
}

struct Maker {
    graph: Graph,
    values: Vec<Value>,
    sizes: [usize; SIZES],
    float: DType,
    state: u64,
    slots: u32,
}

/// Returns a program for these varying sizes. Its outputs are its last values.
///
/// # Errors
/// If an op refuses a size, such as 0.
fn program(&Trial { seed, steps, float }: &Trial, sizes: [usize; SIZES]) -> Result<Program> {
    let state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut maker = Maker { graph: Graph::new(), values: Vec::new(), sizes, float, state, slots: 0 };
    let [b, n] = [Dim::varying(0), Dim::varying(1)];
    let (four, six) = (Dim::fixed(4), Dim::fixed(6));
    maker.parameter(float, &[b.clone(), n.clone(), four.clone()])?;
    maker.parameter(float, &[n.clone(), six.clone()])?;
    maker.parameter(DType::I32, &[n])?;
    maker.parameter(float, &[four, six])?;
    maker.parameter(float, &[b, Dim::fixed(3)])?;
    for _ in 0..steps {
        maker.step()?;
    }
    let first = maker.values.len().saturating_sub(4);
    let outputs: Vec<NodeId> = maker.values[first..].iter().map(|value| value.node).collect();
    Program::canonical(&maker.graph, &outputs).map(|(program, _)| program)
}

impl Maker {
    fn next(&mut self, bound: usize) -> usize {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        ((self.state >> 20) % bound.max(1) as u64) as usize
    }

    fn dims(&self, dims: &[Dim]) -> Dims {
        dims.iter().map(|dim| dim.at(self.sizes)).collect()
    }

    fn parameter(&mut self, dtype: DType, dims: &[Dim]) -> Result<()> {
        let (index, ty) = (self.values.len() as u32, TensorType::new(dtype, self.dims(dims)));
        let node = self.graph.add(Op::Parameter { index, ty }, &[])?;
        self.values.push(Value { node, dims: dims.to_vec() });
        Ok(())
    }

    /// Keeps a value, small.
    fn push(&mut self, node: NodeId, dims: Vec<Dim>) -> Result<()> {
        let node = match self.graph.dtype(node) {
            DType::Bool => self.graph.convert(node, self.float)?,
            _ => node,
        };
        let node = self.graph.binary_const(BinaryOp::Rem, node, 7i64)?;
        self.values.push(Value { node, dims });
        Ok(())
    }

    fn pick(&mut self) -> Value {
        let number = self.next(self.values.len());
        // The latest values more often.
        let later = self.next(2) == 0;
        let number = if later { self.values.len() - 1 - number / 2 } else { number };
        self.values[number].clone()
    }

    fn float(&mut self, value: &Value) -> Result<NodeId> {
        self.graph.convert(value.node, self.float)
    }

    /// Returns a value that may be summed: f32 for bf16.
    fn summed(&mut self, value: &Value) -> Result<NodeId> {
        match self.graph.dtype(value.node) {
            DType::BF16 => self.graph.convert(value.node, DType::F32),
            _ => Ok(value.node),
        }
    }

    fn step(&mut self) -> Result<()> {
        let x = self.pick();
        let rank = x.dims.len();
        let axis = self.next(rank);
        match self.next(31) {
            0 => {
                let op = [UnaryOp::Neg, UnaryOp::Abs, UnaryOp::Sign][self.next(3)];
                let node = self.graph.unary(op, x.node)?;
                self.push(node, x.dims)
            }
            1 | 2 => self.pairwise(&x),
            3 | 4 if rank > 1 => self.reduced(&x, axis),
            5 if rank > 0 => self.normalized(&x, axis),
            6 | 7 => self.product(&x),
            8 if rank > 1 => {
                let mut permutation: Vec<usize> = (0..rank).collect();
                permutation.swap(axis, (axis + 1) % rank);
                let dims = permutation.iter().map(|&d| x.dims[d].clone()).collect();
                let node = self.graph.transpose(x.node, &permutation)?;
                self.push(node, dims)
            }
            9 | 10 if rank > 1 => self.merged(&x, axis % (rank - 1)),
            11 if rank > 0 && rank < 4 => self.divided(&x, axis),
            12 if rank > 0 => self.joined(&x, axis),
            13 | 14 if rank > 0 => self.cut(&x, axis),
            15 if rank > 0 => self.padded(&x, axis),
            16 if rank > 0 => {
                let node = self.graph.reverse(x.node, &[axis])?;
                self.push(node, x.dims)
            }
            17 if rank > 0 => {
                let places = self.graph.iota(DType::I32, &self.dims(&x.dims), axis)?;
                let x_as = self.graph.convert(x.node, DType::I32)?;
                let node = self.graph.binary(BinaryOp::Add, x_as, places)?;
                self.push(node, x.dims)
            }
            18 if rank > 0 => {
                let descending = self.next(2) == 0;
                let places = self.graph.iota(DType::I32, &self.dims(&x.dims), axis)?;
                let sorted = self.graph.sort(&[x.node, places], axis, descending)?;
                let which = self.next(2);
                self.push(sorted[which], x.dims)
            }
            19 if rank > 1 => {
                let places = self.graph.iota(DType::I32, &self.dims(&x.dims), axis)?;
                let is_max = self.next(2) == 0;
                let (_, place) = self.graph.arg_reduce(is_max, x.node, places, axis)?;
                let mut dims = x.dims;
                dims.remove(axis);
                self.push(place, dims)
            }
            20 if rank > 0 => self.scanned(&x, axis),
            21 if rank > 0 => self.looked_up(&x, axis),
            22 if rank > 0 => self.scattered(&x, axis),
            23 if rank > 0 => self.offset_slice(&x, axis),
            24 if rank > 0 => self.updated(&x, axis),
            25 if rank > 0 => self.convolved(&x, axis),
            26 if rank > 0 => {
                let places = self.next(2);
                let (values, indices) = self.graph.top_k(x.node, 1)?;
                let mut dims = x.dims;
                dims[rank - 1] = Dim::fixed(1);
                self.push([values, indices][places], dims)
            }
            27 if rank > 0 && rank < 4 => self.repeated(&x, axis),
            28 if rank > 0 => {
                let places = self.graph.iota(DType::I32, &self.dims(&x.dims), axis)?;
                let half = self.graph.compare_const(Direction::Lt, places, 2i64)?;
                let zero = self.graph.splat_like(x.node, 3i64)?;
                let node = self.graph.select(half, x.node, zero)?;
                self.push(node, x.dims)
            }
            29 if rank > 0 => self.drawn(&x),
            30 if rank > 0 => self.looped(&x, axis),
            _ => Ok(()),
        }
    }

    /// A loop over the parts of an axis, up or down: running sums, and a part for each.
    fn looped(&mut self, x: &Value, axis: usize) -> Result<()> {
        let (trips, rank, dtype) = (x.dims[axis].at(self.sizes), x.dims.len(), self.graph.dtype(x.node));
        let (mut part, is_down) = (self.dims(&x.dims), self.next(2) == 1);
        part[axis] = 1;
        let sums = self.graph.splat(dtype, &part, Number::Int(1))?;
        let parts = self.graph.splat(dtype, &self.dims(&x.dims), Number::Int(0))?;
        let last = self.graph.for_loop(trips, [x.node, sums, parts], |g, trip, [x, sums, parts]| {
            let zero = g.scalar(DType::I32, 0i64)?;
            let starts =
                |place: NodeId| -> Vec<NodeId> { (0..rank).map(|d| if d == axis { place } else { zero }).collect() };
            let last = g.scalar(DType::I32, trips as i64 - 1)?;
            let place = if is_down { g.binary(BinaryOp::Sub, last, trip)? } else { trip };
            let taken = g.dynamic_slice(x, &starts(place), &part)?;
            let sums = g.binary(BinaryOp::Add, sums, taken)?;
            let sums = g.binary_const(BinaryOp::Rem, sums, 7i64)?;
            let parts = g.dynamic_update_slice(parts, sums, &starts(trip))?;
            Ok([x, sums, parts])
        })?;
        let mut dims = x.dims.clone();
        dims[axis] = Dim::fixed(1);
        match self.next(2) {
            0 => self.push(last[1], dims),
            _ => self.push(last[2], x.dims.clone()),
        }
    }

    /// Random bits of the dims of a value.
    fn drawn(&mut self, x: &Value) -> Result<()> {
        let state: Vec<u8> = [42u64, u64::MAX - 5].iter().flat_map(|word| word.to_le_bytes()).collect();
        let state = self.graph.constant(Literal::dense(TensorType::new(DType::U64, [2]), state))?;
        let dtype = [DType::U32, DType::U32, DType::U64][self.next(3)];
        let (_, bits) = self.graph.rng_bit_generator(state, dtype, &self.dims(&x.dims))?;
        let small = self.graph.binary_const(BinaryOp::ShiftRightLogical, bits, Number::UInt(29))?;
        let node = self.graph.convert(small, self.float)?;
        self.push(node, x.dims.clone())
    }

    fn pairwise(&mut self, x: &Value) -> Result<()> {
        let same: Vec<Value> = self.values.iter().filter(|y| y.dims == x.dims).cloned().collect();
        let number = self.next(same.len());
        let y = same[number].node;
        let (lhs, rhs) = (self.float(x)?, self.graph.convert(y, self.float)?);
        let op = [BinaryOp::Add, BinaryOp::Mul, BinaryOp::Max, BinaryOp::Sub][self.next(4)];
        let node = self.graph.binary(op, lhs, rhs)?;
        self.push(node, x.dims.clone())
    }

    fn combine(&mut self) -> Combine {
        [Combine::Sum, Combine::Max, Combine::Min][self.next(3)]
    }

    fn reduced(&mut self, x: &Value, axis: usize) -> Result<()> {
        let combine = self.combine();
        let summed = self.summed(x)?;
        let node = self.graph.reduce(combine, summed, &[axis])?;
        let mut dims = x.dims.clone();
        dims.remove(axis);
        self.push(node, dims)
    }

    /// Divides by the size of an axis, as a mean does, and broadcasts back.
    fn normalized(&mut self, x: &Value, axis: usize) -> Result<()> {
        let wide = self.graph.convert(x.node, DType::F32)?;
        let sum = self.graph.accumulate_keepdim(Combine::Sum, wide, axis)?;
        let count = self.dims(&x.dims)[axis];
        let shifted = self.graph.binary_const(BinaryOp::Add, sum, count as i64)?;
        let node = self.graph.binary(BinaryOp::Sub, wide, shifted)?;
        self.push(node, x.dims.clone())
    }

    fn product(&mut self, x: &Value) -> Result<()> {
        let mut pairs = Vec::new();
        for y in &self.values {
            for (i, of_x) in x.dims.iter().enumerate() {
                pairs.extend(
                    y.dims.iter().enumerate().filter(|(_, of_y)| *of_y == of_x).map(|(j, _)| (y.clone(), i, j)),
                );
            }
        }
        if pairs.is_empty() {
            return Ok(());
        }
        let number = self.next(pairs.len());
        let (y, i, j) = pairs[number].clone();
        if x.dims.len() + y.dims.len() > 6 {
            return Ok(());
        }
        let [lhs, rhs] = [x.node, y.node].map(|node| self.graph.convert(node, DType::F32));
        let (lhs, rhs) = (lhs?, rhs?);
        let node = self.graph.dot_general(lhs, rhs, DotAttrs::new([&[], &[]], [&[i], &[j]], DType::F32))?;
        let mut dims = x.dims.clone();
        dims.remove(i);
        let mut more = y.dims;
        more.remove(j);
        dims.extend(more);
        self.push(node, dims)
    }

    fn merged(&mut self, x: &Value, axis: usize) -> Result<()> {
        let Some(product) = x.dims[axis].times(&x.dims[axis + 1]) else { return Ok(()) };
        let mut dims = x.dims.clone();
        dims.splice(axis..axis + 2, [product]);
        let node = self.graph.reshape(x.node, &self.dims(&dims))?;
        self.push(node, dims)
    }

    /// Divides an axis in one of the ways that its size allows.
    fn divided(&mut self, x: &Value, axis: usize) -> Result<()> {
        let of = &x.dims[axis];
        if of.added != 0 {
            return Ok(());
        }
        let mut pairs = Vec::new();
        for index in 0..SIZES {
            if of.of[index] > 0 && (of.factor > 1 || of.of.iter().sum::<usize>() > 1) {
                let mut rest = of.clone();
                rest.of[index] -= 1;
                pairs.push((Dim::varying(index), rest.clone()));
                pairs.push((rest, Dim::varying(index)));
            }
        }
        if of.factor.is_multiple_of(2) {
            let half = Dim { factor: of.factor / 2, ..of.clone() };
            pairs.push((Dim::fixed(2), half.clone()));
            pairs.push((half, Dim::fixed(2)));
        }
        if pairs.is_empty() {
            return Ok(());
        }
        let number = self.next(pairs.len());
        let (outer, inner) = pairs[number].clone();
        let mut dims = x.dims.clone();
        dims.splice(axis..=axis, [outer, inner]);
        let node = self.graph.reshape(x.node, &self.dims(&dims))?;
        self.push(node, dims)
    }

    fn joined(&mut self, x: &Value, axis: usize) -> Result<()> {
        let of = x.dims[axis].clone();
        if of.added != 0 || of.of.iter().sum::<usize>() > 1 {
            return Ok(());
        }
        let (mut dims, mut parts) = (x.dims.clone(), vec![x.node]);
        match self.next(2) {
            0 => {
                dims[axis] = Dim::fixed(2);
                let more = self.graph.splat(self.graph.dtype(x.node), &self.dims(&dims), Number::Int(5))?;
                let place = self.next(2);
                parts.insert(place, more);
                dims[axis] = Dim { added: 2, ..of };
            }
            _ => {
                parts.push(x.node);
                dims[axis] = Dim { factor: 2 * of.factor, ..of };
            }
        }
        let node = self.graph.concatenate(&parts, axis)?;
        self.push(node, dims)
    }

    fn cut(&mut self, x: &Value, axis: usize) -> Result<()> {
        let of = &x.dims[axis];
        if of.is_fixed() || of.added != 0 {
            return Ok(());
        }
        let (size, mut dims) = (of.at(self.sizes), x.dims.clone());
        let (range, dim) = match self.next(4) {
            0 => (1..size, Dim { added: -1, ..of.clone() }),
            1 => (0..size.saturating_sub(1), Dim { added: -1, ..of.clone() }),
            2 => (size.saturating_sub(1)..size, Dim::fixed(1)),
            _ => (0..1, Dim::fixed(1)),
        };
        dims[axis] = dim;
        let node = self.graph.slice_dim(x.node, axis, range.start, range.end)?;
        self.push(node, dims)
    }

    fn padded(&mut self, x: &Value, axis: usize) -> Result<()> {
        let (rank, of, mut dims) = (x.dims.len(), x.dims[axis].clone(), x.dims.clone());
        if of.added != 0 {
            return Ok(());
        }
        let (mut low, mut high, mut interior) = (vec![0isize; rank], vec![0isize; rank], vec![0; rank]);
        match self.next(3) {
            0 => (low[axis], dims[axis].added) = (2, 2),
            1 => (high[axis], dims[axis].added) = (1, 1),
            _ => {
                (interior[axis], high[axis]) = (1, 1);
                dims[axis].factor *= 2;
            }
        }
        if dims[axis].is_fixed() {
            dims[axis] = Dim::fixed(dims[axis].factor.saturating_add_signed(dims[axis].added));
        }
        let fill = self.graph.scalar(self.graph.dtype(x.node), Number::Int(2))?;
        let node = self.graph.pad(x.node, fill, &low, &high, &interior)?;
        self.push(node, dims)
    }

    fn window(&self, rank: usize, axis: usize, size: usize, padding: (isize, isize)) -> WindowAttrs {
        let ones = Dims::from_elem(1, rank);
        let mut window = WindowAttrs {
            dims: ones.clone(),
            strides: ones.clone(),
            base_dilation: ones.clone(),
            window_dilation: ones,
            padding: smallvec::SmallVec::from_elem((0, 0), rank),
        };
        window.dims[axis] = size;
        window.padding[axis] = padding;
        window
    }

    fn scanned(&mut self, x: &Value, axis: usize) -> Result<()> {
        let (size, rank, combine) = (x.dims[axis].at(self.sizes), x.dims.len(), self.combine());
        let edge = size as isize - 1;
        let window = match self.next(4) {
            0 => self.window(rank, axis, size, (edge, 0)),
            1 => self.window(rank, axis, size, (0, edge)),
            _ => self.window(rank, axis, 3, (1, 1)),
        };
        let summed = self.summed(x)?;
        let node = self.graph.reduce_window(combine, summed, window)?;
        self.push(node, x.dims.clone())
    }

    /// The rows at positions that are data, some of them out of range.
    fn looked_up(&mut self, x: &Value, axis: usize) -> Result<()> {
        let Value { node: indices, dims: of } = self.values[2].clone();
        let attrs = GatherAttrs::slices_along(&self.dims(&x.dims), axis, 1);
        let node = self.graph.gather(x.node, indices, attrs)?;
        let mut dims = x.dims.clone();
        dims[axis] = of[0].clone();
        self.push(node, dims)
    }

    /// Adds rows at positions that are data, some of them out of range.
    fn scattered(&mut self, x: &Value, axis: usize) -> Result<()> {
        let Value { node: indices, dims: of } = self.values[2].clone();
        let mut dims = x.dims.clone();
        dims[axis] = of[0].clone();
        let target = self.summed(x)?;
        let updates = self.graph.iota(self.graph.dtype(target), &self.dims(&dims), axis)?;
        let updates = self.graph.binary_const(BinaryOp::Rem, updates, 5i64)?;
        let attrs = ScatterAttrs {
            update_window_dims: (0..dims.len()).filter(|&d| d != axis).collect(),
            inserted_window_dims: smallvec![axis],
            input_batching_dims: Dims::new(),
            scatter_indices_batching_dims: Dims::new(),
            scatter_dims_to_operand_dims: smallvec![axis],
            index_vector_dim: 1,
            mode: ScatterMode::Combine(Combine::Sum),
        };
        let node = self.graph.scatter(target, indices, updates, attrs)?;
        self.push(node, x.dims.clone())
    }

    fn starts(&mut self, rank: usize, axis: usize) -> Result<Vec<NodeId>> {
        let offset = match self.next(2) {
            0 => {
                self.slots += 1;
                self.graph.add(Op::Offset { index: self.slots - 1, dtype: DType::I32 }, &[])?
            }
            _ => {
                // A position that is data.
                let place = self.graph.slice_dim(self.values[2].node, 0, 0, 1)?;
                self.graph.reshape(place, &[])?
            }
        };
        let zero = self.graph.scalar(DType::I32, 0i64)?;
        Ok((0..rank).map(|d| if d == axis { offset } else { zero }).collect())
    }

    /// Returns the dims of a part of an axis that varies: one index, or all but one. `None` for another axis.
    fn part(&mut self, x: &Value, axis: usize) -> Option<Vec<Dim>> {
        let of = &x.dims[axis];
        if of.added < 0 || of.is_fixed() {
            return None;
        }
        let mut dims = x.dims.clone();
        dims[axis] = match self.next(2) {
            0 => Dim::fixed(1),
            _ => Dim { added: of.added - 1, ..of.clone() },
        };
        Some(dims)
    }

    fn offset_slice(&mut self, x: &Value, axis: usize) -> Result<()> {
        let Some(dims) = self.part(x, axis) else { return Ok(()) };
        let starts = self.starts(dims.len(), axis)?;
        let node = self.graph.dynamic_slice(x.node, &starts, &self.dims(&dims))?;
        self.push(node, dims)
    }

    fn updated(&mut self, x: &Value, axis: usize) -> Result<()> {
        let Some(dims) = self.part(x, axis) else { return Ok(()) };
        let update = self.graph.iota(self.graph.dtype(x.node), &self.dims(&dims), axis)?;
        let starts = self.starts(dims.len(), axis)?;
        let node = self.graph.dynamic_update_slice(x.node, update, &starts)?;
        self.push(node, x.dims.clone())
    }

    /// A convolution along one axis of a value that has one feature, by a kernel of one size, by a kernel as long as it
    /// (as the gradient of a weight of three places has it), or with a feature for each of its places.
    fn convolved(&mut self, x: &Value, axis: usize) -> Result<()> {
        let of = x.dims[axis].clone();
        let wide = self.graph.convert(x.node, DType::F32)?;
        let sum_of: Vec<usize> = (0..x.dims.len()).filter(|&d| d != axis).collect();
        let line = self.graph.reduce(Combine::Max, wide, &sum_of)?;
        let size = of.at(self.sizes);
        let input = self.graph.reshape(line, &[1, 1, size])?;
        match self.next(3) {
            0 => self.filtered(input, of),
            1 => {
                let kernel = self.graph.binary_const(BinaryOp::Rem, input, Number::Int(5))?;
                let node = self.graph.convolution(input, kernel, along_a_line(1, 1))?;
                let node = self.graph.binary_const(BinaryOp::Rem, node, Number::Int(7))?;
                self.push_line(node, Dim::fixed(3), 3)
            }
            _ => {
                let by_place = self.graph.reshape(line, &[size, 1])?;
                let input = self.graph.broadcast_in_dim(by_place, &[1, size, 4], &[1, 0])?;
                let kernel = self.graph.iota(DType::F32, &[2, size, 3], 1)?;
                let kernel = self.graph.binary_const(BinaryOp::Rem, kernel, Number::Int(3))?;
                let node = self.graph.convolution(input, kernel, along_a_line(1, 0))?;
                let node = self.graph.binary_const(BinaryOp::Rem, node, Number::Int(7))?;
                let node = self.graph.slice_dim(node, 1, 1, 2)?;
                self.push_line(node, Dim::fixed(2), 2)
            }
        }
    }

    /// Pushes a value `[1, 1, size]` as one of one axis.
    fn push_line(&mut self, node: NodeId, dim: Dim, size: usize) -> Result<()> {
        let node = self.graph.reshape(node, &[size])?;
        self.push(node, vec![dim])
    }

    fn filtered(&mut self, input: NodeId, of: Dim) -> Result<()> {
        let kernel = self.graph.iota(DType::F32, &[2, 1, 3], 2)?;
        let stride = 1 + self.next(2);
        let node = self.graph.convolution(input, kernel, along_a_line(stride, 1))?;
        if stride > 1 {
            // The size of the result is no multiple of another one: only its sum is used.
            let node = self.graph.reduce(Combine::Sum, node, &[0, 2])?;
            return self.push(node, vec![Dim::fixed(2)]);
        }
        let node = self.graph.reshape(node, &[2, of.at(self.sizes)])?;
        self.push(node, vec![Dim::fixed(2), of])
    }

    fn repeated(&mut self, x: &Value, axis: usize) -> Result<()> {
        let mut dims = x.dims.clone();
        let dim = [Dim::fixed(2), Dim::varying(0), Dim::varying(1)][self.next(3)].clone();
        dims.insert(axis, dim);
        let mapping: Vec<usize> = (0..dims.len()).filter(|&d| d != axis).collect();
        let node = self.graph.broadcast_in_dim(x.node, &self.dims(&dims), &mapping)?;
        self.push(node, dims)
    }
}

/// Returns the attributes of a convolution of `[batch, features, places]`.
fn along_a_line(stride: usize, edge: isize) -> ConvAttrs {
    let roles = || ConvDims { batch: 0, feature: 1, spatial: smallvec![2] };
    ConvAttrs {
        strides: smallvec![stride],
        padding: smallvec![(edge, edge)],
        lhs_dilation: smallvec![1],
        rhs_dilation: smallvec![1],
        input: roles(),
        kernel: roles(),
        output: roles(),
        feature_groups: 1,
        batch_groups: 1,
        result: DType::F32,
        precision: Precision::Default,
    }
}
