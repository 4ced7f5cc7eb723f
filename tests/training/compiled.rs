//! Compiled functions: recorded once for each signature, called without recording, refused when they are not pure.

use crate::common;

use burn::backend::Autodiff;
use burn::module::Module;
use burn::nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig};
use burn::tensor::backend::Backend;
use burn::tensor::{Bool, Distribution, Int, Tensor, TensorData, activation::gelu};
use burn_tpu::{Tpu, TpuDevice, TpuError, compile};
use common::{alone, counted};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

type B = Tpu<f32>;
type Matrix = Tensor<B, 2>;

fn numbers(device: &TpuDevice, rows: usize, columns: usize) -> Matrix {
    let values: Vec<f32> = (0..rows * columns).map(|i| (i % 7) as f32 * 0.25 - 0.5).collect();
    Tensor::from_data(TensorData::new(values, [rows, columns]), device)
}

fn values<const D: usize>(tensor: Tensor<B, D>) -> Vec<f32> {
    tensor.into_data().to_vec().expect("f32")
}

/// A model with parameters, a plain tensor, and a number.
#[derive(Module, Debug)]
struct Model<B: Backend> {
    layers: Vec<Linear<B>>,
    scale: Tensor<B, 1>,
    output: Option<Linear<B>>,
    power: usize,
}

impl<B: Backend> Model<B> {
    fn new(device: &B::Device) -> Self {
        Self {
            layers: (0..2).map(|_| LinearConfig::new(4, 4).init(device)).collect(),
            scale: Tensor::from_floats([0.5, 1.0, 1.5, 2.0], device),
            output: Some(LinearConfig::new(4, 3).init(device)),
            power: 2,
        }
    }

    fn forward(&self, x: Tensor<B, 2>) -> Tensor<B, 2> {
        let x = self.layers.iter().fold(x, |x, layer| gelu(layer.forward(x)));
        let x = (x * self.scale.clone().unsqueeze()).powf_scalar(self.power as f32);
        self.output.as_ref().map_or(x.clone(), |output| output.forward(x))
    }
}

#[test]
fn a_function_is_recorded_twice_and_compiled_once_for_each_signature() {
    let Some(device) = common::device() else { return };
    let _alone = alone();
    let recordings = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&recordings);
    let function = compile(move |(x, y): (Matrix, Matrix)| {
        count.fetch_add(1, SeqCst);
        x.matmul(y).exp()
    });
    let call = || values(function.call((numbers(&device, 2, 3), numbers(&device, 3, 5))).expect("pure"));
    let (results, counted) = counted(&device, || [call(), call(), call()]);
    let expected = values(numbers(&device, 2, 3).matmul(numbers(&device, 3, 5)).exp());
    assert!(results.iter().all(|result| *result == expected), "{results:?}");
    // Twice at first, and once to check at the second call.
    assert_eq!((recordings.load(SeqCst), counted.compiles, counted.executions), (3, 1, 3), "{counted:?}");
    function.call((numbers(&device, 4, 3), numbers(&device, 3, 5))).expect("pure");
    assert_eq!(recordings.load(SeqCst), 5, "another shape");
}

#[test]
fn arguments_and_results_are_anything_that_is_a_module() {
    let Some(device) = common::device() else { return };
    let _alone = alone();
    let model = Model::<B>::new(&device);
    let x = numbers(&device, 2, 4);
    let expected = values(model.forward(x.clone()));
    type State = (Model<B>, Vec<Matrix>, Option<Tensor<B, 1, Int>>, [Tensor<B, 2, Bool>; 1]);
    let function = compile(|(model, mut seen, position, [mask]): State| {
        let x = seen[0].clone();
        let y = model.forward(x.clone()).mask_fill(mask.clone(), 9.0);
        seen.push(y);
        (model, seen, position.map(|position| position + 3), [mask.bool_not()])
    });
    let mask =
        Tensor::<B, 2, Bool>::from_bool(TensorData::from([[true, false, false], [false, false, false]]), &device);
    let arguments = (model, vec![x.clone()], Some(Tensor::from_ints([4], &device)), [mask]);
    let (model, seen, position, [mask]) = function.call(arguments).expect("pure");
    let result = values(seen[1].clone());
    assert_eq!((result[0], &result[1..]), (9.0, &expected[1..]));
    assert_eq!(position.expect("some").into_scalar(), 7);
    assert_eq!(mask.into_data().to_vec::<bool>().expect("bool").iter().filter(|set| **set).count(), 5);
    assert_eq!(values(model.forward(x)), expected, "the model came back");
}

