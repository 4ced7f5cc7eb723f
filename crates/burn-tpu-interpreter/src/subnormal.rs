//! Subnormal numbers, which XLA computes with as zeros: it sets the processor's modes flush-to-zero and
//! denormals-are-zero while a program runs on a CPU, and TPUs have no subnormal f32. Here the operands and the results
//! of each op that computes are looked through.
//!
//! Owns: which ops compute, and the zeros. What only moves elements keeps them as they are, so that a value that is
//! written and read again has its bits. The subnormal numbers of f16 stay: they are computed with in f32, where they
//! are normal.

use super::buffer::Element;
use super::elementwise::map;
use super::error::Result;
use super::tensor::HostTensor;
use super::vector::vectorized;
use burn_tpu_graph::op::{OpKind, UnaryOp};
use burn_tpu_graph::{DType, Op};
use half::bf16;

/// A float that can be subnormal.
pub(super) trait Subnormal: Element {
    fn is_subnormal(self) -> bool;
    /// Returns whether one of the elements is subnormal.
    fn are_any_subnormal(elements: &[Self]) -> bool;
    /// Returns zero, with the sign, for a subnormal number; every other number is returned as it is.
    fn flushed(self) -> Self;
}

macro_rules! subnormals {
    ($($ty:ident, $bits:ident;)*) => {$(
        impl Subnormal for $ty {
            fn is_subnormal(self) -> bool {
                Self::are_any_subnormal(&[self])
            }

            // Without the sign, those from the smallest subnormal number to the largest are in one range, which begins at 0
            // for the bits minus one. The least of these is found without a comparison for each element.
            fn are_any_subnormal(elements: &[Self]) -> bool {
                const SMALLEST_NORMAL: $bits = $ty::MIN_POSITIVE.to_bits() << 1;
                let place = |v: &Self| (v.to_bits() << 1).wrapping_sub(1);
                elements.iter().fold($bits::MAX, |least, v| least.min(place(v))) < SMALLEST_NORMAL - 1
            }

            fn flushed(self) -> Self {
                let sign = self.to_bits() & !($bits::MAX >> 1);
                if Subnormal::is_subnormal(self) { $ty::from_bits(sign) } else { self }
            }
        }
    )*};
}

subnormals! {
    bf16, u16;
    f32, u32;
    f64, u64;
}

/// Returns whether XLA computes the op with a processor's arithmetic on floats; `from` is the type of its first
/// operand.
///
/// An absolute value, a negation, a choice and a wider bf16 are operations on bits. Some functions of a small number
/// are the number itself. What orders elements compares keys, in which subnormal numbers are zeros.
pub(super) fn computes(op: &Op, from: DType) -> bool {
    use UnaryOp::{Abs, Atan, Expm1, Neg, Not, Sin, Tan, Tanh};
    match op {
        Op::Unary(Atan | Tanh) => from == DType::F64,
        Op::Unary(Abs | Neg | Not | Expm1 | Sin | Tan) => false,
        Op::Select | Op::IsFinite | Op::ArgReduce { .. } => false,
        Op::Convert { dtype: DType::BF16 | DType::F32 } => from == DType::F64,
        Op::Convert { dtype } => matches!(dtype, DType::Bool | DType::F64),
        _ => matches!(
            op.kind(),
            OpKind::Arithmetic
                | OpKind::Test
                | OpKind::Contraction
                | OpKind::Reduction
                | OpKind::Window
                | OpKind::Transform
        ),
    }
}

/// Replaces subnormal numbers by zeros, and remembers that there are none.
pub(super) fn flush(x: &mut HostTensor) -> Result<()> {
    match x.dtype() {
        DType::BF16 => flush_as::<bf16>(x),
        DType::F32 => flush_as::<f32>(x),
        DType::F64 => flush_as::<f64>(x),
        _ => Ok(()),
    }
}

fn flush_as<T: Subnormal>(x: &mut HostTensor) -> Result<()> {
    if x.is_flushed() {
        return Ok(());
    }
    let found =
        if x.is_small_part() { has_subnormals(&x.elements::<T>()?) } else { has_subnormals(x.view::<T>()?.data) };
    if found {
        *x = map(x, T::flushed)?;
    }
    x.set_flushed();
    Ok(())
}

/// Whole blocks are looked at, which the processor does several elements at a time.
fn has_subnormals<T: Subnormal>(elements: &[T]) -> bool {
    const BLOCK: usize = 1024;
    vectorized(elements.len(), || elements.chunks(BLOCK).any(T::are_any_subnormal))
}

