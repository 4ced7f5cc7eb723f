//! Arithmetic on one element, with XLA's results in edge cases: integers wrap, a division by zero gives -1, NaN wins.
//!
//! Owns: the meaning of [`BinaryOp`] and `Combine` for numbers. 16-bit floats are converted to f32 before they get here.

use super::buffer::Element;
use super::error::{Reason, Result};
use super::subnormal::Subnormal;
use burn_tpu_graph::DType;
use burn_tpu_graph::op::Combine;
use std::cmp::Ordering;

/// A type with arithmetic: integers, f32 and f64.
pub(super) trait Number: Element + PartialOrd {
    const ZERO: Self;
    const ONE: Self;
    /// The value that every maximum replaces: the type's smallest, -inf for floats.
    const LOWEST: Self;
    /// The value that every minimum replaces: the type's largest, +inf for floats.
    const HIGHEST: Self;

    fn plus(self, rhs: Self) -> Self;
    fn minus(self, rhs: Self) -> Self;
    fn times(self, rhs: Self) -> Self;
    /// Returns the quotient. Integers truncate and wrap; an integer divided by zero is -1.
    fn divided(self, rhs: Self) -> Self;
    /// Returns the remainder with the dividend's sign; an integer modulo zero is the dividend.
    fn remainder(self, rhs: Self) -> Self;
    fn power(self, rhs: Self) -> Self;
    /// Returns the larger value; NaN if either is NaN. 0 is larger than -0.
    fn larger(self, rhs: Self) -> Self;
    /// Returns the smaller value; NaN if either is NaN. -0 is smaller than 0.
    fn smaller(self, rhs: Self) -> Self;
    fn magnitude(self) -> Self;
    fn negated(self) -> Self;
    /// Returns -1, 0 or 1; a float's zero keeps its sign and NaN stays NaN.
    fn sign(self) -> Self;
}

/// A type with bit operations: integers and bool.
pub(super) trait Bits: Element {
    const ALL_ZEROS: Self;
    const ALL_ONES: Self;

    fn and(self, rhs: Self) -> Self;
    fn or(self, rhs: Self) -> Self;
    fn xor(self, rhs: Self) -> Self;
    fn not(self) -> Self;
}

/// Shifts; a count of at least the width (or a negative one) shifts everything out.
pub(super) trait Shift: Bits {
    fn shift_left(self, count: Self) -> Self;
    fn shift_right_arithmetic(self, count: Self) -> Self;
    fn shift_right_logical(self, count: Self) -> Self;
}

/// The neutral element of a reduction, and its function of two elements.
pub(super) type Combiner<T> = (T, fn(T, T) -> T);

/// A type that reductions combine: numbers and bool.
pub(super) trait Combined: Element {
    /// Numbers have sums, products and extremes, integers and bools And and Or.
    fn combiner(combine: Combine) -> Result<Combiner<Self>>;
}

fn combines_no(combine: Combine, dtype: DType) -> Reason {
    format!("{combine:?} takes no {dtype} elements").into()
}

/// A type with an order.
pub(super) trait Order: Element {
    /// Returns a number with the same order: both zeros and all subnormal numbers are equal, and all NaNs are equal and the
    /// largest.
    fn key(self) -> u64;
}

const TOP_BIT: u64 = 1 << 63;

/// Numbers are equal or ordered as their bits once those of negative ones are inverted; no number has the key of NaN.
fn float_key(v: f64) -> u64 {
    let bits = (v + 0.0).to_bits();
    if v.is_nan() {
        u64::MAX
    } else if bits & TOP_BIT == 0 {
        bits | TOP_BIT
    } else {
        !bits
    }
}

