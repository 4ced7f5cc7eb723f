//! Random tensors, generated on the device from its Threefry state.
//!
//! Owns: the conversion of uniformly random bits to each distribution. The state is a run-time input, so a dropout mask
//! differs at every step without a recompile. The parameters of a distribution are part of the program. 16-bit floats
//! are generated in f32 and rounded once.

use crate::runtime::runtime;
use crate::trace::{Recorder, create, current_function};
use crate::{Device, Tensor};
use burn_tpu_graph::op::{BinaryOp, Direction, UnaryOp};
use burn_tpu_graph::{Builder, DType, Literal, LiteralData, NodeId, Number, Result, TensorType};

/// The distribution of random numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Distribution {
    /// Uniform on [0, 1) for floats, on [0, 255) for integers.
    #[default]
    Default,
    /// 1 with the given probability, else 0.
    Bernoulli(f64),
    /// Uniform on [low, high).
    Uniform(f64, f64),
    /// Normal with a mean and a standard deviation.
    Normal(f64, f64),
}

/// Where a device is in its random numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draws((u64, u64));

/// Returns where a device is in its random numbers.
pub fn draws(device: Device) -> Draws {
    Draws(current_function().map_or_else(|| runtime(device).draws().next_draw(), |function| function.next_draw()))
}

/// Runs `work`, which draws the random numbers that begin at `start` once more. Later draws are not affected.
pub fn replay<R>(device: Device, start: Draws, work: impl FnOnce() -> R) -> R {
    let next = draws(device);
    draw_from(device, start);
    let result = work();
    draw_from(device, next);
    result
}

fn draw_from(device: Device, Draws(next): Draws) {
    match current_function() {
        Some(function) => function.draw_from(next),
        None => runtime(device).draws().draw_from(next),
    }
}

/// Returns a random float tensor. `Default` is uniform on [0, 1).
pub fn floats(dims: &[usize], distribution: Distribution, dtype: DType, device: &Device) -> Tensor {
    let ty = TensorType::new(dtype, dims);
    create("float_random", device, |r| match distribution {
        _ if ty.elements() == 0 => r.splat(dtype, &ty.dims, 0i64),
        Distribution::Default => uniform(r, &ty, 0.0, 1.0),
        Distribution::Uniform(low, high) => uniform(r, &ty, low, high),
        Distribution::Bernoulli(probability) => bernoulli(r, &ty, probability),
        Distribution::Normal(mean, deviation) => normal(r, &ty, mean, deviation),
    })
}

/// Returns a random integer tensor. As in burn-ndarray, `Default` is uniform on [0, 255), bounds are truncated to
/// integers, and normal values are rounded toward zero. Bounds outside the type are clamped to its range.
pub fn ints(dims: &[usize], distribution: Distribution, dtype: DType, device: &Device) -> Tensor {
    let ty = TensorType::new(dtype, dims);
    create("int_random", device, |r| match distribution {
        _ if ty.elements() == 0 => r.splat(dtype, &ty.dims, 0i64),
        Distribution::Default => uniform_ints(r, &ty, 0.0, 255.0),
        Distribution::Uniform(low, high) => uniform_ints(r, &ty, low, high),
        Distribution::Bernoulli(probability) => bernoulli(r, &ty, probability),
        Distribution::Normal(mean, deviation) => {
            let numbers = normal(r, &ty.with_dtype(DType::F32), mean, deviation)?;
            r.convert(numbers, dtype)
        }
    })
}

/// Returns uniformly random ui32 or ui64.
fn bits(r: &mut Recorder, dtype: DType, dims: &[usize]) -> Result<NodeId> {
    let elements: usize = dims.iter().product();
    let state = r.rng_state(elements * dtype.size_bytes() / 4)?;
    Ok(r.rng_bit_generator(state, dtype, dims)?.1)
}

