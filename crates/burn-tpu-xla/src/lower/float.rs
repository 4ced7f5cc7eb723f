//! Functions of floats that the builder has no op for, in the formulas of XLA's own library (`xla/hlo/builder/lib/math.cc`).
//!
//! 16-bit floats are computed in f32 and rounded once.

use super::{Built, constant, inverse_erf};
use crate::types::element;
use burn_tpu_runtime::graph::op::UnaryOp;
use burn_tpu_runtime::graph::{DType, TensorType};
use std::f64::consts::{LN_2, PI};
use xla::{XlaBuilder, XlaOp};

/// Returns a function of `x: ty`. Any other op than those without an op of the builder is an error.
pub(super) fn composed(builder: &XlaBuilder, op: UnaryOp, x: &XlaOp, ty: &TensorType) -> Built<XlaOp> {
    let wide = ty.with_dtype(ty.dtype.accumulator());
    let x = if wide == *ty { x.clone() } else { x.convert(element(wide.dtype).primitive_type())? };
    let floats = Floats { builder, ty: &wide };
    let result = match op {
        UnaryOp::Sinh => floats.sinh(&x),
        UnaryOp::Cosh => floats.cosh(&x),
        UnaryOp::Asin => floats.asin(&x),
        UnaryOp::Acos => floats.acos(&x),
        UnaryOp::Atan => x.atan2(&floats.number(1.0)?),
        UnaryOp::Asinh => floats.asinh(&x),
        UnaryOp::Acosh => floats.acosh(&x),
        UnaryOp::Atanh => floats.atanh(&x),
        UnaryOp::ErfInv => inverse_erf::inverse_erf(&floats, &x),
        _ => Ok(builder.invalid_argument_error("not a composed function")),
    }?;
    if wide == *ty { Ok(result) } else { result.convert(element(ty.dtype).primitive_type()) }
}

/// Constants of one type of floats.
pub(super) struct Floats<'a> {
    pub builder: &'a XlaBuilder,
    pub ty: &'a TensorType,
}

impl Floats<'_> {
    pub(super) fn number(&self, number: f64) -> Built<XlaOp> {
        constant::number(self.builder, self.ty, number)
    }

    /// `(e^x - e^-x) / 2`; near 0 by `expm1`, which keeps the digits, and elsewhere such that nothing overflows early.
    fn sinh(&self, x: &XlaOp) -> Built<XlaOp> {
        let log_half = self.number(-LN_2)?;
        let large = x.add_(&log_half)?.exp()?.sub_(&log_half.sub_(x)?.exp()?)?;
        let (one, half) = (self.number(1.0)?, self.number(0.5)?);
        let e = x.expm1()?;
        let small = e.add_(&e.div_(&e.add_(&one)?)?)?.mul_(&half)?;
        x.abs()?.lt(&one)?.select(&small, &large)
    }

    fn cosh(&self, x: &XlaOp) -> Built<XlaOp> {
        let log_half = self.number(-LN_2)?;
        x.add_(&log_half)?.exp()?.add_(&log_half.sub_(x)?.exp()?)
    }

    /// `sqrt(1 - x^2)`, which keeps its digits near 1.
    fn other_side(&self, x: &XlaOp) -> Built<XlaOp> {
        let one = self.number(1.0)?;
        one.sub_(x)?.mul_(&one.add_(x)?)?.sqrt()
    }

    fn asin(&self, x: &XlaOp) -> Built<XlaOp> {
        let half = x.atan2(&self.number(1.0)?.add_(&self.other_side(x)?)?)?;
        half.add_(&half)
    }

    fn acos(&self, x: &XlaOp) -> Built<XlaOp> {
        let half = self.other_side(x)?.atan2(&self.number(1.0)?.add_(x)?)?;
        x.eq(&self.number(-1.0)?)?.select(&self.number(PI)?, &half.add_(&half)?)
    }

    /// `sign(x) ln(|x| + sqrt(x^2 + 1))`, by `log1p` near 0 and without the square of a large number.
    fn asinh(&self, x: &XlaOp) -> Built<XlaOp> {
        let (a, one) = (x.abs()?, self.number(1.0)?);
        let square = a.mul_(&a)?;
        let root = square.add_(&one)?.sqrt()?;
        let small = a.add_(&square.div_(&root.add_(&one)?)?)?.log1p()?;
        let middle = a.add_(&root)?.log()?;
        let large = a.log()?.add_(&self.number(LN_2)?)?;
        let result = a.le(&one)?.select(&small, &middle)?;
        let result = a.ge(&self.number(self.largest_square_root())?)?.select(&large, &result)?;
        x.sign()?.mul_(&result)
    }

    /// `ln(x + sqrt((x + 1) (x - 1)))`, and NaN below 1, where the root is.
    fn acosh(&self, x: &XlaOp) -> Built<XlaOp> {
        let one = self.number(1.0)?;
        let root = x.add_(&one)?.mul_(&x.sub_(&one)?)?.sqrt()?;
        let large = x.log()?.add_(&self.number(LN_2)?)?;
        let result = x.ge(&self.number(self.largest_square_root())?)?.select(&large, &x.add_(&root)?.log()?)?;
        x.lt(&one)?.select(&self.number(f64::NAN)?, &result)
    }

    fn atanh(&self, x: &XlaOp) -> Built<XlaOp> {
        x.log1p()?.sub_(&x.neg()?.log1p()?)?.mul_(&self.number(0.5)?)
    }

    fn largest_square_root(&self) -> f64 {
        if self.ty.dtype == DType::F64 { f64::MAX.sqrt() } else { f64::from(f32::MAX).sqrt() }
    }
}
