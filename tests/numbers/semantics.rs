//! Results at the edges, decided once: NaN and infinities, integers that overflow or are divided by zero, halves, empty and
//! size-1 dims, duplicate and misplaced indices, and the accumulation of 16-bit floats.
//!
//! Every test runs on the CPU plugin and in the interpreter: a result must not depend on the engine.

use crate::common;

use burn::backend::Autodiff;
use burn::tensor::activation::{gelu, log_softmax, relu, softmax};
use burn::tensor::backend::Backend;
use burn::tensor::module::{
    adaptive_avg_pool1d, adaptive_avg_pool2d, attention, ctc_loss, interpolate, max_pool2d, max_pool2d_with_indices,
};
use burn::tensor::ops::{InterpolateMode, InterpolateOptions};
use burn::tensor::{Bool, DType, IndexingUpdateOp, Int, Tensor, TensorData};
use burn_tpu::{Platform, Tpu, TpuDevice};

type B = Tpu<f32>;
type Half = Tpu<half::bf16>;

const NAN: f32 = f32::NAN;
const INF: f32 = f32::INFINITY;

fn on_each(test: impl Fn(&TpuDevice)) {
    test(&TpuDevice::ndarray());
    if let Some(device) = common::device() {
        test(&device);
    }
}

fn floats(values: &[f32], device: &TpuDevice) -> Tensor<B, 1> {
    Tensor::from_data(TensorData::from(values), device)
}

fn ints(values: &[i32], device: &TpuDevice) -> Tensor<B, 1, Int> {
    Tensor::from_data(TensorData::from(values), device)
}

fn read<const D: usize>(x: Tensor<B, D>) -> Vec<f32> {
    x.into_data().iter::<f32>().collect()
}

fn read_ints<const D: usize>(x: Tensor<B, D, Int>) -> Vec<i64> {
    x.into_data().iter::<i64>().collect()
}

fn read_bools<const D: usize>(x: Tensor<B, D, Bool>) -> Vec<bool> {
    x.into_data().iter::<bool>().collect()
}

/// Compares values; NaN equals NaN, and -0 differs from 0.
#[track_caller]
fn same(actual: Vec<f32>, expected: &[f32]) {
    let bits = |values: &[f32]| -> Vec<u32> {
        values.iter().map(|v| if v.is_nan() { NAN.to_bits() } else { v.to_bits() }).collect()
    };
    assert_eq!(bits(&actual), bits(expected), "{actual:?} is not {expected:?}");
}

#[track_caller]
fn close(actual: Vec<f32>, expected: &[f32]) {
    assert_eq!(actual.len(), expected.len());
    let near = |(a, e): (&f32, &f32)| a == e || (a.is_nan() && e.is_nan()) || (a - e).abs() <= 1e-5 * e.abs().max(1.0);
    assert!(actual.iter().zip(expected).all(near), "{actual:?} is not {expected:?}");
}

#[test]
fn a_nan_is_the_extreme_value_and_its_index_is_found() {
    on_each(|device| {
        let x = || floats(&[1.0, NAN, INF, -INF], device);
        for reduced in [x().max(), x().min(), x().max_dim(0), x().min_dim(0), x().max_abs()] {
            same(read(reduced), &[NAN]);
        }
        assert_eq!(read_ints(x().argmax(0)), [1]);
        assert_eq!(read_ints(x().argmin(0)), [1]);
        same(read(x().max_dim_with_indices(0).0), &[NAN]);
        same(read(x().cummax(0)), &[1.0, NAN, NAN, NAN]);
        same(read(x().cummin(0)), &[1.0, NAN, NAN, NAN]);
        same(read(x().clamp(-1.0, 2.0)), &[1.0, NAN, 2.0, -1.0]);
    });
}

#[test]
fn zeros_keep_their_order() {
    on_each(|device| {
        let x = || floats(&[-0.0, 0.0, -1.0, NAN], device);
        same(read(relu(x())), &[0.0, 0.0, 0.0, NAN]);
        same(read(relu(x()).recip()), &[INF, INF, INF, NAN]);
        same(read(x().clamp(0.0, 1.0)), &[0.0, 0.0, 0.0, NAN]);
        same(read(x().clamp_min(0.0)), &[0.0, 0.0, 0.0, NAN]);
        same(read(x().clamp_max(-0.0)), &[-0.0, -0.0, -1.0, NAN]);
        let zeros = || floats(&[-0.0, 0.0, -0.0], device);
        same(read(zeros().max()), &[0.0]);
        same(read(zeros().min()), &[-0.0]);
        same(read(zeros().cummax(0)), &[-0.0, 0.0, 0.0]);
    });
}