/// Returns uniform numbers on [0, 1) in steps of 2^-23 (f64: 2^-52). The random bits are the mantissa of a number in
/// [1, 2), from which 1 is subtracted.
fn unit(r: &mut Recorder, dtype: DType, dims: &[usize]) -> Result<NodeId> {
    let (word, shift, exponent) = match dtype {
        DType::F64 => (DType::U64, 12, 1.0f64.to_bits()),
        _ => (DType::U32, 9, u64::from(1.0f32.to_bits())),
    };
    let bits = bits(r, word, dims)?;
    let mantissa = r.binary_const(BinaryOp::ShiftRightLogical, bits, Number::UInt(shift))?;
    let number = r.binary_const(BinaryOp::Or, mantissa, Number::UInt(exponent))?;
    let number = r.bitcast_convert(number, dtype)?;
    r.binary_const(BinaryOp::Sub, number, 1.0)
}

/// Returns uniform numbers on [low, high). A number that is rounded up to `high` is replaced by the largest value below
/// it.
fn uniform(r: &mut Recorder, ty: &TensorType, low: f64, high: f64) -> Result<NodeId> {
    let wide = ty.dtype.accumulator();
    let mut values = unit(r, wide, &ty.dims)?;
    if (low, high) == (0.0, 1.0) && wide == ty.dtype {
        return Ok(values);
    }
    values = r.binary_const(BinaryOp::Mul, values, high - low)?;
    values = r.binary_const(BinaryOp::Add, values, low)?;
    let values = r.convert(values, ty.dtype)?;
    if low >= high {
        return Ok(values);
    }
    let data = LiteralData::Splat(bits_below(ty.dtype, high));
    let below = r.constant(Literal { ty: ty.clone(), data })?;
    r.binary(BinaryOp::Min, values, below)
}

/// Returns the bits of the largest normal number of a float type below `high`.
fn bits_below(dtype: DType, high: f64) -> u64 {
    let bits = Number::Float(high).bits(dtype);
    let sign = 1 << (8 * dtype.size_bytes() - 1);
    // Device arithmetic flushes subnormal numbers to zero.
    let smallest = Number::Float(match dtype {
        DType::F16 => half::f16::MIN_POSITIVE.to_f64(),
        DType::F64 => f64::MIN_POSITIVE,
        _ => f64::from(f32::MIN_POSITIVE),
    });
    match bits {
        _ if bits & !sign == 0 => smallest.bits(dtype) | sign,
        _ if bits & sign == 0 => bits - 1,
        _ => bits + 1,
    }
}

/// Returns 1 with the given probability, else 0: a comparison of the bits, exact to 2^-32.
fn bernoulli(r: &mut Recorder, ty: &TensorType, probability: f64) -> Result<NodeId> {
    let favourable = (probability.clamp(0.0, 1.0) * 2f64.powi(32)).round() as u64;
    if favourable == 0 {
        return r.splat(ty.dtype, &ty.dims, 0i64);
    }
    let bits = bits(r, DType::U32, &ty.dims)?;
    let hit = r.compare_const(Direction::Le, bits, Number::UInt(favourable - 1))?;
    r.convert(hit, ty.dtype)
}

/// Returns normal numbers: the inverse of the distribution function at uniform numbers on (-1, 1). The uniform numbers
/// are symmetric and offset by half a step, so they never reach an end. The results reach 5.3 standard deviations (f64:
/// 8.2).
fn normal(r: &mut Recorder, ty: &TensorType, mean: f64, deviation: f64) -> Result<NodeId> {
    let wide = ty.dtype.accumulator();
    let half_step = if wide == DType::F64 { 2f64.powi(-52) } else { 2f64.powi(-23) };
    let unit = unit(r, wide, &ty.dims)?;
    let doubled = r.binary_const(BinaryOp::Mul, unit, 2.0)?;
    let centred = r.binary_const(BinaryOp::Sub, doubled, 1.0 - half_step)?;
    let quantile = r.unary(UnaryOp::ErfInv, centred)?;
    let scaled = r.binary_const(BinaryOp::Mul, quantile, std::f64::consts::SQRT_2 * deviation)?;
    let moved = r.binary_const(BinaryOp::Add, scaled, mean)?;
    r.convert(moved, ty.dtype)
}

/// For ranges of at most this size, 32 random bits are reduced with a bias below 2^-16. Larger ranges use 64 bits.
const FEW: u64 = 1 << 16;

