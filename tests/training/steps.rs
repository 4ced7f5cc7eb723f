//! Whole training steps: one program each, the same results as burn-ndarray, flat memory, bf16 weights that learn.

use crate::common;

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::BalancedCheckpointing;
use burn::module::{AutodiffModule, Module};
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::pool::{MaxPool2d, MaxPool2dConfig};
use burn::nn::{Linear, LinearConfig};
use burn::optim::{AdamConfig, GradientsParams, Optimizer, SgdConfig};
use burn::record::{BinBytesRecorder, FullPrecisionSettings, Recorder};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{Distribution, Int, Tensor, TensorData, activation::relu};
use burn_ndarray::NdArray;
use burn_tpu::{Tpu, TpuOptimizer, mark_step};
use common::{alone, counted};

type F32 = Autodiff<Tpu<f32>>;

/// The classifier of `examples/mnist --model cnn`, narrower and for images of 12x12.
#[derive(Module, Debug)]
struct Cnn<B: Backend> {
    convolutions: [Conv2d<B>; 2],
    pool: MaxPool2d,
    hidden: Linear<B>,
    output: Linear<B>,
}

impl<B: Backend> Cnn<B> {
    fn new(device: &B::Device) -> Self {
        let convolution = |inputs, outputs| Conv2dConfig::new([inputs, outputs], [3, 3]).init(device);
        Self {
            convolutions: [convolution(1, 8), convolution(8, 16)],
            pool: MaxPool2dConfig::new([2, 2]).with_strides([2, 2]).init(),
            hidden: LinearConfig::new(16 * 4 * 4, 32).init(device),
            output: LinearConfig::new(32, 10).init(device),
        }
    }

    fn forward(&self, images: Tensor<B, 4>) -> Tensor<B, 2> {
        let features = self.convolutions.iter().fold(images, |x, layer| relu(layer.forward(x)));
        let features = self.pool.forward(features).flatten(1, 3);
        self.output.forward(relu(self.hidden.forward(features)))
    }
}

/// Returns a batch of 8 images whose class is the position of the bright spot. The numbers are the same on every backend.
fn batch<B: Backend>(step: usize, device: &B::Device) -> (Tensor<B, 4>, Tensor<B, 1, Int>) {
    let mut state = (step as u32).wrapping_mul(2_654_435_761).wrapping_add(12_345);
    let mut next = move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state >> 8
    };
    let (mut pixels, mut classes) = (vec![0.0f32; 8 * 144], vec![0i32; 8]);
    for image in 0..8 {
        let class = next() % 10;
        classes[image] = class as i32;
        for pixel in 0..144 {
            let bright = pixel / 14 == class;
            let noise = (next() % 1000) as f32 / 1000.0;
            pixels[image * 144 + pixel as usize] = noise + if bright { 3.0 } else { 0.0 };
        }
    }
    let images = Tensor::from_data(TensorData::new(pixels, [8, 1, 12, 12]), device);
    (images, Tensor::from_data(TensorData::new(classes, [8]), device))
}

fn loss_of<B: Backend>(model: &Cnn<B>, step: usize, device: &B::Device) -> Tensor<B, 1> {
    let (images, classes) = batch::<B>(step, device);
    CrossEntropyLossConfig::new().init(device).forward(model.forward(images), classes)
}

/// Trains with Adam and a constant rate; `after` runs after each step.
fn train<B: AutodiffBackend>(
    mut model: Cnn<B>,
    steps: usize,
    device: &B::Device,
    after: impl Fn(),
) -> (Vec<f32>, Cnn<B>) {
    let mut optimizer = AdamConfig::new().init();
    let mut losses = Vec::new();
    for step in 0..steps {
        let loss = loss_of(&model, step, device);
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(1e-3, model, gradients);
        after();
        losses.push(loss);
    }
    let read = |loss: Tensor<B, 1>| loss.into_data().convert::<f32>().to_vec::<f32>().expect("f32")[0];
    (losses.into_iter().map(read).collect(), model)
}

/// Creates models with the same random weights on two backends. (A new module draws its weights when they are first read,
/// and a clone draws its own, so both load one record.)
fn twins<A: AutodiffBackend, B: AutodiffBackend>(a: &A::Device, b: &B::Device) -> (Cnn<A>, Cnn<B>) {
    let recorder = BinBytesRecorder::<FullPrecisionSettings>::default();
    let bytes = recorder.record(Cnn::<A>::new(a).into_record(), ()).expect("a record");
    let first = Cnn::<A>::new(a).load_record(recorder.load(bytes.clone(), a).expect("the record"));
    (first, Cnn::<B>::new(b).load_record(recorder.load(bytes, b).expect("the record")))
}

#[test]
fn the_losses_of_a_cnn_equal_those_of_burn_ndarray() {
    let Some(device) = common::device() else { return };
    let _alone = alone();
    let host = Default::default();
    // Whether 50 steps suffice to learn depends on the initial weights, so these are the same in every run.
    F32::seed(&device, 17);
    let (model, reference): (Cnn<F32>, Cnn<Autodiff<NdArray<f32>>>) = twins(&device, &host);
    let (losses, _) = train(model, 50, &device, || mark_step(&device));
    let (expected, _) = train(reference, 50, &host, || ());
    for (step, (loss, expected)) in losses.iter().zip(&expected).enumerate() {
        assert!((loss - expected).abs() <= 1e-3 * expected.abs(), "step {step}: {loss} and {expected}");
    }
    let mean = |losses: &[f32]| losses.iter().sum::<f32>() / losses.len() as f32;
    assert!(mean(&losses[40..]) < mean(&losses[..10]) - 0.5, "it learns: {losses:?}");
}

