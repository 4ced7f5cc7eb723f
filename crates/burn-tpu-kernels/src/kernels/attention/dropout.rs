//! Weights or scores that are dropped at random: the bits of the graph's draw, computed again for each block.
//!
//! A draw of `[batch, heads, queries, keys]` words is Threefry 2x32 with 20 rounds (Salmon et al., *Parallel random numbers:
//! as easy as 1, 2, 3*, 2011) on a key and a counter of 64 bits, in the order of XLA's expander
//! (`xla/hlo/builder/lib/prng.cc`). Along the first even dim (if there is none, the first of the largest), neighbours are
//! the two words of a block, and blocks are counted in row-major order. Here each element computes the block that it belongs
//! to and takes its word. So forward and backward drop the same numbers, whatever their blocks are, and nothing is read but
//! the state.

use super::scores::Layout;
use super::{Attention, Masks, Place};
use crate::{Binary, Comparison, Element, Index, KernelBuilder, Ref, Result, Value, Window};

/// The rotations of the rounds, in groups.
const ROTATIONS: [[i32; 4]; 2] = [[13, 15, 26, 6], [17, 29, 16, 24]];

const GROUPS: usize = 5;

const PARITY: i32 = 0x1BD1_1BDA;

/// What is dropped at random: an operand i32 `[4]`, the low and the high word of the draw's key and those of its counter. A
/// number whose random word, as an unsigned number, is larger than `most` is 0 instead. The others are not scaled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Dropout {
    /// The largest word that keeps its number.
    pub most: u32,
    /// The numbers.
    pub of: Dropped,
    /// The sequences and the heads of the whole attention, if this is a part of it: the draw is of the whole. Then the
    /// operand is i32 `[6]`, with the part's first sequence and its first head.
    pub part_of: Option<[usize; 2]>,
}

impl Dropout {
    /// Drops those numbers whose random word is larger than `most`.
    pub fn new(most: u32, of: Dropped) -> Self {
        Self { most, of, part_of: None }
    }
}

/// The numbers of which some are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dropped {
    /// The probabilities.
    Weights,
    /// The scores, before their biases and masks, as in Burn's `MultiHeadAttention`.
    Scores,
}

impl Attention {
    /// Declares the state of the draw.
    pub(super) fn state(&self, k: &mut KernelBuilder) -> Option<Ref> {
        let words = |dropout: Dropout| if dropout.part_of.is_some() { 6 } else { 4 };
        self.dropout.map(|dropout| k.operand(Window::whole(Element::I32, &[words(dropout)]).in_smem()))
    }

    /// Returns which of these numbers of a block are kept; `None` if all are.
    pub(super) fn kept(
        &self,
        k: &mut KernelBuilder,
        at: &Place,
        masks: &Masks,
        of: Dropped,
        layout: Layout,
    ) -> Result<Option<Value>> {
        let dropout = self.dropout.filter(|dropout| dropout.of == of);
        let (Some(dropout), Some(state)) = (dropout, masks.state) else { return Ok(None) };
        let bits = self.bits(k, at, state, layout)?;
        let most = k.int(dropout.most as i32);
        compare_unsigned(k, Comparison::LessEqual, bits, most).map(Some)
    }

    /// Returns the sizes of the draw.
    pub(super) fn draw(&self) -> [usize; 4] {
        let [batch, heads] = self.dropout.and_then(|dropout| dropout.part_of).unwrap_or([self.batch, self.heads]);
        [batch, heads, self.queries, self.keys]
    }

    /// Returns the random words of a block.
    fn bits(&self, k: &mut KernelBuilder, at: &Place, state: Ref, layout: Layout) -> Result<Value> {
        let sizes = self.draw();
        let is_part = self.dropout.is_some_and(|dropout| dropout.part_of.is_some());
        let split = split_dim(sizes);
        let mut blocks = sizes;
        blocks[split] = blocks[split].div_ceil(2);
        let mut index = k.int(0);
        let mut word = index;
        for dim in 0..4 {
            let mut place = self.place(k, at, layout, dim)?;
            if is_part && dim < 2 {
                let first = k.load_scalar(state, &Index::from(4 + dim as i32))?;
                place = k.add(place, first)?;
            }
            if dim == split {
                let one = k.int(1);
                word = k.binary(Binary::And, place, one)?;
                place = k.binary(Binary::ShiftRight, place, one)?;
            }
            let stride = k.int(blocks[dim + 1..].iter().product::<usize>() as u32 as i32);
            let offset = k.mul(place, stride)?;
            index = k.add(index, offset)?;
        }
        let mut word_of = |place: i32| k.load_scalar(state, &Index::from(place));
        let (key, from) = ([word_of(0)?, word_of(1)?], [word_of(2)?, word_of(3)?]);
        let counter = add_wide(k, from, index)?;
        let [first, second] = block(k, key, counter)?;
        let (dims, _) = self.layout(layout);
        let (word, zero) = (k.broadcast(word, &dims)?, k.int(0));
        let is_first = k.compare(Comparison::Equal, word, zero)?;
        k.select(is_first, first, second)
    }

