//! `TpuOptimizer` of Burn 0.22: master weights, steps that are one program, records. Without the CPU plugin it runs in
//! the interpreter. Each test has a device of its own, for its counters and Burn's default types.

use burn::module::{Module, Param};
use burn::nn::{LinearConfig, LstmConfig};
use burn::optim::momentum::MomentumConfig;
use burn::optim::{
    AdaGradConfig, AdafactorConfig, AdamConfig, AdamWConfig, AdanConfig, GradientsParams, LambConfig, LionConfig,
    ModuleOptimizer, MuonConfig, Optimizer, OptimizerRecord, RmsPropConfig, Sgd, SgdConfig,
};
use burn::prelude::*;
use burn::tensor::{DType, FloatDType};
use burn_tpu::{Platform, TpuDevice, TpuOptimizer, TpuOptions};
use burn_tpu_runtime::Device as RuntimeDevice;
use std::sync::{Arc, Mutex};
use tracing_subscriber::util::SubscriberInitExt;

/// Returns a device of a test, and Burn's name for it: with this default type, with autodiff.
fn device(index: u16, float: FloatDType) -> (TpuDevice, Device) {
    let tpu = match TpuDevice::default().platform() {
        Platform::NdArray => TpuDevice::from(RuntimeDevice::new(Platform::NdArray, index)),
        _ => TpuDevice::cpu(index),
    };
    (tpu, configured(tpu, float, TpuOptions::training().strict(true)))
}

fn configured(tpu: TpuDevice, float: FloatDType, options: TpuOptions) -> Device {
    options.disk_cache(false).cpu_devices(8).install(&tpu).expect("the first use of the device");
    let mut device = Device::from(tpu);
    device.configure(float).expect("the first use of the device");
    device.autodiff()
}

/// A layer with a weight and no bias, since Muon takes only matrices.
#[derive(Module, Debug)]
struct Layer {
    weight: Param<Tensor<2>>,
}

impl Layer {
    fn new(device: &Device) -> Self {
        let numbers: Vec<f32> = (0..32).map(|i| (1.3 * i as f32).sin()).collect();
        let weight = Tensor::<1>::from_floats(numbers.as_slice(), device).reshape([8, 4]);
        Self { weight: Param::from_tensor(weight) }
    }

    fn weights(&self) -> Vec<f32> {
        values(self.weight.val())
    }
}

fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().iter::<f32>().collect()
}

/// Returns the loss of a weight `[8, 4]` on the batch of a step.
fn loss(weight: Tensor<2>, step: usize) -> Tensor<1> {
    let numbers: Vec<f32> = (0..128).map(|i| (0.7 * (i + 128 * step) as f32).sin()).collect();
    let x = Tensor::<1>::from_floats(numbers.as_slice(), &weight.device()).reshape([16, 8]);
    let target = x.clone().slice([0..16, 0..4]);
    (x.matmul(weight) - target).cast(FloatDType::F32).powi_scalar(2).mean()
}

fn gradients(model: &Layer, step: usize) -> GradientsParams {
    GradientsParams::from_grads(loss(model.weight.val(), step).backward(), model)
}

const STEPS: usize = 20;
const RATE: f64 = 1e-2;

fn trained(mut model: Layer, optimizer: &mut TpuOptimizer, steps: std::ops::Range<usize>) -> Layer {
    for step in steps {
        let gradients = gradients(&model, step);
        model = optimizer.step(RATE, model, gradients);
    }
    model
}

#[test]
fn burns_own_setting_makes_bf16_the_default() {
    let (_, device) = device(1, FloatDType::BF16);
    let linear = LinearConfig::new(4, 2).init(&device);
    let x = Tensor::<2>::ones([3, 4], &device);
    // Model code asks tensors for their device.
    let zeros = Tensor::<2>::zeros([3, 2], &x.device());
    let y = linear.forward(x) + zeros.clone();
    let gradient = linear.weight.val().grad(&y.clone().sum().backward()).expect("a gradient");
    for dtype in [linear.weight.val().dtype(), zeros.dtype(), y.dtype(), gradient.dtype()] {
        assert_eq!(dtype, DType::BF16);
    }
    // Its state begins with zeros on the input's device.
    let (sequence, _) = LstmConfig::new(4, 2, true).init(&device).forward(Tensor::ones([1, 3, 4], &device), None);
    assert_eq!((sequence.dtype(), sequence.into_data().iter::<f32>().all(f32::is_finite)), (DType::BF16, true));
}

