//! Models whose f32 parameters are computed in 16 bits: which parameters are cast, the gradients, agreement with f32 and
//! with master weights, and loss scaling.

use crate::common;

use burn::backend::Autodiff;
use burn::module::{AutodiffModule, Module, ModuleVisitor, Param};
use burn::nn::{
    BatchNorm, BatchNormConfig, GroupNorm, GroupNormConfig, InstanceNorm, InstanceNormConfig, LayerNorm,
    LayerNormConfig, Linear, LinearConfig, RmsNorm, RmsNormConfig,
};
use burn::optim::{AdamWConfig, GradientsAccumulator, GradientsParams, Optimizer, SgdConfig};
use burn::prelude::*;
use burn::record::{BinBytesRecorder, FullPrecisionSettings, Recorder};
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::{DType, FloatDType};
use burn_tpu::{
    Checkpoints, LossScaler, LossScaling, Tpu, TpuDevice, TpuFloat, TpuOptimizer, autocast, autocast_to, compile,
    compile_step,
};
use burn_tpu_workspace::models::{Gpt, GptConfig, Images, ResNet, Supervised, Tokens};
use common::{alone, bf16_device, counted, device};
use half::bf16;

type A = Autodiff<Tpu<f32>>;
type Narrow = Autodiff<Tpu<bf16>>;

/// All kinds of norms around layers that are none.
#[derive(Module, Debug)]
struct Norms<B: Backend> {
    first: Linear<B>,
    layer: LayerNorm<B>,
    rms: RmsNorm<B>,
    batch: BatchNorm<B>,
    group: GroupNorm<B>,
    instance: InstanceNorm<B>,
    last: Linear<B>,
}

impl<B: Backend> Norms<B> {
    fn new(device: &B::Device) -> Self {
        let model = Self {
            first: LinearConfig::new(6, 8).init(device),
            layer: LayerNormConfig::new(8).init(device),
            rms: RmsNormConfig::new(8).init(device),
            batch: BatchNormConfig::new(4).init(device),
            group: GroupNormConfig::new(2, 4).init(device),
            instance: InstanceNormConfig::new(4).init(device),
            last: LinearConfig::new(8, 3).init(device),
        };
        model.num_params();
        model
    }

    /// Maps `[16, 4, 6]` to `[16, 4, 3]`, and says which types were between.
    fn forward(&self, x: Tensor<B, 3>) -> (Tensor<B, 3>, Vec<DType>) {
        let hidden = self.first.forward(x);
        let layer = self.layer.forward(hidden.clone());
        let rms = self.rms.forward(layer.clone());
        let batch = self.batch.forward(rms.clone() + hidden.clone());
        let group = self.group.forward(batch.clone());
        let instance = self.instance.forward(group.clone() + hidden.clone());
        let dtypes = [&hidden, &layer, &rms, &batch, &group, &instance].map(|x| x.dtype()).to_vec();
        (self.last.forward(instance), dtypes)
    }
}

/// The types and values of a module's parameters, or of their gradients.
#[derive(Default)]
struct Seen<'g> {
    of: Option<&'g GradientsParams>,
    dtypes: Vec<DType>,
    values: Vec<Vec<f32>>,
    untrained: usize,
}

impl<F: TpuFloat> ModuleVisitor<Autodiff<Tpu<F>>> for Seen<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<Autodiff<Tpu<F>>, D>>) {
        let value = match self.of {
            None => Some(param.val().inner()),
            Some(gradients) => gradients.get::<Tpu<F>, D>(param.id),
        };
        match value {
            None => self.untrained += 1,
            Some(value) => {
                self.dtypes.push(value.dtype());
                self.values.push(numbers(value));
            }
        }
    }
}

fn seen<'g, M: Module<A>>(model: &M, of: Option<&'g GradientsParams>) -> Seen<'g> {
    let mut seen = Seen { of, ..Seen::default() };
    model.visit(&mut seen);
    seen
}

fn numbers<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> Vec<f32> {
    tensor.into_data().iter::<f32>().collect()
}

