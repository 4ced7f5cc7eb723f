//! The rule of random draws: the same bits as without padding.
//!
//! Bits come in blocks of two words, which are neighbours along the first even dim, or else along the first of the largest
//! (`lower/threefry.rs`). Where sizes vary, that dim is known at run time, and so is the number of the block that
//! an element belongs to. Each element computes its block, from its true index.

use super::super::Size;
use super::super::padded::{Padder, Value, capacities};
use crate::lower::threefry::{add_wide, block, element, words};
use crate::op::{BinaryOp, Direction};
use crate::{Builder, DType, NodeId, Number, Op, Result, TensorType};

/// The block of each element, and its word there, as `ui32` of the draw's dims.
#[derive(Clone, Copy)]
struct Places {
    block: NodeId,
    word: NodeId,
}

impl Padder<'_> {
    /// Returns the bits of a draw, its result 1.
    pub(super) fn draw(&mut self, id: NodeId, state: &Value, ty: &TensorType) -> Result<Value> {
        let is_state_used =
            |node: &crate::Node| node.operands.contains(&id) && !matches!(node.op, Op::GetResult { index: 1 });
        if self.old.graph().nodes().iter().any(is_state_used) || self.old.program.outputs().contains(&id) {
            return Err(self.refusal(id, "has a next state that depends on a size that varies"));
        }
        let (sizes, axes) = (self.old.dims(id, 1), self.axes_of(id, 1)?);
        let dims = capacities(&axes);
        if u32::try_from(dims.iter().product::<usize>()).is_err() {
            return Err(self.refusal(id, "draws more elements than 32 bits count"));
        }
        let (key, counter) = (element(&mut self.graph, state.node, 0)?, element(&mut self.graph, state.node, 1)?);
        let (key, counter) = (words(&mut self.graph, key)?, words(&mut self.graph, counter)?);
        let node = match ty.dtype {
            DType::U32 => {
                let Places { block: number, word } = self.places_of_words(&sizes, &dims)?;
                let from = add_wide(&mut self.graph, counter, number)?;
                let [first, second] = block(&mut self.graph, key, from)?;
                let is_first = self.graph.compare_const(Direction::Eq, word, Number::UInt(0))?;
                self.graph.select(is_first, first, second)?
            }
            _ => {
                let number = self.block_of(&sizes, &dims, None)?;
                let from = add_wide(&mut self.graph, counter, number)?;
                let [low, high] = block(&mut self.graph, key, from)?;
                let (low, high) = (self.graph.convert(low, DType::U64)?, self.graph.convert(high, DType::U64)?);
                let high = self.graph.binary_const(BinaryOp::ShiftLeft, high, Number::UInt(32))?;
                self.graph.binary(BinaryOp::Or, high, low)?
            }
        };
        Ok(Value { node, axes })
    }

    /// Returns the places of 32-bit words: those for the dim that is split at run time.
    fn places_of_words(&mut self, sizes: &[Size], dims: &[usize]) -> Result<Places> {
        // No dim after a fixed even one is split.
        let is_even = |size: &Size| size.as_fixed().is_some_and(|size| size % 2 == 0);
        let always = sizes.iter().position(is_even);
        let mut places = match always {
            Some(split) => self.places_along(sizes, dims, split)?,
            None => self.places_along_largest(sizes, dims)?,
        };
        for split in (0..always.unwrap_or(sizes.len())).rev().filter(|&split| !sizes[split].is_fixed()) {
            let size = self.scalar(&sizes[split])?;
            let odd = self.graph.binary_const(BinaryOp::And, size, 1i64)?;
            let is_even = self.graph.compare_const(Direction::Eq, odd, 0i64)?;
            let along = self.places_along(sizes, dims, split)?;
            places = self.chosen(is_even, along, places, dims)?;
        }
        Ok(places)
    }

    fn places_along_largest(&mut self, sizes: &[Size], dims: &[usize]) -> Result<Places> {
        let last = sizes.len() - 1;
        let mut places = self.places_along(sizes, dims, last)?;
        // From the last dim to the first: one that is as large as all others comes before those after it.
        for split in (0..last).rev() {
            let size = self.scalar(&sizes[split])?;
            let mut is_largest = self.graph.scalar(DType::Bool, Number::Bool(true))?;
            for other in sizes {
                let other = self.scalar(other)?;
                let is_larger = self.graph.compare(Direction::Ge, size, other)?;
                is_largest = self.graph.binary(BinaryOp::And, is_largest, is_larger)?;
            }
            let along = self.places_along(sizes, dims, split)?;
            places = self.chosen(is_largest, along, places, dims)?;
        }
        Ok(places)
    }

    fn chosen(&mut self, is_first: NodeId, first: Places, second: Places, dims: &[usize]) -> Result<Places> {
        let is_first = self.graph.broadcast_in_dim(is_first, dims, &[])?;
        Ok(Places {
            block: self.graph.select(is_first, first.block, second.block)?,
            word: self.graph.select(is_first, first.word, second.word)?,
        })
    }

    fn places_along(&mut self, sizes: &[Size], dims: &[usize], split: usize) -> Result<Places> {
        let place = self.graph.iota(DType::U32, dims, split)?;
        let word = self.graph.binary_const(BinaryOp::And, place, Number::UInt(1))?;
        Ok(Places { block: self.block_of(sizes, dims, Some(split))?, word })
    }

    /// Returns the number of each element's block, in row-major order of the true blocks. Two neighbours along the dim that
    /// is split share one.
    fn block_of(&mut self, sizes: &[Size], dims: &[usize], split: Option<usize>) -> Result<NodeId> {
        let mut number = self.graph.splat(DType::U32, dims, Number::UInt(0))?;
        let mut stride = self.graph.scalar(DType::U32, Number::UInt(1))?;
        for dim in (0..dims.len()).rev() {
            let (mut place, mut size) = (self.graph.iota(DType::U32, dims, dim)?, self.scalar(&sizes[dim])?);
            size = self.graph.convert(size, DType::U32)?;
            if split == Some(dim) {
                place = self.graph.binary_const(BinaryOp::ShiftRightLogical, place, Number::UInt(1))?;
                size = self.graph.binary_const(BinaryOp::Add, size, Number::UInt(1))?;
                size = self.graph.binary_const(BinaryOp::ShiftRightLogical, size, Number::UInt(1))?;
            }
            let step = self.graph.broadcast_in_dim(stride, dims, &[])?;
            let offset = self.graph.binary(BinaryOp::Mul, place, step)?;
            number = self.graph.binary(BinaryOp::Add, number, offset)?;
            stride = self.graph.binary(BinaryOp::Mul, stride, size)?;
        }
        Ok(number)
    }
}
