//! The numbers of a program that may differ between recordings of one family: sizes, bounds, edges, offsets and whole
//! constants.
//!
//! Owns: where such numbers stand in an op. May not know: what they are functions of.

use crate::op::Trips;
use crate::{DType, Literal, LiteralData, NodeId, Number, Op, Operands, Program};
use rustc_hash::FxHashMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// A program without its numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Skeleton {
    nodes: Vec<(Op, Operands)>,
    outputs: Operands,
    /// Those of its loops' bodies, in node order.
    bodies: Vec<Skeleton>,
}

impl Skeleton {
    /// Returns the hash of the program without its numbers.
    pub fn stable_hash(&self) -> u64 {
        let mut hasher = rustc_hash::FxHasher::default();
        self.hash(&mut hasher);
        hasher.finish()
    }
}

/// What a number of a program is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// A size, or a bound of one.
    Size,
    /// The value of a constant.
    Value,
    /// The value of an offset.
    Offset,
}

/// The numbers of a program, and what is left of it without them.
#[derive(Clone, Debug)]
pub struct Numbers {
    /// What is left.
    pub skeleton: Skeleton,
    pub(super) numbers: Vec<i64>,
    pub(super) roles: Vec<Role>,
    pub(super) places: Arc<Places>,
}

/// Where the numbers of a program's nodes are.
#[derive(Clone, Debug, Default)]
pub(super) struct Places {
    /// For each node, the first number of its op, and the first of its results' dims.
    pub(super) of_node: Vec<(usize, usize)>,
    /// The place after the last one.
    pub(super) end: usize,
    /// Those of the loops' bodies.
    pub(super) bodies: FxHashMap<NodeId, Places>,
}

impl Numbers {
    /// Returns whether a program of the same skeleton has the same numbers.
    pub fn is_equal(&self, other: &Self) -> bool {
        self.numbers == other.numbers
    }

    /// Returns the numbers of a program whose slots have these values.
    pub fn of(program: &Program, slots: &[u64]) -> Self {
        let mut found = Found { slots, numbers: Vec::new(), roles: Vec::new() };
        let (skeleton, places) = found.add(program);
        Self { skeleton, numbers: found.numbers, roles: found.roles, places: Arc::new(places) }
    }
}

/// The numbers so far.
struct Found<'s> {
    slots: &'s [u64],
    numbers: Vec<i64>,
    roles: Vec<Role>,
}

impl Found<'_> {
    /// Adds the numbers of a program and those of its loops' bodies. Returns what is left, and where they are.
    fn add(&mut self, program: &Program) -> (Skeleton, Places) {
        let graph = program.graph();
        let (mut skeleton, mut places) = (Skeleton::default(), Places::default());
        for (node, id) in graph.nodes().iter().zip((0..).map(NodeId)) {
            let start = self.numbers.len();
            let mut op = node.op.clone();
            each(&mut op, &mut |role, number| {
                self.numbers.push(std::mem::take(number));
                self.roles.push(role);
            });
            match &mut op {
                Op::Offset { index, dtype } => {
                    let bits = self.slots.get(*index as usize).copied();
                    self.numbers.push(bits.map_or(0, |bits| Number::of_bits(bits, *dtype).to_i64()));
                    self.roles.push(Role::Offset);
                }
                Op::For { body, .. } => {
                    let of = std::mem::take(body);
                    let (left, at) = self.add(&of);
                    skeleton.bodies.push(left);
                    places.bodies.insert(id, at);
                }
                _ => {}
            }
            places.of_node.push((start, self.numbers.len()));
            let dims = node.result_types().flat_map(|ty| &ty.dims);
            self.numbers.extend(dims.map(|&dim| dim as i64));
            self.roles.resize(self.numbers.len(), Role::Size);
            skeleton.nodes.push((op, node.operands.clone()));
        }
        skeleton.outputs = program.outputs().into();
        places.end = self.numbers.len();
        (skeleton, places)
    }
}