#[test]
fn the_error_function_ends_at_one() {
    on_each(|device| {
        same(read(floats(&[40.0, -40.0, 4.0, INF, -INF, NAN], device).erf()), &[1.0, -1.0, 1.0, 1.0, -1.0, NAN]);
        same(read(gelu(floats(&[-100.0, -1e9, 100.0], device))), &[-0.0, -0.0, 100.0]);
        let halves: Tensor<Half, 1> = Tensor::from_data(TensorData::from([-100f32, 100.0]), device);
        same(gelu(halves).into_data().iter::<f32>().collect(), &[-0.0, 100.0]);
    });
}

/// GPUs compute with them.
#[test]
fn subnormal_numbers_are_zeros_to_what_computes() {
    on_each(|device| {
        if device.platform() == Platform::Cuda {
            return;
        }
        let x = || floats(&[1e-40, -1e-40, 2e-38], device);
        same(read(x().recip()), &[INF, -INF, 5e37]);
        same(read(x() * 0.5), &[0.0, -0.0, 0.0]);
        assert_eq!(read_bools(x().equal_elem(0.0)), [true, true, false]);
        same(read(x().neg().reshape([3])), &[-1e-40, 1e-40, -2e-38]);
    });
}

#[test]
fn a_pixel_that_is_not_finite_stays_where_it_is_read() {
    on_each(|device| {
        for value in [NAN, INF, -INF] {
            let mut pixels = [1f32; 64];
            pixels[0] = value;
            let image = || floats(&pixels, device).reshape([1, 1, 8, 8]);
            let local = |size: usize| (0..size * size).map(|i| if i == 0 { value } else { 1.0 }).collect::<Vec<_>>();
            for size in [2, 3] {
                close(read(adaptive_avg_pool2d(image(), [size, size])), &local(size));
            }
            for mode in [InterpolateMode::Nearest, InterpolateMode::Bilinear, InterpolateMode::Bicubic] {
                let resized = interpolate(image(), [4, 4], InterpolateOptions::new(mode));
                close(read(resized), &local(4));
            }
        }
        // Infinities of both signs in one window are no number.
        let row = floats(&[INF, -INF, 1.0, 1.0, 1.0], device).reshape([1, 1, 5]);
        close(read(adaptive_avg_pool1d(row, 2)), &[NAN, 1.0]);
    });
}

/// XLA would evaluate these while it compiles, for minutes.
#[test]
fn ops_on_many_constants_compile_at_once() {
    on_each(|device| {
        let ones = Tensor::<B, 2>::ones([512, 4096], device);
        assert_eq!(read_ints(ones.clone().argmax(1).sum()), [0]);
        same(read(ones.cumsum(1).max()), &[4096.0]);
    });
}

#[test]
fn a_nan_wins_its_pool_window_and_is_found_there() {
    on_each(|device| {
        let x = || floats(&[1.0, 2.0, NAN, 4.0, 9.0, 6.0, 7.0, 8.0], device).reshape([1, 1, 2, 4]);
        same(read(max_pool2d(x(), [2, 2], [2, 2], [0, 0], [1, 1], false)), &[9.0, NAN]);
        let (values, places) = max_pool2d_with_indices(x(), [2, 2], [2, 2], [0, 0], [1, 1], false);
        same(read(values), &[9.0, NAN]);
        assert_eq!(read_ints(places), [4, 2]);
        let low = floats(&[-INF, -INF, -INF, -INF], device).reshape([1, 1, 2, 2]);
        same(read(max_pool2d(low, [2, 2], [1, 1], [0, 0], [1, 1], false)), &[-INF]);
    });
}