#[test]
fn a_number_in_the_argument_is_a_part_of_the_signature() {
    let Some(device) = common::device() else { return };
    let _alone = alone();
    let power = compile(|(x, power): (Matrix, usize)| x.powf_scalar(power as f32));
    let x = numbers(&device, 1, 3).add_scalar(2.0);
    for exponent in [1, 3, 1, 2] {
        let expected = values(x.clone().powf_scalar(exponent as f32));
        assert_eq!(values(power.call((x.clone(), exponent)).expect("pure")), expected, "{exponent}");
    }
    let split =
        compile(|(a, b): (Vec<Matrix>, Vec<Matrix>)| Tensor::cat(a, 0).sum_dim(0) - Tensor::cat(b, 0).sum_dim(0));
    let [one, two] = [1.0, 2.0].map(|value| Matrix::full([1, 1], value, &device));
    let few = (vec![one.clone()], vec![one.clone(), two.clone()]);
    let many = (vec![one.clone(), one], vec![two]);
    assert_eq!(values(split.call(few).expect("pure")), [-2.0]);
    assert_eq!(values(split.call(many).expect("pure")), [0.0]);
}

#[test]
fn state_that_goes_through_a_function_is_donated() {
    let Some(device) = common::device() else { return };
    let _alone = alone();
    let step = compile(|(state, change): (Matrix, Matrix)| (state + change.clone(), change));
    let change = numbers(&device, 64, 64);
    let mut state = step.call((numbers(&device, 64, 64), change.clone())).expect("pure").0;
    let before = device.metrics();
    for _ in 0..5 {
        state = step.call((state, change.clone())).expect("pure").0;
    }
    let after = device.metrics();
    assert_eq!(after.donated_buffers - before.donated_buffers, 5, "the state, and never the change");
    assert_eq!(after.function_calls - before.function_calls, 5);
    assert_eq!(after.compiles, before.compiles);
    let expected: Vec<f32> = values(change).into_iter().map(|value| value * 7.0).collect();
    assert_eq!(values(state), expected);
}

#[test]
fn every_call_has_random_numbers_of_its_own_those_of_the_function() {
    let Some(device) = common::device() else { return };
    let _alone = alone();
    let noisy = |x: Matrix| {
        let noise = Tensor::random_like(&x, Distribution::Normal(0.0, 1.0));
        let kept = Tensor::random_like(&x, Distribution::Bernoulli(0.5));
        x * kept + noise
    };
    let function = compile(noisy);
    B::seed(&device, 42);
    let call = || values(function.call(numbers(&device, 3, 4)).expect("pure"));
    let (results, counted) = counted(&device, || [call(), call(), call(), call(), call()]);
    assert_eq!(counted.compiles, 1, "{counted:?}");
    B::seed(&device, 42);
    assert_eq!(results, [(); 5].map(|()| values(noisy(numbers(&device, 3, 4)))));
    assert_ne!(results[0], results[1]);
}

/// Returns the message of the refusal of a function, by its third call at the latest.
fn refusal(device: &TpuDevice, function: impl Fn(Matrix) -> Matrix + Send + 'static) -> String {
    let function = compile(function);
    let error = (0..3).find_map(|_| function.call(numbers(device, 2, 2)).err()).expect("refused");
    assert!(matches!(error, TpuError::Impure { .. }), "{error}");
    error.to_string()
}

#[test]
fn a_function_that_is_not_the_same_twice_is_refused_with_op_and_line() {
    let Some(device) = common::device() else { return };
    let _alone = alone();
    let calls = Arc::new(AtomicUsize::new(0));
    let scalar = refusal(&device, move |x| x.exp() * calls.fetch_add(1, SeqCst) as f32);
    assert!(scalar.contains("a number that changes") && scalar.contains("float_mul_scalar"), "{scalar}");
    assert!(scalar.contains("tests/training/compiled.rs:"), "{scalar}");

    let calls = Arc::new(AtomicUsize::new(0));
    let op = refusal(&device, move |x| if calls.fetch_add(1, SeqCst) == 1 { x.exp().sin() } else { x.exp().cos() });
    assert!(op.contains("another op") && op.contains("tests/training/compiled.rs:"), "{op}");

    let outside = device;
    let tensor = refusal(&device, move |x| x + another(&outside));
    assert!(tensor.contains("a tensor that changes") && tensor.contains("tests/training/compiled.rs:"), "{tensor}");
}

/// Returns a tensor that another thread records, a new one each time.
fn another(device: &TpuDevice) -> Matrix {
    let device = *device;
    std::thread::spawn(move || numbers(&device, 2, 2).sin()).join().expect("no panic")
}

#[test]
fn a_function_that_reads_or_ends_a_step_is_refused() {
    let Some(device) = common::device() else { return };
    let _alone = alone();
    let read = refusal(&device, |x| {
        let sum = x.clone().sum();
        if sum.try_into_data().is_ok() { x } else { x + 1.0 }
    });
    assert!(read.contains("it reads a value") && read.contains("tests/training/compiled.rs:"), "{read}");
    let unwrapped = refusal(&device, |x| x.clone() * x.sum().into_scalar());
    assert!(unwrapped.contains("it reads a value"), "{unwrapped}");
    let argument = refusal(&device, |x| if x.clone().try_into_data().is_ok() { x } else { x + 1.0 });
    assert!(argument.contains("the value of an argument"), "{argument}");
    let here = device;
    let step = refusal(&device, move |x| {
        let y = x + 1.0;
        here.mark_step();
        y
    });
    assert!(step.contains("it ends a step"), "{step}");
    let thread = refusal(&device, |x| {
        let y = x + 1.0;
        std::thread::spawn(move || y.sin()).join().expect("no panic")
    });
    assert!(thread.contains("another thread"), "{thread}");
    // What came before and after is as it was.
    assert_eq!(values(numbers(&device, 1, 2) + 1.0), [0.5, 0.75]);
}

