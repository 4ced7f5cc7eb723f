//! Recompiles are explained: cause, op, line, old and new value. A frozen device refuses them with the same words.

use crate::common;

use burn::module::{Module, Param};
use burn::record::{BinBytesRecorder, FullPrecisionSettings, Recorder};
use burn::tensor::backend::Backend;
use burn::tensor::{Bool, Int, Tensor, TensorData};
use burn_flex::Flex;
use burn_tpu::{Buckets, Recompile, RecompileCause, Tpu, TpuDevice, TpuOptions, freeze, mark_step, metrics, unfreeze};
use common::{alone, counted};

type B = Tpu<f32>;

fn matrix(device: &TpuDevice, dims: [usize; 2]) -> Tensor<B, 2> {
    let values: Vec<f32> = (0..dims[0] * dims[1]).map(|i| i as f32).collect();
    Tensor::from_data(TensorData::new(values, dims), device)
}

/// Returns the recompiles that `work` causes, starting with an empty cache.
fn recompiles(device: &TpuDevice, work: impl FnOnce()) -> Vec<Recompile> {
    let before = metrics(device).recompiles.len();
    work();
    let found = metrics(device).recompiles.split_off(before);
    assert!(found.iter().all(|found| !found.op.is_empty()), "{found:?}");
    found
}

/// A step of ten ops, some of which can be changed.
struct Step {
    dims: [usize; 2],
    axis: usize,
    extra: bool,
    keep: bool,
    at: usize,
}

const STEP: Step = Step { dims: [4, 4], axis: 0, extra: false, keep: false, at: 0 };

impl Step {
    /// The tests look for the line of each part.
    fn run(&self, device: &TpuDevice) -> Vec<f32> {
        let x = matrix(device, self.dims);
        let hidden = (x.clone().matmul(matrix(device, [4, 4])) * 2.0).tanh();
        let hidden = if self.extra { hidden.sin() } else { hidden };
        let kept = self.keep.then(|| hidden.clone());
        let sums = (hidden + 1.0).sum_dim(self.axis).exp().log();
        let row = (x * 0.5).slice([self.at..self.at + 1, 0..4]).sum();
        let result = (sums.mean() + row).abs();
        mark_step(device);
        drop(kept);
        result.into_data().to_vec().expect("f32")
    }
}

fn assert_one(found: &[Recompile], cause: RecompileCause, op: &str, text: [&str; 2]) {
    let [only] = found else { panic!("{found:?}") };
    assert_eq!((only.cause, only.op), (cause, op), "{only}");
    let location = only.location.as_deref().unwrap_or_default();
    assert!(location.contains("tests/recording/recompiles.rs:"), "{only:?}");
    assert!(only.old.contains(text[0]) && only.new.contains(text[1]), "{only}");
    assert!(only.seconds > 0.0 && only.nodes > 10);
}

#[test]
fn each_cause_names_op_line_old_and_new() {
    // No other test uses this device: no program in its cache resembles those that run here.
    let device = common::interpreter_with("causes", TpuOptions::development());
    let _alone = alone();
    let first = recompiles(&device, || drop(STEP.run(&device)));
    assert_eq!(first, [], "the first program is no recompile");
    assert_eq!(recompiles(&device, || drop(STEP.run(&device))), []);
    let cases = [
        (Step { dims: [6, 4], ..STEP }, RecompileCause::Shape, "matmul", ["f32[4,4]", "f32[6,4]"]),
        (Step { axis: 1, ..STEP }, RecompileCause::StructuralConstant, "sum_dim", ["dims = [0]", "dims = [1]"]),
        (Step { extra: true, ..STEP }, RecompileCause::NewOp, "sin", ["", "sine"]),
        (Step { keep: true, ..STEP }, RecompileCause::LiveSet, "tanh", ["results", "results, among them"]),
        (Step { at: 2, ..STEP }, RecompileCause::Offset, "slice", ["0", "2"]),
    ];
    for (step, cause, op, text) in cases {
        STEP.run(&device);
        let found = recompiles(&device, || drop(step.run(&device)));
        let op = found.first().map(|found| found.op).filter(|found| found.ends_with(op)).unwrap_or(op);
        assert_one(&found, cause, op, text);
        assert_eq!(recompiles(&device, || drop(step.run(&device))), [], "once");
    }
    B::memory_cleanup(&device);
    let evicted = recompiles(&device, || drop(STEP.run(&device)));
    assert_eq!(evicted.iter().map(|r| r.cause).collect::<Vec<_>>(), [RecompileCause::Evicted], "{evicted:?}");
    let report = metrics(&device).to_string();
    assert!(report.contains("recompile: shape at") && report.contains("f32[4,4] -> f32[6,4]"), "{report}");
}

