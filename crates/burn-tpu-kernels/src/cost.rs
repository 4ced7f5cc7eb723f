//! What a kernel costs: arithmetic and traffic, counted over the steps of its grid.

use crate::kernel::{Kernel, Role, steps};
use crate::op::{Binary, Comparison, Number, Op, Statement, Unary, Value};
use crate::{ArrayType, Axis, Element};

/// The cost of one run of a kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Cost {
    /// Multiplications and additions of products (two for each pair of elements), and element-wise ops.
    pub flops: u64,
    /// Exponentials, logarithms and hyperbolic tangents.
    pub transcendentals: u64,
    /// Bytes copied between main memory and VMEM: each block of an operand or result as often as the grid moves on to it.
    pub bytes_accessed: u64,
}

impl Kernel {
    /// Returns the cost of one run. A body whose condition depends on data counts as if it always ran.
    pub fn cost(&self) -> Cost {
        Cost { bytes_accessed: self.bytes_accessed(), ..self.arithmetic() }
    }

    /// Counts the ops of the steps along those axes that the body reads, as often as the others repeat them.
    fn arithmetic(&self) -> Cost {
        let reads = |at: usize| self.nodes.iter().any(|node| node.op == Op::Grid(at));
        let axes = self.axes.iter().enumerate();
        let read: Vec<Axis> = axes.filter(|(at, _)| reads(*at)).map(|(_, axis)| *axis).collect();
        let (mut cost, mut step) = (Cost::default(), vec![0; self.axes.len()]);
        for part in steps(&read) {
            let mut part = part.into_iter();
            (0..step.len()).filter(|&at| reads(at)).for_each(|at| step[at] = part.next().unwrap_or_default());
            self.add_body(&self.body, &step, &mut cost);
        }
        let repeated = (self.steps() / read.iter().map(|axis| axis.size).product::<usize>()) as u64;
        Cost { flops: cost.flops * repeated, transcendentals: cost.transcendentals * repeated, ..cost }
    }

    /// Counts the blocks that the steps copy.
    fn bytes_accessed(&self) -> u64 {
        let windows = self.buffers.iter().filter(|buffer| buffer.role != Role::Scratch).map(|buffer| &buffer.window);
        let mut seen: Vec<_> = windows.map(|window| (window, Vec::new(), 0)).collect();
        for step in steps(&self.axes) {
            for (window, seen, count) in seen.iter_mut().filter(|(window, seen, _)| !window.is_at(&step, seen)) {
                (*seen, *count) = (window.at(&step), *count + 1);
            }
        }
        seen.into_iter().map(|(window, _, count)| count * window.block_type().size_bytes() as u64).sum()
    }

    fn add_body(&self, body: &[Statement], step: &[i64], cost: &mut Cost) {
        for statement in body {
            match statement {
                Statement::Let(value) => self.add_op(*value, cost),
                Statement::Store(..) => {}
                Statement::When(condition, body) => {
                    if self.scalar(*condition, step) != Some(0) {
                        self.add_body(body, step, cost);
                    }
                }
            }
        }
    }

    fn add_op(&self, value: Value, cost: &mut Cost) {
        let node = self.node(value);
        let elements = |ty: &ArrayType| if ty.is_scalar() { 0 } else { ty.elements() as u64 };
        match &node.op {
            Op::Unary(Unary::Exp | Unary::Log | Unary::Tanh, _) => cost.transcendentals += elements(&node.ty),
            Op::Binary(..) | Op::Compare(..) | Op::Select(..) => cost.flops += elements(&node.ty),
            Op::Reduce(_, x, _) => cost.flops += elements(&self.node(*x).ty),
            Op::Matmul(product) => {
                let depth = self.node(product.lhs).ty.dims[usize::from(!product.transpose_lhs)];
                cost.flops += 2 * elements(&node.ty) * depth as u64;
            }
            _ => {}
        }
    }

    /// Returns the value of a scalar at a step, if it depends on the grid alone. A bool is 0 or 1.
    fn scalar(&self, value: Value, step: &[i64]) -> Option<i64> {
        let node = self.node(value);
        let at = |value: &Value| self.scalar(*value, step);
        if !node.ty.is_scalar() || node.ty.element == Element::F32 {
            return None;
        }
        match &node.op {
            Op::Grid(axis) => step.get(*axis).copied(),
            Op::Constant(Number::Int(value)) => Some(i64::from(*value)),
            // What does not depend on data may decide alone.
            Op::Binary(Binary::And, x, y) => match (at(x), at(y)) {
                (Some(0), _) | (_, Some(0)) => Some(0),
                (x, y) => x.and(y),
            },
            Op::Binary(op, x, y) => integer(*op, at(x)?, at(y)?),
            Op::Compare(op, x, y) => Some(i64::from(op.holds(&at(x)?, &at(y)?))),
            _ => None,
        }
    }
}

/// Returns a function of two integers; `None` for a division by zero.
pub(crate) fn integer(op: Binary, x: i64, y: i64) -> Option<i64> {
    match op {
        Binary::Add => Some(x + y),
        Binary::Sub => Some(x - y),
        Binary::Mul => Some(x * y),
        Binary::Div => x.checked_div(y),
        Binary::Max => Some(x.max(y)),
        Binary::Min => Some(x.min(y)),
        Binary::And => Some(x & y),
        Binary::Or => Some(x | y),
        Binary::Xor => Some(x ^ y),
        Binary::ShiftLeft => Some(i64::from((x as i32).wrapping_shl(y as u32))),
        Binary::ShiftRight => Some(i64::from((x as u32).wrapping_shr(y as u32))),
    }
}

impl Comparison {
    /// Returns whether the comparison is true.
    pub(crate) fn holds<T: PartialOrd>(self, x: &T, y: &T) -> bool {
        match self {
            Comparison::Equal => x == y,
            Comparison::NotEqual => x != y,
            Comparison::Less => x < y,
            Comparison::LessEqual => x <= y,
            Comparison::Greater => x > y,
            Comparison::GreaterEqual => x >= y,
        }
    }
}
