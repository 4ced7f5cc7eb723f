//! The first steps of a training, and the first calls of a model: what comes back is compiled once, though the first program
//! makes the weights and finds no optimizer's state.

use crate::common;

use burn::backend::Autodiff;
use burn::module::{AutodiffModule, Param};
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::transformer::{TransformerEncoder, TransformerEncoderConfig, TransformerEncoderInput};
use burn::nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig};
use burn::optim::adaptor::OptimizerAdaptor;
use burn::optim::momentum::MomentumConfig;
use burn::optim::{
    AdaGradConfig, AdamConfig, AdamWConfig, AdanConfig, GradientsParams, MuonConfig, Optimizer, RmsPropConfig,
    SgdConfig, SimpleOptimizer,
};
use burn::prelude::*;
use burn::record::{BinBytesRecorder, FullPrecisionSettings, Recorder};
use burn::tensor::backend::AutodiffBackend;
use burn_tpu::{Tpu, TpuDevice, TpuOptimizer, TpuOptions, mark_step, metrics};
use burn_tpu_workspace::models::{Gpt, GptConfig, Images, ResNet, Supervised, Tokens, train_step};
use common::{alone, counted};

type F32 = Autodiff<Tpu<f32>>;
type Bf16 = Autodiff<Tpu>;

/// Returns a device of the CPU plugin with the options of training; `None` if there is no plugin.
#[track_caller]
fn device(name: &str) -> Option<TpuDevice> {
    common::cpu_with(name, TpuOptions::training().disk_cache(false))
}

/// Returns the bits of the losses of `steps` steps.
fn losses<B: AutodiffBackend<Device = TpuDevice>, M, O>(
    mut model: M,
    mut optimizer: O,
    batch: impl Fn(usize) -> M::Batch,
    steps: usize,
    after: impl Fn(usize, &Tensor<B, 1>),
) -> Vec<u32>
where
    M: Supervised<B> + AutodiffModule<B>,
    O: Optimizer<M, B>,
{
    let mut losses = Vec::new();
    for step in 0..steps {
        let loss;
        (model, loss) = train_step(model, &mut optimizer, 1e-3, batch(step));
        after(step, &loss);
        losses.push(loss);
    }
    losses.into_iter().map(|loss| loss.into_scalar().elem::<f32>().to_bits()).collect()
}

fn small_gpt() -> GptConfig {
    let config = GptConfig::new().with_layers(1).with_width(16).with_heads(2).with_feed_forward(32);
    config.with_sequence(8).with_batch(2).with_vocabulary(12).with_dropout(0.1)
}

/// A convolution with a batch norm, whose statistics are no parameters of an optimizer.
#[derive(Module, Debug)]
struct Convolutional<B: Backend> {
    convolution: Conv2d<B>,
    norm: BatchNorm<B>,
    output: Linear<B>,
}

impl<B: Backend> Convolutional<B> {
    fn new(device: &B::Device) -> Self {
        Self {
            convolution: Conv2dConfig::new([1, 3], [3, 3]).init(device),
            norm: BatchNormConfig::new(3).init(device),
            output: LinearConfig::new(3, 10).init(device),
        }
    }
}

impl<B: Backend> Supervised<B> for Convolutional<B> {
    type Batch = Images<B>;

    fn loss(&self, batch: Images<B>) -> Tensor<B, 1> {
        let [rows, _] = batch.images.dims();
        let x = self.norm.forward(self.convolution.forward(batch.images.reshape([rows, 1, 28, 28])));
        let features = x.flatten::<3>(2, 3).mean_dim(2).squeeze_dim(2);
        CrossEntropyLossConfig::new().init(&features.device()).forward(self.output.forward(features), batch.targets)
    }
}

/// Linear layers without biases: Muon has no update for vectors.
#[derive(Module, Debug)]
struct Matrices<B: Backend> {
    layers: Vec<Linear<B>>,
}

impl<B: Backend> Matrices<B> {
    fn new(device: &B::Device) -> Self {
        let layer = |sizes: &[usize]| LinearConfig::new(sizes[0], sizes[1]).with_bias(false).init(device);
        Self { layers: [784, 16, 16, 16, 10].windows(2).map(layer).collect() }
    }
}

impl<B: Backend> Supervised<B> for Matrices<B> {
    type Batch = Images<B>;

    fn loss(&self, batch: Images<B>) -> Tensor<B, 1> {
        let logits = self.layers.iter().fold(batch.images, |x, layer| layer.forward(x).tanh());
        CrossEntropyLossConfig::new().init(&logits.device()).forward(logits, batch.targets)
    }
}

