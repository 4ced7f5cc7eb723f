//! The ops on values, as a TPU computes them: f32 arithmetic, products of bf16 summed in f32.

use super::array::{Array, Data};
use crate::cost::integer;
use crate::op::{Binary, Matmul, Number, Op, Reduction, Unary};
use crate::{ArrayType, Element};

/// Returns the result of an op.
pub(super) fn apply(op: &Op, operands: &[&Array], ty: &ArrayType) -> Result<Array, String> {
    let data = match (op, operands) {
        (Op::Constant(Number::Float(value)), []) => Data::Floats(vec![*value; ty.elements()]),
        (Op::Constant(Number::Int(value)), []) => Data::Ints(vec![*value; ty.elements()]),
        (Op::Iota(dim), []) => Data::Ints(iota(&ty.dims, *dim)),
        (Op::Unary(op, _), [x]) => Data::Floats(x.as_floats().iter().map(|&x| unary(*op, x)).collect()),
        (Op::Binary(op, ..), [x, y]) => binary(*op, x, y),
        (Op::Compare(op, ..), [x, y]) => Data::Ints(match (&x.data, &y.data) {
            (Data::Floats(x), Data::Floats(y)) => x.iter().zip(y).map(|(x, y)| op.holds(x, y).into()).collect(),
            _ => x.as_ints().iter().zip(y.as_ints()).map(|(x, y)| op.holds(x, y).into()).collect(),
        }),
        (Op::Select(..), [condition, x, y]) => select(condition.as_ints(), x, y),
        (Op::Cast(_), [x]) => return Ok(cast(x, ty.element)),
        (Op::Broadcast(_), [x]) => broadcast(x, ty),
        (Op::Reduce(op, _, dim), [x]) => Data::Floats(reduce(*op, x, *dim)),
        (Op::Transpose(_), [x]) => Data::Floats(transposed(x.as_floats(), &x.ty().dims)),
        (Op::Matmul(product), [lhs, rhs]) => matmul(product, lhs, rhs, ty),
        _ => return Err(format!("{op:?} on {} operands", operands.len())),
    };
    Ok(Array::new(ty.clone(), data))
}

fn iota(dims: &[usize], dim: usize) -> Vec<i32> {
    let inner: usize = dims[dim + 1..].iter().product();
    (0..dims.iter().product()).map(|place: usize| (place / inner % dims[dim]) as i32).collect()
}

fn unary(op: Unary, x: f32) -> f32 {
    match op {
        Unary::Exp => x.exp(),
        Unary::Log => x.ln(),
        Unary::Tanh => x.tanh(),
    }
}

fn binary(op: Binary, x: &Array, y: &Array) -> Data {
    if let (Data::Floats(x), Data::Floats(y)) = (&x.data, &y.data) {
        return Data::Floats(x.iter().zip(y).map(|(&x, &y)| float(op, x, y)).collect());
    }
    let pairs = x.as_ints().iter().zip(y.as_ints());
    Data::Ints(pairs.map(|(&x, &y)| integer(op, x.into(), y.into()).unwrap_or_default() as i32).collect())
}

fn float(op: Binary, x: f32, y: f32) -> f32 {
    match op {
        Binary::Add => x + y,
        Binary::Sub => x - y,
        Binary::Mul => x * y,
        Binary::Div => x / y,
        Binary::Max | Binary::Min if x.is_nan() || y.is_nan() => f32::NAN,
        Binary::Max => x.max(y),
        Binary::Min => x.min(y),
        // Functions of bits take no floats.
        Binary::And | Binary::Or | Binary::Xor | Binary::ShiftLeft | Binary::ShiftRight => f32::NAN,
    }
}