/// Calls `visit` with each number of an op, which it may change.
pub(super) fn each(op: &mut Op, visit: &mut impl FnMut(Role, &mut i64)) {
    let mut unsigned = |number: &mut usize| {
        let mut value = *number as i64;
        visit(Role::Size, &mut value);
        *number = usize::try_from(value).unwrap_or(0);
    };
    match op {
        Op::Parameter { ty, .. } | Op::Iota { ty, .. } | Op::RngBitGenerator { ty } => {
            ty.dims.iter_mut().for_each(unsigned);
        }
        Op::BroadcastInDim { dims, .. } | Op::Reshape { dims } | Op::DynamicSlice { sizes: dims } => {
            dims.iter_mut().for_each(unsigned);
        }
        Op::Slice(attrs) => attrs.start.iter_mut().chain(&mut attrs.limit).for_each(unsigned),
        Op::Gather(attrs) => attrs.slice_sizes.iter_mut().for_each(unsigned),
        Op::TopK { k } => unsigned(k),
        Op::Fft { length, .. } => unsigned(length),
        Op::For { trips: Trips::Exactly(trips) | Trips::AtMost(trips), .. } => unsigned(trips),
        Op::Constant(literal) => constant(literal, visit),
        Op::Pad(attrs) => attrs.low.iter_mut().chain(&mut attrs.high).for_each(|edge| signed(edge, visit)),
        Op::ReduceWindow { window, .. } | Op::SelectAndScatter { window } => {
            window.dims.iter_mut().for_each(unsigned);
            for (low, high) in &mut window.padding {
                signed(low, visit);
                signed(high, visit);
            }
        }
        Op::Convolution(attrs) => {
            for (low, high) in &mut attrs.padding {
                signed(low, visit);
                signed(high, visit);
            }
        }
        // The others have axes and kinds alone.
        Op::Slot { .. }
        | Op::Offset { .. }
        | Op::Unary(_)
        | Op::Binary(_)
        | Op::Compare(_)
        | Op::IsFinite
        | Op::Select
        | Op::Clamp
        | Op::Convert { .. }
        | Op::BitcastConvert { .. }
        | Op::Transpose { .. }
        | Op::Reverse { .. }
        | Op::Concatenate { .. }
        | Op::DynamicUpdateSlice
        | Op::DotGeneral(_)
        | Op::Reduce { .. }
        | Op::ArgReduce { .. }
        | Op::Sort { .. }
        | Op::Scatter(_)
        | Op::Complex
        | Op::Real
        | Op::Imag
        | Op::OptimizationBarrier
        | Op::ShardingConstraint(_)
        | Op::MoveTo(_)
        | Op::CustomCall(_)
        | Op::GetResult { .. } => {}
    }
}

fn signed(edge: &mut isize, visit: &mut impl FnMut(Role, &mut i64)) {
    let mut value = *edge as i64;
    visit(Role::Size, &mut value);
    *edge = isize::try_from(value).unwrap_or(0);
}

/// The dims of a constant that repeats one value, and the value if it is whole.
fn constant(literal: &mut Literal, visit: &mut impl FnMut(Role, &mut i64)) {
    let Some(value) = literal.splat() else { return };
    for dim in &mut literal.ty.dims {
        let mut size = *dim as i64;
        visit(Role::Size, &mut size);
        *dim = usize::try_from(size).unwrap_or(0);
    }
    let dtype = literal.ty.dtype;
    let Some(mut whole) = whole(value, dtype) else { return };
    visit(Role::Value, &mut whole);
    literal.data = LiteralData::Splat(Number::Int(whole).bits(dtype));
}

/// Returns a number as an integer, if it is one that may be a size.
fn whole(value: Number, dtype: DType) -> Option<i64> {
    const MOST: u64 = 1 << 52;
    let whole = value.to_i64();
    let bits = |number: Number| number.bits(dtype);
    let is_number = !matches!(dtype, DType::Bool | DType::C64) && whole.unsigned_abs() <= MOST;
    // A zero with a sign is no size.
    (is_number && bits(Number::Int(whole)) == bits(value)).then_some(whole)
}