fn batch<B: Backend>(device: &B::Device) -> Tensor<B, 3> {
    let values: Vec<f32> = (0..16 * 4 * 6).map(|i| ((i * 7) % 23) as f32 * 0.1 - 1.0).collect();
    Tensor::from_data(TensorData::new(values, [16, 4, 6]), device)
}

/// The distance of two lists as vectors, divided by the length of the second.
fn distance(ours: &[f32], theirs: &[f32]) -> f32 {
    assert_eq!(ours.len(), theirs.len());
    let squares = |values: &mut dyn Iterator<Item = f32>| values.map(|x| x * x).sum::<f32>();
    let between = squares(&mut ours.iter().zip(theirs).map(|(a, b)| a - b));
    (between / squares(&mut theirs.iter().copied()).max(1e-12)).sqrt()
}

#[test]
fn layers_are_cast_and_norms_are_not() {
    let Some(device) = device() else { return };
    let _alone = alone();
    let model = Norms::<A>::new(&device);
    let fast = autocast(&model);
    let dtypes = [fast.first.weight.val(), fast.last.weight.val()].map(|weight| weight.dtype());
    assert_eq!(dtypes, [DType::BF16; 2]);
    assert_eq!(fast.first.bias.as_ref().map(|bias| bias.val().dtype()), Some(DType::BF16));
    let scales = [&fast.layer.gamma, &fast.rms.gamma, &fast.batch.gamma, &fast.batch.beta];
    assert!(scales.into_iter().all(|scale| scale.val().dtype() == DType::F32));
    assert_eq!(fast.batch.running_mean.value().dtype(), DType::F32);
    let (y, between) = fast.forward(batch(&device));
    assert_eq!((y.dtype(), between), (DType::BF16, vec![DType::BF16; 6]));
    let half = autocast_to(&model, FloatDType::F16);
    assert_eq!(half.forward(batch(&device)).0.dtype(), DType::F16);
    // The model is as it was, but for the running statistics that the clones share with it.
    assert!(seen(&model, None).dtypes.iter().all(|&dtype| dtype == DType::F32));
    let mean = numbers(model.valid().batch.running_mean.value());
    assert!(mean.iter().any(|mean| mean.abs() > 1e-3), "{mean:?}");
}

#[test]
fn gradients_are_those_of_the_f32_parameters() {
    let Some(device) = device() else { return };
    let _alone = alone();
    let model = Norms::<A>::new(&device);
    let gradients = |used: &Norms<A>| {
        let (y, _) = used.forward(batch(&device));
        let target = batch(&device).slice([0..16, 0..4, 0..3]);
        let loss = (y.cast(DType::F32) - target).powi_scalar(2).mean();
        GradientsParams::from_grads(loss.backward(), &model)
    };
    let (fast, slow) = (gradients(&autocast(&model)), gradients(&model));
    let (fast, slow) = (seen(&model, Some(&fast)), seen(&model, Some(&slow)));
    // The running mean and variance have none.
    assert_eq!((fast.values.len(), fast.untrained), (slow.values.len(), 2));
    assert!(fast.dtypes.iter().all(|&dtype| dtype == DType::F32), "{:?}", fast.dtypes);
    for (fast, slow) in fast.values.iter().zip(&slow.values) {
        let apart = distance(fast, slow);
        let largest = slow.iter().fold(0.0f32, |most, x| most.max(x.abs()));
        assert!(apart < 0.08 || largest < 1e-3, "{apart}: {fast:?} {slow:?}");
    }
    assert_ne!(fast.values, slow.values, "they were computed in bf16");
}

/// The normalised values are 1.5, 1.5, 0.5, 0.5 and 0. 1.5 times 1 + 3/512 is rounded to 1.5078125; with the factor rounded
/// first, to 1 + 4/512, it would be 1.515625.
#[test]
fn a_norms_parameters_are_not_rounded() {
    let Some(device) = device() else { return };
    let _alone = alone();
    let gamma = Tensor::<A, 1>::from_floats([1.0 + 3.0 / 512.0; 5], &device);
    let model = RmsNorm { gamma: Param::from_tensor(gamma), ..RmsNormConfig::new(5).init::<A>(&device) };
    let x = Tensor::<A, 2>::from_floats([[3.0, 3.0, 1.0, 1.0, 0.0]], &device).cast(DType::BF16);
    let y = numbers(autocast(&model).forward(x.clone()));
    assert_eq!(y[0], 1.5078125, "{y:?}");
    let rounded = RmsNorm { gamma: model.gamma.clone().map(|gamma| gamma.cast(DType::BF16)), ..model };
    assert_eq!(numbers(rounded.forward(x))[0], 1.515625);
}