    /// Returns where the elements of a block are along a dim of `[batch, heads, queries, keys]`.
    fn place(&self, k: &mut KernelBuilder, at: &Place, layout: Layout, dim: usize) -> Result<Value> {
        let (dims, query_dim) = self.layout(layout);
        let (first, along) = match dim {
            0 => (at.batch.clone(), None),
            1 => (at.head.clone(), None),
            2 => (at.query.clone() * self.blocks.queries as i32, Some(query_dim)),
            _ => (at.key.clone() * self.blocks.keys as i32, Some(1 - query_dim)),
        };
        let first = k.index(&first)?;
        let Some(along) = along else { return Ok(first) };
        let within = k.iota(&dims, along)?;
        k.add(within, first)
    }
}

/// Returns numbers, or their gradient, with 0 for those that are dropped.
pub(super) fn without_dropped(k: &mut KernelBuilder, kept: Option<Value>, numbers: Value) -> Result<Value> {
    let Some(kept) = kept else { return Ok(numbers) };
    let zero = k.float(0.0);
    k.select(kept, numbers, zero)
}

/// Returns the dim along which neighbours are words of one block: the first even one, or else the first of the largest.
fn split_dim(sizes: [usize; 4]) -> usize {
    let even = sizes.iter().position(|size| size % 2 == 0);
    even.unwrap_or_else(|| (0..4).rev().max_by_key(|&dim| sizes[dim]).unwrap_or_default())
}

/// Adds a 32-bit number to a 64-bit number in two words.
fn add_wide(k: &mut KernelBuilder, [low, high]: [Value; 2], index: Value) -> Result<[Value; 2]> {
    let low = k.add(index, low)?;
    let wrapped = compare_unsigned(k, Comparison::Less, low, index)?;
    let (one, zero) = (k.int(1), k.int(0));
    let carry = k.select(wrapped, one, zero)?;
    Ok([low, k.add(carry, high)?])
}

/// Returns the two words of each block, from the words of the key and of the block's counter.
fn block(k: &mut KernelBuilder, key: [Value; 2], counter: [Value; 2]) -> Result<[Value; 2]> {
    let (both, parity) = (k.binary(Binary::Xor, key[0], key[1])?, k.int(PARITY));
    let keys = [key[0], key[1], k.binary(Binary::Xor, both, parity)?];
    let (mut x, mut y) = (k.add(counter[0], keys[0])?, k.add(counter[1], keys[1])?);
    for group in 0..GROUPS {
        for rotation in ROTATIONS[group % 2] {
            x = k.add(x, y)?;
            let rotated = rotated(k, y, rotation)?;
            y = k.binary(Binary::Xor, rotated, x)?;
        }
        x = k.add(x, keys[(group + 1) % 3])?;
        // Added to the key while it is a scalar.
        let number = k.int(group as i32 + 1);
        let injected = k.add(keys[(group + 2) % 3], number)?;
        y = k.add(y, injected)?;
    }
    Ok([x, y])
}

fn rotated(k: &mut KernelBuilder, x: Value, by: i32) -> Result<Value> {
    let (left, right) = (k.int(by), k.int(32 - by));
    let (left, right) = (k.binary(Binary::ShiftLeft, x, left)?, k.binary(Binary::ShiftRight, x, right)?);
    k.binary(Binary::Or, left, right)
}

/// Compares words as unsigned numbers: with the highest bit turned over, they are in the order of signed ones.
fn compare_unsigned(k: &mut KernelBuilder, op: Comparison, x: Value, y: Value) -> Result<Value> {
    let highest = k.int(i32::MIN);
    let [x, y] = [k.binary(Binary::Xor, x, highest)?, k.binary(Binary::Xor, y, highest)?];
    k.compare(op, x, y)
}