/// The line is that of the op, not of the step's end or of a neighbouring op.
#[test]
fn the_location_is_the_line_of_the_op() {
    let Some(device) = common::cpu() else { return };
    let _alone = alone();
    let run = |power: bool| {
        let x = matrix(&device, [3, 5]);
        let hidden = x.exp().log().abs().sqrt();
        let line = line!() + 1;
        let hidden = if power { hidden.cos() } else { hidden.sin() };
        drop((hidden * 2.0).into_data());
        line
    };
    run(false);
    run(false);
    let mut line = 0;
    let found = recompiles(&device, || line = run(true));
    assert_one_line(&found, line);
}

fn assert_one_line(found: &[Recompile], line: u32) {
    let [only] = found else { panic!("{found:?}") };
    let location = only.location.as_deref().unwrap_or_default();
    assert!(location.contains(&format!("tests/recording/recompiles.rs:{line} in ")), "line {line}, but {only}");
}

#[test]
fn dtypes_are_distinguished() {
    let Some(device) = common::cpu() else { return };
    let _alone = alone();
    let sum = |wide: bool| {
        let x = Tensor::<B, 1, Int>::from_data([1, 2, 3], &device);
        let x = if wide { x.cast(burn::tensor::IntDType::I64) } else { x };
        mark_step(&device);
        drop(((x + 1) * 3).sum().into_data());
    };
    sum(false);
    let found = recompiles(&device, || sum(true));
    let causes: Vec<_> = found.iter().map(|found| found.cause).collect();
    assert!(causes.contains(&RecompileCause::DType), "{found:?}");
}

/// The thread that uses a batch runs what the loader's thread has recorded. The line is the loader's.
/// A weight that a record holds.
#[derive(Module, Debug)]
struct Weighted<B: Backend> {
    weight: Param<Tensor<B, 2>>,
}

/// The derive's functions have the line of the derive, which is no line that loads.
#[test]
fn the_line_of_a_derive_is_no_users_line() {
    let device = common::interpreter_with("derive", TpuOptions::development());
    let _alone = alone();
    let recorder = BinBytesRecorder::<FullPrecisionSettings>::default();
    let host = Default::default();
    let line = std::cell::Cell::new(0);
    let step = |columns: usize| {
        let weight = Param::from_tensor(Tensor::<Flex, 2>::ones([64, columns], &host));
        let bytes = recorder.record(Weighted { weight }.into_record(), ()).unwrap();
        let model = Weighted { weight: Param::from_tensor(Tensor::<B, 2>::zeros([64, columns], &device)) };
        line.set(line!() + 1);
        let record = recorder.load(bytes, &device).unwrap();
        let model = model.load_record(record);
        let y = matrix(&device, [4, 64]).matmul(model.weight.val()).tanh().sum_dim(1).exp().log().abs().sum();
        mark_step(&device);
        drop(y);
    };
    step(32);
    let found = recompiles(&device, || step(48));
    let expected = format!("first uploaded at tests/recording/recompiles.rs:{} in ", line.get());
    assert!(found[0].to_string().contains(&expected), "{expected}: {found:?}");
}

#[test]
fn the_location_is_in_the_thread_that_recorded() {
    let Some(device) = common::cpu() else { return };
    let _alone = alone();
    let mut line = 0;
    let mut batch = |rows: usize| {
        let loader = move || {
            let x = matrix(&device, [3, 5]).cosh().cosh().cosh().cosh();
            (x.repeat(&[rows, 1]).cosh().cosh(), line!())
        };
        // Each epoch has a new thread.
        let loaded = std::thread::Builder::new().name("loader".into()).spawn(loader).expect("a thread");
        let (batch, at) = loaded.join().expect("no panic");
        line = at;
        batch
    };
    let mut step = |rows| {
        let batch = batch(rows);
        drop((batch * 2.0).abs().into_data());
    };
    step(1);
    step(1);
    let found = recompiles(&device, || step(2));
    let loaded = found.iter().find(|found| found.nodes > 6).expect("the loader's program");
    let location = loaded.location.as_deref().unwrap_or_default();
    assert!(location.contains(&format!("tests/recording/recompiles.rs:{line} in ")), "line {line}, but {found:?}");
}

