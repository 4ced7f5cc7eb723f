//! `check_numerics`: the op and the line that made the first NaN or infinity, in every part of a step and wherever it runs.

use crate::common;

use burn::backend::Autodiff;
use burn::module::{Module, Param};
use burn::nn::LinearConfig;
use burn::optim::{AdamConfig, GradientsParams, Optimizer};
use burn::tensor::backend::Backend;
use burn::tensor::{Bool, Tensor, TensorData, activation::softmax};
use burn_tpu::{
    DeviceAdamW, Mesh, NonFinite, NonFiniteOp, NotFinite, Platform, StepPart, Stream, Tpu, TpuDevice, TpuError,
    TpuOptimizer, TpuOptions, compile, compile_step, program_keys,
};
use common::alone;

type B = Tpu<f32>;
type A = Autodiff<B>;

/// Returns the options under test, for programs that are compiled at once.
fn options() -> TpuOptions {
    TpuOptions::training().cpu_devices(common::CPU_DEVICES).disk_cache(false).interpret_from(0).check_numerics(true)
}

/// Returns a device that checks numbers, with nothing left to report.
fn checked() -> Option<TpuDevice> {
    let device = common::cpu_with("checked", options())?;
    let _earlier = device.sync();
    Some(device)
}

fn tensor<const D: usize>(values: &[f32], dims: [usize; D], device: &TpuDevice) -> Tensor<B, D> {
    Tensor::from_data(TensorData::new(values.to_vec(), dims), device)
}

/// Returns what the next sync reports.
fn reported(device: &TpuDevice) -> NotFinite {
    match device.sync() {
        Err(TpuError::NotFinite(found)) => *found,
        other => panic!("not reported: {other:?}"),
    }
}

/// Returns the op that is blamed.
fn op(found: &NotFinite) -> &NonFiniteOp {
    found.op.as_ref().unwrap_or_else(|| panic!("no op: {found}"))
}

#[track_caller]
fn assert_at(op: &NonFiniteOp, name: &str, line: u32, part: StepPart) {
    let place = format!("tests/recording/check_numerics.rs:{line} ");
    assert_eq!((op.op.as_str(), op.part), (name, part), "{op}");
    assert!(op.line.starts_with(&place), "{:?} is not at {place:?}", op.line);
}

#[test]
fn a_nan_of_the_forward_pass() {
    let Some(device) = checked() else { return };
    let _alone = alone();
    let x = tensor(&[2.0, 1.0, -0.5, 3.0], [2, 2], &device);
    let (line, y) = (line!(), (x * 2.0).log());
    let z = y.exp() + 1.0;
    device.mark_step();
    let found = reported(&device);
    assert_eq!((found.value, found.infinity.is_some(), found.is_call), (NonFinite::Nan, false, false));
    assert_at(op(&found), "float_log", line, StepPart::Forward);
    assert_eq!(op(&found).computes, "stablehlo.log: f32[2,2] -> f32[2,2]");
    assert!(!op(&found).is_given);
    device.sync().expect("an error is reported once");
    // What is computed from what was reported is not reported again.
    let _later = z * 2.0;
    device.mark_step();
    device.sync().expect("the NaN is known");
}

#[test]
fn a_nan_out_of_an_infinity_names_both() {
    let Some(device) = checked() else { return };
    let _alone = alone();
    let x = tensor(&[1.0, 0.0, 2.0], [3], &device);
    let (first, inverse) = (line!(), x.recip());
    let (second, _nan) = (line!(), inverse.clone() - inverse);
    let found = reported(&device);
    assert_at(op(&found), "float_sub", second, StepPart::Forward);
    let infinity = found.infinity.as_ref().expect("the infinity");
    assert_at(infinity, "float_recip", first, StepPart::Forward);
    assert!(!infinity.is_given);
    let text = found.to_string();
    assert!(text.starts_with("float_sub made a NaN in step ") && text.contains("made by float_recip"), "{text}");
}