#[cfg(test)]
mod tests {
    use super::super::testing::run;
    use super::*;
    use burn_tpu_graph::Builder;
    use burn_tpu_graph::op::{BinaryOp, Combine, Direction};

    #[test]
    fn subnormal_numbers_are_those_between_zero_and_the_smallest_normal_one() {
        for v in [1e-45f32, -1e-40, f32::MIN_POSITIVE.next_down()] {
            assert!(Subnormal::is_subnormal(v));
            assert_eq!(v.flushed().to_bits(), 0f32.copysign(v).to_bits());
        }
        for v in [0.0, -0.0, f32::MIN_POSITIVE, -f32::MIN_POSITIVE, 1.0, f32::INFINITY, f32::NAN] {
            assert_eq!(v.flushed().to_bits(), v.to_bits());
        }
        assert!(Subnormal::is_subnormal(bf16::from_bits(1)) && !Subnormal::is_subnormal(bf16::MIN_POSITIVE));
        assert!(Subnormal::is_subnormal(5e-324f64) && !Subnormal::is_subnormal(-f64::MIN_POSITIVE));
    }

    #[test]
    fn what_computes_takes_and_returns_zeros_for_them() {
        let small = f32::MIN_POSITIVE;
        let x = [1e-40f32, -1e-40, small, 3.0];
        let doubled: Vec<f32> = run(|t| {
            let x = t.input(&[4], &x);
            t.graph.binary_const(BinaryOp::Mul, x, 0.5)
        });
        assert_eq!(doubled.into_iter().map(f32::to_bits).collect::<Vec<_>>(), [0.0, -0.0, 0.0, 1.5].map(f32::to_bits));
        let inverse: Vec<f32> = run(|t| {
            let (one, x) = (t.input(&[4], &[1f32; 4]), t.input(&[4], &x));
            t.graph.binary(BinaryOp::Div, one, x)
        });
        assert_eq!(inverse[..2], [f32::INFINITY, f32::NEG_INFINITY]);
        let equal: Vec<bool> = run(|t| {
            let x = t.input(&[4], &x);
            t.graph.compare_const(Direction::Eq, x, 0.0)
        });
        assert_eq!(equal, [true, true, false, false]);
        let sum: Vec<f32> = run(|t| {
            let x = t.input(&[1000], &[1e-40f32; 1000]);
            t.graph.reduce(Combine::Sum, x, &[0])
        });
        assert_eq!(sum, [0.0]);
    }

    #[test]
    fn what_moves_or_changes_the_sign_keeps_them() {
        let x = [1e-40f32, -1e-40];
        let negated: Vec<f32> = run(|t| {
            let x = t.input(&[2], &x);
            let x = t.graph.reshape(x, &[1, 2])?;
            t.graph.unary(UnaryOp::Neg, x)
        });
        assert_eq!(negated, [-1e-40, 1e-40]);
    }

    #[test]
    fn functions_take_zeros_for_them() {
        let x = [1e-40f32, -1e-40, 0.25];
        let pairs = |op: BinaryOp| -> Vec<f32> {
            run(|t| {
                let (x, y) = (t.input(&[3], &x), t.input(&[3], &[0.25f32, 1e-40, 1.0]));
                t.graph.binary(op, x, y)
            })
        };
        assert_eq!(pairs(BinaryOp::Pow), [0.0, 1.0, 0.25]);
        assert_eq!(pairs(BinaryOp::Atan2)[..2], [0.0, -0.0]);
        assert!(pairs(BinaryOp::Rem)[1].is_nan());
        let arcs: Vec<f32> = run(|t| {
            let x = t.input(&[2], &[f32::MIN_POSITIVE, 3.0 * f32::MIN_POSITIVE]);
            t.graph.unary(UnaryOp::Asin, x)
        });
        assert_eq!(arcs, [0.0, 3.0 * f32::MIN_POSITIVE]);
        let largest: Vec<f32> = run(|t| {
            let x = t.input(&[2], &[-1e-40f32, -1.0]);
            Ok(t.graph.top_k(x, 1)?.0)
        });
        assert_eq!(largest[0].to_bits(), 0);
    }

    #[test]
    fn a_sort_takes_them_for_zeros_and_returns_their_bits() {
        let sorted: Vec<f32> = run(|t| {
            let x = t.input(&[4], &[1e-40f32, 0.0, -1e-40, -1.0]);
            Ok(t.graph.sort(&[x], 0, false)?[0])
        });
        assert_eq!(sorted, [-1.0, 1e-40, 0.0, -1e-40]);
    }
}
