//! Element-wise ops: arithmetic, comparisons, logic, bit operations, masks, conversions.
//!
//! Owns: the composition of element-wise semantics for every element type. Operands broadcast their size-1 dims.
//! A scalar operand is always a slot, so a learning rate, a threshold or a fill value that changes at every step never
//! causes a recompile. Only constants in the definition of an op (the 1 of `recip`) are part of the program. A scalar
//! is first converted to the tensor's element type, as everywhere in XLA. What 16-bit floats and wider ones give together is
//! in `mixed`.

use super::mixed;
use crate::Tensor;
use crate::trace::{Recorder, record, record_or_compute};
use burn_tpu_graph::op::{BinaryOp, Direction, UnaryOp};
use burn_tpu_graph::{Builder, DType, NodeId, Number, Result};

/// Computes a unary op of the graph.
pub fn unary(name: &'static str, op: UnaryOp, x: Tensor) -> Tensor {
    record_or_compute(name, [&x], |r, [x]| r.unary(op, x))
}

/// Computes a function that XLA composes of several ops. 16-bit floats are computed in f32 and rounded once.
pub fn composed(name: &'static str, op: UnaryOp, x: Tensor) -> Tensor {
    record(name, [&x], |r, [x]| {
        let dtype = r.dtype(x);
        let wide = r.convert(x, dtype.accumulator())?;
        let y = r.unary(op, wide)?;
        r.convert(y, dtype)
    })
}

/// Computes a binary op of the graph.
pub fn binary(name: &'static str, op: BinaryOp, lhs: Tensor, rhs: Tensor) -> Tensor {
    let build = |r: &mut Recorder, [x, y]: [NodeId; 2]| mixed::binary(r, op, x, y);
    if lhs.dims() == rhs.dims() {
        return record_or_compute(name, [&lhs, &rhs], build);
    }
    record(name, [&lhs, &rhs], build)
}

/// Computes a binary op with a scalar on the right.
pub fn binary_scalar(name: &'static str, op: BinaryOp, lhs: Tensor, rhs: Number) -> Tensor {
    record_or_compute(name, [&lhs], |r, [x]| {
        let y = r.slot_like(x, rhs)?;
        r.binary(op, x, y)
    })
}

/// Compares element-wise. The result is a native bool for any setting of Burn's bool type.
pub fn compare(name: &'static str, direction: Direction, lhs: Tensor, rhs: Tensor) -> Tensor {
    record(name, [&lhs, &rhs], |r, [x, y]| {
        let (x, y) = mixed::widened(r, x, y)?;
        r.compare(direction, x, y)
    })
}

/// Compares with a scalar element-wise.
pub fn compare_scalar(name: &'static str, direction: Direction, lhs: Tensor, rhs: Number) -> Tensor {
    record(name, [&lhs], |r, [x]| {
        let y = r.slot_like(x, rhs)?;
        r.compare(direction, x, y)
    })
}

/// Computes Burn's remainder, which has the sign of the divisor.
pub fn remainder(lhs: Tensor, rhs: Tensor) -> Tensor {
    record("remainder", [&lhs, &rhs], |r, [x, y]| floored_remainder(r, x, y))
}

/// Computes the [`remainder`] of a division by a scalar.
pub fn remainder_scalar(lhs: Tensor, rhs: Number) -> Tensor {
    record("remainder_scalar", [&lhs], |r, [x]| {
        let y = r.slot_like(x, rhs)?;
        floored_remainder(r, x, y)
    })
}

/// The truncated remainder is exact. Where it is not zero and its sign differs from the divisor's, the divisor is added
/// once. `x - y * floor(x / y)` would round three times.
fn floored_remainder(r: &mut Recorder, x: NodeId, y: NodeId) -> Result<NodeId> {
    let truncated = r.binary(BinaryOp::Rem, x, y)?;
    if r.dtype(truncated).is_unsigned_int() {
        return Ok(truncated);
    }
    let nonzero = r.compare_const(Direction::Ne, truncated, 0i64)?;
    let below = r.compare_const(Direction::Lt, truncated, 0i64)?;
    let divisor_below = r.compare_const(Direction::Lt, y, 0i64)?;
    let signs_differ = r.binary(BinaryOp::Xor, below, divisor_below)?;
    let wrong = r.binary(BinaryOp::And, nonzero, signs_differ)?;
    let moved = r.binary(BinaryOp::Add, truncated, y)?;
    r.select(wrong, moved, truncated)
}

