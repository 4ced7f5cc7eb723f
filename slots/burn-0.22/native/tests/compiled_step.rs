//! `compile` and `compile_step` of Burn 0.22 and 0.23: the numbers of Burn's optimizer, no recording, state in place.
//! Without the CPU plugin it runs in the interpreter. Each test has a device of its own, for its counters.

use burn::module::{Module, Param, ParamId};
use burn::nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig};
use burn::optim::{AdamWConfig, GradientsParams};
use burn::prelude::*;
use burn::tensor::{FloatDType, TensorData, activation::tanh};
use burn_tpu::{
    CompiledStep, DeviceAdamW, LossScaling, Platform, TpuDevice, TpuError, TpuOptimizer, TpuOptions, compile,
    compile_step,
};
use burn_tpu_runtime::Device as RuntimeDevice;

/// Wide enough that the first matrix is too large to share a tensor with the other parameters.
const WIDTH: usize = 700;

/// Returns a device of a test, and Burn's name for it with autodiff.
fn device(index: u16, float: FloatDType) -> (TpuDevice, Device) {
    let tpu = match TpuDevice::default().platform() {
        Platform::NdArray => TpuDevice::from(RuntimeDevice::new(Platform::NdArray, index)),
        _ => TpuDevice::cpu(index),
    };
    let options = TpuOptions::training().strict(true).disk_cache(false).cpu_devices(9);
    options.install(&tpu).expect("the first use of the device");
    let mut device = Device::from(tpu);
    device.configure(float).expect("the first use of the device");
    (tpu, device.autodiff())
}

/// A model with running statistics and a layer that no loss uses.
#[derive(Module, Debug)]
struct Model {
    hidden: Linear,
    norm: BatchNorm,
    output: Linear,
    unused: Linear,
}

impl Model {
    fn new(device: &Device) -> Self {
        Self {
            hidden: LinearConfig::new(6, WIDTH).init(device),
            norm: BatchNormConfig::new(WIDTH).init(device),
            output: LinearConfig::new(WIDTH, 2).init(device),
            unused: LinearConfig::new(2, 2).init(device),
        }
    }

    fn loss(&self, x: Tensor<2>) -> Tensor<1> {
        let hidden = self.norm.forward(tanh(self.hidden.forward(x.clone())));
        (self.output.forward(hidden) - x.slice([0..8, 0..2])).powi_scalar(2).mean()
    }

    /// Returns a model of the same values, which shares no running statistics with this one.
    fn copied(&self) -> Self {
        self.valid().train()
    }
}

fn batch(step: usize, device: &Device) -> Tensor<2> {
    let values: Vec<f32> = (0..48).map(|i| ((i * 7 + step * 3) % 11) as f32 * 0.2 - 1.0).collect();
    Tensor::from_data(TensorData::new(values, [8, 6]), device)
}

const STEPS: usize = 6;

fn rate(step: usize) -> f64 {
    0.05 / (1.0 + step as f64)
}

fn compiled(model: Model, optimizer: DeviceAdamW) -> CompiledStep<Model, Tensor<2>, Tensor<1>> {
    compile_step(model, optimizer, |model: &Model, x| {
        let loss = model.loss(x);
        (loss.clone(), loss)
    })
}

/// Returns the losses of the recorded loop and its model.
fn recorded(mut model: Model, device: &Device) -> (Vec<f32>, Model) {
    let mut optimizer = TpuOptimizer::new(AdamWConfig::new().with_weight_decay(0.1).build());
    let losses = (0..STEPS).map(|step| {
        let loss = model.loss(batch(step, device));
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(rate(step), model.clone(), gradients);
        numbers(loss)[0]
    });
    (losses.collect(), model)
}

fn numbers<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().iter::<f32>().collect()
}

fn assert_near(ours: &[f32], theirs: &[f32], tolerance: f32) {
    let near = |(a, b): (&f32, &f32)| (a - b).abs() <= tolerance * b.abs().max(1e-2);
    assert!(ours.len() == theirs.len() && ours.iter().zip(theirs).all(near), "{ours:?}\n{theirs:?}");
}

