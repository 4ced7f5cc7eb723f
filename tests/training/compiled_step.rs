//! Compiled training steps: the numbers of Burn's optimizer, no recording, state in place.

use crate::common;

use burn::backend::Autodiff;
use burn::module::{AutodiffModule, Module};
use burn::nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig};
use burn::optim::{AdamWConfig, GradientsParams, Optimizer};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{Tensor, TensorData, activation::tanh};
use burn_tpu::{CompiledStep, DeviceAdamW, Tpu, TpuDevice, TpuError, TpuFloat, TpuOptimizer, compile_step};
use common::{alone, counted};

type A<F> = Autodiff<Tpu<F>>;

/// Wide enough that the first matrix is too large to share a tensor with the other parameters.
const WIDTH: usize = 700;

/// A model with running statistics and a layer that no loss uses.
#[derive(Module, Debug)]
struct Model<B: Backend> {
    hidden: Linear<B>,
    norm: BatchNorm<B>,
    output: Linear<B>,
    unused: Linear<B>,
}

impl<B: AutodiffBackend> Model<B> {
    fn new(device: &B::Device) -> Self {
        let model = Self {
            hidden: LinearConfig::new(6, WIDTH).init(device),
            norm: BatchNormConfig::new(WIDTH).init(device),
            output: LinearConfig::new(WIDTH, 2).init(device),
            unused: LinearConfig::new(2, 2).init(device),
        };
        // Burn initialises a parameter when it is first used; a clone before that has numbers of its own.
        model.num_params();
        model
    }

    fn loss(&self, x: Tensor<B, 2>) -> Tensor<B, 1> {
        let hidden = self.norm.forward(tanh(self.hidden.forward(x.clone())));
        (self.output.forward(hidden) - x.slice([0..8, 0..2])).powi_scalar(2).mean()
    }
}

fn batch<B: Backend>(step: usize, device: &B::Device) -> Tensor<B, 2> {
    let values: Vec<f32> = (0..48).map(|i| ((i * 7 + step * 3) % 11) as f32 * 0.2 - 1.0).collect();
    Tensor::from_data(TensorData::new(values, [8, 6]), device)
}

const STEPS: usize = 6;

fn rate(step: usize) -> f64 {
    0.05 / (1.0 + step as f64)
}

type Training<F> = CompiledStep<A<F>, Model<A<F>>, Tensor<Tpu<F>, 2>, Tensor<Tpu<F>, 1>>;

fn compiled<F: TpuFloat>(model: Model<A<F>>, optimizer: DeviceAdamW) -> Training<F> {
    compile_step(model, optimizer, |model: &Model<A<F>>, x| {
        let loss = model.loss(Tensor::from_inner(x));
        (loss.clone(), loss.inner())
    })
}

/// Returns the losses of the recorded loop and its model.
fn recorded<F: TpuFloat>(mut model: Model<A<F>>, device: &TpuDevice) -> (Vec<f32>, Model<A<F>>) {
    let mut optimizer = TpuOptimizer::new(AdamWConfig::new().with_weight_decay(0.1).init());
    let losses = (0..STEPS).map(|step| {
        let loss = model.loss(batch(step, device));
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(rate(step), model.clone(), gradients);
        loss.into_data().iter::<f32>().next().expect("a loss")
    });
    (losses.collect(), model)
}

fn numbers<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> Vec<f32> {
    tensor.into_data().iter::<f32>().collect()
}

fn assert_near(ours: &[f32], theirs: &[f32], tolerance: f32) {
    let near = |(a, b): (&f32, &f32)| (a - b).abs() <= tolerance * b.abs().max(1e-2);
    assert!(ours.len() == theirs.len() && ours.iter().zip(theirs).all(near), "{ours:?}\n{theirs:?}");
}

fn trains_as_recorded<F: TpuFloat>(device: &TpuDevice, tolerance: f32) {
    // AdamW's first updates follow the signs of gradients: of 60 starts in bf16, one has a gradient so near to zero that
    // its sign is a matter of rounding, and comes near the tolerance.
    Tpu::<F>::seed(device, 7);
    // Running statistics are shared by clones of a model, so each loop has a model from one record.
    let original = Model::<A<F>>::new(device);
    let model = || Model::<A<F>>::new(device).load_record(original.clone().into_record());
    let mut training = compiled(model(), DeviceAdamW::new().with_weight_decay(0.1));
    let losses: Vec<f32> =
        (0..STEPS).map(|step| numbers(training.run(rate(step), batch(step, device)).expect("pure"))[0]).collect();
    let (expected, theirs) = recorded(model(), device);
    assert_near(&losses, &expected, tolerance);
    let ours = training.into_model();
    assert_near(&numbers(ours.hidden.weight.val()), &numbers(theirs.hidden.weight.val()), 4.0 * tolerance);
    assert_eq!(numbers(ours.unused.weight.val()), numbers(original.unused.weight.val()), "it has no gradient");
    let statistics = |model: &Model<A<F>>| numbers(model.clone().valid().norm.running_mean.value());
    assert_near(&statistics(&ours), &statistics(&theirs), 4.0 * tolerance);
}

