//! Element-wise ops of one operand.

use super::buffer::{Element, dispatch_integers};
use super::elementwise::{map, map_into};
use super::error::{Reason, Result};
use super::exponential::{exp, tanh};
use super::inverse_erf::inverse_erf;
use super::numeric::{Bits, Number};
use super::tensor::HostTensor;
use burn_tpu_graph::DType;
use burn_tpu_graph::op::UnaryOp;

/// Computes the op. The caller has widened 16-bit floats.
pub(super) fn unary(op: UnaryOp, x: HostTensor) -> Result<HostTensor> {
    match (op, x.dtype()) {
        (UnaryOp::Not, DType::Bool) => map_into(x, bool::not),
        (_, DType::F32) => float32(op, x),
        (_, DType::F64) => map_into(x, function64(op)?),
        (_, dtype) => dispatch_integers!(dtype, T => map_into(x, integer_function::<T>(op)?)),
    }
}

/// Returns whether each float is neither infinite nor NaN.
pub(super) fn is_finite(x: &HostTensor) -> Result<HostTensor> {
    match x.dtype() {
        DType::F64 => map(x, f64::is_finite),
        _ => map(x, f32::is_finite),
    }
}

fn refuse(op: UnaryOp, dtype: DType) -> Reason {
    format!("{} takes no {dtype} elements", op.mnemonic()).into()
}

/// The functions of integers are called for each element: a loop for each of them and each type would take longer to
/// compile than the rest of this crate.
fn integer_function<T: Number + Bits>(op: UnaryOp) -> Result<fn(T) -> T> {
    match op {
        UnaryOp::Abs => Ok(T::magnitude),
        UnaryOp::Neg => Ok(T::negated),
        UnaryOp::Sign => Ok(T::sign),
        UnaryOp::Not => Ok(T::not),
        // The element types of each op are in the op table.
        _ => Err(refuse(op, T::DTYPE)),
    }
}

/// Of the ops on f32, those that are most of what models compute have loops of their own, which use the vector units.
fn float32(op: UnaryOp, x: HostTensor) -> Result<HostTensor> {
    match op {
        UnaryOp::Abs => map_into(x, f32::abs),
        UnaryOp::Neg => map_into(x, |v: f32| -v),
        UnaryOp::Sqrt => map_into(x, f32::sqrt),
        UnaryOp::Rsqrt => map_into(x, |v: f32| 1.0 / v.sqrt()),
        UnaryOp::Exp => map_into(x, exp),
        UnaryOp::Tanh => map_into(x, tanh),
        UnaryOp::Logistic => map_into(x, |v: f32| 1.0 / (1.0 + exp(-v))),
        _ => map_into(x, function32(op)?),
    }
}

/// A function whose intermediate values need more digits than f32 has.
macro_rules! wide {
    ($ty:ident, $function:expr) => {
        |v: $ty| $function(f64::from(v)) as $ty
    };
}

/// Defines a function per float type that returns the function of an op; the methods have the same names.
macro_rules! float_functions {
    ($name:ident, $ty:ident) => {
        fn $name(op: UnaryOp) -> Result<fn($ty) -> $ty> {
            Ok(match op {
                UnaryOp::Abs => $ty::abs,
                UnaryOp::Neg => |v| -v,
                UnaryOp::Sign => <$ty as Number>::sign,
                UnaryOp::Exp => $ty::exp,
                UnaryOp::Expm1 => $ty::exp_m1,
                UnaryOp::Log => $ty::ln,
                UnaryOp::Log1p => $ty::ln_1p,
                UnaryOp::Sqrt => $ty::sqrt,
                UnaryOp::Rsqrt => |v| 1.0 / v.sqrt(),
                UnaryOp::Cbrt => $ty::cbrt,
                UnaryOp::Logistic => |v| 1.0 / (1.0 + (-v).exp()),
                UnaryOp::Sin => $ty::sin,
                UnaryOp::Cos => $ty::cos,
                UnaryOp::Tan => $ty::tan,
                UnaryOp::Tanh => $ty::tanh,
                UnaryOp::Sinh => $ty::sinh,
                UnaryOp::Cosh => $ty::cosh,
                // XLA doubles an arc tangent, which is subnormal for these.
                UnaryOp::Asin => |v| if v.abs() < 2.0 * $ty::MIN_POSITIVE { v * 0.0 } else { v.asin() },
                UnaryOp::Acos => $ty::acos,
                UnaryOp::Atan => $ty::atan,
                UnaryOp::Asinh => wide!($ty, inverse_sinh),
                UnaryOp::Acosh => wide!($ty, inverse_cosh),
                UnaryOp::Atanh => wide!($ty, f64::atanh),
                UnaryOp::Erf => wide!($ty, libm::erf),
                UnaryOp::ErfInv => wide!($ty, inverse_erf),
                UnaryOp::Floor => $ty::floor,
                UnaryOp::Ceil => $ty::ceil,
                UnaryOp::RoundNearestEven => $ty::round_ties_even,
                UnaryOp::Not => return Err(refuse(op, $ty::DTYPE)),
            })
        }
    };
}

