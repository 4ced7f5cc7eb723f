//! Random draws, tested by their statistics, ranges and seeds, and reads of several tensors at once.

use crate::case::{FLOATS, INTS};
use crate::harness::{Ours, Row, law};
use crate::version::{self, TpuDevice};
use burn_backend::ops::{FloatTensorOps, IntTensorOps, TransactionOps, TransactionPrimitive};
use burn_backend::{Backend, Distribution, FloatDType, IntDType, Shape, TensorData, read_sync};

type B = Ours;

pub fn rows() -> Vec<Row> {
    vec![law("float_random", float_random), law("int_random", int_random), law("tr_execute", tr_execute)]
}

const DRAWS: usize = 10_000;

/// Returns mean and standard deviation.
fn moments(values: &[f64]) -> (f64, f64) {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / values.len() as f64;
    (mean, variance.sqrt())
}

fn floats(device: &TpuDevice, distribution: Distribution, dtype: FloatDType) -> Vec<f64> {
    let x = B::float_random(Shape::from([100, DRAWS / 100]), distribution, device, dtype);
    read_sync(B::float_into_data(x)).expect("a read").iter::<f64>().collect()
}

fn ints(device: &TpuDevice, distribution: Distribution, dtype: IntDType) -> Vec<f64> {
    let x = B::int_random(Shape::from([DRAWS]), distribution, device, dtype);
    read_sync(B::int_into_data(x)).expect("a read").iter::<f64>().collect()
}

fn near(what: &str, found: f64, expected: f64, allowed: f64) {
    assert!((found - expected).abs() <= allowed, "{what} is {found} instead of {expected}");
}

/// The mean of n draws is off by more than 6 deviations / sqrt(n) once in 10^9 runs.
fn check_moments(what: &str, values: &[f64], mean: f64, deviation: f64) {
    let (m, d) = moments(values);
    near(&format!("{what}: the mean"), m, mean, 0.06 * deviation + 1e-9);
    near(&format!("{what}: the deviation"), d, deviation, 0.1 * deviation + 1e-9);
}

fn float_random(device: TpuDevice) {
    let third = 12f64.sqrt().recip();
    for dtype in FLOATS {
        let unit = floats(&device, Distribution::Default, dtype);
        assert!(unit.iter().all(|v| (0.0..1.0).contains(v)), "{dtype:?}");
        check_moments("default", &unit, 0.5, third);
        let uniform = floats(&device, Distribution::Uniform(-3.0, 5.0), dtype);
        assert!(uniform.iter().all(|v| (-3.0..5.0).contains(v)), "{dtype:?}");
        check_moments("uniform", &uniform, 1.0, 8.0 * third);
        let coin = floats(&device, Distribution::Bernoulli(0.3), dtype);
        assert!(coin.iter().all(|&v| v == 0.0 || v == 1.0), "{dtype:?}");
        check_moments("bernoulli", &coin, 0.3, 0.21f64.sqrt());
        let normal = floats(&device, Distribution::Normal(2.0, 3.0), dtype);
        check_moments("normal", &normal, 2.0, 3.0);
        let within = normal.iter().filter(|v| (-1.0..5.0).contains(*v)).count() as f64 / DRAWS as f64;
        near("the fraction within one deviation", within, 0.6827, 0.03);
    }
    let draw = || floats(&device, Distribution::Normal(0.0, 1.0), FloatDType::F32);
    B::seed(&device, 7);
    let (first, second) = (draw(), draw());
    assert_ne!(first, second, "draws repeat");
    let x = B::float_random(Shape::from([0, 3]), Distribution::Default, &device, FloatDType::F32);
    assert_eq!(version::shape(&read_sync(B::float_into_data(x)).expect("a read")).as_slice(), [0, 3]);
}

fn int_random(device: TpuDevice) {
    for dtype in INTS {
        let uniform = ints(&device, Distribution::Uniform(2.0, 12.0), dtype);
        assert!(uniform.iter().all(|v| (2.0..12.0).contains(v)), "{dtype:?}");
        check_moments("uniform", &uniform, 6.5, (99.0f64 / 12.0).sqrt());
        let coin = ints(&device, Distribution::Bernoulli(0.5), dtype);
        assert!(coin.iter().all(|&v| v == 0.0 || v == 1.0), "{dtype:?}");
        check_moments("bernoulli", &coin, 0.5, 0.5);
    }
    let bytes = ints(&device, Distribution::Default, IntDType::I32);
    assert!(bytes.iter().all(|v| (0.0..255.0).contains(v)));
    check_moments("default", &bytes, 127.0, (254.0f64 * 256.0 / 12.0).sqrt());
    let normal = ints(&device, Distribution::Normal(100.0, 20.0), IntDType::I32);
    // Rounded toward zero, which lowers the mean by half a unit.
    check_moments("normal", &normal, 99.5, 20.0);
}

fn tr_execute(device: TpuDevice) {
    let floats = TensorData::new(vec![1.5f32, -2.0, f32::INFINITY], [3]);
    let whole = TensorData::new(vec![1i64, -2], [2, 1]);
    let truths = TensorData::new(vec![true, false], [1, 2]);
    let mut reads = TransactionPrimitive::<B>::default();
    reads.read_floats.push(B::float_from_data(floats.clone(), &device));
    let negative = B::float_neg(B::float_from_data(floats.clone(), &device));
    reads.read_floats.push(negative);
    reads.read_ints.push(B::int_from_data(whole.clone(), &device));
    reads.read_bools.push(<B as burn_backend::ops::BoolTensorOps<B>>::bool_from_data(truths.clone(), &device));
    let data = read_sync(B::tr_execute(reads)).expect("a read");
    let negative = TensorData::new(vec![-1.5f32, 2.0, f32::NEG_INFINITY], [3]);
    assert_eq!(data.read_floats, [floats, negative]);
    assert_eq!((data.read_ints, data.read_bools), (vec![whole], vec![truths]));
}
