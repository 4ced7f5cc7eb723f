//! How much vector memory (VMEM) a kernel needs.

use crate::kernel::{Kernel, Role, Space};
use crate::op::{Op, Statement, Value};

/// The vector memory that a kernel needs, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vmem {
    /// The blocks of operands and results: two of each, since the next is copied while one is computed with; one of those
    /// that never change.
    pub window_bytes: usize,
    /// Scratch memory.
    pub scratch_bytes: usize,
    /// The vectors that are alive at the same time, at most. The compiler keeps some of them in registers.
    pub value_bytes: usize,
}

impl Vmem {
    /// Returns the sum.
    pub fn total_bytes(&self) -> usize {
        self.window_bytes + self.scratch_bytes + self.value_bytes
    }
}

impl Kernel {
    /// Returns the vector memory that the kernel needs.
    pub fn vmem(&self) -> Vmem {
        let mut vmem = Vmem { window_bytes: 0, scratch_bytes: 0, value_bytes: live_bytes(self) };
        for buffer in self.buffers.iter().filter(|buffer| buffer.window.space == Space::Vmem) {
            let bytes = buffer.window.block_type().tiled_bytes();
            match buffer.role {
                Role::Scratch => vmem.scratch_bytes += bytes,
                _ if buffer.window.index.iter().all(|index| index.axes() == 0) => vmem.window_bytes += bytes,
                _ => vmem.window_bytes += 2 * bytes,
            }
        }
        vmem
    }
}

/// Returns the largest sum of the vectors that are defined before a statement's end and used at it or later.
fn live_bytes(kernel: &Kernel) -> usize {
    let mut order = Vec::new();
    flatten(kernel, &kernel.body, &mut order);
    let mut last_use = vec![0; kernel.nodes.len()];
    for (at, step) in order.iter().enumerate() {
        step.used.iter().for_each(|value| last_use[value.0 as usize] = at);
    }
    let (mut live, mut most) = (Vec::new(), 0);
    for (at, step) in order.iter().enumerate() {
        live.extend(step.defined);
        most = most.max(live.iter().map(|value| bytes(kernel, *value)).sum());
        live.retain(|value| last_use[value.0 as usize] > at);
    }
    most
}

/// What a statement defines and uses.
struct Step {
    defined: Option<Value>,
    used: Vec<Value>,
}

fn flatten(kernel: &Kernel, body: &[Statement], order: &mut Vec<Step>) {
    for statement in body {
        match statement {
            Statement::Let(value) => {
                order.push(Step { defined: Some(*value), used: kernel.node(*value).op.operands() });
            }
            Statement::Store(_, value) => order.push(Step { defined: None, used: vec![*value] }),
            Statement::When(condition, body) => {
                order.push(Step { defined: None, used: vec![*condition] });
                flatten(kernel, body, order);
            }
        }
    }
}

/// Returns the size of a vector that is kept, and not made where it is used.
fn bytes(kernel: &Kernel, value: Value) -> usize {
    let node = kernel.node(value);
    let is_made = matches!(node.op, Op::Constant(_) | Op::Broadcast(_) | Op::Iota(_));
    if is_made || node.ty.is_scalar() { 0 } else { node.ty.tiled_bytes() }
}
