//! Ops on vectors and scalars. Operands of one op are broadcast to each other: scalars, and dims of one.

use super::KernelBuilder;
use crate::op::{Binary, Comparison, Matmul, Number, Op, Reduction, Unary, Value};
use crate::{ArrayType, Element, KernelError, Result};

impl KernelBuilder {
    /// Returns a scalar f32.
    pub fn float(&mut self, value: f32) -> Value {
        self.define(Op::Constant(Number::Float(value)), ArrayType::scalar(Element::F32))
    }

    /// Returns a scalar i32.
    pub fn int(&mut self, value: i32) -> Value {
        self.define(Op::Constant(Number::Int(value)), ArrayType::scalar(Element::I32))
    }

    /// Returns an i32 vector of the index along a dim.
    pub fn iota(&mut self, dims: &[usize], dim: usize) -> Result<Value> {
        let ty = ArrayType::new(Element::I32, dims);
        if dims.len() != 2 || dim >= dims.len() {
            return Err(KernelError::op("iota", &[&ty], format!("dim {dim} of a matrix")));
        }
        Ok(self.define(Op::Iota(dim), ty))
    }

    /// Returns a function of each element of an f32 vector.
    pub fn unary(&mut self, op: Unary, x: Value) -> Result<Value> {
        let ty = self.ty(x)?.clone();
        if ty.element != Element::F32 || ty.is_scalar() {
            return Err(KernelError::op("unary", &[&ty], format!("{op:?} takes an f32 vector")));
        }
        Ok(self.define(Op::Unary(op, x), ty))
    }

    /// Returns a function of each pair of elements of two f32, two i32, or for `And` two bool. Functions of bits take i32.
    pub fn binary(&mut self, op: Binary, x: Value, y: Value) -> Result<Value> {
        let (x, y) = self.unified("binary", x, y)?;
        let ty = self.ty(x)?.clone();
        let takes = match op {
            Binary::And => matches!(ty.element, Element::Bool | Element::I32),
            Binary::Or | Binary::Xor | Binary::ShiftLeft | Binary::ShiftRight => ty.element == Element::I32,
            _ => is_computed(&ty),
        };
        if !takes {
            let rule = "takes f32 or i32, And takes bool or i32, the other functions of bits i32";
            return Err(KernelError::op("binary", &[&ty, &ty], format!("{op:?} {rule}")));
        }
        Ok(self.define(Op::Binary(op, x, y), ty))
    }

    /// Returns `x + y`.
    pub fn add(&mut self, x: Value, y: Value) -> Result<Value> {
        self.binary(Binary::Add, x, y)
    }

    /// Returns `x - y`.
    pub fn sub(&mut self, x: Value, y: Value) -> Result<Value> {
        self.binary(Binary::Sub, x, y)
    }

    /// Returns `x * y`.
    pub fn mul(&mut self, x: Value, y: Value) -> Result<Value> {
        self.binary(Binary::Mul, x, y)
    }

    /// Returns `x / y`.
    pub fn div(&mut self, x: Value, y: Value) -> Result<Value> {
        self.binary(Binary::Div, x, y)
    }

    /// Returns the larger of each pair of elements.
    pub fn max(&mut self, x: Value, y: Value) -> Result<Value> {
        self.binary(Binary::Max, x, y)
    }

    /// Returns e to the power of each element.
    pub fn exp(&mut self, x: Value) -> Result<Value> {
        self.unary(Unary::Exp, x)
    }

    /// Returns a comparison of each pair of elements.
    pub fn compare(&mut self, op: Comparison, x: Value, y: Value) -> Result<Value> {
        let (x, y) = self.unified("compare", x, y)?;
        let ty = self.ty(x)?.clone();
        if !is_computed(&ty) {
            return Err(KernelError::op("compare", &[&ty, &ty], "takes f32 or i32"));
        }
        Ok(self.define(Op::Compare(op, x, y), ty.with_element(Element::Bool)))
    }

    /// Returns the elements of `x` where the condition is true, else those of `y`.
    pub fn select(&mut self, condition: Value, x: Value, y: Value) -> Result<Value> {
        let dims = self.ty(condition)?.dims.clone();
        let (x, y) = (self.broadcast(x, &dims)?, self.broadcast(y, &dims)?);
        let (tested, ty, other) = (self.ty(condition)?, self.ty(x)?.clone(), self.ty(y)?);
        if tested.element != Element::Bool || ty != *other || !is_computed(&ty) {
            return Err(KernelError::op("select", &[tested, &ty, other], "takes a bool and two f32 or two i32"));
        }
        Ok(self.define(Op::Select(condition, x, y), ty))
    }