macro_rules! integers {
    ($($signed:ty, $unsigned:ty;)*) => {$(
        integers!(@common $signed, $signed, $unsigned, -1);
        integers!(@common $unsigned, $signed, $unsigned, <$unsigned>::MAX);
    )*};
    (@common $ty:ty, $signed:ty, $unsigned:ty, $all:expr) => {
        impl Number for $ty {
            const ZERO: Self = 0;
            const ONE: Self = 1;
            const LOWEST: Self = <$ty>::MIN;
            const HIGHEST: Self = <$ty>::MAX;

            fn plus(self, rhs: Self) -> Self {
                self.wrapping_add(rhs)
            }

            fn minus(self, rhs: Self) -> Self {
                self.wrapping_sub(rhs)
            }

            fn times(self, rhs: Self) -> Self {
                self.wrapping_mul(rhs)
            }

            fn divided(self, rhs: Self) -> Self {
                if rhs == 0 { $all } else { self.wrapping_div(rhs) }
            }

            fn remainder(self, rhs: Self) -> Self {
                if rhs == 0 { self } else { self.wrapping_rem(rhs) }
            }

            fn power(self, rhs: Self) -> Self {
                integer_power(self, rhs)
            }

            fn larger(self, rhs: Self) -> Self {
                Ord::max(self, rhs)
            }

            fn smaller(self, rhs: Self) -> Self {
                Ord::min(self, rhs)
            }

            fn magnitude(self) -> Self {
                if self < Self::ZERO { self.wrapping_neg() } else { self }
            }

            fn negated(self) -> Self {
                self.wrapping_neg()
            }

            fn sign(self) -> Self {
                match self.cmp(&0) {
                    Ordering::Less => $all,
                    Ordering::Equal => 0,
                    Ordering::Greater => 1,
                }
            }
        }

        impl Bits for $ty {
            const ALL_ZEROS: Self = 0;
            const ALL_ONES: Self = $all;

            fn and(self, rhs: Self) -> Self {
                self & rhs
            }

            fn or(self, rhs: Self) -> Self {
                self | rhs
            }

            fn xor(self, rhs: Self) -> Self {
                self ^ rhs
            }

            fn not(self) -> Self {
                !self
            }
        }

        impl Shift for $ty {
            fn shift_left(self, count: Self) -> Self {
                u32::try_from(count).ok().and_then(|count| self.checked_shl(count)).unwrap_or(0)
            }

            fn shift_right_arithmetic(self, count: Self) -> Self {
                let count = u32::try_from(count).unwrap_or(u32::MAX);
                let count = Ord::min(count, <$ty>::BITS - 1);
                (self as $signed >> count) as $ty
            }

            fn shift_right_logical(self, count: Self) -> Self {
                let count = u32::try_from(count).ok();
                count.and_then(|count| (self as $unsigned).checked_shr(count)).unwrap_or(0) as $ty
            }
        }

        impl Combined for $ty {
            fn combiner(combine: Combine) -> Result<Combiner<Self>> {
                Ok(match combine {
                    Combine::Sum => (Self::ZERO, Self::plus),
                    Combine::Prod => (Self::ONE, Self::times),
                    Combine::Max => (Self::LOWEST, Self::larger),
                    Combine::Min => (Self::HIGHEST, Self::smaller),
                    Combine::And => (Self::ALL_ONES, Self::and),
                    Combine::Or => (Self::ALL_ZEROS, Self::or),
                })
            }
        }

        impl Order for $ty {
            fn key(self) -> u64 {
                // The smallest of a signed type is its top bit.
                (self as u64).wrapping_sub(<$ty>::MIN as u64)
            }
        }
    };
}

integers! {
    i8, u8;
    i16, u16;
    i32, u32;
    i64, u64;
}

/// The number of low bits of the exponent that XLA uses (`EmitIntegerPow` in `xla/service/elemental_ir_emitter.cc`).
const EXPONENT_BITS: u32 = 6;

