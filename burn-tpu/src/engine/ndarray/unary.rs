//! Element-wise ops of one operand.

use super::buffer::{Element, dispatch_bits};
use super::elementwise::{map, map_into};
use super::error::Result;
use super::inverse_erf::inverse_erf;
use super::numeric::{Bits, Number};
use super::tensor::HostTensor;
use super::walk::row_major;
use burn_backend::ops::FloatTensorOps;
use burn_ndarray::{NdArray, NdArrayTensor};
use burn_tpu_graph::DType;
use burn_tpu_graph::op::UnaryOp;

/// The op on a tensor whose 16-bit floats were widened.
pub(super) fn unary(op: UnaryOp, x: HostTensor) -> Result<HostTensor> {
    match (op, x.dtype()) {
        (UnaryOp::Not, dtype) => dispatch_bits!(dtype, T => map_into::<T>(x, T::not)),
        (_, DType::F32) => float32(op, x),
        (_, DType::F64) => float64(op, x),
        (_, DType::I8) => integer::<i8>(op, x),
        (_, DType::I16) => integer::<i16>(op, x),
        (_, DType::I32) => integer::<i32>(op, x),
        (_, DType::I64) => integer::<i64>(op, x),
        (_, DType::U8) => integer::<u8>(op, x),
        (_, DType::U16) => integer::<u16>(op, x),
        (_, DType::U32) => integer::<u32>(op, x),
        (_, DType::U64) => integer::<u64>(op, x),
        (_, DType::Bool | DType::BF16 | DType::F16 | DType::C64) => refuse(op, x.dtype()),
    }
}

/// Whether each float is neither infinite nor NaN.
pub(super) fn is_finite(x: &HostTensor) -> Result<HostTensor> {
    match x.dtype() {
        DType::F64 => map(x, f64::is_finite),
        _ => map(x, f32::is_finite),
    }
}

fn refuse(op: UnaryOp, dtype: DType) -> Result<HostTensor> {
    Err(format!("{} takes no {dtype} elements", op.mnemonic()).into())
}

fn integer<T: Number>(op: UnaryOp, x: HostTensor) -> Result<HostTensor> {
    use UnaryOp as U;
    match op {
        U::Abs => map_into(x, T::magnitude),
        U::Neg => map_into(x, T::negated),
        U::Sign => map_into(x, T::sign),
        U::Exp
        | U::Expm1
        | U::Log
        | U::Log1p
        | U::Sqrt
        | U::Rsqrt
        | U::Cbrt
        | U::Logistic
        | U::Sin
        | U::Cos
        | U::Tan
        | U::Tanh
        | U::Sinh
        | U::Cosh
        | U::Asin
        | U::Acos
        | U::Atan
        | U::Asinh
        | U::Acosh
        | U::Atanh
        | U::Erf
        | U::ErfInv
        | U::Floor
        | U::Ceil
        | U::RoundNearestEven
        | U::Not => refuse(op, T::DTYPE),
    }
}

/// One function per float type: the methods have the same names. `$wide` computes what needs more digits than the
/// type has on its way.
macro_rules! float {
    ($name:ident, $ty:ident, $wide:expr) => {
        fn $name(op: UnaryOp, x: HostTensor) -> Result<HostTensor> {
            let wide: fn(HostTensor, fn(f64) -> f64) -> Result<HostTensor> = $wide;
            match op {
                UnaryOp::Abs => map_into(x, $ty::abs),
                UnaryOp::Neg => map_into(x, |v: $ty| -v),
                UnaryOp::Sign => map_into(x, <$ty as Number>::sign),
                UnaryOp::Exp => map_into(x, $ty::exp),
                UnaryOp::Expm1 => map_into(x, $ty::exp_m1),
                UnaryOp::Log => map_into(x, $ty::ln),
                UnaryOp::Log1p => map_into(x, $ty::ln_1p),
                UnaryOp::Sqrt => map_into(x, $ty::sqrt),
                UnaryOp::Rsqrt => map_into(x, |v: $ty| 1.0 / v.sqrt()),
                UnaryOp::Cbrt => map_into(x, $ty::cbrt),
                UnaryOp::Logistic => map_into(x, |v: $ty| 1.0 / (1.0 + (-v).exp())),
                UnaryOp::Sin => map_into(x, $ty::sin),
                UnaryOp::Cos => map_into(x, $ty::cos),
                UnaryOp::Tan => map_into(x, $ty::tan),
                UnaryOp::Tanh => map_into(x, $ty::tanh),
                UnaryOp::Sinh => map_into(x, $ty::sinh),
                UnaryOp::Cosh => map_into(x, $ty::cosh),
                UnaryOp::Asin => map_into(x, $ty::asin),
                UnaryOp::Acos => map_into(x, $ty::acos),
                UnaryOp::Atan => map_into(x, $ty::atan),
                UnaryOp::Asinh => wide(x, inverse_sinh),
                UnaryOp::Acosh => wide(x, inverse_cosh),
                UnaryOp::Atanh => wide(x, f64::atanh),
                UnaryOp::Erf => erf::<$ty>(x),
                UnaryOp::ErfInv => wide(x, inverse_erf),
                UnaryOp::Floor => map_into(x, $ty::floor),
                UnaryOp::Ceil => map_into(x, $ty::ceil),
                UnaryOp::RoundNearestEven => map_into(x, $ty::round_ties_even),
                UnaryOp::Not => refuse(op, x.dtype()),
            }
        }
    };
}

float!(float32, f32, |x, f| map_into(x, |v: f32| f(f64::from(v)) as f32));
float!(float64, f64, map_into);

/// Above this, x and its neighbours in f64 differ by more than 1 and sqrt(x^2 +- 1) is x.
const LARGE: f64 = 1e17;

fn inverse_sinh(x: f64) -> f64 {
    if x.abs() < LARGE { x.asinh() } else { (x.abs().ln() + std::f64::consts::LN_2).copysign(x) }
}

fn inverse_cosh(x: f64) -> f64 {
    if x < LARGE { x.acosh() } else { x.ln() + std::f64::consts::LN_2 }
}

/// burn-ndarray's error function, which computes in f64.
fn erf<T: Element>(x: HostTensor) -> Result<HostTensor>
where
    NdArrayTensor: From<super::buffer::Flat<T>>,
{
    let dims = x.dims().clone();
    let y = <NdArray as FloatTensorOps<NdArray>>::float_erf(NdArrayTensor::from(x.to_flat::<T>()?));
    let y = match y {
        NdArrayTensor::F32(storage) => f32::wrap(storage.into_owned()),
        NdArrayTensor::F64(storage) => f64::wrap(storage.into_owned()),
        other => return Err(format!("burn-ndarray's erf gave {other:?}").into()),
    };
    let y = T::take(y).ok_or("burn-ndarray's erf changed the element type")?;
    Ok(HostTensor::strided(&dims, row_major(&dims), y))
}