#[test]
fn a_nan_score_affects_only_its_own_row_of_attention_and_of_softmax() {
    on_each(|device| {
        let x = floats(&[0.0, NAN, 1.0, 1.0], device).reshape([2, 2]);
        same(read(softmax(x.clone(), 1)), &[NAN, NAN, 0.5, 0.5]);
        assert!(read(log_softmax(x, 1))[..2].iter().all(|v| v.is_nan()));
        let query = floats(&[NAN, 1.0, 1.0, 1.0], device).reshape([1, 1, 2, 2]);
        let key = floats(&[1.0, 0.0, 0.0, 1.0], device).reshape([1, 1, 2, 2]);
        let value = floats(&[2.0, 4.0], device).reshape([1, 1, 2, 1]);
        close(read(attention(query, key, value, None, None, Default::default())), &[NAN, 3.0]);
    });
}

#[test]
fn comparisons_with_nan_are_false_except_unequal() {
    on_each(|device| {
        let x = || floats(&[NAN, INF, -0.0], device);
        let y = || floats(&[NAN, INF, 0.0], device);
        assert_eq!(read_bools(x().equal(y())), [false, true, true]);
        assert_eq!(read_bools(x().not_equal(y())), [true, false, false]);
        assert_eq!(read_bools(x().lower_equal(y())), [false, true, true]);
        assert_eq!(read_bools(x().greater(y())), [false, false, false]);
        assert_eq!(read_bools(x().greater_elem(f32::MAX)), [false, true, false]);
    });
}

#[test]
fn a_sort_is_stable_and_puts_nan_last() {
    on_each(|device| {
        let x = || floats(&[2.0, NAN, 1.0, 2.0, -INF, INF], device);
        same(read(x().sort(0)), &[-INF, 1.0, 2.0, 2.0, INF, NAN]);
        assert_eq!(read_ints(x().argsort(0)), [4, 2, 0, 3, 5, 1]);
        assert_eq!(read_ints(x().argsort_descending(0)), [1, 5, 0, 3, 2, 4]);
        assert_eq!(read_ints(floats(&[3.0, 3.0, 1.0], device).argmax(0)), [0]);
    });
}

#[test]
fn integer_quotients_truncate_and_a_zero_divisor_is_harmless() {
    let test = |device: &TpuDevice| {
        let x = || ints(&[7, -7, 7, -7], device);
        assert_eq!(read_ints(x() / ints(&[2, 2, -2, -2], device)), [3, -3, -3, 3]);
        assert_eq!(read_ints(x().remainder(ints(&[3, 3, -3, -3], device))), [1, 2, -2, -1]);
        // XLA's rule for signed integers: x / 0 is -1 with the remainder x; the lowest number divided by -1 is itself.
        assert_eq!(read_ints(x() / ints(&[0; 4], device)), [-1; 4]);
        assert_eq!(read_ints(x().remainder(ints(&[0; 4], device))), [7, -7, 7, -7]);
        assert_eq!(read_ints(ints(&[i32::MIN], device) / ints(&[-1], device)), [i64::from(i32::MIN)]);
        // With constants, which XLA divides itself while it compiles: that would end the process.
        let (ones, zeros) = (|| Tensor::<B, 1, Int>::ones([2], device), || Tensor::<B, 1, Int>::zeros([2], device));
        assert_eq!(read_ints(ones() / zeros()), [-1; 2]);
        assert_eq!(read_ints(ones().remainder(zeros())), [1; 2]);
        assert_eq!(read_ints(zeros() / zeros() + ones() / ones()), [0; 2]);
    };
    if let Some(device) = common::device() {
        test(&device);
    }
}

#[test]
fn integers_wrap() {
    on_each(|device| {
        assert_eq!(read_ints(ints(&[i32::MAX], device) + 1), [i64::from(i32::MIN)]);
        assert_eq!(read_ints(ints(&[i32::MAX], device) * 2), [-2]);
        assert_eq!(read_ints(ints(&[i32::MIN], device).neg()), [i64::from(i32::MIN)]);
        assert_eq!(read_ints(ints(&[i32::MIN], device).abs()), [i64::from(i32::MIN)]);
    });
}

