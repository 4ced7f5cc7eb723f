//! Steps of element-wise ops and leaves.

use super::builder::{Builder, Choices, REAL, Value, ulp};
use burn_tpu_graph::Builder as _;
use burn_tpu_graph::op::{BinaryOp, Direction, UnaryOp};
use burn_tpu_graph::{DType, NodeId, Op, Result};

pub fn leaf(b: &mut Builder, c: &mut Choices) -> Result<()> {
    match c.below(5) {
        0 => b.slot(c),
        1 => b.constant(c),
        2 => {
            let (dtype, dims) = (c.of(&[DType::I32, DType::F32, DType::U8, DType::I64, DType::F16]), c.dims());
            if dims.is_empty() {
                return b.slot(c);
            }
            let id = b.graph.iota(dtype, &dims, c.below(dims.len()))?;
            b.keep(id, 0.0, true);
            Ok(())
        }
        _ => {
            let dtype = c.of(&REAL);
            b.parameter(c, dtype).map(drop)
        }
    }
}

/// Adds a float op, limited to the inputs where it is defined and not too steep, with its slope there.
pub fn smooth_unary(b: &mut Builder, c: &mut Choices) -> Result<()> {
    use UnaryOp as U;
    let smooth: Vec<UnaryOp> = UnaryOp::ALL.iter().copied().filter(|op| op.class().contains(DType::F32)).collect();
    let op = c.of(&smooth);
    let x = b.float(c)?;
    let (inner, slope): (NodeId, f64) = match op {
        // Not continuous: for values that agree exactly.
        U::Sign | U::Floor | U::Ceil | U::RoundNearestEven | U::Not => {
            let x = b.exact(c)?;
            return exact_unary(b, c, x);
        }
        U::Log | U::Acosh => (b.positive(x.id, if op == U::Log { 0.5 } else { 1.5 })?, 2.0),
        U::Log1p => (b.positive(x.id, 0.0)?, 1.0),
        U::Sqrt | U::Cbrt | U::Rsqrt => (b.positive(x.id, 0.25)?, 4.0),
        U::Asin | U::Acos | U::Atanh | U::ErfInv | U::Tan => (b.with_const(BinaryOp::Mul, x.id, 0.2)?, 1.0),
        U::Exp | U::Expm1 | U::Sinh | U::Cosh => (x.id, 5.0),
        U::Abs | U::Neg | U::Logistic | U::Sin | U::Cos | U::Tanh | U::Atan | U::Asinh | U::Erf => (x.id, 1.5),
    };
    let y = b.graph.unary(op, inner)?;
    b.settle(y, slope * (x.error + 2.0 * ulp(b.dtype(x))) + 16.0 * ulp(b.dtype(x)))
}

/// Adds an op whose result is exact on exact operands, for the operand's element type.
pub fn exact_unary(b: &mut Builder, c: &mut Choices, x: Value) -> Result<()> {
    use UnaryOp as U;
    let dtype = b.dtype(x);
    let exact = [U::Abs, U::Neg, U::Sign, U::Floor, U::Ceil, U::RoundNearestEven, U::Not];
    let taken: Vec<UnaryOp> = exact.into_iter().filter(|op| op.class().contains(dtype)).collect();
    if !taken.is_empty() {
        let y = b.graph.unary(c.of(&taken), x.id)?;
        b.keep(y, 0.0, x.wild);
    }
    Ok(())
}

pub fn any_exact_unary(b: &mut Builder, c: &mut Choices) -> Result<()> {
    let x = b.exact(c)?;
    exact_unary(b, c, x)
}

pub fn smooth_binary(b: &mut Builder, c: &mut Choices) -> Result<()> {
    use BinaryOp as B;
    let x = b.float(c)?;
    let y = b.alike(c, x)?;
    let own = ulp(b.dtype(x));
    let (ex, ey) = (x.error + own, y.error + own);
    let (z, error) = match c.below(7) {
        0 => (b.graph.binary(B::Add, x.id, y.id)?, ex + ey),
        1 => (b.graph.binary(B::Sub, x.id, y.id)?, ex + ey),
        2 => (b.graph.binary(B::Mul, x.id, y.id)?, 4.0 * (ex + ey)),
        3 => {
            let divisor = b.positive(y.id, 0.5)?;
            (b.graph.binary(B::Div, x.id, divisor)?, 2.0 * ex + 16.0 * ey)
        }
        4 => {
            let (base, exponent) = (b.positive(x.id, 0.5)?, b.with_const(B::Mul, y.id, 0.5)?);
            (b.graph.binary(B::Pow, base, exponent)?, 20.0 * (ex + ey))
        }
        5 => {
            let x = b.positive(x.id, 0.5)?;
            (b.graph.binary(B::Atan2, y.id, x)?, 3.0 * (ex + ey))
        }
        _ => (b.graph.binary(c.of(&[B::Max, B::Min]), x.id, y.id)?, ex.max(ey)),
    };
    b.settle(z, error + 4.0 * own)
}

