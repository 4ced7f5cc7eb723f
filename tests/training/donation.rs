//! Donation changes where results are stored, never their values. Each test covers a known way in which donation goes
//! wrong.

use crate::common;

use burn::backend::Autodiff;
use burn::tensor::activation::log_softmax;
use burn::tensor::backend::Backend;
use burn::tensor::module::ctc_loss;
use burn::tensor::{Int, Tensor, TensorData};
use burn_tpu::{Metrics, Tpu, TpuDevice, mark_step, metrics};
use common::{alone, counted};

type B = Tpu<f32>;
type D = Autodiff<B>;
type Vector = Tensor<B, 1>;

/// Long enough that no upload is copied on the way.
const LENGTH: usize = 16 << 10;

/// The number of rows and columns of a weight.
const SIDE: usize = 128;

fn filled(device: &TpuDevice, value: f32) -> Vector {
    Tensor::from_data(TensorData::new(vec![value; LENGTH], [LENGTH]), device)
}

/// Returns the value that all elements share.
fn value(tensor: Vector) -> f32 {
    let values: Vec<f32> = tensor.into_data().to_vec().expect("f32 data");
    assert!(values.iter().all(|&v| v == values[0]), "elements differ");
    values[0]
}

/// A program compiled while one argument was donated must be right when another one, both, or none is donated.
#[test]
fn one_program_serves_every_donation_pattern() {
    let Some(device) = common::device() else { return };
    let _alone = alone();
    for (round, (keep_a, keep_b)) in
        [(false, true), (true, false), (true, true), (false, false), (false, true)].into_iter().enumerate()
    {
        let (x, y) = (round as f32 + 2.0, round as f32 + 0.5);
        let (a, b) = (filled(&device, x), filled(&device, y));
        let (kept_a, kept_b) = (keep_a.then(|| a.clone()), keep_b.then(|| b.clone()));
        let ((sum, product), count) = counted(&device, || {
            let results = (a.clone() + b.clone(), a * b);
            mark_step(&device);
            results
        });
        assert_eq!(count.donated, u64::from(!keep_a) + u64::from(!keep_b), "round {round}");
        assert_eq!(count.compiles, u64::from(round == 0), "round {round}");
        assert_eq!((value(sum), value(product)), (x + y, x * y), "round {round}");
        assert!(kept_a.is_none_or(|kept| value(kept) == x), "round {round}");
        assert!(kept_b.is_none_or(|kept| value(kept) == y), "round {round}");
    }
}

/// Two equal constants: one is overwritten for many steps, the other must keep its value.
#[test]
fn overwriting_a_constant_does_not_change_an_equal_one() {
    let Some(device) = common::device() else { return };
    let _alone = alone();
    for make in [|d: &TpuDevice| Vector::zeros([LENGTH], d), |d: &TpuDevice| filled(d, 0.0)] {
        let (mut sum, constant) = (make(&device), make(&device));
        for step in 1..=10 {
            sum = sum + constant.clone() + 1.0;
            mark_step(&device);
            assert_eq!(value(constant.clone()), 0.0, "step {step}");
        }
        assert_eq!(value(sum), 10.0);
    }
}

/// Reading one of several results runs all of them and keeps the arguments that are still referenced.
#[test]
fn a_read_of_one_result_keeps_the_arguments_of_the_others() {
    let Some(device) = common::device() else { return };
    let _alone = alone();
    let weights = filled(&device, 3.0);
    let (loss, next) = (weights.clone() * 2.0, weights.clone() - 1.0);
    assert_eq!(value(loss), 6.0);
    let (after, count) = counted(&device, || value(next.clone() + weights.clone()));
    assert_eq!((after, count.donated), (5.0, 0));
    assert_eq!((value(next), value(weights)), (2.0, 3.0));
}

/// The input's gradient also reads a layer's weight, and no data dependency orders this read and the weight's update.
#[test]
fn a_weight_that_is_read_elsewhere_is_updated_without_a_copy() {
    let Some(device) = common::device() else { return };
    let _alone = alone();
    let matrix = |value: f32, rows: usize| {
        Tensor::<B, 2>::from_data(TensorData::new(vec![value; rows * SIDE], [rows, SIDE]), &device)
    };
    let (weight, input, gradient) = (matrix(1.0, SIDE), matrix(2.0, 1), matrix(3.0, 1));
    let before = metrics(&device);
    let back = gradient.clone().matmul(weight.clone().transpose());
    let weight = weight - input.transpose().matmul(gradient) * 0.5;
    mark_step(&device);
    let after = metrics(&device);
    let bytes = (SIDE * SIDE * size_of::<f32>()) as u64;
    assert_eq!((after.donated_bytes - before.donated_bytes, after.alias_bytes - before.alias_bytes), (bytes, bytes));
    let temporary = after.temporary_bytes - before.temporary_bytes;
    assert!(temporary < bytes, "{temporary} bytes of temporaries hold a copy of the weight's {bytes}");
    assert_eq!(weight.into_data(), TensorData::new(vec![-2f32; SIDE * SIDE], [SIDE, SIDE]));
    assert_eq!(back.into_data(), TensorData::new(vec![3.0 * SIDE as f32; SIDE], [1, SIDE]));
}

