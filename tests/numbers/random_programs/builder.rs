//! Builds programs from numbers. Every list of steps is a valid program, so that any step can be removed.
//!
//! A value carries a bound of the difference between two engines. Integers, bools and floats that were only moved, compared
//! or selected are *exact*: they must agree bit for bit, including NaN and infinities, and only they are operands of ops
//! that are not continuous (comparisons, rounding, sorting, indices). Floats that were computed are *tame*: they are
//! clamped to [-4, 4], and their `error` bounds the difference between engines, derived from the error of the operands and
//! the op's slope.

use burn_tpu_graph::Builder as _;
use burn_tpu_graph::op::{BinaryOp, UnaryOp};
use burn_tpu_graph::{DType, Dims, Graph, Literal, NodeId, Number, Op, Program, Result, TensorType};

/// The bound of tame floats.
pub const TAME: f64 = 4.0;

/// Values with a larger error test nothing and are not used any further.
const MAX_ERROR: f64 = 0.25;

/// One instruction: an op, and the numbers from which its choices follow.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    pub op: u8,
    pub choices: [u16; 12],
}

/// The choices of a step, in order; zeros when they are used up.
pub struct Choices(std::array::IntoIter<u16, 12>);

impl Choices {
    pub fn new(step: &Step) -> Self {
        Self(step.choices.into_iter())
    }

    pub fn raw(&mut self) -> u16 {
        self.0.next().unwrap_or(0)
    }

    /// Returns a number below `count`.
    pub fn below(&mut self, count: usize) -> usize {
        usize::from(self.raw()) % count.max(1)
    }

    pub fn of<T: Copy>(&mut self, among: &[T]) -> T {
        among[self.below(among.len())]
    }

    /// Returns a shape of up to four dims and a few hundred elements.
    pub fn dims(&mut self) -> Dims {
        let rank = self.of(&[2, 1, 3, 0, 2, 4]);
        let mut dims: Dims = (0..rank).map(|_| self.of(&[2, 3, 1, 4, 5, 2, 3, 7, 4, 0])).collect();
        while dims.iter().product::<usize>() > 512 {
            dims.pop();
        }
        dims
    }
}

/// A node with the known properties of its value.
#[derive(Clone, Copy, Debug)]
pub struct Value {
    pub id: NodeId,
    /// The largest difference between two engines; 0 for an exact value.
    pub error: f64,
    /// Whether it may hold NaN, infinities or floats outside the tame range. Only exact values do.
    pub wild: bool,
}

impl Value {
    pub fn is_exact(self) -> bool {
        self.error == 0.0
    }
}

/// Returns the distance between neighbouring floats at the bound of tame values.
pub fn ulp(dtype: DType) -> f64 {
    TAME * match dtype {
        DType::BF16 => 2f64.powi(-7),
        DType::F16 => 2f64.powi(-10),
        DType::F32 => 2f64.powi(-23),
        _ => 2f64.powi(-52),
    }
}

/// A program under construction.
#[derive(Default)]
pub struct Builder {
    pub graph: Graph,
    pub values: Vec<Value>,
    pub parameters: Vec<Vec<u8>>,
    pub slots: Vec<u64>,
    /// Parameters that were updated. They are always results, and alias the parameters.
    pub updates: Vec<Value>,
}

impl Builder {
    pub fn dtype(&self, value: Value) -> DType {
        self.graph.dtype(value.id)
    }

    pub fn dims(&self, value: Value) -> Dims {
        self.graph.dims(value.id)
    }

    pub fn elements(&self, value: Value) -> usize {
        self.graph.ty(value.id).elements()
    }

    /// Returns whether a compiler can compute the value: it depends on nothing that is passed at run time.
    pub fn is_known(&self, value: Value) -> bool {
        let nodes = self.graph.nodes();
        let mut known: Vec<bool> = Vec::with_capacity(nodes.len());
        for node in nodes {
            let passed = matches!(node.op, Op::Parameter { .. } | Op::Slot { .. });
            let given = !passed && node.operands.iter().all(|operand| known[operand.index()]);
            known.push(given || node.ty.elements() == 0);
        }
        known[value.id.index()]
    }

    /// Keeps a value that is exact whenever its operands are.
    pub fn keep(&mut self, id: NodeId, error: f64, wild: bool) {
        if error <= MAX_ERROR && self.graph.ty(id).elements() <= 4096 {
            self.values.push(Value { id, error, wild: wild && self.graph.dtype(id).is_float() });
        }
    }

    /// Keeps the updated value of a parameter, which is also a result.
    pub fn keep_update(&mut self, updated: Value) {
        if updated.error <= MAX_ERROR {
            self.values.push(updated);
            self.updates.push(updated);
        }
    }

    /// Keeps a computed float, clamped to the tame range; `error` includes the op's own and that of its operands.
    pub fn settle(&mut self, id: NodeId, error: f64) -> Result<()> {
        let settled = self.settled(id, error)?;
        self.keep(settled.id, settled.error, false);
        Ok(())
    }

