//! Threefry as ordinary integer ops: random bits that XLA fuses into what reads them.
//!
//! XLA expands `stablehlo.rng_bit_generator` to two arrays, one for each word of the blocks, and joins them, so the bits
//! go through memory. Here each element computes the block that it belongs to, and takes its word of it: twice the
//! arithmetic, and no memory. The bits are those of XLA's expander of `THREE_FRY` (`xla/hlo/builder/lib/prng.cc`):
//! Threefry 2x32 with 20 rounds (Salmon et al., 2011), a key and a counter of 64 bits. Along the first even dim (if
//! there is none, the first of the largest), neighbours are the two words of a block.
//!
//! Gain: `docs/decisions/0002-random-numbers-from-slots.md`.

use super::{Layouts, Lowering, Scope, control, slots};
use crate::op::{BinaryOp, Direction};
use crate::{Builder, DType, Dims, Graph, NodeId, Number, Op, Program, Result, TensorType};

/// The rotations of the rounds, in groups.
const ROTATIONS: [[u64; 4]; 2] = [[13, 15, 26, 6], [17, 29, 16, 24]];

const GROUPS: usize = 5;

const PARITY: u64 = 0x1BD1_1BDA;

/// Returns the name of the function that draws bits of a type, and writes it if it is new. `None` for types that have no
/// such function: 64-bit words, which no float draw needs, and draws of nothing or of more elements than 32 bits count.
pub(super) fn function(ty: &TensorType, functions: &mut Vec<String>) -> Result<Option<String>> {
    if ty.dtype != DType::U32 || ty.elements() == 0 || u32::try_from(ty.elements()).is_err() {
        return Ok(None);
    }
    let name = control::sized_name("threefry", &ty.dims);
    if !control::has_function(functions, &name) {
        let draw = program(ty)?;
        let packing = slots::Packing::new(&draw, 0);
        let written = Lowering::run(&draw, packing, Scope::default(), Layouts::default(), functions)?;
        functions.push(control::private_function(&name, &draw, written));
    }
    Ok(Some(name))
}

/// Returns the program of a draw: from `state: u64[2]`, the next state and the bits.
fn program(ty: &TensorType) -> Result<Program> {
    let g = &mut Graph::new();
    let state = g.add(Op::Parameter { index: 0, ty: TensorType::new(DType::U64, [2]) }, &[])?;
    let split = split_dim(&ty.dims);
    let mut blocks = ty.dims.clone();
    if let Some(split) = split {
        blocks[split] = blocks[split].div_ceil(2);
    }
    let (key, counter) = (element(g, state, 0)?, element(g, state, 1)?);
    let (key_words, from) = (words(g, key)?, words(g, counter)?);
    let index = index(g, &ty.dims, &blocks, split)?;
    let block_counter = add_wide(g, from, index)?;
    let [first, second] = block(g, key_words, block_counter)?;
    let bits = match split {
        Some(split) => {
            let place = g.iota(DType::U32, &ty.dims, split)?;
            let word = binary_const(g, BinaryOp::And, place, 1)?;
            let is_first = g.compare_const(Direction::Eq, word, Number::UInt(0))?;
            g.select(is_first, first, second)?
        }
        None => first,
    };
    let drawn = g.scalar(DType::U64, Number::UInt(blocks.iter().product::<usize>() as u64))?;
    let next = g.binary(BinaryOp::Add, counter, drawn)?;
    let [key, next] = [g.reshape(key, &[1])?, g.reshape(next, &[1])?];
    let next = g.concatenate(&[key, next], 0)?;
    Program::extract(g, &[next, bits])
}

/// Returns the dim along which neighbours are words of one block: the first even one, or else the first of the largest.
fn split_dim(dims: &Dims) -> Option<usize> {
    let even = dims.iter().position(|size| size % 2 == 0);
    even.or_else(|| (0..dims.len()).rev().max_by_key(|&d| dims[d]))
}

pub(crate) fn element(g: &mut Graph, state: NodeId, at: usize) -> Result<NodeId> {
    let element = g.slice_dim(state, 0, at, at + 1)?;
    g.reshape(element, &[])
}

/// Adds the low and the high word of a `u64[]`.
pub(crate) fn words(g: &mut Graph, wide: NodeId) -> Result<[NodeId; 2]> {
    let low = binary_const(g, BinaryOp::And, wide, u64::from(u32::MAX))?;
    let high = binary_const(g, BinaryOp::ShiftRightLogical, wide, 32)?;
    Ok([g.convert(low, DType::U32)?, g.convert(high, DType::U32)?])
}

/// Adds the number of each element's block, in row-major order of the blocks.
fn index(g: &mut Graph, dims: &[usize], blocks: &[usize], split: Option<usize>) -> Result<NodeId> {
    let mut index = g.splat(DType::U32, dims, Number::UInt(0))?;
    for dim in 0..dims.len() {
        let mut place = g.iota(DType::U32, dims, dim)?;
        if split == Some(dim) {
            place = binary_const(g, BinaryOp::ShiftRightLogical, place, 1)?;
        }
        let stride: usize = blocks[dim + 1..].iter().product();
        let offset = binary_const(g, BinaryOp::Mul, place, stride as u64)?;
        index = g.binary(BinaryOp::Add, index, offset)?;
    }
    Ok(index)
}

/// Adds words `index` to a 64-bit number in two words.
pub(crate) fn add_wide(g: &mut Graph, [low, high]: [NodeId; 2], index: NodeId) -> Result<[NodeId; 2]> {
    let low = g.binary(BinaryOp::Add, index, low)?;
    let wrapped = g.compare(Direction::Lt, low, index)?;
    let carry = g.convert(wrapped, DType::U32)?;
    Ok([low, g.binary(BinaryOp::Add, carry, high)?])
}

/// Adds the two words of each block, from the words of the key and of the block's counter.
pub(crate) fn block(g: &mut Graph, key: [NodeId; 2], counter: [NodeId; 2]) -> Result<[NodeId; 2]> {
    let parity = g.binary(BinaryOp::Xor, key[0], key[1])?;
    let keys = [key[0], key[1], binary_const(g, BinaryOp::Xor, parity, PARITY)?];
    let mut x = g.binary(BinaryOp::Add, counter[0], keys[0])?;
    let mut y = g.binary(BinaryOp::Add, counter[1], keys[1])?;
    for group in 0..GROUPS {
        for rotation in ROTATIONS[group % 2] {
            x = g.binary(BinaryOp::Add, x, y)?;
            let left = binary_const(g, BinaryOp::ShiftLeft, y, rotation)?;
            let right = binary_const(g, BinaryOp::ShiftRightLogical, y, 32 - rotation)?;
            let rotated = g.binary(BinaryOp::Or, left, right)?;
            y = g.binary(BinaryOp::Xor, rotated, x)?;
        }
        x = g.binary(BinaryOp::Add, x, keys[(group + 1) % 3])?;
        // Added to the key while it is a scalar.
        let injected = binary_const(g, BinaryOp::Add, keys[(group + 2) % 3], group as u64 + 1)?;
        y = g.binary(BinaryOp::Add, y, injected)?;
    }
    Ok([x, y])
}

fn binary_const(g: &mut Graph, op: BinaryOp, x: NodeId, number: u64) -> Result<NodeId> {
    g.binary_const(op, x, Number::UInt(number))
}