#[test]
fn a_float_remainder_has_the_divisors_sign_and_fmod_the_dividends() {
    on_each(|device| {
        let x = || floats(&[5.5, -5.5, 5.5, -5.5], device);
        let y = || floats(&[2.0, 2.0, -2.0, -2.0], device);
        same(read(x().remainder(y())), &[1.5, 0.5, -0.5, -1.5]);
        same(read(x().fmod(y())), &[1.5, -1.5, 1.5, -1.5]);
        same(read(x().remainder_scalar(0.0)), &[NAN; 4]);
    });
}

#[test]
fn halves_round_to_even_and_casts_saturate() {
    on_each(|device| {
        let x = || floats(&[-1.5, -0.5, 0.5, 1.5, 2.5], device);
        assert_eq!(read(x().round()), [-2.0, 0.0, 0.0, 2.0, 2.0]);
        assert_eq!(read_ints(x().int()), [-1, 0, 0, 1, 2]);
        let far = || floats(&[3e9, -3e9, INF, -INF], device);
        let (low, high) = (i64::from(i32::MIN), i64::from(i32::MAX));
        assert_eq!(read_ints(far().int()), [high, low, high, low]);
        assert_eq!(read_ints(floats(&[NAN], device).int()), [0]);
        let bytes: Tensor<B, 1, Int> = floats(&[300.0, -1.0, NAN, 2.9], device).int().cast(DType::I64);
        assert_eq!(read_ints(bytes), [300, -1, 0, 2]);
        assert_eq!(read_ints(ints(&[300, -1], device).cast(DType::U8)), [44, 255]);
    });
}

#[test]
fn logarithms_and_powers_outside_their_domain() {
    on_each(|device| {
        let x = || floats(&[-1.0, 0.0, 1.0, INF], device);
        same(read(x().log()), &[NAN, -INF, 0.0, INF]);
        same(read(x().log1p()), &[-INF, 0.0, std::f32::consts::LN_2, INF]);
        same(read(x().sqrt()), &[NAN, 0.0, 1.0, INF]);
        same(read(x().powf_scalar(0.5)), &[NAN, 0.0, 1.0, INF]);
        same(read(x().powf_scalar(0.0)), &[1.0; 4]);
        same(read(x().recip()), &[-1.0, INF, 1.0, 0.0]);
        same(read(floats(&[-2.0, -2.0, 0.0], device).powf(floats(&[3.0, 0.5, -1.0], device))), &[-8.0, NAN, INF]);
    });
}

#[test]
fn reductions_of_empty_dims_are_neutral_and_size_1_dims_stay() {
    on_each(|device| {
        let empty = || Tensor::<B, 2>::zeros([0, 3], device);
        same(read(empty().sum()), &[0.0]);
        same(read(empty().sum_dim(0)), &[0.0; 3]);
        same(read(empty().prod()), &[1.0]);
        assert_eq!(empty().max_dim(1).dims(), [0, 1]);
        assert_eq!((empty() + 1.0).into_data().shape.as_slice(), [0, 3]);
        assert_eq!(read(Tensor::cat(vec![empty(), Tensor::ones([1, 3], device)], 0)), [1.0; 3]);
        same(read(Tensor::<B, 2>::ones([2, 0], device).matmul(Tensor::ones([0, 2], device))), &[0.0; 4]);
        assert_eq!(empty().sort(0).dims(), [0, 3]);
        let one = || floats(&[4.0], device);
        assert_eq!(one().sum().dims(), [1]);
        same(read(one().mean_dim(0)), &[4.0]);
        same(read(one().cumsum(0)), &[4.0]);
        assert_eq!(read_ints(one().argsort(0)), [0]);
    });
}

#[test]
fn duplicate_indices_add_up() {
    on_each(|device| {
        let zeros = || Tensor::<B, 1>::zeros([3], device);
        let ones = || floats(&[1.0, 2.0, 4.0], device);
        let indices = || ints(&[1, 1, 0], device);
        same(read(zeros().scatter(0, indices(), ones(), IndexingUpdateOp::Add)), &[4.0, 3.0, 0.0]);
        same(read(zeros().select_assign(0, indices(), ones(), IndexingUpdateOp::Add)), &[4.0, 3.0, 0.0]);
        same(read(ones().select(0, indices())), &[2.0, 2.0, 1.0]);
        let rows = Tensor::<B, 2, Int>::from_data(TensorData::from([[1], [1], [0]]), device);
        same(read(zeros().scatter_nd(rows, ones(), IndexingUpdateOp::Add)), &[4.0, 3.0, 0.0]);
    });
}