    /// Returns a computed float, clamped to the tame range.
    pub fn settled(&mut self, id: NodeId, error: f64) -> Result<Value> {
        let id = self.clamped(id)?;
        Ok(Value { id, error: error + ulp(self.graph.dtype(id)), wild: false })
    }

    fn clamped(&mut self, id: NodeId) -> Result<NodeId> {
        let dtype = self.graph.dtype(id);
        let (low, high) = (self.graph.scalar(dtype, -TAME)?, self.graph.scalar(dtype, TAME)?);
        self.graph.clamp(low, id, high)
    }

    /// Returns one of the values that `fits` accepts, or a new parameter of `dtype`.
    pub fn pick(&mut self, c: &mut Choices, dtype: DType, fits: impl Fn(&Self, Value) -> bool) -> Result<Value> {
        let fitting: Vec<Value> = self.values.iter().copied().filter(|&value| fits(self, value)).collect();
        if fitting.is_empty() { self.parameter(c, dtype) } else { Ok(c.of(&fitting)) }
    }

    pub fn any(&mut self, c: &mut Choices) -> Result<Value> {
        self.pick(c, DType::F32, |_, _| true)
    }

    /// Returns a value that must agree bit for bit.
    pub fn exact(&mut self, c: &mut Choices) -> Result<Value> {
        self.pick(c, DType::F32, |_, value| value.is_exact())
    }

    pub fn int(&mut self, c: &mut Choices) -> Result<Value> {
        self.pick(c, DType::I32, |b, value| b.dtype(value).is_int())
    }

    pub fn signed_int(&mut self, c: &mut Choices) -> Result<Value> {
        self.pick(c, DType::I32, |b, value| b.dtype(value).is_signed_int())
    }

    /// Returns a float in the tame range.
    pub fn float(&mut self, c: &mut Choices) -> Result<Value> {
        let value = self.pick(c, DType::F32, |b, value| b.dtype(value).is_float())?;
        self.tamed(value)
    }

    /// Returns a float in the tame range that must agree bit for bit.
    pub fn exact_float(&mut self, c: &mut Choices) -> Result<Value> {
        let value = self.pick(c, DType::F32, |b, value| b.dtype(value).is_float() && value.is_exact())?;
        self.tamed(value)
    }

    /// Returns a wild value clamped to the bounds, with 0.5 in place of NaN and infinities.
    pub fn tamed(&mut self, value: Value) -> Result<Value> {
        if !value.wild {
            return Ok(value);
        }
        let finite = self.graph.is_finite(value.id)?;
        let half = self.graph.splat_like(value.id, 0.5)?;
        let chosen = self.graph.select(finite, value.id, half)?;
        Ok(Value { id: self.clamped(chosen)?, wild: false, ..value })
    }

    /// Returns the value converted to another element type. A value that is not exact is never converted to an integer.
    pub fn converted(&mut self, value: Value, dtype: DType) -> Result<Value> {
        let from = self.dtype(value);
        if from == dtype {
            return Ok(value);
        }
        if dtype.is_float() && (from.is_float() || from.is_int()) && dtype.size_bytes() <= from.size_bytes() {
            return self.narrowed(value, dtype);
        }
        let id = self.graph.convert(value.id, dtype)?;
        Ok(Value { id, wild: dtype.is_float() && (value.wild || (from.is_int() && from.size_bytes() > 1)), ..value })
    }

    /// Returns the value as a narrower float. XLA may skip the rounding where the value is widened again.
    fn narrowed(&mut self, value: Value, dtype: DType) -> Result<Value> {
        let mut value = self.tamed(value)?;
        if self.dtype(value).is_int() {
            let id = self.graph.convert(value.id, DType::F64)?;
            value = self.tamed(Value { id, error: 0.0, wild: true })?;
        }
        let id = self.graph.convert(value.id, dtype)?;
        Ok(Value { id, error: value.error + ulp(dtype), wild: false })
    }

    /// Returns the value with other dims: repeated, truncated, or padded with ones.
    pub fn fitted(&mut self, value: Value, dims: &[usize]) -> Result<Value> {
        let own = self.dims(value);
        let trailing =
            own.len() <= dims.len() && own.iter().rev().zip(dims.iter().rev()).all(|(&a, &b)| a == b || a == 1);
        if trailing {
            let id = self.graph.broadcast_to(value.id, dims)?;
            return Ok(Value { id, ..value });
        }
        let (held, wanted) = (self.elements(value), dims.iter().product::<usize>());
        let flat = self.graph.reshape(value.id, &[held])?;
        let one = self.graph.scalar(self.dtype(value), 1.0)?;
        let sized = self.graph.pad(flat, one, &[0], &[wanted as isize - held as isize], &[0])?;
        Ok(Value { id: self.graph.reshape(sized, dims)?, ..value })
    }

    /// Returns a value with the element type and dims of another. The errors of both count for a result of both.
    pub fn alike(&mut self, c: &mut Choices, like: Value) -> Result<Value> {
        let dtype = self.dtype(like);
        let exact = like.is_exact();
        let value = if dtype.is_float() && !exact { self.float(c)? } else { self.exact(c)? };
        let value = self.converted(value, dtype)?;
        let value = if like.wild { value } else { self.tamed(value)? };
        let value = if exact && !value.is_exact() { self.parameter(c, dtype)? } else { value };
        let value = if like.wild { value } else { self.tamed(value)? };
        self.fitted(value, &self.dims(like))
    }