fn config() -> GptConfig {
    let config = GptConfig::new().with_layers(2).with_width(32).with_heads(4).with_feed_forward(64);
    config.with_sequence(16).with_batch(8).with_vocabulary(31)
}

/// How the loss of a step is computed.
type Loss<B> = fn(&Gpt<B>, Tokens<B>) -> Tensor<B, 1>;

fn plain<B: AutodiffBackend>(model: &Gpt<B>, batch: Tokens<B>) -> Tensor<B, 1> {
    model.loss(batch)
}

fn in_bf16(model: &Gpt<A>, batch: Tokens<A>) -> Tensor<A, 1> {
    autocast(model).loss(batch)
}

/// Trains from a record of f32 weights; returns the losses.
fn losses<F: TpuFloat>(weights: &[u8], device: &TpuDevice, steps: usize, loss_of: Loss<Autodiff<Tpu<F>>>) -> Vec<f32>
where
    TpuOptimizer<burn::optim::AdamW, Gpt<Autodiff<Tpu<F>>>, Autodiff<Tpu<F>>>:
        Optimizer<Gpt<Autodiff<Tpu<F>>>, Autodiff<Tpu<F>>>,
{
    let record = BinBytesRecorder::<FullPrecisionSettings>::default().load(weights.to_vec(), device).expect("a record");
    let mut model = config().init::<Autodiff<Tpu<F>>>(device).load_record(record);
    let mut optimizer = TpuOptimizer::new(AdamWConfig::new().init());
    let losses = (0..steps).map(|step| {
        let loss = loss_of(&model, Tokens::synthetic(&config(), step, device));
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(3e-3, model.clone(), gradients);
        loss
    });
    losses.collect::<Vec<_>>().into_iter().flat_map(numbers).collect()
}

#[test]
fn training_agrees_with_f32_and_with_master_weights() {
    let (Some(device), Some(narrow)) = (device(), bf16_device()) else { return };
    let _alone = alone();
    let model = config().init::<A>(&device);
    let weights =
        BinBytesRecorder::<FullPrecisionSettings>::default().record(model.into_record(), ()).expect("a record");
    let steps = 60;
    let wide = losses::<f32>(&weights, &device, steps, plain);
    let ours = losses::<f32>(&weights, &device, steps, in_bf16);
    let masters = losses::<bf16>(&weights, &narrow, steps, plain::<Narrow>);
    assert!(wide[steps - 1] < 0.6 * wide[0], "it learns: {wide:?}");
    let last = |losses: &[f32]| losses[steps - 10..].iter().sum::<f32>() / 10.0;
    for other in [&wide, &masters] {
        let ratio = last(&ours) / last(other);
        assert!((ratio - 1.0).abs() < 0.02, "{ratio}: {ours:?} {other:?}");
    }
    assert!((ours[0] / masters[0] - 1.0).abs() < 2e-3 && ours != wide, "{} {}", ours[0], masters[0]);
}

#[test]
fn a_step_is_one_program() {
    let Some(device) = device() else { return };
    let _alone = alone();
    let mut model = config().init::<A>(&device);
    let mut optimizer = TpuOptimizer::new(AdamWConfig::new().init());
    let mut step = |number: usize| {
        let loss = in_bf16(&model, Tokens::synthetic(&config(), number, &device));
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(1e-3, model.clone(), gradients);
    };
    (0..4).for_each(&mut step);
    let ((), count) = counted(&device, || (4..8).for_each(&mut step));
    assert_eq!((count.compiles, count.executions), (0, 4), "{count:?}");
}

