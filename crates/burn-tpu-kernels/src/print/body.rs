//! The text of a body: each statement as one op, or as the few ops that it is made of.

use super::{Printer, Term, call, mlir_type};
use crate::op::{Binary, Comparison, Matmul, Number, Op, Reduction, Statement, Unary, Value};
use crate::{ArrayType, Element, Ref};

const NO_FASTMATH: &str = "fastmath = #arith.fastmath<none>";

impl Printer<'_> {
    pub(super) fn body(&mut self, body: &[Statement]) {
        for statement in body {
            match statement {
                Statement::Let(value) => {
                    let term = self.define(*value);
                    self.values[value.0 as usize] = Some(term);
                }
                Statement::Store(to, value) => self.store(*to, *value),
                Statement::When(condition, body) => self.when(*condition, body),
            }
        }
    }

    fn when(&mut self, condition: Value, body: &[Statement]) {
        let condition = self.value(condition);
        self.line(&format!("\"stable_mosaic.scf.if\"({}) ({{", condition.name));
        self.depth += 1;
        self.body(body);
        self.line("\"stable_mosaic.scf.yield\"() : () -> ()");
        self.depth -= 1;
        self.line("}, {");
        self.line("  \"stable_mosaic.scf.yield\"() : () -> ()");
        self.line("}) : (i1) -> ()");
    }

    fn define(&mut self, value: Value) -> Term {
        let node = self.kernel.node(value);
        let ty = mlir_type(&node.ty);
        let operands: Vec<Term> = node.op.operands().into_iter().map(|operand| self.value(operand)).collect();
        match &node.op {
            Op::Grid(axis) => Term { name: format!("%g{axis}"), ty },
            Op::Constant(number) => self.constant(literal(*number), ty),
            Op::Unary(op, _) => self.op(unary(*op), &operands, NO_FASTMATH, ty),
            Op::Binary(op, ..) => self.binary(*op, operands, &node.ty),
            Op::Compare(op, x, _) => {
                let is_float = self.kernel.node(*x).ty.element.is_float();
                let (name, attributes) = comparison(*op, is_float);
                self.op(name, &operands, &attributes, ty)
            }
            Op::Select(..) => self.op("arith.select", &operands, "", ty),
            Op::Cast(x) => self.op(cast(self.kernel.node(*x).ty.element, node.ty.element), &operands, "", ty),
            Op::Broadcast(_) => self.op("vector.broadcast", &operands, "", ty),
            Op::Iota(dim) => self.op("tpu.iota", &[], &format!("dimensions = array<i32: {dim}>"), ty),
            Op::Reduce(op, _, dim) => self.reduce(*op, operands, *dim, &node.ty),
            Op::Transpose(_) => self.op("tpu.transpose", &operands, "permutation = array<i64: 1, 0>", ty),
            Op::Matmul(product) => self.matmul(product, operands, ty),
            Op::Load(from) => self.load(*from, ty),
            Op::LoadScalar(from, _) => {
                let index = self.op("arith.index_cast", &operands, "", "index".into());
                self.op("memref.load", &[self.buffer(*from), index], "nontemporal = false", ty)
            }
        }
    }

    fn binary(&mut self, op: Binary, operands: Vec<Term>, ty: &ArrayType) -> Term {
        let name = match op {
            Binary::Add => "arith.addf",
            Binary::Sub => "arith.subf",
            Binary::Mul => "arith.mulf",
            Binary::Div => "arith.divf",
            Binary::Max => "arith.maximumf",
            Binary::Min => "arith.minimumf",
            // Functions of bits take no floats.
            Binary::And | Binary::Or | Binary::Xor | Binary::ShiftLeft | Binary::ShiftRight => "arith.andi",
        };
        match <[Term; 2]>::try_from(operands) {
            Ok(operands) if !ty.element.is_float() => self.integers(op, &operands),
            Ok(operands) => self.op(name, &operands, NO_FASTMATH, mlir_type(ty)),
            Err(operands) => self.op(name, &operands, NO_FASTMATH, mlir_type(ty)),
        }
    }

    /// Prints a reduction, which drops its dim, and puts the dim back.
    fn reduce(&mut self, op: Reduction, mut operands: Vec<Term>, dim: usize, ty: &ArrayType) -> Term {
        let dropped = mlir_type(&ty.with_dims([ty.dims[1 - dim]]));
        let (kind, identity) = match op {
            Reduction::Sum => ("add", 0.0),
            Reduction::Max => ("maximumf", f32::NEG_INFINITY),
        };
        operands.push(self.splat(Number::Float(identity), dropped.clone()));
        let attributes = format!("kind = #vector.kind<{kind}>, reduction_dims = array<i64: {dim}>");
        let reduced = self.op("vector.multi_reduction", &operands, &attributes, dropped);
        self.op("vector.shape_cast", &[reduced], "", mlir_type(ty))
    }

    /// Prints a product on a sum of zeros. Products of f32 are computed in full precision, not in bf16.
    fn matmul(&mut self, product: &Matmul, mut operands: Vec<Term>, ty: String) -> Term {
        let [lhs, rhs] = [product.transpose_lhs, product.transpose_rhs].map(usize::from);
        let (lhs_contracted, rhs_contracted) = (1 - lhs, rhs);
        let (rows, columns) = (lhs, 1 - rhs);
        let of = &self.kernel.node(product.lhs).ty;
        let precision = match of.element {
            Element::F32 => "precision = #tpu.contract_precision<fp32>, ",
            _ => "",
        };
        let zero = if of.element == Element::I8 { Number::Int(0) } else { Number::Float(0.0) };
        operands.push(self.splat(zero, ty.clone()));
        let attributes = format!(
            "dimension_numbers = #tpu.dot_dimension_numbers<[{lhs_contracted}], [{rhs_contracted}], [{rows}], [{columns}], \
             [0, {rows}, 1, {columns}], [], []>, {precision}transpose_lhs = false, transpose_lhs_hint = false, \
             transpose_rhs = false"
        );
        self.op("tpu.matmul", &operands, &attributes, ty)
    }

    fn splat(&mut self, number: Number, ty: String) -> Term {
        self.constant(format!("dense<{}>", literal(number)), ty)
    }

    fn load(&mut self, from: Ref, ty: String) -> Term {
        let block = mlir_type(&self.kernel.buffer(from).window.block_type());
        let (buffer, indices) = self.origin(from);
        let loaded = self.op("vector.load", &[vec![buffer], indices].concat(), "", block.clone());
        if block == ty { loaded } else { self.op("vector.shape_cast", &[loaded], "", ty) }
    }

    fn store(&mut self, to: Ref, value: Value) {
        let block = mlir_type(&self.kernel.buffer(to).window.block_type());
        let mut value = self.value(value);
        if value.ty != block {
            value = self.op("vector.shape_cast", &[value], "", block);
        }
        let (buffer, indices) = self.origin(to);
        let segments = format!("operandSegmentSizes = array<i32: 1, 1, {}, 0>", indices.len());
        let attributes = format!("add = false, {segments}, strides = array<i32>");
        let store = call("tpu.vector_store", &[vec![value, buffer], indices].concat(), &attributes);
        self.line(&format!("{store} -> ()"));
    }

    /// Returns a block and the indices of its first element.
    fn origin(&mut self, at: Ref) -> (Term, Vec<Term>) {
        let zero = self.constant(0, "index".into());
        let rank = self.kernel.buffer(at).window.block.len();
        (self.buffer(at), vec![zero; rank])
    }
}