/// PJRT refuses a call that names a donated buffer twice.
#[test]
fn a_buffer_that_is_used_twice_is_donated_once() {
    let Some(device) = common::device() else { return };
    let _alone = alone();
    let x = filled(&device, 3.0);
    let (square, count) = counted(&device, || {
        let same = x.clone();
        let square = x.clone() * same - x;
        mark_step(&device);
        square
    });
    assert_eq!((count.donated, value(square)), (1, 6.0));
}

/// The update of the scores reuses their memory, in a step whose loops read the scores in each trip.
#[test]
fn values_that_loops_read_are_intact_until_the_loops_end() {
    let Some(device) = common::device() else { return };
    let _alone = alone();
    let values: Vec<f32> = (0..LENGTH).map(|i| (0.37 * i as f32).sin()).collect();
    let start = || Tensor::<B, 3>::from_data(TensorData::new(values.clone(), [128, 16, 8]), &device);
    let whole = |values: Vec<i32>| Tensor::<D, 1, Int>::from_data(&values[..], &device);
    let targets = whole((0..16 * 20).map(|i| 1 + i * 5 % 7).collect()).reshape([16, 20]);
    let (steps, labels) = (whole((0..16).map(|i| 128 - i).collect()), whole((5..21).collect()));
    let descended = |scores: Tensor<B, 3>| {
        let leaf = Tensor::<D, 3>::from_inner(scores).require_grad();
        let log_probs = log_softmax(leaf.clone(), 2);
        let loss = ctc_loss(log_probs, targets.clone(), steps.clone(), labels.clone(), 0);
        let gradient = leaf.grad(&loss.sum().backward()).expect("a gradient");
        let next = leaf.inner() - gradient * 0.5;
        mark_step(&device);
        next
    };
    let [(donated, found), (none, expected)] = [false, true].map(|keep| {
        let (first, mut kept) = (start(), Vec::new());
        let step = |scores: Tensor<B, 3>, _| {
            kept.extend(keep.then(|| scores.clone()));
            descended(scores)
        };
        let (scores, count) = counted(&device, || (0..4).fold(first, step));
        (count.donated, scores.into_data().to_vec::<f32>().expect("f32 data"))
    });
    assert_eq!((donated, none), (4, 0));
    assert_eq!(found, expected);
}

/// The next step is recorded while this one runs: a dispatch waits neither for its program nor for the release of donated
/// buffers.
#[test]
fn dispatching_a_step_does_not_wait_for_it() {
    let Some(device) = common::device() else { return };
    let _alone = alone();
    let side = 768;
    let square = || Tensor::<B, 2>::from_data(TensorData::new(vec![1e-3f32; side * side], [side, side]), &device);
    let (mut x, w) = (square(), square());
    let mut step = |seen: &mut Vec<Metrics>| {
        let product = (0..24).fold(x.clone(), |y, _| y.matmul(w.clone()));
        x = x.clone() + product;
        mark_step(&device);
        seen.push(metrics(&device));
        B::sync(&device).expect("it runs");
        seen.push(metrics(&device));
    };
    // The first step compiles.
    step(&mut vec![]);
    let mut seen = vec![metrics(&device)];
    step(&mut seen);
    let donated = seen[1].donated_bytes - seen[0].donated_bytes;
    assert_eq!((donated, seen[1].alias_bytes - seen[0].alias_bytes), (4 * (side * side) as u64, donated));
    let dispatched = seen[1].dispatch_time() - seen[0].dispatch_time();
    let waited = seen[2].wait_time() - seen[1].wait_time();
    assert!(waited > dispatched, "{dispatched:?} until it was dispatched, {waited:?} until it completed");
}

/// Another thread's read runs the first part of a trace; the rest still needs the buffers that this part read.
#[test]
fn another_threads_read_donates_nothing_that_the_rest_needs() {
    let Some(device) = common::device() else { return };
    let _alone = alone();
    let x = filled(&device, 3.0);
    let early = x.clone() + 1.0;
    // After this the last handle of `x` is dropped: only the trace keeps its buffer alive.
    let rest = early.clone() * x;
    let (read, count) = counted(&device, || std::thread::spawn(move || value(early)).join().expect("it reads"));
    assert_eq!((read, count.donated), (4.0, 0));
    assert_eq!(value(rest), 12.0);
}

/// XLA's CPU compiler gives larger products to XNNPACK, which packs a weight once for each address. A weight that is
/// updated in place has the same address at every step.
#[test]
fn a_weight_that_is_updated_in_place_is_read_anew_at_every_step() {
    let Some(device) = common::device() else { return };
    let _alone = common::alone();
    let losses = |device: &TpuDevice| {
        type B = Tpu<f32>;
        let ramp = |rows: usize, columns: usize, scale: f32| {
            let values: Vec<f32> = (0..rows * columns).map(|i| (i % 13) as f32 * scale).collect();
            Tensor::<B, 2>::from_data(TensorData::new(values, [rows, columns]), device)
        };
        let (x, mut weight) = (ramp(128, 768, 0.01), ramp(768, 192, 0.02));
        let step = |_| {
            let loss = x.clone().matmul(weight.clone()).mean();
            weight = weight.clone() * 0.5;
            device.mark_step();
            loss.into_scalar()
        };
        (0..6).map(step).collect::<Vec<f32>>()
    };
    let losses = losses(&device);
    for (step, loss) in losses.iter().enumerate() {
        let expected = losses[0] * 0.5f32.powi(step as i32);
        assert!((loss - expected).abs() < 1e-3 * expected, "step {step}: {losses:?}");
    }
}