#[test]
fn an_infinity_alone() {
    let Some(device) = checked() else { return };
    let _alone = alone();
    let x = tensor(&[1.0, 200.0], [2], &device);
    let (line, y) = (line!(), x.exp());
    let error = y.try_into_data().expect_err("an infinity").to_string();
    let place = "float_exp made an infinity in step";
    assert!(error.contains(place) && error.contains(&format!("tests/recording/check_numerics.rs:{line} ")), "{error}");
}

#[test]
fn a_nan_of_the_gradient() {
    let Some(device) = checked() else { return };
    let _alone = alone();
    let x = Tensor::<A, 1>::from_inner(tensor(&[4.0, 0.0], [2], &device)).require_grad();
    let (forward, root) = (line!(), x.clone().sqrt());
    let loss = (root * tensor_of(&[1.0, 0.0], &device)).sum();
    let (backward, gradients) = (line!(), loss.backward());
    let _gradient = x.grad(&gradients).expect("a gradient");
    device.mark_step();
    let found = reported(&device);
    assert_eq!((op(&found).part, found.value), (StepPart::Backward, NonFinite::Nan), "{found}");
    assert!(op(&found).line.starts_with(&format!("tests/recording/check_numerics.rs:{backward} ")), "{found}");
    let infinity = found.infinity.as_ref().expect("1 / sqrt(0)");
    assert_eq!((infinity.part, infinity.gradient_of.as_deref()), (StepPart::Backward, Some("float_sqrt")), "{found}");
    assert_eq!(op(&found).gradient_of.as_deref(), Some("float_sqrt"), "{found}");
    assert_at(found.forward.as_ref().expect("an op of the forward pass"), "float_sqrt", forward, StepPart::Forward);
}

fn tensor_of(values: &[f32], device: &TpuDevice) -> Tensor<A, 1> {
    Tensor::from_inner(tensor(values, [values.len()], device))
}

#[derive(Module, Debug)]
struct Weight<B: Backend> {
    weight: Param<Tensor<B, 1>>,
}

impl Weight<A> {
    fn new(values: &[f32], device: &TpuDevice) -> Self {
        Self { weight: Param::from_tensor(tensor_of(values, device)) }
    }
}

#[test]
fn an_infinity_of_the_optimizer() {
    let Some(device) = checked() else { return };
    let _alone = alone();
    let mut model = Weight::new(&[1.0, 2.0], &device);
    let mut optimizer = TpuOptimizer::new(AdamConfig::new().init());
    for step in 0..3 {
        // A gradient of 1e30 is finite, its square is not.
        let scale = if step < 2 { 1.0 } else { 1e30 };
        let loss = (model.weight.val() * scale).sum();
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        let line = line!() + 1;
        model = optimizer.step(1e-3, model, gradients);
        if step < 2 {
            device.sync().expect("a good step");
            continue;
        }
        let found = reported(&device);
        assert_eq!((op(&found).part, found.value), (StepPart::Optimizer, NonFinite::Infinity), "{found}");
        assert_at(op(&found), "float_powi_scalar", line, StepPart::Optimizer);
        assert!(found.step >= 2, "{found}");
    }
}

/// Scores `[2, 4]` of which the last are masked.
fn masked(x: Tensor<B, 2>, device: &TpuDevice) -> (Tensor<B, 2>, Tensor<B, 2>) {
    let hidden = TensorData::from([[false, false, true, true], [false, true, true, true]]);
    let mask = Tensor::<B, 2, Bool>::from_data(hidden, device);
    let scores = x.mask_fill(mask, f32::NEG_INFINITY);
    (softmax(scores.clone(), 1), scores)
}