/// Returns the compiles of six steps.
fn compiles<B: AutodiffBackend<Device = TpuDevice>, M, O>(
    device: &TpuDevice,
    model: M,
    optimizer: O,
    batch: impl Fn(usize) -> M::Batch,
) -> u64
where
    M: Supervised<B> + AutodiffModule<B>,
    O: Optimizer<M, B>,
{
    let (losses, counts) = counted(device, || losses::<B, M, O>(model, optimizer, batch, 6, |_, _| mark_step(device)));
    assert!(losses.iter().all(|&bits| f32::from_bits(bits).is_finite()), "{losses:?}");
    counts.compiles
}

#[test]
fn a_step_of_tpu_optimizer_is_compiled_once() {
    let (Some(device), Some(narrow)) = (device("f32"), device("bf16")) else { return };
    let _alone = alone();
    let config = small_gpt();
    let tokens = |step| Tokens::synthetic(&config, step, &device);
    let images = |step| Images::synthetic(4, step, &device);
    let adam = || AdamConfig::new().with_amsgrad(true);
    let gpt = || config.init::<F32>(&device);
    assert_eq!(compiles::<F32, _, _>(&device, gpt(), TpuOptimizer::new(AdamWConfig::new().init()), tokens), 1, "AdamW");
    let matrices = || Matrices::<F32>::new(&device);
    assert_eq!(compiles::<F32, _, _>(&device, matrices(), TpuOptimizer::new(adam().init()), images), 1, "Adam");
    assert_eq!(compiles::<F32, _, _>(&device, matrices(), TpuOptimizer::new(RmsPropConfig::new().init()), images), 1);
    assert_eq!(compiles::<F32, _, _>(&device, matrices(), TpuOptimizer::new(AdaGradConfig::new().init()), images), 1);
    assert_eq!(compiles::<F32, _, _>(&device, matrices(), TpuOptimizer::new(AdanConfig::new().init()), images), 1);
    let momentum = |dampening| SgdConfig::new().with_momentum(Some(MomentumConfig::new().with_dampening(dampening)));
    let of_sgd = |dampening| TpuOptimizer::from(momentum(dampening).build());
    assert_eq!(compiles::<F32, _, _>(&device, matrices(), of_sgd(0.0), images), 1, "SGD with momentum");
    assert_eq!(compiles::<F32, _, _>(&device, matrices(), of_sgd(0.1), images), 1, "SGD with dampening");
    let without = TpuOptimizer::from(SgdConfig::new().build());
    assert_eq!(compiles::<F32, _, _>(&device, matrices(), without, images), 1, "SGD");
    assert_eq!(compiles::<F32, _, _>(&device, matrices(), TpuOptimizer::from(MuonConfig::new().build()), images), 1);
    let model = Convolutional::<F32>::new(&device);
    assert_eq!(compiles::<F32, _, _>(&device, model, TpuOptimizer::new(AdamWConfig::new().init()), images), 1);
    // Weights of 16 bits have master copies.
    let (model, tokens) = (config.init::<Bf16>(&narrow), |step| Tokens::synthetic(&config, step, &narrow));
    assert_eq!(compiles::<Bf16, _, _>(&narrow, model, TpuOptimizer::new(AdamWConfig::new().init()), tokens), 1);
}

/// Burn's own optimizers have no state at first. Without one at all, the first step is like the others.
#[test]
fn a_step_of_burns_optimizers_is_compiled_once_for_each_form() {
    let Some(device) = device("plain") else { return };
    let _alone = alone();
    let config = small_gpt();
    let tokens = |step| Tokens::synthetic(&config, step, &device);
    let gpt = || config.init::<F32>(&device);
    assert_eq!(compiles::<F32, _, _>(&device, gpt(), SgdConfig::new().init(), tokens), 1, "SGD");
    assert_eq!(compiles::<F32, _, _>(&device, gpt(), AdamWConfig::new().init(), tokens), 2, "AdamW");
}

/// The first update of a fine-tuning: weights that were computed before, and a new layer.
#[test]
fn a_model_with_trained_weights_is_compiled_once() {
    let Some(device) = device("trained") else { return };
    let _alone = alone();
    let config = small_gpt();
    let tokens = |step| Tokens::synthetic(&config, step, &device);
    let model: Gpt<F32> = config.init(&device);
    let (mut optimizer, batch) = (TpuOptimizer::new(AdamWConfig::new().init()), tokens(0));
    let (model, _) = train_step(model, &mut optimizer, 1e-3, batch);
    let optimizer = TpuOptimizer::new(AdamWConfig::new().init());
    assert_eq!(compiles::<F32, _, _>(&device, model, optimizer, tokens), 0, "the program of the first optimizer");
}