/// The refused program is an error of its own tensors alone: its arguments, and later programs, are not affected.
#[test]
fn a_frozen_device_refuses_to_compile_explains_why_and_stays_usable() {
    let Some(device) = common::cpu() else { return };
    let _alone = alone();
    let step = |x: &Tensor<B, 2>| (x.clone().exp() + 1.0).log().sum();
    let (x, larger) = (matrix(&device, [2, 2]), matrix(&device, [3, 2]));
    let known = step(&x).into_scalar();
    freeze(&device);
    for _ in 0..2 {
        let error = step(&larger).try_into_data().expect_err("frozen").to_string();
        for part in ["is frozen", "shape at", "f32[2,2] -> f32[3,2]", "tests/recording/recompiles.rs", "unfreeze"] {
            assert!(error.contains(part), "{error:?} lacks {part:?}");
        }
        assert_eq!(step(&x).into_scalar(), known, "known programs still run");
    }
    unfreeze(&device);
    assert!(step(&larger).into_scalar().is_finite());
}

/// Compile options belong to a device, and a program belongs to its device's cache: another device with other options
/// compiles its own program, and its failure does not affect the first device.
#[test]
fn options_of_one_device_do_not_reach_another() {
    let Some(device) = common::cpu() else { return };
    let _alone = alone();
    let wrong = TpuOptions::training().interpret_from(0).compiler_flag("xla_no_such_flag", "1");
    let Some(other) = common::cpu_with("a wrong flag", wrong) else { return };
    let run = |device: &TpuDevice| (matrix(device, [2, 2]) * 3.0).try_into_data();
    assert!(run(&device).is_ok());
    let error = run(&other).expect_err("the flag does not exist").to_string();
    assert!(error.contains("xla_no_such_flag"), "{error}");
    assert!(run(&device).is_ok(), "the error of one device does not affect the other");
}

/// A masked mean of embeddings, as at the start of a classifier of sentences.
#[test]
fn fifty_lengths_compile_once_per_bucket() {
    let Some(device) = common::cpu() else { return };
    let _alone = alone();
    let buckets = Buckets::new([8, 16, 32, 50]).expect("sizes");
    let table = Tensor::<B, 2>::from_data(TensorData::new((0..20).map(|i| i as f32).collect(), [10, 2]), &device);
    let mean = |length: usize| {
        let tokens: Vec<i32> = (0..length as i32).map(|i| i % 10).collect();
        let (tokens, mask) = buckets.pad(TensorData::new(tokens, [length]), 0, 0).expect("it fits");
        let rows = table.clone().select(0, Tensor::<B, 1, Int>::from_data(tokens, &device));
        let weights = Tensor::<B, 1, Bool>::from_data(mask, &device).float().reshape([-1, 1]);
        let mean = (rows * weights.clone()).sum_dim(0) / weights.sum_dim(0);
        mean.into_data().to_vec::<f32>().expect("f32")
    };
    let (means, count) = counted(&device, || (1..=50).map(mean).collect::<Vec<_>>());
    assert_eq!(count.compiles, 4, "one per bucket");
    for (length, found) in (1..=50).zip(means) {
        let expected = (0..length).map(|i| (2 * (i % 10)) as f32).sum::<f32>() / length as f32;
        assert!((found[0] - expected).abs() < 1e-4 && (found[1] - expected - 1.0).abs() < 1e-4, "{length}: {found:?}");
    }
    let causes: Vec<_> = metrics(&device).recompiles.iter().rev().take(3).map(|found| found.cause).collect();
    assert_eq!(causes, [RecompileCause::Shape; 3], "each further bucket is explained");
}

/// Computes a CTC loss over `steps` steps, and its gradient.
fn speech(device: &TpuDevice, steps: usize) {
    type D = burn::backend::Autodiff<B>;
    let scores = Tensor::<D, 3>::zeros([steps, 1, 3], device).require_grad();
    let log_probs = burn::tensor::activation::log_softmax(scores.clone(), 2);
    let length = |length: usize| Tensor::from_data([length as i32], device);
    let targets = Tensor::from_data([[1, 2]], device);
    let loss = burn::tensor::module::ctc_loss(log_probs, targets, length(steps), length(2), 0);
    let gradients = loss.backward();
    drop(scores.grad(&gradients).expect("a gradient").into_data());
}

#[test]
fn the_nodes_of_a_loop_over_time_do_not_depend_on_its_steps() {
    let device = common::interpreter_with("speech", TpuOptions::development());
    let _alone = alone();
    speech(&device, 4);
    let [few, many] = [5, 300].map(|steps| recompiles(&device, || speech(&device, steps)));
    let ([few], [many]) = (&few[..], &many[..]) else { panic!("{few:?} {many:?}") };
    assert_eq!((few.cause, many.cause), (RecompileCause::Shape, RecompileCause::Shape));
    assert!(few.nodes == many.nodes && few.nodes < 200, "{few} {many}");
}
