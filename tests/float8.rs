//! Products with factors of 8 bits: StableHLO's formats on the CPU plugin, their plain form in the interpreter, and the
//! numbers of the formats as they are defined.

mod common;

use burn::backend::Autodiff;
use burn::tensor::{Tensor, TensorData};
use burn_tpu::{Float8, Float8Format, Tpu, TpuDevice, TpuOptions, metrics};
use half::bf16;

const SIDE: usize = 16;

/// Returns all numbers from 0 of a format of 8 bits, upwards, by its bits of mantissa, the bias of its exponent and its
/// largest number.
fn numbers(format: Float8Format) -> Vec<f64> {
    let (mantissa, bias, largest) = match format {
        Float8Format::E5M2 => (2, 15, 57_344.0),
        Float8Format::E4M3FN => (3, 7, 448.0),
        Float8Format::E4M3B11FNUZ => (3, 11, 30.0),
        other => panic!("{other} has no definition here"),
    };
    let number = |code: i32| {
        let (exponent, fraction) = (code >> mantissa, f64::from(code & ((1 << mantissa) - 1)));
        let steps = 2f64.powi(mantissa);
        match exponent {
            0 => fraction / steps * 2f64.powi(1 - bias),
            _ => (1.0 + fraction / steps) * 2f64.powi(exponent - bias),
        }
    };
    (0..128).map(number).filter(|number| *number <= largest).collect()
}

/// Rounds to the nearest of the numbers, of two as near to the one with an even code.
fn rounded(x: f64, numbers: &[f64]) -> f64 {
    let above = numbers.partition_point(|number| *number < x.abs()).min(numbers.len() - 1);
    let below = above.saturating_sub(1);
    let [low, high] = [x.abs() - numbers[below], numbers[above] - x.abs()];
    let is_low = if low == high { below.is_multiple_of(2) } else { low < high };
    numbers[if is_low { below } else { above }].copysign(x)
}

/// Factors of very different magnitudes.
fn factor(seed: f64) -> Vec<f64> {
    let number = |place: usize| {
        let x = seed * place as f64;
        f64::from(bf16::from_f64(x.sin() * 2f64.powf(20.0 * (0.77 * x).cos())))
    };
    (0..SIDE * SIDE).map(number).collect()
}

/// Returns the scale of a factor: the power of two that brings its largest magnitude closest to the largest number, from
/// below.
fn scale(factor: &[f64], largest: f64) -> f64 {
    let most = factor.iter().fold(0.0, |most: f64, x| most.max(x.abs()));
    2f64.powf((largest / most).log2().floor())
}

/// Returns the product of the rounded factors, and the sum of magnitudes that each of its numbers is rounded within.
fn by_definition(x: &[f64], w: &[f64], numbers: &[f64]) -> Vec<(f64, f64)> {
    let narrow = |factor: &[f64]| {
        let scale = scale(factor, *numbers.last().unwrap());
        factor.iter().map(|x| rounded(x * scale, numbers) / scale).collect::<Vec<_>>()
    };
    let (x, w) = (narrow(x), narrow(w));
    let each = |place: usize| {
        let terms = (0..SIDE).map(|k| x[place / SIDE * SIDE + k] * w[k * SIDE + place % SIDE]);
        terms.fold((0.0, 0.0), |(sum, size), term| (sum + term, size + term.abs()))
    };
    (0..SIDE * SIDE).map(each).collect()
}

fn product(device: &TpuDevice, x: &[f64], w: &[f64]) -> Vec<f64> {
    let tensor = |values: &[f64]| {
        let data = TensorData::new(values.to_vec(), [SIDE, SIDE]).convert::<bf16>();
        Tensor::<Tpu, 2>::from_data(data, device)
    };
    let product = tensor(x).matmul(tensor(w)).into_data().convert::<f64>();
    product.to_vec().unwrap()
}

#[test]
fn factors_are_rounded_to_the_nearest_numbers_of_the_format() {
    if !common::has_cpu_plugin() {
        return;
    }
    let (x, w) = (factor(0.37), factor(1.29));
    let compiled = (0..).map(TpuDevice::cpu).zip(Float8Format::ALL);
    // The interpreter runs the plain form.
    for (device, format) in compiled.chain([(TpuDevice::ndarray(), Float8Format::E4M3B11FNUZ)]) {
        let expected = by_definition(&x, &w, &numbers(format));
        let options = TpuOptions::training().cpu_devices(4).disk_cache(false).interpret_from(0);
        options.float8(Float8 { format, least: SIDE }).install(&device).expect("first use");
        let found = product(&device, &x, &w);
        assert_eq!(metrics(&device).rewrites.get("float8"), Some(&1), "{device}");
        for (found, (expected, size)) in found.iter().zip(&expected) {
            // The result is bf16.
            let tolerance = expected.abs() / 256.0 + size * 1e-6;
            assert!((found - expected).abs() <= tolerance, "{format} on {device}: {found}, not {expected}");
        }
    }
}

/// Forward and backward, and only the products that are large enough.
#[test]
fn gradients_of_large_products_have_factors_of_8_bits() {
    if !common::has_cpu_plugin() {
        return;
    }
    type B = Autodiff<Tpu>;
    let device = TpuDevice::cpu(3);
    let options = TpuOptions::training().cpu_devices(4).disk_cache(false).interpret_from(0);
    options.float8(Float8 { format: Float8Format::E5M2, least: SIDE }).install(&device).expect("first use");
    let ones = |dims: [usize; 2]| Tensor::<B, 2>::ones(dims, &device).require_grad();
    let (x, w, small) = (ones([SIDE, SIDE]), ones([SIDE, SIDE]), ones([SIDE, SIDE / 2]));
    let gradients = x.clone().matmul(w.clone()).matmul(small.clone()).sum().backward();
    let [x, w, small] = [x, w, small].map(|leaf| leaf.grad(&gradients).expect("a gradient").into_data());
    // 8 columns of ones in `small`.
    for (gradient, expected) in [(x, 128.0), (w, 128.0), (small, 256.0)] {
        assert!(gradient.convert::<f64>().to_vec::<f64>().unwrap().iter().all(|value| *value == expected));
    }
    // The three products of `x` and `w`.
    assert_eq!(metrics(&device).rewrites.get("float8"), Some(&3), "{:?}", metrics(&device).rewrites);
}