/// Computes `lhs` to the power `rhs` element-wise. The exponent may be an integer tensor. 16-bit floats are computed in
/// f32 and rounded once, since a power multiplies the relative error of intermediate values by the exponent.
pub fn power(name: &'static str, lhs: Tensor, rhs: Tensor) -> Tensor {
    record(name, [&lhs, &rhs], |r, [x, y]| {
        let (dtype, other) = (r.dtype(x), r.dtype(y));
        let base = r.convert(x, dtype.accumulator())?;
        let whole = dtype.is_float() && other.is_int();
        let exponent = r.convert(y, if whole { dtype.accumulator() } else { other.accumulator() })?;
        let power =
            if dtype.is_int() { integer_power(r, base, exponent)? } else { r.binary(BinaryOp::Pow, base, exponent)? };
        r.convert(power, dtype)
    })
}

/// Computes the power of two integers, which wraps as products do. XLA's integer power uses only six bits of the
/// exponent, so the exponent is split into groups of six bits: x^n = x^(n mod 64) * (x^64)^(n / 64). For a negative
/// exponent, the result is the integer power of 1 / x.
fn integer_power(r: &mut Recorder, x: NodeId, n: NodeId) -> Result<NodeId> {
    let (six, low, half) = (r.splat_like(n, 6i64)?, r.splat_like(n, 63i64)?, r.splat_like(x, 32i64)?);
    let digit = r.binary(BinaryOp::And, n, low)?;
    let (mut power, mut base, mut rest) = (r.binary(BinaryOp::Pow, x, digit)?, x, n);
    for _ in 1..(8 * r.dtype(n).size_bytes()).div_ceil(6) {
        let root = r.binary(BinaryOp::Pow, base, half)?;
        base = r.binary(BinaryOp::Mul, root, root)?;
        rest = r.binary(BinaryOp::ShiftRightLogical, rest, six)?;
        let digit = r.binary(BinaryOp::And, rest, low)?;
        let factor = r.binary(BinaryOp::Pow, base, digit)?;
        power = r.binary(BinaryOp::Mul, power, factor)?;
    }
    if r.dtype(n).is_unsigned_int() {
        return Ok(power);
    }
    let negative = r.compare_const(Direction::Lt, n, 0i64)?;
    let inverse = r.binary(BinaryOp::Pow, x, n)?;
    r.select(negative, inverse, power)
}

/// Computes the power with a scalar exponent. A small integer exponent is part of the program, as in Burn, which has
/// special cases for -2 to 2. Any other exponent is a slot.
pub fn power_scalar(name: &'static str, lhs: Tensor, exponent: Number) -> Tensor {
    record(name, [&lhs], |r, [x]| {
        let dtype = r.dtype(x);
        let base = r.convert(x, dtype.accumulator())?;
        let power = match small_exponent(exponent, dtype) {
            Some(0) => return r.splat_like(x, 1i64),
            Some(1) => return Ok(x),
            Some(n) => whole_power(r, base, n)?,
            None => {
                let slot = r.slot_like(base, exponent)?;
                // XLA supports exponents up to 63 directly.
                let long = dtype.is_int() && exponent.to_f64() > 63.0;
                if long { integer_power(r, base, slot)? } else { r.binary(BinaryOp::Pow, base, slot)? }
            }
        };
        r.convert(power, dtype)
    })
}

/// Returns the exponent if a few multiplications suffice: up to 4, where a power would cost a logarithm and an
/// exponential. Integers have no reciprocal, so their negative exponents use the power.
fn small_exponent(exponent: Number, dtype: DType) -> Option<i32> {
    let value = exponent.to_f64();
    let small = value.fract() == 0.0 && value.abs() <= 4.0 && (value >= 0.0 || dtype.is_float());
    small.then_some(value as i32)
}

/// Computes x to the power n, for n from -4 to 4 except 0.
fn whole_power(r: &mut Recorder, x: NodeId, n: i32) -> Result<NodeId> {
    let square = if n.abs() >= 2 { r.binary(BinaryOp::Mul, x, x)? } else { x };
    let power = match n.abs() {
        3 => r.binary(BinaryOp::Mul, square, x)?,
        4 => r.binary(BinaryOp::Mul, square, square)?,
        _ => square,
    };
    if n < 0 { reciprocal(r, power) } else { Ok(power) }
}

