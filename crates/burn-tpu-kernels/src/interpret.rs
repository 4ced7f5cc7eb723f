//! An interpreter of kernels on the host, to test their arithmetic without a TPU.
//!
//! It runs the steps of the grid in order and rounds where the kernel rounds. What a kernel may not rely on is NaN, or the
//! smallest integer: scratch memory at the start and after a step along a parallel axis, and blocks of results that were not
//! stored to. Owns: blocks that move with the grid. May not know: ops, which are in `interpret/value.rs`.

use crate::kernel::{Kernel, Role, Semantics, steps};
use crate::op::{Op, Statement, Value};
use crate::{KernelError, Result};
use std::collections::BTreeSet;

mod array;
mod value;

pub use array::Array;

/// Runs a kernel and returns its results.
///
/// # Errors
/// Operands of other types than the kernel's; a block of a result that two parallel steps see, or that the grid comes back
/// to.
pub fn interpret(kernel: &Kernel, operands: &[Array]) -> Result<Vec<Array>> {
    let fails = |rule: String| KernelError::Arguments { kernel: kernel.name.clone(), rule };
    let given: Vec<_> = operands.iter().map(|operand| operand.ty().clone()).collect();
    if given != kernel.operands() {
        let expected = kernel.operands().iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let given = given.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        return Err(fails(format!("given [{given}], it takes [{expected}]")));
    }
    let mut machine = Machine::new(kernel, operands);
    let mut last = None;
    for step in steps(&kernel.axes) {
        machine.enter(&step, last.as_deref()).map_err(fails)?;
        machine.run(&kernel.body).map_err(fails)?;
        last = Some(step);
    }
    Ok(machine.finish())
}

struct Machine<'k> {
    kernel: &'k Kernel,
    /// The operands and results, and of scratch memory nothing.
    arrays: Vec<Array>,
    /// The blocks that this step sees, and where they are.
    blocks: Vec<Array>,
    places: Vec<Vec<i64>>,
    /// The blocks of results that were written back.
    written: BTreeSet<(usize, Vec<i64>)>,
    step: Vec<i64>,
    values: Vec<Option<Array>>,
}

impl<'k> Machine<'k> {
    fn new(kernel: &'k Kernel, operands: &[Array]) -> Self {
        let mut operands = operands.iter();
        let arrays = kernel.buffers.iter().map(|buffer| match buffer.role {
            Role::Operand => operands.next().cloned().unwrap_or_else(|| Array::unknown(buffer.window.array.clone())),
            _ => Array::unknown(buffer.window.array.clone()),
        });
        let blocks = kernel.buffers.iter().map(|buffer| Array::unknown(buffer.window.block_type()));
        let places = vec![Vec::new(); kernel.buffers.len()];
        let (values, written) = (vec![None; kernel.nodes.len()], BTreeSet::new());
        Self { kernel, arrays: arrays.collect(), blocks: blocks.collect(), places, written, step: Vec::new(), values }
    }

    /// Moves on to a step: writes back the blocks that it does not see, copies those that it does.
    fn enter(&mut self, step: &[i64], last: Option<&[i64]>) -> Result<(), String> {
        let moves = |(place, axis): (usize, &crate::Axis)| {
            axis.semantics == Semantics::Parallel && last.is_some_and(|last| last[place] != step[place])
        };
        let forgets = self.kernel.axes.iter().enumerate().any(moves);
        for (at, buffer) in self.kernel.buffers.iter().enumerate() {
            let place = buffer.window.at(step);
            let is_new = place != self.places[at];
            match buffer.role {
                Role::Operand if is_new => self.blocks[at] = self.arrays[at].block(&buffer.window.block, &place),
                Role::Result if is_new => {
                    self.write_back(at);
                    if self.written.contains(&(at, place.clone())) {
                        return Err(format!("the grid comes back to block {place:?} of result {at}"));
                    }
                    self.blocks[at] = Array::unknown(buffer.window.block_type());
                }
                Role::Result if forgets => return Err(format!("two parallel steps see one block of result {at}")),
                Role::Scratch if forgets => self.blocks[at] = Array::unknown(buffer.window.block_type()),
                _ => {}
            }
            self.places[at] = place;
        }
        self.step = step.to_vec();
        Ok(())
    }

    fn write_back(&mut self, at: usize) {
        if !self.places[at].is_empty() {
            self.arrays[at].set_block(&self.blocks[at], &self.places[at]);
            self.written.insert((at, self.places[at].clone()));
        }
    }

    fn finish(mut self) -> Vec<Array> {
        let results: Vec<usize> = self.kernel.of(Role::Result).map(|(at, _)| at.0 as usize).collect();
        results.iter().for_each(|&at| self.write_back(at));
        results.into_iter().map(|at| self.arrays[at].clone()).collect()
    }

    fn run(&mut self, body: &[Statement]) -> Result<(), String> {
        for statement in body {
            match statement {
                Statement::Let(value) => self.values[value.0 as usize] = Some(self.compute(*value)?),
                Statement::Store(to, value) => {
                    let block = self.kernel.buffer(*to).window.block_type();
                    self.blocks[to.0 as usize] = self.value(*value)?.clone().reshaped(block);
                }
                Statement::When(condition, body) => {
                    if self.value(*condition)?.int() != 0 {
                        self.run(body)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn compute(&self, value: Value) -> Result<Array, String> {
        let node = self.kernel.node(value);
        match &node.op {
            Op::Grid(axis) => Ok(Array::scalar(self.step[*axis] as i32)),
            Op::Load(from) => Ok(self.blocks[from.0 as usize].clone().reshaped(node.ty.clone())),
            Op::LoadScalar(from, index) => {
                let (block, index) = (&self.blocks[from.0 as usize], self.value(*index)?.int());
                block.element(index).ok_or_else(|| format!("no element {index} in {}", block.ty()))
            }
            op => {
                let operands = op.operands().into_iter().map(|value| self.value(value));
                let operands = operands.collect::<Result<Vec<_>, _>>()?;
                value::apply(op, &operands, &node.ty)
            }
        }
    }

    fn value(&self, value: Value) -> Result<&Array, String> {
        self.values[value.0 as usize].as_ref().ok_or_else(|| format!("value {} is not defined", value.0))
    }
}

#[cfg(test)]
mod tests;