#[test]
fn a_tensor_is_shifted_within_itself() {
    on_each(|device| {
        let x = floats(&[-4.0, 4.0, 3.0, 3.5], device).reshape([4, 1]) * floats(&[2.0], device).reshape([1, 1]);
        Tpu::<f32>::sync(device).unwrap();
        let x = x.reshape([4]);
        let shifted = x.clone().slice_assign(1..4, x.slice(0..3));
        same(read(shifted), &[-8.0, -8.0, 8.0, 6.0]);
    });
}

#[test]
fn bf16_reductions_norms_and_softmax_accumulate_in_f32() {
    let Some(device) = common::bf16_device() else { return };
    let ones = || Tensor::<Half, 2>::ones([1, 4096], &device);
    let read = |x: Tensor<Half, 2>| x.into_data().iter::<f32>().collect::<Vec<_>>();
    // In bf16, 256 + 1 is 256.
    assert_eq!(read(ones().sum_dim(1)), [4096.0]);
    assert_eq!(read(ones().mean_dim(1)), [1.0]);
    assert_eq!(read(ones().matmul(ones().transpose())), [4096.0]);
    assert_eq!(ones().cumsum(1).into_data().iter::<f32>().last(), Some(4096.0));
    assert_eq!(read(softmax(ones(), 1)), [1.0 / 4096.0; 4096]);
    let layer = burn::nn::LayerNormConfig::new(4096).init::<Half>(&device);
    let ramp = Tensor::<Half, 1, Int>::arange(0..4096, &device).float().reshape([1, 4096]);
    let normed = read(layer.forward(ramp));
    assert!((normed[0] + 1.732).abs() < 0.01 && (normed[4095] - 1.732).abs() < 0.01, "{normed:?}");
}

/// 12 steps over time, each of which would round in bf16.
#[test]
fn a_ctc_loss_of_bf16_is_that_of_f32_rounded_once() {
    let (Some(wide), Some(narrow)) = (common::device(), common::bf16_device()) else { return };
    fn loss<B: Backend>(device: &B::Device) -> f32 {
        // Eighths are exact in bf16.
        let scores: Vec<f32> = (0..12 * 3).map(|k| -((k * 7 % 11 + 1) as f32) / 8.0).collect();
        let scores = Tensor::<B, 3>::from_data(TensorData::new(scores, [12, 1, 3]), device);
        let lengths = |length: i32| Tensor::from_data([length], device);
        let targets = Tensor::from_data([[1, 2, 1, 1]], device);
        let loss = ctc_loss(scores, targets, lengths(12), lengths(4), 0);
        loss.into_data().iter::<f32>().next().expect("one loss")
    }
    let exact = loss::<B>(&wide);
    assert_eq!(loss::<Half>(&narrow), half::bf16::from_f32(exact).to_f32(), "of {exact}");
}

/// There are two samples. The first one has two steps for two equal labels, which need a blank between them.
#[test]
fn a_ctc_loss_without_an_alignment_is_infinite_and_has_no_gradient() {
    on_each(|device| {
        let scores = Tensor::<Autodiff<B>, 3>::zeros([4, 2, 3], device).require_grad();
        let log_probs = log_softmax(scores.clone(), 2);
        let targets = Tensor::from_data([[1, 1], [1, 2]], device);
        let lengths = |lengths: [i32; 2]| Tensor::from_data(lengths, device);
        let loss = ctc_loss(log_probs, targets, lengths([2, 4]), lengths([2, 2]), 0);
        let [none, some] = read(loss.clone().inner())[..] else { panic!("a loss per sample") };
        assert!(none == INF && some.is_finite(), "{none} {some}");
        let gradients = loss.sum().backward();
        let gradient = scores.grad(&gradients).expect("a gradient");
        let of = |sample: usize| read(gradient.clone().slice([0..4, sample..sample + 1]));
        assert_eq!(of(0), [0.0; 12]);
        assert!(
            of(1).iter().all(|slope| slope.is_finite()) && of(1).iter().any(|slope| slope.abs() > 0.1),
            "{:?}",
            of(1)
        );
    });
}