float_functions!(function32, f32);
float_functions!(function64, f64);

/// Above this, x and its neighbours in f64 differ by more than 1, and sqrt(x^2 +- 1) is x.
const LARGE: f64 = 1e17;

fn inverse_sinh(x: f64) -> f64 {
    if x.abs() < LARGE { x.asinh() } else { (x.abs().ln() + std::f64::consts::LN_2).copysign(x) }
}

fn inverse_cosh(x: f64) -> f64 {
    if x < LARGE { x.acosh() } else { x.ln() + std::f64::consts::LN_2 }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{run, run_as};
    use super::*;
    use burn_tpu_graph::Builder;

    fn each<T: Element>(op: UnaryOp, x: &[T]) -> Vec<T> {
        run(|t| {
            let x = t.input(&[x.len()], x);
            t.graph.unary(op, x)
        })
    }

    #[test]
    fn the_smallest_integer_is_its_own_magnitude() {
        assert_eq!(each(UnaryOp::Abs, &[i32::MIN, -3, 3]), [i32::MIN, 3, 3]);
        assert_eq!(each(UnaryOp::Neg, &[i8::MIN, 1]), [i8::MIN, -1]);
        assert_eq!(each(UnaryOp::Neg, &[1u16, 0]), [u16::MAX, 0]);
        assert_eq!(each(UnaryOp::Sign, &[i64::MIN, 0, 9]), [-1, 0, 1]);
    }

    #[test]
    fn the_sign_of_a_float_keeps_zeros_and_nan() {
        let found = each(UnaryOp::Sign, &[-2.0f32, -0.0, 0.0, f32::INFINITY, f32::NAN]);
        assert_eq!(
            found[..4].iter().map(|v| v.to_bits()).collect::<Vec<_>>(),
            [-1.0f32, -0.0, 0.0, 1.0].map(f32::to_bits)
        );
        assert!(found[4].is_nan());
    }

    #[test]
    fn halves_round_to_even() {
        assert_eq!(each(UnaryOp::RoundNearestEven, &[0.5f32, 1.5, 2.5, -0.5, -1.5]), [0.0, 2.0, 2.0, -0.0, -2.0]);
        assert_eq!(each(UnaryOp::Floor, &[-0.5f64]), [-1.0]);
        assert_eq!(each(UnaryOp::Ceil, &[-0.5f64]), [-0.0]);
    }

    #[test]
    fn ends_of_domains_give_nan_and_infinities() {
        let nan = [(UnaryOp::Log, -1.0f64), (UnaryOp::Sqrt, -1.0), (UnaryOp::Asin, 1.5), (UnaryOp::Acosh, 0.5)];
        for (op, x) in nan.into_iter().chain([(UnaryOp::Atanh, 2.0), (UnaryOp::ErfInv, 2.0), (UnaryOp::Log1p, -2.0)]) {
            assert!(each(op, &[x as f32])[0].is_nan() && each(op, &[x])[0].is_nan(), "{op:?}");
        }
        assert_eq!(each(UnaryOp::Log, &[0.0f32]), [f32::NEG_INFINITY]);
        assert_eq!(each(UnaryOp::Rsqrt, &[0.0f32, f32::INFINITY]), [f32::INFINITY, 0.0]);
        assert_eq!(each(UnaryOp::Atanh, &[1.0f32, -1.0]), [f32::INFINITY, f32::NEG_INFINITY]);
    }

    #[test]
    fn every_float_op_propagates_nan() {
        for &op in UnaryOp::ALL.iter().filter(|op| op.class().contains(DType::F32)) {
            assert!(each(op, &[f32::NAN])[0].is_nan(), "{op:?}");
            assert!(each(op, &[f64::NAN])[0].is_nan(), "{op:?}");
            assert!(run_as(DType::BF16, &[f32::NAN], |t, x| t.graph.unary(op, x))[0].is_nan(), "{op:?}");
        }
    }

    #[test]
    fn every_op_takes_empty_operands() {
        for &op in UnaryOp::ALL {
            if op.class().contains(DType::F32) {
                assert!(each::<f32>(op, &[]).is_empty(), "{op:?}");
            }
            if op.class().contains(DType::I16) {
                assert!(each::<i16>(op, &[]).is_empty(), "{op:?}");
            }
        }
    }

    #[test]
    fn logistic_and_tanh_saturate() {
        assert_eq!(each(UnaryOp::Logistic, &[-200.0f32, 0.0, 200.0]), [0.0, 0.5, 1.0]);
        assert_eq!(each(UnaryOp::Tanh, &[f32::NEG_INFINITY, 40.0]), [-1.0, 1.0]);
    }

    #[test]
    fn inverse_hyperbolics_hold_for_large_arguments() {
        let (x, y) = (1e30f32, 1e30f64.ln() + std::f64::consts::LN_2);
        assert_eq!(each(UnaryOp::Asinh, &[x, -x]), [y as f32, -y as f32]);
        assert_eq!(each(UnaryOp::Acosh, &[x]), [y as f32]);
        assert_eq!(each(UnaryOp::Asinh, &[f32::INFINITY]), [f32::INFINITY]);
    }

    #[test]
    fn small_arguments_keep_their_digits() {
        assert_eq!(each(UnaryOp::Expm1, &[1e-10f32]), [1e-10]);
        assert_eq!(each(UnaryOp::Log1p, &[1e-10f32]), [1e-10]);
    }

    /// Results in f32 are those in f64, rounded once.
    #[test]
    fn erf_has_all_digits() {
        let exact: [(f64, f64); 4] = [
            (1e-10, 1.128379167095512_6e-10),
            (0.5, 0.520499877813046_5),
            (1.0, 0.842700792949714_9),
            (2.0, 0.995322265018952_7),
        ];
        for (x, y) in exact.into_iter().flat_map(|(x, y)| [(x, y), (-x, -y)]) {
            assert!((each(UnaryOp::Erf, &[x])[0] / y - 1.0).abs() < 4.0 * f64::EPSILON, "{x}");
            assert!((each(UnaryOp::Erf, &[x as f32])[0] / y as f32 - 1.0).abs() <= f32::EPSILON, "{x}");
        }
        let ends = [-0.0f32, 0.0, 6.0, -6.0, 1e30, f32::INFINITY, f32::NEG_INFINITY];
        let found: Vec<u32> = each(UnaryOp::Erf, &ends).into_iter().map(f32::to_bits).collect();
        assert_eq!(found, [-0.0f32, 0.0, 1.0, -1.0, 1.0, 1.0, -1.0].map(f32::to_bits));
    }

    #[test]
    fn erf_and_its_inverse_agree() {
        let x = [-1.5f32, -0.2, 0.0, 0.7, 2.0];
        let back = each(UnaryOp::ErfInv, &each(UnaryOp::Erf, &x));
        assert!(x.iter().zip(&back).all(|(x, y)| (x - y).abs() < 1e-5), "{back:?}");
        assert_eq!(each(UnaryOp::ErfInv, &[1.0f32]), [f32::INFINITY]);
    }

    #[test]
    fn complement_is_logical_for_bools() {
        assert_eq!(each(UnaryOp::Not, &[true, false]), [false, true]);
        assert_eq!(each(UnaryOp::Not, &[0u32, 5]), [u32::MAX, !5]);
    }

    #[test]
    fn finite_is_neither_infinite_nor_nan() {
        let found = run::<bool>(|t| {
            let x = t.input(&[4], &[1.0f64, f64::INFINITY, f64::NEG_INFINITY, f64::NAN]);
            t.graph.is_finite(x)
        });
        assert_eq!(found, [true, false, false, false]);
    }

    #[test]
    fn halves_are_computed_in_f32() {
        let exact = [0.1f32, 3.0].map(|v| half::bf16::from_f32(half::bf16::from_f32(v).to_f32().exp()).to_f32());
        assert_eq!(run_as(DType::BF16, &[0.1, 3.0], |t, x| t.graph.unary(UnaryOp::Exp, x)), exact);
    }
}