/// Returns a number that MLIR reads back exactly.
pub(super) fn literal(number: Number) -> String {
    match number {
        Number::Int(value) => value.to_string(),
        Number::Float(value) => {
            let decimal = format!("{value:?}");
            let is_plain = value.is_finite() && !decimal.contains('e');
            if is_plain { decimal } else { format!("0x{:08X}", value.to_bits()) }
        }
    }
}

fn unary(op: Unary) -> &'static str {
    match op {
        Unary::Exp => "math.exp",
        Unary::Log => "math.log",
        Unary::Tanh => "math.tanh",
    }
}

fn cast(from: Element, to: Element) -> &'static str {
    match (from, to) {
        (Element::I8, _) => "arith.extsi",
        (Element::I32, _) => "arith.sitofp",
        (Element::BF16, _) => "arith.extf",
        _ => "arith.truncf",
    }
}

/// Returns the op and the number of its predicate: `cmpi` of signed integers, ordered `cmpf`.
fn comparison(op: Comparison, is_float: bool) -> (&'static str, String) {
    let (int, float) = match op {
        Comparison::Equal => (0, 1),
        Comparison::NotEqual => (1, 13),
        Comparison::Less => (2, 4),
        Comparison::LessEqual => (3, 5),
        Comparison::Greater => (4, 2),
        Comparison::GreaterEqual => (5, 3),
    };
    match is_float {
        true => ("arith.cmpf", format!("{NO_FASTMATH}, predicate = {float} : i64")),
        false => ("arith.cmpi", format!("predicate = {int} : i64")),
    }
}
