//! `autocast` of Burn 0.22 and 0.23: which parameters are cast, gradients, steps. Without the CPU plugin it runs in the
//! interpreter.

use burn::module::{Module, ModuleVisitor, Param};
use burn::nn::{BatchNorm, BatchNormConfig, LayerNorm, LayerNormConfig, Linear, LinearConfig, RmsNorm, RmsNormConfig};
use burn::optim::{AdamWConfig, GradientsParams};
use burn::prelude::*;
use burn::tensor::{DType, FloatDType};
use burn_tpu::{Platform, TpuDevice, TpuOptimizer, TpuOptions, autocast};
use burn_tpu_runtime::Device as RuntimeDevice;

/// Whether Burn's layers take operands of two float types. Those of 0.23 refuse them.
fn mixes() -> bool {
    env!("CARGO_PKG_NAME") == "burn-tpu-native-0-22"
}

/// Norms around layers that are none.
#[derive(Module, Debug)]
struct Model {
    first: Linear,
    layer: LayerNorm,
    rms: RmsNorm,
    batch: BatchNorm,
    last: Linear,
}

impl Model {
    fn new(device: &Device) -> Self {
        Self {
            first: LinearConfig::new(6, 8).init(device),
            layer: LayerNormConfig::new(8).init(device),
            rms: RmsNormConfig::new(8).init(device),
            batch: BatchNormConfig::new(4).init(device),
            last: LinearConfig::new(8, 3).init(device),
        }
    }

    /// Maps `[16, 4, 6]` to `[16, 4, 3]`, and says which types were between.
    fn forward(&self, x: Tensor<3>) -> (Tensor<3>, [DType; 4]) {
        let hidden = self.first.forward(self.input(x));
        let layer = self.layer.forward(hidden.clone());
        let rms = self.rms.forward(layer.clone());
        let batch = self.batch.forward(rms.clone() + hidden.clone());
        let dtypes = [&hidden, &layer, &rms, &batch].map(|x| x.dtype());
        (self.last.forward(batch), dtypes)
    }

    /// Burn 0.22 takes inputs of another float type than the weights', Burn 0.23 refuses them.
    fn input(&self, x: Tensor<3>) -> Tensor<3> {
        if mixes() { x } else { x.cast(FloatDType::from(self.first.weight.val().dtype())) }
    }

    fn loss(&self, x: Tensor<3>) -> Tensor<1> {
        let (y, _) = self.forward(x);
        (y.cast(FloatDType::F32) - 0.5).powi_scalar(2).mean()
    }
}

fn batch(device: &Device) -> Tensor<3> {
    let values: Vec<f32> = (0..16 * 4 * 6).map(|i| ((i * 7) % 23) as f32 * 0.1 - 1.0).collect();
    Tensor::<1>::from_floats(values.as_slice(), device).reshape([16, 4, 6])
}

/// The types of a model's gradients, and all their values.
struct Seen<'g> {
    gradients: &'g GradientsParams,
    dtypes: Vec<DType>,
    values: Vec<f32>,
}

impl ModuleVisitor for Seen<'_> {
    fn visit_float<const D: usize>(&mut self, parameter: &Param<Tensor<D>>) {
        let Some(gradient) = self.gradients.get::<D>(parameter.id) else { return };
        self.dtypes.push(gradient.dtype());
        self.values.extend(gradient.into_data().iter::<f32>());
    }
}

fn seen<'g>(model: &Model, gradients: &'g GradientsParams) -> Seen<'g> {
    let mut seen = Seen { gradients, dtypes: Vec::new(), values: Vec::new() };
    model.visit(&mut seen);
    seen
}

#[test]
fn layers_are_cast_norms_are_not_and_gradients_are_f32() {
    // Not the device of the other test, which counts.
    let device = Device::from(TpuDevice::from(RuntimeDevice::new(Platform::NdArray, 1))).autodiff();
    let model = Model::new(&device);
    let fast = autocast(&model);
    assert_eq!(fast.first.weight.val().dtype(), DType::BF16);
    let of_norms = if mixes() { DType::F32 } else { DType::BF16 };
    assert_eq!([&fast.layer.gamma, &fast.rms.gamma].map(|scale| scale.val().dtype()), [of_norms; 2]);
    let (y, between) = fast.forward(batch(&device));
    assert_eq!((y.dtype(), between), (DType::BF16, [DType::BF16; 4]));

    let narrow = GradientsParams::from_grads(fast.loss(batch(&device)).backward(), &model);
    let wide = GradientsParams::from_grads(model.loss(batch(&device)).backward(), &model);
    let (narrow, wide) = (seen(&model, &narrow), seen(&model, &wide));
    assert_eq!((narrow.values.len(), narrow.dtypes.len()), (wide.values.len(), 9));
    assert!(narrow.dtypes.iter().all(|&dtype| dtype == DType::F32), "{:?}", narrow.dtypes);
    let squares = |values: &mut dyn Iterator<Item = f32>| values.map(|x| x * x).sum::<f32>();
    let between = squares(&mut narrow.values.iter().zip(&wide.values).map(|(a, b)| a - b));
    let distance = (between / squares(&mut wide.values.iter().copied())).sqrt();
    // bf16 rounds to 1/256.
    assert!(distance < 0.03, "{distance}");
    assert!(distance > 0.0, "nothing was computed in bf16");
}

#[test]
fn a_step_is_one_program() {
    let tpu = TpuDevice::default();
    TpuOptions::training().strict(true).disk_cache(false).install(&tpu).expect("the first use of the device");
    let device = Device::from(tpu).autodiff();
    let mut model = Model::new(&device);
    let mut optimizer = TpuOptimizer::new(AdamWConfig::new().build());
    let mut counts = Vec::new();
    let mut losses = Vec::new();
    for _ in 0..20 {
        let loss = autocast(&model).loss(batch(&device));
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(1e-2, model, gradients);
        let metrics = tpu.metrics();
        counts.push((metrics.executions, metrics.compiles));
        losses.push(loss);
    }
    assert_eq!((counts[19].0 - counts[2].0, counts[19].1 - counts[2].1), (17, 0), "{counts:?}");
    let losses: Vec<f32> = losses.into_iter().map(|loss| loss.into_scalar::<f32>()).collect();
    assert!(losses[19] < 0.5 * losses[0], "{losses:?}");
    assert_eq!(model.first.weight.val().dtype(), DType::F32);
}