/// Trains a bf16 weight with f32 masters, written out.
fn by_hand(optimizer: &impl Optimizer, tpu: TpuDevice, device: &Device) -> Vec<f32> {
    let mut master = Layer::new(device).weight.val().inner().cast(FloatDType::F32);
    let mut state = None;
    for step in 0..STEPS {
        let weight = Tensor::from_inner(master.clone().cast(FloatDType::BF16)).require_grad();
        let gradient = weight.grad(&loss(weight.clone(), step).backward()).expect("a gradient");
        (master, state) = optimizer.step(RATE, master, gradient.cast(FloatDType::F32), state);
        tpu.mark_step();
    }
    values(master.cast(FloatDType::BF16))
}

#[test]
fn steps_are_those_written_by_hand_with_any_optimizer() {
    let (tpu, device) = device(2, FloatDType::BF16);
    fn check(optimizer: impl Optimizer, tpu: TpuDevice, device: &Device) {
        let expected = by_hand(&optimizer, tpu, device);
        let model = trained(Layer::new(device), &mut TpuOptimizer::new(optimizer.clone()), 0..STEPS);
        let name = std::any::type_name_of_val(&optimizer);
        assert_eq!((model.weight.val().dtype(), model.weights()), (DType::BF16, expected), "{name}");
        assert_ne!(model.weights(), Layer::new(device).weights(), "{name}");
    }
    check(AdaGradConfig::new().build(), tpu, &device);
    check(AdafactorConfig::new().build(), tpu, &device);
    check(AdamConfig::new().build(), tpu, &device);
    check(AdamWConfig::new().build(), tpu, &device);
    check(AdanConfig::new().build(), tpu, &device);
    check(LambConfig::new().build(), tpu, &device);
    check(LionConfig::new().build(), tpu, &device);
    check(MuonConfig::new().build(), tpu, &device);
    check(RmsPropConfig::new().build(), tpu, &device);
    check(SgdConfig::new().build(), tpu, &device);
    check(sgd(0.0), tpu, &device);
    check(sgd(0.1), tpu, &device);
}

#[test]
fn a_step_is_one_program_and_later_steps_compile_nothing() {
    let (tpu, device) = device(3, FloatDType::BF16);
    let mut optimizer = TpuOptimizer::new(AdamWConfig::new().build());
    let model = trained(Layer::new(&device), &mut optimizer, 0..2);
    let before = tpu.metrics();
    let model = trained(model, &mut optimizer, 2..STEPS);
    let after = tpu.metrics();
    assert_eq!(after.compiles, before.compiles);
    assert_eq!(after.executions - before.executions, STEPS as u64 - 2);
    assert!(model.weights().iter().all(|weight| weight.is_finite()));
}

/// The state before the first update is one, or both formulas are computed; what draws the weights is no part of the step.
#[test]
fn the_first_step_is_compiled_as_the_later_ones_are() {
    let (tpu, device) = device(7, FloatDType::BF16);
    if tpu.platform() == Platform::NdArray {
        return;
    }
    fn check(optimizer: impl Optimizer, tpu: TpuDevice, device: &Device) {
        // Muon has no update for vectors.
        let linear = |inputs, outputs| LinearConfig::new(inputs, outputs).with_bias(false).init(device);
        let mut model = vec![linear(8, 32), linear(32, 32), linear(32, 4)];
        let name = std::any::type_name_of_val(&optimizer);
        let (mut optimizer, mut compiles) = (TpuOptimizer::new(optimizer), vec![tpu.metrics().compiles]);
        for step in 0..3 {
            let numbers: Vec<f32> = (0..128).map(|i| (0.7 * (i + 128 * step) as f32).sin()).collect();
            let x = Tensor::<2>::from_data(TensorData::new(numbers, [16, 8]), device);
            let y = model.iter().fold(x, |x, layer| layer.forward(x).tanh());
            let loss = y.cast(FloatDType::F32).powi_scalar(2).mean();
            let gradients = GradientsParams::from_grads(loss.backward(), &model);
            model = optimizer.step(RATE, model, gradients);
            compiles.push(tpu.metrics().compiles);
        }
        assert!(compiles[1] > compiles[0] && compiles[2..] == [compiles[1]; 2], "{name}: {compiles:?}");
    }
    check(AdamWConfig::new().build(), tpu, &device);
    check(AdanConfig::new().build(), tpu, &device);
    check(MuonConfig::new().build(), tpu, &device);
    for dampening in [0.0, 0.1] {
        check(sgd(dampening), tpu, &device);
    }
}

