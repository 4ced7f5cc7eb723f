//! Element-wise ops of two operands, and comparisons.

use super::buffer::{Element, dispatch_combined, dispatch_integers};
use super::elementwise::{zip, zip_into};
use super::error::Result;
use super::numeric::{Bits, Number, Shift};
use super::tensor::HostTensor;
use burn_tpu_graph::DType;
use burn_tpu_graph::op::{BinaryOp, Direction};

/// Computes the op. The caller has widened 16-bit floats.
pub(super) fn binary(op: BinaryOp, lhs: HostTensor, rhs: HostTensor) -> Result<HostTensor> {
    match lhs.dtype() {
        DType::Bool => logical(op, lhs, rhs),
        DType::F32 => float::<f32>(op, lhs, rhs, f32::atan2),
        DType::F64 => float::<f64>(op, lhs, rhs, f64::atan2),
        dtype => dispatch_integers!(dtype, T => integer::<T>(op, lhs, rhs)),
    }
}

/// Returns the operands of a commutative op with one that can be written in place first, if there is one.
fn commute<T: Element>(lhs: HostTensor, rhs: HostTensor) -> (HostTensor, HostTensor) {
    if rhs.is_owned::<T>() && !lhs.is_owned::<T>() { (rhs, lhs) } else { (lhs, rhs) }
}

fn commutative<T: Element>(lhs: HostTensor, rhs: HostTensor, f: impl Fn(T, T) -> T) -> Result<HostTensor> {
    let (lhs, rhs) = commute::<T>(lhs, rhs);
    zip_into(lhs, &rhs, f)
}

/// Of the ops on floats, those that cost less than a call have loops of their own.
fn float<T: Number>(op: BinaryOp, lhs: HostTensor, rhs: HostTensor, atan2: fn(T, T) -> T) -> Result<HostTensor> {
    use BinaryOp as B;
    let f: fn(T, T) -> T = match op {
        B::Add => return commutative(lhs, rhs, T::plus),
        B::Sub => return zip_into(lhs, &rhs, T::minus),
        B::Mul => return commutative(lhs, rhs, T::times),
        B::Div => return zip_into(lhs, &rhs, T::divided),
        B::Max => return commutative(lhs, rhs, T::larger),
        B::Min => return commutative(lhs, rhs, T::smaller),
        B::Rem => T::remainder,
        B::Pow => T::power,
        B::Atan2 => atan2,
        B::And | B::Or | B::Xor | B::ShiftLeft | B::ShiftRightArithmetic | B::ShiftRightLogical => {
            return refuse(op, T::DTYPE);
        }
    };
    zip_into(lhs, &rhs, f)
}

/// The functions of integers are called for each pair: a loop for each of them and each type would take longer to
/// compile than the rest of this crate.
fn integer<T: Number + Shift>(op: BinaryOp, lhs: HostTensor, rhs: HostTensor) -> Result<HostTensor> {
    use BinaryOp as B;
    let f: fn(T, T) -> T = match op {
        B::Add => T::plus,
        B::Sub => T::minus,
        B::Mul => T::times,
        B::Div => T::divided,
        B::Rem => T::remainder,
        B::Pow => T::power,
        B::Max => T::larger,
        B::Min => T::smaller,
        B::And => T::and,
        B::Or => T::or,
        B::Xor => T::xor,
        B::ShiftLeft => T::shift_left,
        B::ShiftRightArithmetic => T::shift_right_arithmetic,
        B::ShiftRightLogical => T::shift_right_logical,
        B::Atan2 => return refuse(op, T::DTYPE),
    };
    zip_into(lhs, &rhs, f)
}

/// Sums, products and extremes of bools are logical.
fn logical(op: BinaryOp, lhs: HostTensor, rhs: HostTensor) -> Result<HostTensor> {
    use BinaryOp as B;
    match op {
        B::And | B::Mul | B::Min => commutative(lhs, rhs, bool::and),
        B::Or | B::Add | B::Max => commutative(lhs, rhs, bool::or),
        B::Xor => commutative(lhs, rhs, bool::xor),
        B::Sub
        | B::Div
        | B::Rem
        | B::Pow
        | B::Atan2
        | B::ShiftLeft
        | B::ShiftRightArithmetic
        | B::ShiftRightLogical => refuse(op, DType::Bool),
    }
}