    /// Adds a parameter with elements from the choices.
    pub fn parameter(&mut self, c: &mut Choices, dtype: DType) -> Result<Value> {
        let (dims, seed, wild) = (c.dims(), c.raw(), c.below(4) == 1);
        let index = self.parameters.len() as u32;
        let ty = TensorType::new(dtype, dims);
        let mut random = Random(u64::from(seed));
        let bits = (0..ty.elements()).map(|_| random.element(dtype, wild));
        self.parameters.push(bits.flat_map(|bits| bits.to_le_bytes()[..dtype.size_bytes()].to_vec()).collect());
        let value =
            Value { id: self.graph.add(Op::Parameter { index, ty }, &[])?, error: 0.0, wild: wild && dtype.is_float() };
        self.values.push(value);
        Ok(value)
    }

    pub fn slot(&mut self, c: &mut Choices) -> Result<()> {
        let dtype = c.of(&REAL);
        let index = self.slots.len() as u32;
        self.slots.push(Random(u64::from(c.raw())).element(dtype, false));
        let id = self.graph.add(Op::Slot { index, dtype }, &[])?;
        self.keep(id, 0.0, false);
        Ok(())
    }

    /// Returns an integer scalar that is a constant of the program or is passed at run time.
    pub fn offset(&mut self, c: &mut Choices) -> Result<Value> {
        let (index, dtype) = (self.slots.len() as u32, DType::I32);
        self.slots.push(Random(u64::from(c.raw())).element(dtype, false));
        let value = Value { id: self.graph.add(Op::Offset { index, dtype }, &[])?, error: 0.0, wild: false };
        self.values.push(value);
        Ok(value)
    }

    pub fn constant(&mut self, c: &mut Choices) -> Result<()> {
        let (dtype, dims) = (c.of(&REAL), c.dims());
        let mut random = Random(u64::from(c.raw()));
        let wild = c.below(4) == 1;
        let ty = TensorType::new(dtype, dims);
        let mut element = || random.element(dtype, wild).to_le_bytes()[..dtype.size_bytes()].to_vec();
        let bytes: Vec<u8> = if c.below(2) == 0 {
            element().repeat(ty.elements())
        } else {
            (0..ty.elements()).flat_map(|_| element()).collect()
        };
        let id = self.graph.constant(Literal::dense(ty, bytes))?;
        self.keep(id, 0.0, wild);
        Ok(())
    }

    pub fn with_const(&mut self, op: BinaryOp, x: NodeId, number: f64) -> Result<NodeId> {
        self.graph.binary_const(op, x, number)
    }

    /// Returns |x| + `shift`.
    pub fn positive(&mut self, x: NodeId, shift: f64) -> Result<NodeId> {
        let magnitude = self.graph.unary(UnaryOp::Abs, x)?;
        self.with_const(BinaryOp::Add, magnitude, shift)
    }

    /// Returns the program, with up to four outputs (including the last value) and the updates, and the error of each
    /// output.
    pub fn finish(self, outputs: &[u16]) -> Result<(Program, Vec<f64>)> {
        let mut chosen: Vec<Value> = self.values.last().copied().into_iter().collect();
        chosen.extend(
            outputs.iter().filter_map(|&i| self.values.get(usize::from(i) % self.values.len().max(1)).copied()),
        );
        chosen.extend(self.updates);
        let ids: Vec<NodeId> = chosen.iter().map(|value| value.id).collect();
        Ok((Program::extract(&self.graph, &ids)?, chosen.iter().map(|value| value.error).collect()))
    }
}

/// The element types of parameters.
pub const REAL: [DType; 13] = [
    DType::F32,
    DType::I32,
    DType::Bool,
    DType::BF16,
    DType::F64,
    DType::I64,
    DType::U8,
    DType::F16,
    DType::U32,
    DType::I8,
    DType::U64,
    DType::I16,
    DType::U16,
];

/// SplitMix64: elements must follow from a choice alone.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Returns the bits of an element: eighths for floats; small, extreme or arbitrary integers.
    fn element(&mut self, dtype: DType, wild: bool) -> u64 {
        let (kind, any) = (self.next() % 8, self.next());
        let small = (any % 65) as i64 - 32;
        let mask = u64::MAX >> (64 - 8 * dtype.size_bytes());
        match (dtype, kind) {
            (DType::Bool, _) => any & 1,
            (float, 0) if float.is_float() && wild => {
                let wild = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0, 1e30, -3.5e4, 0.0, 1e-3];
                Number::Float(wild[any as usize % wild.len()]).bits(float)
            }
            (float, _) if float.is_float() => Number::Float(small as f64 / 8.0).bits(float),
            (_, 0) => any & mask,
            (int, 1) => {
                let high = if int.is_signed_int() { mask >> 1 } else { mask };
                [0, 1, mask, high, high.wrapping_add(1) & mask][any as usize % 5]
            }
            (int, _) => Number::Int(small).bits(int),
        }
    }
}