/// Computes the square root of the sum of two squares. Neither square overflows nor underflows: the larger magnitude is a
/// factor of the result. An infinity gives infinity, also with NaN. 16-bit floats are computed in f32 and rounded once.
pub fn hypot(lhs: Tensor, rhs: Tensor) -> Tensor {
    record("float_hypot", [&lhs, &rhs], |r, [x, y]| {
        let dtype = r.dtype(x);
        let (x, y) = mixed::widened(r, x, y)?;
        let (x, y) = (magnitude(r, x)?, magnitude(r, y)?);
        let above = r.compare(Direction::Gt, y, x)?;
        let (large, small) = (r.select(above, y, x)?, r.select(above, x, y)?);
        let ratio = r.binary(BinaryOp::Div, small, large)?;
        let square = r.binary(BinaryOp::Mul, ratio, ratio)?;
        let sum = r.binary_const(BinaryOp::Add, square, 1.0)?;
        let root = r.unary(UnaryOp::Sqrt, sum)?;
        let length = r.binary(BinaryOp::Mul, large, root)?;
        // Both zero, or one of them infinite: the ratio is no number.
        let both = r.binary(BinaryOp::Add, x, y)?;
        let zero = r.compare_const(Direction::Eq, both, 0.0)?;
        let length = r.select(zero, both, length)?;
        let infinite =
            [r.compare_const(Direction::Eq, x, f64::INFINITY)?, r.compare_const(Direction::Eq, y, f64::INFINITY)?];
        let infinite = r.binary(BinaryOp::Or, infinite[0], infinite[1])?;
        let infinity = r.splat_like(length, f64::INFINITY)?;
        let length = r.select(infinite, infinity, length)?;
        r.convert(length, dtype)
    })
}

/// Returns the absolute value, of 16-bit floats in f32.
fn magnitude(r: &mut Recorder, x: NodeId) -> Result<NodeId> {
    let wide = r.convert(x, r.dtype(x).accumulator())?;
    r.unary(UnaryOp::Abs, wide)
}

/// Computes 1 / x.
pub fn recip(x: Tensor) -> Tensor {
    record("float_recip", [&x], |r, [x]| reciprocal(r, x))
}

fn reciprocal(r: &mut Recorder, x: NodeId) -> Result<NodeId> {
    let one = r.splat_like(x, 1i64)?;
    r.binary(BinaryOp::Div, one, x)
}

/// Rounds toward zero.
pub fn trunc(x: Tensor) -> Tensor {
    record("float_trunc", [&x], |r, [x]| {
        let below = r.compare_const(Direction::Lt, x, 0i64)?;
        let up = r.unary(UnaryOp::Ceil, x)?;
        let down = r.unary(UnaryOp::Floor, x)?;
        r.select(below, up, down)
    })
}

/// Computes the absolute value. An unsigned integer is returned unchanged.
pub fn abs(x: Tensor) -> Tensor {
    if x.element().is_unsigned_int() { x } else { unary("abs", UnaryOp::Abs, x) }
}

/// Returns -1, 0 or 1 in the tensor's type. NaN remains NaN.
pub fn sign(x: Tensor) -> Tensor {
    record("sign", [&x], |r, [x]| {
        let unsigned = r.dtype(x).is_unsigned_int();
        if unsigned { r.binary_const(BinaryOp::Min, x, 1i64) } else { r.unary(UnaryOp::Sign, x) }
    })
}

/// Returns whether each element is NaN, which is the only value that differs from itself.
pub fn is_nan(x: Tensor) -> Tensor {
    record("float_is_nan", [&x], |r, [x]| r.compare(Direction::Ne, x, x))
}

/// Returns whether each element is positive or negative infinity.
pub fn is_inf(x: Tensor) -> Tensor {
    record("float_is_inf", [&x], |r, [x]| {
        let size = r.unary(UnaryOp::Abs, x)?;
        r.compare_const(Direction::Eq, size, f64::INFINITY)
    })
}

/// Clamps x to two bounds. The upper bound wins if the bounds cross. NaN remains NaN, which XLA's own clamp does not
/// guarantee.
pub fn clamp(x: Tensor, min: Number, max: Number) -> Tensor {
    record("clamp", [&x], |r, [x]| {
        let low = r.slot_like(x, min)?;
        let high = r.slot_like(x, max)?;
        let raised = r.binary(BinaryOp::Max, x, low)?;
        r.binary(BinaryOp::Min, raised, high)
    })
}

/// Shifts right. The shift is arithmetic for signed integers and logical for unsigned ones.
pub fn shift_right(lhs: Tensor, rhs: Tensor) -> Tensor {
    let op = shift_right_op(&lhs);
    binary("bitwise_right_shift", op, lhs, rhs)
}

/// Shifts right by a scalar. See [`shift_right`].
pub fn shift_right_scalar(lhs: Tensor, rhs: Number) -> Tensor {
    let op = shift_right_op(&lhs);
    binary_scalar("bitwise_right_shift_scalar", op, lhs, rhs)
}