#[test]
fn masks_of_infinities_are_no_mistake() {
    let Some(device) = checked() else { return };
    let _alone = alone();
    let x = || tensor(&[0.5; 8], [2, 4], &device);
    let (weights, _) = masked(x(), &device);
    let sums = weights.sum_dim(1).into_data().to_vec::<f32>().expect("f32");
    assert_eq!(sums, [1.0, 1.0]);
    // Scores that stay alive are infinite results. The program runs again once, and from then on as often as any other.
    let runs = || {
        let before = device.metrics().executions;
        let (weights, _scores) = masked(x(), &device);
        device.mark_step();
        device.sync().expect("the infinities were given");
        drop(weights);
        device.metrics().executions - before
    };
    assert_eq!([runs(), runs(), runs()], [2, 1, 1]);
}

#[test]
fn a_mask_is_not_blamed_for_another_ops_nan() {
    let Some(device) = checked() else { return };
    let _alone = alone();
    let x = tensor(&[0.5, 1.0, -1.0, 2.0, 1.0, 1.0, 1.0, 1.0], [2, 4], &device);
    let (weights, scores) = masked(x.clone(), &device);
    let (line, root) = (line!(), x.sqrt());
    let _y = weights * root;
    device.mark_step();
    let found = reported(&device);
    assert_at(op(&found), "float_sqrt", line, StepPart::Forward);
    assert!(found.infinity.is_none(), "{found}");
    drop(scores);
    // A row in which everything is masked: the NaN comes from the mask, which says so.
    let all = Tensor::<B, 2, Bool>::from_data(TensorData::from([[true; 4]]), &device);
    let (filled, scores) = (line!(), tensor(&[1.0; 4], [1, 4], &device).mask_fill(all, f32::NEG_INFINITY));
    let (line, _weights) = (line!(), softmax(scores, 1));
    let found = reported(&device);
    assert!(op(&found).line.starts_with(&format!("tests/recording/check_numerics.rs:{line} ")), "{found}");
    let infinity = found.infinity.as_ref().expect("the mask");
    assert!(infinity.is_given, "{found}");
    assert!(infinity.line.starts_with(&format!("tests/recording/check_numerics.rs:{filled} ")), "{found}");
}

#[test]
fn a_nan_in_the_data_names_its_first_reader() {
    let Some(device) = checked() else { return };
    let _alone = alone();
    let x = tensor(&[1.0, f32::NAN], [2], &device);
    let (line, _y) = (line!(), x * 3.0);
    let found = reported(&device);
    assert_at(op(&found), "float_mul_scalar", line, StepPart::Forward);
    assert!(op(&found).is_given && found.to_string().contains("was given a NaN: float_mul_scalar"), "{found}");
}

/// Two places that record the same are told apart.
#[test]
fn equal_recordings_have_their_own_lines() {
    let Some(device) = checked() else { return };
    let _alone = alone();
    for _ in 0..2 {
        let (line, _y) = (line!(), tensor(&[-1.0; 7], [7], &device).log());
        assert_at(op(&reported(&device)), "float_log", line, StepPart::Forward);
        let (line, _y) = (line!(), tensor(&[-1.0; 7], [7], &device).log());
        assert_at(op(&reported(&device)), "float_log", line, StepPart::Forward);
    }
}

/// The ops after a seam, and those after another thread's read, are recorded again; their lines are the same.
#[test]
fn lines_survive_a_cut_in_the_middle() {
    let Some(device) = checked() else { return };
    let _alone = alone();
    let early = tensor(&[1.0, 2.0], [2], &device) + 1.0;
    let (line, late) = (line!(), tensor(&[-1.0; 3], [3], &device).log());
    let read = std::thread::spawn(move || early.into_data());
    read.join().expect("the early part is fine");
    assert_at(op(&reported(&device)), "float_log", line, StepPart::Forward);
    drop(late);
}

#[test]
fn another_threads_read_returns_the_error() {
    let Some(device) = checked() else { return };
    let _alone = alone();
    let (line, loss) = (line!(), (tensor(&[0.0; 2], [2], &device).log() * 0.0).sum());
    device.mark_step();
    let read = std::thread::spawn(move || loss.try_into_data().map(drop).map_err(|error| error.to_string()));
    let error = read.join().expect("no panic").expect_err("a NaN");
    assert!(error.contains("made a NaN") && error.contains(&format!("check_numerics.rs:{line} ")), "{error}");
}

