//! The master weights of `TpuOptimizer` follow weights that something else than its optimizer changed.

use crate::common;

use burn::backend::Autodiff;
use burn::module::{Module, ModuleMapper, Param};
use burn::nn::{Linear, LinearConfig};
use burn::optim::{AdamConfig, GradientsParams, Optimizer, SgdConfig};
use burn::prelude::*;
use burn::record::{BinBytesRecorder, FullPrecisionSettings, Recorder};
use burn::tensor::DType;
use burn_tpu::{CutReason, Tpu, TpuDevice, TpuOptimizer};
use common::{alone, bf16_device, counted};
use half::bf16;

type B = Tpu<bf16>;
type A = Autodiff<B>;

/// Replaces every float parameter.
struct Replace<F>(F);

impl<F: Fn(Vec<f32>) -> Vec<f32>> ModuleMapper<A> for Replace<F> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<A, D>>) -> Param<Tensor<A, D>> {
        param.map(|tensor| {
            let (dims, device, old) = (tensor.dims(), tensor.device(), tensor.into_data());
            let new: Vec<bf16> = (self.0)(old.iter::<f32>().collect()).into_iter().map(bf16::from_f32).collect();
            Tensor::from_data(TensorData::new(new, dims), &device).require_grad()
        })
    }
}

fn weights(model: &Linear<A>) -> Vec<f32> {
    model.weight.val().into_data().iter::<f32>().collect()
}

fn step(model: Linear<A>, optimizer: &mut impl Optimizer<Linear<A>, A>, rate: f64, device: &TpuDevice) -> Linear<A> {
    let x = Tensor::<A, 2>::ones([4, 8], device);
    let gradients = GradientsParams::from_grads(model.forward(x).sum().backward(), &model);
    optimizer.step(rate, model, gradients)
}

/// Trained for some steps, so that the masters are not their weights.
fn trained(device: &TpuDevice) -> (Linear<A>, impl Optimizer<Linear<A>, A> + use<>) {
    let mut optimizer = TpuOptimizer::new(AdamConfig::new().init::<A, Linear<A>>());
    let mut model = LinearConfig::new(8, 4).init::<A>(device);
    for _ in 0..3 {
        model = step(model, &mut optimizer, 1e-3, device);
    }
    (model, optimizer)
}

#[test]
fn weights_that_were_set_stay_what_they_were_set_to() {
    let Some(device) = bf16_device() else { return };
    let _alone = alone();
    let (model, mut optimizer) = trained(&device);
    let zero = model.map(&mut Replace(|old: Vec<f32>| vec![0.0; old.len()]));
    let model = step(zero, &mut optimizer, 0.0, &device);
    assert_eq!(weights(&model), vec![0.0; 32]);
}

/// Element by element: what was clipped starts anew, the rest keeps its master.
#[test]
fn weights_that_were_clipped_stay_clipped() {
    let Some(device) = bf16_device() else { return };
    let _alone = alone();
    let (model, mut optimizer) = trained(&device);
    let clip = |old: Vec<f32>| old.into_iter().map(|weight| weight.clamp(-0.125, 0.125)).collect();
    let clipped = model.map(&mut Replace(clip));
    let expected = weights(&clipped);
    let model = step(clipped, &mut optimizer, 0.0, &device);
    assert_eq!(weights(&model), expected);
}

/// Updates far below 1/256 of a weight add up: the weight that the optimizer wrote is the master's rounding, no more.
#[test]
fn small_updates_still_add_up_in_the_master() {
    let Some(device) = bf16_device() else { return };
    let _alone = alone();
    let mut optimizer = TpuOptimizer::<_, Linear<A>, A>::from(SgdConfig::new().build());
    let mut model = LinearConfig::new(8, 4).init::<A>(&device);
    model = model.map(&mut Replace(|old: Vec<f32>| vec![1.0; old.len()]));
    // The gradient of a weight is 4, so 100 steps of 1e-4 * 4 make 0.04; a single one would be rounded away.
    for _ in 0..100 {
        model = step(model, &mut optimizer, 1e-4, &device);
    }
    assert!(weights(&model).iter().all(|weight| (weight - 0.96).abs() < 0.004), "{:?}", weights(&model));
}

/// A changed weight costs no program: the next step is the same one.
#[test]
fn a_changed_weight_costs_no_compile() {
    let Some(device) = bf16_device() else { return };
    let _alone = alone();
    let (model, mut optimizer) = trained(&device);
    let zero = model.map(&mut Replace(|old: Vec<f32>| vec![0.0; old.len()]));
    let (_, count) = counted(&device, || step(zero, &mut optimizer, 1e-3, &device));
    assert_eq!((count.compiles, count.executions), (0, 1), "{count:?}");
}

/// Returns the number of ended steps.
fn marked(device: &TpuDevice) -> u64 {
    device.metrics().cuts.get(&CutReason::MarkStep).copied().unwrap_or(0)
}

/// One step moves a weight by 1/1000: a bf16 weight of 1 cannot take that up without a master copy.
#[test]
fn each_step_is_one_program_and_moves_the_weights() {
    let Some(device) = bf16_device() else { return };
    let _alone = alone();
    let mut optimizer = TpuOptimizer::new(AdamConfig::new().init());
    let model = LinearConfig::new(8, 4).init::<A>(&device).map(&mut Replace(|old: Vec<f32>| vec![1.0; old.len()]));
    let model = (0..2).fold(model, |model, _| step(model, &mut optimizer, 1e-3, &device));
    let before = marked(&device);
    let (model, count) =
        counted(&device, || (0..48).fold(model, |model, _| step(model, &mut optimizer, 1e-3, &device)));
    assert_eq!((marked(&device) - before, count.executions, count.compiles), (48, 48, 0), "{count:?}");
    assert_eq!(model.weight.val().dtype(), DType::BF16);
    assert!(weights(&model).iter().all(|weight| (0.945..0.955).contains(weight)), "{:?}", weights(&model));
}

#[test]
fn a_record_goes_on_in_a_new_optimizer() {
    let Some(device) = bf16_device() else { return };
    let _alone = alone();
    let mut optimizer = TpuOptimizer::new(AdamConfig::new().init::<A, Linear<A>>());
    let before = marked(&device);
    let model =
        (0..20).fold(LinearConfig::new(8, 4).init(&device), |model, _| step(model, &mut optimizer, 1e-3, &device));
    assert_eq!(marked(&device) - before, 20);
    let recorder = BinBytesRecorder::<FullPrecisionSettings>::default();
    let saved = recorder.record(optimizer.to_record(), ()).expect("a record");
    let resumed = TpuOptimizer::new(AdamConfig::new().init::<A, Linear<A>>());
    let mut resumed = resumed.load_record(recorder.load(saved, &device).expect("the record"));
    let expected = (0..20).fold(model.clone(), |model, _| step(model, &mut optimizer, 1e-3, &device));
    let found = (0..20).fold(model, |model, _| step(model, &mut resumed, 1e-3, &device));
    assert_eq!(weights(&found), weights(&expected));
}