fn shift_right_op(x: &Tensor) -> BinaryOp {
    if x.element().is_unsigned_int() { BinaryOp::ShiftRightLogical } else { BinaryOp::ShiftRightArithmetic }
}

/// Returns `value` where the mask is true, else x.
pub fn mask_where(x: Tensor, mask: Tensor, value: Tensor) -> Tensor {
    record("mask_where", [&x, &mask, &value], |r, [x, mask, value]| {
        let value = mixed::alike(r, x, value)?;
        r.select(mask, value, x)
    })
}

/// Returns a scalar where the mask is true, else x.
pub fn mask_fill(x: Tensor, mask: Tensor, value: Number) -> Tensor {
    record("mask_fill", [&x, &mask], |r, [x, mask]| {
        let value = r.slot(r.dtype(x), value)?;
        r.select(mask, value, x)
    })
}

/// Converts the values to another element type. Floats truncate to integers and saturate; integers wrap; bools become 0
/// and 1.
pub fn cast(x: Tensor, dtype: DType) -> Tensor {
    record_or_compute("cast", [&x], |r, [x]| {
        let narrow = dtype.is_int() && dtype.size_bytes() < DType::I32.size_bytes();
        if !(narrow && r.dtype(x).is_float()) {
            return r.convert(x, dtype);
        }
        // XLA saturates at 32 bits. For narrower types the result depends on the platform.
        let wide = r.convert(x, DType::I32)?;
        let (lowest, highest) = integer_range(dtype);
        let low = r.splat_like(wide, lowest)?;
        let high = r.splat_like(wide, highest)?;
        let saturated = r.clamp(low, wide, high)?;
        r.convert(saturated, dtype)
    })
}