fn trains_as_recorded(tpu: TpuDevice, device: &Device, tolerance: f32) {
    tpu.seed(7);
    let original = Model::new(device);
    let mut training = compiled(original.copied(), DeviceAdamW::new().with_weight_decay(0.1));
    let losses: Vec<f32> =
        (0..STEPS).map(|step| numbers(training.run(rate(step), batch(step, device)).expect("pure"))[0]).collect();
    let (expected, theirs) = recorded(original.copied(), device);
    assert_near(&losses, &expected, tolerance);
    let ours = training.into_model();
    assert_near(&numbers(ours.hidden.weight.val()), &numbers(theirs.hidden.weight.val()), 4.0 * tolerance);
    assert_eq!(numbers(ours.unused.weight.val()), numbers(original.unused.weight.val()), "it has no gradient");
    let statistics = |model: &Model| numbers(model.valid().norm.running_mean.value());
    assert_near(&statistics(&ours), &statistics(&theirs), 4.0 * tolerance);
    assert!(ours.hidden.weight.val().is_require_grad() && !statistics(&ours).iter().all(|&mean| mean == 0.0));
}

#[test]
fn a_compiled_step_trains_as_the_recorded_one_in_f32() {
    let (tpu, device) = device(0, FloatDType::F32);
    trains_as_recorded(tpu, &device, 1e-4);
}

#[test]
fn a_compiled_step_trains_as_the_recorded_one_with_master_weights() {
    let (tpu, device) = device(1, FloatDType::BF16);
    trains_as_recorded(tpu, &device, 0.05);
}

#[test]
fn a_step_is_one_execution_in_place_without_a_new_compile() {
    let (tpu, device) = device(2, FloatDType::F32);
    let mut training = compiled(Model::new(&device), DeviceAdamW::new());
    (0..2).for_each(|step| drop(training.run(rate(step), batch(step, &device)).expect("pure")));
    let held = batch(2, &device);
    let before = tpu.metrics();
    drop(training.run(rate(2), held.clone()).expect("pure"));
    let after = tpu.metrics();
    let runs = |metrics: &burn_tpu::Metrics| metrics.executions + metrics.interpreted;
    let counted = (after.compiles - before.compiles, runs(&after) - runs(&before));
    assert_eq!((counted, after.recorded_nodes - before.recorded_nodes), ((0, 1), 0));
    if tpu.platform() != Platform::NdArray {
        // Values and both moments of the large matrix and of the parameters that share tensors, the statistics, the
        // betas' powers.
        assert_eq!(after.donated_buffers - before.donated_buffers, 2 * 3 + 2 + 2);
    }
    drop(training.run(rate(2), held.clone()).expect("pure"));
    let again = tpu.metrics();
    assert_eq!(again.uploads - after.uploads, 0, "rate and batch are there");
    assert!(!numbers(training.model().output.weight.val()).is_empty());
}

#[test]
fn the_loss_scale_skips_a_step_that_is_not_finite() {
    let (_, device) = device(3, FloatDType::F32);
    let model = Model::new(&device);
    let before = numbers(model.output.weight.val());
    let scaling = LossScaling::new().with_first(1e36);
    let mut training = compiled(model, DeviceAdamW::new().with_loss_scaling(scaling));
    // A loss of about 1e8.
    drop(training.run(1e-2, batch(0, &device) * 1e4).expect("pure"));
    assert!(numbers(training.model().output.weight.val()) == before, "the weights changed");
    let scale = training.optimizer_state().into_iter().find(|(name, _)| name == "loss_scale");
    let scale = scale.expect("a scale").1.to_data().expect("it is computed").iter::<f32>().next();
    assert_eq!(scale, Some(0.5e36));
}

#[test]
fn a_step_goes_on_from_a_model_and_a_named_state() {
    let (_, device) = device(4, FloatDType::F32);
    let mut first = compiled(Model::new(&device), DeviceAdamW::new());
    let losses = |training: &mut CompiledStep<Model, Tensor<2>, Tensor<1>>| -> Vec<f32> {
        (0..3).map(|step| numbers(training.run(1e-2, batch(step, &device)).expect("pure"))[0]).collect()
    };
    losses(&mut first);
    let mut second = compiled(Model::new(&device), DeviceAdamW::new());
    second.load(&first.model(), first.optimizer_state());
    assert_eq!(losses(&mut first), losses(&mut second));
    assert!(first.optimizer_state().iter().any(|(name, _)| name == "hidden.weight.moment_1"));
}

