//! The exponential function and the hyperbolic tangent of f32, without branches and calls, so that a loop over them uses the
//! vector units.
//!
//! They are computed in f64 and rounded once: all but a few results in ten thousand are the closest f32, and none is further
//! than its neighbour.

/// The number whose last bit is worth 1: adding it rounds to an integer, which is then in the low bits.
const ROUNDER: f64 = 1.5 * (1u64 << 52) as f64;

/// Above this the result is infinite in f32, below the negative it is zero; both are ordinary numbers in f64.
const LARGE: f64 = 150.0;

/// The coefficients of the series of the exponential function, 1 / n!, the highest first. For arguments of at most ln(2) / 2
/// the next term is below 2e-10 of the sum.
const SERIES: [f64; 9] =
    [1.0 / 40320.0, 1.0 / 5040.0, 1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 1.0 / 2.0, 1.0, 1.0];

/// Returns e to the power of `x`.
#[inline(always)]
pub(super) fn exp(x: f32) -> f32 {
    wide_exp(f64::from(x)) as f32
}

/// Returns the hyperbolic tangent.
#[inline(always)]
pub(super) fn tanh(x: f32) -> f32 {
    let x = f64::from(x);
    let square = wide_exp(2.0 * x);
    let quotient = (square - 1.0) / (square + 1.0);
    // The difference of nearly equal numbers has few digits. Here the series' next term has none that count, and the sign of a
    // zero is kept.
    let series = x * (1.0 - x * x / 3.0);
    (if x.abs() < 1e-4 { series } else { quotient }) as f32
}

/// Returns e to the power of `x`, which is cut to ±[`LARGE`], with the digits of an f32 and some more. NaN stays NaN.
#[inline(always)]
fn wide_exp(x: f64) -> f64 {
    let x = if x > LARGE { LARGE } else { x };
    let x = if x < -LARGE { -LARGE } else { x };
    // x = n ln(2) + rest
    let rounded = x * std::f64::consts::LOG2_E + ROUNDER;
    let rest = x - (rounded - ROUNDER) * std::f64::consts::LN_2;
    let mut sum = 0.0;
    for coefficient in SERIES {
        sum = sum * rest + coefficient;
    }
    // 2 to the power of n: the low bits of `rounded` are n, and the exponent of an f64 is its bits from 52 on, plus 1023.
    let power = f64::from_bits(rounded.to_bits().wrapping_add(1023) << 52);
    sum * power
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers of every size and both signs, subnormal ones among them.
    fn samples() -> impl Iterator<Item = f32> {
        (0..=u32::MAX).step_by(9973).map(f32::from_bits).filter(|x| !x.is_nan())
    }

    /// Counts the results that are not the closest f32, and checks that each is that or its neighbour.
    fn inexact(of: fn(f32) -> f32, exact: fn(f64) -> f64) -> usize {
        let mut count = 0;
        for x in samples() {
            let (found, closest) = (of(x), exact(f64::from(x)) as f32);
            let is_near = found == closest || found == closest.next_up() || found == closest.next_down();
            assert!(is_near && found.is_sign_negative() == closest.is_sign_negative(), "{x:e}: {found:e}, {closest:e}");
            count += usize::from(found != closest);
        }
        count
    }

    #[test]
    fn results_are_the_closest_numbers_or_their_neighbours() {
        let count = samples().count();
        assert!(inexact(exp, f64::exp) * 1000 < count);
        assert!(inexact(tanh, f64::tanh) * 1000 < count);
    }

    #[test]
    fn ends_and_zeros() {
        let ends = [f32::NEG_INFINITY, -1e30, -104.0, -0.0, 0.0, 89.0, 1e30, f32::INFINITY];
        assert_eq!(ends.map(exp), [0.0, 0.0, 0.0, 1.0, 1.0, f32::INFINITY, f32::INFINITY, f32::INFINITY]);
        let found = ends.map(tanh).map(f32::to_bits);
        assert_eq!(found, [-1.0f32, -1.0, -1.0, -0.0, 0.0, 1.0, 1.0, 1.0].map(f32::to_bits));
        assert!(exp(f32::NAN).is_nan() && tanh(f32::NAN).is_nan());
    }
}