/// Returns the smallest and the largest value of an integer type of at most 32 bits.
fn integer_range(dtype: DType) -> (i64, i64) {
    let bits = 8 * dtype.size_bytes() as u32;
    if dtype.is_unsigned_int() { (0, (1 << bits) - 1) } else { (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::data;
    use crate::ops::testing::{devices, tensor, tensor_of, truths, values};

    #[test]
    fn remainder_has_the_divisors_sign() {
        let x = || tensor([5.5f32, -5.5, 5.5, -5.5, 6.0], &[5]);
        let y = tensor([2.0f32, 2.0, -2.0, -2.0, 3.0], &[5]);
        assert_eq!(values(remainder(x(), y)), [1.5, 0.5, -0.5, -1.5, 0.0]);
        assert_eq!(values(remainder_scalar(tensor([7i32, -7, 6], &[3]), Number::Int(3))), [1.0, 2.0, 0.0]);
        assert_eq!(values(remainder_scalar(tensor([7u8, 250, 6], &[3]), Number::UInt(4))), [3.0, 2.0, 2.0]);
    }

    #[test]
    fn the_length_of_a_vector_neither_overflows_nor_loses_nan() {
        for device in devices() {
            let of = |values: [f32; 6]| data::to_device(tensor(values, &[6]), &device);
            let x = of([3.0, 3e30, 0.0, 0.0, f32::NAN, f32::NAN]);
            let lengths = values(hypot(x, of([-4.0, 4e30, 0.0, f32::NAN, 1.0, f32::NEG_INFINITY])));
            assert_eq!((lengths[0], lengths[2], lengths[5]), (5.0, 0.0, f64::INFINITY), "on {device}");
            assert!(
                (lengths[1] / 5e30 - 1.0).abs() < 1e-6 && lengths[3].is_nan() && lengths[4].is_nan(),
                "on {device}"
            );
        }
    }

    #[test]
    fn integers_divide_toward_zero_and_shift_with_their_sign() {
        let x = || tensor([-7i32, 7, -8], &[3]);
        assert_eq!(values(binary_scalar("int_div_scalar", BinaryOp::Div, x(), Number::Int(2))), [-3.0, 3.0, -4.0]);
        assert_eq!(values(shift_right_scalar(x(), Number::Int(1))), [-4.0, 3.0, -4.0]);
        assert_eq!(values(shift_right_scalar(tensor([255u8, 8], &[2]), Number::UInt(1))), [127.0, 4.0]);
    }

    #[test]
    fn small_whole_exponents_are_products() {
        let x = || tensor([-2.0f32, 0.5], &[2]);
        for (exponent, expected) in
            [(0.0, [1.0, 1.0]), (3.0, [-8.0, 0.125]), (4.0, [16.0, 0.0625]), (-2.0, [0.25, 4.0])]
        {
            assert_eq!(values(power_scalar("float_powf_scalar", x(), Number::Float(exponent))), expected);
        }
        assert_eq!(values(power_scalar("int_powi_scalar", tensor([-3i32, 2], &[2]), Number::Int(3))), [-27.0, 8.0]);
        let root = values(power_scalar("float_powf_scalar", tensor([9.0f32], &[1]), Number::Float(0.5)));
        assert!((root[0] - 3.0).abs() < 1e-6);
    }

    #[test]
    fn integer_powers_wrap_for_any_exponent() {
        for device in devices() {
            let x = || data::to_device(tensor([-2i32, 3, 0, -1, 2, -1], &[6]), &device);
            let n = data::to_device(tensor([64i32, 1000, 64, 65, -1, -3], &[6]), &device);
            let expected = [0.0, f64::from(3i32.wrapping_pow(1000)), 0.0, -1.0, 0.0, -1.0];
            assert_eq!(values(power("int_powi", x(), n)), expected, "on {device}");
            let wrapped = [-2i32, 3, 0, -1, 2, -1].map(|x| f64::from(x.wrapping_pow(70)));
            assert_eq!(values(power_scalar("int_powi_scalar", x(), Number::Int(70))), wrapped, "on {device}");
        }
    }

    #[test]
    fn composed_functions_of_f16_are_rounded_once() {
        for device in devices() {
            let x = data::to_device(tensor_of(DType::BF16, &[1.53125], &[1]), &device);
            assert_eq!(values(composed("float_acosh", UnaryOp::Acosh, x)), [0.98828125], "on {device}");
        }
    }

    #[test]
    fn a_power_keeps_16_bit_types() {
        let x = tensor_of(DType::BF16, &[1.5, -3.0], &[2]);
        let squared = power_scalar("float_powi_scalar", x, Number::Int(2));
        assert_eq!(squared.element(), DType::BF16);
        assert_eq!(values(squared), [2.25, 9.0]);
    }

    #[test]
    fn rounding_and_special_values() {
        let x = || tensor([-1.5f32, -0.5, 2.5, f32::NAN, f32::NEG_INFINITY], &[5]);
        assert_eq!(values(trunc(x()))[..3], [-1.0, 0.0, 2.0]);
        assert_eq!(values(unary("float_round", UnaryOp::RoundNearestEven, x()))[..3], [-2.0, 0.0, 2.0]);
        assert_eq!(truths(is_nan(x())), [false, false, false, true, false]);
        assert_eq!(truths(is_inf(x())), [false, false, false, false, true]);
        assert_eq!(values(sign(tensor([0u8, 9], &[2]))), [0.0, 1.0]);
        let held = values(clamp(x(), Number::Float(-1.0), Number::Float(1.0)));
        assert_eq!(held[..3], [-1.0, -0.5, 1.0]);
        assert!(held[3].is_nan());
        assert!(values(binary_scalar("float_clamp_min", BinaryOp::Max, x(), Number::Float(0.0)))[3].is_nan());
    }

    #[test]
    fn masks_broadcast() {
        let x = tensor([1.0f32, 2.0, 3.0, 4.0], &[2, 2]);
        let mask = tensor([true, false], &[1, 2]);
        let filled = mask_fill(x, mask.clone(), Number::Float(f64::NEG_INFINITY));
        assert_eq!(values(filled.clone()), [f64::NEG_INFINITY, 2.0, f64::NEG_INFINITY, 4.0]);
        assert_eq!(values(mask_where(filled, mask, tensor([9.0f32], &[1, 1]))), [9.0, 2.0, 9.0, 4.0]);
    }

    #[test]
    fn floats_truncate_and_saturate_to_integers() {
        let x = || tensor([2.9f32, -2.9, 300.0, -300.0], &[4]);
        assert_eq!(values(cast(x(), DType::I32)), [2.0, -2.0, 300.0, -300.0]);
        assert_eq!(values(cast(x(), DType::I8)), [2.0, -2.0, 127.0, -128.0]);
        assert_eq!(values(cast(x(), DType::U8)), [2.0, 0.0, 255.0, 0.0]);
        assert_eq!(values(cast(tensor([true, false], &[2]), DType::BF16)), [1.0, 0.0]);
    }

    #[test]
    #[should_panic(expected = "float_add")]
    fn mixed_element_types_are_rejected() {
        let (x, y) = (tensor([1.0f32], &[1]), tensor([1.0f64], &[1]));
        binary("float_add", BinaryOp::Add, x, y);
    }
}
