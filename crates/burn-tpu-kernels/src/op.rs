//! The ops of a kernel's body: data only. What each takes is checked by the builder.

use crate::ArrayType;

/// A value of a kernel's body: a vector or a scalar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Value(pub(crate) u32);

/// A block of an operand, of a result, or of scratch memory, which a kernel's body loads and stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ref(pub(crate) u32);

/// A function of one f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "each variant is the usual name of its function")]
pub enum Unary {
    Exp,
    Log,
    Tanh,
}

/// A function of two f32 or two i32; `And` of two bools or two i32; the other functions of bits of two i32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "each variant is the usual name of its function")]
pub enum Binary {
    Add,
    Sub,
    Mul,
    /// Integers are divided towards zero.
    Div,
    /// NaN if either is.
    Max,
    /// NaN if either is.
    Min,
    And,
    Or,
    Xor,
    /// Integers are shifted by less than 32 bits.
    ShiftLeft,
    /// The same; zeros are shifted in.
    ShiftRight,
}

/// A comparison of two f32 or two i32. With NaN only `NotEqual` is true.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "each variant is the usual name of its comparison")]
pub enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
}

/// A reduction of f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "each variant is the usual name of its reduction")]
pub enum Reduction {
    Sum,
    Max,
}

/// The number of a constant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Number {
    Float(f32),
    Int(i32),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Op {
    /// The index along an axis of the grid.
    Grid(usize),
    Constant(Number),
    Unary(Unary, Value),
    Binary(Binary, Value, Value),
    Compare(Comparison, Value, Value),
    Select(Value, Value, Value),
    Cast(Value),
    Broadcast(Value),
    /// The index along a dim.
    Iota(usize),
    /// Keeps the dim, with size one.
    Reduce(Reduction, Value, usize),
    Transpose(Value),
    Matmul(Matmul),
    Load(Ref),
    LoadScalar(Ref, Value),
}

/// A product of two matrices, each of which may be given transposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Matmul {
    pub lhs: Value,
    pub rhs: Value,
    pub transpose_lhs: bool,
    pub transpose_rhs: bool,
}

impl Op {
    /// Returns the values that the op reads.
    pub fn operands(&self) -> Vec<Value> {
        match *self {
            Op::Grid(_) | Op::Constant(_) | Op::Iota(_) | Op::Load(_) => vec![],
            Op::Unary(_, x) | Op::Cast(x) | Op::Broadcast(x) | Op::Reduce(_, x, _) | Op::Transpose(x) => vec![x],
            Op::LoadScalar(_, x) => vec![x],
            Op::Binary(_, x, y) | Op::Compare(_, x, y) => vec![x, y],
            Op::Select(condition, x, y) => vec![condition, x, y],
            Op::Matmul(Matmul { lhs, rhs, .. }) => vec![lhs, rhs],
        }
    }
}

/// An op and the type of its result.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node {
    pub op: Op,
    pub ty: ArrayType,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Statement {
    /// Computes a value.
    Let(Value),
    Store(Ref, Value),
    /// Runs the body where the condition, a scalar, is true.
    When(Value, Vec<Statement>),
}