#[test]
fn accumulated_gradients_and_burns_own_optimizer_work() {
    let Some(device) = device() else { return };
    let _alone = alone();
    let model = Norms::<A>::new(&device);
    let mut accumulator = GradientsAccumulator::new();
    for _ in 0..2 {
        let loss = autocast(&model).forward(batch(&device)).0.cast(DType::F32).powi_scalar(2).mean();
        accumulator.accumulate(&model, GradientsParams::from_grads(loss.backward(), &model));
    }
    let gradients = accumulator.grads();
    assert!(seen(&model, Some(&gradients)).dtypes.iter().all(|&dtype| dtype == DType::F32));
    let before = numbers(model.first.weight.val());
    let model = SgdConfig::new().init().step(0.1, model, gradients);
    let after = model.first.weight.val();
    assert_eq!(after.dtype(), DType::F32);
    assert_ne!(numbers(after), before);
}

#[test]
fn a_model_without_gradients_serves_in_bf16() {
    let Some(device) = device() else { return };
    let _alone = alone();
    let model = Norms::<A>::new(&device);
    let valid = model.valid();
    let wide = numbers(valid.forward(batch(&device)).0);
    let fast = autocast(&valid);
    let narrow = fast.forward(batch(&device)).0;
    assert_eq!(narrow.dtype(), DType::BF16);
    let narrow = numbers(narrow);
    assert!(distance(&narrow, &wide) < 0.03 && narrow != wide, "{narrow:?} {wide:?}");
    // The same in a compiled function, and of a model that was cast before.
    let served = compile(move |x: Tensor<Tpu<f32>, 3>| fast.forward(x).0);
    assert!(distance(&numbers(served.call(batch(&device)).expect("pure")), &narrow) < 0.02);
    assert_eq!(autocast(&model).valid().last.weight.val().dtype(), DType::BF16);
}

#[test]
fn a_compiled_step_trains_as_the_recorded_one() {
    let Some(device) = device() else { return };
    let _alone = alone();
    let original = ResNet::<A>::new(&device);
    original.num_params();
    let images = |step| Images::synthetic(8, step, &device);
    // Running statistics are shared by clones of a model.
    let copy = || ResNet::<A>::new(&device).load_record(original.clone().into_record());
    let mut model = copy();
    let mut optimizer = TpuOptimizer::new(AdamWConfig::new().init());
    let mut recorded = Vec::new();
    for step in 0..4 {
        let loss = autocast(&model).loss(images(step));
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(1e-3, model, gradients);
        recorded.extend(numbers(loss));
    }
    let mut training =
        compile_step(copy(), burn_tpu::DeviceAdamW::new(), |model: &ResNet<A>, batch: Images<Tpu<f32>>| {
            let images = Tensor::from_inner(batch.images);
            let loss = autocast(model).loss(Images { images, targets: Tensor::from_inner(batch.targets) });
            (loss.clone(), loss.inner())
        });
    let compiled = (0..4).flat_map(|step| {
        let batch = Images::<Tpu<f32>>::synthetic(8, step, &device);
        numbers(training.run(1e-3, batch).expect("pure"))
    });
    let compiled: Vec<f32> = compiled.collect();
    assert!(distance(&compiled, &recorded) < 0.02, "{compiled:?} {recorded:?}");
    let trained = training.into_model();
    assert_eq!(seen(&trained, None).dtypes, seen(&original, None).dtypes);
}

#[test]
fn blocks_whose_activations_are_not_kept_are_cast_inside() {
    let Some(device) = device() else { return };
    let _alone = alone();
    let model = LinearConfig::new(6, 6).init::<A>(&device);
    model.num_params();
    let mut checkpoints = Checkpoints::new();
    let x = batch::<A>(&device);
    let y = checkpoints.run(&model, x.clone(), |block, x| autocast(block).forward(x));
    let ours = checkpoints.backward(y.cast(DType::F32).powi_scalar(2).mean(), &model);
    let loss = autocast(&model).forward(x).cast(DType::F32).powi_scalar(2).mean();
    let theirs = GradientsParams::from_grads(loss.backward(), &model);
    assert_eq!(seen(&model, Some(&ours)).values, seen(&model, Some(&theirs)).values);
}