fn select(condition: &[i32], x: &Array, y: &Array) -> Data {
    fn choose<T: Copy>(condition: &[i32], x: &[T], y: &[T]) -> Vec<T> {
        condition.iter().zip(x.iter().zip(y)).map(|(&c, (&x, &y))| if c != 0 { x } else { y }).collect()
    }
    match (&x.data, &y.data) {
        (Data::Floats(x), Data::Floats(y)) => Data::Floats(choose(condition, x, y)),
        _ => Data::Ints(choose(condition, x.as_ints(), y.as_ints())),
    }
}

fn cast(x: &Array, element: Element) -> Array {
    let ty = x.ty().with_element(element);
    match &x.data {
        Data::Floats(_) => x.clone().rounded(element),
        Data::Ints(values) if element.is_float() => {
            Array::new(ty, Data::Floats(values.iter().map(|&value| value as f32).collect())).rounded(element)
        }
        Data::Ints(values) => Array::new(ty, Data::Ints(values.clone())),
    }
}

fn broadcast(x: &Array, ty: &ArrayType) -> Data {
    let from = &x.ty().dims;
    let place = |mut element: usize| {
        let (mut place, mut stride) = (0, 1);
        for dim in (0..from.len()).rev() {
            place += stride * (element % ty.dims[dim]).min(from[dim] - 1);
            stride *= from[dim];
            element /= ty.dims[dim];
        }
        place
    };
    let places = (0..ty.elements()).map(place);
    match &x.data {
        Data::Floats(values) => Data::Floats(places.map(|place| values[place]).collect()),
        Data::Ints(values) => Data::Ints(places.map(|place| values[place]).collect()),
    }
}

fn reduce(op: Reduction, x: &Array, dim: usize) -> Vec<f32> {
    let columns = x.ty().dims[1];
    let (count, identity, combine) = match op {
        Reduction::Sum => (x.ty().dims[1 - dim], 0.0, Binary::Add),
        Reduction::Max => (x.ty().dims[1 - dim], f32::NEG_INFINITY, Binary::Max),
    };
    let mut reduced = vec![identity; count];
    for (place, &value) in x.as_floats().iter().enumerate() {
        let to = if dim == 0 { place % columns } else { place / columns };
        reduced[to] = float(combine, reduced[to], value);
    }
    reduced
}

fn transposed<T: Copy>(x: &[T], dims: &[usize]) -> Vec<T> {
    let (rows, columns) = (dims[0], dims[1]);
    (0..columns).flat_map(|column| (0..rows).map(move |row| x[row * columns + column])).collect()
}

fn matmul(product: &Matmul, lhs: &Array, rhs: &Array, ty: &ArrayType) -> Data {
    let oriented = |x: &Array, transpose: bool| -> Array {
        let dims = &x.ty().dims;
        match &x.data {
            Data::Floats(values) if transpose => Array::new(x.ty().clone(), Data::Floats(transposed(values, dims))),
            Data::Ints(values) if transpose => Array::new(x.ty().clone(), Data::Ints(transposed(values, dims))),
            _ => x.clone(),
        }
    };
    let (lhs, rhs) = (oriented(lhs, product.transpose_lhs), oriented(rhs, product.transpose_rhs));
    let [rows, columns] = [ty.dims[0], ty.dims[1]];
    match (&lhs.data, &rhs.data) {
        (Data::Floats(x), Data::Floats(y)) => Data::Floats(sums(x, y, rows, columns)),
        _ => Data::Ints(sums(lhs.as_ints(), rhs.as_ints(), rows, columns)),
    }
}

/// Returns the product of row-major matrices.
fn sums<T>(x: &[T], y: &[T], rows: usize, columns: usize) -> Vec<T>
where
    T: Copy + Default + std::ops::AddAssign + std::ops::Mul<Output = T>,
{
    let depth = x.len() / rows;
    let mut out = vec![T::default(); rows * columns];
    for (row, out) in x.chunks(depth).zip(out.chunks_mut(columns)) {
        for (&factor, line) in row.iter().zip(y.chunks(columns)) {
            out.iter_mut().zip(line).for_each(|(out, &value)| *out += factor * value);
        }
    }
    out
}