/// A weight alone, whose gradient is what the loss multiplies it by.
#[derive(Module, Debug)]
struct Weight<B: Backend> {
    weight: Param<Tensor<B, 1>>,
}

/// Returns the bits of a weight after each of three updates with these gradients.
fn updates<B: AutodiffBackend>(
    mut optimizer: impl Optimizer<Weight<B>, B>,
    gradients: &[f32],
    device: &B::Device,
) -> Vec<Vec<u32>> {
    let tensor = |numbers: &[f32]| Tensor::<B, 1>::from_floats(numbers, device);
    let weights: Vec<f32> = (0..gradients.len()).map(|i| [0.0, -0.0, 1.5, -2.0, 1.0e-40][i % 5]).collect();
    let mut model = Weight { weight: Param::from_tensor(tensor(&weights)) };
    let mut bits = Vec::new();
    for _ in 0..3 {
        let loss = (model.weight.val() * tensor(gradients)).sum();
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(0.1, model, gradients);
        let numbers = model.weight.val().into_data().to_vec::<f32>().unwrap();
        // A NaN is a NaN.
        bits.push(numbers.into_iter().map(|x| if x.is_nan() { f32::NAN.to_bits() } else { x.to_bits() }).collect());
    }
    bits
}

/// A state of zeros gives what no state gives, bit for bit.
#[test]
fn the_first_update_is_that_of_burns_optimizer() {
    let device = common::interpreter_with("updates", common::development());
    let largest = [f32::MAX, f32::INFINITY, f32::NAN];
    let mut gradients = vec![0.0, -0.0, 1.0e-3, -1.0e-3, 1.0e-40, -1.0e-40, 3.0, -7.5, 1.0e-25];
    gradients.extend(largest.into_iter().chain(largest.map(|x| -x)).flat_map(|x| [x; 5]));
    gradients.extend((0..200).map(|i| ((i * 7919 % 1009) as f32 / 504.5 - 1.0).powi(5)));
    fn compare<O>(name: &str, plain: OptimizerAdaptor<O, Weight<F32>, F32>, gradients: &[f32], device: &TpuDevice)
    where
        O: SimpleOptimizer<Tpu<f32>>,
    {
        let expected = updates(plain.clone(), gradients, device);
        assert_eq!(updates(TpuOptimizer::new(plain), gradients, device), expected, "{name}");
    }
    let decay = || Some(burn::optim::decay::WeightDecayConfig::new(0.1));
    for amsgrad in [false, true] {
        let adam = AdamConfig::new().with_amsgrad(amsgrad);
        compare("Adam", adam.with_weight_decay(decay()).init(), &gradients, &device);
        for cautious in [false, true] {
            let adamw = AdamWConfig::new().with_amsgrad(amsgrad).with_cautious_weight_decay(cautious);
            compare("AdamW", adamw.init(), &gradients, &device);
        }
    }
    compare("AdaGrad", AdaGradConfig::new().with_lr_decay(0.1).init(), &gradients, &device);
    for (centered, momentum) in [(false, 0.0), (false, 0.9), (true, 0.9)] {
        let config = RmsPropConfig::new().with_centered(centered).with_momentum(momentum);
        compare("RMSProp", config.init(), &gradients, &device);
    }
    for (dampening, nesterov) in [(0.1, false), (0.1, true), (0.0, false), (0.0, true)] {
        let momentum = MomentumConfig::new().with_dampening(dampening).with_nesterov(nesterov);
        compare("SGD", SgdConfig::new().with_momentum(Some(momentum)).init(), &gradients, &device);
    }
    compare("SGD without momentum", SgdConfig::new().with_weight_decay(decay()).init(), &gradients, &device);
    compare("Adan", AdanConfig::new().init(), &gradients, &device);
}

fn encoder<B: Backend>(device: &B::Device) -> TransformerEncoder<B> {
    TransformerEncoderConfig::new(96, 192, 4, 2).with_dropout(0.0).init(device)
}

/// Returns an encoder whose weights were loaded.
fn loaded(device: &TpuDevice) -> TransformerEncoder<Tpu<f32>> {
    let recorder = BinBytesRecorder::<FullPrecisionSettings>::default();
    let record = encoder::<burn_flex::Flex>(&Default::default()).into_record();
    let bytes = recorder.record(record, ()).unwrap();
    encoder(device).load_record(recorder.load(bytes, device).unwrap())
}