/// Squares and multiplies, as XLA does: modulo 64 in the exponent, so that 2^64 is 1 and not the 0 that wrapping
/// gives. For a negative exponent the result is 1 / base^n truncated. As XLA does, an exponent with the top bit set
/// counts as negative even if the type is unsigned.
fn integer_power<T: Number + Shift>(base: T, exponent: T) -> T {
    let top = T::ALL_ONES.shift_right_logical(T::ONE).not();
    if exponent.and(top) == top {
        let odd = exponent.and(T::ONE) == T::ONE;
        return if base == T::ONE || (base == T::ONE.negated() && !odd) {
            T::ONE
        } else if base == T::ONE.negated() {
            base
        } else {
            T::ZERO
        };
    }
    let (mut power, mut square, mut rest) = (T::ONE, base, exponent);
    for _ in 0..EXPONENT_BITS {
        if rest.and(T::ONE) == T::ONE {
            power = power.times(square);
        }
        square = square.times(square);
        rest = rest.shift_right_logical(T::ONE);
    }
    power
}

macro_rules! floats {
    ($($ty:ident)*) => {$(
        impl Number for $ty {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            const LOWEST: Self = $ty::NEG_INFINITY;
            const HIGHEST: Self = $ty::INFINITY;

            fn plus(self, rhs: Self) -> Self {
                self + rhs
            }

            fn minus(self, rhs: Self) -> Self {
                self - rhs
            }

            fn times(self, rhs: Self) -> Self {
                self * rhs
            }

            fn divided(self, rhs: Self) -> Self {
                self / rhs
            }

            fn remainder(self, rhs: Self) -> Self {
                self % rhs
            }

            fn power(self, rhs: Self) -> Self {
                self.powf(rhs)
            }

            #[inline(always)]
            fn larger(self, rhs: Self) -> Self {
                // Each choice is between values that are there, so that no branch is needed.
                let equal = $ty::from_bits(self.to_bits() & rhs.to_bits());
                let larger = if self > rhs { self } else { rhs };
                let larger = if self == rhs { equal } else { larger };
                if self.is_nan() { self } else { larger }
            }

            #[inline(always)]
            fn smaller(self, rhs: Self) -> Self {
                let equal = $ty::from_bits(self.to_bits() | rhs.to_bits());
                let smaller = if self < rhs { self } else { rhs };
                let smaller = if self == rhs { equal } else { smaller };
                if self.is_nan() { self } else { smaller }
            }

            fn magnitude(self) -> Self {
                $ty::abs(self)
            }

            fn negated(self) -> Self {
                -self
            }

            fn sign(self) -> Self {
                if self == 0.0 || self.is_nan() { self } else { self.signum() }
            }

        }

        impl Combined for $ty {
            fn combiner(combine: Combine) -> Result<Combiner<Self>> {
                match combine {
                    Combine::Sum => Ok((Self::ZERO, Self::plus)),
                    Combine::Prod => Ok((Self::ONE, Self::times)),
                    Combine::Max => Ok((Self::LOWEST, Self::larger)),
                    Combine::Min => Ok((Self::HIGHEST, Self::smaller)),
                    Combine::And | Combine::Or => Err(combines_no(combine, Self::DTYPE)),
                }
            }
        }
    )*};
}

floats!(f32 f64);

impl Order for f32 {
    fn key(self) -> u64 {
        float_key(self.flushed().into())
    }
}

impl Order for f64 {
    fn key(self) -> u64 {
        float_key(self.flushed())
    }
}

impl Order for half::bf16 {
    fn key(self) -> u64 {
        float_key(self.flushed().into())
    }
}

impl Order for half::f16 {
    fn key(self) -> u64 {
        float_key(self.into())
    }
}

impl Order for bool {
    fn key(self) -> u64 {
        self.into()
    }
}

impl Combined for bool {
    fn combiner(combine: Combine) -> Result<Combiner<Self>> {
        match combine {
            Combine::And => Ok((true, bool::and)),
            Combine::Or => Ok((false, bool::or)),
            Combine::Sum | Combine::Prod | Combine::Max | Combine::Min => Err(combines_no(combine, DType::Bool)),
        }
    }
}

impl Bits for bool {
    const ALL_ZEROS: Self = false;
    const ALL_ONES: Self = true;

    fn and(self, rhs: Self) -> Self {
        self & rhs
    }

    fn or(self, rhs: Self) -> Self {
        self | rhs
    }

    fn xor(self, rhs: Self) -> Self {
        self ^ rhs
    }

    fn not(self) -> Self {
        !self
    }
}