#[test]
fn a_compiled_function_has_the_lines_of_its_recording() {
    let Some(device) = checked() else { return };
    let _alone = alone();
    let line = line!() + 1;
    let function = compile(|x: Tensor<B, 1>| (x.clone() + 1.0).log() * x);
    let good = || tensor(&[1.0, 2.0], [2], &device);
    for _ in 0..3 {
        function.call(good()).expect("a call");
        device.sync().expect("a good call");
    }
    function.call(tensor(&[-3.0, 2.0], [2], &device)).expect("a call");
    let found = reported(&device);
    assert_at(op(&found), "float_log", line, StepPart::Forward);
    assert!(found.is_call && found.step >= 3, "{found}");
    function.call(good()).expect("a call");
    device.sync().expect("a good call after a bad one");
}

#[test]
fn a_compiled_step_names_its_loss_gradient_and_optimizer() {
    let Some(device) = checked() else { return };
    let _alone = alone();
    let model = LinearConfig::new(2, 1).init::<A>(&device);
    model.num_params();
    let loss_line = line!() + 2;
    let mut training = compile_step(model, DeviceAdamW::new(), |model: &burn::nn::Linear<A>, x: Tensor<B, 2>| {
        let loss = model.forward(Tensor::from_inner(x.clone()).log()).mean();
        (loss.clone(), loss.inner())
    });
    let batch = |value: f32| tensor(&[1.0, value], [1, 2], &device);
    for _ in 0..2 {
        training.run(1e-3, batch(2.0)).expect("a step");
    }
    device.sync().expect("good steps");
    training.run(1e-3, batch(-2.0)).expect("it is dispatched");
    let found = reported(&device);
    assert_at(op(&found), "float_log", loss_line, StepPart::Forward);
    assert!(found.is_call, "{found}");
}

/// A good step is one program and one read of four bytes more; its arguments stay, and nothing is compiled.
#[test]
fn a_good_step_costs_one_flag() {
    let Some(device) = checked() else { return };
    let _alone = alone();
    let Some(plain) = common::cpu_with("unchecked", options().check_numerics(false)) else { return };
    let counts = |device: &TpuDevice| {
        let mut state = tensor(&[1.0; 64], [8, 8], device);
        let mut step = || {
            state = (state.clone() * 0.5 + 1.0).tanh();
            device.mark_step();
        };
        (0..3).for_each(|_| step());
        device.sync().expect("good");
        let before = device.metrics();
        (0..5).for_each(|_| step());
        device.sync().expect("good");
        let after = device.metrics();
        let recorded = after.recorded_nodes - before.recorded_nodes;
        let compiles = after.compiles - before.compiles;
        let counts = [after.executions - before.executions, after.uploads - before.uploads, compiles, recorded];
        let flags = [after.downloads - before.downloads, after.download_bytes - before.download_bytes];
        (counts, flags, after.donated_buffers - before.donated_buffers)
    };
    let (with, without) = (counts(&device), counts(&plain));
    assert_eq!(with.0, without.0, "executions, uploads, compiles, recorded nodes");
    assert_eq!((with.1, without.1), ([5, 20], [0, 0]), "a flag of each step");
    assert_eq!((with.2, without.2), (0, 5), "arguments are kept");
}

/// Arguments are kept for one step, and no longer.
#[test]
fn kept_arguments_are_freed_when_their_flag_was_read() {
    let Some(device) = checked() else { return };
    let _alone = alone();
    let alive = burn_tpu_pjrt::live_buffers;
    let mut state = tensor(&[1.0; 64], [64], &device) * 1.0;
    let mut most = 0;
    for _ in 0..10 {
        state = state * 0.5;
        device.mark_step();
        most = most.max(alive());
    }
    device.sync().expect("good");
    assert!(most <= alive() + 4, "{most} buffers at most, {} at the end", alive());
}