/// Adds every op for integers and bools, and ops without rounding for floats.
pub fn exact_binary(b: &mut Builder, c: &mut Choices) -> Result<()> {
    use BinaryOp as B;
    let x = b.exact(c)?;
    let y = b.alike(c, x)?;
    let dtype = b.dtype(x);
    let floats = [B::Max, B::Min, B::Rem];
    let taken: Vec<BinaryOp> = match dtype.is_float() {
        true => floats.to_vec(),
        false => B::ALL.iter().copied().filter(|op| op.class().contains(dtype)).collect(),
    };
    let op = c.of(&taken);
    let (x, y) = if op == B::Rem { (b.tamed(x)?, b.tamed(y)?) } else { (x, y) };
    let z = b.graph.binary(op, x.id, y.id)?;
    b.keep(z, 0.0, x.wild || y.wild || op == B::Rem);
    Ok(())
}

pub fn compare(b: &mut Builder, c: &mut Choices) -> Result<()> {
    use Direction as D;
    let x = b.exact(c)?;
    if b.dtype(x).is_float() && c.below(4) == 0 {
        let finite = b.graph.is_finite(x.id)?;
        b.keep(finite, 0.0, false);
        return Ok(());
    }
    let y = b.alike(c, x)?;
    let z = b.graph.compare(c.of(&[D::Lt, D::Eq, D::Ne, D::Le, D::Gt, D::Ge]), x.id, y.id)?;
    b.keep(z, 0.0, false);
    Ok(())
}

pub fn select(b: &mut Builder, c: &mut Choices) -> Result<()> {
    let x = b.any(c)?;
    let y = b.alike(c, x)?;
    let z = selected(b, c, x, y)?;
    b.keep(z.id, z.error, z.wild);
    Ok(())
}

/// Returns one of two values of one type, selected by some predicate.
fn selected(b: &mut Builder, c: &mut Choices, x: Value, y: Value) -> Result<Value> {
    let predicate = b.pick(c, DType::Bool, |b, value| b.dtype(value) == DType::Bool)?;
    let predicate = b.fitted(predicate, &b.dims(x))?;
    let id = b.graph.select(predicate.id, x.id, y.id)?;
    Ok(Value { id, error: x.error.max(y.error), wild: x.wild || y.wild })
}

/// Updates a parameter: adds a change or replaces it. The result aliases the parameter, while other steps read the old
/// value.
pub fn update(b: &mut Builder, c: &mut Choices) -> Result<()> {
    let is_parameter = |b: &Builder, value: Value| matches!(b.graph.node(value.id).op, Op::Parameter { .. });
    let old = b.pick(c, DType::F32, is_parameter)?;
    let updated = if b.dtype(old).is_float() && c.below(4) > 0 {
        let (old, change) = (b.tamed(old)?, b.float(c)?);
        let change = b.converted(change, b.dtype(old))?;
        let change = b.fitted(change, &b.dims(old))?;
        let sum = b.graph.binary(BinaryOp::Add, old.id, change.id)?;
        let own = ulp(b.dtype(old));
        b.settled(sum, change.error + 4.0 * own)?
    } else {
        let change = b.alike(c, old)?;
        selected(b, c, old, change)?
    };
    b.keep_update(updated);
    Ok(())
}

pub fn clamp(b: &mut Builder, c: &mut Choices) -> Result<()> {
    let x = b.pick(c, DType::I32, |b, value| b.dtype(value) != DType::Bool)?;
    let (y, z) = (b.alike(c, x)?, b.alike(c, x)?);
    let low = b.graph.binary(BinaryOp::Min, y.id, z.id)?;
    let high = b.graph.binary(BinaryOp::Max, y.id, z.id)?;
    let clamped = b.graph.clamp(low, x.id, high)?;
    b.keep(clamped, x.error.max(y.error).max(z.error), x.wild || y.wild || z.wild);
    Ok(())
}

pub fn convert(b: &mut Builder, c: &mut Choices) -> Result<()> {
    let x = b.any(c)?;
    let to: Vec<DType> = REAL.into_iter().filter(|to| to.is_float() || x.is_exact()).collect();
    let y = b.converted(x, c.of(&to))?;
    b.keep(y.id, y.error, y.wild);
    Ok(())
}

/// Adds bitcasts: integers as other types, a float to bits and back, and the fraction of a float from random bits.
pub fn bitcast(b: &mut Builder, c: &mut Choices) -> Result<()> {
    let x = b.int(c)?;
    let size = b.dtype(x).size_bytes();
    let alike: Vec<DType> = REAL.into_iter().filter(|to| to.is_int() && to.size_bytes() == size).collect();
    let y = b.graph.bitcast_convert(x.id, c.of(&alike))?;
    b.keep(y, 0.0, false);
    if size == 4 && c.below(2) == 0 {
        let bits = b.graph.bitcast_convert(x.id, DType::U32)?;
        let fraction = b.graph.binary_const(BinaryOp::And, bits, 0x007F_FFFFi64)?;
        let one = b.graph.binary_const(BinaryOp::Or, fraction, 0x3F80_0000i64)?;
        let float = b.graph.bitcast_convert(one, DType::F32)?;
        b.keep(float, 0.0, false);
    }
    Ok(())
}