fn refuse(op: BinaryOp, dtype: DType) -> Result<HostTensor> {
    Err(format!("{} takes no {dtype} elements", op.mnemonic()).into())
}

/// Returns min(max(x, low), high): the upper bound wins if it is below the lower one, and NaN in any operand is NaN.
pub(super) fn clamp(low: HostTensor, x: HostTensor, high: HostTensor) -> Result<HostTensor> {
    binary(BinaryOp::Min, binary(BinaryOp::Max, x, low)?, high)
}

/// Compares every pair of elements; with a NaN only `Ne` holds.
pub(super) fn compare(direction: Direction, lhs: &HostTensor, rhs: &HostTensor) -> Result<HostTensor> {
    match (direction, lhs.dtype()) {
        (Direction::Eq, DType::F32) => zip(lhs, rhs, |x: f32, y: f32| x == y),
        (Direction::Ne, DType::F32) => zip(lhs, rhs, |x: f32, y: f32| x != y),
        (Direction::Lt, DType::F32) => zip(lhs, rhs, |x: f32, y: f32| x < y),
        (Direction::Le, DType::F32) => zip(lhs, rhs, |x: f32, y: f32| x <= y),
        (Direction::Gt, DType::F32) => zip(lhs, rhs, |x: f32, y: f32| x > y),
        (Direction::Ge, DType::F32) => zip(lhs, rhs, |x: f32, y: f32| x >= y),
        (_, dtype) => dispatch_combined!(dtype, T => zip(lhs, rhs, relation::<T>(direction))),
    }
}