/// A model that reads the columns that a table of integers chooses.
#[derive(Module, Debug)]
struct Chosen {
    columns: Param<Tensor<1, Int>>,
    output: Linear,
}

#[test]
fn integers_of_a_model_are_state_and_are_not_trained() {
    let (_, device) = device(8, FloatDType::F32);
    let output = LinearConfig::new(2, 2).init(&device);
    let model = |columns: [i32; 2]| Chosen {
        columns: Param::initialized(ParamId::new(), Tensor::from_ints(columns, &device)),
        output: output.clone(),
    };
    let loss =
        |model: &Chosen, x: Tensor<2>| model.output.forward(x.select(1, model.columns.val())).powi_scalar(2).mean();
    let mut training = compile_step(model([1, 3]), DeviceAdamW::new(), move |model: &Chosen, x| {
        let loss = loss(model, x);
        (loss.clone(), loss)
    });
    let run = |training: &mut CompiledStep<Chosen, Tensor<2>, Tensor<1>>| {
        numbers(training.run(0.0, batch(0, &device)).expect("pure"))[0]
    };
    let [first, second] = [[1, 3], [5, 0]].map(|columns| numbers(loss(&model(columns), batch(0, &device)))[0]);
    assert!((first - second).abs() > 1e-3, "{first} and {second}");
    assert_near(&[run(&mut training)], &[first], 1e-6);
    let state = training.optimizer_state();
    training.load(&model([5, 0]), state);
    assert_near(&[run(&mut training)], &[second], 1e-6);
    let columns = training.into_model().columns.val().into_data();
    assert_eq!(columns.convert::<i32>().try_to_vec::<i32>().expect("i32"), [5, 0]);
}

#[test]
fn microbatches_train_as_the_whole_batch() {
    let (tpu, device) = device(7, FloatDType::F32);
    let train = |count| {
        tpu.seed(7);
        let model = LinearConfig::new(6, 2).init(&device);
        let optimizer = DeviceAdamW::new().with_microbatches(count);
        let mut training = compile_step(model, optimizer, |model: &Linear, x: Tensor<2>| {
            let loss = (model.forward(x.clone()) - x.slice_dim(1, 0..2)).powi_scalar(2).mean();
            (loss.clone(), loss)
        });
        let step = |step| numbers(training.run(rate(step), batch(step, &device)).expect("pure"))[0];
        (0..STEPS).map(step).collect::<Vec<f32>>()
    };
    assert_near(&train(4), &train(1), 1e-5);
}

#[test]
fn a_compiled_function_records_once_and_keeps_what_changes() {
    let (tpu, device) = device(5, FloatDType::F32);
    let model = LinearConfig::new(4, 4).init(&device).valid();
    drop(model.weight.val());
    let (captured, plain) = (model.clone(), tpu);
    let step = compile(move |(x, count): (Tensor<2>, Tensor<1, Int>)| (captured.forward(x), count + 1));
    let plain = Device::from(plain);
    let mut state = (Tensor::ones([2, 4], &plain), Tensor::from_ints([0], &plain));
    let mut expected = state.0.clone();
    // The fourth call checks that the function still records the same.
    for _ in 0..4 {
        state = step.call(state).expect("pure");
        expected = model.forward(expected);
    }
    assert_eq!(state.1.clone().into_scalar::<i32>(), 4);
    assert_near(&numbers(state.0.clone()), &numbers(expected), 1e-5);
    let before = tpu.metrics();
    let _state = step.call(state).expect("pure");
    assert_eq!(tpu.metrics().recorded_nodes - before.recorded_nodes, 0);
}

#[test]
fn an_impure_function_is_refused() {
    let (_, device) = device(6, FloatDType::F32);
    let reads = compile(|x: Tensor<1>| x.clone() * x.sum().into_scalar::<f32>());
    let refused = reads.call(Tensor::ones([3], &device));
    assert!(matches!(refused, Err(TpuError::Impure { .. })), "{refused:?}");
}
