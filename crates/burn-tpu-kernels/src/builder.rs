//! The checked builder: grid and windows, loads and stores, and bodies that run at some steps only.
//!
//! Every mistake is an error at the call that makes it. A kernel that [`KernelBuilder::build`] returns has values of known
//! types, each used where it is defined, and blocks inside their arrays at every step. The ops on values are in
//! `builder/vector.rs`. May not know: how a kernel is printed or interpreted.

use crate::index::{Expression, IndexOp};
use crate::kernel::{Buffer, Role};
use crate::op::{Binary, Node, Number, Op, Ref, Statement, Value};
use crate::{ArrayType, Axis, Element, Index, Kernel, KernelError, Result, Window, kernel::Space};

mod vector;

/// Builds a [`Kernel`].
#[derive(Debug)]
pub struct KernelBuilder {
    kernel: Kernel,
    /// The statements of the body that is being written.
    body: Vec<Statement>,
    /// For each value, whether the body that defines it is still open.
    visible: Vec<bool>,
}

impl KernelBuilder {
    /// Starts a kernel that runs on this grid, whose last axis is the fastest.
    pub fn new(name: impl Into<String>, axes: &[Axis]) -> Self {
        let (name, axes) = (name.into(), axes.to_vec());
        let kernel = Kernel { name, axes, buffers: Vec::new(), nodes: Vec::new(), body: Vec::new() };
        Self { kernel, body: Vec::new(), visible: Vec::new() }
    }

    /// Declares the next operand.
    pub fn operand(&mut self, window: Window) -> Ref {
        self.declare(Role::Operand, window)
    }

    /// Declares the next result. A block is written back when the grid moves on to another one, to which it must not return.
    pub fn result(&mut self, window: Window) -> Ref {
        self.declare(Role::Result, window)
    }

    /// Declares memory that keeps its contents along the axes that are [`Arbitrary`](crate::Semantics::Arbitrary).
    pub fn scratch(&mut self, element: Element, dims: &[usize]) -> Ref {
        self.declare(Role::Scratch, Window::whole(element, dims))
    }

    fn declare(&mut self, role: Role, window: Window) -> Ref {
        self.kernel.buffers.push(Buffer { role, window });
        Ref(self.kernel.buffers.len() as u32 - 1)
    }

    /// Returns the checked kernel.
    pub fn build(mut self) -> Result<Kernel> {
        self.kernel.body = self.body;
        self.kernel.check()
    }

    /// Loads a block of VMEM, without leading dims of one, down to a matrix.
    pub fn load(&mut self, from: Ref) -> Result<Value> {
        let window = self.window("load", from)?;
        let ty = window.block_type().matrix();
        if window.space != Space::Vmem {
            return Err(KernelError::op("load", &[&ty], "the block is in the memory of scalars"));
        }
        Ok(self.define(Op::Load(from), ty))
    }

    /// Loads an element of an array of one dim in the memory of scalars.
    pub fn load_scalar(&mut self, from: Ref, index: &Index) -> Result<Value> {
        let window = self.window("load_scalar", from)?;
        let (ty, space) = (window.array.clone(), window.space);
        if space != Space::Smem || ty.dims.len() != 1 || ty.element != Element::I32 {
            return Err(KernelError::op("load_scalar", &[&ty], "not an i32 array of one dim in the memory of scalars"));
        }
        let index = self.index(index)?;
        Ok(self.define(Op::LoadScalar(from, index), ArrayType::scalar(Element::I32)))
    }

    /// Stores a value as the block. A scalar is broadcast.
    pub fn store(&mut self, to: Ref, value: Value) -> Result<()> {
        let (window, buffer) = (self.window("store", to)?.block_type().matrix(), self.kernel.buffer(to));
        if buffer.role == Role::Operand || buffer.window.space != Space::Vmem {
            return Err(KernelError::op("store", &[&window], "only results and scratch memory are stored to"));
        }
        let value = if self.ty(value)?.is_scalar() { self.broadcast(value, &window.dims)? } else { value };
        if *self.ty(value)? != window {
            return Err(KernelError::op(
                "store",
                &[self.ty(value)?, &window],
                "the value has not the type of the block",
            ));
        }
        self.body.push(Statement::Store(to, value));
        Ok(())
    }

    /// Runs a body where a condition, a scalar, is true. Values that the body defines end with it; it leaves its results in
    /// results and scratch memory.
    pub fn when(&mut self, condition: Value, body: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        let ty = self.ty(condition)?;
        if *ty != ArrayType::scalar(Element::Bool) {
            return Err(KernelError::op("when", &[ty], "the condition is not a scalar bool"));
        }
        let (first, outer) = (self.visible.len(), std::mem::take(&mut self.body));
        let built = body(self);
        let inner = std::mem::replace(&mut self.body, outer);
        self.visible[first..].fill(false);
        self.body.push(Statement::When(condition, inner));
        built
    }

    /// Returns the value of an expression of grid indices, a scalar i32.
    pub fn index(&mut self, index: &Index) -> Result<Value> {
        let scalar = ArrayType::scalar(Element::I32);
        if index.axes() > self.kernel.axes.len() {
            let rule = format!("axis {} of a grid of {}", index.axes() - 1, self.kernel.axes.len());
            return Err(KernelError::op("index", &[], rule));
        }
        let op = match &index.0 {
            Expression::Constant(value) => Op::Constant(Number::Int(*value)),
            Expression::Grid(axis) => Op::Grid(*axis),
            Expression::Binary(op, lhs, rhs) => Op::Binary(Binary::from(*op), self.index(lhs)?, self.index(rhs)?),
        };
        Ok(self.define(op, scalar))
    }

    /// Returns the type of a value.
    pub fn ty(&self, value: Value) -> Result<&ArrayType> {
        match self.visible.get(value.0 as usize) {
            Some(true) => Ok(&self.kernel.node(value).ty),
            _ => Err(KernelError::op("value", &[], "it is not defined here: the body that defined it has ended")),
        }
    }

    fn window(&self, op: &'static str, at: Ref) -> Result<&Window> {
        let buffer = self.kernel.buffers.get(at.0 as usize);
        buffer.map(|buffer| &buffer.window).ok_or_else(|| KernelError::op(op, &[], "a block of another kernel"))
    }

    fn define(&mut self, op: Op, ty: ArrayType) -> Value {
        let value = Value(self.kernel.nodes.len() as u32);
        self.kernel.nodes.push(Node { op, ty });
        self.visible.push(true);
        self.body.push(Statement::Let(value));
        value
    }
}

impl From<IndexOp> for Binary {
    fn from(op: IndexOp) -> Self {
        match op {
            IndexOp::Add => Binary::Add,
            IndexOp::Sub => Binary::Sub,
            IndexOp::Mul => Binary::Mul,
            IndexOp::Div => Binary::Div,
            IndexOp::Min => Binary::Min,
            IndexOp::Max => Binary::Max,
        }
    }
}

#[cfg(test)]
mod tests;