#[test]
fn a_compiled_step_trains_as_the_recorded_one_in_f32() {
    let Some(device) = common::device() else { return };
    let _alone = alone();
    trains_as_recorded::<f32>(&device, 1e-4);
}

#[test]
fn a_compiled_step_trains_as_the_recorded_one_with_master_weights() {
    let Some(device) = common::bf16_device() else { return };
    let _alone = alone();
    trains_as_recorded::<half::bf16>(&device, 0.05);
}

#[test]
fn a_step_is_one_execution_in_place_without_a_new_compile() {
    let Some(device) = common::device() else { return };
    let _alone = alone();
    let mut training = compiled(Model::<A<f32>>::new(&device), DeviceAdamW::new());
    (0..2).for_each(|step| drop(training.run(rate(step), batch(step, &device)).expect("pure")));
    let ((), counted) = counted(&device, || {
        (2..3).for_each(|step| drop(training.run(rate(step), batch(step, &device)).expect("pure")));
    });
    assert_eq!((counted.compiles, counted.executions, counted.nodes), (0, 1, 0), "{counted:?}");
    // Values and both moments of the large matrix and of the parameters that share tensors, the statistics, the betas'
    // powers.
    assert_eq!(counted.donated, 2 * 3 + 2 + 2, "{counted:?}");
    assert!(!numbers(training.model().output.weight.val()).is_empty());
}

#[test]
fn what_stays_from_step_to_step_is_transferred_once() {
    let Some(device) = common::device() else { return };
    let _alone = alone();
    let mut training = compiled(Model::<A<f32>>::new(&device), DeviceAdamW::new());
    let mut transfers_of = |rate: f64, batch: &Tensor<Tpu<f32>, 2>| {
        let before = burn_tpu::metrics(&device);
        drop(training.run(rate, batch.clone()).expect("pure"));
        let after = burn_tpu::metrics(&device);
        (after.uploads - before.uploads, after.scalar_uploads - before.scalar_uploads)
    };
    let held = batch(0, &device);
    let _first = [transfers_of(1e-2, &held), transfers_of(1e-2, &held)];
    assert_eq!(transfers_of(1e-2, &held), (0, 0));
    assert_eq!(transfers_of(2e-2, &held), (1, 0), "the rate");
    assert_eq!(transfers_of(2e-2, &batch(1, &device)), (1, 0), "the batch");
}

#[test]
fn the_norm_of_the_gradients_is_limited() {
    let Some(device) = common::device() else { return };
    let _alone = alone();
    let model = Model::<A<f32>>::new(&device);
    let before = numbers(model.output.weight.val());
    // An epsilon far above the gradients makes the update proportional to them.
    let optimizer = || DeviceAdamW::new().with_epsilon(1e2).with_weight_decay(0.0);
    let change = |optimizer| {
        let mut training = compiled(model.clone(), optimizer);
        training.run(1.0, batch(0, &device)).expect("pure");
        let after = numbers(training.into_model().output.weight.val());
        after.iter().zip(&before).map(|(after, before)| after - before).collect::<Vec<f32>>()
    };
    let (free, limited) = (change(optimizer()), change(optimizer().with_gradient_norm(0.1)));
    // Smaller changes have lost digits beside the weights.
    let ratios = free.iter().zip(&limited).filter(|(free, _)| free.abs() > 1e-3).map(|(free, limited)| limited / free);
    let ratios: Vec<f32> = ratios.collect();
    let same = |ratio: &f32| (ratio - ratios[0]).abs() < 2e-2 * ratios[0];
    assert!(ratios.len() > WIDTH && ratios[0] < 0.2 && ratios.iter().all(same), "{ratios:?}");
}

#[test]
fn a_step_that_is_refused_leaves_the_model() {
    let Some(device) = common::device() else { return };
    let _alone = alone();
    let model = Model::<A<f32>>::new(&device);
    let before = numbers(model.output.weight.val());
    let mut training = compiled(model, DeviceAdamW::new());
    // Another test may have compiled this step.
    Tpu::<f32>::memory_cleanup(&device);
    device.freeze();
    let refused = training.run(1e-2, batch(0, &device));
    device.unfreeze();
    assert!(matches!(refused, Err(TpuError::Frozen { .. })), "{refused:?}");
    assert_eq!(numbers(training.model().output.weight.val()), before);
    training.run(1e-2, batch(0, &device)).expect("compiled");
    assert_ne!(numbers(training.model().output.weight.val()), before);
}