    /// Returns the elements in another type: f32 to and from bf16, i8 to i32, i32 to f32.
    pub fn cast(&mut self, x: Value, element: Element) -> Result<Value> {
        let ty = self.ty(x)?.clone();
        let known = matches!(
            (ty.element, element),
            (Element::F32, Element::BF16)
                | (Element::BF16, Element::F32)
                | (Element::I8, Element::I32)
                | (Element::I32, Element::F32)
        );
        if ty.element == element {
            return Ok(x);
        }
        if !known {
            return Err(KernelError::op("cast", &[&ty], format!("there is no cast to {}", element.name())));
        }
        Ok(self.define(Op::Cast(x), ty.with_element(element)))
    }

    /// Returns a scalar or a vector repeated along dims of one.
    pub fn broadcast(&mut self, x: Value, dims: &[usize]) -> Result<Value> {
        let ty = self.ty(x)?.clone();
        if ty.dims == dims {
            return Ok(x);
        }
        let fits = ty.is_scalar() || ty.dims.len() == dims.len();
        if !fits || ty.dims.iter().zip(dims).any(|(&from, &to)| from != to && from != 1) {
            return Err(KernelError::op("broadcast", &[&ty], format!("it has no broadcast to {dims:?}")));
        }
        Ok(self.define(Op::Broadcast(x), ty.with_dims(dims)))
    }

    /// Returns sums or maxima of an f32 matrix along a dim, which is kept with size one.
    pub fn reduce(&mut self, op: Reduction, x: Value, dim: usize) -> Result<Value> {
        let mut ty = self.ty(x)?.clone();
        if ty.element != Element::F32 || ty.dims.len() != 2 || dim > 1 {
            return Err(KernelError::op("reduce", &[&ty], format!("takes an f32 matrix; dim {dim}")));
        }
        ty.dims[dim] = 1;
        Ok(self.define(Op::Reduce(op, x, dim), ty))
    }

    /// Returns the transposed f32 matrix.
    pub fn transpose(&mut self, x: Value) -> Result<Value> {
        let mut ty = self.ty(x)?.clone();
        if ty.element != Element::F32 || ty.dims.len() != 2 {
            return Err(KernelError::op("transpose", &[&ty], "takes an f32 matrix"));
        }
        ty.dims.reverse();
        Ok(self.define(Op::Transpose(x), ty))
    }

    /// Returns the product of two matrices: f32 for floats, i32 for i8.
    pub fn matmul(&mut self, lhs: Value, rhs: Value) -> Result<Value> {
        self.product(Matmul { lhs, rhs, transpose_lhs: false, transpose_rhs: false })
    }

    /// Returns the product of a matrix and the transposed of another one.
    pub fn matmul_transposed(&mut self, lhs: Value, rhs: Value) -> Result<Value> {
        self.product(Matmul { lhs, rhs, transpose_lhs: false, transpose_rhs: true })
    }

    /// Returns the product of the transposed of a matrix and another one.
    pub fn transposed_matmul(&mut self, lhs: Value, rhs: Value) -> Result<Value> {
        self.product(Matmul { lhs, rhs, transpose_lhs: true, transpose_rhs: false })
    }

    fn product(&mut self, product: Matmul) -> Result<Value> {
        let (lhs, rhs) = (self.ty(product.lhs)?, self.ty(product.rhs)?);
        let fails = |rule| Err(KernelError::op("matmul", &[lhs, rhs], rule));
        let (&[a, b], &[c, d]) = (&lhs.dims[..], &rhs.dims[..]) else { return fails("takes two matrices") };
        let (rows, left) = if product.transpose_lhs { (b, a) } else { (a, b) };
        let (right, columns) = if product.transpose_rhs { (d, c) } else { (c, d) };
        if left != right {
            return fails("the contracted sizes differ");
        }
        let element = match (lhs.element, rhs.element) {
            (Element::I8, Element::I8) => Element::I32,
            (x, y) if x == y && x.is_float() => Element::F32,
            _ => return fails("takes two f32, two bf16 or two i8"),
        };
        Ok(self.define(Op::Matmul(product), ArrayType::new(element, [rows, columns])))
    }

    /// Returns two operands with the dims of both.
    fn unified(&mut self, op: &'static str, x: Value, y: Value) -> Result<(Value, Value)> {
        let (left, right) = (self.ty(x)?.clone(), self.ty(y)?.clone());
        let ranks = [left.dims.len(), right.dims.len()];
        if left.element != right.element || ranks[0] != ranks[1] && !ranks.contains(&0) {
            return Err(KernelError::op(op, &[&left, &right], "the operands differ in element type or rank"));
        }
        let dims: Vec<usize> = match ranks {
            [_, 0] => left.dims,
            [0, _] => right.dims,
            _ => left.dims.iter().zip(&right.dims).map(|(&x, &y)| if x == 1 { y } else { x }).collect(),
        };
        Ok((self.broadcast(x, &dims)?, self.broadcast(y, &dims)?))
    }
}

/// Returns whether the vector unit of every generation computes with the type.
fn is_computed(ty: &ArrayType) -> bool {
    matches!(ty.element, Element::F32 | Element::I32)
}