#[test]
fn the_interpreter_finds_ops_too() {
    let _alone = alone();
    let device = common::interpreter_with("checked", TpuOptions::training().check_numerics(true));
    let half = tensor(&[1.0, -1.0], [2], &device).cast(burn::tensor::DType::BF16);
    let (line, _y) = (line!(), half.sqrt());
    assert_at(op(&reported(&device)), "float_sqrt", line, StepPart::Forward);
    // A program that the device interprets instead of compiling it.
    let Some(device) = common::cpu_with("interpreted", options().interpret_from(1)) else { return };
    let (line, _y) = (line!(), tensor(&[1.0, -1.0], [2], &device).sqrt());
    assert_at(op(&reported(&device)), "float_sqrt", line, StepPart::Forward);
    assert_eq!((device.metrics().interpreted, device.metrics().compiles), (1, 0));
}

#[test]
fn a_mesh_finds_ops_too() {
    if checked().is_none() {
        return;
    }
    let _alone = alone();
    let device = TpuDevice::mesh(Mesh::new().axis("data", 2).on(Platform::Cpu));
    options().install(&device).ok();
    let x = tensor(&[1.0, 2.0, 3.0, -4.0], [4, 1], &device);
    let (line, _y) = (line!(), x.sqrt() + 1.0);
    assert_at(op(&reported(&device)), "float_sqrt", line, StepPart::Forward);
}

/// A stream of its own, a frozen device: the second program is compiled all the same.
#[test]
fn a_frozen_device_finds_the_op() {
    let Some(device) = checked() else { return };
    let _alone = alone();
    let step = |value: f32| {
        let (line, y) = (line!(), tensor(&[value; 5], [5], &device).sqrt());
        device.mark_step();
        (line, y)
    };
    Stream::new().run(|| {
        step(1.0);
        device.sync().expect("good");
        device.freeze();
        let (line, _y) = step(-1.0);
        let found = reported(&device);
        device.unfreeze();
        assert_at(op(&found), "float_sqrt", line, StepPart::Forward);
    });
}

#[test]
fn programs_are_the_same_without_the_option() {
    let Some(device) = checked() else { return };
    let _alone = alone();
    let Some(plain) = common::cpu_with("unchecked", options().check_numerics(false)) else { return };
    let keys = |device: &TpuDevice| {
        let before = program_keys(device);
        let _y = (tensor(&[1.0; 6], [6], device) + 2.0).into_data();
        program_keys(device).into_iter().find(|key| !before.contains(key)).expect("a new program")
    };
    assert_ne!(keys(&device), keys(&plain), "the flag is part of what the program is");
    let nan = tensor(&[-1.0; 6], [6], &plain).log().into_data();
    assert!(nan.to_vec::<f32>().expect("f32")[0].is_nan(), "nothing is reported");
}

/// Two places record the same after another thread's read has run the ops before: each has its own line.
#[test]
fn lines_after_a_read_by_another_thread() {
    let Some(device) = checked() else { return };
    let _alone = alone();
    let step = |last: fn(Tensor<B, 1>) -> Tensor<B, 1>| {
        let x = tensor(&[1.0], [1], &device);
        let mut early = x.clone();
        for _ in 0..10 {
            early = early + 1.0;
        }
        let late = (x - 2.0) * 3.0 - 1.0;
        std::thread::scope(|scope| scope.spawn(|| early.into_data()).join()).expect("it runs");
        let _nan = last(late);
        reported(&device)
    };
    let logarithm = step(|x| x.log());
    assert_at(op(&logarithm), "float_log", line!() - 1, StepPart::Forward);
    let same = step(|x| x.log());
    assert_at(op(&same), "float_log", line!() - 1, StepPart::Forward);
}