/// Runs a model three times on one input that was made from host values, and returns the compiles and the executions of each
/// call.
fn calls(device: &TpuDevice, encoder: &TransformerEncoder<Tpu<f32>>) -> Vec<(u64, u64)> {
    let numbers: Vec<f32> = (0..8 * 64 * 96).map(|i| (i * 7919 % 1009) as f32 / 1009.0).collect();
    let x = Tensor::<Tpu<f32>, 3>::from_data(TensorData::new(numbers, [8, 64, 96]), device) * 2.0 + 1.0;
    let call = |_| {
        let before = metrics(device);
        let _ = encoder.forward(TransformerEncoderInput::new(x.clone())).into_data();
        let after = metrics(device);
        (after.compiles - before.compiles, after.executions - before.executions)
    };
    (0..3).map(call).collect()
}

#[test]
fn a_model_is_compiled_without_what_makes_its_input() {
    let Some(device) = common::cpu_with("inputs", TpuOptions::training().disk_cache(false).interpret_from(0)) else {
        return;
    };
    let _alone = alone();
    assert_eq!(calls(&device, &loaded(&device)), [(2, 2), (0, 1), (0, 1)], "the input, and the model");
}

#[test]
fn a_model_is_compiled_without_what_draws_its_weights() {
    let Some(device) = common::cpu_with("weights", TpuOptions::training().disk_cache(false).interpret_from(0)) else {
        return;
    };
    let _alone = alone();
    let first = calls(&device, &encoder(&device));
    assert_eq!(first[1..], [(0, 1), (0, 1)], "{first:?}");
}

/// The processor time of this process in seconds.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let ticks = after_name.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<f64>().unwrap_or_default());
    ticks.sum::<f64>() / 100.0
}

/// Prints what the first steps of `FIRST_STEPS` cost: a model and an optimizer, such as `gpt tpu`.
#[test]
#[ignore = "a measurement"]
#[allow(clippy::print_stderr, reason = "a measurement")]
fn what_the_first_steps_cost() {
    let Some(device) = device("measured") else { return };
    let _alone = alone();
    F32::seed(&device, 11);
    let case = std::env::var("FIRST_STEPS").unwrap_or_else(|_| "gpt tpu".into());
    let (model, optimizer) = case.split_once(' ').expect("a model and an optimizer");
    let start = cpu_seconds();
    let report = |step: usize, _: &Tensor<F32, 1>| {
        device.sync().unwrap();
        let m = metrics(&device);
        if step < 4 {
            eprintln!(
                "{case}: step {step}: {:.1} CPU s, {} compiles, {:.1} s of compiles, interpreted {}, host parts {}, executions {}",
                cpu_seconds() - start,
                m.compiles,
                m.compile_time().as_secs_f64(),
                m.interpreted,
                m.host_parts,
                m.executions
            );
        }
    };
    let marked = |step: usize, loss: &Tensor<F32, 1>| {
        mark_step(&device);
        report(step, loss);
    };
    let config = GptConfig::new().with_layers(4).with_width(128).with_sequence(64).with_batch(4).with_dropout(0.1);
    let tokens = |step| Tokens::synthetic(&config, step, &device);
    let images = |step| Images::synthetic(16, step, &device);
    let adamw = AdamWConfig::new();
    let bits = match (model, optimizer) {
        ("gpt", "tpu") => losses(config.init::<F32>(&device), TpuOptimizer::new(adamw.init()), tokens, 20, report),
        ("gpt", "plain") => losses(config.init::<F32>(&device), adamw.init(), tokens, 20, marked),
        ("gpt", "read") => losses(config.init::<F32>(&device), adamw.init(), tokens, 20, report),
        ("gpt", "sgd") => losses(config.init::<F32>(&device), SgdConfig::new().init(), tokens, 20, marked),
        ("resnet", "tpu") => losses(ResNet::<F32>::new(&device), TpuOptimizer::new(adamw.init()), images, 20, report),
        ("resnet", "plain") => losses(ResNet::<F32>::new(&device), adamw.init(), images, 20, marked),
        ("resnet", "read") => losses(ResNet::<F32>::new(&device), adamw.init(), images, 20, report),
        other => panic!("no case {other:?}"),
    };
    eprintln!("{case}: losses {bits:x?}\n{}", metrics(&device));
}