#[test]
fn a_training_step_is_one_program_and_memory_is_flat() {
    let Some(device) = common::device() else { return };
    let _alone = alone();
    let model = Cnn::<F32>::new(&device);
    let (_, model) = train(model, 5, &device, || mark_step(&device));
    mark_step(&device);
    let (_, steps) = counted(&device, || train(model.clone(), 5, &device, || mark_step(&device)));
    assert_eq!((steps.executions, steps.fallbacks), (5, 0), "{steps:?}");
}

/// A perceptron that is fast enough for a thousand steps.
#[derive(Module, Debug)]
struct Mlp<B: Backend> {
    hidden: Linear<B>,
    output: Linear<B>,
}

impl<B: Backend> Mlp<B> {
    fn new(device: &B::Device) -> Self {
        Self { hidden: LinearConfig::new(8, 32).init(device), output: LinearConfig::new(32, 1).init(device) }
    }

    fn loss(&self, x: Tensor<B, 2>) -> Tensor<B, 1> {
        let y = x.clone().powi_scalar(2).sum_dim(1).sqrt();
        let guess = self.output.forward(relu(self.hidden.forward(x)));
        (guess - y).powi_scalar(2).mean()
    }
}

#[test]
fn a_thousand_steps_leak_no_handle() {
    let Some(device) = common::device() else { return };
    let _alone = alone();
    let mut model = Mlp::<F32>::new(&device);
    let mut optimizer = TpuOptimizer::new(AdamConfig::new().init());
    let mut after = |steps: usize| {
        for _ in 0..steps {
            let x = Tensor::<F32, 2>::random([16, 8], Distribution::Default, &device);
            let gradients = GradientsParams::from_grads(model.loss(x).backward(), &model);
            model = optimizer.step(1e-3, model.clone(), gradients);
        }
        F32::sync(&device).expect("the steps succeed");
        (burn_tpu_pjrt::live_buffers(), burn_tpu_pjrt::live_loaded_executables(), resident_kib())
    };
    let (buffers, programs, kib) = after(100);
    let ((buffers_later, programs_later, kib_later), count) = counted(&device, || after(1000));
    assert_eq!((buffers, programs), (buffers_later, programs_later));
    assert_eq!((count.compiles, count.executions), (0, 1000), "{count:?}");
    assert!(kib_later < kib + 8 * 1024, "resident memory grew from {kib} to {kib_later} KiB");
}

fn resident_kib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or("VmRSS: 0");
    line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).unwrap_or(0)
}

/// A weight of 1 with the gradient 1 and a rate of 1/1024: the step is too small for bf16, which rounds it away.
#[test]
fn master_weights_keep_updates_that_bf16_loses() {
    type B = Autodiff<Tpu>;
    #[derive(Module, Debug)]
    struct Weight<B: Backend> {
        weight: burn::module::Param<Tensor<B, 1>>,
    }
    let Some(device) = common::bf16_device() else { return };
    let _alone = alone();
    let start = || Weight::<B> { weight: burn::module::Param::from_tensor(Tensor::ones([4], &device)) };
    let value = |w: &Weight<B>| w.weight.val().into_data().convert::<f32>().to_vec::<f32>().expect("f32")[0];
    let gradient = |w: &Weight<B>| GradientsParams::from_grads(w.weight.val().sum().backward(), w);
    let (mut plain, mut master) = (start(), start());
    let mut plain_optimizer = SgdConfig::new().init::<B, Weight<B>>();
    let wrapped = || TpuOptimizer::<_, Weight<B>, B>::from(SgdConfig::new().build());
    let mut master_optimizer = wrapped();
    for _ in 0..66 {
        let gradients = gradient(&plain);
        plain = plain_optimizer.step(1.0 / 1024.0, plain, gradients);
        let gradients = gradient(&master);
        master = master_optimizer.step(1.0 / 1024.0, master, gradients);
        mark_step(&device);
    }
    assert_eq!(value(&plain), 1.0, "bf16 alone does not change");
    assert_eq!(value(&master), 0.9375, "1 - 66/1024 to the 8 bits of bf16");
    // A checkpoint keeps the f32 master copy. From the rounded weight, the next step would round back to 0.9375.
    let recorder = BinBytesRecorder::<FullPrecisionSettings>::default();
    let saved = recorder.record(master_optimizer.to_record(), ()).expect("a record");
    let mut resumed = wrapped().load_record(recorder.load(saved, &device).expect("the record"));
    let gradients = gradient(&master);
    master = resumed.step(1.0 / 1024.0, master, gradients);
    assert_eq!(value(&master), 0.93359375, "1 - 67/1024 to the 8 bits of bf16");
}

#[test]
fn balanced_checkpointing_trains_to_the_same_losses() {
    let Some(device) = common::device() else { return };
    let _alone = alone();
    type Checkpointed = Autodiff<Tpu<f32>, BalancedCheckpointing>;
    let (model, same): (Cnn<F32>, Cnn<Checkpointed>) = twins(&device, &device);
    let (losses, _) = train(model, 5, &device, || mark_step(&device));
    let (checkpointed, trained) = train(same, 5, &device, || mark_step(&device));
    for (a, b) in losses.iter().zip(&checkpointed) {
        assert!((a - b).abs() <= 1e-4 * a.abs(), "{losses:?} and {checkpointed:?}");
    }
    let loss = loss_of(&trained.valid(), 7, &device).into_scalar();
    assert!(loss.is_finite());
}