fn relation<T: PartialOrd>(direction: Direction) -> fn(T, T) -> bool {
    match direction {
        Direction::Eq => |x, y| x == y,
        Direction::Ne => |x, y| x != y,
        Direction::Lt => |x, y| x < y,
        Direction::Le => |x, y| x <= y,
        Direction::Gt => |x, y| x > y,
        Direction::Ge => |x, y| x >= y,
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{run, run_as};
    use super::*;
    use burn_tpu_graph::Builder;

    fn pairs<T: Element>(op: BinaryOp, lhs: &[T], rhs: &[T]) -> Vec<T> {
        run(|t| {
            let (lhs, rhs) = (t.input(&[lhs.len()], lhs), t.input(&[rhs.len()], rhs));
            t.graph.binary(op, lhs, rhs)
        })
    }

    fn bits(values: Vec<f32>) -> Vec<u32> {
        values.into_iter().map(f32::to_bits).collect()
    }

    #[test]
    fn integers_wrap() {
        assert_eq!(pairs(BinaryOp::Add, &[i32::MAX, -1], &[1, 1]), [i32::MIN, 0]);
        assert_eq!(pairs(BinaryOp::Sub, &[0u8, 7], &[1, 7]), [255, 0]);
        assert_eq!(pairs(BinaryOp::Mul, &[1i64 << 62, -3], &[4, 5]), [0, -15]);
    }

    #[test]
    fn a_division_by_zero_is_all_ones_and_a_remainder_the_dividend() {
        assert_eq!(pairs(BinaryOp::Div, &[7i32, 0, -7], &[0, 0, 0]), [-1, -1, -1]);
        assert_eq!(pairs(BinaryOp::Div, &[7u16], &[0]), [u16::MAX]);
        assert_eq!(pairs(BinaryOp::Rem, &[7i32, -7], &[0, 0]), [7, -7]);
        assert_eq!(pairs(BinaryOp::Rem, &[7u64], &[0]), [7]);
    }

    #[test]
    fn the_smallest_integer_by_minus_one_wraps() {
        assert_eq!(pairs(BinaryOp::Div, &[i32::MIN], &[-1]), [i32::MIN]);
        assert_eq!(pairs(BinaryOp::Rem, &[i32::MIN], &[-1]), [0]);
        assert_eq!(pairs(BinaryOp::Div, &[i8::MIN], &[-1]), [i8::MIN]);
    }

    #[test]
    fn quotients_truncate_and_remainders_take_the_sign_of_the_dividend() {
        assert_eq!(pairs(BinaryOp::Div, &[7i32, -7, 7, -7], &[2, 2, -2, -2]), [3, -3, -3, 3]);
        assert_eq!(pairs(BinaryOp::Rem, &[7i32, -7, 7, -7], &[2, 2, -2, -2]), [1, -1, 1, -1]);
        assert_eq!(pairs(BinaryOp::Rem, &[7.5f32, -7.5], &[2.0, 2.0]), [1.5, -1.5]);
    }

    #[test]
    fn shifts_beyond_the_width_leave_zero_or_the_sign() {
        let counts = [0i32, 31, 32, 1000, -1];
        assert_eq!(pairs(BinaryOp::ShiftLeft, &[3; 5], &counts), [3, i32::MIN, 0, 0, 0]);
        assert_eq!(pairs(BinaryOp::ShiftRightArithmetic, &[-8; 5], &counts), [-8, -1, -1, -1, -1]);
        assert_eq!(pairs(BinaryOp::ShiftRightArithmetic, &[8; 5], &counts), [8, 0, 0, 0, 0]);
        assert_eq!(pairs(BinaryOp::ShiftRightLogical, &[-8; 5], &counts), [-8, 1, 0, 0, 0]);
    }

    #[test]
    fn an_arithmetic_shift_of_an_unsigned_integer_copies_its_top_bit() {
        assert_eq!(pairs(BinaryOp::ShiftRightArithmetic, &[0x80u8, 0x40], &[9, 1]), [0xFF, 0x20]);
        assert_eq!(pairs(BinaryOp::ShiftRightLogical, &[0x80u8, 0x80], &[9, 7]), [0, 1]);
    }

    #[test]
    fn integer_powers_wrap_and_truncate_for_negative_exponents() {
        assert_eq!(pairs(BinaryOp::Pow, &[2i32, -3, 0, 3], &[31, 3, 0, 21]), [i32::MIN, -27, 1, 3i32.wrapping_pow(21)]);
        assert_eq!(pairs(BinaryOp::Pow, &[1i32, -1, -1, 2, 0], &[-5, -5, -4, -1, -1]), [1, -1, 1, 0, 0]);
        assert_eq!(pairs(BinaryOp::Pow, &[255u8], &[2]), [1]);
    }

    #[test]
    fn integer_powers_use_six_bits_of_the_exponent_as_in_xla() {
        assert_eq!(pairs(BinaryOp::Pow, &[2i64, 0, -1, 3], &[100, 64, 65, 66]), [1 << 36, 1, -1, 9]);
        assert_eq!(pairs(BinaryOp::Pow, &[3u8, 3, 1], &[127, 255, 255]), [3u8.wrapping_pow(63), 0, 1]);
    }

    #[test]
    fn a_nan_in_either_operand_is_the_extreme() {
        for op in [BinaryOp::Max, BinaryOp::Min] {
            let found = pairs(op, &[f32::NAN, 1.0, f32::NAN], &[1.0, f32::NAN, f32::INFINITY]);
            assert!(found.iter().all(|v| v.is_nan()), "{op:?}: {found:?}");
        }
    }

    #[test]
    fn minus_zero_is_below_zero_in_extremes() {
        assert_eq!(bits(pairs(BinaryOp::Max, &[-0.0f32, 0.0], &[0.0, -0.0])), bits(vec![0.0, 0.0]));
        assert_eq!(bits(pairs(BinaryOp::Min, &[-0.0f32, 0.0], &[0.0, -0.0])), bits(vec![-0.0, -0.0]));
    }

    #[test]
    fn in_clamp_the_upper_bound_wins_and_nan_is_kept() {
        let clamped = run::<f32>(|t| {
            let low = t.input(&[5], &[0.0, 0.0, f32::NAN, 0.0, 5.0]);
            let x = t.input(&[5], &[f32::NAN, -1.0, 1.0, 1.0, 3.0]);
            let high = t.input(&[5], &[1.0, 1.0, 1.0, f32::NAN, 2.0]);
            t.graph.clamp(low, x, high)
        });
        assert!(clamped[0].is_nan() && clamped[2].is_nan() && clamped[3].is_nan());
        assert_eq!((clamped[1], clamped[4]), (0.0, 2.0));
    }

    #[test]
    fn float_edges_follow_ieee() {
        let inf = f32::INFINITY;
        assert_eq!(pairs(BinaryOp::Div, &[1.0f32, -1.0], &[0.0, 0.0]), [inf, -inf]);
        assert!(pairs(BinaryOp::Div, &[0.0f32], &[0.0])[0].is_nan());
        assert_eq!(pairs(BinaryOp::Rem, &[5.0f32], &[inf]), [5.0]);
        assert!(pairs(BinaryOp::Rem, &[5.0f32], &[0.0])[0].is_nan());
        assert_eq!(pairs(BinaryOp::Pow, &[0.0f32, 0.0, -2.0], &[0.0, -1.0, 3.0]), [1.0, inf, -8.0]);
        assert!(pairs(BinaryOp::Pow, &[-2.0f32], &[0.5])[0].is_nan());
    }

    #[test]
    fn atan2_covers_the_quadrants() {
        use std::f64::consts::{FRAC_PI_2, PI};
        let found = pairs(BinaryOp::Atan2, &[0.0f64, 0.0, 1.0, -1.0], &[1.0, -1.0, 0.0, 0.0]);
        assert_eq!(found, [0.0, PI, FRAC_PI_2, -FRAC_PI_2]);
    }

    #[test]
    fn sums_and_products_of_bools_are_logical() {
        let (x, y) = ([true, true, false, false], [true, false, true, false]);
        for op in [BinaryOp::Add, BinaryOp::Or, BinaryOp::Max] {
            assert_eq!(pairs(op, &x, &y), [true, true, true, false], "{op:?}");
        }
        for op in [BinaryOp::Mul, BinaryOp::And, BinaryOp::Min] {
            assert_eq!(pairs(op, &x, &y), [true, false, false, false], "{op:?}");
        }
        assert_eq!(pairs(BinaryOp::Xor, &x, &y), [false, true, true, false]);
    }

    #[test]
    fn bit_operations_use_every_bit() {
        assert_eq!(pairs(BinaryOp::And, &[-1i16], &[0x0F0F]), [0x0F0F]);
        assert_eq!(pairs(BinaryOp::Or, &[i64::MIN], &[1]), [i64::MIN + 1]);
        assert_eq!(pairs(BinaryOp::Xor, &[0xFFu8], &[0x0F]), [0xF0]);
    }

    #[test]
    fn halves_are_computed_in_f32_and_rounded_once() {
        // 257 and 259 are ties between the bf16 values 256, 258 and 260.
        let found = run_as(DType::BF16, &[1.0, 256.0, 258.0], |t, x| t.graph.binary_const(BinaryOp::Add, x, 1.0));
        assert_eq!(found, [2.0, 256.0, 260.0]);
        assert_eq!(run_as(DType::F16, &[60000.0], |t, x| t.graph.binary(BinaryOp::Add, x, x)), [f32::INFINITY]);
    }

    #[test]
    fn empty_operands_have_empty_results() {
        assert!(pairs::<f32>(BinaryOp::Add, &[], &[]).is_empty());
        assert!(pairs::<u8>(BinaryOp::ShiftLeft, &[], &[]).is_empty());
    }

    fn relations(lhs: f32, rhs: f32) -> Vec<bool> {
        use Direction as D;
        let one = |direction| {
            run::<bool>(|t| {
                let (lhs, rhs) = (t.input(&[], &[lhs]), t.input(&[], &[rhs]));
                t.graph.compare(direction, lhs, rhs)
            })
        };
        [D::Eq, D::Ne, D::Lt, D::Le, D::Gt, D::Ge].into_iter().flat_map(one).collect()
    }

    #[test]
    fn with_nan_only_unequal_holds_and_zeros_are_equal() {
        assert_eq!(relations(f32::NAN, f32::NAN), [false, true, false, false, false, false]);
        assert_eq!(relations(1.0, f32::NAN), [false, true, false, false, false, false]);
        assert_eq!(relations(-0.0, 0.0), [true, false, false, true, false, true]);
        assert_eq!(relations(1.0, 2.0), [false, true, true, true, false, false]);
    }

    #[test]
    fn unsigned_integers_and_bools_compare_by_their_own_order() {
        let less = |t: &mut crate::testing::Trial| {
            let (x, y) = (t.input(&[2], &[200u8, 1]), t.input(&[2], &[100u8, 255]));
            t.graph.compare(Direction::Lt, x, y)
        };
        assert_eq!(run::<bool>(less), [false, true]);
        let bools = run::<bool>(|t| {
            let (x, y) = (t.input(&[2], &[false, true]), t.input(&[2], &[true, true]));
            t.graph.compare(Direction::Lt, x, y)
        });
        assert_eq!(bools, [true, false]);
    }
}