/// Returns uniform integers on [low, high).
fn uniform_ints(r: &mut Recorder, ty: &TensorType, low: f64, high: f64) -> Result<NodeId> {
    let (first, end) = integer_range(ty.dtype);
    let low = (low as i128).clamp(first, end - 1);
    let span = ((high as i128).clamp(first, end) - low).clamp(1, i128::from(u64::MAX)) as u64;
    let bits = bits(r, if span <= FEW { DType::U32 } else { DType::U64 }, &ty.dims)?;
    let offset = r.binary_const(BinaryOp::Rem, bits, Number::UInt(span))?;
    // Offset and sum may wrap in a signed type. The result is still correct modulo the type's width.
    let offset = r.convert(offset, ty.dtype)?;
    r.binary_const(BinaryOp::Add, offset, low as i64)
}

/// Returns the smallest value of an integer type, and the largest value plus one.
fn integer_range(dtype: DType) -> (i128, i128) {
    let values = 1i128 << (8 * dtype.size_bytes());
    if dtype.is_unsigned_int() { (0, values) } else { (-values / 2, values / 2) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::values;

    const COUNT: usize = 20_000;

    fn drawn(distribution: Distribution, dtype: DType) -> Vec<f64> {
        let draw = if dtype.is_int() { ints } else { floats };
        let tensor = draw(&[COUNT], distribution, dtype, &Device::ndarray());
        assert_eq!(tensor.element(), dtype);
        values(tensor)
    }

    fn mean_and_variance(values: &[f64]) -> (f64, f64) {
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        (mean, values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / values.len() as f64)
    }

    #[test]
    fn uniform_stays_below_its_upper_bound() {
        for dtype in [DType::BF16, DType::F16, DType::F32, DType::F64] {
            let unit = drawn(Distribution::Default, dtype);
            assert!(unit.iter().all(|value| (0.0..1.0).contains(value)), "{dtype}");
            let (mean, variance) = mean_and_variance(&unit);
            assert!((mean - 0.5).abs() < 0.01 && (variance - 1.0 / 12.0).abs() < 0.01, "{dtype}: {mean} {variance}");
            let moved = drawn(Distribution::Uniform(-3.0, -2.0), dtype);
            assert!(moved.iter().all(|value| (-3.0..-2.0).contains(value)), "{dtype}");
        }
    }

    #[test]
    fn the_largest_number_below() {
        assert_eq!(bits_below(DType::BF16, 1.0), u64::from(half::bf16::from_f64(1.0).to_bits() - 1));
        assert_eq!(f32::from_bits(bits_below(DType::F32, 0.0) as u32), -f32::MIN_POSITIVE);
        assert!(f32::from_bits(bits_below(DType::F32, -2.0) as u32) < -2.0);
    }

    #[test]
    fn normal_and_bernoulli() {
        for dtype in [DType::BF16, DType::F32, DType::F64] {
            let (mean, variance) = mean_and_variance(&drawn(Distribution::Normal(1.0, 2.0), dtype));
            assert!((mean - 1.0).abs() < 0.1 && (variance - 4.0).abs() < 0.3, "{dtype}: {mean} {variance}");
        }
        let (mean, _) = mean_and_variance(&drawn(Distribution::Bernoulli(0.3), DType::F32));
        assert!((mean - 0.3).abs() < 0.02, "{mean}");
        assert!(drawn(Distribution::Bernoulli(1.0), DType::F32).iter().all(|&value| value == 1.0));
        assert!(drawn(Distribution::Bernoulli(0.0), DType::I32).iter().all(|&value| value == 0.0));
    }

    #[test]
    fn integers_fill_their_range() {
        let dice = drawn(Distribution::Uniform(1.0, 7.0), DType::I32);
        assert!(
            (1..7).all(|face| dice.contains(&f64::from(face))) && dice.iter().all(|value| (1.0..7.0).contains(value))
        );
        let bytes = drawn(Distribution::Uniform(-200.0, 200.0), DType::I8);
        assert!(bytes.contains(&-128.0) && bytes.contains(&127.0));
        let wide = drawn(Distribution::Uniform(-1e9, 1e9), DType::I64);
        assert!(wide.iter().all(|value| (-1e9..1e9).contains(value)) && mean_and_variance(&wide).0.abs() < 3e7);
    }
}