/// A loss `[1]` whose gradient is `factor` for each weight.
fn scaled_sum(model: &Linear<A>, factor: f32, device: &TpuDevice) -> Tensor<A, 1> {
    let factor = Tensor::<A, 1>::from_floats([factor], device);
    let x = Tensor::<A, 2>::ones([1, 4], device);
    autocast_to(model, FloatDType::F16).forward(x).cast(DType::F32).sum() * factor
}

/// A step of Adam with a gradient of 1e-7: f16 cannot hold it, and 65536 times it can.
#[test]
fn a_scaled_loss_has_gradients_that_f16_does_not_have() {
    let Some(device) = device() else { return };
    let _alone = alone();
    let model = LinearConfig::new(4, 2).with_bias(false).init::<A>(&device);
    let gradient = |loss: Tensor<A, 1>| {
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        seen(&model, Some(&gradients)).values[0][0]
    };
    assert_eq!(gradient(scaled_sum(&model, 1e-8, &device)), 0.0);
    let scaler = LossScaler::new(LossScaling::new(), &device);
    let scaled = gradient(scaler.scale(scaled_sum(&model, 1e-8, &device)));
    assert!((scaled / 65536.0 - 1e-8).abs() < 1e-10, "{scaled}");
}

#[test]
fn steps_that_are_not_finite_are_skipped_and_the_scale_recovers() {
    let Some(device) = device() else { return };
    let _alone = alone();
    let mut model = LinearConfig::new(4, 2).with_bias(false).init::<A>(&device);
    let mut optimizer = TpuOptimizer::new(AdamWConfig::new().init());
    let mut scaler = LossScaler::new(LossScaling::new().with_first(1024.0).with_growth(2.0, 3), &device);
    let mut step = |factor: f32| {
        let loss = scaler.scale(scaled_sum(&model, factor, &device));
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        let before = numbers(model.weight.val());
        model = scaler.step(&mut optimizer, 1e-2, model.clone(), gradients);
        let state = scaler.state().expect("a state");
        let moved = numbers(model.weight.val()).iter().zip(&before).map(|(a, b)| b - a).fold(0.0, f32::max);
        (moved, state.scale, state.steps)
    };
    let near = |moved: f32| (moved - 1e-2).abs() < 1e-3;
    // The first step is skipped: there is no state of the optimizer yet.
    assert_eq!(step(1e3), (0.0, 512.0, 0.0), "65504 is the largest f16 number");
    assert_eq!(step(f32::NAN), (0.0, 256.0, 0.0));
    let first = step(1.0);
    assert!(first.0 > 0.0 && (first.1, first.2) == (256.0, 1.0), "{first:?}");
    let moved: Vec<_> = (0..2).map(|_| step(1.0)).collect();
    assert!(moved.iter().all(|step| step.0 > 0.0 && step.0.is_finite()), "{moved:?}");
    assert_eq!((moved[1].1, moved[1].2), (512.0, 0.0), "it grows after three finite steps");
    assert_eq!(step(f32::INFINITY), (0.0, 256.0, 0.0));
    let after = (0..40).map(|_| step(1.0)).fold(None, |_, step| Some(step)).expect("a step");
    assert!(near(after.0), "Adam's moments survived: {after:?}");
}

/// What is skipped leaves the state of the optimizer: its next step is the one that it would have taken.
#[test]
fn a_skipped_step_leaves_master_weights_and_moments() {
    let Some(device) = bf16_device() else { return };
    let _alone = alone();
    let first = LinearConfig::new(4, 2).with_bias(false).init::<Narrow>(&device);
    first.num_params();
    let run = |factors: &[f32]| {
        let mut model = first.clone();
        // Its steps do not depend on their count.
        let momentum = burn::optim::momentum::MomentumConfig::new().with_momentum(0.5).with_dampening(0.0);
        let sgd = SgdConfig::new().with_momentum(Some(momentum)).build();
        let mut optimizer = TpuOptimizer::<_, Linear<Narrow>, Narrow>::from(sgd);
        let mut scaler = LossScaler::new(LossScaling::new().with_first(4.0), &device);
        for &factor in factors {
            let factor = Tensor::<Narrow, 1>::from_data(TensorData::from([factor]), (&device, DType::F32));
            let loss = model.forward(Tensor::<Narrow, 2>::ones([1, 4], &device)).cast(DType::F32).sum() * factor;
            let gradients = GradientsParams::from_grads(scaler.scale(loss).backward(), &model);
            model = scaler.step(&mut optimizer, 1e-3, model, gradients);
        }
        numbers(model.weight.val())
    };
    let bad = f32::INFINITY;
    assert_eq!(run(&[bad, 1.0, 1.0, bad, bad, 1.0, 1.0, 1.0]), run(&[1.0; 5]));
    assert_ne!(run(&[1.0; 5]), run(&[1.0; 4]));
}