fn sgd(dampening: f64) -> Sgd {
    SgdConfig::new().with_momentum(Some(MomentumConfig::new().with_dampening(dampening))).build()
}

/// Burn loads records on the default device, in its default type, which is bf16 here.
#[test]
fn a_record_goes_on_bit_for_bit() {
    let tpu = TpuDevice::default();
    let device = configured(tpu, FloatDType::BF16, TpuOptions::training().strict(true));
    let mut optimizer = TpuOptimizer::new(AdamConfig::new().build());
    let model = trained(Layer::new(&device), &mut optimizer, 0..STEPS / 2);
    let saved = optimizer.into_bytes().expect("a record");
    let expected = trained(model.clone(), &mut optimizer, STEPS / 2..STEPS).weights();
    let record = OptimizerRecord::from_bytes(saved).expect("the record");
    let mut resumed = TpuOptimizer::new(AdamConfig::new().build()).load_record(record);
    assert_eq!(trained(model.clone(), &mut resumed, STEPS / 2..STEPS).weights(), expected);
    // The record is not idle: without it the weights are others.
    let mut fresh = TpuOptimizer::new(AdamConfig::new().build());
    assert_ne!(trained(model, &mut fresh, STEPS / 2..STEPS).weights(), expected);
}

#[test]
fn f32_weights_and_their_records_pass_through() {
    let (tpu, device) = device(4, FloatDType::F32);
    let mut plain = AdamConfig::new().init();
    let mut wrapped = TpuOptimizer::new(AdamConfig::new().build());
    let start = Layer::new(&device);
    let mut expected = start.clone();
    for step in 0..STEPS {
        let gradients = gradients(&expected, step);
        expected = plain.step(RATE, expected, gradients);
        tpu.mark_step();
    }
    assert_eq!(trained(start, &mut wrapped, 0..STEPS).weights(), expected.weights());
    assert_eq!(wrapped.into_bytes().expect("a record"), plain.into_bytes().expect("a record"));
}

#[test]
fn a_weight_that_was_set_stays_and_small_updates_add_up() {
    let (_, device) = device(5, FloatDType::BF16);
    let mut optimizer = TpuOptimizer::new(SgdConfig::new().build());
    let model = trained(Layer::new(&device), &mut optimizer, 0..3);
    let ones = Tensor::<2>::ones([8, 4], &device).require_grad();
    let mut model = Layer { weight: model.weight.map(|_| ones) };
    for _ in 0..100 {
        let gradients = GradientsParams::from_grads(model.weight.val().sum().backward(), &model);
        model = optimizer.step(4e-4, model, gradients);
    }
    // A step of 0.0004 alone is lost beside 1, which has neighbours at a distance of 0.004 and 0.008.
    assert!(model.weights().iter().all(|weight| (weight - 0.96).abs() < 0.004), "{:?}", model.weights());
}

/// Returns the log of this thread at level warn.
fn warnings(work: impl FnOnce()) -> String {
    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);
    impl std::io::Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().expect("no panic holds it").extend(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let sink = Sink::default();
    let writer = sink.clone();
    let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone()).finish();
    let subscribed = subscriber.set_default();
    work();
    drop(subscribed);
    let bytes = sink.0.lock().expect("no panic holds it").clone();
    String::from_utf8(bytes).expect("text")
}

#[test]
fn bf16_without_masters_is_warned_of() {
    const WARNING: &str = "a 16-bit weight without a master copy";
    let platform = TpuDevice::default().platform();
    let tpu = TpuDevice::from(RuntimeDevice::new(platform, 6));
    let device = configured(tpu, FloatDType::BF16, TpuOptions::development());
    let with = warnings(|| {
        trained(Layer::new(&device), &mut TpuOptimizer::new(AdamConfig::new().build()), 0..4);
        tpu.sync().expect("finite numbers");
    });
    assert!(!with.contains(WARNING), "{with}");
    let without = warnings(|| {
        let mut optimizer: ModuleOptimizer = AdamConfig::new().init();
        let mut model = Layer::new(&device);
        for step in 0..4 {
            let gradients = gradients(&model, step);
            model = optimizer.step(RATE, model, gradients);
            tpu.mark_step();
        }
        tpu.sync().expect("finite numbers");
    });
    assert!(without.contains(WARNING), "{without}");
}