#[test]
fn a_number_that_changes_later_is_found_by_a_check() {
    let Some(device) = common::device() else { return };
    let _alone = alone();
    let rate = Arc::new(AtomicUsize::new(1));
    let inside = Arc::clone(&rate);
    let function = compile(move |x: Matrix| x * inside.load(SeqCst) as f32);
    for _ in 0..5 {
        function.call(numbers(&device, 2, 2)).expect("nothing changed");
    }
    rate.store(2, SeqCst);
    let errors: Vec<bool> = (6..=8).map(|_| function.call(numbers(&device, 2, 2)).is_err()).collect();
    assert_eq!(errors, [false, false, true], "the eighth call checks");
}

#[test]
fn a_panic_of_the_function_is_the_callers_and_harms_nothing() {
    let Some(device) = common::device() else { return };
    let _alone = alone();
    let function = compile(|(x, y): (Matrix, Matrix)| x.matmul(y));
    let call = || function.call((numbers(&device, 2, 3), numbers(&device, 2, 3)));
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(call));
    assert!(panic.is_err());
    assert!(function.call((numbers(&device, 2, 3), numbers(&device, 3, 2))).is_ok());
}

#[test]
fn a_captured_model_is_held_and_autodiff_works_inside() {
    let Some(device) = common::device() else { return };
    let _alone = alone();
    let model = Model::<B>::new(&device);
    let x = numbers(&device, 2, 4);
    // A clone of a model whose parameters Burn has not initialised yet would initialise its own.
    let _initialised = values(model.forward(x.clone()));
    let gradient = |model: &Model<B>, x: Matrix| {
        let x = Tensor::<Autodiff<B>, 2>::from_inner(x).require_grad();
        let model = burn::module::AutodiffModule::<Autodiff<B>>::from_inner(model.clone());
        let model: Model<Autodiff<B>> = model;
        let gradients = model.forward(x.clone()).sum().backward();
        x.grad(&gradients).expect("a gradient")
    };
    let expected = values(gradient(&model, x.clone()));
    let function = compile(move |x: Matrix| gradient(&model, x));
    for _ in 0..2 {
        assert_eq!(values(function.call(x.clone()).expect("pure")), expected);
    }
}

#[test]
fn the_running_statistics_of_a_model_are_left_alone() {
    let Some(device) = common::device() else { return };
    let _alone = alone();
    let norm: BatchNorm<B> = BatchNormConfig::new(3).init(&device);
    let x = numbers(&device, 4, 3);
    let expected = values(norm.forward(x.clone()));
    let function = compile(|(norm, x): (BatchNorm<B>, Matrix)| norm.forward(x));
    for _ in 0..2 {
        assert_eq!(values(function.call((norm.clone(), x.clone())).expect("pure")), expected);
        assert_eq!(values(norm.forward(x.clone())), expected);
    }
}

#[test]
fn a_call_inside_a_function_is_a_part_of_it() {
    let Some(device) = common::device() else { return };
    let _alone = alone();
    let inner = compile(|x: Matrix| x.exp());
    let outer = compile(move |x: Matrix| inner.call(x).expect("recorded") + 1.0);
    let (result, counted) = counted(&device, || values(outer.call(numbers(&device, 1, 3)).expect("pure")));
    assert_eq!(result, values(numbers(&device, 1, 3).exp() + 1.0));
    assert_eq!((counted.compiles, counted.executions), (1, 1), "{counted:?}");
}

#[test]
fn a_frozen_device_runs_what_it_knows_and_refuses_what_is_new() {
    let Some(device) = common::device() else { return };
    let _alone = alone();
    let function = compile(|x: Matrix| x.tanh().sum_dim(1));
    function.call(numbers(&device, 2, 9)).expect("compiled");
    device.freeze();
    let known = function.call(numbers(&device, 2, 9));
    let new = function.call(numbers(&device, 3, 9));
    device.unfreeze();
    assert!(known.is_ok());
    assert!(matches!(new, Err(TpuError::Frozen { .. })), "{new:?}");
    assert!(function.call(numbers(&device, 3, 9)).is_ok());
}

#[test]
fn results_that_are_not_computed_come_back() {
    let Some(device) = common::device() else { return };
    let _alone = alone();
    let constant = numbers(&device, 1, 2);
    let function = compile(move |x: Matrix| (x.clone(), constant.clone(), x));
    for _ in 0..2 {
        let (a, constant, b) = function.call(numbers(&device, 1, 3)).expect("pure");
        assert_eq!(values(a), values(b));
        assert_eq!(values(constant), values(numbers(&device, 1, 2)));
    }
}