#[test]
fn a_compiled_step_scales_and_skips_and_does_not_count_what_it_skips() {
    let Some(device) = device() else { return };
    let _alone = alone();
    let first = LinearConfig::new(4, 2).init::<A>(&device);
    first.num_params();
    let run = |factors: &[f32], scaling: Option<LossScaling>| {
        let optimizer = burn_tpu::DeviceAdamW::new();
        let optimizer = scaling.map_or(optimizer.clone(), |scaling| optimizer.with_loss_scaling(scaling));
        let at = device;
        let mut training =
            compile_step(first.clone(), optimizer, move |model: &Linear<A>, factor: Tensor<Tpu<f32>, 1>| {
                let y = autocast_to(model, FloatDType::F16).forward(Tensor::<A, 2>::ones([1, 4], &at));
                let loss = y.cast(DType::F32).powi_scalar(2).sum() * Tensor::from_inner(factor);
                (loss.clone(), loss.inner())
            });
        let losses = factors
            .iter()
            .flat_map(|&factor| numbers(training.run(1e-2, Tensor::from_floats([factor], &at)).expect("pure")));
        let losses: Vec<f32> = losses.collect();
        let state = training.optimizer_state();
        let number = |name: &str| {
            let tensor = state.iter().find(|(known, _)| known == name).map(|(_, tensor)| tensor.to_data());
            tensor.map(|data| data.expect("a number").iter::<f32>().next().expect("a number"))
        };
        let scale = (number("loss_scale"), number("loss_scale_steps"), number("beta_1_power"));
        (losses, numbers(training.into_model().weight.val()), scale)
    };
    let bad = f32::INFINITY;
    let scaling = LossScaling::new().with_first(8.0).with_growth(2.0, 4);
    let (_, skipped, scale) = run(&[bad, 1.0, bad, 1.0, 1.0, bad, 1.0], Some(scaling));
    let (losses, plain, none) = run(&[1.0; 4], None);
    assert_eq!((scale, none.0), ((Some(1.0), Some(1.0), none.2), None));
    assert!(distance(&skipped, &plain) < 1e-3, "{skipped:?} {plain:?}");
    assert!(distance(&run(&[1.0; 4], Some(scaling)).0, &losses) < 1e-3, "the result is not scaled");
    assert_eq!(run(&[1.0; 4], Some(scaling)).2.0, Some(16.0), "it grew after four steps");
}

#[test]
fn scaled_steps_are_one_program_each_and_read_nothing() {
    let Some(device) = device() else { return };
    let _alone = alone();
    let mut model = LinearConfig::new(4, 2).init::<A>(&device);
    let mut optimizer = TpuOptimizer::new(AdamWConfig::new().init());
    let mut scaler = LossScaler::new(LossScaling::new().with_first(1024.0), &device);
    let mut step = |factor: f32| {
        let loss = scaler.scale(scaled_sum(&model, factor, &device));
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = scaler.step(&mut optimizer, 1e-2, model.clone(), gradients);
    };
    (0..4).for_each(|_| step(1.0));
    let ((), count) = counted(&device, || [1.0, f32::NAN, 2.0].into_iter().for_each(&mut step));
    assert_eq!((count.compiles, count.executions), (0, 3), "{count:?}");
    let saved = scaler.state().expect("a state");
    assert_eq!((saved.scale, saved.steps), (512.0, 1.0));
    let resumed = LossScaler::new(LossScaling::new(), &device).with_state(saved);
    assert_eq!(resumed.state().expect("a state"), saved);
}
